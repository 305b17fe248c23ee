"""The server itself, the directory of contexts, groups, and searches across contexts."""

from __future__ import annotations

import json

import pytest
from taguru import (
    ConflictError,
    GroupImportOutcome,
    NotFoundError,
    PayloadTooLargeError,
    UnexpectedStatusError,
    ValidationError,
)

from wire.lighthouse import cursor, fact
from wire.public import World, listed, scenario


@scenario("client.live", "client.health", "client.wait_until_ready", "client.metrics", "client.protocol")
async def the_probes_answer(world: World) -> None:
    await world.client.wait_until_ready(timeout=10)
    assert await world.client.live() is None
    assert await world.client.health() is None
    assert "# TYPE " in await world.client.metrics()
    assert (await world.client.protocol()).startswith("# ")


@scenario("client.close", "client.context")
async def a_client_is_closed_and_another_goes_on(world: World) -> None:
    other = world.connect(retries=0)
    assert not await other.contexts.exists(world.name)
    await other.close()
    assert other.context(world.name).name == world.name
    assert not await world.client.contexts.exists(world.name)


@scenario("client.flush")
async def flush_leaves_nothing_to_be_written(world: World) -> None:
    context = await world.made()
    await context.recall("nobody")
    assert all(isinstance(name, str) for name in await world.client.flush())
    usage = (await world.client.contexts.get(world.name)).usage
    assert (usage.reads, usage.empty_reads) == (1, 1)
    assert world.name not in await world.client.flush()


@scenario("contexts.create", "contexts.get", "contexts.exists", "contexts.update", "contexts.rename", "contexts.delete")
async def a_context_lives_from_create_to_delete(world: World) -> None:
    contexts, name, renamed = world.client.contexts, world.name, f"{world.name}-b"
    assert await contexts.create(name, description="first", dice_floor=0.5) is True
    with pytest.raises(ConflictError) as twice:
        await contexts.create(name)
    assert (twice.value.status, twice.value.code) == (409, "already_exists")
    entry = await contexts.get(name)
    assert (entry.name, entry.description, entry.pinned, entry.dice_floor) == (name, "first", False, 0.5)
    assert (entry.semantic_floor, entry.stats.associations, entry.usage.writes) == (None, 0, 0)
    changed = await contexts.update(name, description="second", pinned=True, semantic_floor=0.25)
    assert (changed.description, changed.pinned, changed.semantic_floor) == ("second", True, 0.25)
    assert (changed.dice_floor, (await contexts.get(name)).revision.graph) == (0.5, 0)
    assert await contexts.rename(name, renamed) is True
    assert not await contexts.exists(name)
    assert (await contexts.get(renamed)).description == "second"
    assert await contexts.delete(renamed) is True
    for call in (contexts.get(renamed), contexts.delete(renamed), contexts.update(renamed, pinned=False)):
        with pytest.raises(NotFoundError) as gone:
            await call
        assert gone.value.code == "no_context"


@scenario("contexts.create", "contexts.update", "contexts.rename")
async def the_directory_refuses_what_does_not_fit(world: World) -> None:
    contexts = world.client.contexts
    await world.made()
    other = f"{world.name}-b"
    await contexts.create(other)
    for call in (
        contexts.create("x" * 129),
        contexts.create(f"{world.name}-c", description="x" * 4097),
        contexts.create(f"{world.name}-c", dice_floor=1.5),
        contexts.update(world.name, semantic_floor=-0.1),
    ):
        with pytest.raises(ValidationError):
            await call
    with pytest.raises(ConflictError):
        await contexts.rename(world.name, other)
    assert not await contexts.exists(f"{world.name}-c")


@scenario("contexts.list", "contexts.iter")
async def the_directory_is_read_in_pages(world: World) -> None:
    contexts = world.client.contexts
    names = [f"{world.name}-{letter}" for letter in "abc"]
    for name in names:
        await contexts.create(name, pinned=name.endswith("b"))
    page = await contexts.list(limit=2, after=f"{world.name}-")
    assert [entry.name for entry in page.contexts] == names[:2]
    assert page.total >= 3
    after = await contexts.list(limit=1000, after=names[1])
    assert after.total == page.total
    assert names[2] in [entry.name for entry in after.contexts]
    every = [entry.name for entry in await listed(contexts.iter(limit=2))]
    assert [name for name in every if name in names] == names
    pinned = [entry.name for entry in await listed(contexts.iter(limit=1, pinned=True))]
    assert [name for name in pinned if name in names] == [names[1]]
    assert (await contexts.list(pinned=True)).total == len(pinned)
    with pytest.raises(ValidationError) as over:
        await contexts.list(limit=1001)
    assert over.value.code == "over_limit"


