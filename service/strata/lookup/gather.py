"""Run the lanes of one lookup and turn what they nominate into candidates."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from uuid import UUID

from strata.evidence.model import Candidate, LaneRank, Layer
from strata.hints.matching import HintGuidance, HintMatch, guidance
from strata.hints.service import HintService
from strata.hints.targets import split_target
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.lanes.lexical.index import LexicalIndex
from strata.lookup import repository
from strata.lookup.candidates import (
    EXPANDED,
    HINTS,
    LEXICAL,
    Candidates,
    Granularity,
    Hit,
    Rows,
    hint_lane,
    loaded,
    passage_of,
)
from strata.lookup.repository import PassageRow, SourceFilter
from strata.lookup.request import Plan
from strata.platform import telemetry
from strata.platform.database import Connection
from strata.text.spans import Coverage
from strata.text.tokenise import QueryTerm, analyse_query
from strata.traces.schemas import LaneTrace

EXPANSION_WEIGHT = 0.3
"""Weight of a term that a hint added, against 1 for a term of the question."""

TEXT_WINDOW = 16
"""Texts loaded beyond the blocks wanted: what near duplicates and merging usually use up."""


@dataclass(slots=True)
class Gathered:
    """What the lanes brought, and what they learned on the way."""

    contexts: Sequence[ContextRow]
    terms: Sequence[QueryTerm]
    candidates: list[Candidate] = field(default_factory=list)
    lanes: dict[str, LaneTrace] = field(default_factory=dict)
    hints: Sequence[HintMatch] = ()
    guidance: HintGuidance = field(default_factory=lambda: guidance(()))
    is_relaxed: bool = False
    knows_a_term: bool = False
    has_filtered_matches: bool = False


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
        per_lane: int,
        granularity: Granularity,
        floor: float,
        skipped: dict[str, str],
    ) -> None:
        self._tenant = tenant
        self._plan = plan
        self._contexts = contexts
        self._hints = hints
        self._lexical = lexical
        self._per_lane = max(per_lane, 2 * plan.top_k)
        self._candidates = Candidates(granularity, skipped)
        self._floor = floor
        self.skipped = skipped
        self.running: str | None = None
        self.connection: Connection

    async def gather(self, connection: Connection) -> Gathered:
        """Run every lane that the plan asks for; a lane in ``skipped`` is reported with its reason."""
        self.connection = connection
        contexts = await self._contexts.resolve_many(connection, self._tenant, self._plan.contexts, pointer="/context")
        gathered = Gathered(contexts, analyse_query(self._plan.query, languages_of(contexts)))
        await self._match_hints(gathered)
        hits = await self._lexical_hits(gathered)
        expanded = await self._expanded_hits(gathered)
        rows = await self._rows(_distinct(hits, expanded), self._plan.top_k + TEXT_WINDOW)
        suggested = frozenset(gathered.guidance.categories) - frozenset(self._plan.categories)
        gathered.candidates = self._candidates.lexical(hits, rows, suggested) + self._candidates.expanded(
            expanded, rows
        )
        await self._add_hints(gathered, rows)
        return gathered

    async def lexical_sources(self, connection: Connection) -> list[str]:
        """Return the sources of the lexical lane's passages, best first, each once."""
        hits = await self._lexical_alone(connection)
        rows = await self._rows(hits, 0)
        return list(dict.fromkeys(row.path for hit in hits if (row := rows.get((hit.context, hit.passage)))))

    async def lexical_passages(self, connection: Connection) -> list[int]:
        """Return the lexical lane's passages, best first."""
        return [hit.passage for hit in await self._lexical_alone(connection)]

    async def _lexical_alone(self, connection: Connection) -> list[Hit]:
        self.connection = connection
        contexts = await self._contexts.resolve_many(connection, self._tenant, self._plan.contexts)
        return await self._lexical_hits(Gathered(contexts, analyse_query(self._plan.query, languages_of(contexts))))

    async def load_texts(self, candidates: Sequence[Candidate], wanted: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates with the texts of ``wanted`` loaded; one without a row is marked as gone."""
        pairs = [passage_of(item) for item in wanted]
        rows = await repository.passage_rows(
            self.connection, self._tenant, [pair[0] for pair in pairs], [pair[1] for pair in pairs], len(pairs)
        )
        found = {(row.context_id, row.passage_id): row for row in rows}
        asked = {item.identity for item in wanted}
        return [loaded(item, found.get(passage_of(item))) if item.identity in asked else item for item in candidates]

    async def _lexical_hits(self, gathered: Gathered) -> list[Hit]:
        if Layer.L1 not in self._plan.layers or LEXICAL in self.skipped:
            gathered.lanes[LEXICAL] = LaneTrace(ran=False, reason=self.skipped.get(LEXICAL, "not requested"))
            return []
        if not gathered.terms:
            gathered.lanes[LEXICAL] = LaneTrace(ran=False, reason="the query has no searchable terms")
            return []
        started = time.perf_counter()
        categories = self._plan.categories
        self.running = LEXICAL
        with telemetry.lane(LEXICAL):
            base = replace(self._plan.source_filter, categories=categories)
            reasons = tuple(f"CATEGORY_FILTER:{name}" for name in categories)
            hits = await self._search(gathered, base, reasons)
            if categories and await self._blocks(hits) < self._plan.top_k:
                known = {(hit.context, hit.passage) for hit in hits}
                relaxed = await self._search(gathered, self._plan.source_filter, ("CATEGORY_FILTER_RELAXED",))
                extra = [hit for hit in relaxed if (hit.context, hit.passage) not in known]
                gathered.is_relaxed = bool(extra)
                hits = (hits + extra)[: self._per_lane]
            if not hits and gathered.knows_a_term and not base.is_empty:
                gathered.has_filtered_matches = bool(await self._search(gathered, SourceFilter(), (), most=1))
        self.running = None
        gathered.lanes[LEXICAL] = LaneTrace(ran=True, candidates=len(hits), duration_ms=_ms(started))
        return hits

    async def _blocks(self, hits: Sequence[Hit]) -> int:
        """Count the blocks that hits at or above the floor come to: one for each source key."""
        rows = await self._rows([hit for hit in hits if hit.relevance >= self._floor], 0)
        return len({(row.context_id, self._candidates.source_key(row)) for row in rows.values()})

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
            found = await self._search(gathered, source_filter, (), terms=(*gathered.terms, *extra))
        self.running = None
        gathered.lanes[EXPANDED] = LaneTrace(ran=True, candidates=len(found), duration_ms=_ms(started))
        return found

    async def _search(
        self,
        gathered: Gathered,
        source_filter: SourceFilter,
        reasons: tuple[str, ...],
        *,
        most: int | None = None,
        terms: Sequence[QueryTerm] | None = None,
    ) -> list[Hit]:
        """Search each context; several are merged by score, then by the order in which they were asked."""
        terms = gathered.terms if terms is None else terms
        found: list[tuple[float, int, Hit]] = []
        for order, context in enumerate(gathered.contexts):
            eligible = None
            if not source_filter.is_empty:
                eligible = await repository.eligible_serials(
                    self.connection, self._tenant, context.context_id, source_filter
                )
            hits = await self._lexical.search(
                self.connection, self._tenant, context.context_id, terms, k=most or self._per_lane, eligible=eligible
            )
            gathered.knows_a_term |= any(hits.frequencies[term.token] for term in gathered.terms if term.groups)
            coverage = Coverage(gathered.terms, hits.idf)
            shares: dict[int, float] = {}
            for hit in hits.hits:
                if (relevance := shares.get(hit.matched)) is None:
                    present = (term.token for at, term in enumerate(terms) if hit.matched >> at & 1)
                    relevance = shares[hit.matched] = coverage.of(present)
                found.append(
                    (-hit.score, order, Hit(context.context_id, hit.passage_id, hit.score, relevance, reasons))
                )
        found.sort(key=lambda item: (item[0], item[1], item[2].passage))
        return [hit for _, _, hit in found[: most or self._per_lane]]

    async def _rows(self, hits: Sequence[Hit], window: int) -> Rows:
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
        if Layer.L0 not in self._plan.layers or HINTS in self.skipped:
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

    async def _add_hints(self, gathered: Gathered, rows: Rows) -> None:
        if not gathered.hints:
            return
        with telemetry.stage("hint_targets"):
            gathered.candidates += await self._hint_candidates(gathered, rows)

    async def _hint_candidates(self, gathered: Gathered, rows: Rows) -> list[Candidate]:
        """Let each hint nominate the passages of its targets, or itself where it has none."""
        targets = _Targets(gathered.candidates, rows)
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

    async def _resolve(self, targets: _Targets, wanted: Sequence[tuple[UUID, str, str | None]]) -> None:
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


class _Targets:
    """Which passage stands for a hint's target: the best lexical hit inside it, else the one resolved."""

    def __init__(self, candidates: Sequence[Candidate], rows: Rows) -> None:
        self._rows: dict[tuple[UUID, str, str | None], PassageRow] = {}
        for candidate in candidates:
            row = rows.get(passage_of(candidate))
            if row is None or row.text is None:
                continue
            self._rows.setdefault((row.context_id, row.path, None), row)
            if row.anchor is not None:
                self._rows.setdefault((row.context_id, row.path, row.anchor), row)

    def find(self, context: UUID, path: str, anchor: str | None) -> PassageRow | None:
        return self._rows.get((context, path, anchor))

    def add(self, target: tuple[UUID, str, str | None], row: PassageRow) -> None:
        self._rows[target] = row


def languages_of(contexts: Sequence[ContextRow]) -> list[str]:
    """Return by whose rules the contexts' passages were analysed."""
    return sorted({language for context in contexts for language in context.languages})


def _distinct(*lists: Sequence[Hit]) -> list[Hit]:
    """Return each passage once, in the order of the first list, then of the next."""
    unique: dict[tuple[UUID, int], Hit] = {}
    for hit in chain.from_iterable(lists):
        unique.setdefault((hit.context, hit.passage), hit)
    return list(unique.values())


def _ms(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
