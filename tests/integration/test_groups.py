"""Groups of contexts, reads across contexts, and the directory."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from ingest_support import make_kit, rows
from strata.errors import (
    CONFLICT,
    CONTEXT_EXISTS,
    CONTEXT_NOT_FOUND,
    GROUP_EXISTS,
    GROUP_NOT_FOUND,
    INVALID_REQUEST,
    OVER_LIMIT,
    StrataError,
)
from strata.knowledge.graph_model import Assertion, SourcedAssertion
from strata.knowledge.graph_schemas import CrossMatchCursor
from strata.knowledge.graph_service import GraphService
from strata.knowledge.groups import GroupRecord, GroupService
from strata.knowledge.model import ContextOptions
from strata.platform.ids import DEFAULT_TENANT as T

pytestmark = pytest.mark.database


@pytest.fixture
async def kit(database, settings):
    made = make_kit(database, settings)
    yield made
    await made.sources.close()
    await made.contexts.close()


@pytest.fixture
async def groups(kit):
    for name in ("tea", "sake", "beer"):
        await kit.contexts.create(T, name)
    return GroupService(kit.database, kit.contexts)


@pytest.fixture
def graph(kit, groups):
    return GraphService(kit.database, kit.contexts)


async def refused(call, kind, pointer=None):
    with pytest.raises(StrataError) as raised:
        await call
    assert raised.value.kind is kind
    if pointer is not None:
        assert raised.value.pointer == pointer


async def expanded(kit, groups, contexts=(), names=()):
    async with kit.database.work(T, snapshot=True) as connection:
        return [row.name for row in await groups.expand(connection, T, contexts, names)]


async def test_a_group_lives_from_creation_to_deletion(kit, groups):
    made = await groups.create(T, " drinks ", description="d", contexts=["tea", "sake", "tea"])
    assert (made.name, made.description, made.contexts, made.groups) == ("drinks", "d", ["sake", "tea"], [])
    assert await groups.get(T, "drinks") == made
    await refused(groups.create(T, "drinks"), GROUP_EXISTS, "/name")
    await groups.create(T, "cold")
    changed = await groups.update(
        T, "drinks", description="e", add_contexts=["beer"], remove_contexts=["tea", "never"], add_groups=["cold"]
    )
    assert (changed.description, changed.contexts, changed.groups) == ("e", ["beer", "sake"], ["cold"])
    await refused(groups.rename(T, "drinks", "cold"), GROUP_EXISTS, "/to")
    assert (await groups.rename(T, "drinks", "liquids")).contexts == ["beer", "sake"]
    await refused(groups.get(T, "drinks"), GROUP_NOT_FOUND)
    page = await groups.list(T)
    assert (page.total, [group.name for group in page.groups]) == (2, ["cold", "liquids"])
    assert [group.name for group in (await groups.list(T, limit=1, after="cold")).groups] == ["liquids"]
    assert (await groups.list(T, after="liquids")).groups == []
    await groups.delete(T, "liquids")
    await refused(groups.delete(T, "liquids"), GROUP_NOT_FOUND)
    assert (await groups.get(T, "cold")).contexts == []
    assert (await kit.contexts.get(T, "sake")).name == "sake"


async def test_a_group_may_have_the_name_of_a_context_and_members_by_id(kit, groups):
    identifier = str((await kit.contexts.get(T, "tea")).id)
    assert (await groups.create(T, "tea", contexts=[identifier])).contexts == ["tea"]
    assert (await groups.update(T, "tea", remove_contexts=[identifier])).contexts == []


async def test_a_member_that_is_not_there_is_refused_and_nothing_made(groups):
    await refused(groups.create(T, "g", contexts=["tea", "nowhere"]), CONTEXT_NOT_FOUND, "/contexts/1")
    await refused(groups.create(T, "g", groups=["nowhere"]), GROUP_NOT_FOUND, "/groups/0")
    assert (await groups.list(T)).total == 0
    for name in ("", "a\x00b", "\ud800", "x" * 129):
        await refused(groups.create(T, name), INVALID_REQUEST, "/name")
        await refused(groups.get(T, name), GROUP_NOT_FOUND)


async def test_groups_are_never_in_a_circle_nor_more_than_three_tall(groups):
    await groups.create(T, "c")
    await groups.create(T, "b", groups=["c"])
    await groups.create(T, "a", groups=["b"])
    await refused(groups.create(T, "top", groups=["a"]), CONFLICT, "/groups")
    await refused(groups.update(T, "c", add_groups=["a"]), CONFLICT, "/add_groups")
    await refused(groups.update(T, "c", add_groups=["c"]), CONFLICT, "/add_groups/0")
    await groups.create(T, "d")
    await refused(groups.update(T, "c", add_groups=["d"]), CONFLICT)
    await groups.update(T, "b", remove_groups=["c"], add_groups=["d"])
    await refused(groups.update(T, "d", add_groups=["b"]), CONFLICT)


async def test_two_who_would_close_a_circle_at_once_do_not(groups):
    await groups.create(T, "a")
    await groups.create(T, "b")
    done = await asyncio.gather(
        groups.update(T, "a", add_groups=["b"]), groups.update(T, "b", add_groups=["a"]), return_exceptions=True
    )
    assert sum(isinstance(item, StrataError) for item in done) == 1


async def test_a_group_holds_at_most_a_thousand_contexts(kit, groups):
    await rows(
        kit,
        "INSERT INTO context (tenant_id, context_id, name) "
        "SELECT $1, gen_random_uuid(), 'n' || n FROM generate_series(1, 1001) AS n",
        T,
    )
    names = [f"n{number}" for number in range(1, 1002)]
    await refused(groups.create(T, "g", contexts=names), OVER_LIMIT, "/contexts")
    assert len((await groups.create(T, "g", contexts=names[:1000])).contexts) == 1000
    await refused(groups.update(T, "g", add_contexts=["n1001"]), OVER_LIMIT, "/add_contexts")


async def test_expansion_names_each_context_once_in_effective_order(kit, groups):
    await groups.create(T, "inner", contexts=["beer"])
    await groups.create(T, "outer", contexts=["tea", "sake"], groups=["inner"])
    assert await expanded(kit, groups, ["tea"], ["outer"]) == ["tea", "beer", "sake"]
    assert await expanded(kit, groups, [], ["inner", "outer"]) == ["beer", "sake", "tea"]
    await refused(expanded(kit, groups), INVALID_REQUEST, "/contexts")
    await refused(expanded(kit, groups, ["tea"], ["nowhere"]), GROUP_NOT_FOUND, "/groups/0")
    await refused(expanded(kit, groups, ["x"] * 1001), OVER_LIMIT, "/contexts")


async def test_a_fingerprint_moves_with_what_a_group_reaches(groups, graph):
    await groups.create(T, "inner", contexts=["beer"])
    before = await groups.create(T, "outer", groups=["inner"])
    other = await groups.create(T, "other", contexts=["tea"])
    await graph.add_associations(T, "beer", [SourcedAssertion(Assertion("a", "l", "b", 1.0))])
    after = await groups.get(T, "outer")
    assert (len(after.fingerprint), after.fingerprint != before.fingerprint) == (16, True)
    assert (await groups.get(T, "other")).fingerprint == other.fingerprint


async def test_records_are_put_as_one_set_in_any_order(kit, groups):
    records = [
        GroupRecord("outer", "o", ["tea"], ["inner"]),
        GroupRecord("inner", "i", ["sake", "beer"]),
    ]

    async def put(given):
        async with kit.database.work(T) as connection:
            return await groups.put_all(connection, T, given)

    assert await put(records) == ["created", "created"]
    assert await put(records) == ["unchanged", "unchanged"]
    assert await put([GroupRecord("outer", "o", ["sake"], [])]) == ["replaced"]
    outer = await groups.get(T, "outer")
    assert (outer.contexts, outer.groups) == (["sake"], [])
    await refused(put([GroupRecord("new"), GroupRecord("inner", "i", [], ["new", "nowhere"])]), GROUP_NOT_FOUND)
    assert (await groups.list(T)).total == 2
    assert (await groups.get(T, "inner")).contexts == ["beer", "sake"]


async def test_a_deleted_context_leaves_its_groups(kit, groups):
    await groups.create(T, "g", contexts=["tea", "sake"])
    await kit.contexts.delete(T, "tea")
    assert (await groups.get(T, "g")).contexts == ["sake"]


async def test_another_tenant_s_groups_are_not_there(kit, groups):
    other = uuid4()
    async with kit.database.owner() as connection:
        await connection.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, 'other')", other)
    await groups.create(T, "g", contexts=["tea"])
    for call in (
        groups.get(other, "g"),
        groups.update(other, "g", description="x"),
        groups.rename(other, "g", "h"),
        groups.delete(other, "g"),
    ):
        await refused(call, GROUP_NOT_FOUND)
    await refused(groups.create(other, "mine", contexts=["tea"]), CONTEXT_NOT_FOUND)
    assert (await groups.list(other)).total == 0
    await groups.create(other, "g")
    await groups.delete(other, "g")
    assert (await groups.get(T, "g")).contexts == ["tea"]


async def seed(graph):
    for name, weights in (("tea", (3.0, 1.0)), ("sake", (3.0, -2.0)), ("beer", (1.0, 2.0))):
        statements = [
            SourcedAssertion(Assertion("house", "brand", f"{name}{number}", weight), "doc.md")
            for number, weight in enumerate(weights)
        ]
        await graph.add_associations(T, name, statements)


async def test_a_question_to_several_contexts_is_one_rank(groups, graph):
    await seed(graph)
    await groups.create(T, "all", contexts=["tea", "sake", "beer"])
    page = await graph.query_across(T, subject="house", groups=["all"], contexts=["tea"])
    assert page.plan.contexts == ["tea", "beer", "sake"]
    assert page.total == 6
    assert [(fact.context, fact.object) for fact in page.matches] == [
        ("sake", "sake0"),
        ("tea", "tea0"),
        ("beer", "beer1"),
        ("sake", "sake1"),
        ("beer", "beer0"),
        ("tea", "tea1"),
    ]
    assert page.matches[0].attributions[0].source == "doc.md"
    assert (await graph.recall_across(T, "brand", contexts=["tea", "beer"])).total == 4
    await refused(graph.recall_across(T, "brand"), INVALID_REQUEST)
    await refused(graph.query_across(T, groups=["nowhere"]), GROUP_NOT_FOUND)


@pytest.mark.parametrize("size", [1, 2, 4])
async def test_pages_over_several_contexts_go_on_from_a_cursor(graph, size):
    await seed(graph)
    names = ["tea", "sake", "beer"]
    whole = (await graph.query_across(T, contexts=names)).matches
    seen, after = [], None
    while True:
        page = await graph.query_across(T, contexts=names, limit=size, after=after)
        assert page.total == 6
        if not page.matches:
            break
        seen += page.matches
        last = page.matches[-1]
        after = CrossMatchCursor(
            weight=last.weight, context=last.context, subject=last.subject, label=last.label, object=last.object
        )
    assert seen == whole


async def test_a_context_keeps_its_options_and_the_directory_shows_them(kit, groups):
    options = ContextOptions(is_pinned=True, dice_floor=0.25, semantic_floor=0.5)
    await kit.contexts.create(T, "kb", "text", options)
    row = (await kit.contexts.entry(T, "kb")).row
    assert (row.is_pinned, row.dice_floor, row.semantic_floor, row.description) == (True, 0.25, 0.5, "text")
    await kit.contexts.update(T, "kb", options=ContextOptions(is_pinned=False))
    row = (await kit.contexts.entry(T, "kb")).row
    assert (row.is_pinned, row.dice_floor) == (False, 0.25)
    await refused(kit.contexts.create(T, "bad", options=ContextOptions(dice_floor=1.5)), INVALID_REQUEST, "/dice_floor")
    await refused(kit.contexts.rename(T, "kb", "tea"), CONTEXT_EXISTS)
    assert (await kit.contexts.rename(T, "kb", "renamed")).name == "renamed"
    async with kit.database.work(T) as connection:
        made = await kit.contexts.ensure(connection, T, "fresh", description="d", options=options)
        again = await kit.contexts.ensure(connection, T, "fresh", description="other")
    assert (made.is_pinned, made.description, again.description) == (True, "d", "d")


async def test_the_directory_is_paged_by_name(kit, groups):
    await kit.contexts.create(T, "pinned", options=ContextOptions(is_pinned=True))
    names, after = [], None
    while page := await kit.contexts.directory(T, limit=2, after=after):
        assert page.total == 4
        if not page.entries:
            break
        names += [entry.row.name for entry in page.entries]
        after = names[-1]
    assert names == ["beer", "pinned", "sake", "tea"]
    pinned = await kit.contexts.directory(T, limit=10, is_pinned=True)
    assert (pinned.total, [entry.row.name for entry in pinned.entries]) == (1, ["pinned"])
    assert (await kit.contexts.directory(T, limit=10, after="\ud800\x00")).total == 4


async def test_reads_are_counted_and_written_down_before_they_are_shown(kit, graph):
    await seed(graph)
    await graph.query(T, "tea", subject="house")
    await graph.query(T, "tea", subject="nothing")
    await graph.resolve(T, "tea", "house")
    usage = (await kit.contexts.entry(T, "tea")).usage
    assert (usage.reads, usage.empty_reads, usage.writes) == (3, 1, 1)
    assert usage.last_read_at is not None
    assert usage.last_write_at is not None
    await graph.query(T, "tea", subject="house")
    await kit.contexts.delete(T, "tea")
    await kit.contexts.flush_usage()
    assert (await kit.contexts.entry(T, "sake")).usage.reads == 0


async def test_closing_writes_the_counts_down(kit, graph):
    await graph.query(T, "tea")
    await kit.contexts.close()
    await kit.contexts.close()
    assert (await rows(kit, "SELECT reads, empty_reads FROM context_usage"))[0][:] == (1, 1)
