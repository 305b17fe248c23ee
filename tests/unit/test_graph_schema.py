"""Schema documents: what is refused, what a write breaks, what a graph leaves open."""

import pytest

from strata.graph.model import EdgeRows, Graph
from strata.graph.schema import (
    Issue,
    SchemaInvalid,
    concepts_of_types,
    parse,
    violations,
)
from strata.graph.schema_audit import audit
from strata.graph.vocabulary import Namespace

BREWING = {
    "schema": 1,
    "mode": "warn",
    "closed_labels": False,
    "types": {"Brewery": {"is_a": ["Organization"]}, "Organization": {"is_a": []}, "Person": {"is_a": []}},
    "relations": {"杜氏": {"domain": ["Brewery"], "range": ["Person"]}},
}


def build(facts, aliases=()):
    concepts = list(dict.fromkeys(name for fact in facts for name in (fact[0], fact[2])))
    labels = list(dict.fromkeys(fact[1] for fact in facts))
    concept_ids = {name: number for number, name in enumerate(concepts, 1)}
    label_ids = {name: number for number, name in enumerate(labels, 1)}
    ids = {Namespace.CONCEPT: concept_ids, Namespace.LABEL: label_ids}
    return Graph.build(
        1,
        [(number, name) for name, number in concept_ids.items()],
        [(number, name) for name, number in label_ids.items()],
        [(kind, alias, ids[kind][name]) for kind, alias, name in aliases],
        EdgeRows.of(
            [(n, concept_ids[s], label_ids[label], concept_ids[o], w, 1) for n, (s, label, o, w) in enumerate(facts)]
        ),
    )


EMPTY = build([])


def changed(**fields):
    return {**BREWING, **fields}


def issues_of(fields):
    with pytest.raises(SchemaInvalid) as refused:
        parse(fields)
    return [(issue.path, issue.kind) for issue in refused.value.issues]


def test_a_document_reads_back_as_it_was_written():
    document = parse(BREWING)
    assert document.record() == BREWING
    assert list(document.record()) == ["schema", "mode", "closed_labels", "types", "relations"]
    without = {name: value for name, value in BREWING.items() if name != "schema"}
    assert parse(without) == document


@pytest.mark.parametrize(
    ("fields", "issue"),
    [
        (changed(mode="loud"), ("mode", "range")),
        (changed(mode=["warn"]), ("mode", "range")),
        (changed(closed_labels=1), ("closed_labels", "type")),
        (changed(schema=2), ("schema", "range")),
        (changed(schema=True), ("schema", "range")),
        (changed(extra=1), ("extra", "unknown_reference")),
        (changed(types=[]), ("types", "type")),
        (changed(types={"": {"is_a": []}}), ("types['']", "empty")),
        (changed(types={"T": {}}), ("types['T'].is_a", "missing")),
        (changed(types={"T": {"is_a": [], "x": 1}}), ("types['T'].x", "unknown_reference")),
        (changed(types={"T": None}), ("types['T']", "type")),
        (changed(types={"T": {"is_a": "U"}}), ("types['T'].is_a", "type")),
        (changed(types={"T": {"is_a": [1]}}), ("types['T'].is_a[0]", "type")),
        (changed(types={"T": {"is_a": [""]}}), ("types['T'].is_a[0]", "empty")),
        (changed(types={"T": {"is_a": ["€" * 342]}}), ("types['T'].is_a[0]", "too_long")),
        (changed(types={"T": {"is_a": ["T"]}}), ("types['T'].is_a", "conflict")),
        (changed(types={str(n): {"is_a": []} for n in range(501)}), ("types", "over_limit")),
        (changed(relations={str(n): {"domain": [], "range": []} for n in range(501)}), ("relations", "over_limit")),
        (changed(relations={"r": {"domain": ["T"] * 65, "range": []}}), ("relations['r'].domain", "over_limit")),
        (changed(relations={"r": {"domain": []}}), ("relations['r'].range", "missing")),
        (
            changed(relations={"schema:type": {"domain": [], "range": []}}),
            ("relations['schema:type']", "conflict"),
        ),
    ],
)
def test_a_document_that_breaks_a_rule_is_refused(fields, issue):
    assert issues_of(fields) == [issue]


def test_all_issues_are_told_at_once():
    assert issues_of({}) == [(name, "missing") for name in ("closed_labels", "mode", "relations", "types")]


def test_a_chain_of_eight_steps_is_the_longest():
    def chain(length):
        return {f"t{n}": {"is_a": [f"t{n + 1}"]} for n in range(length)}

    assert parse(changed(types=chain(8))).types["t0"] == ("t1",)
    assert issues_of(changed(types=chain(9))) == [("types['t0'].is_a", "over_limit")]


def test_a_cycle_is_refused_at_each_of_its_types():
    types = {"a": {"is_a": ["b"]}, "b": {"is_a": ["a"]}, "c": {"is_a": []}}
    assert issues_of(changed(types=types)) == [("types['a'].is_a", "conflict"), ("types['b'].is_a", "conflict")]


