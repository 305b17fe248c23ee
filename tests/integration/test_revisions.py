"""Earlier revisions of sources: readable by pin, byte for byte, by whoever may read the source."""

from __future__ import annotations

import asyncio
import hashlib
from uuid import uuid4

import asyncpg
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_support import check
from revision_support import LEAVE, history, kept, leave, refusal, text
from scenario_support import CONTEXT, ask, doc, put
from strata.errors import INVALID_REQUEST, SOURCE_ARCHIVED, SOURCE_NOT_FOUND
from strata.knowledge.service import ContextService
from strata.platform.ids import DEFAULT_TENANT as T
from strata.services import compose
from strata.sources import write_repository
from strata.sources.model import DocumentInput
from strata.sources.paths import MAX_REVISION, as_pin, pin_of

pytestmark = pytest.mark.database


@pytest.fixture
async def keeping(settings, database):
    """Services that keep some number of earlier revisions."""
    opened = []

    def open_with(number):
        opened.append(compose(msgspec.structs.replace(settings, revisions_kept=number), database))
        return opened[-1]

    yield open_with
    for composed in opened:
        await composed.close()


# Pins


async def test_every_revision_stays_readable_byte_for_byte(services):
    written = [f"# Odd {n}\n\n{'é👩‍👩‍👧 本編 ' * n}\n\n## Part {n}\n\nאב {n}\n" for n in range(1, 13)]
    details = []
    for content in written:
        await put(services, doc("a/odd.md", content))
        details.append(await services.sources.get(T, CONTEXT, "a/odd.md"))
    for number, (content, detail) in enumerate(zip(written, details, strict=True), 1):
        pin = f"a/odd.md/v{number}"
        assert await text(services, pin) == content
        earlier = await services.sources.get(T, CONTEXT, pin)
        assert (earlier.pin, earlier.revision, earlier.sha256) == (pin, number, detail.sha256)
        assert earlier.sha256 == hashlib.sha256(content.encode()).hexdigest()
        assert (earlier.title, earlier.sections, earlier.text_bytes) == (
            detail.title,
            detail.sections,
            detail.text_bytes,
        )
        assert (earlier.id, earlier.updated_at) == (detail.id, detail.updated_at)
    states = [(await services.sources.get(T, CONTEXT, f"a/odd.md/v{n}")).state for n in (1, 11, 12)]
    assert states == ["RETIRED", "RETIRED", "CURRENT"]
    await check(services)


async def test_a_slice_by_pin_is_of_whole_characters(services):
    await put(services, doc("a.md", "日本語 alpha"))
    await put(services, doc("a.md", "omega"))
    piece = await services.sources.read_text(T, CONTEXT, "a.md/v1", 1, 8)
    assert (piece.text, piece.start_byte, piece.end_byte, piece.total_bytes, piece.revision) == ("本", 3, 6, 15, 1)
    assert await text(services, "a.md/v1", start_byte=99) == ""


async def test_a_citation_can_be_checked_by_pin_after_the_source_was_replaced(services):
    await leave(services, 25, 28)
    citation = (await ask(services, "how many days of vacation")).evidence_blocks[0].citation
    await leave(services, 30, 31, 32)
    piece = await services.sources.read_text(
        T, CONTEXT, pin_of(citation.source, citation.source_version), citation.start_byte, citation.end_byte
    )
    assert "28 days" in piece.text
    assert piece.sha256 == citation.sha256 == hashlib.sha256(piece.text.encode()).hexdigest()


async def test_the_same_bytes_again_make_no_revision(services):
    await leave(services, 25, 25, 25)
    assert await history(services) == [(1, "CURRENT")]
    assert await kept(services) == []


