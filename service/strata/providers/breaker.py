"""A circuit breaker for one service: after enough failures in a row, leave it alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

State = Literal["closed", "open", "half_open"]


class BreakerOpenError(Exception):
    """The service is being left alone; ``seconds`` says for how long still."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"left alone for another {seconds:.1f} s after repeated failures")
        self.seconds = seconds


class Breaker:
    """Lets calls to one service pass, or not.

    Closed: every call passes. Open, after ``failures`` in a row: none does, for ``cool_down_seconds``.
    Half open, after that: one call is the probe, and its end closes the breaker or opens it again.

    The end of a call counts only while the breaker is in the state in which the call entered: what
    was under way before an opening neither opens it anew nor closes it. ``clock`` is monotonic, in
    seconds. For one event loop; not for threads.
    """

    def __init__(
        self, *, failures: int = 5, cool_down_seconds: float = 15.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if failures < 1:
            raise ValueError("a breaker opens after one failure at least")
        self._failures = failures
        self._cool_down = cool_down_seconds
        self._clock = clock
        self._state: State = "closed"
        self._in_a_row = 0
        self._opened_at = 0.0
        self._period = 0

    @property
    def state(self) -> State:
        """What a call would find now; an open breaker that has cooled down reads as half open."""
        return "half_open" if self._state == "open" and self._rest() <= 0 else self._state

    def enter(self) -> int:
        """Return the ticket that :meth:`leave` takes, or raise :class:`BreakerOpenError`."""
        if self._state == "open" and self._rest() <= 0:
            self._move("half_open")
            return self._period
        if self._state != "closed":
            raise BreakerOpenError(max(self._rest(), 0.0))
        return self._period

    def leave(self, ticket: int, *, is_healthy: bool | None) -> None:
        """Say how a call ended; None: it ended without a verdict, as when it was cancelled."""
        if ticket != self._period:
            return
        if is_healthy is None:
            if self._state == "half_open":
                # Cooled down already, so that the next call is the probe.
                self._move("open")
        elif is_healthy:
            self._in_a_row = 0
            if self._state == "half_open":
                self._move("closed")
        else:
            self._in_a_row += 1
            if self._state == "half_open" or self._in_a_row >= self._failures:
                self._in_a_row = 0
                self._opened_at = self._clock()
                self._move("open")

    def _move(self, state: State) -> None:
        self._state = state
        self._period += 1

    def _rest(self) -> float:
        return self._opened_at + self._cool_down - self._clock()
