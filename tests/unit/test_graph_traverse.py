"""Walks over a graph, against plain versions that follow their definitions word by word."""

import heapq
import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.graph.model import EdgeRows, Graph
from strata.graph.traverse import MIN_FLOW, activate, explore, paths, unreachable
from strata.graph.vocabulary import Namespace

NAMES = [f"c{number}" for number in range(9)]
LABELS = ["likes", "makes", "schema:type"]


def build(triples, *, aliases=(), order=None, revision=1):
    """Make a graph from (subject, label, object, sum, count), ids in the order given."""
    concepts = sorted({name for triple in triples for name in (triple[0], triple[2])} | set(NAMES))
    labels = sorted({triple[1] for triple in triples} | set(LABELS))
    if order is not None:
        order.shuffle(concepts)
        order.shuffle(labels)
    concept_ids = {name: number * 3 + 1 for number, name in enumerate(concepts)}
    label_ids = {name: number * 2 + 1 for number, name in enumerate(labels)}
    rows = [
        (number + 10, concept_ids[s], label_ids[label], concept_ids[o], weight, count)
        for number, (s, label, o, weight, count) in enumerate(triples)
    ]
    if order is not None:
        order.shuffle(rows)
    return Graph.build(
        revision,
        [(number, name) for name, number in concept_ids.items()],
        [(number, name) for name, number in label_ids.items()],
        [(Namespace.CONCEPT, alias, concept_ids[name]) for alias, name in aliases],
        EdgeRows.of(rows),
    )


triples = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(LABELS),
        st.sampled_from(NAMES),
        st.sampled_from([-3.0, -1.0, 0.0, 0.5, 1.0, 1.0, 2.0, 7.0]),
        st.sampled_from([0, 1, 2]),
    ),
    max_size=24,
    unique_by=lambda triple: triple[:3],
)
origins = st.lists(st.sampled_from([*NAMES, "nobody"]), max_size=3)


def visible(triples):
    return [(place, *t[:4]) for place, t in enumerate(triples) if t[4] > 0 and t[1] != "schema:type"]


def naive_levels(triples, starts, decay):
    """Settle concepts one by one, the most active first."""
    edges = visible(triples)
    mass = {name: sum(abs(w) for _, s, _, o, w in edges if name in (s, o)) for name in NAMES}
    levels = {}
    queue = [(-1.0, name) for name in starts if name in NAMES]
    heapq.heapify(queue)
    while queue:
        level, name = heapq.heappop(queue)
        if name in levels:
            continue
        levels[name] = -level
        for _, s, _, o, w in edges:
            if name in (s, o) and s != o and w:
                other = o if name == s else s
                flow = -level * decay * abs(w) / mass[name]
                if flow >= MIN_FLOW and other not in levels:
                    heapq.heappush(queue, (-min(flow, -level), other))
    return levels


