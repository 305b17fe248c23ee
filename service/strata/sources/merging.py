"""Merge the lexical index behind the writers, one task a context."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import structlog

from strata.lanes.lexical.merge import merge_context
from strata.platform.database import Database

PURGE_SECONDS = 900.0
"""A merge purges what another process may have left, unless this one has purged the context so lately."""

_BUSY_SECONDS = 1.0
_BUSY_TRIES = 30

_log = structlog.get_logger(__name__)


class Merger:
    """Runs merges in the background; a context is merged by one task at a time.

    Nothing stored tells what a deletion left from what a replacement did, and a wish to purge may be
    lost with its process. So every process purges at its first merge of a context, at the next one
    after a purge that did not end, and else every :data:`PURGE_SECONDS`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._wanted: dict[tuple[UUID, UUID], bool] = {}
        self._running: dict[tuple[UUID, UUID], asyncio.Task[None]] = {}
        self._purged_at: dict[tuple[UUID, UUID], float] = {}

    def schedule(self, tenant: UUID, context: UUID, *, purge: bool = False) -> None:
        """See to it that the context is merged soon; ``purge`` also takes out every byte of what was deleted."""
        key = (tenant, context)
        self._wanted[key] = self._wanted.get(key, False) or purge
        if key not in self._running:
            self._running[key] = asyncio.create_task(self._run(key))

    async def settle(self, timeout_seconds: float | None = None) -> None:
        """Wait until no merge is wanted any more, or the time is over."""
        while self._running:
            _, pending = await asyncio.wait(list(self._running.values()), timeout=timeout_seconds)
            if pending:
                return

    async def close(self) -> None:
        """Give running merges five seconds, then break them off: nothing is lost, the next one starts over."""
        await self.settle(5.0)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that was cancelled before its first step took nothing out itself.
        self._running.clear()

    async def _run(self, key: tuple[UUID, UUID]) -> None:
        try:
            while key in self._wanted:
                is_asked = self._wanted.pop(key)
                purge = is_asked or self._is_purge_due(key)
                try:
                    await self._merge(key, purge=purge, is_asked=is_asked)
                except Exception as error:  # noqa: BLE001  the index is right without; the next write asks again
                    _log.warning(
                        "lexical.merge_failed",
                        context=str(key[1]),
                        purge=purge,
                        error=type(error).__name__,
                        detail=str(error),
                    )
        finally:
            # In one step with the test above: a wish that comes later finds no task and starts one.
            del self._running[key]

    def _is_purge_due(self, key: tuple[UUID, UUID]) -> bool:
        purged_at = self._purged_at.get(key)
        return purged_at is None or time.monotonic() - purged_at >= PURGE_SECONDS

    async def _merge(self, key: tuple[UUID, UUID], *, purge: bool, is_asked: bool) -> None:
        if purge:
            self._purged_at.pop(key, None)
        for _ in range(_BUSY_TRIES):
            started = time.monotonic()
            report = await merge_context(self._database, *key, purge=purge)
            if not report.busy:
                if purge:
                    self._purged_at[key] = started
                return
            # Who merges already will see what we would; but only we know that a purge was asked for.
            if not is_asked:
                return
            await asyncio.sleep(_BUSY_SECONDS)
        _log.warning("lexical.purge_put_off", context=str(key[1]), seconds=_BUSY_SECONDS * _BUSY_TRIES)
