"""What a curator is shown: twins, merges, contradictions, staleness, drift."""

import random
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.graph.audit import (
    Attributions,
    Neighbour,
    Sourced,
    contradictions,
    dead_aliases,
    merge_candidates,
    staleness,
    unsourced,
)
from strata.graph.fingerprint import fingerprint
from strata.graph.model import EdgeRows, Graph
from strata.graph.names import dice, fold
from strata.graph.twins import Twins, lexical_twins, semantic_twins
from strata.graph.vocabulary import Namespace


def build(asserted, *, aliases=(), extra=()):
    """Make a graph and its attributions from (subject, label, object, weight, source, at)."""
    concepts = list(dict.fromkeys([*(name for row in asserted for name in (row[0], row[2])), *extra]))
    labels = list(dict.fromkeys(row[1] for row in asserted))
    concept_ids = {name: number for number, name in enumerate(concepts, 1)}
    label_ids = {name: number for number, name in enumerate(labels, 1)}
    edges = {}
    rows = []
    for subject, label, object_, weight, source, at in asserted:
        edge = edges.setdefault((subject, label, object_), [len(edges) + 1, 0.0, 0])
        edge[1] += weight
        edge[2] += 1
        rows.append(Sourced(edge[0], source, weight, 1, at))
    graph = Graph.build(
        1,
        [(number, name) for name, number in concept_ids.items()],
        [(number, name) for name, number in label_ids.items()],
        [(Namespace.CONCEPT, alias, concept_ids[name]) for alias, name in aliases],
        EdgeRows.of(
            [
                (number, concept_ids[s], label_ids[label], concept_ids[o], total, count)
                for (s, label, o), (number, total, count) in edges.items()
            ]
        ),
    )
    return graph, Attributions(graph, rows)


BREWERY = [
    ("蔵", "杜氏", "高瀬", 1.0, "doc-a", 1000),
    ("蔵", "杜氏", "青山", 1.0, "doc-b", 2000),
    ("蔵", "行う", "大量生産", 1.0, "doc-a", 1000),
    ("蔵", "行う", "大量生産", -2.0, "doc-b", 2000),
    ("蔵", "銘柄", "初霜", 1.0, "doc-a", 1000),
    ("青嶺酒造", "銘柄", "青嶺", 1.0, "doc-a", 1000),
    ("青嶺酒蔵", "銘柄", "青嶺", 1.0, "doc-b", 2000),
    ("蔵", "行う", "醸造", 3.0, "", None),
]


def test_a_brewery_shows_its_twins():
    graph, _ = build(BREWERY)
    assert lexical_twins(graph, Namespace.CONCEPT) == [Twins("青嶺酒造", "青嶺酒蔵", 0.6666666666666666)]
    assert lexical_twins(graph, Namespace.LABEL) == []


def test_names_of_near_meaning_are_twins():
    graph, _ = build(BREWERY)
    names = ["高瀬", "蔵", "nobody", "青山"]
    vectors = np.array([[1, 0], [0, 1], [1, 0], [0.8, 0.6]], dtype=np.float32)
    found = semantic_twins(graph, Namespace.CONCEPT, names, vectors, floor=0.6)
    assert [(pair.a, pair.b, round(pair.score, 6)) for pair in found] == [("高瀬", "青山", 0.8), ("蔵", "青山", 0.6)]
    assert semantic_twins(graph, Namespace.CONCEPT, [], vectors[:0]) == []


def test_like_names_are_compared_by_their_neighbourhoods():
    graph, _ = build(BREWERY)
    found = merge_candidates(graph)
    assert found.total == 1
    merge = found.candidates[0]
    assert (merge.a, merge.b, merge.tier, merge.overlap, merge.name_score) == (
        "青嶺酒造",
        "青嶺酒蔵",
        "lexical",
        1.0,
        0.6666666666666666,
    )
    assert merge.shared == (Neighbour("out", "銘柄", "青嶺"),)
    assert (merge.shared_total, merge.only_a, merge.only_b) == (1, (), ())
    assert len(merge.fingerprint) == 16


