"""Archived sources, and what a deletion leaves of a source and its revisions: nothing."""

from __future__ import annotations

import asyncio
import hashlib

import asyncpg
import httpx
import pytest

from embedding_support import check_vectors
from exchange_support import make_kit
from ingest_support import check, rows
from revision_support import LEAVE, counts, history, kept, leave, refusal, text
from scenario_support import CONTEXT, ask, doc, put, sources
from strata.app import create_app
from strata.errors import SOURCE_ARCHIVED, SOURCE_NOT_FOUND
from strata.exchange.schemas import StorePassagesIn
from strata.lookup.schemas import Lane
from strata.platform.ids import DEFAULT_TENANT as T

pytestmark = pytest.mark.database


@pytest.fixture
async def client(settings, services):
    transport = httpx.ASGITransport(create_app(settings, services=services), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://strata.test/api/v1/contexts/handbook") as opened:
        yield opened


# Archive


async def test_an_archived_source_is_found_in_no_lane_and_stays_readable_by_pin(embedding_services):
    services = embedding_services
    await leave(services, 28, 30)
    await put(services, doc("other.md", "# Printers\n\nToner is changed by the help desk.\n"))
    await services.embeddings.run(T, CONTEXT)
    for lane in (Lane.LEXICAL, Lane.VECTOR, Lane.HINTS):
        assert "leave.md" in sources(await ask(services, "vacation", lanes=[lane])), lane
    archival = await services.sources.revisions.archive(T, CONTEXT, "leave.md")
    assert (archival.path, archival.revision, archival.pin) == ("leave.md", 2, "leave.md/v2")
    for lane in (Lane.LEXICAL, Lane.VECTOR, Lane.HINTS):
        assert "leave.md" not in sources(await ask(services, "vacation", lanes=[lane])), lane
    assert "leave.md" not in sources(await ask(services, "vacation leave"))
    page = await services.sources.list(T, CONTEXT)
    assert [view.path for view in page.sources] == ["other.md"]
    detail = await services.sources.get(T, CONTEXT, "leave.md/v2")
    assert (detail.state, detail.title, [head.heading for head in detail.sections]) == (
        "ARCHIVED",
        "Leave",
        ["Leave", "Vacation"],
    )
    assert await text(services, "leave.md/v1") == LEAVE.format(28)
    assert await history(services) == [(2, "ARCHIVED"), (1, "RETIRED")]
    for ref in ("leave.md", str(detail.id)):
        for call in (services.sources.get, services.sources.read_text, services.sources.revisions.archive):
            error = await refusal(call(T, CONTEXT, ref))
            assert (error.kind, error.extra) == (SOURCE_ARCHIVED, {"pin": "leave.md/v2"})
            assert "leave.md/v2" in error.remedy
    await check(services)
    await check_vectors(services, T)


async def test_archived_sources_are_listed_apart(services):
    paths = ["a/1.md", "a/2.md", "a/3.md", "b/1.md"]
    await put(services, *(doc(path, f"# {path}", category="x" if "1" in path else "y") for path in paths))
    await put(services, doc("live.md", "live"))
    for path in reversed(paths):
        await services.sources.revisions.archive(T, CONTEXT, path)

    async def listed(**more):
        page = await services.sources.list(T, CONTEXT, archived=True, **more)
        return [view.path for view in page.sources], page.next_cursor

    assert await listed() == (paths, None)
    assert (await listed(prefix="a/"))[0] == paths[:3]
    assert (await listed(category="x"))[0] == ["a/1.md", "b/1.md"]
    first, cursor = await listed(limit=3)
    assert first + (await listed(limit=3, cursor=cursor))[0] == paths
    assert [view.path for view in (await services.sources.list(T, CONTEXT)).sources] == ["live.md"]


async def test_ingesting_an_archived_source_again_brings_it_back_counting_on(services):
    await leave(services, 28, 30)
    identifier = (await services.sources.get(T, CONTEXT, "leave.md")).id
    await services.sources.revisions.archive(T, CONTEXT, "leave.md")
    report = await services.sources.ingest(T, CONTEXT, [doc("leave.md", LEAVE.format(30)), doc("new.md", "new")])
    assert [(one.path, one.revision) for one in report.outcomes] == [("leave.md", 3), ("new.md", 1)]
    assert report.outcomes[0].id == identifier
    assert await history(services) == [(3, "CURRENT"), (2, "RETIRED"), (1, "RETIRED")]
    assert await history(services, "leave.md/v1") == await history(services)
    assert sources(await ask(services, "vacation")) == ["leave.md"]
    assert (await services.sources.list(T, CONTEXT, archived=True)).sources == []
    await services.sources.revisions.archive(T, CONTEXT, str(identifier))
    assert (await history(services))[0] == (3, "ARCHIVED")
    await check(services)


async def test_what_an_archived_source_asserted_goes(database, settings):
    kit = make_kit(database, settings)
    await kit.ingest("doc.md", "Ada works at Acme.")
    await kit.say("doc.md", {"subject": "Ada", "label": "works at", "object": "Acme", "weight": 1.0})
    await kit.sources.revisions.archive(T, "kb", "doc.md")
    assert (await rows(kit, "SELECT count(*) FROM attribution"))[0][0] == 0
    assert (await kit.sources.read_text(T, "kb", "doc.md/v1")).text == "Ada works at Acme."
    await kit.say("doc.md", {"subject": "Ada", "label": "works at", "object": "Other", "weight": 1.0})
    await kit.sources.delete(T, "kb", "doc.md")
    assert (await rows(kit, "SELECT count(*) FROM attribution"))[0][0] == 0
    await kit.close()


# Deletion


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize("by", ["path", "id", "all", "prefix", "origin", "category"])
async def test_a_deleted_source_leaves_no_revision(embedding_services, by, is_archived):
    services = embedding_services
    for days in (28, 30):
        document = doc("hr/leave.md", LEAVE.format(days), category="hr")
        await services.sources.ingest(T, CONTEXT, [document], origin="/handbook")
    await services.embeddings.run(T, CONTEXT)
    identifier = (await services.sources.get(T, CONTEXT, "hr/leave.md")).id
    if is_archived:
        await services.sources.revisions.archive(T, CONTEXT, "hr/leave.md")
    calls = {
        "path": lambda: services.sources.delete(T, CONTEXT, "hr/leave.md"),
        "id": lambda: services.sources.delete(T, CONTEXT, str(identifier)),
        "all": lambda: services.sources.delete_all(T, CONTEXT),
        "prefix": lambda: services.sources.delete_all(T, CONTEXT, prefix="hr/"),
        "origin": lambda: services.sources.delete_all(T, CONTEXT, origin="/handbook"),
        "category": lambda: services.sources.delete_all(T, CONTEXT, category="hr"),
    }
    deletion = await calls[by]()
    assert (deletion.sources, deletion.passages) == (1, 0 if is_archived else 1)
    assert await counts(services) == (0,) * 7
    for ref in ("hr/leave.md", "hr/leave.md/v1", "hr/leave.md/v2", str(identifier)):
        assert (await refusal(services.sources.get(T, CONTEXT, ref))).kind is SOURCE_NOT_FOUND
    report = await put(services, doc("hr/leave.md", LEAVE.format(31)))
    assert (report.added, report.outcomes[0].revision) == (1, 1)
    assert report.outcomes[0].id != identifier


async def test_a_deletion_by_filter_leaves_what_does_not_match(services):
    for content in ("alpha", "omega"):
        await put(services, doc("a.md", content, category="a"), doc("b.md", content, category="b"))
        await put(services, doc("c.md", content, category="b"))
    await services.sources.revisions.archive(T, CONTEXT, "c.md")
    assert (await services.sources.delete_all(T, CONTEXT, category="a")).sources == 1
    assert await kept(services) == [("b.md", 1), ("c.md", 1), ("c.md", 2)]
    assert (await services.sources.delete_all(T, CONTEXT, prefix="c")).sources == 1
    assert await kept(services) == [("b.md", 1)]


async def test_a_pin_is_neither_deleted_nor_archived(services):
    await leave(services, 28, 30)
    for call in (services.sources.delete, services.sources.revisions.archive):
        for ref in ("leave.md/v1", "leave.md/v2"):
            assert (await refusal(call(T, CONTEXT, ref))).kind is SOURCE_NOT_FOUND
    assert await history(services) == [(2, "CURRENT"), (1, "RETIRED")]


async def test_pruned_sources_leave_no_revision_and_archived_ones_stay(services, tmp_path):
    for content in ("alpha", "omega"):
        for name in ("a.md", "b.md", "c.md"):
            (tmp_path / name).write_text(content)
        await services.sources.ingest_paths(T, CONTEXT, [tmp_path])
    await services.sources.revisions.archive(T, CONTEXT, "c.md")
    (tmp_path / "b.md").unlink()
    held = (tmp_path / "c.md").read_text()
    (tmp_path / "c.md").unlink()
    report = await services.sources.ingest_paths(T, CONTEXT, [tmp_path], prune=True)
    assert report.pruned == 1
    assert await kept(services) == [("a.md", 1), ("c.md", 1), ("c.md", 2)]
    (tmp_path / "c.md").write_text(held)
    report = await services.sources.ingest_paths(T, CONTEXT, [tmp_path], prune=True)
    assert (report.replaced, report.unchanged, report.pruned) == (1, 1, 0)
    assert await history(services, "c.md") == [(3, "CURRENT"), (2, "RETIRED"), (1, "RETIRED")]


async def test_texts_by_name_have_revisions_and_retracting_deletes_them(services):
    await services.contexts.create(T, CONTEXT)
    for passages in ({"doc": "alpha one", "arc": "one"}, {"doc": "alpha\r\n\r\ntwo", "arc": "two"}):
        await services.exchange.store_passages(T, CONTEXT, StorePassagesIn(passages=passages))
    await services.sources.revisions.archive(T, CONTEXT, "arc")
    assert await text(services, "doc/v1") == "alpha one"
    assert await text(services, "doc/v2") == "alpha\r\n\r\ntwo"
    assert (await services.exchange.retract_source(T, CONTEXT, "doc", dry_run=True)).passage_removed
    assert len(await kept(services)) == 3
    assert (await services.exchange.retract_source(T, CONTEXT, "doc")).passage_removed
    assert (await services.exchange.retract_source(T, CONTEXT, "arc")).passage_removed
    assert not (await services.exchange.retract_source(T, CONTEXT, "arc")).passage_removed
    assert await counts(services) == (0,) * 7


async def test_a_deleted_context_takes_its_revisions_along(services):
    await leave(services, 28, 30)
    await services.contexts.delete(T, CONTEXT)
    assert await kept(services) == []


async def test_archiving_deleting_and_ingesting_at_once_leave_one_whole_state(services):
    """Whoever comes first: a source that stands counts on from its revisions, and none is left of a deleted one."""
    for round_ in range(6):
        await leave(services, f"{round_}-1", f"{round_}-2")

        done = await asyncio.gather(
            services.sources.revisions.archive(T, CONTEXT, "leave.md"),
            services.sources.ingest(T, CONTEXT, [doc("leave.md", LEAVE.format(f"{round_}-3"))]),
            services.sources.delete(T, CONTEXT, "leave.md"),
            services.sources.ingest(T, CONTEXT, [doc("leave.md", LEAVE.format(f"{round_}-4"))]),
            return_exceptions=True,
        )
        failed = [error for error in done if isinstance(error, BaseException)]
        assert {error.kind for error in failed} <= {SOURCE_NOT_FOUND, SOURCE_ARCHIVED}, failed
        live = await rows(services, "SELECT revision FROM source")
        earlier = await rows(services, "SELECT revision, is_archived FROM source_revision ORDER BY revision")
        numbers = [row[0] for row in earlier] + [row[0] for row in live]
        assert numbers == list(range(1, len(numbers) + 1))
        assert sum(row[1] for row in earlier) == (0 if live or not earlier else 1)
        await check(services)
        await services.sources.delete_all(T, CONTEXT)


async def _await_waiting(services, count):
    """Wait until so many sessions of the database wait for a lock."""
    waiting = "SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
    waiting += "WHERE NOT granted AND datname = current_database()"
    for _ in range(1_000):
        if (await rows(services, waiting))[0][0] == count:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"There are not {count} that wait.")


