"""The lanes over passages, and their fusion: by words (BM25), by meaning (vectors), or both."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from msgspec.structs import replace

from strata.embeddings.model import ActiveSpace
from strata.evidence.fusion import with_neighbours
from strata.evidence.model import LaneRank
from strata.knowledge.model import ContextRow
from strata.lanes.lexical.index import LexicalHit, LexicalHits, LexicalIndex
from strata.lanes.vector.index import Eligible, SpaceRef, VectorIndex
from strata.lookup import repository
from strata.lookup.candidates import HOP, LEXICAL, VECTOR, Hit
from strata.lookup.fit import Fit, Signals
from strata.lookup.meaning import Meaning
from strata.lookup.pool import Pool, Scored, places_of, ranks_of, with_hop
from strata.lookup.repository import SourceFilter
from strata.platform import telemetry
from strata.platform.database import Connection
from strata.platform.ids import SERIAL_BITS
from strata.providers.embeddings.base import EmbeddingSpace, Vectors
from strata.text.spans import Coverage
from strata.text.tokenise import QueryTerm
from strata.traces.schemas import LaneTrace

HOP_LEAD = 0.2
"""How far the first passage must stand out, in fused scores, for a second hop to be worth its time."""

HOP_CHARS = 200
"""How much of the first passage is added to the question; more finds nothing more."""

HOP_EVIDENCE = 10
"""So many of what a second hop finds count as evidence, whatever they say of the question itself."""


class PassageSearch:
    """The search of one question over the passages of its contexts, over one connection.

    ``lanes`` says which nominate. What one of them nominates gets its true score in the others too,
    wherever that can be had. ``follow`` gives the vector of a longer question. ``on_lane`` is told the lane
    at work; ``traces`` say what each did.
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
        follow: Callable[[EmbeddingSpace, str], Awaitable[Vectors]],
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
        self._follow = follow
        self._fit = fit
        self.lanes = lanes
        self._depth = depth
        self._on_lane = on_lane
        self.traces: dict[str, LaneTrace] = {}
        self.knows_a_term = False
        self._searched: dict[UUID, _Searched] = {}
        self._known: dict[tuple[UUID, int], float] = {}

    async def find(self, source_filter: SourceFilter, reasons: tuple[str, ...]) -> list[Hit]:
        """Return the passages that the lanes nominate, fused, best first."""
        is_hybrid = bool(self._meanings) and LEXICAL in self.lanes
        by_words = LEXICAL in self.lanes or not self._meanings
        pool = Pool(await self.scored(source_filter), self._fit.cosine_weight, by_words=by_words)
        if is_hybrid:
            await self._hear_neighbours(pool)
            if HOP in self.lanes:
                pool = await self._hopped(pool)
        scored = pool.scored
        places = pool.places()
        relevances = self._judged([scored[at] for at in places])
        hits = []
        for rank, (at, relevance) in enumerate(zip(places, relevances, strict=True), 1):
            item = scored[at]
            self._known[item.context, item.passage] = relevance
            ranks = places_of(item, pool.fused[at], rank if is_hybrid else None)
            hits.append(Hit(item.context, item.passage, ranks, relevance, reasons))
        return hits

    async def scored(self, source_filter: SourceFilter) -> list[Scored]:
        """Return the union of what the lanes nominate over all contexts."""
        union: list[Scored] = []
        for order, context in enumerate(self._contexts):
            eligible = await self._eligible(context.context_id, source_filter)
            union += await self._in_context(order, context.context_id, eligible)
        lexical = ranks_of(union, lambda item: item.bm25 if item.lexical_rank else None, self._depth)
        vector = ranks_of(union, lambda item: item.cosine if item.vector_rank else None, self._depth)
        return [
            replace(item, lexical_rank=lexical.get(at), vector_rank=vector.get(at))
            for at, item in enumerate(union)
            if at in lexical or at in vector
        ]

    async def _hear_neighbours(self, pool: Pool) -> None:
        """Let the cues before and after a cue speak for it."""
        for context in self._meanings:
            at = {item.passage: place for place, item in enumerate(pool.scored) if item.context == context}
            found = await repository.cues(self._connection, self._tenant, context, sorted(at))
            if not found:
                continue
            scores = {passage: pool.fused[place] for passage, place in at.items()}
            wanted = sorted({other for passage in found for other in _beside(passage)} - at.keys())
            cosines: dict[int, float | None] = {}
            meaning = self._meanings[context]
            await self._near(context, meaning.active, meaning.vector, wanted, cosines, most=0)
            for hit in self._searched[context].of(wanted):
                if (cosine := cosines[hit.passage_id]) is not None:
                    scores[hit.passage_id] = pool.combination.of(hit.score, cosine)
            for passage in found:
                beside = [scores[other] for other in _beside(passage) if other in scores]
                pool.fused[at[passage]] = with_neighbours(scores[passage], beside)

    async def _hopped(self, pool: Pool) -> Pool:
        """Search once more by meaning, with the opening of a first passage that stands out added to the question."""
        first, *others = pool.places()[:2] or [0]
        if not others or pool.fused[first] - pool.fused[others[0]] < HOP_LEAD:
            self.traces[HOP] = LaneTrace(ran=False, reason="no passage stands out")
            return pool
        best = pool.scored[first]
        meaning = self._meanings.get(best.context)
        if meaning is None:
            self.traces[HOP] = LaneTrace(ran=False, reason="the first passage stands in a context without vectors")
            return pool
        with self._lane(HOP) as done:
            opening = await repository.opening(self._connection, self._tenant, best.context, best.passage, HOP_CHARS)
            vector = await self._follow(meaning.active.space, _opening(opening))
            cosines: dict[tuple[UUID, int], float] = {}
            found: list[Scored] = []
            for order, context in enumerate(self._contexts):
                other = self._meanings.get(context.context_id)
                if other is not None and other.active.space == meaning.active.space:
                    found += await self._hop_in(order, context.context_id, vector, pool, cosines)
            ranks = ranks_of(found, lambda item: cosines[item.context, item.passage], self._depth)
            done(len(ranks))
        return with_hop(
            pool, first, [(found[at], rank) for at, rank in ranks.items()], cosines, self._fit.cosine_weight
        )

    @property
    def coverage(self) -> float | None:
        """The share of the contexts' passages that have a vector, once searched; None where nothing is known of it."""
        sizes = {context: done.hits.passages for context, done in self._searched.items() if done.hits is not None}
        if not any(sizes.values()):
            return None
        vectors = sum(min(meaning.active.vectors, sizes.get(at, 0)) for at, meaning in self._meanings.items())
        return round(vectors / sum(sizes.values()), 4)

    async def words(self, source_filter: SourceFilter, terms: Sequence[QueryTerm], lane: str) -> list[Hit]:
        """Return what the lexical lane alone finds for other terms, as hits of ``lane``."""
        found: list[Scored] = []
        for order, context in enumerate(self._contexts):
            eligible = await self._eligible(context.context_id, source_filter)
            done = _Searched(
                self._terms, terms, await self._lexical_hits(context.context_id, terms, eligible), eligible
            )
            found += [done.scored(order, context.context_id, hit) for hit in done.best]
        found.sort(key=lambda item: (-item.bm25, item.order, item.passage))
        del found[self._depth :]
        relevances = self._relevances(found)
        return [
            Hit(
                item.context,
                item.passage,
                (LaneRank(lane, rank, item.bm25),),
                self._known.get((item.context, item.passage), relevance),
                (),
            )
            for rank, (item, relevance) in enumerate(zip(found, relevances, strict=True), 1)
        ]

    def word_scores(self, context: UUID, passages: Sequence[int]) -> list[float]:
        """Return what any passages of a context score by words; 0 where it was not searched so."""
        done = self._searched.get(context)
        return [hit.score for hit in done.of(passages)] if done else [0.0] * len(passages)

    def term_weights(self, context: UUID) -> Mapping[str, float]:
        """Return the idf of the question's tokens in a context."""
        done = self._searched.get(context)
        return done.hits.idf if done and done.hits else {}

    def _judged(self, ranked: Sequence[Scored]) -> list[float]:
        """Return the relevances of the passages; what a second hop led to is evidence where it set out from some.

        By itself the second step of a question may touch nothing that the question names.
        """
        relevances = self._relevances(ranked)
        cutoffs = self._fit.cutoffs
        if not relevances or relevances[0] < cutoffs.medium:
            return relevances
        return [
            max(value, cutoffs.low) if item.hop_rank is not None and item.hop_rank <= HOP_EVIDENCE else value
            for item, value in zip(ranked, relevances, strict=True)
        ]

    def _relevances(self, scored: Sequence[Scored]) -> list[float]:
        signals = [
            Signals(item.coverage, item.bm25, item.cosine, item.bm25 / item.ideal if item.ideal else 0.0)
            for item in scored
        ]
        return self._fit.relevances(signals, self._depth)

    async def _eligible(self, context: UUID, source_filter: SourceFilter) -> Eligible | None:
        if source_filter.is_empty:
            return None
        return await repository.eligible(self._connection, self._tenant, context, source_filter)

    async def _in_context(self, order: int, context: UUID, eligible: Eligible | None) -> list[Scored]:
        """Nominate in one context; ranks here only say by which lane."""
        hits: LexicalHits | None = None
        if self._terms:
            with self._lane(LEXICAL) as found:
                # Statistics and true scores are wanted even where only the other lane nominates.
                hits = await self._lexical_hits(context, self._terms, eligible)
                found(len(hits.hits))
            self.knows_a_term |= any(hits.frequencies[term.token] for term in self._terms if term.groups)
        done = self._searched[context] = _Searched(self._terms, self._terms, hits, eligible)
        words = {hit.passage_id: hit for hit in done.best} if LEXICAL in self.lanes else {}
        cosines: dict[int, float | None] = {}
        near: list[int] = []
        if meaning := self._meanings.get(context):
            with self._lane(VECTOR) as found:
                near = await self._near(context, meaning.active, meaning.vector, sorted(words), cosines)
                found(len(near))
        words.update((hit.passage_id, hit) for hit in done.of([passage for passage in near if passage not in words]))
        nearest = set(near)
        return [
            replace(
                done.scored(order, context, hit, cosines.get(passage)),
                lexical_rank=1 if LEXICAL in self.lanes and hit.score > 0 else None,
                vector_rank=1 if passage in nearest else None,
            )
            for passage, hit in words.items()
        ]

    async def _hop_in(
        self, order: int, context: UUID, vector: Vectors, pool: Pool, cosines: dict[tuple[UUID, int], float]
    ) -> list[Scored]:
        """Return what is near the longer question in one context; its cosines go to ``cosines``."""
        known = {item.passage: item for item in pool.scored if item.context == context}
        seen: dict[int, float | None] = {}
        near = await self._near(context, self._meanings[context].active, vector, (), seen)
        cosines.update(((context, passage), cosine) for passage, cosine in seen.items() if cosine is not None)
        done = self._searched[context]
        # No nearer to the question itself than the last that was found by it.
        least = min((item.cosine for item in known.values() if item.cosine is not None), default=None)
        new = done.of([passage for passage in near if passage not in known])
        known.update((hit.passage_id, done.scored(order, context, hit, least)) for hit in new)
        return [known[passage] for passage in near]

    async def _near(
        self,
        context: UUID,
        active: ActiveSpace,
        vector: Vectors,
        also: Sequence[int],
        cosines: dict[int, float | None],
        *,
        most: int | None = None,
    ) -> list[int]:
        """Return the nearest passages, best first; their cosines, and those of ``also``, go to ``cosines``."""
        found = await self._vectors.search(
            self._connection,
            self._tenant,
            context,
            SpaceRef(active.space_id, active.space.dimension, active.vectors, active.is_indexed),
            vector,
            k=self._depth if most is None else most,
            eligible=self._searched[context].eligible,
            also=also,
        )
        cosines.update(zip(also, found.also, strict=True))
        cosines.update((hit.passage_id, hit.cosine) for hit in found.hits)
        return [hit.passage_id for hit in found.hits]

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

        def found(number: int) -> None:
            nonlocal candidates
            candidates = number

        self._on_lane(name)
        with telemetry.lane(name):
            yield found
        self._on_lane(None)
        if name in self.lanes:
            before = self.traces.get(name, LaneTrace(ran=True))
            spent = before.duration_ms + (time.perf_counter() - started) * 1000
            self.traces[name] = LaneTrace(
                ran=True, candidates=before.candidates + candidates, duration_ms=round(spent, 3)
            )


