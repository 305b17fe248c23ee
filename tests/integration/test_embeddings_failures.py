"""Providers that fail, texts that cannot be embedded, and workers that die: nothing is lost, nothing is wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from embedding_support import WordEmbedder, WordEmbedders, check_vectors
from strata.embeddings.service import EmbeddingService
from strata.embeddings.worker import EmbeddingWorker
from strata.errors import EMBEDDING_REFUSED, EMBEDDING_UNAVAILABLE, StrataError
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.work import WorkPolicy
from strata.sources.model import DocumentInput

pytestmark = pytest.mark.database

TESTS = Path(__file__).resolve().parents[1]
HASTY = WorkPolicy(lease_seconds=1.0, max_attempts=3, first_wait_seconds=0.02, longest_wait_seconds=0.05)


@pytest.fixture
def embedders(embedder):
    return WordEmbedders(embedder)


@pytest.fixture
async def embeddings(settings, database, services, embedders):
    made = EmbeddingService(database, settings, services.contexts, embedders, HASTY)
    yield made
    await made.close()


async def ingest(services, *texts, context="c"):
    documents = [DocumentInput(content=text, path=f"{n}.txt") for n, text in enumerate(texts)]
    assert (await services.sources.ingest(DEFAULT_TENANT, context, documents)).refused == 0


async def items(services):
    async with services.database.work(DEFAULT_TENANT) as connection:
        return await connection.fetch("SELECT * FROM work ORDER BY work_id")


async def test_a_provider_that_returns_too_few_vectors_stores_nothing(services, embeddings, embedder):
    await ingest(services, *(f"text {n}" for n in range(10)))
    embedder.drops = 1
    report = await embeddings.run(DEFAULT_TENANT)
    assert (report.embedded, report.failed) == (0, 10)
    status = await embeddings.context_status(DEFAULT_TENANT, "c")
    assert (status.coverage, status.spaces[0].vectors) == (0.0, 0)
    assert status.failures[0].error.startswith("embedding_refused: The embedder returned")
    embedder.drops = 0
    assert (await embeddings.run(DEFAULT_TENANT, retries_failed=True)).embedded == 10
    await check_vectors(services, DEFAULT_TENANT)


async def test_poison_is_named_and_never_blocks_the_rest(services, embeddings, embedder):
    embedder.poison = ("venom",)
    await ingest(services, *(f"text {n}" + (" venom" if n in (3, 40) else "") for n in range(60)))
    report = await embeddings.run(DEFAULT_TENANT)
    assert (report.embedded, report.failed) == (58, 2)
    status = await embeddings.context_status(DEFAULT_TENANT, "c")
    assert [(one.path, one.ordinals) for one in status.failures] == [("3.txt", [0]), ("40.txt", [0])]
    assert status.spaces[0].failed == 2
    assert "2 passages could not be embedded" in status.notes[0]
    await check_vectors(services, DEFAULT_TENANT, is_complete=False)
    assert (await embeddings.run(DEFAULT_TENANT)).failed == 0
    # What is replaced by something harmless is no failure any more.
    await ingest(services, *(f"text {n}" for n in range(60)))
    await embeddings.run(DEFAULT_TENANT)
    assert (await embeddings.context_status(DEFAULT_TENANT, "c")).failures == []
    assert await items(services) == []
    await check_vectors(services, DEFAULT_TENANT)


async def test_a_defect_of_the_embedder_is_poison_like_any_other(services, embeddings, embedder, monkeypatch):
    sound = embedder.embed_passages

    async def breaks(texts):
        if any("cursed" in text for text in texts):
            raise ZeroDivisionError
        return await sound(texts)

    monkeypatch.setattr(embedder, "embed_passages", breaks)
    await ingest(services, "fine", "cursed", "good")
    report = await embeddings.run(DEFAULT_TENANT)
    assert (report.embedded, report.failed) == (2, 1)
    assert (await embeddings.context_status(DEFAULT_TENANT, "c")).failures[
        0
    ].error == "internal_error: ZeroDivisionError"


async def test_while_the_provider_is_down_nothing_counts_as_poison(services, embeddings, embedder):
    await ingest(services, "first")
    await embeddings.run(DEFAULT_TENANT)
    await ingest(services, "first", "second", "third")
    embedder.is_down = True
    for _ in range(3):
        with pytest.raises(StrataError) as raised:
            await embeddings.run(DEFAULT_TENANT)
        assert raised.value.kind is EMBEDDING_UNAVAILABLE
    assert [(row["attempts"], row["is_failed"]) for row in await items(services)] == [(0, False)]
    embedder.is_down = False
    assert (await embeddings.run(DEFAULT_TENANT)).embedded == 2
    await check_vectors(services, DEFAULT_TENANT)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_provider_that_refuses_the_key_or_the_model_poisons_no_text(
    services, embeddings, embedder, monkeypatch, status
):
    await ingest(services, *(f"text {n}" for n in range(40)))
    calls = []

    async def refusing(texts):
        calls.append(len(texts))
        raise StrataError(EMBEDDING_REFUSED, f"The test server answered {status}.", extra={"providerStatus": status})

    with monkeypatch.context() as wrong:
        wrong.setattr(embedder, "embed_passages", refusing)
        for _ in range(HASTY.max_attempts + 1):
            with pytest.raises(StrataError) as raised:
                await embeddings.run(DEFAULT_TENANT)
            assert (raised.value.kind, raised.value.extra) == (EMBEDDING_REFUSED, {"providerStatus": status})
    # No text is tried alone: it is the fault of none.
    assert min(calls) > 1
    assert [(item["is_failed"], item["attempts"]) for item in await items(services)] == [(False, 0)] * 2
    status_view = await embeddings.context_status(DEFAULT_TENANT, "c")
    assert (status_view.failures, status_view.spaces[0].waiting) == ([], 2)
    assert (await embeddings.run(DEFAULT_TENANT)).embedded == 40
    await check_vectors(services, DEFAULT_TENANT)


async def test_a_text_that_is_refused_with_another_status_is_poison(services, embeddings, embedder, monkeypatch):
    await ingest(services, "good", "bad")
    embed = embedder.embed_passages

    async def refusing(texts):
        if any("bad" in text for text in texts):
            raise StrataError(EMBEDDING_REFUSED, "The test server answered 400.", extra={"providerStatus": 400})
        return await embed(texts)

    monkeypatch.setattr(embedder, "embed_passages", refusing)
    report = await embeddings.run(DEFAULT_TENANT)
    assert (report.embedded, report.failed) == (1, 1)


async def test_a_refused_key_at_the_opening_is_an_outage(services, embeddings, embedders, monkeypatch):
    await ingest(services, "text")

    async def refusing():
        raise StrataError(EMBEDDING_REFUSED, "The test server answered 401.", extra={"providerStatus": 401})

    with monkeypatch.context() as wrong:
        wrong.setattr(embedders, "configured", refusing)
        with pytest.raises(StrataError) as raised:
            await embeddings.run(DEFAULT_TENANT)
        assert raised.value.kind is EMBEDDING_REFUSED
        step = await embeddings._worker().step(DEFAULT_TENANT)
        while not step.taken:
            await asyncio.sleep(0.02)
            step = await embeddings._worker().step(DEFAULT_TENANT)
        assert step.outage is not None
    assert (await embeddings.run(DEFAULT_TENANT)).embedded == 1


async def test_ingest_succeeds_while_the_embedder_cannot_be_opened_and_the_space_comes_later(
    services, embedding_services, embeddings, embedders
):
    embedders.can_open = False
    await ingest(embedding_services, "one", "two")
    with pytest.raises(StrataError) as raised:
        await embeddings.run(DEFAULT_TENANT)
    assert raised.value.kind is EMBEDDING_UNAVAILABLE
    status = await embeddings.context_status(DEFAULT_TENANT, "c")
    assert (status.coverage, status.spaces, status.configured.dimension) == (0.0, [], None)
    assert "cannot be opened" in status.notes[0]
    embedders.can_open = True
    assert (await embeddings.run(DEFAULT_TENANT)).embedded == 2


async def test_a_space_that_no_embedder_here_makes_is_left_and_told_of(services, embeddings, embedders):
    await ingest(services, "one")
    await embeddings.run(DEFAULT_TENANT)
    await ingest(services, "one", "two")
    embedders.current = WordEmbedder("other", 32)
    assert (await asyncio.wait_for(embeddings.run(DEFAULT_TENANT), 10)).embedded == 0
    assert [row["attempts"] for row in await items(services)] == [0]


async def test_a_cancelled_run_leaves_its_items_to_the_next(services, embeddings, embedder):
    await ingest(services, *(f"text {n}" for n in range(40)))
    embedder.gate = asyncio.Event()
    run = asyncio.create_task(embeddings.run(DEFAULT_TENANT))
    await embedder.entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert {(row["attempts"], row["worker"]) for row in await items(services)} == {(0, None)}
    embedder.gate.set()
    assert (await embeddings.run(DEFAULT_TENANT)).embedded == 40


KILLED = """
import asyncio, sys
from pathlib import Path
from embedding_support import WordEmbedder, WordEmbedders
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.work import WorkPolicy
from strata.knowledge.service import ContextService
from strata.embeddings.service import EmbeddingService
from strata.settings import load_settings

