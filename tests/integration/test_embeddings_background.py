"""The workers of a server embed what comes, by themselves."""

from __future__ import annotations

import asyncio

import httpx
import msgspec
import pytest

from embedding_support import WordEmbedder, WordEmbedders, check_vectors
from strata.app import create_app
from strata.embeddings.service import EmbeddingService
from strata.errors import EMBEDDING_MODEL_MISSING, StrataError
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.work import WorkPolicy
from strata.services import compose
from strata.sources.model import DocumentInput

pytestmark = pytest.mark.database

HASTY = WorkPolicy(lease_seconds=5.0, max_attempts=3, first_wait_seconds=0.02, longest_wait_seconds=0.05)


@pytest.fixture
async def server(settings, database, embedder):
    """Services with two background workers."""
    busy = msgspec.structs.replace(settings, embeddings_workers=2)
    composed = compose(busy, database, embedders=WordEmbedders(embedder))
    composed.embeddings.start_background(DEFAULT_TENANT)
    yield composed
    await composed.close()


async def ingest(services, *texts, first=0):
    documents = [DocumentInput(content=text, path=f"{n}.txt") for n, text in enumerate(texts, first)]
    assert (await services.sources.ingest(DEFAULT_TENANT, "c", documents)).refused == 0


async def eventually(ask, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not await ask():  # noqa: ASYNC110 - what is waited for stands in the database
            await asyncio.sleep(0.05)


async def test_what_is_ingested_is_embedded_at_once(server):
    await ingest(server, *(f"text {n}" for n in range(50)))

    async def covered():
        return (await server.embeddings.context_status(DEFAULT_TENANT, "c")).coverage == 1.0

    await eventually(covered)
    await ingest(server, "changed", "new", first=49)
    await server.embeddings.settle()
    await check_vectors(server, DEFAULT_TENANT)


async def test_two_workers_embed_no_passage_twice(server, embedder):
    await ingest(server, *(f"text {n}" for n in range(300)))
    await server.embeddings.settle()
    await check_vectors(server, DEFAULT_TENANT)
    assert sorted(text for call in embedder.calls for text in call) == sorted(f"text {n}" for n in range(300))


async def test_a_rebuild_is_carried_through_and_the_old_vectors_go(server):
    await ingest(server, *(f"text {n}" for n in range(50)))
    await server.embeddings.settle()
    await server.embeddings.rebuild(DEFAULT_TENANT, "c", force=True)
    await server.embeddings.settle()
    spaces = (await server.embeddings.context_status(DEFAULT_TENANT, "c")).spaces
    assert [(space.state, space.vectors) for space in spaces] == [("active", 50)]
    await check_vectors(server, DEFAULT_TENANT)


async def test_closing_puts_back_what_is_held(settings, database, embedder):
    embedder.gate = asyncio.Event()
    composed = compose(settings, database, embedders=WordEmbedders(embedder))
    composed.embeddings.start_background(DEFAULT_TENANT)
    await ingest(composed, "text")
    await asyncio.wait_for(embedder.entered.wait(), 20)
    await composed.close()
    await composed.embeddings.close()
    async with database.work(DEFAULT_TENANT) as connection:
        held = await connection.fetch("SELECT attempts, worker, is_failed FROM work")
    assert [tuple(row) for row in held] == [(0, None, False)]


async def test_workers_outlive_outages_and_defects(settings, database, services, embedder, monkeypatch):
    embedders = WordEmbedders(embedder)
    service = EmbeddingService(database, settings, services.contexts, embedders, HASTY)
    sound, failures = embedders.for_space, [RuntimeError("defect"), StrataError(EMBEDDING_MODEL_MISSING, "gone")]

    async def fails(space):
        if failures:
            raise failures.pop()
        return await sound(space)

    monkeypatch.setattr(embedders, "for_space", fails)
    embedder.is_down = True
    await ingest(services, "text")
    service.start_background(DEFAULT_TENANT)

    async def covered():
        embedder.is_down = bool(failures)
        service.wake()
        return (await service.context_status(DEFAULT_TENANT, "c")).coverage == 1.0

    await eventually(covered)
    await service.close()
    assert not failures


async def test_a_worker_that_waits_or_embeds_holds_no_connection(settings, database, embedder):
    single = msgspec.structs.replace(settings, database_pool_size=1, embeddings_workers=3)
    embedder.gate = asyncio.Event()
    composed = compose(single, type(database)(single.database_url, single), embedders=WordEmbedders(embedder))
    composed.embeddings.start_background(DEFAULT_TENANT)
    await ingest(composed, *(f"text {n}" for n in range(200)))
    await asyncio.wait_for(embedder.entered.wait(), 20)
    await ingest(composed, "found meanwhile", first=200)
    embedder.gate.set()
    await composed.embeddings.settle()
    await check_vectors(composed, DEFAULT_TENANT)
    await composed.close()
    await composed.database.close()


async def test_the_rest_api_says_how_a_context_is_embedded(settings, embedding_services):
    services = embedding_services
    await ingest(services, "one", "two")
    await services.embeddings.run(DEFAULT_TENANT)
    app = create_app(settings, services=services)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://strata.test") as client:
        body = (await client.get("/api/v1/contexts/c/embeddings")).json()
        missing = await client.get("/api/v1/contexts/none/embeddings")
    assert (body["coverage"], body["passages"], body["failures"], body["notes"]) == (1.0, 2, [], [])
    assert (body["spaces"][0]["state"], body["spaces"][0]["vectors"]) == ("active", 2)
    assert (missing.status_code, missing.json()["code"]) == (404, "context_not_found")


async def test_a_server_starts_and_stops_its_workers(settings, database, embedder, monkeypatch):
    composed = compose(settings, database, embedders=WordEmbedders(WordEmbedder()))
    await ingest(composed, "text")
    monkeypatch.setattr("strata.services.Embedders", lambda _settings, **_: WordEmbedders(embedder))
    app = create_app(settings)
    async with app.lifespan():
        services = app.state.services

        async def covered():
            return (await services.embeddings.context_status(DEFAULT_TENANT, "c")).coverage == 1.0

        await eventually(covered)
    await composed.close()
