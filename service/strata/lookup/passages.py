"""The lanes over passages, and their fusion: by words (BM25), by meaning (vectors), or both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from msgspec import Struct

from strata.evidence.fusion import linear_combination
from strata.evidence.model import LaneRank
from strata.knowledge.model import ContextRow
from strata.lanes.lexical.index import LexicalHit, LexicalHits, LexicalIndex
from strata.lanes.vector.index import Eligible, SpaceRef, VectorIndex
from strata.lookup import repository
from strata.lookup.candidates import HYBRID, LEXICAL, VECTOR, Hit
from strata.lookup.fit import Fit, Signals
from strata.lookup.meaning import Meaning
from strata.lookup.repository import SourceFilter
from strata.platform import telemetry
from strata.platform.database import Connection
from strata.text.spans import Coverage
from strata.text.tokenise import QueryTerm
from strata.traces.schemas import LaneTrace

HEAD = 64
"""Passages of each lane that set the scale of the fusion and come first in it, however many are asked for."""


class Scored(Struct, frozen=True):
    """A passage with its true score in both lanes, and its rank (from 1) in those that nominated it.

    ``order`` is the place of its context among those asked; ``bm25`` is 0 where it holds no term,
    ``cosine`` None where it has no vector.
    """

    order: int
    context: UUID
    passage: int
    bm25: float
    cosine: float | None
    coverage: float
    lexical_rank: int | None = None
    vector_rank: int | None = None

    @property
    def is_head(self) -> bool:
        """Whether it is among the first of a lane."""
        return min(self.lexical_rank or HEAD + 1, self.vector_rank or HEAD + 1) <= HEAD


class CandidateSignals(Struct, frozen=True):
    """What the lanes know of a passage of one source."""

    source: str
    scored: Scored


class PassageSearch:
    """The search of one question over the passages of its contexts, over one connection.

    ``lanes`` says which of the two nominate. What one of them nominates gets its true score in the
    other too, wherever that can be had. ``running`` is the lane at work; ``traces`` say what each did.
    """

    def __init__(
        self,
        connection: Connection,
        tenant: UUID,
        contexts: Sequence[ContextRow],
        terms: Sequence[QueryTerm],
        *,
        lexical: LexicalIndex,
        vectors: VectorIndex,
        meanings: Mapping[UUID, Meaning],
        fit: Fit,
        lanes: frozenset[str],
        depth: int,
        on_lane: Callable[[str | None], None],
    ) -> None:
        self._connection = connection
        self._tenant = tenant
        self._contexts = contexts
        self._terms = terms
        self._lexical = lexical
        self._vectors = vectors
        self._meanings = meanings if VECTOR in lanes else {}
        self._fit = fit
        self.lanes = lanes
        self._depth = depth
        self._on_lane = on_lane
        self.traces: dict[str, LaneTrace] = {}
        self.knows_a_term = False
        self._sizes: dict[UUID, int] = {}

    async def find(self, source_filter: SourceFilter, reasons: tuple[str, ...]) -> list[Hit]:
        """Return the passages that the lanes nominate, fused, best first."""
        scored = await self.scored(source_filter)
        fused = fused_scores(scored, self._fit.cosine_weight)
        relevances = self._relevances(scored)
        ranked = sorted(
            zip(scored, fused, relevances, strict=True),
            # What only a deeper search nominates comes after the heads: it must not change who is first.
            key=lambda item: (not item[0].is_head, -item[1], item[0].order, item[0].passage),
        )
        is_hybrid = bool(self._meanings) and LEXICAL in self.lanes
        return [
            Hit(item.context, item.passage, _places(item, score, rank if is_hybrid else None), relevance, reasons)
            for rank, (item, score, relevance) in enumerate(ranked, 1)
        ]

    async def scored(self, source_filter: SourceFilter) -> list[Scored]:
        """Return the union of what the lanes nominate over all contexts."""
        union: list[Scored] = []
        for order, context in enumerate(self._contexts):
            eligible = await self._eligible(context.context_id, source_filter)
            union += await self._in_context(order, context.context_id, eligible)
        lexical = _ranks(union, lambda item: item.bm25 if item.lexical_rank else None, self._depth)
        vector = _ranks(union, lambda item: item.cosine if item.vector_rank else None, self._depth)
        return [
            Scored(
                item.order,
                item.context,
                item.passage,
                item.bm25,
                item.cosine,
                item.coverage,
                lexical.get(at),
                vector.get(at),
            )
            for at, item in enumerate(union)
            if at in lexical or at in vector
        ]

    @property
    def coverage(self) -> float | None:
        """The share of the contexts' passages that have a vector, once searched; None where nothing is known of it."""
        passages = sum(self._sizes.values())
        if not passages:
            return None
        vectors = sum(
            min(meaning.active.vectors, self._sizes.get(context, 0)) for context, meaning in self._meanings.items()
        )
        return round(vectors / passages, 4)

    async def words(self, source_filter: SourceFilter, terms: Sequence[QueryTerm], lane: str) -> list[Hit]:
        """Return what the lexical lane alone finds for other terms, as hits of ``lane``."""
        found: list[Scored] = []
        for order, context in enumerate(self._contexts):
            eligible = await self._eligible(context.context_id, source_filter)
            hits = await self._lexical_hits(context.context_id, terms, eligible)
            shares = _Shares(self._terms, terms, hits)
            found += [
                Scored(order, context.context_id, hit.passage_id, hit.score, None, shares.of(hit)) for hit in hits.hits
            ]
        found.sort(key=lambda item: (-item.bm25, item.order, item.passage))
        del found[self._depth :]
        return [
            Hit(item.context, item.passage, (LaneRank(lane, rank, item.bm25),), relevance, ())
            for rank, (item, relevance) in enumerate(zip(found, self._relevances(found), strict=True), 1)
        ]

    def _relevances(self, scored: Sequence[Scored]) -> list[float]:
        return self._fit.relevances([Signals(item.coverage, item.bm25, item.cosine) for item in scored])

    async def _eligible(self, context: UUID, source_filter: SourceFilter) -> Eligible | None:
        if source_filter.is_empty:
            return None
        return await repository.eligible(self._connection, self._tenant, context, source_filter)

    async def _in_context(self, order: int, context: UUID, eligible: Eligible | None) -> list[Scored]:
        """Nominate in one context; ranks here only say by which lane."""
        hits: LexicalHits | None = None
        words: dict[int, LexicalHit] = {}
        if self._terms:
            with self._lane(LEXICAL) as done:
                # Statistics and true scores are wanted even where only the other lane nominates.
                hits = await self._lexical_hits(context, self._terms, eligible)
                self._sizes[context] = hits.passages
                self.knows_a_term |= any(hits.frequencies[term.token] for term in self._terms if term.groups)
                if LEXICAL in self.lanes:
                    words = {hit.passage_id: hit for hit in hits.hits}
                    done(len(words))
        cosines: dict[int, float | None] = {}
        near: set[int] = set()
        if meaning := self._meanings.get(context):
            with self._lane(VECTOR) as done:
                active = meaning.active
                found = await self._vectors.search(
                    self._connection,
                    self._tenant,
                    context,
                    SpaceRef(active.space_id, active.space.dimension, active.vectors, active.is_indexed),
                    meaning.vector,
                    k=self._depth,
                    eligible=eligible,
                    also=sorted(words),
                )
                cosines = dict(zip(sorted(words), found.also, strict=True))
                cosines.update((hit.passage_id, hit.cosine) for hit in found.hits)
                near = {hit.passage_id for hit in found.hits}
                done(len(near))
        if hits is None:
            return [Scored(order, context, passage, 0.0, cosines[passage], 0.0, None, 1) for passage in sorted(near)]
        shares = _Shares(self._terms, self._terms, hits)
        far = sorted(near - words.keys())
        every = {**words, **{hit.passage_id: hit for hit in hits.of(far)}} if far else words
        return [
            Scored(
                order,
                context,
                passage,
                hit.score,
                cosines.get(passage),
                shares.of(hit),
                1 if passage in words else None,
                1 if passage in near else None,
            )
            for passage, hit in every.items()
        ]

    async def _lexical_hits(self, context: UUID, terms: Sequence[QueryTerm], eligible: Eligible | None) -> LexicalHits:
        serials = None if eligible is None else eligible.serials
        return await self._lexical.search(
            self._connection, self._tenant, context, terms, k=self._depth, eligible=serials
        )

    @contextmanager
    def _lane(self, name: str) -> Iterator[Callable[[int], None]]:
        """Name the lane at work, and add to its trace what it did."""
        started = time.perf_counter()
        candidates = 0

        def done(found: int) -> None:
            nonlocal candidates
            candidates = found

        self._on_lane(name)
        with telemetry.lane(name):
            yield done
        self._on_lane(None)
        if name in self.lanes:
            before = self.traces.get(name, LaneTrace(ran=True))
            spent = before.duration_ms + (time.perf_counter() - started) * 1000
            self.traces[name] = LaneTrace(
                ran=True, candidates=before.candidates + candidates, duration_ms=round(spent, 3)
            )


