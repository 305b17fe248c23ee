"""Ingest over a real database: whole or not at all, final when deleted, apart between contexts and tenants."""

from __future__ import annotations

import asyncio
import hashlib
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from ingest_support import check, make_kit, rows, search, texts
from strata.errors import (
    CONTEXT_NOT_FOUND,
    DATABASE_UNAVAILABLE,
    INVALID_REQUEST,
    SOURCE_NOT_FOUND,
    STATEMENT_TIMEOUT,
    StrataError,
)
from strata.lanes.lexical import repository as lexical_repository
from strata.platform.ids import DEFAULT_TENANT as T
from strata.sources import store as store_module
from strata.sources import write_repository
from strata.sources.model import DocumentInput

pytestmark = pytest.mark.database


@pytest.fixture
async def kit(database, settings):
    made = make_kit(database, settings)
    yield made
    await made.sources.close()


@pytest.fixture
async def other_tenant(dsn):
    tenant = uuid4()
    connection = await asyncpg.connect(dsn)
    await connection.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, 'other')", tenant)
    await connection.close()
    return tenant


def doc(path, content, **more):
    return DocumentInput(path=path, content=content, **more)


async def put(kit, *documents, context="kb", tenant=T):
    return await kit.sources.ingest(tenant, context, documents)


MARKDOWN = """---
title: Leave policy
category: hr
tags: [leave, people]
date: 2024-05-01
language: English
aliases: [vacation rules]
---
# Leave

Everyone has twenty-five days.

## Carry over

Ten days move to the next year.
"""


async def test_one_document_fills_every_table(kit):
    report = await put(kit, doc("hr/leave.md", MARKDOWN))
    assert (report.added, report.refused, report.passages) == (1, 0, 2)
    detail = await kit.sources.get(T, "kb", "hr/leave.md")
    assert (detail.title, detail.category, detail.tags, detail.language) == (
        "Leave policy",
        "hr",
        ["leave", "people"],
        "en",
    )
    assert detail.occurred_at.isoformat() == "2024-05-01T00:00:00+00:00"
    assert [(head.heading, head.breadcrumb) for head in detail.sections] == [
        ("Leave", ["Leave"]),
        ("Carry over", ["Leave", "Carry over"]),
    ]
    assert await search(kit, "kb", "carry over days") == ["hr/leave.md"]
    counts = await rows(kit, "SELECT count(*) FROM hint_entry WHERE source_id = $1", detail.id)
    assert counts[0][0] > 0
    await check(kit)


async def test_the_same_bytes_again_change_nothing(kit):
    await put(kit, doc("a.md", "# A\n\nalpha"))
    before = await kit.contexts.get(T, "kb")
    report = await put(kit, doc("a.md", "# A\n\nalpha"))
    assert (report.unchanged, report.added, report.replaced) == (1, 0, 0)
    assert report.outcomes[0].revision == 1
    assert (await kit.contexts.get(T, "kb")).revisions == before.revisions


async def test_changed_bytes_replace_the_source_and_keep_its_id(kit):
    first = await put(kit, doc("a.md", "# A\n\nalpha"))
    second = await put(kit, doc("a.md", "# A\n\nomega"))
    assert second.replaced == 1
    assert second.outcomes[0].id == first.outcomes[0].id
    assert second.outcomes[0].revision == 2
    assert await search(kit, "kb", "alpha") == []
    assert await search(kit, "kb", "omega") == ["a.md"]
    await check(kit)


async def test_changed_given_metadata_replaces_the_source(kit):
    await put(kit, doc("a.md", "alpha"))
    report = await put(kit, doc("a.md", "alpha", category="new"))
    assert report.replaced == 1
    assert (await kit.sources.get(T, "kb", "a.md")).category == "new"