@pytest.mark.parametrize("by_id", [False, True])
async def test_an_archived_source_that_is_brought_back_meanwhile_is_deleted(services, dsn, by_id):
    await leave(services, 28, 30)
    identifier = (await services.sources.get(T, CONTEXT, "leave.md")).id
    await services.sources.revisions.archive(T, CONTEXT, "leave.md")
    holder = await asyncpg.connect(dsn)
    async with holder.transaction():
        await holder.execute("SELECT FROM source_revision WHERE is_archived FOR UPDATE")
        ingest = asyncio.create_task(services.sources.ingest(T, CONTEXT, [doc("leave.md", LEAVE.format(31))]))
        await _await_waiting(services, 1)
        ref = str(identifier) if by_id else "leave.md"
        deletion = asyncio.create_task(services.sources.delete(T, CONTEXT, ref))
        await _await_waiting(services, 2)
    await holder.close()
    assert (await ingest).outcomes[0].revision == 3
    assert (await deletion).sources == 1
    await services.sources.settle()
    assert await counts(services) == (0,) * 7
    await check(services)


# REST


async def test_revisions_and_the_archive_over_rest(client):
    for days in (28, 30):
        await client.post("/sources", json={"path": "hr/leave.md", "content": LEAVE.format(days)})
    listed = (await client.get("/revisions/hr/leave.md")).json()
    assert [(one["pin"], one["state"]) for one in listed["items"]] == [
        ("hr/leave.md/v2", "CURRENT"),
        ("hr/leave.md/v1", "RETIRED"),
    ]
    assert listed["items"][1]["sha256"] == hashlib.sha256(LEAVE.format(28).encode()).hexdigest()
    assert listed["nextCursor"] is None
    for ref in ("hr/leave.md/v1", "hr%2Fleave.md%2Fv1"):
        assert (await client.get(f"/text/{ref}")).json()["text"] == LEAVE.format(28)
        detail = (await client.get(f"/sources/{ref}")).json()
        assert (detail["state"], detail["pin"], detail["revision"]) == ("RETIRED", "hr/leave.md/v1", 1)
    archived = await client.post("/archive/hr/leave.md")
    assert (archived.status_code, archived.json()) == (
        200,
        {"path": "hr/leave.md", "revision": 2, "pin": "hr/leave.md/v2"},
    )
    gone = await client.get("/sources/hr/leave.md")
    assert (gone.status_code, gone.json()["code"], gone.json()["pin"]) == (410, "source_archived", "hr/leave.md/v2")
    assert (await client.post("/archive/hr/leave.md")).status_code == 410
    assert (await client.get("/sources")).json()["items"] == []
    (view,) = (await client.get("/sources", params={"archived": "true"})).json()["items"]
    assert (view["path"], view["revision"]) == ("hr/leave.md", 2)
    assert (await client.delete("/sources/hr/leave.md")).json() == {"sources": 1, "passages": 0}
    missing = await client.get("/text/hr/leave.md/v1")
    assert (missing.status_code, missing.json()["code"]) == (404, "source_not_found")
