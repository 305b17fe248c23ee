"""The graph lane of a lookup: facts of the concepts that the question mentions, as evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from strata.evidence.model import Attribution, Candidate, Fact, KeyBasis, LaneRank, Layer
from strata.evidence.nominate import primary_attribution
from strata.graph import match, traverse
from strata.graph.mentions import mentions
from strata.graph.model import Graph
from strata.knowledge.graph_base import Reading, away
from strata.knowledge.graph_schemas import AssociationOut
from strata.knowledge.graph_service import GraphService
from strata.knowledge.model import ContextRow
from strata.lookup import repository
from strata.lookup.candidates import GRAPH, GRAPH_NEAR, Rows, StatedFact, citation_of
from strata.lookup.repository import PassageRow
from strata.platform.database import Connection

ACTIVATED = 20
"""Facts that activation adds to those that the question names itself."""

FILTERED = 1_000
"""Facts of each kind looked at where a filter may leave few of them."""

CITATIONS = 8
"""Most paragraphs that one fact is cited by."""


class _Place(NamedTuple):
    """A fact of a context, and the lane that it was found in."""

    row: ContextRow
    fact: AssociationOut
    lane: str


@dataclass(frozen=True, slots=True)
class Found:
    """Facts of one context: those that the question names by two of their parts, and what is near the others."""

    named: Sequence[int]
    near: Sequence[int]


class FactLane:
    """Finds the facts of one lookup over one connection.

    ``named`` and ``near`` are the relevances (0..1) of the two kinds of facts.
    """

    def __init__(
        self, connection: Connection, tenant: UUID, graph: GraphService, *, named: float, near: float, most: int
    ) -> None:
        self._connection = connection
        self._tenant = tenant
        self._graph = graph
        self._relevance = {GRAPH: named, GRAPH_NEAR: near}
        self._most = most

    async def find(
        self, contexts: Sequence[ContextRow], query: str, eligible: Mapping[UUID, frozenset[int]]
    ) -> list[Candidate]:
        """Return the facts that the question leads to, with the passages that state them.

        ``eligible`` holds the serials of the sources that pass the filters, for the contexts that have any: a
        fact is then what those say of it. The first facts of each context come first, then the second ones.
        Contexts without a graph cost nothing.
        """
        found: list[list[_Place]] = []
        for row in contexts:
            if row.graph_revision == 0:
                continue
            reading = await self._graph.reading(self._connection, self._tenant, row)
            found.append(await self._of_context(reading, query, eligible.get(row.context_id)))
        places = [place for rank in zip_longest(*found) for place in rank if place is not None]
        rows = await self._passages(places)
        candidates: list[Candidate] = []
        ranks = dict.fromkeys((GRAPH, GRAPH_NEAR), 0)
        for row, fact, lane in places:
            stated = [
                passage
                for item in fact.attributions
                if (passage := rows.get((row.context_id, item.source, item.paragraph))) is not None
            ]
            ranks[lane] += 1
            candidates.append(self._candidate(row, fact, LaneRank(lane, ranks[lane]), stated))
        return candidates

    async def _of_context(self, reading: Reading, query: str, serials: frozenset[int] | None) -> list[_Place]:
        graph, row = reading.graph, reading.row
        most = (self._most, ACTIVATED) if serials is None else (FILTERED, FILTERED)
        found = await away(graph.edge_count, lambda: facts_of(graph, query, *most))
        shown = await reading.shown([*found.named, *found.near])
        lanes = [GRAPH] * len(found.named) + [GRAPH_NEAR] * len(found.near)
        places = [_Place(row, fact, lane) for fact, lane in zip(shown, lanes, strict=True)]
        if serials is not None:
            places = await self._eligible(places, serials)
        named = [place for place in places if place.lane == GRAPH][: self._most]
        return named + [place for place in places if place.lane == GRAPH_NEAR][:ACTIVATED]

    async def _eligible(self, places: Sequence[_Place], serials: frozenset[int]) -> list[_Place]:
        """Return the facts that sources with these serials state, as they state them; all are of one context."""
        if not places:
            return []
        names = dict.fromkeys(item.source for place in places for item in place.fact.attributions)
        sizes = await repository.source_sizes(self._connection, self._tenant, places[0].row.context_id, list(names))
        allowed = {name for name, (serial, _) in sizes.items() if serial in serials}
        stated = [place._replace(fact=_as_stated_by(place.fact, allowed)) for place in places]
        return [place for place in stated if place.fact.attributions]

    async def _passages(self, places: Sequence[_Place]) -> dict[tuple[UUID, str, int | None], PassageRow]:
        """Return the live passages that state the facts, by context, source and paragraph."""
        wanted = list(
            dict.fromkeys(
                (row.context_id, item.source, item.paragraph)
                for row, fact, _ in places
                for item in fact.attributions[:CITATIONS]
                if item.paragraph is not None
            )
        )
        if not wanted:
            return {}
        ids = await repository.paragraph_passages(self._connection, self._tenant, wanted)
        known = [(want, passage) for want, passage in zip(wanted, ids, strict=True) if passage is not None]
        rows: Rows = {
            (row.context_id, row.passage_id): row
            for row in await repository.passage_rows(
                self._connection, self._tenant, [want[0] for want, _ in known], [passage for _, passage in known], 0
            )
        }
        return {want: row for want, passage in known if (row := rows.get((want[0], passage))) is not None}

    def _candidate(
        self, row: ContextRow, fact: AssociationOut, place: LaneRank, stated: Sequence[PassageRow]
    ) -> Candidate:
        attributions = [Attribution(item.source, item.paragraph, item.weight) for item in fact.attributions]
        primary = primary_attribution(attributions)
        cited = next((passage for passage in stated if primary and passage.path == primary.source), None)
        cited = cited or (stated[0] if stated else None)
        key = f"fact:{fact.subject} | {fact.label} | {fact.object}"
        return Candidate(
            kind="association",
            key=f"{row.context_id.hex}:{key}",
            layer=Layer.L1,
            source_key=key,
            source_key_basis=KeyBasis.EXPLICIT,
            source=primary.source if primary else "",
            title=fact.subject,
            breadcrumb=(fact.label,),
            anchor=cited.anchor if cited else None,
            lane_ranks=(place,),
            layers=(Layer.L1,),
            hit_reasons=(f"L1_GRAPH:{place.rank}", *(("L1_GRAPH_NAMED",) if place.lane == GRAPH else ())),
            relevance=self._relevance[place.lane],
            text=sentence(fact),
            citation=citation_of(cited) if cited else None,
            scope=row.context_id.hex,
            fact=Fact(fact.subject, fact.label, fact.object),
            attributions=tuple(attributions),
            payload=StatedFact(fact.weight, fact.count, tuple(citation_of(passage) for passage in stated)),
        )


def _as_stated_by(fact: AssociationOut, sources: AbstractSet[str]) -> AssociationOut:
    """Return a fact as some sources state it, weighed by them alone."""
    stated = [item for item in fact.attributions if item.source in sources]
    count = sum(item.count for item in stated)
    weight = sum(item.weight for item in stated) / count if count else 0.0
    return replace(fact, attributions=stated, count=count, weight=weight)


def sentence(fact: AssociationOut) -> str:
    """Return a fact as a line of text; one that its sources deny on balance says so."""
    said = f"{fact.subject} — {fact.label} — {fact.object}"
    return said if fact.weight >= 0 else f"{said} (denied)"


def facts_of(graph: Graph, query: str, named: int, near: int) -> Found:
    """Return the facts that a question leads to, best first, at most so many of each kind.

    Named are those of which it mentions subject and object, or the label and one of the two; near are
    those that activation from the concepts it mentions reaches.
    """
    concepts = [graph.concepts.names[item.index] for item in mentions(graph.concepts, query)]
    if not concepts:
        return Found((), ())
    labels = [graph.labels.names[item.index] for item in mentions(graph.labels, query)]
    found: list[int] = match.query(graph, subjects=concepts, objects=concepts).tolist()
    if labels:
        found += match.query(graph, subjects=concepts, labels=labels).tolist()
        found += match.query(graph, objects=concepts, labels=labels).tolist()
    first = [at for at in dict.fromkeys(found) if graph.conducts[at]][:named]
    known = set(first)
    active = traverse.activate(graph, concepts, limit=near + len(first))
    return Found(first, [item.position for item in active.matches if item.position not in known][:near])
