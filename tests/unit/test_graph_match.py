"""Associations by their parts, outlines, lists: ranked, resumed, counted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.graph.match import (
    LabelCount,
    after,
    describe,
    functional_tendency,
    label_names,
    query,
    recall,
)
from strata.graph.model import Edge, EdgeRows, Graph
from strata.graph.vocabulary import Namespace

NAMES = ["a", "b", "d", "东京", "😀"]
LABELS = ["likes", "makes", "a", "schema:type"]


def build(facts):
    concepts = {name: number * 7 for number, name in enumerate(NAMES, 1)}
    labels = {name: number * 5 for number, name in enumerate(LABELS, 1)}
    rows = [(n, concepts[s], labels[label], concepts[o], w, c) for n, (s, label, o, w, c) in enumerate(facts, 100)]
    return Graph.build(
        3,
        [(number, name) for name, number in concepts.items()],
        [(number, name) for name, number in labels.items()],
        [(Namespace.CONCEPT, "A!", 7), (Namespace.LABEL, "loves", 5)],
        EdgeRows.of(rows),
    )


facts = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(LABELS),
        st.sampled_from(NAMES),
        st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0]),
        st.integers(0, 2),
    ),
    max_size=30,
    unique_by=lambda fact: fact[:3],
)
part = st.none() | st.lists(st.sampled_from([*NAMES, "A!", "nobody"]), max_size=3)
label_part = st.none() | st.lists(st.sampled_from([*LABELS, "loves", "nothing"]), max_size=3)


def rank(facts, places):
    return sorted(places, key=lambda p: (-abs(facts[p][3] / facts[p][4]), *facts[p][:3]))


def canonical(spellings):
    return None if spellings is None else {{"A!": "a", "loves": "likes"}.get(s, s) for s in spellings}


@given(facts, part, label_part, part, st.none() | st.lists(st.sampled_from(NAMES)))
@settings(max_examples=200, deadline=None)
def test_a_query_gives_what_fits_in_rank(facts, subjects, labels, objects, narrowed):
    found = query(build(facts), subjects=subjects, labels=labels, objects=objects, object_names=narrowed)
    wanted = [canonical(subjects), canonical(labels), canonical(objects)]
    places = [
        place
        for place, fact in enumerate(facts)
        if fact[4]
        and all(names is None or fact[i] in names for i, names in enumerate(wanted))
        and (narrowed is None or fact[2] in narrowed)
    ]
    assert found.tolist() == rank(facts, places)


@given(facts, st.sampled_from(["a", "A!", "b", "likes", "loves", "nobody"]))
@settings(max_examples=100, deadline=None)
def test_recall_gives_all_at_a_concept_and_under_a_label(facts, cue):
    concept, label = {"A!": "a"}.get(cue, cue), {"loves": "likes"}.get(cue, cue)
    places = [
        place for place, (s, used, o, _, count) in enumerate(facts) if count and (concept in (s, o) or label == used)
    ]
    assert recall(build(facts), cue).tolist() == rank(facts, places)


@given(facts)
@settings(max_examples=60, deadline=None)
def test_a_cursor_resumes_after_any_match(facts):
    graph = build(facts)
    found = query(graph)
    for place, position in enumerate(found.tolist()):
        edge = graph.edge(position)
        rest = after(graph, found, weight=edge.weight, subject=edge.subject, label=edge.label, object=edge.object)
        assert rest.tolist() == found.tolist()[place + 1 :]


def test_a_cursor_of_an_association_that_is_gone_resumes_at_its_place():
    graph = build([("a", "likes", "b", 1.0, 1), ("a", "makes", "b", 1.0, 1), ("d", "likes", "b", 3.0, 1)])
    rest = after(graph, query(graph), weight=1.0, subject="a", label="lunches", object="zz")
    assert rest.tolist() == [1]


def test_an_outline_counts_labels_in_both_roles_and_names_types():
    graph = build(
        [
            ("a", "likes", "b", 1.0, 1),
            ("a", "likes", "d", 1.0, 1),
            ("a", "makes", "a", 1.0, 1),
            ("b", "likes", "a", 1.0, 0),
            ("a", "schema:type", "东京", 1.0, 1),
            ("a", "schema:type", "😀", -1.0, 1),
        ]
    )
    outline = describe(graph, "A!")
    assert outline.concept == "a"
    assert outline.as_subject == (LabelCount("likes", 2), LabelCount("schema:type", 2), LabelCount("makes", 1))
    assert outline.as_object == (LabelCount("makes", 1),)
    assert outline.types == ("东京",)
    assert describe(graph, "nobody") is None
    assert describe(graph, "😀").as_subject == ()


def test_labels_are_listed_in_code_point_order():
    graph = build([])
    assert label_names(graph) == (4, ["a", "likes", "makes", "schema:type"])
    assert label_names(graph, after="likes", limit=1) == (4, ["makes"])
    assert label_names(graph, after="lik") == (4, ["likes", "makes", "schema:type"])
    assert label_names(graph, prefix="s", after="zz") == (1, [])


def test_functional_tendency_is_the_share_of_subjects_with_one_object():
    graph = build(
        [
            ("a", "likes", "b", 1.0, 1),
            ("a", "likes", "d", -1.0, 1),
            ("b", "likes", "d", 1.0, 1),
            ("b", "likes", "a", 1.0, 1),
        ]
    )
    assert functional_tendency(graph, "likes") == 0.5
    assert functional_tendency(graph, "makes") == 0.0
    assert functional_tendency(graph, "unheard") == 0.0


def test_a_snapshot_tells_an_edge_by_its_names():
    graph = build([("a", "likes", "b", 3.0, 2)])
    assert graph.edge(0) == Edge(100, "a", "likes", "b", 1.5, 3.0, 2)
    assert graph.topology.ids.tolist() == [100]
    assert (graph.edge_count, graph.position(100), graph.position(5)) == (1, 0, None)
    assert graph.find(Namespace.CONCEPT, "A!") == "a"
    assert graph.find(Namespace.LABEL, "loves") == "likes"
    assert graph.find(Namespace.LABEL, "A!") is None
    assert graph.footprint_bytes > 0


def test_a_window_leaves_the_first_snapshot_as_it_was():
    graph = build([("a", "likes", "b", 3.0, 2), ("a", "likes", "d", 1.0, 1)])
    window = graph.with_weights(np.array([1.0, 9.0]), np.array([1, 0]))
    assert query(window).tolist() == [0]
    assert window.edge(0).weight == 1.0
    assert window.edge(1).sum == 0.0
    assert graph.edge(0).weight == 1.5
    with pytest.raises(ValueError, match="for each edge"):
        graph.with_weights(np.array([1.0]), np.array([1]))


def test_rows_that_name_no_record_are_refused():
    with pytest.raises(KeyError):
        Graph.build(1, [(1, "a")], [(1, "l")], [], EdgeRows.of([(1, 1, 1, 2, 1.0, 1)]))
    with pytest.raises(KeyError):
        Graph.build(1, [(1, "a")], [], [(Namespace.CONCEPT, "b", 9)], EdgeRows.of([]))
