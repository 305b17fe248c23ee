"""Run the lanes of one lookup and turn what they nominate into candidates."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from uuid import UUID

from msgspec import structs

from strata.evidence.model import Candidate, LaneRank, Layer
from strata.hints.matching import HintGuidance, HintMatch, guidance
from strata.hints.service import HintService
from strata.hints.targets import split_target
from strata.knowledge.graph_service import GraphService
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.lanes.lexical.index import LexicalIndex
from strata.lanes.vector.index import VectorIndex
from strata.lookup import repository
from strata.lookup.candidates import (
    EXPANDED,
    GRAPH,
    HINTS,
    HOP,
    HYBRID_WEIGHTS,
    LANE_WEIGHTS,
    LEXICAL,
    VECTOR,
    Candidates,
    Granularity,
    Hit,
    Rows,
    hint_lane,
    loaded,
    passage_of,
    source_key,
)
from strata.lookup.facts import FactLane
from strata.lookup.fit import DEFAULT_FIT, Fit, Fits
from strata.lookup.meaning import Meaning, Question
from strata.lookup.passages import PassageSearch
from strata.lookup.pool import CandidateSignals, Scored
from strata.lookup.repository import PassageRow, SourceFilter
from strata.lookup.request import Plan
from strata.lookup.targets import Targets
from strata.platform import telemetry
from strata.platform.database import Connection
from strata.text.tokenise import QueryTerm, analyse_query
from strata.traces.schemas import LaneTrace

EXPANSION_WEIGHT = 0.3
"""Weight of a term that a hint added, against 1 for a term of the question."""

TEXT_WINDOW = 16
"""Texts loaded beyond the blocks wanted: what near duplicates and merging usually use up."""


@dataclass(slots=True)
class Gathered:
    """What the lanes brought, and what they learned on the way.

    ``coverage`` is the share of the contexts' passages that have a vector, None where nobody asked for them.
    ``failures`` holds the error code of each lane that should have run and could not. ``fit`` is what
    fusion and relevance were fitted to.
    """

    contexts: Sequence[ContextRow]
    terms: Sequence[QueryTerm]
    candidates: list[Candidate] = field(default_factory=list)
    lanes: dict[str, LaneTrace] = field(default_factory=dict)
    hints: Sequence[HintMatch] = ()
    guidance: HintGuidance = field(default_factory=lambda: guidance(()))
    is_relaxed: bool = False
    knows_a_term: bool = False
    has_filtered_matches: bool = False
    coverage: float | None = None
    failures: dict[str, str] = field(default_factory=dict)
    fit: Fit = DEFAULT_FIT

    @property
    def is_l1_out(self) -> bool:
        """Whether no lane over passages ran, and one of them only because it failed."""
        lanes = (LEXICAL, VECTOR)
        return any(lane in self.failures for lane in lanes) and not any(self.lanes[lane].ran for lane in lanes)

    @property
    def weights(self) -> Mapping[str, float]:
        """What a place in each lane weighs in the fusion: where two lanes over passages ran, their fusion counts."""
        if self.lanes[LEXICAL].ran and self.lanes[VECTOR].ran:
            return HYBRID_WEIGHTS
        return LANE_WEIGHTS


class Gatherer:
    """The lanes over one connection. Make one for each lookup.

    ``running`` names the lane at work, ``skipped`` those left out, each with its reason.
    """

    def __init__(
        self,
        tenant: UUID,
        plan: Plan,
        *,
        contexts: ContextService,
        hints: HintService,
        lexical: LexicalIndex,
        vectors: VectorIndex,
        graph: GraphService,
        question: Question,
        fits: Fits,
        per_lane: int,
        granularity: Granularity,
        skipped: dict[str, str],
    ) -> None:
        self._tenant = tenant
        self._plan = plan
        self._contexts = contexts
        self._hints = hints
        self._lexical = lexical
        self._vectors = vectors
        self._graph = graph
        self._question = question
        self._fits = fits
        self._per_lane = max(per_lane, 2 * plan.top_k)
        self._granularity: Granularity = granularity
        self.skipped = skipped
        self.running: str | None = None
        self.connection: Connection
        self._candidates: Candidates
        self._search: PassageSearch

    async def gather(self, connection: Connection) -> Gathered:
        """Run every lane that the plan asks for; a lane in ``skipped`` is reported with its reason."""
        self.connection = connection
        contexts = await self._contexts.resolve_many(connection, self._tenant, self._plan.contexts, pointer="/context")
        gathered = Gathered(contexts, analyse_query(self._plan.query, languages_of(contexts)))
        gathered.failures.update(self.skipped)
        await self._match_hints(gathered)
        hits = await self._passage_hits(gathered)
        expanded = await self._expanded_hits(gathered)
        self._candidates = Candidates(
            self._granularity,
            gathered.weights,
            floor=gathered.fit.cutoffs.low,
            is_l1_out=gathered.is_l1_out,
            is_l0_out=HINTS in self.skipped,
        )
        rows = await self._rows(_distinct(hits, expanded), self._plan.top_k + TEXT_WINDOW)
        suggested = frozenset(gathered.guidance.categories) - frozenset(self._plan.categories)
        gathered.candidates = self._candidates.found(hits, rows, suggested) + self._candidates.expanded(expanded, rows)
        await self._add_hints(gathered, rows)
        await self._add_facts(gathered)
        return gathered

    async def signals(self, connection: Connection) -> list[CandidateSignals]:
        """Return what the lanes over passages know of those they nominate; hints are left out."""
        search = await self._bare_search(connection)
        scored = await search.scored(self._plan.source_filter)
        rows = await self._rows(scored, 0)
        return [
            CandidateSignals(row.path, item)
            for item in scored
            if (row := rows.get((item.context, item.passage))) is not None
        ]

    async def order(self, connection: Connection) -> list[PassageRow]:
        """Return the live passages that the lanes over passages find, fused, best first; without texts."""
        search = await self._bare_search(connection)
        hits = await search.find(self._plan.source_filter, ())
        rows = await self._rows(hits, 0)
        return [row for hit in hits if (row := rows.get((hit.context, hit.passage)))]

    async def find(self, connection: Connection) -> tuple[list[Hit], Gathered]:
        """Return what the lanes over passages find, fused, best first, and what they say of themselves."""
        self.connection = connection
        contexts = await self._contexts.resolve_many(connection, self._tenant, self._plan.contexts)
        gathered = Gathered(contexts, analyse_query(self._plan.query, languages_of(contexts)))
        search = await self._passage_search(gathered)
        hits = await search.find(self._plan.source_filter, ()) if search.lanes else []
        gathered.lanes.update(search.traces)
        return hits, gathered

    async def _bare_search(self, connection: Connection) -> PassageSearch:
        self.connection = connection
        contexts = await self._contexts.resolve_many(connection, self._tenant, self._plan.contexts)
        return await self._passage_search(Gathered(contexts, analyse_query(self._plan.query, languages_of(contexts))))

    async def load_texts(self, candidates: Sequence[Candidate], wanted: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates with the texts of ``wanted`` loaded; one without a row is marked as gone."""
        pairs = [passage_of(item) for item in wanted]
        rows = await repository.passage_rows(
            self.connection, self._tenant, [pair[0] for pair in pairs], [pair[1] for pair in pairs], len(pairs)
        )
        found = {(row.context_id, row.passage_id): row for row in rows}
        asked = {item.identity for item in wanted}
        return [loaded(item, found.get(passage_of(item))) if item.identity in asked else item for item in candidates]

    def word_scores(self, context: UUID, passages: Sequence[int]) -> list[float]:
        """Return what any passages score in the lexical lane; 0 where it did not search."""
        return self._search.word_scores(context, passages)

    def term_weights(self, context: UUID) -> Mapping[str, float]:
        """Return the idf of the question's tokens in a context; empty where nothing was searched by words."""
        return self._search.term_weights(context)

    async def _passage_search(self, gathered: Gathered) -> PassageSearch:
        """Make the search of the lanes that were asked for and can run; say of the others why they do not."""
        lanes = set(self._plan.lanes & {LEXICAL, VECTOR, HOP} if Layer.L1 in self._plan.layers else ())
        for lane in (LEXICAL, VECTOR):
            reason = self.skipped.get(lane, "not requested" if lane not in lanes else None)
            if lane == LEXICAL and reason is None and not gathered.terms:
                reason = "the query has no searchable terms"
            if reason is not None:
                lanes.discard(lane)
                gathered.lanes[lane] = LaneTrace(ran=False, reason=reason)
        meanings: Mapping[UUID, Meaning] = {}
        if VECTOR in lanes:
            found = await self._question.meanings(self.connection, [row.context_id for row in gathered.contexts])
            meanings = found.by_context
            if not meanings:
                lanes.discard(VECTOR)
                gathered.lanes[VECTOR] = LaneTrace(ran=False, reason=found.reason)
                if found.failure is not None:
                    gathered.failures[VECTOR] = found.failure
        if VECTOR not in lanes or HOP in self.skipped or not self._question.may_follow:
            lanes.discard(HOP)
        gathered.fit = self._fits.of([meaning.active.space for meaning in meanings.values()])
        return PassageSearch(
            self.connection,
            self._tenant,
            gathered.contexts,
            gathered.terms if LEXICAL not in self.skipped else (),
            lexical=self._lexical,
            vectors=self._vectors,
            meanings=meanings,
            follow=self._question.follow,
            fit=gathered.fit,
            lanes=frozenset(lanes),
            depth=self._per_lane,
            on_lane=self._set_running,
        )

    def _set_running(self, lane: str | None) -> None:
        self.running = lane

    async def _passage_hits(self, gathered: Gathered) -> list[Hit]:
        search = self._search = await self._passage_search(gathered)
        if not search.lanes:
            return []
        categories = self._plan.categories
        base = replace(self._plan.source_filter, categories=categories)
        hits = await search.find(base, tuple(f"CATEGORY_FILTER:{name}" for name in categories))
        if categories and await self._blocks(gathered, hits) < self._plan.top_k:
            known = {(hit.context, hit.passage) for hit in hits}
            relaxed = await search.find(self._plan.source_filter, ("CATEGORY_FILTER_RELAXED",))
            extra = [hit for hit in relaxed if (hit.context, hit.passage) not in known]
            gathered.is_relaxed = bool(extra)
            hits = (hits + _after(hits, extra))[: 2 * self._per_lane]
        gathered.knows_a_term = search.knows_a_term
        if not hits and not base.is_empty and (gathered.knows_a_term or VECTOR in search.lanes):
            gathered.has_filtered_matches = bool(await search.find(SourceFilter(), ()))
        if self._question.is_enabled and VECTOR in self._plan.lanes and VECTOR not in gathered.failures:
            gathered.coverage = search.coverage
        gathered.lanes.update(search.traces)
        return hits

    async def _blocks(self, gathered: Gathered, hits: Sequence[Hit]) -> int:
        """Count the blocks that hits at or above the floor come to: one for each source key."""
        rows = await self._rows([hit for hit in hits if hit.relevance >= gathered.fit.cutoffs.low], 0)
        return len({(row.context_id, source_key(row, self._granularity)) for row in rows.values()})

    async def _expanded_hits(self, gathered: Gathered) -> list[Hit]:
        """Search once more with the names that confident hints add, where they add any term."""
        known = {term.token for term in gathered.terms}
        added = [
            term
            for term in analyse_query(gathered.guidance.extra_terms_text, languages_of(gathered.contexts))
            if term.token not in known
        ]
        if not added or not gathered.lanes[LEXICAL].ran:
            return []
        if EXPANDED in self.skipped:
            gathered.lanes[EXPANDED] = LaneTrace(ran=False, reason=self.skipped[EXPANDED])
            return []
        started = time.perf_counter()
        extra = [replace(term, weight=term.weight * EXPANSION_WEIGHT, groups=()) for term in added]
        source_filter = replace(self._plan.source_filter, categories=self._plan.categories)
        self.running = EXPANDED
        with telemetry.lane(EXPANDED):
            found = await self._search.words(source_filter, (*gathered.terms, *extra), EXPANDED)
        self.running = None
        gathered.lanes[EXPANDED] = LaneTrace(ran=True, candidates=len(found), duration_ms=_ms(started))
        return found

    async def _rows(self, hits: Sequence[Hit | Scored], window: int) -> Rows:
        if not hits:
            return {}
        with telemetry.stage("confirm"):
            rows = await repository.passage_rows(
                self.connection,
                self._tenant,
                [hit.context for hit in hits],
                [hit.passage for hit in hits],
                window,
            )
        return {(row.context_id, row.passage_id): row for row in rows}

    async def _match_hints(self, gathered: Gathered) -> None:
        if Layer.L0 not in self._plan.layers or HINTS not in self._plan.lanes or HINTS in self.skipped:
            gathered.lanes[HINTS] = LaneTrace(ran=False, reason=self.skipped.get(HINTS, "not requested"))
            return
        started = time.perf_counter()
        self.running = HINTS
        with telemetry.lane(HINTS):
            ids = [context.context_id for context in gathered.contexts]
            gathered.hints = await self._hints.match(self.connection, self._tenant, ids, self._plan.query)
            gathered.guidance = guidance(gathered.hints)
        self.running = None
        gathered.lanes[HINTS] = LaneTrace(ran=True, candidates=len(gathered.hints), duration_ms=_ms(started))

    async def _add_facts(self, gathered: Gathered) -> None:
        """Add the facts that the question leads to; contexts without a graph have no such lane."""
        wanted = GRAPH in self._plan.lanes and Layer.L1 in self._plan.layers
        if not any(row.graph_revision for row in gathered.contexts):
            return
        if not wanted or GRAPH in self.skipped:
            reason = self.skipped.get(GRAPH, "not requested")
            gathered.lanes[GRAPH] = LaneTrace(ran=False, reason=reason)
            return
        started = time.perf_counter()
        self.running = GRAPH
        cutoffs = gathered.fit.cutoffs
        with telemetry.lane(GRAPH):
            lane = FactLane(
                self.connection,
                self._tenant,
                self._graph,
                named=cutoffs.medium,
                near=cutoffs.low,
                most=self._per_lane,
            )
            source_filter = replace(self._plan.source_filter, categories=self._plan.categories)
            eligible: dict[UUID, frozenset[int]] = {}
            if not source_filter.is_empty:
                for row in gathered.contexts:
                    found = await repository.eligible(self.connection, self._tenant, row.context_id, source_filter)
                    eligible[row.context_id] = frozenset(found.serials)
            facts = await lane.find(gathered.contexts, self._plan.query, eligible)
        self.running = None
        gathered.candidates += facts
        gathered.lanes[GRAPH] = LaneTrace(ran=True, candidates=len(facts), duration_ms=_ms(started))

    async def _add_hints(self, gathered: Gathered, rows: Rows) -> None:
        if not gathered.hints:
            return
        with telemetry.stage("hint_targets"):
            gathered.candidates += await self._hint_candidates(gathered, rows)

    async def _hint_candidates(self, gathered: Gathered, rows: Rows) -> list[Candidate]:
        """Let each hint nominate the passages of its targets, or itself where it has none."""
        targets = Targets(gathered.candidates, rows)
        wanted = [
            (match.entry.context_id, *split_target(target))
            for match in gathered.hints
            for target in match.entry.targets
            if targets.find(match.entry.context_id, *split_target(target)) is None
        ]
        await self._resolve(targets, list(dict.fromkeys(wanted))[: self._per_lane])
        nominated: list[Candidate] = []
        ranks = Counter[str]()
        for match in gathered.hints:
            lane = hint_lane(match)
            ranks[lane] += 1
            place = LaneRank(lane, ranks[lane], match.strength)
            meant = [
                row
                for target in match.entry.targets
                if (row := targets.find(match.entry.context_id, *split_target(target))) is not None
            ]
            found = [row for row in meant if (row.context_id, row.passage_id) in rows or self._is_asked(row.category)]
            nominated += [self._candidates.hinted(row, match, place) for row in found]
            if not found and match.entry.summary and self._is_asked(match.entry.category):
                nominated.append(self._candidates.summary(match, place))
            elif not found and (meant or match.entry.summary):
                gathered.has_filtered_matches = True
        return nominated

    async def _resolve(self, targets: Targets, wanted: Sequence[tuple[UUID, str, str | None]]) -> None:
        if not wanted:
            return
        found = await repository.target_passages(
            self.connection,
            self._tenant,
            [context for context, _, _ in wanted],
            [path for _, path, _ in wanted],
            [anchor for _, _, anchor in wanted],
        )
        known = [(want, passage) for want, passage in zip(wanted, found, strict=True) if passage is not None]
        rows = await repository.passage_rows(
            self.connection,
            self._tenant,
            [want[0] for want, _ in known],
            [passage for _, passage in known],
            len(known),
        )
        by_id = {(row.context_id, row.passage_id): row for row in rows}
        for want, passage in known:
            if (row := by_id.get((want[0], passage))) is not None:
                targets.add(want, row)

    def _is_asked(self, category: str | None) -> bool:
        """Hold what no lane found by its words to the filters; only a category can be told of it."""
        categories = self._plan.categories
        return self._plan.source_filter.is_empty and (not categories or category in categories)


def languages_of(contexts: Sequence[ContextRow]) -> list[str]:
    """Return by whose rules the contexts' passages were analysed."""
    return sorted({language for context in contexts for language in context.languages})


def _distinct(*lists: Sequence[Hit]) -> list[Hit]:
    """Return each passage once, in the order of the first list, then of the next."""
    unique: dict[tuple[UUID, int], Hit] = {}
    for hit in chain.from_iterable(lists):
        unique.setdefault((hit.context, hit.passage), hit)
    return list(unique.values())


def _after(hits: Sequence[Hit], extra: Sequence[Hit]) -> list[Hit]:
    """Return the hits of a further search with their ranks behind those of the first, in every lane."""
    return [
        structs.replace(hit, places=tuple(structs.replace(place, rank=place.rank + len(hits)) for place in hit.places))
        for hit in extra
    ]


def _ms(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
