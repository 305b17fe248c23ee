"""Measure the lanes on a judged set: ingest into a scratch context, ask every question, score."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from msgspec import Struct, field

from strata.embeddings.service import EmbeddingService
from strata.evaluate.beir import JudgedSet, load_judged_set
from strata.evaluate.coverage import BUDGETS, Coverage, CoverageMeasure
from strata.evaluate.lanes import DEFAULT_LANES, DEPTH, Asker, answerable_lanes
from strata.evaluate.metrics import ndcg_at, percentile, recall_at, reciprocal_rank
from strata.evaluate.scratch import Progress, Scratches
from strata.knowledge.service import ContextService
from strata.lookup.service import LookupService
from strata.providers.embeddings.embedders import Embedders
from strata.sources.service import SourceService


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

    def __init__(
        self,
        contexts: ContextService,
        sources: SourceService,
        lookup: LookupService,
        embeddings: EmbeddingService,
        embedders: Embedders,
    ) -> None:
        self.lookup = lookup
        self.scratches = Scratches(contexts, sources, embeddings, embedders)

    async def beir(
        self,
        tenant: UUID,
        directory: Path,
        *,
        lanes: Sequence[str] = DEFAULT_LANES,
        by_language: bool = False,
        within: str | None = None,
        most: int | None = None,
        keep: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, LaneScores]:
        """Return the scores of each lane on the set in ``directory``; a lane that needs vectors only where there are.

        ``by_language`` asks each question among the documents of its own language only, ``within`` among the
        sources that belong to that field of the question. At most ``most`` questions are asked, the same ones
        each time. ``keep`` as for :meth:`Scratches.filled`; ``progress`` is told (stage, done, total). Raises
        ``invalid_request`` for an unfit folder, a lane that does not exist and a question without the field.
        """
        answerable_lanes(lanes, has_vectors=True)
        judged = (await asyncio.to_thread(load_judged_set, directory)).sample(most)
        async with self.scratches.filled(tenant, judged, keep=keep, progress=progress) as scratch:
            asker = Asker(self.lookup, tenant, scratch.name, by_language=by_language, within=within)
            asked, _ = answerable_lanes(lanes, has_vectors=scratch.has_vectors)
            return {lane: await score(asker, judged, lane, progress) for lane in asked}

    async def coverage(
        self,
        tenant: UUID,
        directory: Path,
        *,
        budgets: Sequence[int] = BUDGETS,
        by_language: bool = False,
        within: str | None = None,
        most: int | None = None,
        keep: bool = False,
        progress: Progress | None = None,
    ) -> Coverage:
        """Return the share of questions with all their gold documents inside a number of tokens of result.

        Options and errors as for :meth:`beir`.
        """
        judged = (await asyncio.to_thread(load_judged_set, directory)).sample(most)
        async with self.scratches.filled(tenant, judged, keep=keep, progress=progress) as scratch:
            asker = Asker(self.lookup, tenant, scratch.name, by_language=by_language, within=within)
            measure = await CoverageMeasure.of(judged, asker, by_language=by_language, within=within)
            return await measure.run(budgets, has_vectors=scratch.has_vectors, progress=progress)


async def score(asker: Asker, judged: JudgedSet, lane: str, progress: Progress | None = None) -> LaneScores:
    """Ask every question of a set and return the means."""
    rows: list[tuple[float, float, float, float]] = []
    times: list[float] = []
    for number, query in enumerate(judged.queries, 1):
        started = time.perf_counter()
        found = await asker.ranking(query, lane)
        times.append((time.perf_counter() - started) * 1000)
        gold = judged.judgments[query.id]
        recall = recall_at(found, gold, 10), recall_at(found, gold, DEPTH)
        rows.append((ndcg_at(found, gold, 10), *recall, reciprocal_rank(found, gold)))
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
