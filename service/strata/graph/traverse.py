"""Walks over a graph: spreading activation, hops, paths, and what no walk reaches."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from strata.graph.match import follows_triple, ranked
from strata.graph.model import Floats, Graph
from strata.graph.vocabulary import Ints, distinct, gather

MIN_FLOW = 1e-6
"""Activation below which nothing flows on."""
MAX_DEPTH = 10
PATH_LIMIT = 10
PATH_BUDGET = 100_000
"""Edges that one enumeration of paths may look at."""


@dataclass(frozen=True, slots=True)
class Activation:
    """An association that activation reached: its strength, the concepts walked, its position."""

    strength: float
    path: tuple[str, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Activations:
    """The strongest associations of ``total`` that were reached."""

    total: int
    matches: tuple[Activation, ...]


@dataclass(frozen=True, slots=True)
class Recollection:
    """An association some hops away: its distance from 1, the concepts walked, its position."""

    distance: int
    path: tuple[str, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Trail:
    """One simple path: its concepts, the positions walked, and its weakest ``|sum|``."""

    distance: int
    path: tuple[str, ...]
    strength: float
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Paths:
    """The best of ``total`` paths; where ``capped``, there may be more than ``total``."""

    total: int
    capped: bool
    matches: tuple[Trail, ...]


def _origins(graph: Graph, spellings: Iterable[str]) -> Ints:
    found = {index for spelling in spellings if (index := graph.concepts.find(spelling)) is not None}
    return np.array(sorted(found), dtype=np.int64)


def _around(graph: Graph, concepts: Ints) -> tuple[Ints, Ints, Ints]:
    """List the edges that conduct at each concept: the concept, the edge's position, its other end."""
    at = graph.topology
    members, lengths = gather(at.starts, concepts)
    positions = at.incident[members].astype(np.int64)
    sources = np.repeat(concepts, lengths)
    conducts = graph.conducts[positions]
    positions, sources = positions[conducts], sources[conducts]
    return sources, positions, at.subjects[positions] + at.objects[positions] - sources


def _firsts(count: int, targets: Ints, sources: Ints) -> tuple[Ints, Ints]:
    """List the distinct targets, ascending, each with the first by name of its sources."""
    least = np.full(count, count, dtype=np.int64)
    np.minimum.at(least, targets, sources)
    found = np.flatnonzero(least < count)
    return found, least[found]


@dataclass(frozen=True, slots=True)
class _Spread:
    """The activation of each concept, the hop at which it had it, and the concept it came from."""

    levels: Floats
    hops: npt.NDArray[np.int32]
    parents: Ints

    def trail(self, concept: int) -> list[int]:
        trail = [concept]
        while (concept := int(self.parents[concept])) >= 0:
            trail.append(concept)
        return trail[::-1]


def activate(graph: Graph, origins: Sequence[str], *, decay: float = 0.5, limit: int = 20) -> Activations:
    """Spread activation from concepts (names or aliases) and rank the associations it reaches.

    Each origin starts at 1; unknown ones add nothing. An association at a concept of activation
    ``a`` has the strength ``a * decay * |sum|``, the larger of its two ends; what flows on to the
    other end is that strength over the ``|sum|`` of all the concept's associations, and nothing
    below 1e-6 flows. A concept has the most that any one way brings it. Ranked by strength, the
    earlier asserted first where equal; associations whose sum is zero are left out. ``decay`` is
    held within 0 and 1, NaN is 0. ``path`` leads from an origin to the end that gave the strength.
    """
    decay = 0.0 if math.isnan(decay) else min(max(decay, 0.0), 1.0)
    spread = _spread(graph, _origins(graph, origins), decay)
    sources, positions, others = _around(graph, np.flatnonzero(spread.levels))
    own, other = spread.levels[sources], spread.levels[others]
    hops, other_hops = spread.hops[sources], spread.hops[others]
    is_nearer = (hops < other_hops) | ((hops == other_hops) & (sources == graph.topology.subjects[positions]))
    strengths = own * decay * np.abs(graph.sums[positions])
    kept = (strengths > 0) & ((own > other) | ((own == other) & is_nearer))
    sources, positions, strengths = sources[kept], positions[kept], strengths[kept]
    best = _strongest(strengths, positions, limit)
    names = graph.concepts.names
    return Activations(
        total=len(positions),
        matches=tuple(
            Activation(strength, tuple(names[step] for step in spread.trail(source)), position)
            for strength, source, position in zip(
                strengths[best].tolist(), sources[best].tolist(), positions[best].tolist(), strict=True
            )
        ),
    )


