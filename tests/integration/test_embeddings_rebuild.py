"""A new embedding space is built beside the old one and takes over at once; large spaces get an index."""

from __future__ import annotations

import asyncio
import re
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from embedding_support import WordEmbedder, WordEmbedders, bag_of_words, check_vectors
from strata.embeddings import upkeep
from strata.embeddings.service import EmbeddingService
from strata.embeddings.upkeep import Upkeep
from strata.errors import CONFLICT, DATABASE_UNAVAILABLE, StrataError
from strata.lanes.vector.index import SpaceRef, VectorIndex
from strata.lanes.vector.index_repository import index_is_valid, index_name, rebuild_index
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.work import WorkPolicy
from strata.sources.model import DocumentInput

pytestmark = pytest.mark.database

HASTY = WorkPolicy(lease_seconds=5.0, max_attempts=2, first_wait_seconds=0.02, longest_wait_seconds=0.05)
OLD = 64
NEW = 48


@pytest.fixture
def embedders(embedder):
    return WordEmbedders(embedder)


@pytest.fixture
async def embeddings(settings, database, services, embedders):
    made = EmbeddingService(database, settings, services.contexts, embedders, HASTY)
    yield made
    await made.close()


async def ingest(services, *texts, first=0):
    documents = [DocumentInput(content=text, path=f"{n}.txt") for n, text in enumerate(texts, first)]
    assert (await services.sources.ingest(DEFAULT_TENANT, "c", documents)).refused == 0


@pytest.fixture
async def changed(services, embeddings, embedders, embedder):
    """A context of 100 passages embedded by the old model, and a new one configured."""
    await ingest(services, *(f"text number {n}" for n in range(100)))
    await embeddings.run(DEFAULT_TENANT)
    embedders.current, embedders.others = WordEmbedder("better", NEW), [embedder]
    return embeddings


def states(status):
    return [(space.state, space.model, space.vectors) for space in status.spaces]


async def test_a_model_that_is_not_the_active_one_is_told_of_with_both_names_and_dimensions(services, changed):
    status = await changed.context_status(DEFAULT_TENANT, "c")
    assert status.notes == [
        "configured: better (48 dimensions, 1); active: words (64 dimensions, 1); run `strata embeddings rebuild c`"
    ]
    # Until then the old space serves, and what is new goes into it, never a vector of another model.
    await ingest(services, "one more", first=100)
    await changed.run(DEFAULT_TENANT)
    assert states(await changed.context_status(DEFAULT_TENANT, "c")) == [("active", "words", 101)]
    await check_vectors(services, DEFAULT_TENANT)


async def test_a_rebuild_takes_over_in_one_transaction_while_lookups_go_on(services, changed, settings, database):
    index = VectorIndex(settings)
    revision = (await services.contexts.get(DEFAULT_TENANT, "c")).revisions.config
    context = (await services.contexts.get(DEFAULT_TENANT, "c")).id
    dimensions, stop = [], asyncio.Event()

    async def look():
        while not stop.is_set():
            async with database.work(DEFAULT_TENANT, snapshot=True) as connection:
                active = (await changed.active(connection, DEFAULT_TENANT, [context]))[context]
                hits = await index.search(
                    connection,
                    DEFAULT_TENANT,
                    context,
                    SpaceRef(active.space_id, active.space.dimension, active.vectors, active.is_indexed),
                    bag_of_words("text number 7", active.space.dimension),
                    k=5,
                    eligible=None,
                    also=(),
                )
            assert len(hits.hits) == 5
            dimensions.append(active.space.dimension)
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    status = await changed.rebuild(DEFAULT_TENANT, "c")
    assert states(status) == [("active", "words", 100), ("building", "better", 0)]
    assert "takes over when it is complete" in status.notes[0]
    await ingest(services, "meanwhile", first=100)
    assert (await changed.run(DEFAULT_TENANT)).coverage == 1.0
    await asyncio.sleep(0.05)
    stop.set()
    await looking
    assert (dimensions[0], dimensions[-1]) == (OLD, NEW)
    assert dimensions == sorted(dimensions, reverse=True)
    status = await changed.context_status(DEFAULT_TENANT, "c")
    assert (states(status), status.notes) == ([("active", "better", 101)], [])
    await check_vectors(services, DEFAULT_TENANT, dimension=NEW)
    assert (await services.contexts.get(DEFAULT_TENANT, "c")).revisions.config == revision + 1


