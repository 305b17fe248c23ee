"""Contexts: named once, found by id or name, deleted whole."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from ingest_support import make_kit, rows
from strata.errors import CONTEXT_EXISTS, CONTEXT_NOT_FOUND, INVALID_REQUEST, StrataError
from strata.platform.ids import DEFAULT_TENANT as T
from strata.sources.model import DocumentInput

pytestmark = pytest.mark.database

UNUSED_ID = "5f0c1a7e-3b52-4d8e-9a61-7c2f40d9b8e3"


@pytest.fixture
async def kit(database, settings):
    made = make_kit(database, settings)
    yield made
    await made.sources.close()


async def test_a_context_is_found_by_name_and_by_id(kit):
    made = await kit.contexts.create(T, "  Häuser 日本 😀 ", "what\nit is")
    assert made.name == "Häuser 日本 😀"
    assert await kit.contexts.get(T, made.name) == made
    assert await kit.contexts.get(T, str(made.id)) == made
    assert await kit.contexts.get(T, str(made.id).upper()) == made
    assert (made.sources, made.passages, made.revisions.passages) == (0, 0, 0)


async def test_two_spellings_of_one_name_are_one_context(kit):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    made = await kit.contexts.create(T, decomposed)
    assert made.name == composed
    for spelling in (composed, decomposed):
        assert (await kit.contexts.get(T, spelling)).id == made.id
        with pytest.raises(StrataError) as raised:
            await kit.contexts.create(T, spelling)
        assert raised.value.kind is CONTEXT_EXISTS
    async with kit.database.work(T) as connection:
        assert (await kit.contexts.ensure(connection, T, decomposed)).context_id == made.id
        assert len(await kit.contexts.resolve_many(connection, T, [composed, decomposed])) == 1


async def test_a_name_is_given_once(kit):
    await kit.contexts.create(T, "kb")
    await kit.contexts.create(T, "other")
    for call in (kit.contexts.create(T, "kb"), kit.contexts.update(T, "other", name="kb")):
        with pytest.raises(StrataError) as raised:
            await call
        assert (raised.value.kind, raised.value.pointer) == (CONTEXT_EXISTS, "/name")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "   ",
        "x" * 129,
        "a\x00b",
        "a\nb",
        "\ud800",
        "\u2028",
        "\u200b",
        "\u2067 \u2069",
        "\u0301",
        UNUSED_ID,
        UNUSED_ID.replace("-", ""),
        f"{{{UNUSED_ID}}}",
    ],
)
async def test_a_name_that_cannot_be_one_is_refused(kit, name):
    with pytest.raises(StrataError) as raised:
        await kit.contexts.create(T, name)
    assert (raised.value.kind, raised.value.pointer) == (INVALID_REQUEST, "/name")


@pytest.mark.parametrize("ref", ["nothing", "", "\x00", "\ud800", UNUSED_ID, "x" * 5000])
async def test_an_unknown_context_is_not_found(kit, ref):
    for call in (kit.contexts.get(T, ref), kit.contexts.delete(T, ref), kit.contexts.update(T, ref, description="x")):
        with pytest.raises(StrataError) as raised:
            await call
        assert raised.value.kind is CONTEXT_NOT_FOUND


async def test_several_contexts_resolve_in_the_order_asked_each_once(kit):
    one, two = await kit.contexts.create(T, "one"), await kit.contexts.create(T, "two")
    async with kit.database.work(T) as connection:
        found = await kit.contexts.resolve_many(connection, T, ["two", "one", str(two.id)], pointer="/context")
        assert [row.context_id for row in found] == [two.id, one.id]
        with pytest.raises(StrataError) as raised:
            await kit.contexts.resolve_many(connection, T, ["two", "three"], pointer="/context")
        assert raised.value.pointer == "/context/1"


async def test_renaming_keeps_the_id_and_moves_the_config_revision(kit):
    made = await kit.contexts.create(T, "old", "d")
    changed = await kit.contexts.update(T, "old", name="new")
    assert (changed.id, changed.name, changed.description, changed.revisions.config) == (made.id, "new", "d", 1)
    assert (await kit.contexts.update(T, "new", description="")).description == ""
    assert [view.name for view in (await kit.contexts.list(T)).contexts] == ["new"]


async def test_one_name_asked_for_at_once_makes_one_context(kit):
    async def ensure():
        async with kit.database.work(T) as connection:
            return (await kit.contexts.ensure(connection, T, "kb")).context_id

    assert len(set(await asyncio.gather(*(ensure() for _ in range(8))))) == 1


async def test_an_unknown_id_makes_no_context(kit):
    async with kit.database.work(T) as connection:
        with pytest.raises(StrataError) as raised:
            await kit.contexts.ensure(connection, T, str(uuid4()), pointer="/context")
    assert (raised.value.kind, raised.value.pointer) == (CONTEXT_NOT_FOUND, "/context")


async def test_deleting_a_context_takes_all_of_it_and_nothing_else(kit):
    for name in ("one", "two"):
        await kit.sources.ingest(T, name, [DocumentInput(path="a.md", content=f"# Head\n\n{name} words")])
    before = {table: len(await rows(kit, f"SELECT 1 FROM {table}")) for table in TABLES}
    await kit.contexts.delete(T, "one")
    after = {table: len(await rows(kit, f"SELECT 1 FROM {table}")) for table in TABLES}
    assert after == {table: count // 2 for table, count in before.items()}
    assert (await kit.contexts.get(T, "two")).passages == 1


TABLES = (
    "context", "source", "source_content", "section", "passage", "lexical_segment", "lexical_posting", "hint_entry",
    "hint_key",
)  # fmt: skip