def test_what_joins_the_two_to_each_other_is_no_neighbour():
    graph, _ = build([*BREWERY, ("青嶺酒造", "is", "青嶺酒蔵", 1.0, "doc-a", 1)])
    assert merge_candidates(graph).candidates[0].overlap == 1.0


def test_evidence_is_cut_and_counted():
    facts = [(name, "sells", f"{number}", 1.0, "d", 1) for name in ("abcdef", "abcdeg") for number in range(30)]
    graph, _ = build([*facts, ("abcdef", "sells", "more", 1.0, "d", 1)])
    merge = merge_candidates(graph, evidence_cap=2).candidates[0]
    assert (len(merge.shared), merge.shared_total, merge.only_a_total, merge.only_b_total) == (2, 30, 1, 0)
    wide = merge_candidates(graph, evidence_cap=50).candidates[0]
    assert wide.fingerprint == merge.fingerprint


def test_pairs_of_near_meaning_may_be_merged_too():
    graph, _ = build(BREWERY)
    found = merge_candidates(graph, semantic=[("蔵", "初霜", 0.8), ("青嶺酒造", "青嶺酒蔵", 0.99)])
    assert [(merge.a, merge.b, merge.tier) for merge in found.candidates] == [
        ("青嶺酒造", "青嶺酒蔵", "lexical"),
        ("蔵", "初霜", "semantic"),
    ]


def test_several_objects_and_contested_facts_are_contradictions():
    graph, attributions = build(BREWERY)
    found = contradictions(graph, attributions)
    assert found.total == 2
    objects, contested = found.candidates
    assert (objects.kind, objects.subject, objects.label, objects.functional_tendency) == ("objects", "蔵", "杜氏", 0.0)
    assert [(claim.object, claim.latest, claim.sources) for claim in objects.objects] == [
        ("高瀬", 1000, ("doc-a",)),
        ("青山", 2000, ("doc-b",)),
    ]
    assert (contested.kind, contested.object, contested.weight, contested.count) == ("contested", "大量生産", -0.5, 2)
    assert (contested.supporting_sources, contested.disputing_sources) == (("doc-a",), ("doc-b",))
    assert objects.fingerprint != contested.fingerprint


def test_a_label_that_tends_to_one_object_goes_first():
    many = [("a", "tags", name, 1.0, "d", 1) for name in "xyz"] + [("b", "tags", name, 1.0, "d", 1) for name in "xy"]
    one = [(subject, "capital", f"city {subject}", 1.0, "d", 1) for subject in "abc"]
    graph, attributions = build([*many, *one, ("z", "capital", "p", 1.0, "d", 1), ("z", "capital", "q", 1.0, "d", 1)])
    found = contradictions(graph, attributions)
    assert [(c.subject, c.label, c.functional_tendency) for c in found.candidates] == [
        ("z", "capital", 0.75),
        ("a", "tags", 0.0),
        ("b", "tags", 0.0),
    ]
    assert contradictions(graph, attributions, limit=1).total == 3


def test_a_fact_older_than_its_subject_is_stale():
    graph, attributions = build(BREWERY)
    found = staleness(graph, attributions)
    assert (found.total, found.undatable) == (2, 1)
    assert [(c.label, c.object, c.gap, c.latest, c.neighborhood_latest) for c in found.candidates] == [
        ("杜氏", "高瀬", 1000, 1000, 2000),
        ("銘柄", "初霜", 1000, 1000, 2000),
    ]
    assert staleness(graph, attributions, floor_seconds=1000).total == 0


