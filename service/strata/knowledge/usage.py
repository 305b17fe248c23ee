"""Counting reads of contexts in memory, and writing the counts down now and then."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from uuid import UUID

import structlog

from strata.errors import StrataError
from strata.knowledge import usage_repository as repository
from strata.knowledge.usage_repository import Reads
from strata.platform.database import Database

_SECONDS = 5.0
_log = structlog.get_logger(__name__)


class UsageCounter:
    """Reads since the last flush. A crash loses a few seconds of counts; no read waits for a write."""

    def __init__(self, database: Database, seconds: float = _SECONDS) -> None:
        self._database = database
        self._seconds = seconds
        self._reads: dict[UUID, dict[UUID, Reads]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def count(self, tenant: UUID, context: UUID, *, is_empty: bool) -> None:
        """Count one read, an empty one where it found nothing."""
        of_tenant = self._reads.setdefault(tenant, {})
        old = of_tenant.get(context)
        of_tenant[context] = Reads(
            reads=(old.reads if old else 0) + 1,
            empty_reads=(old.empty_reads if old else 0) + is_empty,
            last_read_at=datetime.now(UTC),
        )
        if self._task is None and not self._is_closed:
            self._task = asyncio.create_task(self._run())

    def counted(self, tenant: UUID) -> frozenset[UUID]:
        """Return the contexts with counts that are not written down yet."""
        return frozenset(self._reads.get(tenant, ()))

    async def flush(self) -> None:
        """Write the counts down; what cannot be written is kept for the next time, and the failure raised."""
        pending, self._reads = self._reads, {}
        while pending:
            tenant, reads = pending.popitem()
            try:
                async with self._database.work(tenant, sync_commit=False) as connection:
                    await repository.add_reads(connection, tenant, reads)
            except BaseException:
                self._put_back({**pending, tenant: reads})
                raise

    async def close(self) -> None:
        """Stop, and write down what is left. Safe to call again."""
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._flush_quietly()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            await self._flush_quietly()

    async def _flush_quietly(self) -> None:
        try:
            await self.flush()
        except StrataError as error:
            _log.warning("usage.flush_failed", code=error.code)

    def _put_back(self, failed: dict[UUID, dict[UUID, Reads]]) -> None:
        for tenant, reads in failed.items():
            of_tenant = self._reads.setdefault(tenant, {})
            for context, old in reads.items():
                new = of_tenant.get(context)
                of_tenant[context] = (
                    old
                    if new is None
                    else Reads(old.reads + new.reads, old.empty_reads + new.empty_reads, new.last_read_at)
                )
