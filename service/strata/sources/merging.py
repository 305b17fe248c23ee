"""Merge the lexical index behind the writers, one task a context."""

from __future__ import annotations

import asyncio
from uuid import UUID

import structlog

from strata.lanes.lexical.merge import merge_context
from strata.platform.database import Database

_BUSY_SECONDS = 1.0
_BUSY_TRIES = 30

_log = structlog.get_logger(__name__)


class Merger:
    """Runs merges in the background; a context is merged by one task at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._wanted: dict[tuple[UUID, UUID], bool] = {}
        self._running: dict[tuple[UUID, UUID], asyncio.Task[None]] = {}

    def schedule(self, tenant: UUID, context: UUID, *, purge: bool = False) -> None:
        """See to it that the context is merged soon; ``purge`` also takes out every byte of what was deleted."""
        key = (tenant, context)
        self._wanted[key] = self._wanted.get(key, False) or purge
        if key not in self._running:
            task = asyncio.create_task(self._run(key))
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))

    async def settle(self, timeout_seconds: float | None = None) -> None:
        """Wait until no merge is wanted any more, or the time is over."""
        while self._running:
            done, _ = await asyncio.wait(list(self._running.values()), timeout=timeout_seconds)
            if not done:
                return
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Give running merges five seconds, then break them off: nothing is lost, the next one starts over."""
        await self.settle(5.0)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: tuple[UUID, UUID]) -> None:
        while key in self._wanted:
            purge = self._wanted.pop(key)
            try:
                await self._merge(key, purge=purge)
            except Exception as error:  # noqa: BLE001  the index is right without the merge; the next write asks again
                _log.warning("lexical.merge_failed", context=str(key[1]), error=type(error).__name__, detail=str(error))

    async def _merge(self, key: tuple[UUID, UUID], *, purge: bool) -> None:
        for _ in range(_BUSY_TRIES):
            report = await merge_context(self._database, *key, purge=purge)
            # Who merges already will see what we would; but only we know of the purge.
            if not report.busy or not purge:
                return
            await asyncio.sleep(_BUSY_SECONDS)