async def test_revisions_are_listed_newest_first_in_pages(services):
    await leave(services, *range(20, 27))
    full = await services.sources.revisions.page(T, CONTEXT, "leave.md")
    assert [view.revision for view in full.items] == [7, 6, 5, 4, 3, 2, 1]
    assert full.items[0].retired_at is None
    assert all(view.retired_at >= view.stored_at for view in full.items[1:])
    seen, cursor = [], None
    while True:
        page = await services.sources.revisions.page(T, CONTEXT, "leave.md", limit=3, cursor=cursor)
        seen += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == full.items
    by_id = (await services.sources.get(T, CONTEXT, "leave.md")).id
    assert await history(services, str(by_id)) == await history(services, "leave.md/v3") == await history(services)
    for cursor in ("x", "MA", "bGVhdmU=", "LTE=", "4pGg", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5"):
        error = await refusal(services.sources.revisions.page(T, CONTEXT, "leave.md", cursor=cursor))
        assert (error.kind, error.pointer) == (INVALID_REQUEST, "?cursor")
    assert (await refusal(services.sources.revisions.page(T, CONTEXT, "leave.md", limit=0))).pointer == "?limit"
    assert (await refusal(services.sources.revisions.page(T, CONTEXT, "gone.md"))).kind is SOURCE_NOT_FOUND


async def test_a_pin_that_is_not_there_says_which_revisions_are(keeping):
    services = keeping(2)
    await leave(services, 20, 21, 22, 23, 24)
    for ref in ("leave.md/v1", "leave.md/v6", "leave.md/v99999999999999999999", "leave.md/v" + "9" * 5_000):
        error = await refusal(services.sources.get(T, CONTEXT, ref))
        assert error.kind is SOURCE_NOT_FOUND
        assert "'leave.md' has 3 to 5." in error.detail
        assert len(error.detail) < 500


@pytest.mark.parametrize(
    "ref",
    [
        "leave.md/v0",
        "leave.md/v01",
        "leave.md/v",
        "leave.md/V1",
        "leave.md/v1/",
        "/v1",
        "v1",
        "leave.md/v-1",
        "leave.md/v+1",
        "leave.md/v1.0",
        "leave.md/v١",
        "gone.md/v1",
        "leave.md\x00/v1",
        "leave.md\ud800/v1",
        "",
    ],
)
async def test_what_is_no_pin_of_a_source_is_not_found(services, ref):
    await leave(services, 20, 21)
    assert (await refusal(services.sources.get(T, CONTEXT, ref))).kind is SOURCE_NOT_FOUND


async def test_an_exact_path_wins_over_a_pin(services):
    await put(services, doc("api", "alpha one"), doc("api/v2", "a path of its own"))
    await put(services, doc("api", "alpha two"))
    await put(services, doc("api", "alpha three"))
    assert await text(services, "api/v1") == "alpha one"
    assert await text(services, "api/v2") == "a path of its own"
    assert await text(services, "api/v2/v1") == "a path of its own"
    assert await text(services, "api/v3") == "alpha three"
    await services.sources.revisions.archive(T, CONTEXT, "api/v2")
    assert (await refusal(services.sources.get(T, CONTEXT, "api/v2"))).kind is SOURCE_ARCHIVED
    await services.sources.delete(T, CONTEXT, "api/v2")
    assert await text(services, "api/v2") == "alpha two"


@pytest.mark.parametrize(
    "path", ["休暇/規定.md", "a b/c#d?e%2F", "👩‍👩‍👧", "אב/ג.md", "a/v2/v3", "x" * 1_000, "a'b\"c\\d"]
)
async def test_odd_paths_have_pins(services, path):
    await put(services, doc(path, "alpha"))
    await put(services, doc(path, "omega"))
    assert await text(services, f"{path}/v1") == "alpha"
    assert (await services.sources.get(T, CONTEXT, f"{path}/v2")).path == path
    archival = await services.sources.revisions.archive(T, CONTEXT, path)
    assert await text(services, archival.pin) == "omega"


@given(st.text(min_size=1), st.integers(1, MAX_REVISION))
def test_a_pin_says_its_path_and_revision(path, revision):
    found = as_pin(pin_of(path, revision))
    assert found is not None
    assert found[0] == path
    assert found[1] == (revision if revision < 10**18 else MAX_REVISION)


# Writers


async def test_concurrent_writers_of_one_path_give_consecutive_revisions_with_none_lost(services):
    await leave(services, 0)
    written = {LEAVE.format(number) for number in range(13)}

    async def write(number):
        report = await services.sources.ingest(T, CONTEXT, [doc("leave.md", LEAVE.format(number))])
        return report.outcomes[0].revision

    numbers = await asyncio.gather(*(write(number) for number in range(1, 13)))
    assert sorted(numbers) == list(range(2, 14))
    assert {await text(services, f"leave.md/v{number}") for number in range(1, 14)} == written
    for number, revision in enumerate(numbers, 1):
        assert await text(services, f"leave.md/v{revision}") == LEAVE.format(number)
    await check(services)


async def test_a_failed_replacement_leaves_no_revision(services, monkeypatch):
    await leave(services, 28)

    async def broken(*_):
        raise asyncpg.DataError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(write_repository, "insert_passages", broken)
        report = await services.sources.ingest(T, CONTEXT, [doc("leave.md", LEAVE.format(30))])
    assert report.refused == 1
    assert await history(services) == [(1, "CURRENT")]
    assert await kept(services) == []
    monkeypatch.setattr(ContextService, "bump_passages", broken)
    with pytest.raises(asyncpg.DataError):
        await services.sources.revisions.archive(T, CONTEXT, "leave.md")
    assert await kept(services) == []
    assert await text(services, "leave.md") == LEAVE.format(28)


# Who may read them


async def test_another_tenant_or_context_never_reads_a_revision(services, dsn):
    tenant = uuid4()
    connection = await asyncpg.connect(dsn)
    await connection.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, 'other')", tenant)
    await connection.close()
    await leave(services, 28, 30)
    identifier = (await services.sources.get(T, CONTEXT, "leave.md")).id
    for name, owner in ((CONTEXT, tenant), ("elsewhere", T)):
        await services.sources.ingest(owner, name, [DocumentInput(path="own.md", content="own")])
        for _ in range(2):
            for ref in ("leave.md", "leave.md/v1", "leave.md/v2", str(identifier)):
                for call in (
                    services.sources.get,
                    services.sources.read_text,
                    services.sources.delete,
                    services.sources.revisions.page,
                    services.sources.revisions.archive,
                ):
                    error = await refusal(call(owner, name, ref))
                    assert (error.kind, error.extra) == (SOURCE_NOT_FOUND, {})
                    assert " has " not in error.detail
            assert (await services.sources.list(owner, name, archived=True)).sources == []
            assert (await services.sources.delete_all(owner, name, prefix="leave")).sources == 0
            if not (await services.sources.list(T, CONTEXT, archived=True)).sources:
                await services.sources.revisions.archive(T, CONTEXT, "leave.md")
    assert await history(services) == [(2, "ARCHIVED"), (1, "RETIRED")]


