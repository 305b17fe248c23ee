"""Hints over a real database: kept, imported, derived, matched, and apart between tenants and contexts."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest

from strata.errors import CONFLICT, CONTEXT_NOT_FOUND, HINT_NOT_FOUND, INVALID_REQUEST, StrataError
from strata.hints.derive import SourceHints
from strata.hints.matching import match
from strata.hints.names import read_question
from strata.hints.schemas import HintInput, HintOrigin
from strata.hints.service import HintService
from strata.knowledge.service import ContextService
from strata.platform.ids import DEFAULT_TENANT, new_id

pytestmark = pytest.mark.database
DOCS = Path(__file__).parents[2] / "docs" / "hints.md"


@pytest.fixture
def contexts(database):
    return ContextService(database)


@pytest.fixture
def hints(database, contexts):
    return HintService(database, contexts)


@pytest.fixture
async def owner(dsn):
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def context_id(database, contexts, name="hr", tenant=DEFAULT_TENANT) -> UUID:
    async with database.work(tenant) as connection:
        return (await contexts.ensure(connection, tenant, name)).context_id


async def ask(database, contexts, hints, query, *names, tenant=DEFAULT_TENANT):
    async with database.work(tenant) as connection:
        ids = [(await contexts.resolve(connection, tenant, name)).context_id for name in names or ("hr",)]
        return await hints.match(connection, tenant, ids, query)


async def titles(*args, **kwargs):
    return [found.entry.title for found in await ask(*args, **kwargs)]


async def revision(owner, context):
    return await owner.fetchval("SELECT hints_revision FROM context WHERE context_id = $1", context)


async def add_sources(owner, context, paths, tenant=DEFAULT_TENANT):
    ids = [new_id() for _ in paths]
    serial = await owner.fetchval("SELECT coalesce(max(serial), 0) FROM source")
    await owner.execute(
        """
        INSERT INTO source (tenant_id, context_id, source_id, serial, path, format, content_sha256, fingerprint,
                            original_bytes, text_bytes, passage_count)
        SELECT $1, $2, s.id, $3 + s.n, s.path, 'text', '', '', 0, 0, 0
        FROM unnest($4::uuid[], $5::text[]) WITH ORDINALITY AS s (id, path, n)
        """,
        tenant,
        context,
        serial,
        ids,
        paths,
    )
    return ids


async def test_a_hint_is_stored_found_replaced_by_title_and_deleted(hints, database, contexts, owner):
    report = await hints.put(DEFAULT_TENANT, "hr", [HintInput(title="Annual leave", aliases=["PTO"], category="hr")])
    assert (report.created, report.updated, report.unchanged) == (1, 0, 0)
    again = await hints.put(DEFAULT_TENANT, "hr", [HintInput(title="ANNUAL  LEAVE", aliases=["holidays"])])
    assert (again.updated, again.ids) == (1, report.ids)
    same = await hints.put(DEFAULT_TENANT, "hr", [HintInput(title="ANNUAL LEAVE", aliases=["holidays"])])
    assert (same.updated, same.unchanged) == (0, 1)
    entry = await hints.get(DEFAULT_TENANT, "hr", report.ids[0])
    assert (entry.aliases, entry.category, entry.origin) == (["holidays"], None, HintOrigin.CURATED)
    assert entry.updated_at > entry.created_at
    assert await titles(database, contexts, hints, "holidays") == ["ANNUAL LEAVE"]
    assert await titles(database, contexts, hints, "pto") == []
    await hints.delete(DEFAULT_TENANT, "hr", report.ids[0])
    assert await titles(database, contexts, hints, "holidays") == []
    assert await owner.fetchval("SELECT count(*) FROM hint_key") == 0
    with pytest.raises(StrataError) as raised:
        await hints.delete(DEFAULT_TENANT, "hr", report.ids[0])
    assert raised.value.kind is HINT_NOT_FOUND


async def test_every_change_moves_the_revision_and_nothing_else_does(hints, database, contexts, owner):
    context = await context_id(database, contexts)
    seen = [await revision(owner, context)]

    async def moved():
        seen.append(await revision(owner, context))
        return seen[-1] - seen[-2]

    report = await hints.put(DEFAULT_TENANT, "hr", [HintInput(title="a1"), HintInput(title="b1")])
    assert await moved() == 1
    await hints.put(DEFAULT_TENANT, "hr", [HintInput(title="a1")])
    assert await moved() == 0
    with pytest.raises(StrataError):
        await hints.put(DEFAULT_TENANT, "hr", [HintInput(title="c1"), HintInput(title="!")])
    assert await moved() == 0
    await hints.delete(DEFAULT_TENANT, "hr", report.ids[0])
    assert await moved() == 1
    (source,) = await add_sources(owner, context, ["a.md"])
    async with database.work(DEFAULT_TENANT) as connection:
        await hints.replace_for_source(connection, DEFAULT_TENANT, context, source, SourceHints("a.md", "Doc"))
    assert await moved() == 1
    async with database.work(DEFAULT_TENANT) as connection:
        await hints.remove_for_sources(connection, DEFAULT_TENANT, context, [source])
        await hints.remove_for_sources(connection, DEFAULT_TENANT, context, [source])
    assert await moved() == 1


async def test_each_reason_is_found_through_the_database(hints, database, contexts):
    await hints.put(
        DEFAULT_TENANT,
        "hr",
        [HintInput(title="Annual leave policy", aliases=["有給休暇"], keywords=["days off", "育児休業"])],
    )
    expected = {
        "annual leave policy": ("L0_EXACT",),
        "有給休暇": ("L0_ALIAS",),
        "有給休暇は何日ありますか": ("L0_ALIAS",),
        "where is our annual leave policy kept in these modern times": ("L0_ALIAS",),
        "annual le": ("L0_PREFIX", "L0_FUZZY:0.61"),
        "can i take off some days": ("L0_KEYWORD",),
        "育児休業の期間": ("L0_KEYWORD",),
        "anual leav policy": ("L0_FUZZY:0.87",),
        "\x00\ud800": (),
        "%' OR 1=1 --": (),
    }
    for query, reasons in expected.items():
        found = await ask(database, contexts, hints, query)
        assert (found[0].reasons if found else ()) == reasons, query


async def test_fuzzy_matching_follows_every_change_at_once(hints, database, contexts):
    for number in range(3):
        await hints.put(DEFAULT_TENANT, "hr", [HintInput(title=f"Expense handbook {number}" + "x" * number)])
        found = await titles(database, contexts, hints, f"expnse handbok {number}" + "x" * number)
        assert f"Expense handbook {number}" + "x" * number in found


async def test_a_hint_is_valid_by_the_clock_of_the_database(hints, database, contexts, owner):
    now = await owner.fetchval("SELECT now()")
    day = timedelta(days=1)
    await hints.put(
        DEFAULT_TENANT,
        "hr",
        [
            HintInput(title="old one", aliases=["rates"], valid_until=now - day),
            HintInput(title="new one", aliases=["rates"], valid_from=now - day, valid_until=now + day),
            HintInput(title="next one", aliases=["rates"], valid_from=now + day),
        ],
    )
    assert await titles(database, contexts, hints, "rates") == ["new one"]
    assert await titles(database, contexts, hints, "old one") == []
    assert await titles(database, contexts, hints, "od one") == []


async def test_contexts_are_apart_and_can_be_asked_together(hints, database, contexts):
    for name in ("hr", "law"):
        await hints.put(DEFAULT_TENANT, name, [HintInput(title=f"Leave in {name}", aliases=["leave"])])
    assert await titles(database, contexts, hints, "leave", "hr") == ["Leave in hr"]
    assert await titles(database, contexts, hints, "leave", "hr", "law", "hr") == ["Leave in hr", "Leave in law"]
    assert await titles(database, contexts, hints, "leeave in law", "hr", "law") == ["Leave in law", "Leave in hr"]


async def test_the_same_key_in_two_tenants_is_two_hints_everywhere(hints, database, contexts, owner):
    """One id, one title, one context name in two tenants: reads, writes, matches and counts stay apart."""
    tenants = [uuid4(), uuid4()]
    shared = new_id()
    for number, tenant in enumerate(tenants):
        await owner.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, $2)", tenant, f"t{number}")
        await hints.put(tenant, "hr", [HintInput(id=shared, title="Leave", summary=f"of {number}")])
    for number, tenant in enumerate(tenants):
        assert (await hints.get(tenant, "hr", shared)).summary == f"of {number}"
        assert [e.summary for e in (await hints.list(tenant, "hr")).hints] == [f"of {number}"]
        (found,) = await ask(database, contexts, hints, "leave", tenant=tenant)
        assert found.entry.summary == f"of {number}"
    theirs = await context_id(database, contexts, tenant=tenants[1])
    with pytest.raises(StrataError) as raised:
        await hints.get(tenants[0], str(theirs), shared)
    assert raised.value.kind is CONTEXT_NOT_FOUND
    async with database.work(tenants[0]) as connection:
        assert list(await hints.match(connection, tenants[0], [theirs], "leave")) == []
        assert list(await hints.match(connection, tenants[0], [theirs], "leavee")) == []
    await hints.delete(tenants[0], "hr", shared)
    assert (await hints.get(tenants[1], "hr", shared)).summary == "of 1"
    assert await owner.fetchval("SELECT count(*) FROM hint_key") == 1


async def test_what_a_source_gives_changes_and_goes_with_it(hints, database, contexts, owner):
    context = await context_id(database, contexts)
    first, second = await add_sources(owner, context, ["a.md", "b.md"])

    async def give(source, path, title, **fields):
        async with database.work(DEFAULT_TENANT) as connection:
            offered = SourceHints(path, title, **fields)
            await hints.replace_for_source(connection, DEFAULT_TENANT, context, source, offered)

    await give(
        first,
        "a.md",
        "Leave guide",
        category="hr",
        front_matter={"aliases": ["PTO"]},
        sections=[("Sick leave", "sick", ["Leave guide", "Sick leave"])],
    )
    await give(second, "b.md", "Travel guide")
    (found,) = await ask(database, contexts, hints, "sick leave")
    assert (found.entry.targets, found.entry.source_id, found.entry.category) == (["a.md#sick"], first, "hr")
    assert await titles(database, contexts, hints, "pto") == ["Leave guide"]
    await give(first, "a.md", "Leave guide", sections=[("Parental leave", "parental", [])])
    assert await titles(database, contexts, hints, "pto") == []
    assert await titles(database, contexts, hints, "sick leave") == []
    (entry,) = [e for e in (await hints.list(DEFAULT_TENANT, "hr")).hints if e.title == "Parental leave"]
    for refused in (
        hints.delete(DEFAULT_TENANT, "hr", entry.hint_id),
        hints.put(DEFAULT_TENANT, "hr", [HintInput(id=entry.hint_id, title="x")]),
    ):
        with pytest.raises(StrataError) as raised:
            await refused
        assert raised.value.kind is CONFLICT
    await owner.execute("DELETE FROM source WHERE source_id = $1", first)
    assert await titles(database, contexts, hints, "parental leave") == []
    assert await titles(database, contexts, hints, "travel guide") == ["Travel guide"]
    assert await owner.fetchval("SELECT count(*) FROM hint_key") == 1


async def test_deleting_the_context_deletes_its_hints(hints, contexts, owner):
    await hints.put(DEFAULT_TENANT, "hr", [HintInput(title="Leave", keywords=["days off"])])
    await contexts.delete(DEFAULT_TENANT, "hr")
    assert await owner.fetchval("SELECT count(*) FROM hint_entry") == 0
    assert await owner.fetchval("SELECT count(*) FROM hint_key") == 0


@pytest.mark.parametrize(
    ("sent", "pointer"),
    [
        ([HintInput(title="new"), HintInput(title="Ｎｅｗ")], "/hints/1/title"),
        ([HintInput(title="new", aliases=["ok", ""])], "/hints/0/aliases/1"),
    ],
)
async def test_a_refused_call_stores_nothing(hints, contexts, sent, pointer):
    with pytest.raises(StrataError) as raised:
        await hints.put(DEFAULT_TENANT, "hr", sent)
    assert (raised.value.kind, raised.value.pointer) == (INVALID_REQUEST, pointer)
    assert (await contexts.list(DEFAULT_TENANT)).contexts == []


async def test_titles_stay_unique_among_curated_hints_and_may_be_swapped(hints):
    report = await hints.put(DEFAULT_TENANT, "hr", [HintInput(title="one"), HintInput(title="two")])
    one, two = report.ids
    with pytest.raises(StrataError) as raised:
        await hints.put(DEFAULT_TENANT, "hr", [HintInput(id=one, title="Two")])
    assert (raised.value.kind, raised.value.pointer) == (CONFLICT, "/hints/0/title")
    await hints.put(DEFAULT_TENANT, "hr", [HintInput(id=one, title="two"), HintInput(id=two, title="one")])
    assert (await hints.get(DEFAULT_TENANT, "hr", one)).title == "two"
    with pytest.raises(StrataError):
        await hints.put(DEFAULT_TENANT, "hr", [HintInput(id=one, title="three"), HintInput(title="two")])


async def test_writers_at_the_same_moment_make_one_hint_of_one_title(hints, owner):
    reports = await asyncio.gather(
        *(hints.put(DEFAULT_TENANT, "hr", [HintInput(title="Leave", summary=str(n))]) for n in range(8))
    )
    assert sum(report.created for report in reports) == 1
    assert len({report.ids[0] for report in reports}) == 1
    assert await owner.fetchval("SELECT count(*) FROM hint_entry") == 1
    assert await owner.fetchval("SELECT hints_revision FROM context") == 8


async def test_pages_list_every_hint_once(hints):
    await hints.put(DEFAULT_TENANT, "hr", [HintInput(title=f"hint {n}") for n in range(7)])
    seen, cursor = [], None
    while True:
        page = await hints.list(DEFAULT_TENANT, "hr", origin=HintOrigin.CURATED, limit=3, cursor=cursor)
        seen += [entry.title for entry in page.hints]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(seen) == [f"hint {n}" for n in range(7)]
    assert (await hints.list(DEFAULT_TENANT, "hr", origin=HintOrigin.DERIVED)).hints == []
    for wrong in ({"limit": 0}, {"limit": 1001}, {"cursor": "x"}):
        with pytest.raises(StrataError) as raised:
            await hints.list(DEFAULT_TENANT, "hr", **wrong)
        assert raised.value.kind is INVALID_REQUEST


async def test_the_file_in_the_documentation_can_be_imported_and_exported(hints, database, contexts, tmp_path):
    block = re.search(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)[1]
    path = tmp_path / "hints.yaml"
    path.write_text(block, encoding="utf-8")
    report = await hints.import_file(DEFAULT_TENANT, "hr", path)
    assert report.created == 2
    assert await titles(database, contexts, hints, "what about PTO") == ["Annual leave policy"]
    page = await hints.list(DEFAULT_TENANT, "hr")
    assert page.hints[1].valid_from == datetime(2026, 1, 1, tzinfo=UTC)
    for file_format in ("yaml", "json", "jsonl"):
        text = await hints.export(DEFAULT_TENANT, "hr", file_format)
        again = await hints.import_file(DEFAULT_TENANT, "hr", text.encode(), file_format)
        assert (again.unchanged, again.created, again.updated) == (2, 0, 0)


async def test_a_faulty_file_leaves_nothing_behind(hints, contexts, tmp_path):
    with pytest.raises(StrataError) as raised:
        await hints.import_file(DEFAULT_TENANT, "hr", b"- title: a\n- title: A\n- nonsense: 1\n")
    assert "Entry 3 (line 3)" in raised.value.detail
    with pytest.raises(StrataError) as raised:
        await hints.import_file(DEFAULT_TENANT, "hr", b"- title: a\n- title: A\n")
    assert raised.value.pointer == "/1/title"
    for path in (tmp_path / "missing.yaml", tmp_path / "hints.txt", tmp_path):
        with pytest.raises(StrataError) as raised:
            await hints.import_file(DEFAULT_TENANT, "hr", path)
        assert raised.value.kind is INVALID_REQUEST
    assert (await contexts.list(DEFAULT_TENANT)).contexts == []


async def test_the_probes_find_what_comparing_with_every_hint_finds(hints, database, contexts):
    sent = [
        HintInput(title="Annual leave", aliases=["有給休暇", "PTO"], keywords=["days off", "休暇"]),
        HintInput(title="Annual leave policy", priority=5, keywords=["annual"]),
        HintInput(title="東京都", aliases=["Tokyo"]),
        HintInput(title="京都", keywords=["C++ guide"]),
        HintInput(title="long " * 60 + "title", aliases=["long"]),
    ]
    await hints.put(DEFAULT_TENANT, "hr", sent)
    every = (await hints.list(DEFAULT_TENANT, "hr")).hints
    queries = [
        "annual leave",
        "annual leav",
        "what is the annual leave policy for days off",
        "東京都の休暇と有給休暇",
        "京都",
        "a guide to C++",
        "anual leave polciy",
        "long " * 60 + "title",
        "long " * 20,
        "tokio",
    ]
    for query in queries:
        found = await ask(database, contexts, hints, query)
        assert list(found) == match(read_question(query), every), query


async def test_a_lookup_stays_fast_with_twenty_thousand_titles(hints, database, contexts, owner, capsys):
    context = await context_id(database, contexts)
    words = ["protein", "market", "tax", "leave", "kernel", "climate", "virus", "budget", "contract", "engine"]
    made = [f"{words[n % 10]} {words[n // 10 % 10]} study {n} of {words[n // 100 % 10]}" for n in range(20_000)]
    ids = await add_sources(owner, context, [f"{n}.md" for n in range(len(made))])
    await owner.execute("ANALYZE source")
    began = time.perf_counter()
    async with database.work(DEFAULT_TENANT, timeout_seconds=120) as connection:
        offered = [(source, SourceHints(f"{n}.md", made[n])) for n, source in enumerate(ids)]
        await hints.replace_for_sources(connection, DEFAULT_TENANT, context, offered)
    loaded = time.perf_counter() - began
    query = f"what does the {made[777]} say about tax"
    times = []
    async with database.work(DEFAULT_TENANT) as connection:
        for _ in range(30):
            began = time.perf_counter()
            found = await hints.match(connection, DEFAULT_TENANT, [context], query)
            times.append((time.perf_counter() - began) * 1000)
    with capsys.disabled():
        print(f"\n20,000 derived titles: stored in {loaded:.1f} s, match median {sorted(times)[15]:.2f} ms")  # noqa: T201
    assert found[0].entry.title == made[777]
    assert found[0].is_confident