@given(triples, origins, st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
@settings(max_examples=200, deadline=None)
def test_activation_equals_a_best_first_walk(triples, starts, decay):
    found = activate(build(triples), starts, decay=decay, limit=1000)
    levels = naive_levels(triples, starts, decay)
    expected = {}
    for place, s, _, o, w in visible(triples):
        strength = max(levels.get(s, 0.0), levels.get(o, 0.0)) * decay * abs(w)
        if strength > 0:
            expected[place] = strength
    assert found.total == len(expected)
    assert [match.position for match in found.matches] == sorted(expected, key=lambda p: (-expected[p], p))
    for match in found.matches:
        assert match.strength == pytest.approx(expected[match.position], rel=1e-12)
        assert match.path[0] in starts
        assert levels[match.path[-1]] == pytest.approx(match.strength / decay / abs(triples[match.position][3]))


@given(triples, origins)
@settings(max_examples=60, deadline=None)
def test_the_path_of_an_activation_multiplies_to_its_strength(triples, starts):
    graph = build(triples)
    edges = visible(triples)
    mass = {name: sum(abs(w) for _, s, _, o, w in edges if name in (s, o)) for name in NAMES}
    for match in activate(graph, starts, limit=1000).matches:
        level = 1.0
        for here, there in itertools.pairwise(match.path):
            level *= 0.5 * max(abs(w) for _, s, _, o, w in edges if {s, o} == {here, there}) / mass[here]
        end = graph.edge(match.position)
        assert match.path[-1] in (end.subject, end.object)
        assert match.strength == pytest.approx(level * 0.5 * abs(end.sum))


@given(triples, origins, st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_the_order_of_rows_changes_nothing(triples, starts, seed):
    plain, shuffled = build(triples), build(triples, order=random.Random(seed))
    assert activate(plain, starts) == activate(shuffled, starts)
    assert list(explore(plain, starts)) == list(explore(shuffled, starts))
    assert paths(plain, starts, NAMES[:3]) == paths(shuffled, starts, NAMES[:3])
    assert unreachable(plain, starts).tolist() == unreachable(shuffled, starts).tolist()


def naive_hops(triples, starts):
    depths = {name: 0 for name in starts if name in NAMES}
    for depth in range(1, len(NAMES) + 1):
        for _, s, _, o, _ in visible(triples):
            for here, there in ((s, o), (o, s)):
                if depths.get(here) == depth - 1:
                    depths.setdefault(there, depth)
    return depths


@given(triples, origins, st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_exploring_lists_every_association_by_hops(triples, starts, max_depth):
    graph, depths = build(triples), naive_hops(triples, starts)
    expected = []
    for place, s, label, o, _ in visible(triples):
        hops = min(depths.get(s, math.inf), depths.get(o, math.inf)) + 1
        if hops <= max_depth:
            expected.append((hops, s, label, o, place))
    found = explore(graph, starts, max_depth=max_depth)
    assert [(match.distance, match.position) for match in found] == [(e[0], e[4]) for e in sorted(expected)]
    assert found.total == len(expected)
    for match in found:
        end = graph.edge(match.position)
        assert len(match.path) == match.distance
        assert match.path[0] in starts
        assert match.path[-1] in (end.subject, end.object)
    for place, match in enumerate(found):
        end = graph.edge(match.position)
        cursor = {"distance": match.distance, "subject": end.subject, "label": end.label, "object": end.object}
        assert found.after(**cursor) == place + 1


@given(triples, origins)
@settings(max_examples=80, deadline=None)
def test_unreachable_is_what_a_walk_of_any_length_misses(triples, starts):
    graph, depths = build(triples), naive_hops(triples, starts)
    expected = {place for place, s, _, _, _ in visible(triples) if s not in depths}
    assert set(unreachable(graph, starts).tolist()) == expected


def naive_paths(triples, starts, targets, max_depth):
    edges, found = visible(triples), []

    def walk(path, positions, weakest):
        if positions and path[-1] in targets:
            found.append((len(positions), -weakest, list(path), list(positions)))
        if len(positions) == max_depth:
            return
        for place, s, _, o, w in edges:
            if path[-1] in (s, o):
                other = o if path[-1] == s else s
                if other not in path:
                    walk([*path, other], [*positions, place], min(weakest, abs(w)))

    for start in set(starts) & set(NAMES):
        walk([start], [], math.inf)
    return sorted(found)


@given(triples.filter(lambda t: len(t) < 16), origins, origins, st.integers(0, 4))
@settings(max_examples=100, deadline=None)
def test_paths_are_all_simple_paths_shortest_first(triples, starts, targets, max_depth):
    expected = naive_paths(triples, starts, set(targets), max_depth)
    found = paths(build(triples), starts, targets, max_depth=max_depth, limit=10_000)
    assert found.total == len(expected)
    assert not found.capped
    assert [(t.distance, -t.strength, list(t.path), list(t.positions)) for t in found.matches] == expected


def test_paths_stop_at_their_budget_and_say_so():
    dense = [(a, "likes", b, 1.0, 1) for a in NAMES for b in NAMES if a < b]
    found = paths(build(dense), ["c0"], ["c8"], max_depth=8, limit=5, budget=1000)
    assert found.capped
    assert found.matches[0].path == ("c0", "c8")
    assert len(found.matches) == 5
    assert [t.distance for t in found.matches] == sorted(t.distance for t in found.matches)


def test_an_association_at_an_origin_has_decay_times_its_weight():
    graph = build([("alpha", "connects_to", "beta", 2.0, 1)])
    match = activate(graph, ["alpha"]).matches[0]
    assert (match.strength, match.path) == (1.0, ("alpha",))
    walked = explore(graph, ["alpha"])[0]
    assert (walked.distance, walked.path) == (1, ("alpha",))
    trail = paths(graph, ["alpha"], ["beta"]).matches[0]
    assert (trail.distance, trail.path, trail.strength) == (1, ("alpha", "beta"), 2.0)
    assert unreachable(graph, ["gamma"]).tolist() == [0]


def test_an_alias_is_an_origin_and_an_unknown_one_adds_nothing():
    graph = build([("alpha", "likes", "beta", 2.0, 1)], aliases=[("first", "alpha")])
    assert activate(graph, ["first", "nobody"]).matches[0].path == ("alpha",)
    assert activate(graph, ["nobody"]).total == 0


def test_types_neither_conduct_nor_show():
    graph = build([("a", "schema:type", "T", 1.0, 1), ("b", "schema:type", "T", 1.0, 1), ("b", "likes", "d", 1.0, 1)])
    assert activate(graph, ["a"]).total == 0
    assert explore(graph, ["a"]).total == 0
    assert paths(graph, ["a"], ["b"]).total == 0
    assert unreachable(graph, ["a"]).tolist() == [2]


def test_a_time_window_makes_the_other_associations_not_conduct():
    graph = build([("a", "likes", "b", 2.0, 2), ("b", "likes", "d", 4.0, 1)])
    window = graph.with_weights(np.array([0.0, 4.0]), np.array([0, 1]))
    assert [match.position for match in activate(graph, ["a"]).matches] == [0, 1]
    assert activate(window, ["a"]).total == 0
    assert [match.strength for match in activate(window, ["b"]).matches] == [2.0]


@pytest.mark.parametrize("decay", [math.nan, -1.0, 0.0, -math.inf])
def test_no_decay_factor_activates_nothing(decay):
    assert activate(build([("a", "likes", "b", 1.0, 1)]), ["a"], decay=decay).total == 0


def test_a_decay_above_one_is_one():
    graph = build([("a", "likes", "b", 1.0, 1), ("b", "likes", "d", 1.0, 1)])
    assert activate(graph, ["a"], decay=math.inf) == activate(graph, ["a"], decay=1.0)


def test_a_self_loop_counts_once():
    graph = build([("a", "likes", "a", 1.0, 1), ("a", "likes", "b", 1.0, 1), ("b", "likes", "d", 1.0, 1)])
    assert [match.strength for match in activate(graph, ["a"]).matches] == [0.5, 0.5, 0.125]
    assert paths(graph, ["a"], ["a"]).total == 0


def test_a_chain_of_many_concepts_is_walked_in_rounds_that_do_not_grow_with_it():
    names = [f"n{number}" for number in range(3000)]
    random.Random(1).shuffle(names)
    graph = build([(a, "likes", b, 1.0, 1) for a, b in itertools.pairwise(names)])
    assert unreachable(graph, [names[0]]).tolist() == []
    assert explore(graph, [names[0]], max_depth=10).total == 10


def test_nothing_is_walked_in_an_empty_graph():
    graph = Graph.build(0, [], [], [], EdgeRows.of([]))
    assert activate(graph, ["a"]).matches == ()
    assert list(explore(graph, ["a"])) == []
    assert paths(graph, ["a"], ["b"]).matches == ()
    assert unreachable(graph, []).tolist() == []
