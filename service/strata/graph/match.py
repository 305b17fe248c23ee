"""Associations by their parts, in one rank; outlines of concepts; lists of labels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.graph.model import Graph
from strata.graph.vocabulary import Ints, Vocabulary, distinct, gather


@dataclass(frozen=True, slots=True)
class LabelCount:
    """A name, and how many associations use it."""

    label: str
    count: int


@dataclass(frozen=True, slots=True)
class Outline:
    """How many associations of each label a concept has in each role, and its types."""

    concept: str
    as_subject: tuple[LabelCount, ...]
    as_object: tuple[LabelCount, ...]
    types: tuple[str, ...]


def query(
    graph: Graph,
    *,
    subjects: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    objects: Sequence[str] | None = None,
    subject_names: Iterable[str] | None = None,
    object_names: Iterable[str] | None = None,
) -> Ints:
    """List the positions of the live associations that fit, ranked.

    Each part takes any of several spellings (names or aliases, exactly); None is any. The
    ``*_names`` further narrow to canonical names. A part of which nothing is known fits nothing.
    """
    at = graph.topology
    subject = _known(graph.concepts, subjects)
    label = _known(graph.labels, labels)
    object_ = _known(graph.concepts, objects)
    positions = _narrowest(graph, subject, label, object_)
    parts = (
        (at.subjects, subject),
        (at.labels, label),
        (at.objects, object_),
        (at.subjects, _known(graph.concepts, subject_names)),
        (at.objects, _known(graph.concepts, object_names)),
    )
    for column, wanted in parts:
        if wanted is not None:
            positions = positions[np.isin(column[positions], wanted)]
    return ranked(graph, positions)


def _known(vocabulary: Vocabulary, spellings: Iterable[str] | None) -> Ints | None:
    if spellings is None:
        return None
    found = {index for spelling in spellings if (index := vocabulary.find(spelling)) is not None}
    return np.array(sorted(found), dtype=np.int64)


def _narrowest(graph: Graph, subject: Ints | None, label: Ints | None, object_: Ints | None) -> Ints:
    at = graph.topology
    choices: list[tuple[Ints, Ints, npt.NDArray[np.integer]]] = [
        (at.starts, wanted, at.incident) for wanted in (subject, object_) if wanted is not None
    ]
    if label is not None:
        starts, by_label = graph.label_edges
        choices.append((starts, label, by_label))
    if not choices:
        return np.flatnonzero(graph.is_live)
    starts, groups, members = min(choices, key=_size)
    positions: Ints = distinct(members[gather(starts, groups)[0]]).astype(np.int64)
    live: Ints = positions[graph.is_live[positions]]
    return live


def _size(choice: tuple[Ints, Ints, npt.NDArray[np.integer]]) -> int:
    starts, groups, _ = choice
    return int((starts[groups + 1] - starts[groups]).sum())


def ranked(graph: Graph, positions: Ints) -> Ints:
    """Order associations by the size of their average, the largest first, then by subject, label, object."""
    order = np.lexsort((graph.topology.ranks[positions], -np.abs(graph.averages[positions])))
    return positions[order]


def after(graph: Graph, positions: Ints, *, weight: float, subject: str, label: str, object: str) -> Ints:  # noqa: A002 - the wire's word
    """Give what follows a cursor (the parts of one association) in a ranked list.

    The association itself may be gone: what ranks after its place is given.
    """
    ends = _bounds(graph, subject, label, object)
    at = graph.topology
    sizes = np.abs(graph.averages[positions])
    beyond = _follows((at.subjects[positions], at.labels[positions], at.objects[positions]), ends)
    rest: Ints = positions[(sizes < abs(weight)) | ((sizes == abs(weight)) & beyond)]
    return rest


Bounds = tuple[tuple[int, bool], tuple[int, bool], tuple[int, bool]]


def _bounds(graph: Graph, subject: str, label: str, object_: str) -> Bounds:
    return (
        _place(graph.concepts.names, subject),
        _place(graph.labels.names, label),
        _place(graph.concepts.names, object_),
    )


def _place(names: Sequence[str], name: str) -> tuple[int, bool]:
    place = bisect_left(names, name)
    return place, place < len(names) and names[place] == name


def _follows(columns: tuple[npt.NDArray[np.integer], ...], bounds: Bounds) -> npt.NDArray[np.bool_]:
    beyond = np.zeros(len(columns[0]), dtype=bool)
    level = np.ones(len(columns[0]), dtype=bool)
    for column, (place, is_there) in zip(columns, bounds, strict=True):
        beyond |= level & ((column > place) if is_there else (column >= place))
        level &= (column == place) if is_there else False
    return beyond


def follows_triple(graph: Graph, positions: Ints, subject: str, label: str, object_: str) -> npt.NDArray[np.bool_]:
    """Say of each association whether its (subject, label, object) comes after a triple of names."""
    at = graph.topology
    columns = (at.subjects[positions], at.labels[positions], at.objects[positions])
    return _follows(columns, _bounds(graph, subject, label, object_))


def recall(graph: Graph, cue: str) -> Ints:
    """List the positions of all live associations at a concept, or under a label, of that spelling, ranked."""
    concept, label = graph.concepts.find(cue), graph.labels.find(cue)
    found = [np.empty(0, dtype=np.int64)]
    if concept is not None:
        found.append(graph.incident(concept))
    if label is not None:
        starts, by_label = graph.label_edges
        found.append(by_label[starts[label] : starts[label + 1]])
    positions = distinct(np.concatenate(found))
    return ranked(graph, positions[graph.is_live[positions]])


def describe(graph: Graph, concept: str) -> Outline | None:
    """Outline a concept (a name or an alias) by its labels, the most used first; None where unknown."""
    index = graph.concepts.find(concept)
    if index is None:
        return None
    at, positions = graph.topology, graph.incident(index)
    name = graph.concepts.names[index]
    return Outline(
        concept=name,
        as_subject=_counted(graph.labels, at.labels[positions[at.subjects[positions] == index]]),
        as_object=_counted(graph.labels, at.labels[positions[at.objects[positions] == index]]),
        types=graph.types_of(name),
    )


def _counted(
    vocabulary: Vocabulary, indices: npt.NDArray[np.integer], limit: int | None = None
) -> tuple[LabelCount, ...]:
    values, counts = np.unique(indices, return_counts=True)
    order = np.lexsort((values, -counts))[:limit]
    return tuple(
        LabelCount(vocabulary.names[value], count)
        for value, count in zip(values[order].tolist(), counts[order].tolist(), strict=True)
    )


def label_names(
    graph: Graph, prefix: str = "", after: str | None = None, limit: int | None = None
) -> tuple[int, list[str]]:
    """List labels in code point order: how many start with ``prefix``, and those past ``after`` up to ``limit``."""
    names = graph.labels.names
    fitting = [name for name in names if name.startswith(prefix)] if prefix else names
    first = 0 if after is None else bisect_left(fitting, after)
    if after is not None and first < len(fitting) and fitting[first] == after:
        first += 1
    return len(fitting), fitting[first : None if limit is None else first + limit]


def functional_tendency(graph: Graph, label: str) -> float:
    """Give the share of a label's subjects that it gives exactly one object, 0 where it has none.

    Only affirmed associations (a positive sum) count: a denied object is none. 1 means a relation
    that is one-valued in practice, 0 one that always has several.
    """
    index = graph.labels.find(label)
    if index is None:
        return 0.0
    starts, by_label = graph.label_edges
    positions = by_label[starts[index] : starts[index + 1]]
    positions = positions[graph.sums[positions] > 0]
    _, counts = np.unique(graph.topology.subjects[positions], return_counts=True)
    return float((counts == 1).mean()) if len(counts) else 0.0
