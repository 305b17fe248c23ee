"""Quality of one judged set, as the benchmarks report it: every lane beside bm25s, and evidence coverage."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from uuid import UUID

from msgspec import Struct, field

from strata.evaluate.beir import JudgedSet, load_judged_set
from strata.evaluate.coverage import RIVAL, Coverage
from strata.evaluate.lanes import DEPTH, LANES
from strata.evaluate.metrics import ndcg_at, recall_at
from strata.evaluate.rival import rival_for
from strata.evaluate.scratch import Progress
from strata.evaluate.service import EvaluateService

MEETING = "meeting"
"""The field of a question that names the recording it is about."""


class Means(Struct, frozen=True, kw_only=True):
    """Means over the questions of a set, 0..1."""

    ndcg_at_10: float = field(name="ndcg@10")
    recall_at_100: float = field(name="recall@100")


class Quality(Struct, frozen=True, kw_only=True, rename="camel"):
    """The lanes on one set, bm25s among them; a lane that was left out for want of vectors is missing.

    ``within`` is the field of the question whose value every source asked belongs to, None for all sources.
    """

    name: str
    questions: int
    within: str | None
    lanes: dict[str, Means]
    coverage: Coverage | None = None


async def quality(
    evaluate: EvaluateService,
    tenant: UUID,
    directory: Path,
    *,
    covered: Collection[str] = (),
    most: int | None = None,
    progress: Progress | None = None,
) -> list[Quality]:
    """Return the quality on one set; of a set of meetings over all of them, and inside the one asked about.

    Evidence coverage is measured on the sets that ``covered`` names; ``most`` bounds the questions of each set.
    """
    judged = (await asyncio.to_thread(load_judged_set, directory)).sample(most)
    every = await _quality(evaluate, tenant, directory, judged, within=None, most=most, progress=progress)
    if judged.name in covered:
        coverage = await evaluate.coverage(
            tenant, directory, by_language=judged.is_multilingual, most=most, keep=True, progress=progress
        )
        every = Quality(name=every.name, questions=every.questions, within=None, lanes=every.lanes, coverage=coverage)
    if not judged.queries or not all(MEETING in query.fields for query in judged.queries):
        return [every]
    return [every, await _quality(evaluate, tenant, directory, judged, within=MEETING, most=most, progress=progress)]


async def _quality(
    evaluate: EvaluateService,
    tenant: UUID,
    directory: Path,
    judged: JudgedSet,
    *,
    within: str | None,
    most: int | None,
    progress: Progress | None,
) -> Quality:
    scores = await evaluate.beir(
        tenant,
        directory,
        lanes=LANES,
        by_language=judged.is_multilingual,
        within=within,
        most=most,
        keep=True,
        progress=progress,
    )
    rival = await asyncio.to_thread(rival_means, judged, within)
    lanes = {
        name: Means(ndcg_at_10=value.ndcg_at_10, recall_at_100=value.recall_at_100) for name, value in scores.items()
    }
    return Quality(name=judged.name, questions=len(judged.queries), within=within, lanes={RIVAL: rival, **lanes})


def rival_means(judged: JudgedSet, within: str | None = None) -> Means:
    """Return the means of bm25s; a set in several languages has an index for each."""
    languages: Sequence[str | None] = [None]
    if judged.is_multilingual:
        languages = sorted({query.lang for query in judged.queries}, key=str)
    rankings: dict[str, list[str]] = {}
    for language in languages:
        rival = rival_for(judged, language)
        for query in judged.queries:
            if not judged.is_multilingual or query.lang == language:
                rankings[query.id] = rival.ranking(query, DEPTH, within)
    rows = [(rankings[query.id], judged.judgments[query.id]) for query in judged.queries]
    count = max(1, len(rows))
    return Means(
        ndcg_at_10=round(sum(ndcg_at(ranking, gold, 10) for ranking, gold in rows) / count, 4),
        recall_at_100=round(sum(recall_at(ranking, gold, DEPTH) for ranking, gold in rows) / count, 4),
    )
