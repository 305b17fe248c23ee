"""The scenarios of openspec/specs/ingest over the real services."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import msgspec
import pytest

from scenario_support import CONTEXT, ask, doc, pointed, put, sources
from strata.errors import StrataError
from strata.hints.schemas import HintInput, HintOrigin
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose
from strata.sources.model import DocumentInput

AUDIT = doc("security/audit.md", "# Audit log\n\n## Retention\n\nAudit logs are kept for 400 days, then deleted.\n")
LUNCH = doc("lunch.md", "# Lunch\n\nThe canteen opens at noon.\n")
OTHER_TENANT = UUID("0190f000-0000-7000-8000-0000000000aa")


@pytest.fixture
async def owner(dsn):
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def revision(services):
    return (await services.contexts.get(DEFAULT_TENANT, CONTEXT)).revisions.passages


async def paths(services, context=CONTEXT, tenant=DEFAULT_TENANT):
    return [source.path for source in (await services.sources.list(tenant, context)).sources]


async def text_of(services, path):
    return (await services.sources.read_text(DEFAULT_TENANT, CONTEXT, path)).text


async def test_documents_of_several_formats_become_sources_with_passages(services):
    vtt = "WEBVTT\n\n00:01.000 --> 00:04.000\n<v Ada>The budget is settled.\n"
    await put(
        services,
        AUDIT,
        DocumentInput(content="name,owner\nbadge,reception\n", path="things.csv"),
        DocumentInput(content=vtt, path="meeting.vtt"),
    )
    listed = (await services.sources.list(DEFAULT_TENANT, CONTEXT)).sources
    assert {source.path: source.format for source in listed} == {
        "meeting.vtt": "vtt",
        "security/audit.md": "markdown",
        "things.csv": "csv",
    }
    assert all(source.passages for source in listed)
    block = (await ask(services, "budget settled")).evidence_blocks[0]
    assert (block.citation.start_ms, block.citation.end_ms, block.citation.speaker) == (1000, 4000, "Ada")


async def test_a_document_that_cannot_be_read_does_not_stop_the_others(services):
    image = DocumentInput(content=b"\x89PNG\r\n\x1a\n" + bytes(64), path="b.bin")
    report = await services.sources.ingest(DEFAULT_TENANT, CONTEXT, [AUDIT, image, LUNCH])
    assert (report.added, report.refused) == (2, 1)
    (refusal,) = report.refusals
    assert (refusal.path, refusal.code, refusal.reason) == ("b.bin", "source_refused", "binary")
    assert refusal.stage
    assert refusal.remedy
    assert refusal.pointer == "/documents/1"
    assert await paths(services) == ["lunch.md", "security/audit.md"]


async def test_a_document_over_the_size_limit_is_refused(settings, database):
    small = compose(msgspec.structs.replace(settings, max_source_bytes=100), database)
    report = await small.sources.ingest(DEFAULT_TENANT, CONTEXT, [LUNCH, doc("big.md", "word " * 100)])
    assert (report.added, [refusal.reason for refusal in report.refusals]) == (1, ["too_large"])
    await small.sources.close()


async def test_the_same_document_again_moves_no_revision(services):
    await put(services, AUDIT)
    before = await revision(services)
    report = await put(services, AUDIT)
    assert (report.added, report.replaced, report.unchanged) == (0, 0, 1)
    assert report.outcomes[0].status == "UNCHANGED"
    assert report.outcomes[0].revision == 1
    assert await revision(services) == before


async def test_another_category_replaces_the_same_bytes(services):
    await put(services, AUDIT)
    again = doc(AUDIT.path, AUDIT.content, category="security")
    assert (await put(services, again)).replaced == 1
    assert (await services.sources.get(DEFAULT_TENANT, CONTEXT, AUDIT.path)).category == "security"


async def test_a_changed_document_keeps_its_id_and_loses_its_old_words(services):
    await put(services, AUDIT)
    old = await services.sources.get(DEFAULT_TENANT, CONTEXT, AUDIT.path)
    assert (await put(services, doc(AUDIT.path, "# Audit log\n\nThe archive holds everything.\n"))).replaced == 1
    new = await services.sources.get(DEFAULT_TENANT, CONTEXT, AUDIT.path)
    assert (new.id, new.revision) == (old.id, 2)
    assert sources(await ask(services, "archive holds everything")) == [AUDIT.path]
    assert (await ask(services, "deleted 400 days")).empty_reason == "UNKNOWN_TERMS"
    assert "400" not in await text_of(services, AUDIT.path)


async def test_lookups_beside_a_writer_see_one_revision_whole(services):
    def version(number):
        marker = f"marker{number}"
        return doc("a.md", f"# A\n\n## One\n\nThe lighthouse {marker}.\n\n## Two\n\nA lighthouse again, {marker}.\n")

    await put(services, version(1))
    stop = asyncio.Event()

    async def read():
        seen = 0
        while not stop.is_set():
            result = await ask(services, "lighthouse", content=True, layers=["L1"])
            assert len(result.evidence_blocks) == 2
            assert len({block.citation.source_version for block in result.evidence_blocks}) == 1
            (number,) = {block.citation.source_version for block in result.evidence_blocks}
            assert all(f"marker{number}." in block.content for block in result.evidence_blocks)
            seen += 1
        return seen

    readers = [asyncio.create_task(read()) for _ in range(2)]
    for number in range(2, 8):
        await put(services, version(number))
    stop.set()
    assert all(await asyncio.gather(*readers))


async def test_a_deleted_source_is_found_nowhere(services):
    await put(services, AUDIT, LUNCH)
    deletion = await services.sources.delete(DEFAULT_TENANT, CONTEXT, AUDIT.path)
    assert (deletion.sources, deletion.passages) == (1, 1)
    assert (await ask(services, "audit logs retention")).found is False
    assert await paths(services) == ["lunch.md"]
    for read in (services.sources.get, services.sources.read_text, services.sources.delete):
        with pytest.raises(StrataError) as error:
            await read(DEFAULT_TENANT, CONTEXT, AUDIT.path)
        assert error.value.code == "source_not_found"
    hints = (await services.hints.list(DEFAULT_TENANT, CONTEXT)).hints
    assert {target for hint in hints for target in hint.targets} == {"lunch.md"}


async def test_a_purged_index_holds_no_posting_of_the_deleted_source(services, owner):
    await put(services, AUDIT, LUNCH)
    assert await owner.fetchval("SELECT count(*) FROM lexical_segment") >= 1
    await services.sources.delete(DEFAULT_TENANT, CONTEXT, AUDIT.path)
    await services.sources.delete(DEFAULT_TENANT, CONTEXT, LUNCH.path)
    await services.sources.settle()
    assert await owner.fetchval("SELECT count(*) FROM lexical_segment") == 0
    for table in ("source", "source_content", "section", "passage", "hint_entry"):
        assert await owner.fetchval(f"SELECT count(*) FROM {table}") == 0, table


async def test_the_same_document_in_another_context_still_answers(services):
    await put(services, AUDIT)
    await put(services, AUDIT, context="copy")
    await services.sources.delete(DEFAULT_TENANT, CONTEXT, AUDIT.path)
    await services.sources.settle()
    assert sources(await ask(services, "audit logs", context="copy")) == [AUDIT.path]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.md").write_text("# A\n\nThe first file.\n")
    (tmp_path / "b.md").write_text("# B\n\nThe second file.\n")
    return tmp_path


async def test_pruning_removes_what_vanished_and_nothing_else(services, folder):
    await services.sources.ingest_paths(DEFAULT_TENANT, CONTEXT, [folder])
    await put(services, AUDIT)
    (folder / "b.md").unlink()
    kept = await services.sources.ingest_paths(DEFAULT_TENANT, CONTEXT, [folder])
    assert kept.pruned == 0
    assert "b.md" in await paths(services)
    report = await services.sources.ingest_paths(DEFAULT_TENANT, CONTEXT, [folder], prune=True)
    assert report.pruned == 1
    assert [outcome.path for outcome in report.outcomes if outcome.status == "PRUNED"] == ["b.md"]
    assert await paths(services) == ["a.md", "security/audit.md"]


async def test_a_cancelled_run_keeps_what_it_committed_and_goes_on(services, tmp_path, owner):
    for number in range(900):
        (tmp_path / f"{number:03}.md").write_text(f"# File {number}\n\nThe lighthouse keeper wrote page {number}.\n")
    run = asyncio.create_task(services.sources.ingest_paths(DEFAULT_TENANT, CONTEXT, [tmp_path], workers=1))
    while not await owner.fetchval("SELECT EXISTS (SELECT FROM source)"):
        assert not run.done()
        await asyncio.sleep(0.002)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    stored = await owner.fetchval("SELECT count(*) FROM source")
    assert 0 < stored < 900
    whole = """
        SELECT count(*) FROM source s
        WHERE EXISTS (SELECT FROM source_content c WHERE c.source_id = s.source_id)
          AND EXISTS (SELECT FROM section x WHERE x.source_id = s.source_id)
          AND (SELECT count(*) FROM passage p WHERE p.source_id = s.source_id) = s.passage_count
    """
    assert await owner.fetchval(whole) == stored
    assert await owner.fetchval("SELECT count(*) FROM passage") == stored
    report = await services.sources.ingest_paths(DEFAULT_TENANT, CONTEXT, [tmp_path], workers=1)
    assert (report.unchanged, report.added) == (stored, 900 - stored)
    assert await owner.fetchval(whole) == 900


async def test_the_range_of_a_section_begins_with_its_heading(services):
    await put(services, doc("a.md", "# Ärger\n\nVorwort 😀.\n\n## Übung\n\nText.\n"))
    detail = await services.sources.get(DEFAULT_TENANT, CONTEXT, "a.md")
    headed = [section for section in detail.sections if section.heading]
    assert [section.heading for section in headed] == ["Ärger", "Übung"]
    for section in headed:
        part = await services.sources.read_text(DEFAULT_TENANT, CONTEXT, "a.md", section.start_byte, section.end_byte)
        assert part.text.lstrip("# ").startswith(section.heading)


async def test_dirt_is_counted_for_source_and_run(services):
    report = await put(services, doc("dirty.md", "# Dirt\r\n\r\nA\x00 lone \ud800 word.\r\n"))
    assert report.normalisation == {"carriage_returns": 3, "lone_surrogates": 1, "nul": 1}
    detail = await services.sources.get(DEFAULT_TENANT, CONTEXT, "dirty.md")
    assert detail.normalisation == report.normalisation
    assert await text_of(services, "dirty.md") == "# Dirt\n\nA lone  word.\n"


async def test_clean_text_is_stored_as_it_is(services):
    content = "# Café\n\nＦｕｌｌ width, e\u0301 and \u200fright to left stay. 😀\n"
    report = await put(services, doc("clean.md", content))
    assert report.normalisation == {}
    assert await text_of(services, "clean.md") == content


async def test_dots_in_a_path_are_resolved(services):
    await put(services, doc("a/./b/../c.md", "# C\n\nText.\n"))
    assert await paths(services) == ["a/c.md"]


async def test_a_path_above_the_root_is_refused_at_its_field(services):
    report = await services.sources.ingest(DEFAULT_TENANT, CONTEXT, [doc("../secret.md", "text"), LUNCH])
    (refusal,) = report.refusals
    assert (refusal.code, refusal.pointer) == ("invalid_request", "/documents/0/path")
    assert await paths(services) == ["lunch.md"]


async def test_of_two_documents_with_one_path_the_first_counts(services):
    report = await services.sources.ingest(DEFAULT_TENANT, CONTEXT, [LUNCH, doc("./lunch.md", "# Other\n\nOther.\n")])
    assert (report.added, [refusal.reason for refusal in report.refusals]) == (1, ["duplicate_path"])
    assert "canteen" in await text_of(services, "lunch.md")


async def test_a_category_of_the_request_wins_over_the_front_matter(services):
    content = "---\ncategory: hr\ntags: [leave, policy]\n---\n# Leave\n\nText.\n"
    await put(services, doc("own.md", content), doc("given.md", content, category="it"))
    own = await services.sources.get(DEFAULT_TENANT, CONTEXT, "own.md")
    assert (own.category, own.tags) == ("hr", ["leave", "policy"])
    assert (await services.sources.get(DEFAULT_TENANT, CONTEXT, "given.md")).category == "it"


async def test_a_date_that_is_none_is_left_out_with_a_warning(services):
    report = await put(services, doc("a.md", "---\ndate: next Tuesday\n---\n# A\n\nText.\n"))
    assert any("date" in warning for warning in report.outcomes[0].warnings)
    assert (await services.sources.get(DEFAULT_TENANT, CONTEXT, "a.md")).occurred_at is None


async def test_the_first_document_makes_the_context(services):
    report = await put(services, AUDIT, context="new")
    made = await services.contexts.get(DEFAULT_TENANT, "new")
    assert (made.id, made.sources) == (report.context_id, 1)


async def test_missing_paths_make_no_context(services, tmp_path):
    missing = [tmp_path / "x", tmp_path / "y"]
    report = await services.sources.ingest_paths(DEFAULT_TENANT, "new", missing)
    assert report.context_id is None
    assert [refusal.path for refusal in report.refusals] == [str(path) for path in missing]
    assert {refusal.reason for refusal in report.refusals} == {"unreadable"}
    assert (await services.contexts.list(DEFAULT_TENANT)).contexts == []


async def test_a_document_too_many_refuses_the_request(services):
    documents = [doc(f"{number}.md", "text") for number in range(1001)]
    with pytest.raises(StrataError) as error:
        await services.sources.ingest(DEFAULT_TENANT, CONTEXT, documents)
    assert pointed(error.value) == ("invalid_request", "/documents")
    assert (await services.contexts.list(DEFAULT_TENANT)).contexts == []


async def test_a_context_of_one_name_is_another_for_each_tenant(services):
    report = await put(services, AUDIT)
    with pytest.raises(StrataError) as error:
        await services.sources.list(OTHER_TENANT, CONTEXT)
    assert error.value.code == "context_not_found"
    with pytest.raises(StrataError) as error:
        await services.sources.get(OTHER_TENANT, str(report.context_id), AUDIT.path)
    assert error.value.code == "context_not_found"
    theirs = await services.sources.ingest(OTHER_TENANT, CONTEXT, [LUNCH])
    assert theirs.context_id != report.context_id
    assert await paths(services, tenant=OTHER_TENANT) == ["lunch.md"]
    assert await paths(services) == [AUDIT.path]


async def test_hints_follow_the_document_that_gives_them(services):
    await services.hints.put(DEFAULT_TENANT, CONTEXT, [HintInput(title="Canteen", targets=["lunch.md"])])
    content = "---\naliases: [PTO]\n---\n# Leave guide\n\n## Vacation days\n\nThirty.\n\n## Introduction\n\nHello.\n"
    await put(services, doc("leave.md", content))

    async def given():
        hints = (await services.hints.list(DEFAULT_TENANT, CONTEXT)).hints
        return sorted((hint.origin.value, hint.title) for hint in hints)

    curated = ("curated", "Canteen")
    assert await given() == [curated, ("derived", "Vacation days"), ("frontmatter", "Leave guide")]
    await put(services, doc("leave.md", content.replace("Vacation days", "Sick days")))
    assert await given() == [curated, ("derived", "Sick days"), ("frontmatter", "Leave guide")]
    derived = (await services.hints.list(DEFAULT_TENANT, CONTEXT, origin=HintOrigin.DERIVED)).hints[0]
    with pytest.raises(StrataError) as error:
        await services.hints.delete(DEFAULT_TENANT, CONTEXT, derived.hint_id)
    assert error.value.code == "conflict"
    await services.sources.delete(DEFAULT_TENANT, CONTEXT, "leave.md")
    assert await given() == [curated]