async def test_ingest_feeds_both_spaces_while_one_is_built(services, changed):
    await changed.rebuild(DEFAULT_TENANT, "c")
    await ingest(services, "replaced", "replaced too", "new", first=98)
    await services.sources.delete(DEFAULT_TENANT, "c", "0.txt")
    status = await changed.context_status(DEFAULT_TENANT, "c")
    assert [(space.state, space.vectors, space.waiting) for space in status.spaces] == [
        ("active", 97, 1),
        ("building", 0, 2),
    ]
    await changed.run(DEFAULT_TENANT)
    await check_vectors(services, DEFAULT_TENANT, dimension=NEW)
    assert states(await changed.context_status(DEFAULT_TENANT, "c")) == [("active", "better", 100)]


async def test_a_rebuild_that_was_broken_off_goes_on(services, changed, embedders):
    await changed.rebuild(DEFAULT_TENANT, "c")
    worker = changed._worker()
    await worker.step(DEFAULT_TENANT)
    worker._limit = 1
    await worker.step(DEFAULT_TENANT)
    assert states(await changed.context_status(DEFAULT_TENANT, "c")) == [
        ("active", "words", 100),
        ("building", "better", 32),
    ]
    calls = len(embedders.current.calls)
    assert states(await changed.rebuild(DEFAULT_TENANT, "c"))[1] == ("building", "better", 32)
    await changed.run(DEFAULT_TENANT)
    assert sum(len(call) for call in embedders.current.calls[calls:]) == 68
    assert states(await changed.context_status(DEFAULT_TENANT, "c")) == [("active", "better", 100)]


async def test_a_rebuild_for_a_third_model_gives_up_the_second(services, changed, embedders):
    await changed.rebuild(DEFAULT_TENANT, "c")
    await changed._worker().step(DEFAULT_TENANT)
    embedders.others.append(embedders.current)
    embedders.current = WordEmbedder("best", 32)
    await changed.rebuild(DEFAULT_TENANT, "c")
    await changed.run(DEFAULT_TENANT)
    assert states(await changed.context_status(DEFAULT_TENANT, "c")) == [("active", "best", 100)]
    await check_vectors(services, DEFAULT_TENANT, dimension=32)


async def test_going_back_to_the_active_model_gives_up_what_was_built(services, changed, embedders, embedder):
    await changed.rebuild(DEFAULT_TENANT, "c")
    embedders.current = embedder
    await changed.rebuild(DEFAULT_TENANT, "c")
    await changed.run(DEFAULT_TENANT)
    assert states(await changed.context_status(DEFAULT_TENANT, "c")) == [("active", "words", 100)]
    await check_vectors(services, DEFAULT_TENANT)


async def test_a_rebuild_by_the_same_model_is_refused_unless_forced(services, embeddings, embedder):
    await ingest(services, "one", "two")
    await embeddings.run(DEFAULT_TENANT)
    with pytest.raises(StrataError) as raised:
        await embeddings.rebuild(DEFAULT_TENANT, "c")
    assert raised.value.kind is CONFLICT
    assert "words (64 dimensions)" in raised.value.detail
    before = (await embeddings.context_status(DEFAULT_TENANT, "c")).spaces[0].id
    await embeddings.rebuild(DEFAULT_TENANT, "c", force=True)
    await embeddings.run(DEFAULT_TENANT)
    after = await embeddings.context_status(DEFAULT_TENANT, "c")
    assert states(after) == [("active", "words", 2)]
    assert after.spaces[0].id != before
    await check_vectors(services, DEFAULT_TENANT)


async def test_a_rebuild_of_a_context_without_vectors_makes_its_first_space(services, embeddings):
    await ingest(services, "one")
    assert states(await embeddings.rebuild(DEFAULT_TENANT, "c")) == [("active", "words", 0)]
    assert (await embeddings.run(DEFAULT_TENANT)).embedded == 1


async def test_a_new_space_in_which_little_embeds_does_not_take_over(services, changed, embedders):
    embedders.current.poison = ("number 1", "number 2")
    await changed.rebuild(DEFAULT_TENANT, "c")
    await changed.run(DEFAULT_TENANT)
    status = await changed.context_status(DEFAULT_TENANT, "c")
    assert [space.state for space in status.spaces] == ["active", "building"]
    assert status.coverage == 1.0
    embedders.current.poison = ()
    await changed.run(DEFAULT_TENANT, retries_failed=True)
    assert states(await changed.context_status(DEFAULT_TENANT, "c")) == [("active", "better", 100)]


@pytest.fixture
def indexing(settings, database, services, embedders):
    small = msgspec.structs.replace(settings, vector_exact_limit=50)
    return EmbeddingService(database, small, services.contexts, embedders, HASTY)


async def valid(database, space_id):
    async with database.work(DEFAULT_TENANT) as connection:
        return await index_is_valid(connection, space_id)