@scenario("contexts.get")
async def names_of_any_script_address_a_context(world: World) -> None:
    name = f"蔵 ü %?#&+{world.name}"
    await world.client.contexts.create(name, description="どこか")
    await world.client.context(name).add_associations([fact("猫", "である", "動物")])
    entry = await world.client.contexts.get(name)
    assert (entry.name, entry.stats.associations) == (name, 1)
    assert (await world.client.context(name).recall("猫")).total == 1


@scenario("groups.create", "groups.get", "groups.exists", "groups.update", "groups.rename", "groups.delete")
async def a_group_lives_from_create_to_delete(world: World) -> None:
    groups = world.client.groups
    north, south = await _pair(world)
    name, child, renamed = f"{world.name}-g", f"{world.name}-h", f"{world.name}-i"
    assert not await groups.exists(name)
    assert await groups.create(name, description="both", contexts=[south]) is True
    with pytest.raises(ConflictError) as twice:
        await groups.create(name)
    assert twice.value.code == "already_exists"
    entry = await groups.get(name)
    assert (entry.name, entry.description, entry.contexts, entry.groups) == (name, "both", [south], [])
    grown = await groups.update(name, add_contexts=[north], remove_contexts=["never there"])
    assert grown.contexts == [north, south]
    assert grown.fingerprint != entry.fingerprint
    with pytest.raises(NotFoundError) as missing:
        await groups.update(name, add_contexts=[f"{world.name}-none"])
    assert missing.value.code == "no_context"
    await groups.create(child, contexts=[north])
    assert (await groups.update(name, add_groups=[child], remove_contexts=[south])).groups == [child]
    assert await groups.rename(name, renamed) is True
    with pytest.raises(NotFoundError) as moved:
        await groups.get(name)
    assert moved.value.code == "no_group"
    assert (await groups.get(renamed)).contexts == [north]
    await groups.rename(child, f"{child}-2")
    assert (await groups.get(renamed)).groups == [f"{child}-2"]
    assert await groups.delete(renamed) is True
    assert await groups.exists(f"{child}-2")
    assert await world.client.contexts.exists(south)


@scenario("groups.update")
async def groups_nest_three_high_and_never_in_a_circle(world: World) -> None:
    groups = world.client.groups
    names = [f"{world.name}-{height}" for height in range(4)]
    for name in names:
        await groups.create(name)
    for child, parent in ((0, 1), (1, 2)):
        await groups.update(names[parent], add_groups=[names[child]])
    for child, parent in ((2, 3), (2, 0), (0, 0)):
        with pytest.raises((ValidationError, ConflictError)):
            await groups.update(names[parent], add_groups=[names[child]])
    with pytest.raises(NotFoundError) as missing:
        await groups.update(names[0], add_groups=[f"{world.name}-none"])
    assert missing.value.code == "no_group"


@scenario("groups.list", "groups.iter")
async def groups_are_read_in_pages(world: World) -> None:
    groups = world.client.groups
    names = [f"{world.name}-{letter}" for letter in "abc"]
    for name in names:
        await groups.create(name)
    page = await groups.list(limit=2, after=f"{world.name}-")
    assert [entry.name for entry in page.groups] == names[:2]
    assert page.total >= 3
    every = [entry.name for entry in await listed(groups.iter(limit=2))]
    assert [name for name in every if name in names] == names


@scenario("groups.export", "client.import_batches")
async def a_group_is_exported_and_restored(world: World) -> None:
    groups = world.client.groups
    north, south = await _pair(world)
    name = f"{world.name}-g"
    await groups.create(name, description="both", contexts=[south, north])
    line = await groups.export(name)
    record = json.loads(line)
    assert (record["taguru_group"], record["name"], record["contexts"]) == (1, name, [north, south])
    unchanged = await world.client.import_batches(line)
    assert unchanged.groups == [GroupImportOutcome(name=name, outcome="unchanged", contexts=2, groups=0)]
    await groups.delete(name)
    restored = await world.client.import_batches(line)
    assert restored.groups == [GroupImportOutcome(name=name, outcome="created", contexts=2, groups=0)]
    assert restored.batches == []
    assert (await groups.get(name)).description == "both"
    await groups.update(name, remove_contexts=[south])
    assert (await world.client.import_batches(line)).groups[0].outcome == "replaced"
    assert (await groups.get(name)).contexts == [north, south]


