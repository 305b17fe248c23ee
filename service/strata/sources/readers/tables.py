"""Tables as lines: one row a line, cells parted by `` | ``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strata.text.paragraphs import collapse_spaces

MAX_SPAN = 1_000
MAX_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Cell:
    """A table cell as written, with the rows and columns it spans."""

    text: str
    rows: int = 1
    columns: int = 1


def cell_text(text: str) -> str:
    """Return a cell's text on one line; a break inside it parts words, but not wide characters."""
    return collapse_spaces(text)


def expand_spans(rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """Lay cells on a grid.

    A cell that spans rows is repeated in each, so that a row read alone keeps its meaning; one that
    spans columns stands in the first of them. Spans end with the table and at 1,000; a table of more
    than a million grid cells keeps its spans unexpanded.
    """
    grid: list[list[str]] = []
    hanging: dict[int, tuple[int, str]] = {}
    total = 0
    for number, row in enumerate(rows):
        line: list[str] = []
        cells = iter(row)
        next_hanging: dict[int, tuple[int, str]] = {}
        cell = next(cells, None)
        while cell is not None or any(column >= len(line) for column in hanging):
            column = len(line)
            if column in hanging:
                left, text = hanging.pop(column)
                line.append(text)
                if left > 1:
                    next_hanging[column] = (left - 1, text)
                continue
            if cell is None:
                line.append("")
                continue
            _place(cell, line, next_hanging, len(rows) - number, expand=total < MAX_CELLS)
            cell = next(cells, None)
        hanging = next_hanging
        total += len(line)
        grid.append(line)
    return grid


def _place(cell: Cell, line: list[str], hanging: dict[int, tuple[int, str]], rows_left: int, *, expand: bool) -> None:
    down = min(cell.rows if cell.rows > 0 else rows_left, rows_left, MAX_SPAN)
    across = max(1, min(cell.columns, MAX_SPAN))
    for offset in range(across if expand else 1):
        text = cell.text if offset == 0 else ""
        if down > 1 and expand:
            hanging[len(line)] = (down - 1, text)
        line.append(text)


def render_rows(rows: Iterable[Sequence[str]]) -> str:
    """Return the rows as lines; rows without text are left out, empty cells at a row's end too."""
    lines = []
    for row in rows:
        filled = list(row)
        while filled and not filled[-1]:
            filled.pop()
        if filled:
            lines.append(" | ".join(filled))
    return "\n".join(lines)