# How many are kept


@pytest.mark.parametrize(("number", "left"), [(0, []), (1, [4]), (3, [2, 3, 4]), (None, [1, 2, 3, 4])])
async def test_as_many_earlier_revisions_are_kept_as_the_setting_says(keeping, number, left):
    services = keeping(number)
    await leave(services, 20, 21, 22, 23, 24)
    await leave(services, 1, 2, path="other.md")
    assert [revision for path, revision in await kept(services) if path == "leave.md"] == left
    assert (await services.sources.get(T, CONTEXT, "leave.md")).revision == 5
    await services.sources.revisions.archive(T, CONTEXT, "leave.md")
    assert [revision for path, revision in await kept(services) if path == "leave.md"] == [*left, 5]
    await leave(services, 25)
    assert (await history(services))[0] == (6, "CURRENT")
    expected = [*left, 5] if number is None else [*left, 5][len(left) + 1 - number :]
    assert [revision for path, revision in await kept(services) if path == "leave.md"] == expected


async def test_a_lower_number_holds_from_the_next_replacement_on(keeping):
    await leave(keeping(None), 20, 21, 22, 23)
    services = keeping(1)
    assert len(await kept(services)) == 3
    await leave(services, 24)
    assert await kept(services) == [("leave.md", 4)]


async def test_sources_from_before_there_were_revisions_are_read_and_replaced(services, dsn):
    await leave(services, 20)
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE source SET revision = 7")
    await connection.close()
    assert await text(services, "leave.md/v7") == LEAVE.format(20)
    assert "'leave.md' has 7." in (await refusal(services.sources.get(T, CONTEXT, "leave.md/v6"))).detail
    await leave(services, 21)
    assert await history(services) == [(8, "CURRENT"), (7, "RETIRED")]
    assert await text(services, "leave.md/v7") == LEAVE.format(20)