@scenario("client.recall", "client.query", "client.search_passages")
async def a_search_across_contexts_says_where_each_match_is_from(world: World) -> None:
    client, group = world.client, f"{world.name}-g"
    north, south = await _pair(world)
    await client.groups.create(group, contexts=[north, south])
    page = await client.recall("keeper", contexts=[south, north])
    assert page.total == 2
    assert {(match.context, match.object) for match in page.matches} == {(north, "Ida"), (south, "Olaf")}
    assert page.plan.contexts == [south, north]
    page = await client.query(label="keeper", groups=[group], contexts=[north])
    assert page.total == 2
    assert set(page.plan.contexts) == {north, south}
    first = await client.query(label="keeper", groups=[group], limit=1)
    rest = await client.query(label="keeper", groups=[group], after=cursor(first.matches[0], "context"))
    assert (first.total, rest.total) == (2, 2)
    assert {match.context for match in [*first.matches, *rest.matches]} == {north, south}
    typed = await client.query(label="keeper", contexts=[north], subject_types="Light")
    assert typed.total == 0
    found = await client.search_passages("The keeper of the light is Ida.", contexts=[north, south], limit=4)
    assert [hit.context for hit in found.hits[:2]] == [north, south]
    assert all(hit.text for hit in found.hits)
    assert [entry.context for entry in found.plan.contexts] == [north, south]
    tagged = await client.search_passages("keeper of the light", groups=[group], tags=["old"])
    assert {hit.context for hit in tagged.hits} == {south}
    assert all(entry.filter is not None for entry in tagged.plan.contexts)


@scenario("client.recall", "client.query", "client.search_passages")
async def a_search_across_contexts_needs_contexts_that_exist(world: World) -> None:
    client = world.client
    for call in (
        client.recall("keeper", contexts=[]),
        client.query(label="keeper"),
        client.search_passages("keeper", contexts=[]),
    ):
        with pytest.raises(ValidationError) as empty:
            await call
        assert empty.value.code == "invalid_argument"
    with pytest.raises(NotFoundError) as no_group:
        await client.recall("keeper", groups=[f"{world.name}-none"])
    assert no_group.value.code == "no_group"
    with pytest.raises(NotFoundError) as no_context:
        await client.search_passages("keeper", contexts=[f"{world.name}-none"])
    assert no_context.value.code == "no_context"
    with pytest.raises(ValidationError) as many:
        await client.recall("keeper", contexts=["x"] * 1001)
    assert many.value.code == "over_limit"


@scenario("context.add_associations", "context.changes")
async def a_body_that_is_too_large_and_a_position_that_is_lost_have_their_own_answers(world: World) -> None:
    context = await world.made()
    with pytest.raises(PayloadTooLargeError) as large:
        await context.add_associations([fact("s", "l", "o" * (9 * 1024 * 1024))])
    assert large.value.code == "payload_too_large"
    position = (await context.changes()).next
    await world.client.contexts.delete(world.name)
    await world.made()
    with pytest.raises(UnexpectedStatusError) as stale:
        await context.changes(since=position)
    assert (stale.value.status, stale.value.code) == (410, "stale_cursor")
    assert (await context.changes()).events == []


async def _pair(world: World) -> tuple[str, str]:
    """Make two contexts that hold one fact and one paragraph each; return their names in order."""
    names = (f"{world.name}-n", f"{world.name}-s")
    for name, keeper, tags in ((names[0], "Ida", ["new"]), (names[1], "Olaf", ["old"])):
        await world.client.contexts.create(name)
        context = world.client.context(name)
        source = f"{keeper.lower()}.md"
        await context.store_passages({source: f"The keeper of the light is {keeper}."}, tags={source: tags})
        await context.add_associations([fact("the light", "keeper", keeper, source=source, paragraph=0)])
    return names
