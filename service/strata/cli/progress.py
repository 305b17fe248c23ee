"""Progress on standard error: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from strata.cli import output

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

LINE_SECONDS = 10.0


class Progress:
    """Shows how far a run is, its rate and the time that remains.

    Work is measured in bytes where they are known, since files differ in size; else in sources.
    A context manager: the bar is gone when it ends.
    """

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._stage = ""
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[state]}"),
                console=output.console(errors=True),
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=None, state="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, name: str, done: int, total: int) -> None:
        """Show ``done`` of ``total`` pieces of a stage."""
        self.show(name, done, total, f"{done:,} of {total:,}", pieces=done, noun="piece")

    def show(self, name: str, done: int, total: int, counted: str, *, pieces: int, noun: str) -> None:
        """Show a stage at ``done`` of ``total``; ``counted`` says it in words, ``pieces`` give the rate."""
        now = time.monotonic()
        if name != self._stage:
            # The first stage began when the bar did, before there was anything to tell.
            self._started = now if self._stage else self._started
            self._stage = name
        state = f"{counted}{pace(done, total, pieces, noun, now - self._started)}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=name, completed=done, total=total, state=state)
        elif now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            output.note(f"{name}: {state}")


def pace(done: int, total: int, pieces: int, noun: str, elapsed_seconds: float) -> str:
    """Return the rate, and the time that remains at it; empty while too little is known."""
    if done <= 0 or elapsed_seconds < 1:
        return ""
    rate = f", {pieces / elapsed_seconds:,.0f} {noun}s/s"
    if done >= total:
        return rate
    return f"{rate}, {output.human_seconds(elapsed_seconds * (total - done) / done)} left"
