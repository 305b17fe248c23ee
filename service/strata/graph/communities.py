"""Communities of concepts: who is associated with whom most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import networkx as nx  # type: ignore[import-untyped]
import numpy as np

from strata.graph.fingerprint import fingerprint
from strata.graph.model import Floats, Graph, connected
from strata.graph.vocabulary import Ints, distinct

ALGORITHM = "louvain-cc/1"
MAX_LEVELS = 8
TOP_ASSOCIATIONS = 24
SEED = 0


@dataclass(frozen=True, slots=True)
class Member:
    """A concept of a community, and the ``|sum|`` of its associations within it."""

    name: str
    strength: float


@dataclass(frozen=True, slots=True)
class Community:
    """One community: a leaf (level 0) has members and heaviest associations (positions), others have children."""

    id: str
    level: int
    parent: str | None
    concept_count: int
    members: tuple[Member, ...]
    children: tuple[str, ...]
    top_associations: tuple[int, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class _Links:
    """Pairs of concepts, the first before the second by name, and the total ``|sum|`` between them."""

    left: Ints
    right: Ints
    weights: Floats


def detect(graph: Graph) -> list[Community]:
    """Group the associated concepts into communities: leaves first, each level by size, then first member.

    Louvain (Blondel, Guillaume, Lambiotte and Lefebvre, 2008) over the total ``|sum|`` between two
    concepts, both directions added, self-loops and associations of no weight left out; then each
    community of each level is split into its connected parts. At most eight levels. Names alone
    fix the order of visits, so equal graphs have equal communities however they were written.
    """
    links = _links(graph)
    levels = _levels(links, len(graph.concepts.names))
    if not levels:
        return []
    homes = [np.full(len(graph.concepts.names), -1, dtype=np.int64) for _ in levels]
    for home, groups in zip(homes, levels, strict=True):
        for place, group in enumerate(groups):
            home[group] = place
    rows = [_leaves(graph, links, levels[0], homes[0])]
    for level in range(1, len(levels)):
        rows.append(_parents(level, levels[level], rows[-1], [int(homes[level][g[0]]) for g in levels[level - 1]]))
    return [
        replace(community, parent=f"L{level + 1}-{homes[level + 1][group[0]]}")
        if level + 1 < len(levels)
        else community
        for level, groups in enumerate(levels)
        for community, group in zip(rows[level], groups, strict=True)
    ]


def _links(graph: Graph) -> _Links:
    at = graph.topology
    used = np.flatnonzero(graph.conducts & (graph.sums != 0) & (at.subjects != at.objects))
    left = np.minimum(at.subjects[used], at.objects[used]).astype(np.int64)
    right = np.maximum(at.subjects[used], at.objects[used]).astype(np.int64)
    weights = np.abs(graph.sums[used])
    # Adding in order of size makes a total independent of the order of assertion.
    order = np.lexsort((weights, right, left))
    left, right, weights = left[order], right[order], weights[order]
    pairs, first, group = np.unique(left << 32 | right, return_index=True, return_inverse=True)
    totals = np.bincount(group, weights, minlength=len(pairs))
    return _Links(left[first], right[first], totals.astype(np.float64, copy=False))


def _levels(links: _Links, concepts: int) -> list[list[list[int]]]:
    """Partition the linked concepts, finest first: the members of each community, ascending."""
    network: nx.Graph = nx.Graph()
    network.add_nodes_from(distinct(np.concatenate((links.left, links.right))).tolist())
    network.add_weighted_edges_from(zip(links.left.tolist(), links.right.tolist(), links.weights.tolist(), strict=True))
    if not network:
        return []
    levels: list[list[list[int]]] = []
    for partition in islice(nx.community.louvain_partitions(network, seed=SEED), MAX_LEVELS):
        home = np.full(concepts, -1, dtype=np.int64)
        for place, group in enumerate(partition):
            home[list(group)] = place
        split = _split(links, home)
        if not levels or split != levels[-1]:
            levels.append(split)
    return levels


def _split(links: _Links, home: Ints) -> list[list[int]]:
    """Split communities into connected parts, ordered by size, the largest first, then by first member."""
    within = home[links.left] == home[links.right]
    roots = connected(len(home), links.left[within], links.right[within])
    groups: dict[int, list[int]] = {}
    for concept in np.flatnonzero(home >= 0).tolist():
        groups.setdefault(int(roots[concept]), []).append(concept)
    return sorted(groups.values(), key=lambda group: (-len(group), group[0]))


def _leaves(graph: Graph, links: _Links, groups: Sequence[Sequence[int]], home: Ints) -> list[Community]:
    at = graph.topology
    inner = home[links.left] == home[links.right]
    strengths = np.zeros(len(home))
    np.add.at(strengths, links.left[inner], links.weights[inner])
    np.add.at(strengths, links.right[inner], links.weights[inner])
    used = np.flatnonzero(graph.conducts & (home[at.subjects] >= 0) & (home[at.subjects] == home[at.objects]))
    order = np.lexsort((at.ranks[used], -np.abs(graph.sums[used]), home[at.subjects[used]]))
    used = used[order]
    starts = np.searchsorted(home[at.subjects[used]], np.arange(len(groups) + 1))
    return [
        _leaf(graph, place, group, strengths, used[starts[place] : starts[place + 1]])
        for place, group in enumerate(groups)
    ]


def _leaf(graph: Graph, place: int, group: Sequence[int], strengths: Floats, positions: Ints) -> Community:
    ordered = sorted(group, key=lambda concept: (-strengths[concept], concept))
    members = tuple(Member(graph.concepts.names[concept], float(strengths[concept])) for concept in ordered)
    top = tuple(positions[:TOP_ASSOCIATIONS].tolist())
    evidence: list[object] = [len(members), len(positions)]
    for member in members:
        evidence += (member.name, member.strength)
    for edge in graph.edges(top):
        evidence += (edge.subject, edge.label, edge.object, edge.sum, edge.count)
    return Community(
        id=f"L0-{place}",
        level=0,
        parent=None,
        concept_count=len(members),
        members=members,
        children=(),
        top_associations=top,
        fingerprint=fingerprint(evidence),
    )


def _parents(
    level: int, groups: Sequence[Sequence[int]], below: Sequence[Community], homes: Sequence[int]
) -> list[Community]:
    children: list[list[Community]] = [[] for _ in groups]
    for child, home in zip(below, homes, strict=True):
        children[home].append(child)
    return [
        Community(
            id=f"L{level}-{place}",
            level=level,
            parent=None,
            concept_count=len(group),
            members=(),
            children=tuple(child.id for child in own),
            top_associations=(),
            fingerprint=fingerprint(child.fingerprint for child in own),
        )
        for place, (group, own) in enumerate(zip(groups, children, strict=True))
    ]