def _strongest(strengths: Floats, positions: Ints, limit: int) -> Ints:
    limit = max(limit, 0)
    candidates = np.arange(len(strengths))
    if 4 * limit < len(strengths):
        least = np.partition(strengths, len(strengths) - limit - 1)[len(strengths) - limit - 1]
        candidates = np.flatnonzero(strengths >= least)
    order = np.lexsort((positions[candidates], -strengths[candidates]))[:limit]
    return candidates[order]


def _spread(graph: Graph, origins: Ints, decay: float) -> _Spread:
    """Find each concept's activation in rounds of one hop; only what rose in a round flows in the next.

    Where several ways bring the same, the one of fewest hops is kept, then that from the concept
    first by name.
    """
    count = len(graph.concepts.names)
    spread = _Spread(np.zeros(count), np.zeros(count, dtype=np.int32), np.full(count, -1, dtype=np.int64))
    levels = spread.levels
    levels[origins] = 1.0
    masses, sizes = graph.masses, np.abs(graph.sums)
    frontier, hop = origins, 0
    while len(frontier):
        hop += 1
        sources, positions, targets = _around(graph, frontier)
        level = levels[sources]
        with np.errstate(invalid="ignore", divide="ignore"):
            # Rounding must not let a flow exceed what it comes from: rounds would never end.
            flows = np.minimum(level * decay * sizes[positions] / masses[sources], level)
        rises = (flows >= MIN_FLOW) & (flows > levels[targets])
        sources, targets, flows = sources[rises], targets[rises], flows[rises]
        np.maximum.at(levels, targets, flows)
        wins = flows == levels[targets]
        frontier, steps_before = _firsts(count, targets[wins], sources[wins])
        spread.parents[frontier] = steps_before
        spread.hops[frontier] = hop
    return spread


class Exploration(Sequence[Recollection]):
    """Every association within some hops, nearest first, then by subject, label and object.

    Recollections are made as they are asked for: a list of a million costs only its columns.
    """

    def __init__(self, graph: Graph, positions: Ints, distances: Ints, ends: Ints, parents: Ints) -> None:
        self._graph = graph
        self.positions = positions
        self.distances = distances
        self._ends = ends
        self._parents = parents

    @property
    def total(self) -> int:
        """How many associations were reached."""
        return len(self.positions)

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, place: int) -> Recollection: ...
    @overload
    def __getitem__(self, place: slice) -> list[Recollection]: ...
    def __getitem__(self, place: int | slice) -> Recollection | list[Recollection]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        end = int(self._ends[place])
        trail = [end]
        while (end := int(self._parents[end])) >= 0:
            trail.append(end)
        names = self._graph.concepts.names
        path = tuple(names[step] for step in reversed(trail))
        return Recollection(int(self.distances[place]), path, int(self.positions[place]))

    def after(self, *, distance: int, subject: str, label: str, object: str) -> int:  # noqa: A002 - the wire's word
        """Give the place of the first recollection past a cursor."""
        beyond = follows_triple(self._graph, self.positions, subject, label, object)
        passed = (self.distances < distance) | ((self.distances == distance) & ~beyond)
        return int(passed.sum())


def explore(graph: Graph, origins: Sequence[str], *, max_depth: int = MAX_DEPTH) -> Exploration:
    """Walk outwards from concepts (names or aliases) and list every association met.

    An association at an origin is 1 hop away. Its path leads from an origin to the end it was met
    from; of several ways of equal length, the one through the concept first by name.
    """
    starts = _origins(graph, origins)
    depths, parents = _hops(graph, starts, max_depth - 1 if max_depth > 0 else -1)
    at = graph.topology
    positions = _around(graph, np.flatnonzero(depths >= 0))[1]
    positions = distinct(positions)
    unreached = np.iinfo(np.int64).max
    reached = np.where(depths >= 0, depths, unreached)
    from_subject, from_object = reached[at.subjects[positions]], reached[at.objects[positions]]
    ends = np.where(from_subject <= from_object, at.subjects[positions], at.objects[positions]).astype(np.int64)
    distances = np.minimum(from_subject, from_object) + 1
    order = np.argsort(distances * graph.edge_count + at.ranks[positions])
    return Exploration(graph, positions[order], distances[order], ends[order], parents)


