"""Vectors follow what is ingested, replaced and deleted."""

from __future__ import annotations

import asyncio
import random
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from embedding_support import WordEmbedder, WordEmbedders, check_vectors
from strata.errors import CONTEXT_NOT_FOUND, INVALID_SETTING, StrataError
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose
from strata.sources.model import DocumentInput

pytestmark = pytest.mark.database


def document(path, text):
    return DocumentInput(content=text, path=path, media_type="text/markdown")


async def ingest(services, *documents, context="c", tenant=DEFAULT_TENANT):
    report = await services.sources.ingest(tenant, context, documents)
    assert report.refused == 0
    return report


async def count(services, table, tenant=DEFAULT_TENANT):
    async with services.database.work(tenant) as connection:
        return await connection.fetchval(f"SELECT count(*) FROM {table}")


async def test_a_run_embeds_every_passage_and_a_second_finds_nothing_to_do(embedding_services, embedder):
    services = embedding_services
    await ingest(services, *(document(f"{n}.md", f"# Part {n}\n\nSome words about thing {n}.") for n in range(70)))
    before = await services.embeddings.context_status(DEFAULT_TENANT, "c")
    assert (before.coverage, before.spaces, before.passages) == (0.0, [], 70)
    seen = []
    report = await services.embeddings.run(DEFAULT_TENANT, "c", seen.append)
    assert (report.embedded, report.failed, report.coverage) == (70, 0, 1.0)
    assert (seen[0].done, seen[0].total) == (0, 70)
    after = await services.embeddings.context_status(DEFAULT_TENANT, "c")
    assert (after.coverage, after.spaces[0].vectors, after.notes) == (1.0, 70, [])
    await check_vectors(services, DEFAULT_TENANT)
    calls = len(embedder.calls)
    assert (await services.embeddings.run(DEFAULT_TENANT)).embedded == 0
    assert len(embedder.calls) == calls
    assert await count(services, "work") == 0


async def test_what_is_embedded_has_title_and_headings_above_it(embedding_services, embedder):
    await ingest(embedding_services, document("a.md", "# Leave\n\n## Vacation\n\nEveryone has 30 days.\n"))
    await embedding_services.embeddings.run(DEFAULT_TENANT)
    texts = [text for call in embedder.calls for text in call]
    assert texts
    assert all("Leave" in text and "Vacation" in text for text in texts)


async def test_a_long_source_is_embedded_in_several_items(embedding_services):
    body = "\n\n".join(f"# Section {n}\n\n" + "word " * 200 for n in range(150))
    await ingest(embedding_services, document("long.md", body))
    report = await embedding_services.embeddings.run(DEFAULT_TENANT)
    assert report.embedded >= 150
    await check_vectors(embedding_services, DEFAULT_TENANT)


async def test_later_sources_go_to_the_queue_of_the_space_that_stands(embedding_services):
    services = embedding_services
    await ingest(services, document("a.md", "first"))
    await services.embeddings.run(DEFAULT_TENANT)
    await ingest(services, document("b.md", "second"))
    status = await services.embeddings.context_status(DEFAULT_TENANT, "c")
    assert (status.coverage, status.spaces[0].waiting) == (0.5, 1)
    assert (await services.embeddings.run(DEFAULT_TENANT)).embedded == 1
    assert len((await services.embeddings.context_status(DEFAULT_TENANT, "c")).spaces) == 1


async def test_with_embeddings_off_there_are_no_rows_and_a_run_says_why(settings, database, services):
    await ingest(services, document("a.md", "text"))
    assert [await count(services, table) for table in ("work", "embedding_space", "passage_vector")] == [0, 0, 0]
    for call in (services.embeddings.run(DEFAULT_TENANT), services.embeddings.rebuild(DEFAULT_TENANT, "c")):
        with pytest.raises(StrataError) as raised:
            await call
        assert raised.value.kind is INVALID_SETTING
    services.embeddings.start_background(DEFAULT_TENANT)
    await services.embeddings.settle()
    status = await services.embeddings.context_status(DEFAULT_TENANT, "c")
    assert "off" in status.notes[0]
    # Turned on later, a run finds what is there.
    later = compose(settings, database, embedders=WordEmbedders(WordEmbedder()))
    assert (await later.embeddings.run(DEFAULT_TENANT)).embedded == 1
    await later.close()


async def test_a_process_with_embeddings_off_still_feeds_the_spaces_that_stand(services, embedding_services):
    await ingest(embedding_services, document("a.md", "one"))
    await embedding_services.embeddings.run(DEFAULT_TENANT)
    await ingest(services, document("b.md", "two"))
    assert (await embedding_services.embeddings.run(DEFAULT_TENANT)).embedded == 1


