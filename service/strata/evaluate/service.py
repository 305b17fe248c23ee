"""Measure the lanes on a judged set: ingest into a scratch context, ask every question, score."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from msgspec import Struct, field

from strata.evaluate.beir import JudgedSet, Query, load_judged_set
from strata.evaluate.metrics import ndcg_at, recall_at, reciprocal_rank
from strata.evidence.model import Layer
from strata.knowledge.service import ContextService
from strata.lookup.schemas import MAX_QUERY_CHARS, Filters, LookupRequest
from strata.lookup.service import Caller, LookupService
from strata.platform.ids import new_id
from strata.sources.service import SourceService
from strata.traces.schemas import Surface

DEPTH = 100
"""How deep rankings are judged; recall@100 needs as many."""

AGENT = "strata-evaluate"
"""The agent id in the trace rows of an evaluation."""

LANES = ("lexical", "lookup", "lookup_without_hints")
"""``lexical``: the lane alone. ``lookup``: the whole call with hints on; the last, with hints off."""

DEFAULT_LANES = ("lexical", "lookup")

Progress = Callable[[str, int, int], None]


class LaneScores(Struct, frozen=True, kw_only=True):
    """Means over all questions of a set (0..1), and the lane's time per question in milliseconds."""

    ndcg_at_10: float = field(name="ndcg@10")
    recall_at_10: float = field(name="recall@10")
    recall_at_100: float = field(name="recall@100")
    mrr: float
    queries: int
    p50_ms: float = field(name="p50Ms")
    p95_ms: float = field(name="p95Ms")


class EvaluateService:
    """Runs judged sets through the services that answer real questions."""

    def __init__(self, contexts: ContextService, sources: SourceService, lookup: LookupService) -> None:
        self._contexts = contexts
        self._sources = sources
        self._lookup = lookup

    async def beir(
        self,
        tenant: UUID,
        directory: Path,
        *,
        lanes: Sequence[str] = DEFAULT_LANES,
        by_language: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, LaneScores]:
        """Return the scores of each lane on the set in ``directory``.

        ``by_language`` asks each question among the documents of its own language only.
        ``progress`` is told (stage, done, total). Raises ``invalid_request`` for an unfit folder.
        """
        judged = await asyncio.to_thread(load_judged_set, directory)
        async with self.scratch(tenant, judged, progress) as context:
            return {
                lane: await self._score(tenant, context, judged, lane, by_language=by_language, progress=progress)
                for lane in lanes
            }

    @asynccontextmanager
    async def scratch(self, tenant: UUID, judged: JudgedSet, progress: Progress | None = None) -> AsyncIterator[str]:
        """Ingest the corpus into a context of its own, which is deleted afterwards."""
        name = f"evaluate-{judged.name}-{new_id().hex[-12:]}"
        await self._contexts.create(tenant, name, "Scratch context of an evaluation; safe to delete.")
        try:
            await self._sources.ingest_paths(
                tenant,
                name,
                [judged.corpus],
                progress=(lambda seen: progress("ingest", seen.done, seen.total)) if progress else None,
            )
            yield name
        finally:
            await self._contexts.delete(tenant, name)

    async def ranking(
        self, tenant: UUID, context: str, query: Query, lane: str, *, by_language: bool = False
    ) -> list[str]:
        """Return the documents that a lane finds for a question, best first."""
        language = query.lang if by_language else None
        question = query.text[:MAX_QUERY_CHARS]
        if lane == "lexical":
            return await self._lookup.lexical_ranking(tenant, context, question, DEPTH, language=language)
        request = LookupRequest(
            query=question,
            context=context,
            top_k=DEPTH,
            layers=[Layer.L1] if lane == "lookup_without_hints" else None,
            filters=Filters(language=language) if language else None,
            agent_id=AGENT,
        )
        result = await self._lookup.lookup(tenant, request, Caller(Surface.CLI))
        return [block.source for block in result.evidence_blocks]

    async def _score(
        self,
        tenant: UUID,
        context: str,
        judged: JudgedSet,
        lane: str,
        *,
        by_language: bool,
        progress: Progress | None,
    ) -> LaneScores:
        rows: list[tuple[float, float, float, float]] = []
        times: list[float] = []
        for number, query in enumerate(judged.queries, 1):
            started = time.perf_counter()
            found = await self.ranking(tenant, context, query, lane, by_language=by_language)
            times.append((time.perf_counter() - started) * 1000)
            gold = judged.judgments[query.id]
            rows.append(
                (
                    ndcg_at(found, gold, 10),
                    recall_at(found, gold, 10),
                    recall_at(found, gold, DEPTH),
                    reciprocal_rank(found, gold),
                )
            )
            if progress:
                progress(lane, number, len(judged.queries))
        means = [round(sum(column) / len(rows), 4) for column in zip(*rows, strict=True)] if rows else [0.0] * 4
        return LaneScores(
            ndcg_at_10=means[0],
            recall_at_10=means[1],
            recall_at_100=means[2],
            mrr=means[3],
            queries=len(rows),
            p50_ms=percentile(times, 50),
            p95_ms=percentile(times, 95),
        )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile, rounded to three places; 0.0 for no values."""
    if not values:
        return 0.0
    return round(sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1], 3)
