"""Lines of a PDF page with their places, and the paragraphs they make."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from strata.text.paragraphs import join_wrapped

# pdfium marks a hyphen at a line's end with one of these.
_HYPHENS = "\ufffe\x02"
_LINE = re.compile(f"[^\r\n{_HYPHENS}]+[{_HYPHENS}]?|[{_HYPHENS}]")
_BULLET = re.compile(r"[•◦▪‣●○■□–*-]\s|\(?\d{1,3}[.)]\s|[a-z][.)]\s")
_NUMBER_LAST = re.compile(r"(?P<words>.*?)\s*\b(?P<number>[0-9]{1,5})")
_NUMBER_FIRST = re.compile(r"(?P<number>[0-9]{1,5})\b\s*(?P<words>.*)")
_ENDS_SENTENCE = re.compile(r"[.!?。！？:：;；]['\"”’」』）)]*$")
# A gap this much wider than the page's usual one, in line heights, parts paragraphs.
_GAP = 0.4
# A line that ends before this part of the column's width is a paragraph's last.
_FULL_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text; coordinates in points, the page's origin at its lower left."""

    text: str
    left: float = 0.0
    right: float = 0.0
    bottom: float = 0.0
    top: float = 0.0

    @property
    def height(self) -> float:
        """Return the height of the line's tallest character."""
        return self.top - self.bottom


def page_lines(text_page: Any) -> list[Line]:
    """Return the lines of a page in reading order; without places where pdfium gives none."""
    count = text_page.count_chars()
    if count <= 0:
        return []
    text = text_page.get_text_range()
    # Offsets into the text are character indices only where each character is one code unit.
    placed = len(text) == count
    lines: list[Line] = []
    for match in _LINE.finditer(text):
        content = match[0].strip().replace("\x00", "")
        if content:
            first = match.start() + len(match[0]) - len(match[0].lstrip())
            last = first + len(match[0].strip()) - 1
            lines.append(_placed(text_page, content, first, last) if placed else Line(content))
    return lines


def _placed(text_page: Any, content: str, first: int, last: int) -> Line:
    """Give a line the box around its first and last characters and some between."""
    step = max(1, (last - first) // 4)
    boxes = [text_page.get_charbox(index, loose=True) for index in (*range(first, last, step), last)]
    return Line(
        content,
        min(box[0] for box in boxes),
        max(box[2] for box in boxes),
        min(box[1] for box in boxes),
        max(box[3] for box in boxes),
    )


class RunningLines:
    """Tells running heads, feet and page numbers: a page's first or last line that one of the two pages before had.

    Facing pages differ, hence two. A number at either end of the line may count the pages.
    """

    def __init__(self) -> None:
        self._before: deque[set[tuple[str, int | None]]] = deque(maxlen=2)

    def without(self, lines: list[Line], index: int, keep: Callable[[Line], bool]) -> list[Line]:
        """Return the page's lines without running ones; lines that ``keep`` names stay, and a page of two lines."""
        here: set[tuple[str, int | None]] = set()
        repeated: set[int] = set()
        for position in {0, len(lines) - 1} if lines else ():
            mark = _running_mark(lines[position].text, index)
            here.add(mark)
            if any(mark in page for page in self._before) and not keep(lines[position]):
                repeated.add(position)
        self._before.append(here)
        if len(lines) <= 2:
            return lines
        return [line for position, line in enumerate(lines) if position not in repeated]


def _running_mark(text: str, index: int) -> tuple[str, int | None]:
    """Return a line without the number at its end or start, and how far that number is from the page's index."""
    if match := _NUMBER_LAST.fullmatch(text) or _NUMBER_FIRST.fullmatch(text):
        return match["words"], int(match["number"]) - index
    return text, None


@dataclass(frozen=True, slots=True)
class Spacing:
    """A page's usual line height, and the gap between two lines above which a paragraph ends, in points."""

    height: float
    gap: float


def usual_spacing(lines: Sequence[Line]) -> Spacing:
    """Measure a page; zeros when its lines have no places."""
    heights = [line.height for line in lines if line.height > 0]
    if not heights:
        return Spacing(0.0, 0.0)
    height = median(heights)
    gaps = [before.bottom - line.top for before, line in pairwise(lines) if line.top < before.top]
    return Spacing(height, max(0.0, median(gaps) if gaps else 0.0) + _GAP * height)


def page_blocks(lines: Sequence[Line], usual: Spacing) -> Iterator[str]:
    """Yield the paragraphs of lines that follow each other; ``usual`` is the page's own spacing.

    A wide gap, a jump up (the next column) and a change of letter size part blocks. Inside a block a
    line joins the one before it when that one is full, else it keeps its own line.
    """
    block: list[Line] = []
    for line in lines:
        if block and _parts(block[-1], line, usual):
            yield _join(block)
            block = []
        block.append(line)
    if block:
        yield _join(block)


def _parts(before: Line, line: Line, usual: Spacing) -> bool:
    if not usual.height or not line.top:
        return False
    gap = before.bottom - line.top
    jumps_up = line.bottom > before.top
    resized = min(before.height, line.height) < 0.6 * max(before.height, line.height) and abs(gap) > 0.3 * usual.height
    return gap > usual.gap or jumps_up or resized


def _join(block: Sequence[Line]) -> str:
    if len(block) == 1:
        return _clean(block[0].text)
    left = min(line.left for line in block)
    right = max(line.right for line in block)
    placed = right > left
    width = median(len(line.text) for line in block)
    paragraphs: list[str] = []
    run: list[str] = [block[0].text]
    for before, line in pairwise(block):
        hyphenated = before.text[-1] in _HYPHENS
        full = before.right >= left + _FULL_SHARE * (right - left) if placed else len(before.text) >= 0.7 * width
        same_row = placed and min(before.top, line.top) - max(before.bottom, line.bottom) > 0.5 * line.height
        indented = placed and line.left > before.left + 0.8 * line.height and _ENDS_SENTENCE.search(before.text)
        if hyphenated or (full and not indented and not _BULLET.match(line.text)) or same_row:
            run.append(line.text)
        else:
            paragraphs.append(_join_run(run))
            run = [line.text]
    paragraphs.append(_join_run(run))
    return "\n".join(paragraphs)


def _join_run(run: Sequence[str]) -> str:
    """Join wrapped lines; the hyphen of a word that a line's end parts goes before a small letter."""
    return _clean(re.sub(f"[{_HYPHENS}] ?(?=[^\\W\\d_])(?=\\S)", _soft, join_wrapped(run)))


def _soft(match: re.Match[str]) -> str:
    following = match.string[match.end()]
    return "" if following.islower() else "-"


def _clean(text: str) -> str:
    return re.sub(f"[{_HYPHENS}] ?", "-", text)