def test_a_write_is_judged_with_the_types_it_brings():
    found = violations(EMPTY, parse(BREWING), [("高瀬", "schema:type", "Person", 1.0), ("高瀬", "杜氏", "個人A", 1.0)])
    assert found == [
        Issue(
            path="associations[1].subject",
            kind="domain",
            expected="'高瀬' typed as one of [Brewery] (or a subtype), for relation '杜氏'",
            actual="typed as [Person]",
        )
    ]


def test_types_that_come_later_in_the_same_write_count_and_denied_ones_do_not():
    facts = [("x", "杜氏", "y", 1.0), ("x", "schema:type", "Brewery", 1.0), ("y", "schema:type", "Place", -1.0)]
    assert violations(EMPTY, parse(BREWING), facts) == []


def test_a_subtype_fits_and_a_supertype_does_not():
    document = parse(changed(relations={"r": {"domain": ["Organization"], "range": ["Brewery"]}}))
    graph = build([("a", "schema:type", "Brewery", 1.0), ("b", "schema:type", "Organization", 1.0)])
    assert violations(graph, document, [("a", "r", "a", 1.0)]) == []
    assert [(i.path, i.kind) for i in violations(graph, document, [("a", "r", "b", 1.0)])] == [
        ("associations[0].object", "range")
    ]


def test_a_name_is_judged_as_what_its_alias_stands_for():
    graph = build(
        [("a", "schema:type", "Person", 1.0), ("a", "杜氏", "b", 1.0)],
        [(Namespace.CONCEPT, "A!", "a"), (Namespace.LABEL, "toji", "杜氏"), (Namespace.CONCEPT, "人", "Person")],
    )
    assert [i.kind for i in violations(graph, parse(BREWING), [("A!", "toji", "b", 1.0)])] == ["domain"]
    fits = parse(changed(relations={"杜氏": {"domain": ["人"], "range": []}}))
    assert violations(graph, fits, [("A!", "toji", "b", 1.0)]) == []
    assert audit(graph, fits).violations.tolist() == []


def test_closed_labels_refuse_the_undeclared_but_never_types():
    document = parse(changed(closed_labels=True))
    facts = [("a", "likes", "b", 1.0), ("a", "schema:type", "T", 1.0), ("c", "杜氏", "b", 1.0)]
    assert [(i.path, i.kind) for i in violations(EMPTY, document, facts)] == [
        ("associations[0].label", "unknown_reference")
    ]


def test_a_document_that_is_off_judges_no_write():
    facts = [("高瀬", "schema:type", "Person", 1.0), ("高瀬", "杜氏", "個人A", 1.0)]
    assert violations(EMPTY, parse(changed(mode="off")), facts) == []


def test_the_path_of_an_issue_is_the_callers():
    facts = [("a", "schema:type", "Person", 1.0), ("a", "杜氏", "b", 1.0)]
    found = violations(EMPTY, parse(BREWING), facts, path=lambda place: f"batches[0].associations[{place}]")
    assert found[0].path == "batches[0].associations[1].subject"


GRAPH = build(
    [
        ("青嶺酒造", "schema:type", "Brewery", 1.0),
        ("広島", "schema:type", "Prefecture", 1.0),
        ("青嶺酒造", "杜氏", "広島", 1.0),
        ("青嶺酒造", "銘柄", "青嶺", 2.0),
        ("高瀬", "schema:type", "Person", 1.0),
        ("青嶺酒造", "杜氏", "高瀬", 1.0),
    ],
    [(Namespace.LABEL, "種類", "schema:type")],
)


def test_an_audit_tells_what_breaks_the_schema_and_what_it_leaves_open():
    found = audit(GRAPH, parse(BREWING))
    assert found.violations.tolist() == [2]
    assert found.issues(2) == [
        Issue(
            path="edge(青嶺酒造, 杜氏, 広島)",
            kind="range",
            expected="'広島' typed as one of [Person] (or a subtype), for relation '杜氏'",
            actual="typed as [Prefecture]",
        )
    ]
    assert (found.untyped_concepts.total, found.untyped_concepts.names) == (1, ("青嶺",))
    assert found.undeclared_types.names == ("Prefecture",)
    assert found.unknown_labels.names == ("銘柄",)
    assert found.reserved_aliases == {"種類": "schema:type"}


def test_an_audit_finds_what_judging_each_association_finds():
    for closed in (False, True):
        document = parse(changed(closed_labels=closed))
        found = audit(GRAPH, document)
        assert set(found.violations.tolist()) == {p for p in range(GRAPH.edge_count) if found.issues(p)}


def test_an_audit_of_nothing_finds_nothing():
    found = audit(EMPTY, parse(BREWING))
    assert (found.violations.tolist(), found.untyped_concepts.total) == ([], 0)


def test_concepts_are_found_by_type_and_its_subtypes():
    document = parse(BREWING)
    assert concepts_of_types(GRAPH, document, ["Organization", "Person"]) == ["青嶺酒造", "高瀬"]
    assert concepts_of_types(GRAPH, document, ["Nothing"]) == []
    assert concepts_of_types(GRAPH, None, ["Person"]) == []
