"""What a curator should look at: names to merge, facts that disagree, facts grown old, drift.

Candidates, never verdicts. Each carries a fingerprint of its own evidence, so that a judgement
holds until the evidence moves. Associations that assert types are never candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, TypeVar

import numpy as np

from strata.graph.fingerprint import fingerprint
from strata.graph.match import functional_tendency
from strata.graph.model import Edge, Graph
from strata.graph.twins import TWIN_CAP, TWIN_FLOOR, Twins, lexical_twins
from strata.graph.vocabulary import Ints, Namespace

DETECTOR = "consolidation/1"
CANDIDATES = 100
EVIDENCE_CAP = 20
MERGE_POOL = 10 * TWIN_CAP
"""Pairs of like names whose neighbourhoods are compared."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sourced:
    """What one source adds to one association: raw sum, count, and the source's effective time (epoch seconds).

    ``source`` is empty for what no source stands behind.
    """

    edge_id: int
    source: str
    weight: float
    count: int
    at: int | None


class Attributions:
    """Who asserted what, by the position of the association."""

    def __init__(self, graph: Graph, rows: Sequence[Sourced]) -> None:
        self._graph = graph
        self._rows = rows

    @cached_property
    def by_position(self) -> dict[int, list[Sourced]]:
        """The rows of each association; rows of an association that is not there are left out."""
        found: dict[int, list[Sourced]] = {}
        for row in self._rows:
            position = self._graph.position(row.edge_id)
            if position is not None:
                found.setdefault(position, []).append(row)
        return found

    def sources(self, position: int) -> list[str]:
        """List the named sources of an association, by name."""
        return sorted({row.source for row in self.by_position.get(position, ()) if row.source})

    def latest(self, position: int) -> int | None:
        """Give the newest effective time among an association's sources; None where none has one."""
        return max((row.at for row in self.by_position.get(position, ()) if row.at is not None), default=None)


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """The first candidates of ``total``."""

    total: int
    candidates: tuple[T, ...]


@dataclass(frozen=True, slots=True, order=True)
class Neighbour:
    """One association of a concept, seen from it."""

    direction: Literal["in", "out"]
    label: str
    other: str


@dataclass(frozen=True, slots=True)
class MergeCandidate:
    """Two names that may be one thing: how alike the names are, and what they are associated with.

    ``overlap`` is shared over all of both (Jaccard), without what joins the two to each other.
    """

    a: str
    b: str
    tier: Literal["lexical", "semantic"]
    name_score: float
    overlap: float
    shared: tuple[Neighbour, ...]
    shared_total: int
    only_a: tuple[Neighbour, ...]
    only_a_total: int
    only_b: tuple[Neighbour, ...]
    only_b_total: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ObjectClaim:
    """One of several objects that a subject has under a label."""

    object: str
    weight: float
    count: int
    sources: tuple[str, ...]
    latest: int | None


@dataclass(frozen=True, slots=True)
class ObjectsCandidate:
    """A subject with several affirmed objects under a label that tends to have one."""

    kind: Literal["objects"]
    subject: str
    label: str
    functional_tendency: float
    objects: tuple[ObjectClaim, ...]
    objects_total: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ContestedCandidate:
    """One association that some sources affirm and others deny."""

    kind: Literal["contested"]
    subject: str
    label: str
    object: str
    weight: float
    count: int
    supporting_sources: tuple[str, ...]
    disputing_sources: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class StaleCandidate:
    """An association whose newest source is older than the newest about its subject, by ``gap`` seconds."""

    subject: str
    label: str
    object: str
    latest: int
    neighborhood_latest: int
    gap: int
    sources: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Staleness(Section[StaleCandidate]):
    """Stale candidates, and how many live associations have no dated source."""

    undatable: int


@dataclass(frozen=True, slots=True)
class Unsourced:
    """What an association holds that no source stands behind. The weight is a raw sum, perhaps negative."""

    position: int
    weight: float
    count: int


def merge_candidates(
    graph: Graph,
    *,
    dice_floor: float = TWIN_FLOOR,
    semantic: Sequence[tuple[str, str, float]] = (),
    limit: int = CANDIDATES,
    evidence_cap: int = EVIDENCE_CAP,
) -> Section[MergeCandidate]:
    """Rank like-named concepts by the overlap of their neighbourhoods, then by likeness, then by name.

    ``semantic`` adds pairs of canonical names of near meaning, with their cosines; a pair alike in
    spelling stays ``lexical``.
    """
    pairs: dict[frozenset[str], tuple[Twins, Literal["lexical", "semantic"]]] = {}
    for one, other, score in semantic:
        pairs[frozenset((one, other))] = (Twins(one, other, score), "semantic")
    for twins in lexical_twins(graph, Namespace.CONCEPT, floor=dice_floor, cap=MERGE_POOL):
        pairs[frozenset((twins.a, twins.b))] = (twins, "lexical")
    compared = [(twins, tier, *_neighbourhoods(graph, twins)) for twins, tier in pairs.values()]
    compared.sort(key=lambda row: (-_jaccard(row[2], row[3]), -row[0].score, row[0].a, row[0].b))
    return Section(len(compared), tuple(_merge(*row, evidence_cap) for row in compared[: max(limit, 0)]))