def test_drift_shows_unsourced_weight_and_dead_aliases():
    graph, attributions = build(
        [*BREWERY, ("蔵", "杜氏", "高瀬", -5.0, "", None)],
        aliases=[("Kura", "蔵"), ("タカセ", "nobody")],
        extra=["nobody"],
    )
    found = unsourced(graph, attributions)
    assert [(graph.edge(row.position).object, row.weight, row.count) for row in found] == [
        ("高瀬", -5.0, 1),
        ("醸造", 3.0, 1),
    ]
    assert len(unsourced(graph, attributions, floor=4.0)) == 1
    assert dead_aliases(graph, Namespace.CONCEPT) == {"タカセ": "nobody"}
    assert dead_aliases(graph, Namespace.LABEL) == {}


def test_types_are_no_candidates():
    graph, attributions = build(
        [
            ("a", "schema:type", "T", 1.0, "d", 1),
            ("a", "schema:type", "U", 1.0, "d", 1),
            ("a", "likes", "b", 1.0, "d", 9),
        ]
    )
    assert contradictions(graph, attributions).total == 0
    assert staleness(graph, attributions).total == 0


def test_a_fingerprint_is_fnv1a_of_parts_that_do_not_run_together():
    assert fingerprint([]) == "cbf29ce484222325"
    assert fingerprint(["ab", "c"]) != fingerprint(["a", "bc"])
    assert len(fingerprint(["\ud800", None, 1.0])) == 16


def test_a_fingerprint_moves_with_its_own_evidence_only():
    graph, attributions = build(BREWERY)
    more, further = build([*BREWERY, ("elsewhere", "銘柄", "x", 1.0, "doc-c", 1500)])
    ours = [c.fingerprint for c in staleness(graph, attributions).candidates]
    assert ours == [c.fingerprint for c in staleness(more, further).candidates]
    moved, later = build([*BREWERY, ("蔵", "銘柄", "初霜", 1.0, "doc-c", 1500)])
    theirs = [c.fingerprint for c in staleness(moved, later).candidates]
    assert len(set(ours) & set(theirs)) == 1


words = st.text(alphabet="abcAB東京", max_size=7) | st.text(alphabet="abcdefgh東京ABC", min_size=46, max_size=64)


def all_pairs(names, floor):
    return sorted(
        (-dice(fold(one), fold(other)), min(one, other), max(one, other))
        for place, one in enumerate(names)
        for other in names[:place]
        if dice(fold(one), fold(other)) >= floor
    )


floors = st.sampled_from([0.1, 0.4, 0.6, 0.8, 1.0])


@given(st.lists(words, max_size=25, unique=True), floors, st.sampled_from([3, 1000]))
@settings(max_examples=200, deadline=None)
def test_twins_are_those_of_comparing_all_pairs(names, floor, cap):
    graph = Graph.build(1, list(enumerate(names)), [], [], EdgeRows.of([]))
    found = lexical_twins(graph, Namespace.CONCEPT, floor=floor, cap=cap)
    assert [(-pair.score, *sorted((pair.a, pair.b))) for pair in found] == all_pairs(names, floor)[:cap]
    for pair in found:
        assert names.index(pair.a) < names.index(pair.b)


@given(st.lists(words, max_size=25, unique=True), floors, st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_twins_do_not_depend_on_how_the_work_is_cut(names, floor, block, long):
    graph = Graph.build(1, list(enumerate(names)), [], [], EdgeRows.of([]))
    with mock.patch.multiple("strata.graph.twins", _BLOCK=block, _LONG=long):
        found = lexical_twins(graph, Namespace.CONCEPT, floor=floor, cap=1000)
    assert [(-pair.score, *sorted((pair.a, pair.b))) for pair in found] == all_pairs(names, floor)


def test_twins_among_thousands_of_names_take_no_comparison_of_all_pairs():
    chance = random.Random(1)
    names = list({"".join(chance.choices("abcdefghijklmnopqrstuvwxyz ", k=12)) for _ in range(4000)})
    names += [names[7] + "x", names[9][:-1]]
    graph = Graph.build(1, list(enumerate(names)), [], [], EdgeRows.of([]))
    found = lexical_twins(graph, Namespace.CONCEPT)
    assert {(names[7], names[7] + "x"), (names[9], names[9][:-1])} <= {(pair.a, pair.b) for pair in found}