async def main():
    settings = load_settings({}, home=sys.argv[1], database_url=sys.argv[2], embeddings="none")
    database = Database(sys.argv[2], settings)
    embedder = WordEmbedder()
    embedder.gate = asyncio.Event()
    service = EmbeddingService(
        database, settings, ContextService(database), WordEmbedders(embedder), WorkPolicy(lease_seconds=1.0)
    )
    run = asyncio.create_task(service.run(DEFAULT_TENANT))
    await embedder.entered.wait()
    print("holds", flush=True)
    await run

asyncio.run(main())
"""


async def test_what_a_killed_process_held_is_embedded_by_another(services, embeddings, settings):
    await ingest(services, *(f"text {n}" for n in range(40)))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KILLED,
        str(settings.home),
        settings.database_url,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert (await asyncio.wait_for(process.stdout.readline(), 60)).strip() == b"holds"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert any(row["worker"] for row in await items(services))
    report = await asyncio.wait_for(embeddings.run(DEFAULT_TENANT), 30)
    assert report.embedded == 40
    await check_vectors(services, DEFAULT_TENANT)


async def test_an_item_whose_workers_always_die_is_given_up(services, embeddings, database, embedders):
    await ingest(services, "kills")
    await embeddings.run(DEFAULT_TENANT)
    await ingest(services, "kills", "kills too")
    async with database.work(DEFAULT_TENANT) as connection:
        await connection.execute("UPDATE work SET attempts = 3")
    step = await EmbeddingWorker(database, services.contexts, embedders, HASTY).step(DEFAULT_TENANT)
    assert (step.embedded, step.failed) == (0, 1)
    assert "never finished" in (await items(services))[0]["error"]


async def test_two_workers_of_one_item_store_one_vector(services, embeddings, database, embedders, embedder):
    """A lease that ran out while its worker still lives: both finish, the second changes nothing."""
    await ingest(services, "text")
    await embeddings._upkeep.run(DEFAULT_TENANT)
    await embeddings._worker().step(DEFAULT_TENANT)
    await embeddings._worker().step(DEFAULT_TENANT)
    embedder.gate = asyncio.Event()
    slow = WorkPolicy(lease_seconds=0.05)
    first, second = (EmbeddingWorker(database, services.contexts, embedders, slow) for _ in range(2))
    first._queue.kept = WithoutHeart
    second._queue.kept = WithoutHeart
    one = asyncio.create_task(first.step(DEFAULT_TENANT))
    await embedder.entered.wait()
    await asyncio.sleep(0.1)
    two = asyncio.create_task(second.step(DEFAULT_TENANT))
    await asyncio.sleep(0.1)
    embedder.gate.set()
    assert sorted([(await one).embedded, (await two).embedded]) == [0, 1]
    assert await items(services) == []
    await check_vectors(services, DEFAULT_TENANT)


class WithoutHeart:
    def __init__(self, *_):
        pass

    async def __aenter__(self):
        return None

    async def __aexit__(self, *_):
        return None