def _neighbourhoods(graph: Graph, twins: Twins) -> tuple[set[Neighbour], set[Neighbour]]:
    ends = (graph.concepts.find(twins.a), graph.concepts.find(twins.b))
    one, other = (_neighbourhood(graph, end, set(ends)) for end in ends)
    return one, other


def _neighbourhood(graph: Graph, concept: int | None, without: set[int | None]) -> set[Neighbour]:
    found: set[Neighbour] = set()
    if concept is None:
        return found
    at = graph.topology
    positions = graph.incident(concept)
    for position in positions[graph.conducts[positions]].tolist():
        subject, object_ = int(at.subjects[position]), int(at.objects[position])
        other = object_ if subject == concept else subject
        if other not in without:
            direction: Literal["in", "out"] = "out" if subject == concept else "in"
            found.add(Neighbour(direction, graph.labels.names[at.labels[position]], graph.concepts.names[other]))
    return found


def _jaccard(one: set[Neighbour], other: set[Neighbour]) -> float:
    whole = len(one | other)
    return len(one & other) / whole if whole else 0.0


def _merge(
    twins: Twins,
    tier: Literal["lexical", "semantic"],
    one: set[Neighbour],
    other: set[Neighbour],
    cap: int,
    /,
) -> MergeCandidate:
    shared, only_a, only_b = sorted(one & other), sorted(one - other), sorted(other - one)
    evidence = [part for group in (shared, only_a, only_b) for n in group for part in (n.direction, n.label, n.other)]
    sizes = (len(shared), len(only_a), len(only_b))
    return MergeCandidate(
        a=twins.a,
        b=twins.b,
        tier=tier,
        name_score=twins.score,
        overlap=_jaccard(one, other),
        shared=tuple(shared[:cap]),
        shared_total=sizes[0],
        only_a=tuple(only_a[:cap]),
        only_a_total=sizes[1],
        only_b=tuple(only_b[:cap]),
        only_b_total=sizes[2],
        fingerprint=fingerprint(["merge", twins.a, twins.b, *sizes, *evidence]),
    )


def contradictions(
    graph: Graph, attributions: Attributions, *, limit: int = CANDIDATES, evidence_cap: int = EVIDENCE_CAP
) -> Section[ObjectsCandidate | ContestedCandidate]:
    """List facts that may disagree: several objects where one is usual, then sources of opposite sign.

    The former go by the label's functional tendency, the highest first, then by subject and label;
    the latter by subject, label and object.
    """
    groups = _several_objects(graph)
    contested = _contested(graph, attributions)
    chosen = [_objects(graph, attributions, group, evidence_cap) for group in groups[: max(limit, 0)]]
    rest = max(limit - len(chosen), 0)
    return Section(
        len(groups) + len(contested),
        (*chosen, *(_contest(graph, attributions, position) for position in contested[:rest])),
    )


def _several_objects(graph: Graph) -> list[Ints]:
    """Group the affirmed associations of each subject and label, where there are two or more."""
    at = graph.topology
    positions = np.flatnonzero(graph.conducts & (graph.sums > 0))
    groups = at.subjects[positions].astype(np.int64) * max(len(graph.labels.names), 1) + at.labels[positions]
    order = np.lexsort((positions, groups))
    positions, groups = positions[order], groups[order]
    _, first, counts = np.unique(groups, return_index=True, return_counts=True)
    found = [positions[start : start + size] for start, size in zip(first, counts, strict=True) if size > 1]
    labels = {int(at.labels[group[0]]) for group in found}
    tendency = {label: functional_tendency(graph, graph.labels.names[label]) for label in labels}
    # The sort is stable, and groups stand by subject and label already.
    return sorted(found, key=lambda group: -tendency[int(at.labels[group[0]])])


def _objects(graph: Graph, attributions: Attributions, group: Ints, cap: int) -> ObjectsCandidate:
    edges = list(graph.edges(group))
    claims = [
        ObjectClaim(
            object=edge.object,
            weight=edge.weight,
            count=edge.count,
            sources=tuple(attributions.sources(int(position))),
            latest=attributions.latest(int(position)),
        )
        for edge, position in zip(edges, group, strict=True)
    ]
    subject, label = edges[0].subject, edges[0].label
    evidence = [
        part
        for claim in sorted(claims, key=lambda claim: claim.object)
        for part in (claim.object, claim.weight, claim.count, claim.latest, len(claim.sources), *claim.sources)
    ]
    return ObjectsCandidate(
        kind="objects",
        subject=subject,
        label=label,
        functional_tendency=functional_tendency(graph, label),
        objects=tuple(claims[:cap]),
        objects_total=len(claims),
        fingerprint=fingerprint(["objects", subject, label, *evidence]),
    )