async def test_given_fields_win_over_those_of_the_document(kit):
    await put(kit, doc("a.md", MARKDOWN, title="Mine", category="c", tags=("t",), occurred_at="2020-01-02T03:04:05Z"))
    detail = await kit.sources.get(T, "kb", "a.md")
    assert (detail.title, detail.category, detail.tags) == ("Mine", "c", ["t"])
    assert detail.occurred_at.isoformat() == "2020-01-02T03:04:05+00:00"


async def test_a_bad_document_is_refused_with_its_pointer_and_the_others_are_taken_in(kit):
    report = await put(
        kit,
        doc("a.md", "alpha"),
        doc("broken.pdf", b"%PDF-1.7 not a pdf"),
        doc("../up.md", "x"),
        doc("empty.md", ""),
        doc("b.md", "beta", occurred_at="soon"),
        doc("c.md", "gamma"),
    )
    assert (report.added, report.refused) == (2, 4)
    by_pointer = {refusal.pointer: refusal for refusal in report.refusals}
    assert by_pointer["/documents/1"].stage == "parse"
    assert by_pointer["/documents/1"].reason == "malformed"
    assert by_pointer["/documents/2/path"].code == "invalid_request"
    assert by_pointer["/documents/3"].reason == "empty"
    assert by_pointer["/documents/4/occurredAt"].code == "invalid_request"
    await check(kit)


async def test_of_two_documents_with_one_path_the_first_counts(kit):
    report = await put(kit, doc("a.md", "first"), doc("./x/../a.md", "second"))
    assert (report.added, report.refused) == (1, 1)
    assert (report.refusals[0].reason, report.refusals[0].pointer) == ("duplicate_path", "/documents/1")
    assert (await texts(kit))[("kb", "a.md")] == b"first"


async def test_nul_and_surrogates_are_cleaned_and_counted_also_in_metadata_keys(kit):
    metadata = {"ke\x00y": "va\x00lue", "\udbff": "lone", "nested": {"deep\x00": ["\ud835\udc00"]}}
    document = doc("u\x00gly.md", "speci\x00fic \udbff and \ud835\udc00", metadata=metadata, title="T\x00itle")
    report = await put(kit, document)
    assert report.refused == 0
    detail = await kit.sources.get(T, "kb", "ugly.md")
    assert detail.title == "Title"
    assert detail.metadata == {"key": "value", "": "lone", "nested": {"deep": ["\U0001d400"]}}
    assert detail.normalisation["nul"] == 6
    assert detail.normalisation["lone_surrogates"] == 2
    assert detail.normalisation["split_pairs"] == 2
    assert report.normalisation == detail.normalisation
    assert (await texts(kit))[("kb", "ugly.md")] == "specific  and \U0001d400".encode()


@pytest.mark.parametrize(
    "text",
    [
        "日本語の文書です。短い文。",
        "مرحبا بالعالم",
        "😀👩‍👩‍👧‍👦 flags 🇯🇵",
        "\u202eright to left\u202c",
        "a\r\nb\fc",
        "x" * 400_000,
        "\n\n \n." * 500,
    ],
)
async def test_ugly_texts_are_stored_exactly_and_pass_every_check(kit, text):
    report = await put(kit, doc("t.txt", text))
    assert report.refused == 0
    await check(kit)


async def test_a_document_without_a_name_is_named_by_its_identity_or_its_bytes(kit):
    report = await put(
        kit,
        DocumentInput(content="by doi", metadata={"doi": "10.1/x"}),
        DocumentInput(content="by bytes", title="Some Title"),
    )
    assert report.added == 2
    found = {
        row[0].partition(":")[0]: (row[1], row[2])
        for row in await rows(kit, "SELECT path, source_key, source_key_basis FROM source")
    }
    assert found["meta"][1] == "METADATA"
    assert found["meta"][0].startswith("meta:")
    assert found["text"] == ("title:some title", "TITLE")
    again = await put(kit, DocumentInput(content="by doi, changed", metadata={"doi": "10.1/x"}))
    assert again.replaced == 1


