"""The index of a space: built, missing, broken, rebuilt; what the planner makes of it, and the settings."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from strata.errors import StrataError
from strata.lanes.vector import index_repository, repository, tuning
from strata.lanes.vector.index import Eligible, Plan, SpaceRef
from strata.lanes.vector.index_repository import IndexState
from strata.lanes.vector.tuning import search_settings, verify_settings
from strata.platform import doctor_vectors
from strata.platform.database import APPLICATION_ROLE
from strata.platform.doctor import Status
from strata.platform.ids import DEFAULT_TENANT
from strata.services import open_services
from vector_support import PER_SOURCE, SPACE, Lane, found, ids, made, passage, truth

pytestmark = pytest.mark.database


@pytest.fixture
def lane(database, settings):
    return Lane(database, settings)


async def test_an_index_that_is_said_to_stand_but_does_not_costs_time_only(lane):
    rows, questions = made(400)
    await lane.fill(rows)
    expected = truth(rows, questions[0], 10)
    eligible = Eligible([5, 6, 7, 50], 16)
    hits = await lane.search(questions[0], exact_limit=0)
    assert (found(hits), hits.plan) == (expected, Plan.EXACT)
    hits = await lane.search(questions[0], exact_limit=0, eligible=eligible)
    assert (len(hits.hits), hits.plan) == (10, Plan.EXACT)
    await lane.build()
    async with lane.database.owner() as owner:
        name = index_repository.index_name(SPACE)
        await owner.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = $1::text::regclass", name)
        assert (await doctor_vectors.indexes(owner)).status is Status.WARN
    assert await lane.state() is IndexState.INVALID
    hits = await lane.search(questions[0], exact_limit=0)
    assert (found(hits), hits.plan) == (expected, Plan.EXACT)
    assert await lane.build()
    assert await lane.state() is IndexState.VALID
    assert (await lane.search(questions[0], exact_limit=0)).plan is Plan.INDEX
    async with lane.database.owner() as owner:
        assert (await doctor_vectors.indexes(owner)).status is Status.OK


async def test_a_search_beside_a_build_is_answered_exactly_and_no_second_build_starts(lane):
    rows, questions = made(400)
    await lane.fill(rows)
    # The build waits for every transaction that wrote to the table before it.
    blocker = await asyncpg.connect(lane.database.dsn)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("UPDATE passage_vector SET passage_id = passage_id WHERE false")
    building = asyncio.create_task(lane.build())
    try:
        async with asyncio.timeout(20):
            while await lane.state() is not IndexState.BUILDING:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.02)
        hits = await lane.search(questions[0], exact_limit=0)
        assert (found(hits), hits.plan) == (truth(rows, questions[0], 10), Plan.EXACT)
        assert await lane.build() is False
    finally:
        await transaction.rollback()
        await blocker.close()
        assert await building
    assert await lane.state() is IndexState.VALID


async def test_after_most_is_deleted_the_rest_is_found_before_and_after_a_rebuild(lane):
    rows, _ = made(2_000)
    await lane.fill(rows)
    await lane.build()
    kept = list(range(0, 500, 10))
    assert sum((await lane.delete(*[serial for serial in range(1, 501) if serial - 1 not in kept])).values()) == 1_800
    places = [place for place in range(len(rows)) if place // PER_SOURCE in set(kept)]
    space = SpaceRef(SPACE, 32, len(places), is_indexed=True)
    for _ in range(2):
        hits = await lane.search(rows[0], exact_limit=0, space=space, k=200)
        assert set(found(hits)) == {passage(place) for place in places}
        async with lane.database.owner() as owner:
            await index_repository.drop_index(owner, SPACE)
            assert await index_repository.index_bytes(owner, SPACE) == 0
            assert await index_repository.create_index(owner, SPACE, 32, vectors=len(places))


async def test_an_index_is_built_anew_beside_the_one_that_answers(lane):
    rows, questions = made(400)
    await lane.fill(rows)
    for _ in range(2):
        async with lane.database.owner() as owner:
            assert await index_repository.rebuild_index(owner, SPACE, 32, vectors=400)
        assert (await lane.search(questions[0], exact_limit=0)).plan is Plan.INDEX
    blocker = await asyncpg.connect(lane.database.dsn)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("UPDATE passage_vector SET passage_id = passage_id WHERE false")
    async with lane.database.owner() as owner:
        building = asyncio.create_task(index_repository.rebuild_index(owner, SPACE, 32, vectors=400))
        async with lane.database.owner() as other, asyncio.timeout(20):
            progress = "SELECT count(*) FROM pg_stat_progress_create_index"
            while not await other.fetchval(progress):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.02)
        assert (await lane.search(questions[0], exact_limit=0)).plan is Plan.INDEX
        # What a rebuild that was broken off leaves is cleared away by the next.
        building.cancel()
        await transaction.rollback()
        await blocker.close()
        with suppress(asyncio.CancelledError):
            await building
    async with lane.database.owner() as owner:
        assert await index_repository.rebuild_index(owner, SPACE, 32, vectors=400)
        assert await index_repository.invalid_indexes(owner) == []
        await index_repository.drop_index(owner, SPACE)
    assert await lane.state() is IndexState.ABSENT


async def test_spaces_of_other_dimensions_share_the_table_and_not_the_index(lane):
    rows, questions = made(300)
    await lane.fill(made(300, dimension=8)[0], space=SPACE + 1)
    await lane.fill(rows)
    await lane.build()
    async with lane.database.owner() as owner:
        assert await index_repository.create_index(owner, SPACE + 1, 8, vectors=300)
    hits = await lane.search(questions[0], exact_limit=0)
    assert hits.plan is Plan.INDEX
    assert found(hits)[0] == truth(rows, questions[0], 1)[0]


async def test_where_workers_find_no_shared_memory_the_build_goes_on_alone(lane):
    rows, _ = made(300)
    await lane.fill(rows)

    class Cramped:
        """A connection whose server has no room for what parallel workers share."""

        def __init__(self, connection):
            self.connection = connection
            self.failed = 0

        def __getattr__(self, name):
            return getattr(self.connection, name)

        async def execute(self, statement, *args):
            alone = await self.connection.fetchval("SHOW max_parallel_maintenance_workers") == "0"
            if "CREATE INDEX" in statement and not alone:
                self.failed += 1
                with suppress(asyncpg.PostgresError):
                    await self.connection.execute(statement.replace("halfvec(32)", "halfvec(31)"))
                raise asyncpg.DiskFullError("could not resize shared memory segment")
            return await self.connection.execute(statement, *args)

    async with lane.database.owner() as owner:
        cramped = Cramped(owner)
        assert await index_repository.create_index(cramped, SPACE, 32, vectors=300)
        assert cramped.failed == 1
        assert await owner.fetchval("SHOW maintenance_work_mem") == await owner.fetchval(
            "SELECT current_setting('maintenance_work_mem')"
        )
    assert await lane.state() is IndexState.VALID


@pytest.mark.parametrize("plan_cache", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("serials", [None, [1, 2, 3], [1, 10**12]])
@pytest.mark.parametrize("statistics", ["none", "misleading"])
async def test_the_planner_takes_the_index_under_row_level_security(lane, plan_cache, serials, statistics):
    rows, questions = made(2_000)
    await lane.fill(rows)
    await lane.build()
    async with lane.database.owner() as owner:
        if statistics == "none":
            await owner.execute("DELETE FROM pg_statistic WHERE starelid = 'passage_vector'::regclass")
        else:
            # Taken for unrelated, tenant, context and space together leave less than a row.
            for space in range(100, 130):
                await lane_of_tenant(lane, uuid4()).fill(rows[:20], space=space)
            await owner.execute("ANALYZE passage_vector")
    plan = await planned(lane, questions[0], serials, plan_cache)
    assert f"Index Scan using {index_repository.index_name(SPACE)}" in plan


def lane_of_tenant(lane, tenant):
    other = Lane(lane.database, lane.settings)

    async def fill(rows, space):
        async with lane.database.owner() as owner:
            await owner.execute("SELECT set_config('strata.tenant_id', $1, false)", str(tenant))
            await repository.insert_vectors(owner, tenant, other.context, space, ids(len(rows)), rows)

    other.fill = fill
    return other


async def planned(lane, query, serials, plan_cache):
    """Return the plan of the very statement that a search sends."""
    plans = []

    class Explaining:
        def __init__(self, connection):
            self.connection = connection

        async def execute(self, statement, *args):
            return await self.connection.execute(statement, *args)

        async def fetch(self, statement, *args):
            plans.extend(row[0] for row in await self.connection.fetch(f"EXPLAIN {statement}", *args))
            return await self.connection.fetch(statement, *args)

    async with lane.database.work(DEFAULT_TENANT, local={"plan_cache_mode": plan_cache}) as connection:
        await repository.nearest_indexed(
            Explaining(connection),
            DEFAULT_TENANT,
            lane.context,
            SPACE,
            query.tolist(),
            k=10,
            also=[1],
            serials=serials,
            ef_search=100,
            visits=100,
        )
        assert await connection.fetchval("SELECT current_setting('enable_sort')") == "on"
    return "\n".join(plans)


async def test_the_search_settings_take_and_end_with_the_transaction(database, settings):
    async with database.work(DEFAULT_TENANT, local=search_settings(settings)) as connection:
        await verify_settings(connection, settings)
        assert await connection.fetchval("SELECT current_setting('hnsw.iterative_scan')") == "relaxed_order"
    async with database.work(DEFAULT_TENANT) as connection:
        assert await connection.fetchval("SELECT current_setting('hnsw.iterative_scan')") == "off"


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"hnsw.iterated_scan": "relaxed_order"}, "hnsw.iterated_scan = relaxed_order"),
        ({"hnsw.iterative_scan": "sometimes"}, "hnsw.iterative_scan = sometimes"),
        ({"hnsw.ef_search": "100000"}, "hnsw.ef_search = 100000"),
        ({"work_mem": "4096"}, "it is 4MB"),
    ],
)
async def test_a_setting_that_does_not_take_is_an_error_that_names_it(database, asked, named):
    with pytest.raises(StrataError) as wrong:
        async with database.work(DEFAULT_TENANT) as connection:
            await repository.apply_settings(connection, asked)
    assert wrong.value.code == "database_setup"
    assert named in wrong.value.detail
    assert "pgvector 0." in wrong.value.detail


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"hnsw.iterative_scan": "sideways"}, "hnsw.iterative_scan = sideways"),
        ({"hnsw.itinerant_scan": "on"}, "hnsw.itinerant_scan = on"),
        ({"hnsw.ef_search": "100000"}, "hnsw.ef_search = 100000"),
    ],
)
async def test_services_do_not_open_over_a_server_that_does_not_take_a_search_setting(
    settings, monkeypatch, asked, named
):
    on = msgspec.structs.replace(settings, embeddings="local")
    async with open_services(on):
        pass
    monkeypatch.setattr(tuning, "search_settings", lambda given: {**search_settings(given), **asked})
    with pytest.raises(StrataError) as wrong:
        async with open_services(on):
            pass
    assert wrong.value.code == "database_setup"
    assert named in wrong.value.detail
    # Who searches no vectors needs no such setting.
    async with open_services(settings):
        pass


@pytest.mark.parametrize(
    "local", [{"work_mem": "'; DROP TABLE tenant; --"}, {"a b": "1"}, {"Work_mem": "1"}, {"work_mem": ""}, {"": "1"}]
)
async def test_what_is_no_setting_never_reaches_the_server(database, local):
    with pytest.raises(ValueError, match="not a server setting"):
        async with database.work(DEFAULT_TENANT, local=local):
            pass


async def test_the_doctor_reads_back_what_a_search_runs_under(database, settings):
    async with database.owner() as owner:
        check = await doctor_vectors.searches(owner, APPLICATION_ROLE, settings)
        assert check.status is Status.OK
        assert "hnsw.iterative_scan = relaxed_order" in check.detail
        beyond = msgspec.structs.replace(settings, vector_ef_search=5_000)
        check = await doctor_vectors.searches(owner, APPLICATION_ROLE, beyond)
        assert check.status is Status.FAIL
        assert "hnsw.ef_search = 5000" in check.detail