def _by_source(rows: Sequence[Sourced]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for row in rows:
        if row.source:
            sums[row.source] = sums.get(row.source, 0.0) + row.weight
    return sums


def _contested(graph: Graph, attributions: Attributions) -> list[int]:
    found = []
    for position, rows in attributions.by_position.items():
        if len(rows) > 1 and graph.conducts[position]:
            sums = _by_source(rows).values()
            if min(sums, default=0.0) < 0 < max(sums, default=0.0):
                found.append(position)
    return sorted(found, key=lambda position: int(graph.topology.ranks[position]))


def _contest(graph: Graph, attributions: Attributions, position: int) -> ContestedCandidate:
    edge = graph.edge(position)
    sums = sorted(_by_source(attributions.by_position[position]).items())
    evidence = [part for pair in sums for part in pair]
    return ContestedCandidate(
        kind="contested",
        subject=edge.subject,
        label=edge.label,
        object=edge.object,
        weight=edge.weight,
        count=edge.count,
        supporting_sources=tuple(source for source, weight in sums if weight > 0),
        disputing_sources=tuple(source for source, weight in sums if weight < 0),
        fingerprint=fingerprint(["contested", *_triple(edge), edge.weight, edge.count, *evidence]),
    )


def _triple(edge: Edge) -> tuple[str, str, str]:
    return edge.subject, edge.label, edge.object


def staleness(
    graph: Graph, attributions: Attributions, *, floor_seconds: int = 0, limit: int = CANDIDATES
) -> Staleness:
    """List associations that newer news about their subject leaves behind by more than a floor.

    The neighbourhood of an association is all that has its subject. The largest gap goes first,
    equal ones by subject, label and object.
    """
    at = graph.topology
    positions = np.flatnonzero(graph.conducts).tolist()
    latest = {position: newest for position in positions if (newest := attributions.latest(position)) is not None}
    newest_of: dict[int, int] = {}
    for position, newest in latest.items():
        subject = int(at.subjects[position])
        newest_of[subject] = max(newest_of.get(subject, newest), newest)
    gaps = [(newest_of[int(at.subjects[position])] - newest, position) for position, newest in latest.items()]
    stale = sorted(
        (row for row in gaps if row[0] > max(floor_seconds, 0)), key=lambda row: (-row[0], int(at.ranks[row[1]]))
    )
    return Staleness(
        total=len(stale),
        candidates=tuple(_stale(graph, attributions, gap, position) for gap, position in stale[: max(limit, 0)]),
        undatable=len(positions) - len(latest),
    )


def _stale(graph: Graph, attributions: Attributions, gap: int, position: int) -> StaleCandidate:
    edge = graph.edge(position)
    latest = attributions.latest(position) or 0
    sources = attributions.sources(position)
    return StaleCandidate(
        subject=edge.subject,
        label=edge.label,
        object=edge.object,
        latest=latest,
        neighborhood_latest=latest + gap,
        gap=gap,
        sources=tuple(sources),
        fingerprint=fingerprint(["staleness", *_triple(edge), latest, *sources]),
    )


def unsourced(graph: Graph, attributions: Attributions, *, floor: float = 0.0) -> list[Unsourced]:
    """List the live associations that hold weight no source stands behind, the largest first.

    Only those with ``|weight| >= floor``. Equal ones go by subject, label and object.
    """
    found = []
    for position, rows in attributions.by_position.items():
        own = [row for row in rows if not row.source]
        weight, count = sum(row.weight for row in own), sum(row.count for row in own)
        if count and graph.is_live[position] and abs(weight) >= floor:
            found.append(Unsourced(position, weight, count))
    return sorted(found, key=lambda row: (-abs(row.weight), int(graph.topology.ranks[row.position])))


def dead_aliases(graph: Graph, namespace: Namespace) -> dict[str, str]:
    """Give the aliases, by alias, whose canonical name no live association uses."""
    vocabulary, at = graph.vocabulary(namespace), graph.topology
    columns = (at.subjects, at.objects) if namespace == Namespace.CONCEPT else (at.labels,)
    is_used = np.zeros(len(vocabulary.names), dtype=bool)
    for column in columns:
        is_used[column[graph.is_live]] = True
    return {alias: vocabulary.names[index] for alias, index in vocabulary.aliases.items() if not is_used[index]}