def _hops(graph: Graph, origins: Ints, deepest: int) -> tuple[Ints, Ints]:
    """Give each concept's hops from the nearest origin (-1 where not within ``deepest``) and the step before it."""
    count = len(graph.concepts.names)
    depths, parents = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    if deepest < 0:
        return depths, parents
    depths[origins] = 0
    frontier = origins
    for depth in range(1, deepest + 1):
        sources, _, targets = _around(graph, frontier)
        fresh = depths[targets] < 0
        sources, targets = sources[fresh], targets[fresh]
        if not len(targets):
            break
        frontier, steps_before = _firsts(count, targets, sources)
        parents[frontier] = steps_before
        depths[frontier] = depth
    return depths, parents


@dataclass(frozen=True, slots=True)
class _Step:
    """A partial path, as a chain: the concept it ends at, the edge that led there, the step before."""

    concept: int
    position: int
    before: _Step | None
    length: int

    def visits(self, concept: int) -> bool:
        step: _Step | None = self
        while step is not None:
            if step.concept == concept:
                return True
            step = step.before
        return False


def paths(
    graph: Graph,
    origins: Sequence[str],
    targets: Sequence[str],
    *,
    max_depth: int = MAX_DEPTH,
    limit: int = PATH_LIMIT,
    budget: int = PATH_BUDGET,
) -> Paths:
    """List the simple paths from any origin to any target (names or aliases), the shortest first.

    Associations are walked both ways; parallel ones make paths of their own. Equal lengths go by
    the larger weakest ``|sum|``, then by the names walked, then the earlier asserted. The search
    looks at ``budget`` edges at most, short paths first, and is ``capped`` when that ends it. A
    path has at least one association: an origin that is a target is no path by itself.
    """
    starts, ends = _origins(graph, origins), _origins(graph, targets)
    remaining = _hops(graph, ends, max_depth - 1)[0]
    if max_depth < 1 or not len(starts) or not len(ends):
        return Paths(0, capped=False, matches=())
    found, capped = _enumerate(graph, starts.tolist(), remaining, max_depth, budget)
    trails = sorted(found, key=lambda step: _trail_order(graph, step))[: max(limit, 0)]
    return Paths(len(found), capped=capped, matches=tuple(_trail(graph, step) for step in trails))


def _enumerate(
    graph: Graph, starts: Sequence[int], remaining: Ints, max_depth: int, budget: int
) -> tuple[list[_Step], bool]:
    neighbours: dict[int, list[tuple[int, int, int]]] = {}
    found: list[_Step] = []
    queue = deque(_Step(start, -1, None, 0) for start in starts)
    while queue:
        step = queue.popleft()
        if step.concept not in neighbours:
            neighbours[step.concept] = _towards(graph, step.concept, remaining)
        room = max_depth - step.length - 1
        for position, concept, hops in neighbours[step.concept]:
            if budget <= 0:
                return found, True
            budget -= 1
            if hops > room or step.visits(concept):
                continue
            further = _Step(concept, position, step, step.length + 1)
            if hops == 0:
                found.append(further)
            if room:
                queue.append(further)
    return found, False


def _towards(graph: Graph, concept: int, remaining: Ints) -> list[tuple[int, int, int]]:
    _, positions, others = _around(graph, np.array([concept], dtype=np.int64))
    leads = (remaining[others] >= 0) & (others != concept)
    others = others[leads]
    return list(zip(positions[leads].tolist(), others.tolist(), remaining[others].tolist(), strict=True))


def _walk(step: _Step) -> tuple[list[int], list[int]]:
    concepts, positions = [], []
    at: _Step | None = step
    while at is not None:
        concepts.append(at.concept)
        if at.before is not None:
            positions.append(at.position)
        at = at.before
    return concepts[::-1], positions[::-1]


def _trail_order(graph: Graph, step: _Step) -> tuple[int, float, list[int], list[int]]:
    concepts, positions = _walk(step)
    return step.length, -float(np.abs(graph.sums[positions]).min()), concepts, positions


def _trail(graph: Graph, step: _Step) -> Trail:
    concepts, positions = _walk(step)
    return Trail(
        distance=step.length,
        path=tuple(graph.concepts.names[concept] for concept in concepts),
        strength=float(np.abs(graph.sums[positions]).min()),
        positions=tuple(positions),
    )


def unreachable(graph: Graph, origins: Sequence[str]) -> Ints:
    """List the associations that no walk from the origins (names or aliases) meets, ranked."""
    roots = graph.components
    positions = np.flatnonzero(graph.conducts)
    reached = np.isin(roots[graph.topology.subjects[positions]], roots[_origins(graph, origins)])
    return ranked(graph, positions[~reached])