async def test_an_explicit_source_key_is_kept(kit):
    await put(kit, doc("a.md", "---\nsource_key: K-1\n---\nx"), doc("b.md", "y", source_key="K-2"))
    found = await rows(kit, "SELECT path, source_key, source_key_basis FROM source ORDER BY path")
    assert [tuple(row) for row in found] == [("a.md", "K-1", "EXPLICIT"), ("b.md", "K-2", "EXPLICIT")]


async def test_a_corpus_in_one_document_becomes_many_sources(kit):
    lines = b'{"_id":"1","title":"One","text":"uno"}\nnot json\n{"_id":"2","title":"","text":"dos"}\n'
    report = await put(kit, doc("corpus.jsonl", lines))
    assert (report.added, report.refused) == (2, 1)
    assert report.refusals[0].path == "corpus.jsonl#2"
    assert [source.path for source in (await kit.sources.list(T, "kb")).sources] == ["1", "2"]


async def test_readers_see_the_old_revision_whole_or_the_new_one_whole(kit):
    old, new = (f"# H\n\n{word} one\n\n## B\n\n{word} two\n" for word in ("former", "latter"))
    await put(kit, doc("a.md", old))
    stop = asyncio.Event()
    seen = set()

    async def read():
        while not stop.is_set():
            async with kit.database.work(T, snapshot=True) as connection:
                content = await connection.fetchval("SELECT content FROM source_content")
                ranges = await connection.fetch("SELECT start_byte, end_byte, sha256 FROM passage ORDER BY passage_id")
            assert all(hashlib.sha256(content[row[0] : row[1]]).digest() == row[2] for row in ranges)
            assert len(ranges) == 2
            seen.add(content)
            hits = [await search(kit, "kb", word) for word in ("one",)]
            assert hits == [["a.md"]]

    readers = [asyncio.create_task(read()) for _ in range(3)]
    for round_ in range(12):
        await put(kit, doc("a.md", old if round_ % 2 else new))
    stop.set()
    await asyncio.gather(*readers)
    assert seen == {old.encode(), new.encode()}
    await check(kit)


async def test_what_is_deleted_is_found_by_nothing_at_once(kit):
    await put(kit, doc("gone.md", "# Secret\n\nzanzibar"), doc("kept.md", "# Kept\n\nzanzibar"))
    for _ in range(3):
        deletion = await kit.sources.delete(T, "kb", "gone.md")
        assert (deletion.sources, deletion.passages) == (1, 1)
        assert await search(kit, "kb", "zanzibar secret") == ["kept.md"]
        assert not await rows(kit, "SELECT 1 FROM hint_entry WHERE title = 'Secret'")
        with pytest.raises(StrataError) as raised:
            await kit.sources.get(T, "kb", "gone.md")
        assert raised.value.kind is SOURCE_NOT_FOUND
        await check(kit)
        await put(kit, doc("gone.md", "# Secret\n\nzanzibar"))
    await kit.sources.delete(T, "kb", "gone.md")
    await kit.sources.settle()
    assert not await rows(kit, "SELECT 1 FROM lexical_segment WHERE dead_count > 0")
    await check(kit)


async def test_the_same_bytes_in_two_contexts_and_tenants_are_apart(kit, other_tenant):
    for context, tenant in (("one", T), ("two", T), ("one", other_tenant)):
        assert (await put(kit, doc("a.md", "# Shared\n\nmarmalade"), context=context, tenant=tenant)).added == 1
    await kit.sources.delete(T, "one", "a.md")
    assert await search(kit, "one", "marmalade") == []
    assert await search(kit, "two", "marmalade") == ["a.md"]
    assert await search(kit, "one", "marmalade", tenant=other_tenant) == ["a.md"]
    await check(kit)
    await check(kit, other_tenant)