async def test_a_large_space_gets_an_index_and_a_rebuild_moves_it(services, indexing, database, embedders, embedder):
    await ingest(services, *(f"text number {n}" for n in range(49)))
    await indexing.run(DEFAULT_TENANT)
    old = (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0]
    assert not old.is_indexed
    await ingest(services, "the fiftieth", first=49)
    await indexing.run(DEFAULT_TENANT)
    assert (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0].is_indexed
    assert await valid(database, old.id)
    embedders.current, embedders.others = WordEmbedder("better", NEW), [embedder]
    await indexing.rebuild(DEFAULT_TENANT, "c")
    await indexing.run(DEFAULT_TENANT)
    new = (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0]
    assert (new.model, new.is_indexed, await valid(database, new.id), await valid(database, old.id)) == (
        "better",
        True,
        True,
        False,
    )


async def test_an_index_is_built_anew_when_much_was_removed(services, indexing):
    await ingest(services, *(f"text number {n}" for n in range(100)))
    await indexing.run(DEFAULT_TENANT)
    await services.sources.delete_all(DEFAULT_TENANT, "c", prefix="1")
    await ingest(services, *(f"changed {n}" for n in range(20, 30)), first=20)
    assert (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0].removed == 21
    await indexing.run(DEFAULT_TENANT)
    space = (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0]
    assert (space.is_indexed, space.removed, space.vectors) == (True, 0, 89)


async def test_an_index_with_much_removed_is_built_anew_beside_the_one_that_answers(
    services, indexing, database, monkeypatch
):
    await ingest(services, *(f"text number {n}" for n in range(100)))
    await indexing.run(DEFAULT_TENANT)
    space = (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0]
    before = await node(database, space.id)
    stood = []

    async def watched(owner, space_id, dimension, **options):
        stood.append(await valid(database, space_id))
        view = (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0]
        stood.append(view.is_indexed)
        return await rebuild_index(owner, space_id, dimension, **options)

    monkeypatch.setattr(upkeep, "rebuild_index", watched)
    for n in range(9):
        await services.sources.delete(DEFAULT_TENANT, "c", f"{n}.txt")
    await indexing.run(DEFAULT_TENANT)
    # 9 of 91 are less than a tenth.
    assert (stood, await node(database, space.id)) == ([], before)
    await services.sources.delete(DEFAULT_TENANT, "c", "9.txt")
    await indexing.run(DEFAULT_TENANT)
    assert stood == [True, True]
    after = (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0]
    assert (after.is_indexed, after.removed, after.vectors) == (True, 0, 90)
    assert await node(database, space.id) != before


async def test_a_rebuild_of_an_index_that_fails_leaves_the_old_one_to_answer(services, indexing, database, monkeypatch):
    await ingest(services, *(f"text number {n}" for n in range(60)))
    await indexing.run(DEFAULT_TENANT)

    async def failing(*_, **__):
        raise StrataError(DATABASE_UNAVAILABLE, "The test server is gone.")

    monkeypatch.setattr(upkeep, "rebuild_index", failing)
    await services.sources.delete_all(DEFAULT_TENANT, "c", prefix="1")
    await indexing.run(DEFAULT_TENANT)
    space = (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0]
    assert (space.is_indexed, space.removed, await valid(database, space.id)) == (True, 11, True)


async def node(database, space_id):
    """The file that an index lies in: another after every build."""
    async with database.work(DEFAULT_TENANT) as connection:
        return await connection.fetchval("SELECT pg_relation_filenode($1::text::regclass)", index_name(space_id))


async def vector_indexes(dsn):
    owner = await asyncpg.connect(dsn)
    try:
        rows = await owner.fetch(
            "SELECT indexrelid::regclass::text FROM pg_index "
            "WHERE indrelid = 'passage_vector'::regclass AND NOT indisprimary ORDER BY 1"
        )
    finally:
        await owner.close()
    return [row[0] for row in rows]


async def test_the_indexes_of_deleted_contexts_are_dropped_some_a_round(services, indexing, dsn, monkeypatch):
    await ingest(services, *(f"text number {n}" for n in range(60)))
    await indexing.run(DEFAULT_TENANT)
    kept = index_name((await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0].id)
    documents = [DocumentInput(content=f"text number {n}", path=f"{n}.txt") for n in range(50)]
    for name in ("d", "e", "f"):
        await services.sources.ingest(DEFAULT_TENANT, name, documents)
    await indexing.run(DEFAULT_TENANT)
    stray = [index_name((await indexing.context_status(DEFAULT_TENANT, name)).spaces[0].id) for name in "def"]
    assert await vector_indexes(dsn) == sorted([kept, *stray])
    for name in "def":
        await services.contexts.delete(DEFAULT_TENANT, name)
    # One that a failed rebuild left goes with its index.
    owner = await asyncpg.connect(dsn)
    left = f"{stray[0]}_ccnew"
    await owner.execute(f"CREATE INDEX {left} ON passage_vector (passage_id) WHERE space_id = 0")
    await owner.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = $1::text::regclass", left)
    await owner.close()
    monkeypatch.setattr(upkeep, "_STRAYS_PER_ROUND", 2)
    await indexing.run(DEFAULT_TENANT, "c")
    assert len(await vector_indexes(dsn)) == 5
    await indexing.run(DEFAULT_TENANT)
    assert await vector_indexes(dsn) == sorted([kept, stray[2]])
    await indexing.run(DEFAULT_TENANT)
    assert await vector_indexes(dsn) == [kept]