class _Searched:
    """What the lexical search of one context learned: true scores, and coverage of the question by a hit's terms."""

    def __init__(
        self,
        question: Sequence[QueryTerm],
        terms: Sequence[QueryTerm],
        hits: LexicalHits | None,
        eligible: Eligible | None,
    ) -> None:
        self.hits = hits
        self.eligible = eligible
        self._terms = terms
        self._coverage = Coverage(question, hits.idf) if hits else None
        self._ideal = hits.ideal if hits else 0.0
        self._shares: dict[int, float] = {}

    @property
    def best(self) -> Sequence[LexicalHit]:
        """The passages found, best first."""
        return self.hits.hits if self.hits else ()

    def of(self, passages: Sequence[int]) -> Sequence[LexicalHit]:
        """Return what any passages score, 0 where nothing was searched by words."""
        if not passages:
            return ()
        return self.hits.of(passages) if self.hits else [LexicalHit(passage, 0.0, 0) for passage in passages]

    def scored(self, order: int, context: UUID, hit: LexicalHit, cosine: float | None = None) -> Scored:
        """Return a hit as a passage of the pool, without ranks."""
        share = self._shares.get(hit.matched)
        if share is None:
            present = (term.token for at, term in enumerate(self._terms) if hit.matched >> at & 1)
            share = self._shares[hit.matched] = self._coverage.of(present) if self._coverage else 0.0
        return Scored(order, context, hit.passage_id, hit.score, self._ideal, cosine, share)


def _beside(passage: int) -> list[int]:
    """Return the passages before and after one in its source, whether there are any or not."""
    return [other for other in (passage - 1, passage + 1) if other >> SERIAL_BITS == passage >> SERIAL_BITS]


def _opening(text: str) -> str:
    """Return the beginning of a text, of characters that stand for a whole word or syllable half as many."""
    weight = 0
    for at, char in enumerate(text):
        weight += 2 if char >= "\u2e80" else 1
        if weight > HOP_CHARS:
            return text[:at]
    return text
