"""Facts over a real database: written, read back, withdrawn."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID, uuid4

import msgspec
import pytest

from ingest_support import make_kit, rows
from strata.errors import (
    CONFLICT,
    CONTEXT_NOT_FOUND,
    INVALID_REQUEST,
    OVER_LIMIT,
    SCHEMA_NOT_FOUND,
    SCHEMA_VIOLATION,
    STALE_CURSOR,
    StrataError,
)
from strata.graph.names import key
from strata.knowledge.graph_model import AliasRow, Assertion, SourcedAssertion
from strata.knowledge.graph_schemas import MatchCursor
from strata.knowledge.graph_service import GraphService
from strata.platform.ids import DEFAULT_TENANT as T
from strata.sources.model import DocumentInput

pytestmark = pytest.mark.database
TABLES = ("concept", "label", "alias", "association", "attribution")


@pytest.fixture
async def kit(database, settings):
    made = make_kit(database, settings)
    yield made
    await made.sources.close()
    await made.contexts.close()


@pytest.fixture
async def graph(kit):
    await kit.contexts.create(T, "kb")
    return GraphService(kit.database, kit.contexts)


def said(subject, label, object_, weight=1.0, source="", **more):
    return SourcedAssertion(Assertion(subject, label, object_, weight, **more), source)


async def add(graph, *statements, ref="kb"):
    return await graph.add_associations(T, ref, list(statements))


async def apply(graph, source, assertions, aliases=(), *, ref="kb", replace=True):
    async with graph._database.work(T) as connection:
        row = await graph._contexts.resolve(connection, T, ref)
        return await graph.apply(connection, T, row.context_id, source, assertions, aliases, replace=replace)


async def retract(graph, source, ref="kb"):
    async with graph._database.work(T) as connection:
        row = await graph._contexts.resolve(connection, T, ref)
        return await graph.retract_source(connection, T, row.context_id, source)


async def facts(graph, ref="kb"):
    page = await graph.query(T, ref, limit=1000)
    return {(fact.subject, fact.label, fact.object): fact for fact in page.matches}


async def counts(kit, tenant=T):
    return {table: (await rows(kit, f"SELECT count(*) FROM {table}", tenant=tenant))[0][0] for table in TABLES}


async def revision(kit, ref="kb"):
    return (await kit.contexts.get(T, ref)).revisions.graph


async def test_a_fact_shows_its_average_and_what_each_source_says(graph):
    await add(graph, said("a", "l", "b", 1.0, "x"), said("a", "l", "b", 2.0, "x"), said("a", "l", "b", -1.0, "y"))
    await add(graph, said("a", "l", "b", 4.0))
    page = await graph.query(T, "kb", subject="a")
    assert msgspec.to_builtins(page) == {
        "total": 1,
        "matches": [
            {
                "subject": "a",
                "label": "l",
                "object": "b",
                "weight": 1.5,
                "count": 4,
                "attributions": [
                    {"source": "x", "weight": 3.0, "count": 2, "paragraph": None, "section": None, "locator": None},
                    {"source": "y", "weight": -1.0, "count": 1, "paragraph": None, "section": None, "locator": None},
                ],
            }
        ],
        "plan": {"contexts": ["kb"]},
    }


async def test_the_first_paragraph_that_a_source_names_stays(graph):
    await add(graph, said("a", "l", "b", 1.0, "x"))
    await add(graph, said("a", "l", "b", 1.0, "x", paragraph=3), said("a", "l", "b", 1.0, "x", paragraph=1))
    (fact,) = (await facts(graph)).values()
    assert fact.attributions[0].paragraph == 3


async def test_a_paragraph_shows_its_section_and_an_unknown_one_none(kit, graph):
    text = "# One\n\nalpha\n\n## Two\n\nbeta\n"
    await kit.sources.ingest(T, "kb", [DocumentInput(content=text, path="doc.md")])
    found = await rows(kit, "SELECT passage_id & 1048575, section_ordinal FROM passage ORDER BY 1")
    ordinal, section = found[-1]
    heading = (await rows(kit, "SELECT heading FROM section WHERE ordinal = $1", section))[0][0]
    await add(
        graph,
        said("a", "l", "b", 1.0, "doc.md", paragraph=ordinal),
        said("a", "l", "c", 1.0, "doc.md", paragraph=2**31),
        said("a", "l", "d", 1.0, "elsewhere", paragraph=0),
    )
    shown = {fact.object: fact.attributions[0] for fact in (await facts(graph)).values()}
    assert shown["b"].section == heading
    assert shown["c"].section is None
    assert shown["d"].section is None


async def test_spellings_of_one_name_are_one_entity(graph):
    await add(
        graph,
        said("System Admin", "is", "x"),
        said("system admin", "IS", "y"),
        said("SystemAdmin", "is", "z"),
        said("系统管理员", "is", "w"),
    )
    assert {fact[0] for fact in await facts(graph)} == {"System Admin", "系统管理员"}
    assert (await graph.labels(T, "kb")).labels == ["is"]
    await graph.retract_association(T, "kb", "系统管理员", "is", "w")
    await graph.add_aliases(T, "kb", concepts={"系统管理员": "systemadmin"}, labels={})
    await add(graph, said("系统管理员", "is", "w"))
    assert {fact[0] for fact in await facts(graph)} == {"System Admin"}


@pytest.mark.parametrize("object_", ["a", "A", "Ａ", "alias"])
async def test_a_fact_about_itself_is_refused(kit, graph, object_):
    await add(graph, said("a", "l", "b"))
    await graph.add_aliases(T, "kb", concepts={"alias": "a"}, labels={})
    before = await revision(kit)
    with pytest.raises(StrataError) as raised:
        await add(graph, said("x", "l", "y"), said("a", "l", object_))
    assert (raised.value.kind, raised.value.pointer) == (INVALID_REQUEST, "/associations/1/object")
    assert raised.value.extra["issues"][0]["path"] == "associations[1].object"
    assert len(await facts(graph)) == 1
    assert await revision(kit) == before


async def test_new_names_that_are_one_make_a_loop_too(graph):
    with pytest.raises(StrataError) as raised:
        await add(graph, said("New Thing", "l", "newthing"))
    assert raised.value.kind is INVALID_REQUEST


async def test_two_facts_about_one_subject_both_live(graph):
    await add(graph, said("X", "works at", "Acme", 1.0, "one"))
    await add(graph, said("X", "administers", "Acme's org", 1.0, "two"))
    assert set(await facts(graph)) == {("X", "works at", "Acme"), ("X", "administers", "Acme's org")}


async def test_two_intervals_of_one_fact_stay_two(graph):
    await add(
        graph,
        said("X", "at", "Y", 1.0, "s", valid_from=100, valid_until=200),
        said("X", "at", "Y", 2.0, "s", valid_from=500, valid_until=600),
        said("X", "at", "Y", 4.0, "s", valid_from=100, valid_until=200),
        said("X", "at", "Y", 8.0, "s"),
    )
    (fact,) = (await facts(graph)).values()
    (attribution,) = fact.attributions
    assert (attribution.weight, attribution.count) == (15.0, 4)
    assert [(item.valid_from, item.valid_until, item.weight, item.count) for item in attribution.intervals] == [
        (100, 200, 5.0, 2),
        (500, 600, 2.0, 1),
    ]


@pytest.mark.parametrize(
    ("bad", "path", "kind"),
    [
        (said("", "l", "b"), "subject", "empty"),
        (said("a", "", "b"), "label", "empty"),
        (said("a", "l", "é" * 513), "object", "too_long"),
        (said("a", "l", "b\x00"), "object", "type"),
        (said("a", "\ud800", "b"), "label", "type"),
        (said("a", "l", "b", float("nan")), "weight", "range"),
        (said("a", "l", "b", float("inf")), "weight", "range"),
        (said("a", "l", "b", -1000001.0), "weight", "range"),
        (said("a", "l", "b", paragraph=-1), "paragraph", "range"),
        (said("a", "l", "b", paragraph=2**32), "paragraph", "range"),
        (said("a", "l", "b", valid_from=2, valid_until=2), "valid_until", "range"),
        (said("a", "l", "b", valid_from=10**18), "valid_from", "range"),
        (said("a", "l", "b", 1.0, "x" * 1025), "source", "too_long"),
        (said("a", "l", "b", 1.0, "\x00"), "source", "type"),
    ],
)
async def test_a_value_that_cannot_be_used_is_refused_and_nothing_is_written(kit, graph, bad, path, kind):
    with pytest.raises(StrataError) as raised:
        await add(graph, said("fine", "l", "too"), bad)
    issue = raised.value.extra["issues"][0]
    assert raised.value.kind is INVALID_REQUEST
    assert (issue["path"], issue["kind"]) == (f"associations[1].{path}", kind)
    assert raised.value.pointer == f"/associations/1/{path}"
    assert sum((await counts(kit)).values()) == 0


@pytest.mark.parametrize("name", ["é" * 512, "😀", "日本 語", "مرحبا", "a/b~c", "'quoted'", "x\ty\nz", " "])
async def test_odd_names_are_kept_as_they_are(graph, name):
    await add(graph, said(name, "l", "other", 1e6), said("other", name, "third", -1e6))
    assert {name} <= {part for fact in await facts(graph) for part in fact}
    assert (await graph.recall(T, "kb", name)).total >= 1


async def test_many_wrong_values_are_counted_and_twenty_listed(graph):
    with pytest.raises(StrataError) as raised:
        await add(graph, *(said("", "l", f"o{number}") for number in range(25)))
    assert len(raised.value.extra["issues"]) == 20
    assert raised.value.extra["issues_total"] == 25


async def test_a_request_has_at_most_ten_thousand_associations(graph):
    with pytest.raises(StrataError) as raised:
        await add(graph, *(said("a", "l", f"o{number}") for number in range(10_001)))
    assert raised.value.kind is OVER_LIMIT
    assert (await add(graph, *(said("a", "l", f"o{number}") for number in range(10_000)))).associations == 10_000


async def test_no_association_at_all_changes_nothing(kit, graph):
    assert (await add(graph)).associations == 0
    assert await revision(kit) == 0


async def test_retract_deletes_what_nobody_else_states_with_its_names(kit, graph):
    await add(graph, said("a", "l", "b", 1.0, "one"), said("a", "l", "b", 2.0, "two"), said("c", "m", "d", 1.0, "one"))
    gone = await retract(graph, "one")
    assert (gone.associations_touched, gone.attributions) == (2, 2)
    assert {name: (fact.weight, fact.count) for name, fact in (await facts(graph)).items()} == {
        ("a", "l", "b"): (2.0, 1)
    }
    assert await counts(kit) == {"concept": 2, "label": 1, "alias": 0, "association": 1, "attribution": 1}
    assert (await retract(graph, "one")).attributions == 0
    await retract(graph, "two")
    assert sum((await counts(kit)).values()) == 0


async def test_a_name_that_an_alias_leads_to_outlives_its_facts(kit, graph):
    await add(graph, said("a", "l", "b", 1.0, "one"))
    await graph.add_aliases(T, "kb", concepts={"alias": "a"}, labels={})
    await retract(graph, "one")
    assert await counts(kit) == {"concept": 1, "label": 0, "alias": 1, "association": 0, "attribution": 0}
    assert (await graph.drift_audit(T, "kb")).dead_concept_aliases == {"alias": "a"}
    assert await graph.remove_aliases(T, "kb", concepts=["alias"], labels=[]) == 1
    assert sum((await counts(kit)).values()) == 0


async def test_compacting_removes_aliases_that_lead_to_no_fact(kit, graph):
    await add(graph, said("a", "l", "b", 1.0, "one"), said("c", "m", "d", 1.0, "two"))
    await graph.add_aliases(T, "kb", concepts={"x": "a", "y": "c"}, labels={"z": "l"})
    await retract(graph, "one")
    assert await graph.compact(T, "kb") == 2
    assert await graph.compact(T, "kb") == 0
    assert await counts(kit) == {"concept": 2, "label": 1, "alias": 1, "association": 1, "attribution": 1}


async def test_replacing_a_source_leaves_what_it_states_now(kit, graph):
    await apply(graph, "s", [Assertion("a", "l", "b", 1.0), Assertion("a", "l", "c", 1.0)])
    ids = {row[0]: row[1] for row in await rows(kit, "SELECT object_id, association_id FROM association")}
    done = await apply(graph, "s", [Assertion("a", "l", "c", 5.0), Assertion("a", "l", "d", 1.0)])
    assert (done.associations, done.retracted.associations_touched) == (2, 2)
    assert {name[2]: (fact.weight, fact.count) for name, fact in (await facts(graph)).items()} == {
        "c": (5.0, 1),
        "d": (1.0, 1),
    }
    kept = {row[1] for row in await rows(kit, "SELECT object_id, association_id FROM association")} & set(ids.values())
    assert len(kept) == 1, "what is stated again keeps its place"
    assert not (await graph.resolve(T, "kb", "b"))


async def test_an_empty_replacement_is_a_retraction(kit, graph):
    await apply(graph, "s", [Assertion("a", "l", "b", 1.0)])
    before = await revision(kit)
    assert (await apply(graph, "s", [])).retracted.attributions == 1
    assert await revision(kit) == before + 1
    await apply(graph, "s", [])
    assert await revision(kit) == before + 1


async def test_one_fact_is_retracted_whoever_states_it(kit, graph):
    await add(graph, said("a", "l", "b", 1.0, "one"), said("a", "l", "b", 2.0, "two"), said("a", "l", "b"))
    await graph.add_aliases(T, "kb", concepts={"alias": "a"}, labels={})
    done = await graph.retract_association(T, "kb", "alias", "L", "b")
    assert (done.retracted, done.attributions_removed) == (True, 2)
    again = await graph.retract_association(T, "kb", "alias", "l", "b")
    assert (again.retracted, again.attributions_removed) == (False, 0)
    assert not await facts(graph)


async def test_an_alias_leads_writes_and_reads_to_its_name(graph):
    await add(graph, said("PostgreSQL 16", "is", "database"))
    assert await graph.add_aliases(T, "kb", concepts={"Postgres": "PostgreSQL 16"}, labels={"ist": "is"}) == 2
    assert await graph.add_aliases(T, "kb", concepts={"Postgres": "PostgreSQL 16"}, labels={}) == 1
    await add(graph, said("Postgres", "ist", "software"))
    assert {name[:2] for name in await facts(graph)} == {("PostgreSQL 16", "is")}
    assert (await graph.query(T, "kb", subject="Postgres", label="ist")).total == 2
    await graph.add_aliases(T, "kb", concepts={"PG": "Postgres"}, labels={})
    page = await graph.aliases(T, "kb")
    assert page.concepts == {"PG": "PostgreSQL 16", "Postgres": "PostgreSQL 16"}
    assert page.labels == {"ist": "is"}


@pytest.mark.parametrize(
    ("concepts", "labels", "kind", "path"),
    [
        ({"b": "a"}, {}, "conflict", "concepts['b']"),
        ({"taken": "b"}, {}, "conflict", "concepts['taken']"),
        ({"new": "missing"}, {}, "unknown_reference", "concepts['new']"),
        ({}, {"kind": "schema:type"}, "conflict", "labels['kind']"),
        ({}, {"schema:type": "l"}, "conflict", "labels['schema:type']"),
    ],
)
async def test_an_alias_that_cannot_be_is_refused(graph, concepts, labels, kind, path):
    await add(graph, said("a", "l", "b"), said("a", "schema:type", "T"))
    await graph.add_aliases(T, "kb", concepts={"taken": "a"}, labels={})
    with pytest.raises(StrataError) as raised:
        await graph.add_aliases(T, "kb", concepts={"fine": "a", **concepts}, labels=labels)
    issue = raised.value.extra["issues"][0]
    assert raised.value.kind is CONFLICT
    assert (issue["path"], issue["kind"]) == (path, kind)
    assert (await graph.aliases(T, "kb")).concepts == {"taken": "a"}


async def test_an_alias_may_lead_to_what_the_same_batch_brings(graph):
    done = await apply(
        graph,
        "s",
        [Assertion("PostgreSQL", "is", "database", 1.0)],
        [AliasRow("pg", "PostgreSQL", "concept"), AliasRow("p", "pg", "concept"), AliasRow("ist", "is", "label")],
    )
    assert done.aliases == 3
    assert (await graph.aliases(T, "kb")).concepts == {"p": "PostgreSQL", "pg": "PostgreSQL"}


async def test_a_batch_with_an_alias_that_cannot_be_writes_nothing(kit, graph):
    with pytest.raises(StrataError) as raised:
        await apply(graph, "s", [Assertion("a", "l", "b", 1.0)], [AliasRow("Alpha", "nowhere", "concept")])
    assert raised.value.extra["issues"] == [
        {
            "path": "concepts['Alpha']",
            "kind": "unknown_reference",
            "expected": "'nowhere' already interned as a concept or label this batch's associations use",
            "actual": "not present in this request",
        }
    ]
    assert sum((await counts(kit)).values()) == 0


async def test_a_check_says_what_a_write_would_and_writes_nothing(kit, graph):
    context = (await kit.contexts.get(T, "kb")).id
    async with kit.database.work(T) as connection:
        fine = await graph.check(connection, T, context, "s", [Assertion("a", "l", "b", 1.0)], path="batches[1].")
        assert (fine.associations, fine.violations) == (1, 0)
        with pytest.raises(StrataError) as raised:
            await graph.check(connection, T, context, "s", [Assertion("a", "l", "a", 1.0)], path="batches[1].")
    assert raised.value.extra["issues"][0]["path"] == "batches[1].associations[0].object"
    assert raised.value.pointer == "/batches/1/associations/0/object"
    assert sum((await counts(kit)).values()) == 0


async def test_only_aliases_are_removed(graph):
    await add(graph, said("a", "l", "b"))
    await graph.add_aliases(T, "kb", concepts={"x": "a"}, labels={})
    for concepts, labels in ((["a"], []), ([], ["l"]), (["x", "a"], [])):
        with pytest.raises(StrataError) as raised:
            await graph.remove_aliases(T, "kb", concepts=concepts, labels=labels)
        assert raised.value.kind is CONFLICT
    assert await graph.remove_aliases(T, "kb", concepts=["unknown"], labels=["unknown"]) == 0
    assert await graph.remove_aliases(T, "kb", concepts=["x", "x"], labels=[]) == 1


async def test_aliases_are_paged_concepts_first(graph):
    await add(graph, said("a", "l", "b"))
    await graph.add_aliases(T, "kb", concepts={"x": "a", "y": "b", "yy": "b"}, labels={"m": "l", "n": "l"})
    seen, after = [], None
    while True:
        page = await graph.aliases(T, "kb", limit=2, after=after)
        assert page.total == 5
        found = [f"concept:{name}" for name in page.concepts] + [f"label:{name}" for name in page.labels]
        if not found:
            break
        seen += found
        after = found[-1]
    assert seen == ["concept:x", "concept:y", "concept:yy", "label:m", "label:n"]
    assert (await graph.aliases(T, "kb", prefix="y")).total == 2
    for wrong in ("x", "source:x", ""):
        with pytest.raises(StrataError) as raised:
            await graph.aliases(T, "kb", after=wrong)
        assert raised.value.kind is INVALID_REQUEST


async def test_pages_go_on_from_a_cursor_with_a_constant_total(graph):
    await add(graph, *(said("a", "l", f"o{number}", 1.0 + number % 3) for number in range(10)))
    whole = (await graph.query(T, "kb", subject="a")).matches
    seen, after = [], None
    while True:
        page = await graph.query(T, "kb", subject="a", limit=3, after=after)
        assert page.total == 10
        if not page.matches:
            break
        seen += page.matches
        last = page.matches[-1]
        after = MatchCursor(weight=last.weight, subject=last.subject, label=last.label, object=last.object)
    assert seen == whole


async def test_a_window_weighs_facts_by_the_sources_within_it(kit, graph):
    await add(
        graph,
        said("a", "l", "b", 1.0, "old.md"),
        said("a", "l", "b", 5.0, "new.md"),
        said("a", "l", "c", 1.0, "old.md"),
        said("a", "l", "d", 1.0, "unstored"),
        said("a", "l", "e"),
    )
    await kit.sources.ingest(
        T, "kb", [DocumentInput(content="old", path="old.md"), DocumentInput(content="new", path="new.md")]
    )
    for path, seconds in (("old.md", 1000), ("new.md", 2000)):
        await rows(kit, "UPDATE source SET occurred_at = to_timestamp($1) WHERE path = $2", seconds, path)

    async def within(since, until):
        page = await graph.query(T, "kb", subject="a", since=since, until=until)
        return {
            fact.object: (fact.weight, fact.count, [one.source for one in fact.attributions]) for fact in page.matches
        }

    assert await within(None, 2000) == {"b": (1.0, 1, ["old.md"]), "c": (1.0, 1, ["old.md"])}
    assert await within(2000, None) == {"b": (5.0, 1, ["new.md"])}
    assert await within(1000, 2001) == {"b": (3.0, 2, ["new.md", "old.md"]), "c": (1.0, 1, ["old.md"])}
    assert await within(3000, None) == {}
    assert (await graph.activate(T, "kb", "a", until=2000)).total == 2
    assert (await graph.explore(T, "kb", "a", since=2000)).total == 1
    assert (await graph.recall(T, "kb", "b", since=2000)).total == 1


async def test_walks_reach_what_they_should(graph):
    await add(graph, said("a", "l", "b", 2.0), said("b", "l", "c", 1.0), said("x", "l", "y", 1.0))
    assert [fact.association.object for fact in (await graph.explore(T, "kb", ["a"], max_depth=1)).matches] == ["b"]
    trails = await graph.paths(T, "kb", "a", ["c"])
    assert [(trail.path, trail.strength) for trail in trails.matches] == [(["a", "b", "c"], 1.0)]
    assert [fact.subject for fact in (await graph.unreachable_from(T, "kb", "a")).matches] == ["x"]
    outline = await graph.describe(T, "kb", "b")
    assert [(item.label, item.count) for item in outline.as_object] == [("l", 1)]
    assert await graph.describe(T, "kb", "nothing") is None
    with pytest.raises(StrataError) as raised:
        await graph.explore(T, "kb", ["a"] * 1001)
    assert raised.value.kind is OVER_LIMIT
    with pytest.raises(StrataError) as raised:
        await graph.query(T, "kb", limit=1001)
    assert raised.value.kind is OVER_LIMIT


SCHEMA = {
    "mode": "strict",
    "closed_labels": False,
    "types": {"Person": {"is_a": []}, "Brewery": {"is_a": []}},
    "relations": {"brews": {"domain": ["Brewery"], "range": []}},
}


async def test_a_strict_schema_refuses_and_a_warning_one_reports(kit, graph):
    with pytest.raises(StrataError) as raised:
        await graph.get_schema(T, "kb")
    assert raised.value.kind is SCHEMA_NOT_FOUND
    assert (await graph.put_schema(T, "kb", SCHEMA))["mode"] == "strict"
    assert (await kit.contexts.entry(T, "kb")).schema_mode == "strict"
    wrong = [said("Takase", "schema:type", "Person", 1.0, "s"), said("Takase", "brews", "sake", 1.0, "s")]
    with pytest.raises(StrataError) as raised:
        await add(graph, *wrong)
    assert raised.value.kind is SCHEMA_VIOLATION
    assert raised.value.extra["issues"][0]["path"] == "associations[1].subject"
    assert sum((await counts(kit)).values()) == 0
    await graph.put_schema(T, "kb", SCHEMA | {"mode": "warn"})
    done = await add(graph, *wrong)
    assert (done.violations, done.issues[0].kind) == (1, "domain")
    assert (await graph.audit_schema(T, "kb")).total == 1
    assert (await graph.validate_schema(T, "kb", SCHEMA | {"relations": {}})).total == 0
    assert (await graph.query(T, "kb", subject_types="Person")).total == 2
    assert (await graph.query(T, "kb", subject_types=["Brewery"])).total == 0
    assert (await graph.get_schema(T, "kb")) == await graph.put_schema(T, "kb", SCHEMA | {"mode": "warn"})


async def test_a_replacement_is_judged_without_what_it_replaces(graph):
    await graph.put_schema(T, "kb", SCHEMA)
    await apply(graph, "s", [Assertion("T", "schema:type", "Brewery", 1.0), Assertion("T", "brews", "sake", 1.0)])
    with pytest.raises(StrataError) as raised:
        await apply(graph, "s", [Assertion("T", "schema:type", "Person", 1.0), Assertion("T", "brews", "sake", 1.0)])
    assert raised.value.kind is SCHEMA_VIOLATION
    await apply(graph, "other", [Assertion("t", "brews", "ale", 1.0)], replace=True)


@pytest.mark.parametrize(
    "fields", [{}, {"mode": "loud"}, SCHEMA | {"extra": 1}, SCHEMA | {"types": {"a\x00": {"is_a": []}}}]
)
async def test_a_schema_document_that_breaks_the_rules_is_refused(graph, fields):
    with pytest.raises(StrataError) as raised:
        await graph.put_schema(T, "kb", fields)
    assert raised.value.kind is INVALID_REQUEST
    assert raised.value.extra["issues"]


async def test_the_change_feed_tells_every_write_in_order(kit, graph):
    start = await graph.changes(T, "kb")
    assert (start.events, start.more) == ([], False)
    await add(graph, said("a", "l", "b"), said("a", "l", "c"))
    await graph.add_aliases(T, "kb", concepts={"x": "a"}, labels={})
    await graph.remove_aliases(T, "kb", concepts=["x"], labels=[])
    await graph.retract_association(T, "kb", "a", "l", "c")
    await apply(graph, "s", [Assertion("a", "l", "b", 1.0)])
    await retract(graph, "s")
    await graph.put_schema(T, "kb", SCHEMA)
    page = await graph.changes(T, "kb", since=start.next)
    assert [msgspec.to_builtins(event) for event in page.events] == [
        {"seq": 1, "kind": "associations_added", "count": 2},
        {"seq": 2, "kind": "aliases_added", "count": 1},
        {"seq": 3, "kind": "aliases_removed", "count": 1},
        {"seq": 4, "kind": "association_retracted", "subject": "a", "label": "l", "object": "c"},
        {"seq": 5, "kind": "associations_added", "count": 1},
        {"seq": 6, "kind": "source_retracted", "source": "s"},
        {"seq": 7, "kind": "schema_updated", "mode": "strict"},
    ]
    first = await graph.changes(T, "kb", since=start.next, limit=3)
    assert (len(first.events), first.more) == (3, True)
    rest = await graph.changes(T, "kb", since=first.next)
    assert [event.seq for event in rest.events] == [4, 5, 6, 7]
    assert (await kit.contexts.entry(T, "kb")).usage.writes == 7


async def test_a_position_of_another_context_is_stale(kit, graph):
    await kit.contexts.create(T, "other")
    foreign = (await graph.changes(T, "other")).next
    for position, kind in (
        (foreign, STALE_CURSOR),
        ("cf1-0000000000000000-0", STALE_CURSOR),
        ("junk", INVALID_REQUEST),
    ):
        with pytest.raises(StrataError) as raised:
            await graph.changes(T, "kb", since=position)
        assert raised.value.kind is kind
    own = (await graph.changes(T, "kb")).next
    with pytest.raises(StrataError) as raised:
        await graph.changes(T, "kb", since=own[:-1] + "99")
    assert raised.value.kind is STALE_CURSOR


async def test_stats_count_what_is_there(kit, graph):
    await add(graph, said("a", "l", "b", 1.0, "s"), said("a", "m", "c", -2.5), said("a", "l", "d", 1.0, "s"))
    await kit.sources.ingest(T, "kb", [DocumentInput(content="text", path="doc.md")])
    stats = await graph.stats(T, "kb")
    assert (stats.associations, stats.concepts, stats.labels, stats.sources) == (3, 4, 2, 2)
    assert (stats.unsourced_edges, stats.unsourced_weight) == (1, -2.5)
    assert [(item.label, item.count) for item in stats.top_concepts[:2]] == [("a", 3), ("b", 1)]
    assert stats.label_sample == ["l", "m"]
    await retract(graph, "s")
    assert (await graph.stats(T, "kb")).associations == 1


async def test_audits_name_their_candidates(graph):
    await add(
        graph,
        said("青嶺酒造", "銘柄", "青嶺", 1.0, "a"),
        said("青嶺酒蔵", "銘柄", "青嶺", 1.0, "b"),
        said("蔵", "杜氏", "高瀬", 1.0, "a"),
        said("蔵", "杜氏", "青山", 1.0, "b"),
        said("蔵", "行う", "醸造", 3.0),
        said("蔵", "行う", "大量生産", 1.0, "a"),
        said("蔵", "行う", "大量生産", -2.0, "b"),
    )
    twins = await graph.vocabulary_audit(T, "kb")
    assert [(pair.a, pair.b) for pair in twins.lexical_concepts] == [("青嶺酒造", "青嶺酒蔵")]
    audit = await graph.consolidation_audit(T, "kb", ["merge", "contradiction", "staleness"])
    assert [(item.a, item.b, item.overlap) for item in audit.merge.candidates] == [("青嶺酒造", "青嶺酒蔵", 1.0)]
    assert {item.kind for item in audit.contradiction.candidates} == {"objects", "contested"}
    assert audit.staleness.undatable == 6
    only = msgspec.to_builtins(await graph.consolidation_audit(T, "kb", ["staleness"]))
    assert set(only) == {"detector", "staleness"}
    drift = await graph.drift_audit(T, "kb", include_twins=True)
    assert [(item.association.object, item.unsourced_weight) for item in drift.unsourced] == [("醸造", 3.0)]
    assert (await graph.drift_audit(T, "kb", unsourced_floor=10.0)).total == 0
    for checks in ([], ["merge", "nonsense"]):
        with pytest.raises(StrataError) as raised:
            await graph.consolidation_audit(T, "kb", checks)
        assert raised.value.pointer == "/checks"


async def test_communities_are_found(graph):
    for group in ("a", "b"):
        await add(
            graph, *(said(f"{group}{one}", "l", f"{group}{two}") for one in range(4) for two in range(4) if one < two)
        )
    found = await graph.communities(T, "kb")
    leaves = [item for item in found.communities if item.level == 0]
    assert sorted(sorted(member.name for member in item.members) for item in leaves) == [
        ["a0", "a1", "a2", "a3"],
        ["b0", "b1", "b2", "b3"],
    ]
    assert all(fact.subject for item in leaves for fact in item.top_associations)


async def test_another_tenant_sees_and_changes_nothing(kit, graph):
    other = uuid4()
    async with kit.database.owner() as connection:
        await connection.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, 'other')", other)
    context = str((await kit.contexts.get(T, "kb")).id)
    await add(graph, said("a", "l", "b", 1.0, "s"))
    calls = [
        lambda ref: graph.query(other, ref),
        lambda ref: graph.recall(other, ref, "a"),
        lambda ref: graph.describe(other, ref, "a"),
        lambda ref: graph.activate(other, ref, "a"),
        lambda ref: graph.explore(other, ref, "a"),
        lambda ref: graph.paths(other, ref, "a", "b"),
        lambda ref: graph.unreachable_from(other, ref, "a"),
        lambda ref: graph.resolve(other, ref, "a"),
        lambda ref: graph.resolve_label(other, ref, "l"),
        lambda ref: graph.explain_resolve(other, ref, "a", "a"),
        lambda ref: graph.explain_resolve_label(other, ref, "l", "l"),
        lambda ref: graph.labels(other, ref),
        lambda ref: graph.aliases(other, ref),
        lambda ref: graph.vocabulary_audit(other, ref),
        lambda ref: graph.drift_audit(other, ref),
        lambda ref: graph.consolidation_audit(other, ref, ["merge"]),
        lambda ref: graph.communities(other, ref),
        lambda ref: graph.stats(other, ref),
        lambda ref: graph.changes(other, ref),
        lambda ref: graph.get_schema(other, ref),
        lambda ref: graph.put_schema(other, ref, SCHEMA),
        lambda ref: graph.audit_schema(other, ref),
        lambda ref: graph.validate_schema(other, ref, SCHEMA),
        lambda ref: graph.add_associations(other, ref, [said("a", "l", "z")]),
        lambda ref: graph.retract_association(other, ref, "a", "l", "b"),
        lambda ref: graph.add_aliases(other, ref, concepts={"x": "a"}, labels={}),
        lambda ref: graph.remove_aliases(other, ref, concepts=["x"], labels=[]),
        lambda ref: graph.query_across(other, contexts=[ref]),
        lambda ref: graph.recall_across(other, "a", contexts=[ref]),
        lambda ref: kit.contexts.entry(other, ref),
    ]
    for call in calls:
        for ref in ("kb", context):
            with pytest.raises(StrataError) as raised:
                await call(ref)
            assert raised.value.kind is CONTEXT_NOT_FOUND
    async with kit.database.work(other) as connection:
        with pytest.raises(StrataError) as raised:
            await graph.apply(connection, other, UUID(context), "s", [], replace=True)
        assert raised.value.kind is CONTEXT_NOT_FOUND
    await kit.contexts.create(other, "kb")
    await graph.add_associations(other, "kb", [said("a", "l", "b", 7.0, "s")])
    assert (await graph.query(other, "kb")).matches[0].weight == 7.0
    mine = await counts(kit)
    await kit.contexts.delete(other, "kb")
    assert sum((await counts(kit, tenant=other)).values()) == 0
    assert await counts(kit) == mine
    assert (await graph.query(T, "kb")).matches[0].weight == 1.0


async def test_deleting_a_context_deletes_its_graph(kit, graph):
    await add(graph, said("a", "l", "b", 1.0, "s"))
    await graph.add_aliases(T, "kb", concepts={"x": "a"}, labels={"m": "l"})
    await graph.put_schema(T, "kb", SCHEMA)
    await kit.contexts.delete(T, "kb")
    assert sum((await counts(kit)).values()) == 0
    for table in ("context_change", "context_schema", "context_usage"):
        assert (await rows(kit, f"SELECT count(*) FROM {table}"))[0][0] == 0


async def test_forgotten_sources_leave_no_fact(kit, graph):
    await add(graph, said("a", "l", "b", 1.0, "one"), said("a", "l", "b", 1.0, "two"), said("c", "l", "d", 1.0, "two"))
    async with kit.database.work(T) as connection:
        row = await kit.contexts.resolve(connection, T, "kb")
        gone = await graph.forget_sources(connection, T, row.context_id, ["two", "one", "never"])
    assert (gone.associations_touched, gone.attributions) == (2, 3)
    assert not await facts(graph)
    events = await rows(kit, "SELECT kind, payload FROM context_change ORDER BY seq DESC LIMIT 2")
    assert sorted(event[1]["source"] for event in events) == ["one", "two"]


async def test_a_refused_write_in_a_caller_s_transaction_leaves_nothing(kit, graph):
    with pytest.raises(StrataError):
        await apply(graph, "s", [Assertion("a", "l", "b", 1.0), Assertion("a", "l", "a", 1.0)])
    assert sum((await counts(kit)).values()) == 0


async def test_writers_of_the_same_new_names_both_succeed(kit, graph):
    names = [f"Name {number}" for number in range(40)]

    async def writer(number):
        order = random.Random(number).sample(names, len(names))
        spelled = [name.upper() if number % 2 else name for name in order]
        statements = [said(name, "l", "hub", 1.0, f"s{number}") for name in spelled]
        return await graph.add_associations(T, "kb", statements)

    await asyncio.gather(*(writer(number) for number in range(8)))
    found = await facts(graph)
    assert len(found) == 40
    assert {(fact.count, len(fact.attributions)) for fact in found.values()} == {(8, 8)}
    assert len({key(row[0]) for row in await rows(kit, "SELECT name FROM concept")}) == 41
    assert await revision(kit) == 8


async def test_two_importers_of_one_source_never_leave_a_union(graph):
    for round_ in range(4):
        batches = [
            [Assertion(f"r{round_}", f"l{writer}", f"o{number}", 1.0) for number in range(20)] for writer in range(4)
        ]
        await asyncio.gather(*(apply(graph, "s", batch) for batch in batches))
        found = await facts(graph)
        assert len(found) == 20
        assert len({name[1] for name in found}) == 1


async def test_writers_and_a_deletion_of_the_context_do_not_block_each_other(kit, graph):
    writes = [add(graph, said(f"a{number}", "l", f"b{number}", 1.0, "s")) for number in range(8)]
    done = await asyncio.gather(*writes, kit.contexts.delete(T, "kb"), return_exceptions=True)
    assert {item.kind for item in done if isinstance(item, BaseException)} <= {CONTEXT_NOT_FOUND}
    assert sum((await counts(kit)).values()) == 0


async def test_readers_meanwhile_see_whole_states_only(graph):
    await apply(graph, "s", [Assertion("a", "l", f"o{number}", 1.0) for number in range(10)])

    async def write():
        for weight in range(2, 8):
            await apply(graph, "s", [Assertion("a", "l", f"o{number}", float(weight)) for number in range(10)])

    async def read():
        for _ in range(20):
            page = await graph.query(T, "kb", subject="a")
            assert page.total == 10
            assert len({fact.weight for fact in page.matches}) == 1
            assert all(fact.attributions[0].weight == fact.weight for fact in page.matches)

    await asyncio.gather(write(), read(), read())


class Model:
    """What the graph should hold, as plain dictionaries."""

    def __init__(self):
        self.stated = {}

    def state(self, subject, label, object_, weight, source):
        slot = self.stated.setdefault((subject, label, object_), {}).setdefault(source, [0.0, 0])
        slot[0] += weight
        slot[1] += 1

    def forget(self, source):
        for fact in list(self.stated):
            self.stated[fact].pop(source, None)
            if not self.stated[fact]:
                del self.stated[fact]

    def shown(self):
        return {
            fact: (
                sum(weight for weight, _ in by_source.values()) / sum(count for _, count in by_source.values()),
                {source: tuple(slot) for source, slot in by_source.items() if source},
            )
            for fact, by_source in self.stated.items()
        }


@pytest.mark.parametrize("seed", range(6))
async def test_random_operations_leave_what_a_plain_model_holds(kit, graph, seed):
    chance, model = random.Random(seed), Model()

    def statement():
        subject, object_ = chance.sample("abcdef", 2)
        return subject, chance.choice("lm"), object_, chance.choice((-1.0, 0.5, 2.0, 0.0))

    for _ in range(25):
        source = chance.choice(("one", "two", "three"))
        kind = chance.random()
        if kind < 0.4:
            batch = [(*statement(), chance.choice((source, ""))) for _ in range(chance.randint(1, 5))]
            await add(graph, *(said(*item) for item in batch))
            for item in batch:
                model.state(*item)
        elif kind < 0.7:
            batch = [statement() for _ in range(chance.randint(0, 5))]
            await apply(graph, source, [Assertion(*item) for item in batch])
            model.forget(source)
            for item in batch:
                model.state(*item, source)
        elif kind < 0.85:
            await retract(graph, source)
            model.forget(source)
        else:
            fact = statement()[:3]
            done = await graph.retract_association(T, "kb", *fact)
            assert done.retracted == (fact in model.stated)
            model.stated.pop(fact, None)
        found = {
            name: (fact.weight, {one.source: (one.weight, one.count) for one in fact.attributions})
            for name, fact in (await facts(graph)).items()
        }
        assert found == model.shown()
    names = {part for fact in model.stated for part in (fact[0], fact[2])}
    assert {row[0] for row in await rows(kit, "SELECT name FROM concept")} == names
    assert {row[0] for row in await rows(kit, "SELECT name FROM label")} == {fact[1] for fact in model.stated}
