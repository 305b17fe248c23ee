"""One run in the foreground: embed until nothing waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from uuid import UUID

from strata.embeddings.schemas import RunProgress, RunReport
from strata.embeddings.status import coverage
from strata.embeddings.upkeep import Facts, Upkeep, survey
from strata.embeddings.worker import EmbeddingWorker
from strata.platform.database import Database

_OUTAGES = 3
_POLL_SECONDS = 0.5
_REPORT_SECONDS = 1.0


class Run:
    """Takes work until none is left that this process can do, and tells how far it is."""

    def __init__(
        self,
        database: Database,
        worker: EmbeddingWorker,
        upkeep: Upkeep,
        progress: Callable[[RunProgress], None] | None,
    ) -> None:
        self._database = database
        self._worker = worker
        self._upkeep = upkeep
        self._progress = progress
        self._started = time.monotonic()
        self._embedded = self._failed = self._base = self._total = 0
        self._told_at = 0.0
        self._unserved: set[int] = set()

    async def through(self, tenant: UUID, context: UUID | None) -> RunReport:
        """Run to the end; raises ``embedding_unavailable`` after three outages in a row."""
        facts = await self._facts(tenant, context)
        self._base = _vectors(facts)
        await self._tell(tenant, context, facts)
        outages = 0
        while True:
            step = await self._worker.step(tenant, context)
            self._embedded += step.embedded
            self._failed += step.failed
            self._unserved |= step.unserved
            outages = outages + 1 if step.outage else 0
            if step.outage is not None:
                if outages >= _OUTAGES:
                    raise step.outage
                await asyncio.sleep(self._worker.wait_seconds())
            elif not step.taken and not await self._upkeep.run(tenant, context):
                facts = await self._facts(tenant, context)
                if not any(self._is_pending(each) for each in facts):
                    return self._report(facts)
                await asyncio.sleep(_POLL_SECONDS)
            await self._tell(tenant, context)

    def _is_pending(self, facts: Facts) -> bool:
        return any(counts.pending and key not in self._unserved for key, counts in facts.work.items())

    async def _facts(self, tenant: UUID, context: UUID | None) -> list[Facts]:
        async with self._database.work(tenant, snapshot=True) as connection:
            return await survey(connection, tenant, context)

    async def _tell(self, tenant: UUID, context: UUID | None, facts: Sequence[Facts] | None = None) -> None:
        """Report, from what is stored: other workers take part."""
        if self._progress is None or (facts is None and time.monotonic() - self._told_at < _REPORT_SECONDS):
            return
        self._told_at = time.monotonic()
        current = await self._facts(tenant, context) if facts is None else facts
        done = max(0, _vectors(current) - self._base)
        self._total = max(self._total, done + sum(_wanted(each) for each in current))
        self._progress(RunProgress(done=done, total=self._total, failed=self._failed))

    def _report(self, facts: Sequence[Facts]) -> RunReport:
        active = [space for each in facts if (space := each.space("active"))]
        return RunReport(
            embedded=self._embedded,
            failed=self._failed,
            coverage=coverage(sum(space.vectors for space in active), sum(each.passages for each in facts)),
            seconds=round(time.monotonic() - self._started, 3),
        )


def _vectors(facts: Sequence[Facts]) -> int:
    return sum(space.vectors for each in facts for space in each.spaces if space.state != "retired")


def _wanted(facts: Facts) -> int:
    """Return how many vectors are wanting: those of the first space too, before it is made."""
    spaces = [space for space in facts.spaces if space.state != "retired"]
    return sum(facts.lacking(space) for space in spaces) if spaces else facts.passages