class _Shares:
    """The coverage of a question by the terms that a hit holds."""

    def __init__(self, question: Sequence[QueryTerm], terms: Sequence[QueryTerm], hits: LexicalHits) -> None:
        self._coverage = Coverage(question, hits.idf)
        self._terms = terms
        self._known: dict[int, float] = {}

    def of(self, hit: LexicalHit) -> float:
        """Return the share, 0 to 1; computed once for each set of terms."""
        share = self._known.get(hit.matched)
        if share is None:
            present = (term.token for at, term in enumerate(self._terms) if hit.matched >> at & 1)
            share = self._known[hit.matched] = self._coverage.of(present)
        return share


def fused_scores(scored: Sequence[Scored], cosine_weight: float | None) -> list[float]:
    """Return the fused score of each passage; those of one lane keep its order."""
    return linear_combination(
        [item.bm25 for item in scored],
        [item.cosine for item in scored],
        cosine_weight,
        [item.is_head for item in scored],
    )


def _ranks(union: Sequence[Scored], score: Callable[[Scored], float | None], most: int) -> dict[int, int]:
    """Return the rank of the passages that have a score, by their place in the union; ``most`` of them."""
    known = [
        (-value, item.order, item.passage, at) for at, item in enumerate(union) if (value := score(item)) is not None
    ]
    return {at: rank for rank, (_, _, _, at) in enumerate(sorted(known)[:most], 1)}


def _places(item: Scored, score: float, rank: int | None) -> tuple[LaneRank, ...]:
    """Return the places of a passage in the lanes, the fused one first where both ran."""
    places = []
    if rank is not None:
        places.append(LaneRank(HYBRID, rank, score))
    if item.lexical_rank is not None:
        places.append(LaneRank(LEXICAL, item.lexical_rank, item.bm25))
    if item.vector_rank is not None:
        places.append(LaneRank(VECTOR, item.vector_rank, item.cosine or 0.0))
    return tuple(places)
