"""An immutable snapshot of one context's graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from strata.graph.names import HIDDEN_LABEL
from strata.graph.vocabulary import Ints, Namespace, Vocabulary

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class EdgeRows:
    """Associations as columns: database ids throughout, ``ids`` in the order asserted, ``weights`` raw sums."""

    ids: Ints
    subjects: Ints
    labels: Ints
    objects: Ints
    weights: Floats
    counts: Ints

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int, float, int]]) -> EdgeRows:
        """Take rows of (id, subject id, label id, object id, sum, count)."""
        ids, subjects, labels, objects, weights, counts = zip(*rows, strict=True) if rows else ((),) * 6
        integers = (np.array(column, dtype=np.int64) for column in (ids, subjects, labels, objects, counts))
        ids_, subjects_, labels_, objects_, counts_ = integers
        return cls(ids_, subjects_, labels_, objects_, np.array(weights, dtype=np.float64), counts_)


@dataclass(frozen=True, slots=True)
class Edge:
    """One association by its names. ``weight`` is the average assertion, ``sum`` all of them."""

    id: int
    subject: str
    label: str
    object: str
    weight: float
    sum: float
    count: int


@dataclass(frozen=True)
class Topology:
    """What weights do not change: the ends of the edges, and the edges at each concept.

    Edges stand in order of their ids; a position is a place in that order. ``incident`` lists the
    positions at concept ``c`` from ``starts[c]`` to ``starts[c + 1]``, ascending, a self-loop once.
    """

    ids: Ints
    subjects: Indices
    labels: Indices
    objects: Indices
    starts: Ints
    incident: Indices

    @cached_property
    def ranks(self) -> Ints:
        """The place of each edge among all when they stand by subject, label and object."""
        ranks = np.empty(len(self.ids), dtype=np.int64)
        ranks[np.lexsort((self.objects, self.labels, self.subjects))] = np.arange(len(self.ids))
        return ranks


class Graph:
    """Concepts, labels, aliases and weighted edges of one context at one revision.

    Nothing changes after it is built; indexes that only some questions need are made on first use.
    An edge with count 0 is not live: it is neither walked nor shown.
    """

    def __init__(
        self,
        revision: int,
        concepts: Vocabulary,
        labels: Vocabulary,
        *,
        topology: Topology,
        sums: Floats,
        counts: Ints,
    ) -> None:
        self.revision = revision
        self.concepts = concepts
        self.labels = labels
        self.topology = topology
        self.counts = counts
        self.is_live: npt.NDArray[np.bool_] = counts > 0
        self.sums: Floats = np.where(self.is_live, sums, 0.0)

    @classmethod
    def build(
        cls,
        revision: int,
        concepts: Sequence[tuple[int, str]],
        labels: Sequence[tuple[int, str]],
        aliases: Sequence[tuple[Namespace, str, int]],
        edges: EdgeRows,
    ) -> Graph:
        """Build a snapshot from rows of the store, in any order.

        Raises KeyError where an edge or an alias names an id that is not among the records.
        """
        concept_names = Vocabulary(concepts, [(alias, to) for kind, alias, to in aliases if kind == Namespace.CONCEPT])
        label_names = Vocabulary(labels, [(alias, to) for kind, alias, to in aliases if kind == Namespace.LABEL])
        order = np.argsort(edges.ids, kind="stable")
        subjects = concept_names.indices(edges.subjects[order]).astype(np.int32)
        objects = concept_names.indices(edges.objects[order]).astype(np.int32)
        starts, incident = _incidence(subjects, objects, len(concept_names.names))
        topology = Topology(
            ids=edges.ids[order],
            subjects=subjects,
            labels=label_names.indices(edges.labels[order]).astype(np.int32),
            objects=objects,
            starts=starts,
            incident=incident,
        )
        sums, counts = edges.weights[order], edges.counts[order]
        return cls(revision, concept_names, label_names, topology=topology, sums=sums, counts=counts)

    def with_weights(self, sums: Floats, counts: Ints) -> Graph:
        """Weigh the same edges anew, given in order of position: a time window, or an as-of view."""
        if len(sums) != self.edge_count or len(counts) != self.edge_count:
            raise ValueError("one sum and one count are needed for each edge")
        return Graph(self.revision, self.concepts, self.labels, topology=self.topology, sums=sums, counts=counts)

    @property
    def edge_count(self) -> int:
        """How many edges there are, live or not."""
        return len(self.topology.ids)

    def position(self, edge_id: int) -> int | None:
        """Find an edge by its database id."""
        place = int(np.searchsorted(self.topology.ids, edge_id))
        return place if place < self.edge_count and self.topology.ids[place] == edge_id else None

    def edge(self, position: int) -> Edge:
        """Give an edge by its names."""
        at = self.topology
        total, count = float(self.sums[position]), int(self.counts[position])
        return Edge(
            id=int(at.ids[position]),
            subject=self.concepts.names[at.subjects[position]],
            label=self.labels.names[at.labels[position]],
            object=self.concepts.names[at.objects[position]],
            weight=total / count if count else 0.0,
            sum=total,
            count=count,
        )

    def edges(self, positions: Sequence[int] | Ints) -> Iterator[Edge]:
        """Give several edges by their names, in the order asked for."""
        return (self.edge(int(position)) for position in positions)

    def vocabulary(self, namespace: Namespace) -> Vocabulary:
        """Give the names of one namespace."""
        return self.concepts if namespace == Namespace.CONCEPT else self.labels

    def find(self, namespace: Namespace, spelling: str) -> str | None:
        """Give the canonical name that a name or an alias, spelled exactly so, stands for."""
        vocabulary = self.vocabulary(namespace)
        index = vocabulary.find(spelling)
        return None if index is None else vocabulary.names[index]

    def incident(self, concept: int) -> Ints:
        """List the live edges at a concept, ascending by position."""
        at = self.topology
        positions = at.incident[at.starts[concept] : at.starts[concept + 1]].astype(np.int64)
        return positions[self.is_live[positions]]

    def types_of(self, concept: str) -> tuple[str, ...]:
        """List the types asserted of a concept (canonical name), by name."""
        index = self.concepts.find(concept)
        return () if index is None else tuple(self.concepts.names[kind] for kind in self.types.get(index, ()))

    @cached_property
    def typings(self) -> tuple[Ints, Ints]:
        """The typed concepts and their types, pair by pair, as indices in order. A denied type is none."""
        if self.hidden_label is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        at = self.topology
        held = np.flatnonzero((at.labels == self.hidden_label) & self.is_live & (self.sums > 0))
        held = held[np.lexsort((at.objects[held], at.subjects[held]))]
        return at.subjects[held].astype(np.int64), at.objects[held].astype(np.int64)

    @cached_property
    def types(self) -> dict[int, list[int]]:
        """The types of each typed concept, as indices, ascending."""
        found: dict[int, list[int]] = {}
        for concept, kind in zip(*(column.tolist() for column in self.typings), strict=True):
            found.setdefault(concept, []).append(kind)
        return found

    @cached_property
    def hidden_label(self) -> int | None:
        """The index of the reserved label, where the context uses it."""
        return self.labels.find(HIDDEN_LABEL)

    @cached_property
    def averages(self) -> Floats:
        """The average assertion of each edge."""
        return self.sums / np.maximum(self.counts, 1)

    @cached_property
    def conducts(self) -> npt.NDArray[np.bool_]:
        """Which edges a walk may follow and show: live ones that do not assert a type."""
        if self.hidden_label is None:
            return self.is_live
        visible: npt.NDArray[np.bool_] = self.is_live & (self.topology.labels != self.hidden_label)
        return visible

    @cached_property
    def masses(self) -> Floats:
        """The weight at each concept: the sum of ``|sum|`` over its edges that conduct."""
        at = self.topology
        mass = np.where(self.conducts, np.abs(self.sums), 0.0)
        count = len(self.concepts.names)
        loose = np.where(at.subjects == at.objects, 0.0, mass)
        masses = np.bincount(at.subjects, mass, minlength=count) + np.bincount(at.objects, loose, minlength=count)
        return masses.astype(np.float64, copy=False)

    @cached_property
    def components(self) -> Ints:
        """The connected component of each concept over edges that conduct, named by its first member."""
        at, conducts = self.topology, self.conducts
        return connected(len(self.concepts.names), at.subjects[conducts], at.objects[conducts])

    @cached_property
    def label_edges(self) -> tuple[Ints, Ints]:
        """The positions of each label's edges, ascending: starts by label, and positions."""
        labels = self.topology.labels
        positions = np.argsort(labels, kind="stable")
        return np.searchsorted(labels[positions], np.arange(len(self.labels.names) + 1)).astype(np.int64), positions

    @cached_property
    def footprint_bytes(self) -> int:
        """Bytes of names and columns, without the indexes made on first use."""
        at = self.topology
        columns = (at.ids, at.subjects, at.labels, at.objects, at.starts, at.incident, self.sums, self.counts)
        return self.concepts.footprint_bytes + self.labels.footprint_bytes + sum(column.nbytes for column in columns)