async def test_a_new_revision_keeps_the_vectors_of_what_did_not_change(embedding_services, embedder):
    services = embedding_services
    parts = [f"# Part {n}\n\nThe words of part {n}." for n in range(40)]
    await ingest(services, document("a.md", "\n\n".join(parts)), document("b.md", "# Part 3\n\nAnother source."))
    await services.embeddings.run(DEFAULT_TENANT)
    before = (await services.embeddings.context_status(DEFAULT_TENANT, "c")).passages
    embedder.calls.clear()
    parts[5], parts[6:6] = "# Part 5\n\nChanged.", ["# New\n\nNew.", parts[7]]
    await ingest(services, document("a.md", "\n\n".join(parts)))
    await check_vectors(services, DEFAULT_TENANT, is_complete=False)
    assert (await services.embeddings.context_status(DEFAULT_TENANT, "c")).spaces[0].vectors == before - 1
    report = await services.embeddings.run(DEFAULT_TENANT)
    # What changed, what is new, and the second of two equal ones.
    assert report.embedded == sum(len(call) for call in embedder.calls) == 3
    await check_vectors(services, DEFAULT_TENANT)


async def test_a_new_title_changes_what_is_embedded_of_every_passage(embedding_services, embedder):
    services = embedding_services
    body = "".join(f"\n\n## Part {n}\n\nThe words of part {n}." for n in range(10))
    await ingest(services, document("a.md", f"# Old{body}"))
    total = (await services.embeddings.run(DEFAULT_TENANT)).embedded
    await ingest(services, document("a.md", f"# Young{body}"))
    assert (await services.embeddings.run(DEFAULT_TENANT)).embedded == total
    await check_vectors(services, DEFAULT_TENANT)


async def test_a_replacement_during_embedding_leaves_no_stale_vector(embedding_services, embedder):
    services = embedding_services
    await ingest(services, document("a.md", "the old words"))
    embedder.gate = asyncio.Event()
    run = asyncio.create_task(services.embeddings.run(DEFAULT_TENANT))
    await embedder.entered.wait()
    await ingest(services, document("a.md", "quite another text"))
    embedder.gate.set()
    await run
    await check_vectors(services, DEFAULT_TENANT)
    assert await count(services, "passage_vector") == 1


async def test_a_deletion_during_embedding_leaves_nothing(embedding_services, embedder):
    services = embedding_services
    await ingest(services, document("a.md", "gone soon"), document("b.md", "stays"))
    embedder.gate = asyncio.Event()
    run = asyncio.create_task(services.embeddings.run(DEFAULT_TENANT))
    await embedder.entered.wait()
    await services.sources.delete(DEFAULT_TENANT, "c", "a.md")
    embedder.gate.set()
    assert (await run).embedded == 1
    await check_vectors(services, DEFAULT_TENANT)


async def test_a_context_deleted_during_embedding_takes_vectors_and_work_along(embedding_services, embedder):
    services = embedding_services
    await ingest(services, *(document(f"{n}.md", f"text {n}") for n in range(40)))
    await services.embeddings.run(DEFAULT_TENANT)
    await ingest(services, *(document(f"{n}.md", f"text {n}") for n in range(40, 80)))
    embedder.entered.clear()
    embedder.gate = asyncio.Event()
    run = asyncio.create_task(services.embeddings.run(DEFAULT_TENANT))
    await embedder.entered.wait()
    await services.contexts.delete(DEFAULT_TENANT, "c")
    embedder.gate.set()
    assert (await run).embedded == 0
    assert [await count(services, table) for table in ("work", "embedding_space", "passage_vector")] == [0, 0, 0]


async def test_coverage_is_exact_through_any_sequence_of_changes(embedding_services):
    services = embedding_services
    dice = random.Random(20261130)
    await services.contexts.create(DEFAULT_TENANT, "c")

    def some():
        parts = (f"# H{n} {dice.random()}\n\nsome text" for n in range(dice.randint(1, 5)))
        return document(f"{dice.randint(0, 11)}.md", "\n\n".join(parts))

    for _ in range(60):
        match dice.choices(("ingest", "delete", "delete_all", "step", "run"), (9, 3, 1, 3, 4))[0]:
            case "ingest":
                documents = {one.path: one for one in (some() for _ in range(dice.randint(1, 4)))}
                await ingest(services, *documents.values())
            case "delete":
                listed = (await services.sources.list(DEFAULT_TENANT, "c")).sources
                if listed:
                    await services.sources.delete(DEFAULT_TENANT, "c", dice.choice(listed).path)
            case "delete_all":
                await services.sources.delete_all(DEFAULT_TENANT, "c", prefix=str(dice.randint(0, 9)))
            case "step":
                await services.embeddings._worker().step(DEFAULT_TENANT)
            case "run":
                await services.embeddings.run(DEFAULT_TENANT)
                await check_vectors(services, DEFAULT_TENANT)
        await check_vectors(services, DEFAULT_TENANT, is_complete=False)
    await services.embeddings.run(DEFAULT_TENANT)
    await check_vectors(services, DEFAULT_TENANT)


