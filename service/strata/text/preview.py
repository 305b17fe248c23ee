"""Cut a window out of a text, around what was asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence

ELLIPSIS = "…"
_SENTENCE_END = re.compile(r"[.!?…]['\"”’)\]」』]*\s+|[。！？]['\"”’)\]」』]*\s*")
_SPACE = re.compile(r"\s{2,}|[^\S ]")  # all white space that is not one plain space already
_SPACELESS = re.compile(r"[぀-ヿ㐀-鿿豈-﫿฀-๿]")

Span = tuple[int, int, str]
"""Start and end (characters, end exclusive) of an occurrence, and the term that it is of."""


def preview(text: str, spans: Sequence[Span], max_chars: int) -> str:
    """Return at most ``max_chars`` code points of ``text`` that hold most of the terms.

    The window begins at a sentence where one begins near, else at a word, and ends at a sentence or
    word; an ellipsis marks each cut and counts. White space is collapsed. A text that fits is
    returned whole.
    """
    flat, spans = _flatten(text, spans)
    if len(flat) <= max_chars:
        return flat
    room = max_chars - 2 * len(ELLIPSIS)
    start = _window_start(flat, spans, room)
    if start == 0:
        end = _cut_end(flat, 0, max_chars - len(ELLIPSIS))
        return flat[:end].rstrip() + ELLIPSIS
    if start + room + len(ELLIPSIS) >= len(flat):
        return ELLIPSIS + flat[start : start + max_chars - len(ELLIPSIS)].lstrip()
    end = _cut_end(flat, start, room)
    return ELLIPSIS + flat[start:end].strip() + ELLIPSIS


def _flatten(text: str, spans: Sequence[Span]) -> tuple[str, list[Span]]:
    """Collapse white space, carrying the spans along."""
    begin, text = len(text) - len(text.lstrip()), text.rstrip()
    pieces: list[str] = []
    shifts = [(begin, begin)]
    last, length = begin, 0
    for match in _SPACE.finditer(text, begin):
        pieces.append(text[last : match.start()])
        length += match.start() - last
        pieces.append(" ")
        length += 1
        last = match.end()
        shifts.append((last, last - length))
    pieces.append(text[last:])
    moved: list[Span] = []
    at = shift = 0
    for start, end, term in sorted(spans):
        while at < len(shifts) and shifts[at][0] <= start:
            shift = shifts[at][1]
            at += 1
        moved.append((start - shift, end - shift, term))
    return "".join(pieces), moved


def _window_start(text: str, spans: Sequence[Span], room: int) -> int:
    """Return where the window with most distinct terms, then most occurrences, then the earliest begins."""
    best, best_start = (0, 0), 0
    counts: dict[str, int] = {}
    right = 0
    for left, (start, _, term) in enumerate(spans):
        while right < len(spans) and spans[right][1] <= start + room * 3 // 4:
            counts[spans[right][2]] = counts.get(spans[right][2], 0) + 1
            right += 1
        found = (len(counts), right - left)
        if found > best:
            best, best_start = found, start
        if right > left:
            counts[term] -= 1
            if not counts[term]:
                del counts[term]
        else:
            right = left + 1
    return _readable_start(text, best_start, room)


def _readable_start(text: str, hit: int, room: int) -> int:
    """Return a sentence start at most a third of the room before ``hit``, else a word start before it."""
    earliest = max(0, hit - room // 3)
    if earliest == 0:
        return 0
    begins = [match.end() for match in _SENTENCE_END.finditer(text, earliest, hit)]
    if begins:
        return begins[0]
    near = max(earliest, hit - room // 8)
    space = text.find(" ", near, hit)
    return space + 1 if space >= 0 else near if _SPACELESS.match(text, near) else hit


def _cut_end(text: str, start: int, room: int) -> int:
    """Return the last sentence end in the last fifth of the room, else the last word end."""
    limit = start + room
    ends = [match.end() for match in _SENTENCE_END.finditer(text, start + room * 4 // 5, limit)]
    if ends:
        return ends[-1]
    space = text.rfind(" ", start + room // 2, limit + 1)
    return space if space > 0 and not _SPACELESS.match(text, limit - 1) else limit
