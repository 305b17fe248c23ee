"""Evidence coverage: is all that a question needs inside the first so many tokens of a result?"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from importlib.util import find_spec

from msgspec import Struct

from strata.evaluate.beir import JudgedSet, Query
from strata.evaluate.lanes import DEPTH, RANKINGS, Asker, answerable_lanes
from strata.evaluate.metrics import all_within
from strata.evaluate.rival import Bm25s, whole_text
from strata.evaluate.scratch import Progress
from strata.lookup.schemas import EvidenceBlock
from strata.sources.readers import BeirRecord

BUDGETS = (1000, 2000, 4000)
"""Tokens of result, by the declared estimate."""

RIVAL = "bm25s"
LOOKUP = "lookup"
LOOKUP_TEXT = "lookup_text"

Pieces = list[tuple[str, str]]
"""(document, text) in rank order."""


class Coverage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Share of the questions (0..1) for each way and budget.

    ``bm25s`` and the lanes give whole documents in rank order, ``lookup_text`` the blocks of a whole call under
    their titles; each stops at the first that does not fit. ``lookup`` is a call with ``budget.maxTokens``,
    whose tokens count every byte of the blocks' JSON. ``left_out`` says why a way is missing.
    """

    questions: int
    shares: dict[str, dict[int, float]]
    left_out: dict[str, str]


class CoverageMeasure:
    """Measures one set, whose documents it holds."""

    def __init__(
        self,
        judged: JudgedSet,
        asker: Asker,
        texts: dict[str, str],
        rivals: dict[str | None, Bm25s],
        within: str | None,
    ) -> None:
        self._judged = judged
        self._asker = asker
        self._texts = texts
        self._rivals = rivals
        self._within = within

    @classmethod
    async def of(
        cls, judged: JudgedSet, asker: Asker, *, by_language: bool = False, within: str | None = None
    ) -> CoverageMeasure:
        """Read the corpus and index it for the rival, once for each language where asked by language."""

        def build() -> tuple[dict[str, str], dict[str | None, Bm25s]]:
            records = judged.documents()
            languages = {query.lang for query in judged.queries} if by_language else {None}
            return {record.id: whole_text(record) for record in records}, rivals_over(records, languages)

        texts, rivals = await asyncio.to_thread(build)
        return cls(judged, asker, texts, rivals, within=within)

    async def run(
        self, budgets: Sequence[int] = BUDGETS, *, has_vectors: bool, progress: Progress | None = None
    ) -> Coverage:
        """Ask every question in every way; ways that need vectors are left out where there are none."""
        lanes, without = answerable_lanes(list(RANKINGS), has_vectors=has_vectors)
        left_out = dict.fromkeys(without, "embeddings are off")
        if not self._rivals:
            left_out[RIVAL] = "the package bm25s is not installed"
        ways = [RIVAL] * bool(self._rivals) + [*lanes, LOOKUP_TEXT, LOOKUP]
        inside = {way: dict.fromkeys(budgets, 0) for way in ways}
        for number, query in enumerate(self._judged.queries, 1):
            for way in ways:
                for budget, is_inside in (await self._covered(query, way, budgets)).items():
                    inside[way][budget] += is_inside
            if progress:
                progress("coverage", number, len(self._judged.queries))
        questions = max(1, len(self._judged.queries))
        return Coverage(
            questions=len(self._judged.queries),
            shares={way: {b: round(n / questions, 4) for b, n in counts.items()} for way, counts in inside.items()},
            left_out=left_out,
        )

    async def _covered(self, query: Query, way: str, budgets: Sequence[int]) -> dict[int, bool]:
        gold = self._judged.gold(query)
        if query.is_blank:
            return dict.fromkeys(budgets, False)
        if way == LOOKUP:
            return {budget: gold <= await self._kept(query, budget) for budget in budgets}
        if way == LOOKUP_TEXT:
            result = await self._asker.call(query, LOOKUP, content=True)
            pieces = [(block.source, under_title(block)) for block in result.evidence_blocks]
        elif way == RIVAL:
            rival = self._rivals.get(query.lang) or self._rivals[None]
            pieces = self._documents(rival.ranking(query, DEPTH, self._within))
        else:
            pieces = self._documents(await self._asker.ranking(query, way))
        return {budget: all_within(pieces, gold, budget) for budget in budgets}

    async def _kept(self, query: Query, budget: int) -> frozenset[str]:
        result = await self._asker.call(query, LOOKUP, max_tokens=budget, content=True)
        return frozenset(block.source for block in result.evidence_blocks)

    def _documents(self, ranking: Sequence[str]) -> Pieces:
        return [(document, self._texts.get(document, "")) for document in ranking]


def rivals_over(records: Sequence[BeirRecord], languages: Collection[str | None]) -> dict[str | None, Bm25s]:
    """Return bm25s over the documents of each language, None being all; nothing where it is not installed."""
    if not has_rival():
        return {}
    return {
        language: Bm25s(
            [
                (record.id, whole_text(record))
                for record in records
                if language is None or record.metadata.get("lang") == language
            ]
        )
        for language in sorted(languages, key=str)
    }


def has_rival() -> bool:
    """Tell whether bm25s is installed; it comes with the development tools only."""
    return find_spec("bm25s") is not None


def under_title(block: EvidenceBlock) -> str:
    """Return what an agent reads of a block: title and headings, then the whole passage, which may hold them."""
    text = (block.content if block.content is not None else block.content_preview).strip()
    title = " › ".join(dict.fromkeys(part for part in (block.title, *block.breadcrumb) if part))
    return text if not title or text.partition("\n")[0].strip() == title else f"{title}\n{text}"
