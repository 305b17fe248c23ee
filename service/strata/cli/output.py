"""What commands write: one JSON document, or text that reads well on a terminal and in a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from strata.cli.base import output_may_close

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def json_document(value: Any) -> None:
    """Write a value as one indented JSON document in UTF-8, in the shape that REST gives it."""
    import msgspec

    document = msgspec.json.format(msgspec.json.encode(value), indent=2)
    binary(document + b"\n")


def json_page(items: Sequence[Any], next_cursor: str | None = None) -> None:
    """Write one page of a list, in the shape that every list has over REST."""
    json_document({"items": items, "nextCursor": next_cursor})


def binary(data: bytes) -> None:
    """Write bytes to standard output as they are."""
    with output_may_close():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def line(text: str = "") -> None:
    """Write one line of our own making."""
    with output_may_close():
        print(text)


def note(text: str) -> None:
    """Write one line to standard error: what happened, as opposed to what was asked for."""
    print(text, file=sys.stderr, flush=True)


def console(*, errors: bool = False) -> Console:
    """Return a console; without a terminal it neither colours nor folds lines.

    NO_COLOR and TERM=dumb turn colour off, FORCE_COLOR turns it on.
    """
    from rich.console import Console

    stream = sys.stderr if errors else sys.stdout
    width = None if stream.isatty() else 10_000
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def render(*parts: RenderableType, to: Console | None = None) -> None:
    """Print renderables to standard output."""
    target = to or console()
    with output_may_close():
        for part in parts:
            target.print(part)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[int] = ()) -> None:
    """Print an aligned table; ``right`` names the columns set to the right, from 0."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    to_the_right = set(right)
    for index, heading in enumerate(headings):
        grid.add_column(heading, justify="right" if index in to_the_right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell(value)) for value in row))
    target = console()
    with target.capture() as captured:
        target.print(grid)
    with output_may_close():
        # The padding of the last column would fill a piped line with blanks.
        for text in captured.get().splitlines():
            print(text.rstrip() if not target.is_terminal else text)


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair a line; a pair without a value is left out."""
    from rich.text import Text

    shown = [(name, cell(value)) for name, value in pairs if value not in (None, "", [], {}, ())]
    width = max((len(name) for name, _ in shown), default=0)
    render(*(Text.assemble((f"{name:<{width}}  ", "bold"), value) for name, value in shown))


def cell(value: object) -> str:
    """Return a value as a cell shows it."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(part) for part in value)
    return printable(str(value))


def printable(text: str) -> str:
    """Replace control characters, so that no document can steer the terminal."""
    return _CONTROL.sub("\ufffd", text)


def human_bytes(count: int) -> str:
    """Return a byte count for people: 1,536 is ``1.5 KiB``."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def human_seconds(seconds: float) -> str:
    """Return a duration for people: ``0.4 s``, ``12 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def count(number: int, noun: str) -> str:
    """Return a count with its noun: ``1 source``, ``2,000 sources``."""
    plural = noun[:-1] + "ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