async def test_delete_all_stays_within_context_filter_and_tenant(kit, other_tenant):
    files = [doc("a/1.md", "x one"), doc("a/2.md", "x two", category="c"), doc("b/3.md", "x three")]
    for context, tenant in (("one", T), ("two", T), ("one", other_tenant)):
        await put(kit, *files, context=context, tenant=tenant)
    assert (await kit.sources.delete_all(T, "one", prefix="a/", category="c")).sources == 1
    assert (await kit.sources.delete_all(T, "one", prefix="a/")).sources == 1
    assert (await kit.sources.delete_all(T, "one")).sources == 1
    assert (await kit.sources.delete_all(T, "one")).sources == 0
    assert len((await kit.sources.list(T, "two")).sources) == 3
    assert len((await kit.sources.list(other_tenant, "one")).sources) == 3
    await check(kit)
    await check(kit, other_tenant)


async def test_a_foreign_context_is_not_found_by_name_or_id(kit, other_tenant):
    report = await put(kit, doc("a.md", "x"), context="theirs", tenant=other_tenant)
    for ref in ("theirs", str(report.context_id)):
        with pytest.raises(StrataError) as raised:
            await kit.sources.get(T, ref, "a.md")
        assert raised.value.kind is CONTEXT_NOT_FOUND
    with pytest.raises(StrataError) as raised:
        await put(kit, doc("a.md", "x"), context=str(report.context_id))
    assert raised.value.kind is CONTEXT_NOT_FOUND


async def test_the_same_upload_five_times_at_once_has_one_effect(kit):
    for body in ("alpha one", "beta two"):
        reports = await asyncio.gather(*(put(kit, doc("a.md", body), doc("b.md", body)) for _ in range(5)))
        assert sum(report.added + report.replaced for report in reports) == 2
        assert sum(report.unchanged for report in reports) == 8
    assert (await kit.sources.get(T, "kb", "a.md")).revision == 2
    await check(kit)


async def test_writers_deleters_and_merges_at_once_leave_a_consistent_index(kit):
    async def write(worker):
        for round_ in range(6):
            files = [doc(f"{number}.md", f"text {worker} {round_} {number}") for number in range(worker % 3, 12, 2)]
            await put(kit, *(files if worker % 2 else files[::-1]))

    async def delete():
        for number in range(12):
            await kit.sources.delete_all(T, "kb", prefix=f"{number}.")
            await asyncio.sleep(0.01)

    await put(kit, doc("0.md", "start"))
    await asyncio.gather(*(write(worker) for worker in range(4)), delete())
    await kit.sources.settle()
    await check(kit)


async def test_different_uploads_of_one_path_at_once_leave_one_of_them(kit):
    reports = await asyncio.gather(*(put(kit, doc("a.md", f"version {number}")) for number in range(6)))
    assert sum(report.added for report in reports) == 1
    assert sum(report.replaced for report in reports) == 5
    assert (await kit.sources.get(T, "kb", "a.md")).revision == 6
    await check(kit)


async def test_a_document_that_cannot_be_stored_stops_no_other(kit, monkeypatch):
    real = write_repository.insert_content

    async def poisoned(connection, tenant, context, placed):
        if any(item.source.path in {"0.md", "17.md"} for item in placed):
            raise asyncpg.DataError("poison")
        await real(connection, tenant, context, placed)

    monkeypatch.setattr(write_repository, "insert_content", poisoned)
    report = await put(kit, *(doc(f"{number}.md", f"text number {number}") for number in range(40)))
    assert (report.added, report.refused) == (38, 2)
    assert [(refusal.path, refusal.stage, refusal.code, refusal.pointer) for refusal in report.refusals] == [
        ("0.md", "store", "internal_error", "/documents/0"),
        ("17.md", "store", "internal_error", "/documents/17"),
    ]
    await check(kit)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT in a read-only transaction"), DATABASE_UNAVAILABLE),
        (asyncpg.IdleSessionTimeoutError("terminating connection"), DATABASE_UNAVAILABLE),
        (asyncpg.QueryCanceledError("canceling statement due to statement timeout"), STATEMENT_TIMEOUT),
    ],
)
async def test_what_is_wrong_with_the_database_refuses_no_document(kit, monkeypatch, error, kind):
    tries = []

    async def failing(*_):
        tries.append(1)
        raise error

    monkeypatch.setattr(write_repository, "insert_content", failing)
    with pytest.raises(StrataError) as raised:
        await put(kit, *(doc(f"{number}.md", f"text number {number}") for number in range(8)))
    assert (raised.value.kind, len(tries)) == (kind, 1)


