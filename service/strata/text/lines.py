"""Where the paragraphs of a stored text stand: the rule by which paragraphs are numbered and cited."""

from __future__ import annotations

import re

# Unicode's White_Space. str.isspace() and \s also take U+001C to U+001F, which are not in it.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_INLINE = re.escape(WHITE_SPACE.replace("\n", ""))
# One run of lines that each hold a visible character. Possessive throughout: a run is read once, whatever it holds.
_RUN = re.compile(rf"(?m:^)(?:[{_INLINE}]*+[^\n{_INLINE}][^\n]*+\n?+)++")


def paragraph_lines(text: str) -> list[tuple[int, int]]:
    r"""Return the span of every paragraph, in order: runs of lines that are not blank.

    Lines end at ``\n`` only; one ``\r`` at the end of a line belongs to its break. A line is blank
    when it is empty or all Unicode White_Space. A span is in characters, end exclusive: from the
    start of its first line, indent included, to the end of its last line without the break; breaks
    inside stay. A text without a visible character has no paragraphs.
    """
    spans = []
    for run in _RUN.finditer(text):
        end = run.end()
        if text[end - 1] == "\n":
            end -= 1
        if text[end - 1] == "\r":
            end -= 1
        spans.append((run.start(), end))
    return spans