async def test_changes_beside_several_runs_end_in_exact_coverage(embedding_services):
    """Writers and workers of one context at once: no deadlock, no lost passage, no stale vector."""
    services = embedding_services
    await ingest(services, document("seed.md", "seed"))

    async def write(lane):
        for n in range(12):
            await ingest(services, *(document(f"{lane % 2}-{k}.md", f"words {lane} {n} {k}") for k in range(10)))
            if n % 4 == 3:
                await services.sources.delete_all(DEFAULT_TENANT, "c", prefix=f"{lane % 2}-1")

    await asyncio.gather(
        *(write(lane) for lane in range(4)), *(services.embeddings.run(DEFAULT_TENANT) for _ in range(3))
    )
    await services.embeddings.run(DEFAULT_TENANT)
    await check_vectors(services, DEFAULT_TENANT)


async def test_tenants_are_apart(embedding_services, dsn):
    services, other = embedding_services, uuid4()
    owner = await asyncpg.connect(dsn)
    await owner.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, 'other')", other)
    await owner.close()
    for tenant in (DEFAULT_TENANT, other):
        await ingest(services, document("same.md", "the same text"), context="same", tenant=tenant)
    assert (await services.embeddings.run(DEFAULT_TENANT)).embedded == 1
    mine = await services.embeddings.context_status(DEFAULT_TENANT, "same")
    theirs = await services.embeddings.context_status(other, "same")
    assert (mine.coverage, theirs.coverage, theirs.spaces) == (1.0, 0.0, [])
    with pytest.raises(StrataError) as raised:
        await services.embeddings.context_status(other, str(mine.context_id))
    assert raised.value.kind is CONTEXT_NOT_FOUND
    assert (await services.embeddings.run(other)).embedded == 1
    await services.contexts.delete(other, "same")
    await check_vectors(services, DEFAULT_TENANT)
    assert await count(services, "passage_vector", other) == 0
    assert [view.context for view in (await services.embeddings.status(DEFAULT_TENANT)).contexts] == ["same"]


async def test_a_run_of_one_context_leaves_the_others_alone(embedding_services):
    services = embedding_services
    await ingest(services, document("a.md", "a"), context="one")
    await ingest(services, document("a.md", "a"), context="two")
    await services.embeddings.run(DEFAULT_TENANT, "one")
    views = (await services.embeddings.status(DEFAULT_TENANT)).contexts
    assert [(view.context, view.coverage) for view in views] == [("one", 1.0), ("two", 0.0)]
    with pytest.raises(StrataError) as raised:
        await services.embeddings.run(DEFAULT_TENANT, "three")
    assert raised.value.kind is CONTEXT_NOT_FOUND


async def test_the_lookup_learns_the_active_space(embedding_services, embedder):
    services = embedding_services
    await ingest(services, document("a.md", "a"))
    context = (await services.contexts.get(DEFAULT_TENANT, "c")).id
    async with services.database.work(DEFAULT_TENANT) as connection:
        assert await services.embeddings.active(connection, DEFAULT_TENANT, [context]) == {}
    await services.embeddings.run(DEFAULT_TENANT)
    async with services.database.work(DEFAULT_TENANT) as connection:
        found = (await services.embeddings.active(connection, DEFAULT_TENANT, [context, uuid4()]))[context]
    assert (found.space, found.vectors, found.is_indexed) == (embedder.space, 1, False)


async def test_status_goes_over_the_wire_in_camel_case(embedding_services):
    await ingest(embedding_services, document("a.md", "a"))
    await embedding_services.embeddings.run(DEFAULT_TENANT)
    view = msgspec.to_builtins(await embedding_services.embeddings.context_status(DEFAULT_TENANT, "c"))
    assert view["spaces"][0]["isIndexed"] is False
    assert view["configured"] == {"mode": "folder", "model": "words", "revision": "1", "dimension": 64, "error": None}