async def test_a_defect_in_a_statement_ends_the_run_and_refuses_no_document(kit, monkeypatch):
    async def failing(*_):
        raise asyncpg.PostgresSyntaxError("syntax error")

    monkeypatch.setattr(write_repository, "insert_content", failing)
    with pytest.raises(asyncpg.PostgresSyntaxError):
        await put(kit, doc("a.md", "alpha"), doc("b.md", "beta"))


async def test_a_document_whose_reading_takes_too_long_is_refused_and_the_others_are_stored(database, settings):
    hasty = make_kit(database, msgspec.structs.replace(settings, reader_timeout_seconds=1.0))
    slow = b"<div>" * 300_000 + b"x"
    report = await put(hasty, doc("a.md", "alpha"), doc("slow.html", slow), doc("b.md", "beta"))
    await hasty.sources.close()
    assert (report.added, report.refused) == (2, 1)
    refused = report.refusals[0]
    assert (refused.path, refused.code, refused.reason, refused.stage, refused.pointer) == (
        "slow.html",
        "source_refused",
        "timeout",
        "parse",
        "/documents/1",
    )
    assert refused.detail == "Reading it takes more than 1 seconds."
    assert await texts(hasty) == {("kb", "a.md"): b"alpha", ("kb", "b.md"): b"beta"}
    await check(hasty)


async def test_a_purge_that_failed_is_made_good_by_the_next_merge(kit, monkeypatch):
    await put(kit, *(doc(f"{number}.md", f"common number {number}") for number in range(12)), doc("s.md", "secretword"))
    await kit.sources.settle()

    async def failing(*_):
        raise OSError("disk on fire")

    with monkeypatch.context() as patch:
        patch.setattr(lexical_repository, "drop_segments", failing)
        await kit.sources.delete(T, "kb", "s.md")
        await kit.sources.settle()
    assert (await rows(kit, "SELECT sum(dead_count) FROM lexical_segment"))[0][0] == 1
    await put(kit, doc("new.md", "unrelated"))
    await kit.sources.settle()
    assert (await rows(kit, "SELECT sum(dead_count) FROM lexical_segment"))[0][0] == 0
    await check(kit)


async def test_a_purge_that_a_dead_process_owed_is_made_good_by_the_next_start(kit, database, settings, monkeypatch):
    await put(kit, *(doc(f"{number}.md", f"common number {number}") for number in range(12)), doc("s.md", "secretword"))
    await kit.sources.settle()

    async def failing(*_):
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(lexical_repository, "drop_segments", failing)
        await kit.sources.delete(T, "kb", "s.md")
        await kit.sources.settle()
    later = make_kit(database, settings)
    await later.sources.resume(T)
    await later.sources.settle()
    await later.sources.close()
    assert (await rows(kit, "SELECT sum(dead_count) FROM lexical_segment"))[0][0] == 0


@pytest.mark.parametrize("step", ["put_sources", "insert_content", "insert_sections", "insert_passages"])
async def test_a_failure_at_any_step_rolls_all_of_it_back(kit, monkeypatch, step):
    await put(kit, doc("a.md", "before"))

    async def failing(*_):
        raise asyncpg.DiskFullError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(write_repository, step, failing)
        with pytest.raises(StrataError) as raised:
            await put(kit, doc("a.md", "after"), doc("b.md", "new"))
        assert raised.value.kind is DATABASE_UNAVAILABLE
    assert await texts(kit) == {("kb", "a.md"): b"before"}
    assert await search(kit, "kb", "before") == ["a.md"]
    await check(kit)
    assert (await put(kit, doc("a.md", "after"), doc("b.md", "new"))).refused == 0