async def test_the_index_of_another_tenants_space_is_no_stray(services, indexing, database, dsn):
    other = uuid4()
    owner = await asyncpg.connect(dsn)
    await owner.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, 'other')", other)
    await services.sources.ingest(other, "c", [DocumentInput(content=f"text {n}", path=f"{n}.txt") for n in range(60)])
    await indexing.run(other)
    indexes = await vector_indexes(dsn)
    assert len(indexes) == 1
    await indexing.run(DEFAULT_TENANT)
    assert await vector_indexes(dsn) == indexes
    role = await owner.fetchval("SELECT 'strata_login_' || pg_backend_pid()")
    await owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'limited'")
    try:
        # An owner that row-level security binds sees no space at all, and drops nothing.
        await owner.execute(f"GRANT strata_app TO {role}")
        for table in ("passage_vector", "embedding_space"):
            await owner.execute(f"ALTER TABLE {table} OWNER TO {role}")
        bound = Database(re.sub(r"//([^@/]*@)?", f"//{role}:limited@", dsn, count=1), database._settings)
        await Upkeep(bound, services.contexts, exact_limit=50, is_on=True).run(DEFAULT_TENANT)
        await bound.close()
        assert await vector_indexes(dsn) == indexes
        await services.contexts.delete(other, "c")
        await Upkeep(database, services.contexts, exact_limit=50, is_on=True).run(DEFAULT_TENANT)
        assert await vector_indexes(dsn) == []
    finally:
        for table in ("passage_vector", "embedding_space"):
            await owner.execute(f"ALTER TABLE {table} OWNER TO CURRENT_USER")
        await owner.execute(f"DROP OWNED BY {role}")
        await owner.execute(f"DROP ROLE {role}")
        await owner.close()


async def test_an_index_that_a_crash_left_invalid_is_built_anew(services, indexing, database, dsn):
    await ingest(services, *(f"text number {n}" for n in range(60)))
    await indexing.run(DEFAULT_TENANT)
    space = (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0]
    owner = await asyncpg.connect(dsn)
    await owner.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = $1::text::regclass", index_name(space.id)
    )
    await owner.close()
    assert not await valid(database, space.id)
    await indexing.run(DEFAULT_TENANT)
    assert await valid(database, space.id)
    assert (await indexing.context_status(DEFAULT_TENANT, "c")).spaces[0].is_indexed


async def test_without_the_owners_rights_status_says_what_to_run(services, embedders, settings, dsn):
    await ingest(services, *(f"text number {n}" for n in range(60)))
    owner = await asyncpg.connect(dsn)
    role = await owner.fetchval("SELECT 'strata_login_' || pg_backend_pid()")
    await owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'limited'")
    try:
        await owner.execute(f"GRANT strata_app TO {role}")
        limited = msgspec.structs.replace(settings, vector_exact_limit=50)
        database = Database(re.sub(r"//([^@/]*@)?", f"//{role}:limited@", dsn, count=1), limited)
        service = EmbeddingService(database, limited, services.contexts, embedders, HASTY)
        await service.run(DEFAULT_TENANT)
        status = await service.context_status(DEFAULT_TENANT, "c")
        assert not status.spaces[0].is_indexed
        statement = status.notes[0].partition("run: ")[2]
        await database.close()
        await owner.execute(statement)
        await EmbeddingService(services.database, limited, services.contexts, embedders, HASTY).run(DEFAULT_TENANT)
        status = await service_status(services, limited, embedders)
        assert (status.spaces[0].is_indexed, status.notes) == (True, [])
    finally:
        await owner.execute(f"REVOKE strata_app FROM {role}")
        await owner.execute(f"DROP ROLE {role}")
        await owner.close()


async def service_status(services, settings, embedders):
    service = EmbeddingService(services.database, settings, services.contexts, embedders, HASTY)
    return await service.context_status(DEFAULT_TENANT, "c")
