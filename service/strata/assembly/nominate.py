"""The lanes of an assembly over one context: what each nominates, and what it says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from msgspec import UNSET

from strata.assembly.communities import CommunityService
from strata.assembly.schemas import (
    AnchorOut,
    CitationOut,
    EvidenceRequest,
    LaneScore,
    PassageLanesOut,
    PassageOut,
)
from strata.assembly.scores import single
from strata.errors import COMMUNITIES_NOT_FOUND, StrataError
from strata.evidence.model import Attribution, Candidate, Fact, LaneRank, Locator
from strata.evidence.nominate import association, community, passage
from strata.graph import match, resolve, traverse
from strata.graph.vocabulary import Namespace
from strata.knowledge.graph_base import Reading, away
from strata.knowledge.graph_schemas import LocatorOut
from strata.knowledge.graph_service import GraphService
from strata.knowledge.model import ContextRow
from strata.lookup.meaning import Question
from strata.lookup.search import NOTHING_TO_SEARCH, FoundPassage, PassageQuery, SearchService
from strata.platform.database import Connection
from strata.sources.text_service import Cited, TextService

GRAPH_QUERY, GRAPH_ACTIVATE, COMMUNITY = "graph_query", "graph_activate", "community"
MAX_MATCHES = 100
AMBIGUOUS_WITHIN = 0.1
"""A cue is ambiguous where a second name scores this near to the best."""

NO_ORIGINS = "origins was empty"
NO_LABELS = "no 'labels' given"
NO_ANCHORS = "no anchors resolved from 'origins'"
NO_COMMUNITIES = "include_communities was false"


@dataclass(slots=True)
class LaneState:
    """What one lane did, over all contexts."""

    ran: bool = False
    reason: str | None = None
    floor: float | None = None
    candidates: int = 0

    def did(self, candidates: int, floor: float | None = None) -> None:
        """Say that the lane ran."""
        self.ran, self.reason, self.floor = True, None, floor if floor is not None else self.floor
        self.candidates += candidates

    def left_out(self, reason: str) -> None:
        """Say why the lane did not run in a context; a run in another one stands."""
        if not self.ran:
            self.reason = reason


@dataclass(slots=True)
class Nominations:
    """What the lanes brought over all contexts of a call.

    ``texts`` holds the paragraphs that can be cited; ``tendencies`` tells of a label how often its subjects
    have one object, in the context that uses it most so; 0 or 1 where a schema document says it.
    """

    candidates: list[Candidate] = field(default_factory=list)
    texts: dict[Locator, CitationOut] = field(default_factory=dict)
    anchors: list[AnchorOut] = field(default_factory=list)
    lanes: dict[str, LaneState] = field(
        default_factory=lambda: {
            name: LaneState() for name in ("resolve", "query", "activate", "passages", "communities", "citations")
        }
    )
    tendencies: dict[str, float] = field(default_factory=dict)


class Nominator:
    """Runs the lanes of one request in a snapshot, one context after the other."""

    def __init__(
        self,
        request: EvidenceRequest,
        *,
        cues: Sequence[str],
        labels: Sequence[str],
        query: str,
        is_qualified: bool,
        graph: GraphService,
        texts: TextService,
        search: SearchService,
        communities: CommunityService,
    ) -> None:
        self._request = request
        self._cues = cues
        self._labels = labels
        self._query = query
        self._is_qualified = is_qualified
        self._graph = graph
        self._texts = texts
        self._search = search
        self._communities = communities
        self.found = Nominations()

    async def run(self, connection: Connection, tenant: UUID, row: ContextRow, question: Question) -> None:
        """Let every lane nominate from one context."""
        request = self._request
        reading = await self._graph.reading(
            connection, tenant, row, since=request.since, until=request.until, tags=request.tags
        )
        anchors = await self._anchors(reading, row)
        facts = await self._facts(reading, anchors)
        await self._cited(connection, tenant, row, reading, facts)
        await self._passages(connection, tenant, row, question)
        await self._summaries(connection, tenant, row, question)

    async def _anchors(self, reading: Reading, row: ContextRow) -> list[str]:
        """Resolve each cue: to its best candidate, or to all from a floor on where the request has one."""
        state = self.found.lanes["resolve"]
        if not self._cues:
            state.left_out(NO_ORIGINS)
            return []
        request, anchors = self._request, list[str]()
        dice = request.dice_floor if request.dice_floor is not None else row.dice_floor
        limit = _or(request.resolve_limit, resolve.LIMIT)
        for cue in self._cues:
            candidates = await away(
                reading.graph.edge_count,
                lambda cue=cue: resolve.resolve(
                    reading.graph,
                    Namespace.CONCEPT,
                    cue,
                    dice_floor=resolve.DICE_FLOOR if dice is None else dice,
                    # A second one tells whether the first is ambiguous, also where one is wanted.
                    limit=max(limit, 2),
                ),
            )
            floor = request.anchor_floor
            kept = candidates[:1] if floor is None else [item for item in candidates if item.score >= floor]
            kept = kept[:limit]
            is_ambiguous = len(candidates) > 1 and candidates[0].score - candidates[1].score <= AMBIGUOUS_WITHIN
            for item in kept:
                self.found.anchors.append(
                    AnchorOut(
                        cue=cue,
                        name=item.name,
                        kind=item.kind or item.tier,
                        score=item.score,
                        ambiguous=is_ambiguous,
                        context=row.name if self._is_qualified else UNSET,
                    )
                )
            anchors += [item.name for item in kept]
        state.did(len(anchors))
        return list(dict.fromkeys(anchors))

    async def _facts(self, reading: Reading, anchors: Sequence[str]) -> list[tuple[str, int, int]]:
        """Return (lane, rank, position) of the facts that the graph's lanes nominate."""
        request, graph, lanes = self._request, reading.graph, self.found.lanes
        nominated: list[tuple[str, int, int]] = []
        if not anchors:
            lanes["query"].left_out(NO_LABELS if self._cues and not self._labels else NO_ANCHORS)
            lanes["activate"].left_out(NO_ANCHORS)
            return []
        if self._labels:
            size = graph.edge_count
            found = await away(size, lambda: match.query(graph, subjects=anchors, labels=self._labels))
            positions = found.tolist()[:MAX_MATCHES]
            if request.object_facts:
                others = await away(size, lambda: match.query(graph, objects=anchors, labels=self._labels))
                positions += [at for at in others.tolist()[:MAX_MATCHES] if at not in set(positions)]
            nominated += [(GRAPH_QUERY, rank, at) for rank, at in enumerate(positions, 1)]
            lanes["query"].did(len(positions))
        else:
            lanes["query"].left_out(NO_LABELS)
        decay = 0.5 if request.activate_decay is None else request.activate_decay
        limit = _or(request.activate_limit, 20)
        active = await away(graph.edge_count, lambda: traverse.activate(graph, anchors, decay=decay, limit=limit))
        nominated += [(GRAPH_ACTIVATE, rank, item.position) for rank, item in enumerate(active.matches, 1)]
        lanes["activate"].did(len(active.matches))
        return nominated

    async def _cited(
        self,
        connection: Connection,
        tenant: UUID,
        row: ContextRow,
        reading: Reading,
        nominated: Sequence[tuple[str, int, int]],
    ) -> None:
        """Make candidates of facts, with the paragraphs that their attributions name."""
        positions = list(dict.fromkeys(at for _, _, at in nominated))
        facts = dict(zip(positions, await reading.shown(positions), strict=True))
        named = list(
            dict.fromkeys(
                (item.source, item.paragraph)
                for fact in facts.values()
                for item in fact.attributions
                if item.paragraph is not None
            )
        )
        cited = (await self._texts.cite(connection, tenant, row.context_id, named)).found
        for (source, paragraph), text in cited.items():
            self.found.texts[Locator(source, paragraph, row.name)] = citation_out(source, text)
        self.found.lanes["citations"].did(len(cited))
        for lane, rank, at in nominated:
            fact = facts[at]
            self.found.candidates.append(
                association(
                    Fact(fact.subject, fact.label, fact.object),
                    [Attribution(item.source, item.paragraph, item.weight) for item in fact.attributions],
                    LaneRank(lane, rank),
                    context=row.name,
                    is_qualified=self._is_qualified,
                    citable=cited,
                    payload=fact,
                )
            )
        document = await self._graph.document(connection, tenant, row.context_id)
        for label in {fact.label for fact in facts.values()}:
            said = document.is_functional(label) if document else None
            tendency = match.functional_tendency(reading.graph, label) if said is None else float(said)
            self.found.tendencies[label] = max(tendency, self.found.tendencies.get(label, 0.0))

    async def _passages(self, connection: Connection, tenant: UUID, row: ContextRow, question: Question) -> None:
        request, state = self._request, self.found.lanes["passages"]
        found = await self._search.find(
            connection,
            tenant,
            row,
            PassageQuery(
                text=self._query,
                limit=_or(request.search_limit, 5),
                floor=request.semantic_floor,
                tags=request.tags,
                since=request.since,
                until=request.until,
                expand=request.expand,
            ),
            question,
        )
        if not found.lexical.ran and not found.vector.ran:
            state.left_out(found.lexical.reason or NOTHING_TO_SEARCH)
            return
        state.did(len(found.hits), found.floor if found.vector.ran else None)
        for rank, hit in enumerate(found.hits, 1):
            payload = passage_out(hit, row.name if self._is_qualified else None)
            place = LaneRank(_lane_of(hit), rank, hit.score)
            self.found.candidates.append(passage(row.name, hit.source, hit.paragraph, hit.text, place, payload=payload))

    async def _summaries(self, connection: Connection, tenant: UUID, row: ContextRow, question: Question) -> None:
        request, state = self._request, self.found.lanes["communities"]
        if not request.include_communities:
            state.left_out(NO_COMMUNITIES)
            return
        try:
            artifact = await self._communities.artifact(connection, tenant, row)
        except StrataError as error:
            if error.kind is not COMMUNITIES_NOT_FOUND:
                raise
            state.left_out(error.detail)
            return
        query = PassageQuery(text=self._query, limit=_or(request.search_limit, 5), floor=request.semantic_floor)
        found = await self._communities.search(connection, tenant, artifact, query, question)
        if not found.search.lexical.ran and not found.search.vector.ran:
            state.left_out(found.search.lexical.reason or NOTHING_TO_SEARCH)
            return
        state.did(len(found.hits), found.search.floor if found.search.vector.ran else None)
        for rank, (source, hit) in enumerate(found.hits, 1):
            place = LaneRank(COMMUNITY, rank, hit.score)
            self.found.candidates.append(
                community(artifact.row.name, source, hit.paragraph, hit.text, place, payload=hit)
            )


def citation_out(source: str, text: Cited) -> CitationOut:
    """Return the text of a citation as it is shown."""
    locator = None if text.locator is None else LocatorOut(kind=text.locator.kind, value=text.locator.value)
    return CitationOut(text=text.text, source=source, section=text.section, locator=locator)


def passage_out(hit: FoundPassage, context: str | None = None, text: str | None = None) -> PassageOut:
    """Return a passage found as the wire shows it; ``text`` stands in for the whole where an extract is shown."""
    lexical = LaneScore(rank=hit.lexical.rank, score=single(hit.lexical.score)) if hit.lexical else UNSET
    vector = LaneScore(rank=hit.vector.rank, score=single(hit.vector.score)) if hit.vector else UNSET
    return PassageOut(
        source=hit.source,
        paragraph=hit.paragraph,
        score=single(hit.score),
        text=hit.text if text is None else text,
        lanes=PassageLanesOut(bm25=lexical, vector=vector),
        context=UNSET if context is None else context,
    )


def _lane_of(hit: FoundPassage) -> str:
    if hit.lexical and hit.vector:
        return "passage_fused"
    return "passage_bm25" if hit.lexical else "passage_vector"


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