async def test_a_conflict_is_tried_again(kit, monkeypatch):
    real, tries = store_module.add_segment, []

    async def flaky(*args):
        tries.append(1)
        if len(tries) < 3:
            raise asyncpg.DeadlockDetectedError("deadlock")
        return await real(*args)

    monkeypatch.setattr(store_module, "add_segment", flaky)
    assert (await put(kit, doc("a.md", "alpha"))).added == 1
    assert len(tries) == 3
    await check(kit)


async def test_a_context_deleted_during_an_ingest_takes_no_rows(kit, monkeypatch):
    await put(kit, doc("a.md", "alpha"))
    real = write_repository.lock_paths

    async def late(connection, keys):
        deletion.append(asyncio.create_task(kit.contexts.delete(T, "kb")))
        await asyncio.sleep(0.1)
        await real(connection, keys)

    deletion = []
    monkeypatch.setattr(write_repository, "lock_paths", late)
    await put(kit, doc("b.md", "beta"))
    await asyncio.gather(*deletion)
    for table in ("context", "source", "source_content", "section", "passage", "lexical_segment", "lexical_posting"):
        assert not await rows(kit, f"SELECT 1 FROM {table}"), table


async def test_pages_of_sources_are_in_code_point_order_and_complete(kit):
    names = ["b.md", "B.md", "a/1.md", "a/10.md", "a/2.md", "é.md", "z.md", "日.md"]
    await put(kit, *(doc(name, f"text {name}") for name in names))
    got, cursor = [], None
    while True:
        page = await kit.sources.list(T, "kb", limit=3, cursor=cursor)
        got += [source.path for source in page.sources]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert got == sorted(names)
    assert [source.path for source in (await kit.sources.list(T, "kb", prefix="a/1")).sources] == ["a/1.md", "a/10.md"]
    for bad in ("%%%", "AA=A", "gA=="):
        with pytest.raises(StrataError) as raised:
            await kit.sources.list(T, "kb", cursor=bad)
        assert raised.value.kind is INVALID_REQUEST


async def test_a_text_range_holds_whole_characters_and_says_which(kit):
    await put(kit, doc("a.txt", "aé日本b"))
    whole = await kit.sources.read_text(T, "kb", "a.txt")
    assert (whole.text, whole.start_byte, whole.end_byte, whole.total_bytes) == ("aé日本b", 0, 10, 10)
    part = await kit.sources.read_text(T, "kb", "a.txt", 2, 8)
    assert (part.text, part.start_byte, part.end_byte) == ("日", 3, 6)
    past = await kit.sources.read_text(T, "kb", "a.txt", 10**12)
    assert (past.text, past.start_byte) == ("", 10)
    with pytest.raises(StrataError):
        await kit.sources.read_text(T, "kb", "a.txt", 5, 2)


@pytest.mark.parametrize("ref", ["nothing.md", "\x00", "\ud800", str(UUID(int=7)), ""])
async def test_an_unknown_source_is_not_found(kit, ref):
    await put(kit, doc("a.md", "x"))
    for call in (kit.sources.get, kit.sources.delete, kit.sources.read_text):
        with pytest.raises(StrataError) as raised:
            await call(T, "kb", ref)
        assert raised.value.kind is SOURCE_NOT_FOUND


async def test_a_source_is_found_by_its_id_too(kit):
    report = await put(kit, doc("a.md", "x"), DocumentInput(id=str(UUID(int=9)), content="named like an id"))
    assert (await kit.sources.get(T, "kb", str(report.outcomes[0].id))).path == "a.md"
    assert (await kit.sources.get(T, "kb", str(UUID(int=9)))).path == str(UUID(int=9))


async def test_a_request_whose_documents_are_all_malformed_makes_no_context(kit):
    report = await put(kit, doc("", "x"), doc("..", "y"))
    assert (report.refused, report.context_id) == (2, None)
    assert (await kit.contexts.list(T)).contexts == []
