"""Where paragraphs, sentences and words end, and how wrapped lines join."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

# Scripts written without spaces between words, with their punctuation and full-width forms.
# Hangul is left out: Korean separates words with spaces.
_CJK_CLASS = (
    "\u2e80-\u312f\u31a0-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_CJK_RUN = re.compile(f"[{_CJK_CLASS}]+")
_BETWEEN_CJK = re.compile(f"(?<=[{_CJK_CLASS}])[ \t]*\n[ \t\n]*(?=[{_CJK_CLASS}])")
_BLANK_LINE = re.compile(r"\n[^\S\n]*(?=\n)")
# Each alternative starts at a fixed look-behind, so that a run of dots is not scanned again and again.
SENTENCE_END = re.compile(
    r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”’)\]]))\s+|(?<=[。！？｡])(?![。！？｡」』”’）])|(?<=[。！？｡][」』”’）])"
)
_SPACES = re.compile(r"\s+")
# A wide character carries about as many model tokens as three Latin letters.
CJK_WEIGHT = 3
_MAX_CLUSTER = 64
_MAX_INDENT = 200


def is_cjk(char: str) -> bool:
    """Tell whether the character belongs to a script written without spaces."""
    return bool(char) and _CJK_RUN.match(char) is not None


def text_weight(text: str) -> int:
    """Return the size of a text in Latin-letter equivalents: a wide character counts three."""
    if text.isascii():
        return len(text)
    return len(text) + (CJK_WEIGHT - 1) * sum(map(len, _CJK_RUN.findall(text)))


def join_wrapped(lines: Iterable[str]) -> str:
    """Join the lines of one paragraph: a space between words, nothing between wide characters."""
    text = "\n".join(line for line in (line.strip() for line in lines) if line)
    return _BETWEEN_CJK.sub("", text).replace("\n", " ")


def collapse_spaces(text: str) -> str:
    """Make a text one line, as a browser would: runs of space are one, a break between wide characters none."""
    if "\n" in text:
        text = _BETWEEN_CJK.sub("", text)
    return _SPACES.sub(" ", text).strip()


def trim_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without the white space at its ends; empty spans come back as (start, start)."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def paragraph_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans between blank lines, trimmed of blank lines but not of the first line's indent."""
    position = 0
    for match in _BLANK_LINE.finditer(text):
        yield from _paragraph(text, position, match.start())
        position = match.end()
    yield from _paragraph(text, position, len(text))


def _paragraph(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    first, last = trim_span(text, start, end)
    if first < last:
        line = text.rfind("\n", start, first) + 1
        yield max(line, start), last


def split_prose(text: str, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield trimmed spans of at most ``limit`` weight that cover the span: whole sentences where they fit."""
    ends = (match.end() for match in SENTENCE_END.finditer(text, start, end))
    yield from _pack(text, start, end, limit, ends)


def split_lines(text: str, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield spans of at most ``limit`` weight that cover the span: whole lines where they fit, with their indent."""
    for first, last in _pack(text, start, end, limit, _line_ends(text, start, end)):
        nearest = max(start, first - _MAX_INDENT)
        line = text.rfind("\n", nearest, first) + 1 or nearest
        yield (line if text[line:first].isspace() else first), last


def _line_ends(text: str, start: int, end: int) -> Iterator[int]:
    position = text.find("\n", start, end)
    while position != -1:
        yield position + 1
        position = text.find("\n", position + 1, end)


def _pack(text: str, start: int, end: int, limit: int, ends: Iterable[int]) -> Iterator[tuple[int, int]]:
    piece, weight, position = start, 0, start
    for stop in _with_last(ends, end):
        unit = text_weight(text[position:stop])
        if weight + unit > limit:
            yield from _trimmed(text, piece, position)
            piece, weight = position, 0
            if unit > limit:
                for cut_start, cut_end in _cut_words(text, position, stop, limit):
                    yield from _trimmed(text, cut_start, cut_end)
                piece, position = stop, stop
                continue
        weight += unit
        position = stop
    yield from _trimmed(text, piece, end)


def _with_last(ends: Iterable[int], end: int) -> Iterator[int]:
    last = -1
    for stop in ends:
        last = stop
        yield stop
    if last != end:
        yield end


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    start, end = trim_span(text, start, end)
    if start < end:
        yield start, end


def _cut_words(text: str, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Cut a span that has no better boundary, at spaces where there are some."""
    while start < end:
        cut = _fitting(text, start, end, limit)
        if cut < end:
            space = max(
                text.rfind(" ", start + (cut - start) // 2, cut), text.rfind("\n", start + (cut - start) // 2, cut)
            )
            cut = space + 1 if space > start else cluster_start(text, start, cut)
        yield start, cut
        start = cut


def _fitting(text: str, start: int, end: int, limit: int) -> int:
    """Return the furthest end whose span weighs at most ``limit``; at least one character on."""
    window = text[start : min(end, start + limit)]
    if text_weight(window) <= limit:
        return start + len(window)
    weight = 0
    for offset, char in enumerate(window):
        weight += CJK_WEIGHT if is_cjk(char) else 1
        if weight > limit:
            return start + max(1, offset)
    return start + len(window)


def cluster_start(text: str, start: int, cut: int) -> int:
    """Move a cut back so that it does not part a mark, joiner or selector from its base."""
    low = max(start + 1, cut - _MAX_CLUSTER)
    position = cut
    while position > low and (_extends(text[position]) or text[position - 1] == "\u200d"):
        position -= 1
    return position if position > low or not _extends(text[low]) else cut


def _extends(char: str) -> bool:
    return (
        char in "\u200d\ufe0e\ufe0f"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or unicodedata.combining(char) > 0
        or unicodedata.category(char) in {"Mn", "Mc", "Me"}
    )
