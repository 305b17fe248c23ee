"""Watch a process at work: where the time of a call goes, how long the event loop is held, how much memory it has."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from strata.evaluate.metrics import percentile
from strata.platform import telemetry

MEBIBYTE = 1 << 20


class PartTimes:
    """How long each lane and stage took in each of several calls, in milliseconds."""

    def __init__(self) -> None:
        self._calls: list[dict[str, float]] = []

    def begin(self) -> None:
        """Start the next call."""
        self._calls.append(defaultdict(float))

    def add(self, name: str, milliseconds: float) -> None:
        """Add to a part of the call at hand."""
        if self._calls:
            self._calls[-1][name] += milliseconds

    def percentiles(self, percent: float) -> dict[str, float]:
        """Return the percentile of each part over all calls, by name; a call without the part counts 0."""
        names = sorted({name for call in self._calls for name in call})
        return {name: percentile([call.get(name, 0.0) for call in self._calls], percent) for name in names}

    def total(self, name: str) -> float:
        """Return the milliseconds of a part over all calls."""
        return sum(call.get(name, 0.0) for call in self._calls)


@contextmanager
def part_times() -> Iterator[PartTimes]:
    """Time what telemetry calls lanes and stages, in place, so that the parts are of the very calls timed."""
    parts = PartTimes()
    stage, lane = telemetry.stage, telemetry.lane

    def timed(original: Any) -> Any:
        @contextmanager
        def wrapper(name: str, **attributes: Any) -> Iterator[Any]:
            started = time.perf_counter()
            with original(name, **attributes) as span:
                yield span
            parts.add(name, (time.perf_counter() - started) * 1000)

        return wrapper

    telemetry.stage, telemetry.lane = timed(stage), timed(lane)
    try:
        yield parts
    finally:
        telemetry.stage, telemetry.lane = stage, lane


class LoopWatch:
    """Notes the longest time for which the event loop ran nothing else."""

    STEP = 0.002

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._longest = 0.0
        self._due = self._loop.time() + self.STEP
        self._handle = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self._longest = max(self._longest, self._loop.time() - self._due)
        self._due = self._loop.time() + self.STEP
        self._handle = self._loop.call_at(self._due, self._tick)

    def stop(self) -> float:
        """Return the longest hold in milliseconds."""
        self._handle.cancel()
        return round(self._longest * 1000, 1)


def resident_mib() -> int:
    """Return the resident memory of this process in MiB."""
    return round(psutil.Process().memory_info().rss / MEBIBYTE)