def _incidence(subjects: Indices, objects: Indices, concepts: int) -> tuple[Ints, Indices]:
    positions = np.arange(len(subjects), dtype=np.int64)
    other = subjects != objects
    # One sort of (concept, position) packed in one number is several times as fast as a stable sort by key.
    at_subject = (subjects.astype(np.int64) << 32) | positions
    at_object = (objects.astype(np.int64) << 32) | positions
    packed = np.concatenate((at_subject, at_object[other]))
    packed.sort()
    starts = np.searchsorted(packed, np.arange(concepts + 1, dtype=np.int64) << 32).astype(np.int64)
    return starts, (packed & 0xFFFFFFFF).astype(np.int32)


def connected(count: int, left: npt.NDArray[np.integer], right: npt.NDArray[np.integer]) -> Ints:
    """Name each of ``count`` nodes by the smallest node of its connected component.

    Every root hooks onto the smallest root it meets, then all chains are shortened to one step: a number of
    rounds that grows with the logarithm of the size, whatever the shape.
    """
    roots = np.arange(count, dtype=np.int64)
    while len(left):
        ours, theirs = roots[left], roots[right]
        differ = ours != theirs
        if not differ.any():
            break
        left, right, ours, theirs = left[differ], right[differ], ours[differ], theirs[differ]
        np.minimum.at(roots, np.maximum(ours, theirs), np.minimum(ours, theirs))
        while not np.array_equal(jumped := roots[roots], roots):
            roots = jumped
    return roots
