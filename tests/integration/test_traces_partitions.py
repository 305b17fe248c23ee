"""Weekly partitions: made ahead, never missed, never readable alone, dropped when old."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest

from strata.errors import OVERLOADED, StrataError
from strata.platform.dsn import with_database
from strata.platform.ids import DEFAULT_TENANT, new_id
from strata.platform.migrations import migrate, migration_sql
from strata.traces import partition_repository, retention
from strata.traces.service import InvocationService, Recorder
from traces_samples import invocation

pytestmark = pytest.mark.database

INSERT = """
INSERT INTO tool_invocation (tenant_id, id, created_at, tool_name, surface, status, duration_ms)
VALUES ($1, $2, $3, 'lookup', 'REST', 'SUCCESS', 1)
"""
DEFAULT = "tool_invocation_p2000_default"


@asynccontextmanager
async def connected(dsn, role=None):
    connection = await asyncpg.connect(dsn)
    try:
        if role:
            await connection.execute(f"SET ROLE {role}")
        yield connection
    finally:
        await connection.close()


def monday(weeks: int = 0) -> datetime:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=today.weekday()) + timedelta(weeks=weeks)


def name(start: datetime) -> str:
    return f"tool_invocation_p{start:%Y%m%d}"


async def _old_partition(connection, start: datetime) -> None:
    """Make a partition of the past, as an older installation has it."""
    await connection.execute(
        f"CREATE TABLE {name(start)} PARTITION OF tool_invocation "
        f"FOR VALUES FROM ('{start.isoformat()}') TO ('{(start + timedelta(weeks=1)).isoformat()}')"
    )


async def _names(connection) -> list[str]:
    return [partition.name for partition in await partition_repository.partitions(connection)]


async def test_a_migrated_database_has_this_week_and_the_next_eight(dsn):
    async with connected(dsn) as connection:
        found = await partition_repository.partitions(connection)
        assert [part.name for part in found] == [*(name(monday(week)) for week in range(9)), DEFAULT]
        assert [(part.lower, part.upper) for part in found[:2]] == [(monday(), monday(1)), (monday(1), monday(2))]


async def test_a_new_row_lands_in_the_week_of_the_database_clock(database, settings):
    await Recorder(database, settings).record(invocation())
    async with database.owner() as connection:
        found = await connection.fetchval("SELECT tableoid::regclass::text FROM tool_invocation")
    assert found == name(monday())


async def test_making_partitions_again_makes_none(database):
    assert await retention.make_partitions(database) == 0
    assert await retention.make_partitions(database, 11) == 3
    assert await retention.make_partitions(database, -5) == 0
    assert await InvocationService(database).make_partitions() == 0


async def test_the_number_of_partitions_that_can_be_asked_for_is_bounded(database):
    await retention.make_partitions(database, 10_000)
    async with database.owner() as connection:
        assert len(await _names(connection)) == 55


async def test_concurrent_makers_wait_for_each_other(database):
    made = await asyncio.gather(*(retention.make_partitions(database, 12) for _ in range(5)))
    assert sorted(made) == [0, 0, 0, 0, 4]


async def test_rows_beyond_every_week_are_kept_and_moved_when_their_week_is_made(database):
    tenants = [DEFAULT_TENANT, uuid4()]
    far = monday(10) + timedelta(days=2)
    for tenant in tenants:
        async with database.work(tenant) as connection:
            await connection.execute(INSERT, tenant, new_id(), far)
            await connection.execute(INSERT, tenant, new_id(), monday(-100))
    async with database.owner() as connection:
        assert await connection.fetchval(f"SELECT count(*) FROM {DEFAULT}") == 4
    assert await retention.make_partitions(database, 11) == 3
    async with database.owner() as connection:
        assert await connection.fetchval(f"SELECT count(*) FROM {DEFAULT}") == 2
        assert await connection.fetchval(f"SELECT count(*) FROM {name(monday(10))}") == 2
        forced = (
            "SELECT bool_and(relrowsecurity AND relforcerowsecurity) FROM pg_class WHERE relname ~ '^tool_inv.*_p2'"
        )
        assert await connection.fetchval(forced + " AND relkind IN ('r', 'p')")


async def test_a_partition_made_later_has_the_indexes_and_checks_of_the_table(database):
    await retention.make_partitions(database, 9)
    async with database.owner() as connection:
        sql = """
        SELECT (SELECT count(*) FROM pg_index WHERE indrelid = $1::text::regclass),
               (SELECT count(*) FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid
                WHERE x.indrelid = $1::text::regclass),
               (SELECT array_agg(conname::text ORDER BY conname) FROM pg_constraint
                WHERE conrelid = $1::text::regclass AND contype = 'c')
        """
        made, first = [await connection.fetchrow(sql, name(monday(week))) for week in (9, 0)]
        assert tuple(made) == tuple(first)
        assert made[0] == made[1] == 7
        assert len(made[2]) == 7


async def test_the_application_role_reaches_rows_only_through_the_table(dsn, database, settings):
    await Recorder(database, settings).record(invocation())
    async with connected(dsn, "strata_app") as connection:
        await connection.execute(f"SET strata.tenant_id = '{DEFAULT_TENANT}'")
        assert await connection.fetchval("SELECT count(*) FROM tool_invocation") == 1
        for statement in (
            f"SELECT * FROM {name(monday())}",
            f"SELECT * FROM {DEFAULT}",
            f"INSERT INTO {DEFAULT} SELECT * FROM tool_invocation",
            "UPDATE tool_invocation SET status = 'ERROR'",
            "DELETE FROM tool_invocation",
            "TRUNCATE tool_invocation",
            f"DROP TABLE {name(monday())}",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


async def test_only_the_application_role_may_make_partitions(dsn):
    role = f"strata_stranger_{os.getpid()}"
    async with connected(dsn) as connection:
        await connection.execute(f"CREATE ROLE {role}")
        try:
            await connection.execute(f"SET ROLE {role}")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("SELECT strata_invocation_partitions(1)")
        finally:
            await connection.execute("RESET ROLE")
            await connection.execute(f"DROP ROLE {role}")
        config = await connection.fetchval(
            "SELECT proconfig FROM pg_proc WHERE proname = 'strata_invocation_partitions' AND prosecdef"
        )
    assert "search_path=public, pg_temp" in config


async def test_old_partitions_are_dropped_and_the_rest_is_deleted(database):
    """B-37: what retention removes gives its space back."""
    async with database.owner() as connection:
        for weeks in (-8, -7, -6, -5):
            await _old_partition(connection, monday(weeks))
        for tenant in (DEFAULT_TENANT, uuid4()):
            for days in (*range(1, 56), 400):
                await connection.execute(INSERT, tenant, new_id(), monday() - timedelta(days=days) + timedelta(hours=1))
    age = timedelta(days=30)
    planned = await InvocationService(database).prune(age, dry_run=True)
    async with database.owner() as connection:
        assert await connection.fetchval("SELECT count(*) FROM tool_invocation") == 112
    report = await InvocationService(database).prune(age)
    assert report.partitions_dropped == planned.partitions_dropped
    assert (report.rows_in_partitions, report.rows_deleted) == (planned.rows_in_partitions, planned.rows_deleted)
    assert set(report.partitions_dropped) >= {name(monday(weeks)) for weeks in (-8, -7, -6)}
    async with database.owner() as connection:
        assert not set(report.partitions_dropped) & set(await _names(connection))
        oldest, left = await connection.fetchrow("SELECT min(created_at), count(*) FROM tool_invocation")
        assert oldest >= report.older_than
        assert left == 112 - report.rows_in_partitions - report.rows_deleted
    again = await InvocationService(database).prune(age)
    assert (again.partitions_dropped, again.rows_deleted) == ([], 0)


async def test_rows_go_in_batches(database, monkeypatch):
    monkeypatch.setattr(retention, "DELETE_BATCH", 7)
    async with database.owner() as connection:
        for _ in range(20):
            await connection.execute(INSERT, DEFAULT_TENANT, new_id(), monday(-300))
    report = await retention.prune(database, timedelta(days=1))
    assert report.rows_deleted == 20


async def test_an_age_of_zero_empties_the_table_and_a_huge_one_touches_nothing(database, settings):
    await Recorder(database, settings).record(invocation())
    assert (await retention.prune(database, timedelta.max)).rows_deleted == 0
    with pytest.raises(StrataError, match="negative"):
        await retention.prune(database, timedelta(days=-1))
    assert (await retention.prune(database, timedelta(0))).rows_deleted == 1
    await Recorder(database, settings).record(invocation())
    async with database.owner() as connection:
        assert await connection.fetchval("SELECT count(*) FROM tool_invocation") == 1


async def test_writers_never_wait_long_for_retention(dsn, database, monkeypatch):
    monkeypatch.setattr(retention, "LOCK_TRIES", 3)
    async with database.owner() as connection:
        await _old_partition(connection, monday(-9))
    async with connected(dsn) as reader:
        transaction = reader.transaction()
        await transaction.start()
        await reader.fetch("SELECT count(*) FROM tool_invocation")
        release = asyncio.get_running_loop().call_later(2.5, lambda: asyncio.ensure_future(transaction.rollback()))
        report = await retention.prune(database, timedelta(days=30))
        release.cancel()
    assert report.partitions_dropped == [name(monday(-9))]


async def test_the_keeper_makes_partitions_and_survives_a_failure(database, monkeypatch):
    async with database.owner() as connection:
        await connection.execute(f"DROP TABLE {name(monday(8))}")
    calls, enough = [], asyncio.Event()
    real = retention.make_partitions

    async def flaky(given, weeks_ahead=retention.WEEKS_AHEAD):
        calls.append(weeks_ahead)
        if len(calls) == 1:
            raise StrataError(OVERLOADED, "busy")
        made = await real(given, weeks_ahead)
        enough.set()
        return made

    monkeypatch.setattr(retention, "make_partitions", flaky)
    keeper = asyncio.create_task(retention.keep_partitions(database, 0.01))
    await asyncio.wait_for(enough.wait(), 10)
    keeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeper
    async with database.owner() as connection:
        assert name(monday(8)) in await _names(connection)


async def test_an_owner_who_is_no_superuser_makes_moves_and_prunes(server_dsn):
    role = f"strata_owner_{os.getpid()}"
    async with connected(with_database(server_dsn, "postgres")) as admin:
        await admin.execute(f"CREATE ROLE {role}")
        await admin.execute(f"GRANT strata_app TO {role} WITH ADMIN OPTION")
        await admin.execute(f"CREATE DATABASE {role} OWNER {role}")
        try:
            async with connected(with_database(server_dsn, role)) as connection:
                await connection.execute("CREATE EXTENSION vector")
                await connection.execute(f"GRANT ALL ON SCHEMA public TO {role}")
                await connection.execute(f"SET ROLE {role}")
                await connection.execute(migration_sql().replace("%%", "%"))
                await _as_owner(connection, role)
        finally:
            await admin.execute(f"DROP DATABASE {role} WITH (FORCE)")
            await admin.execute(f"DROP ROLE {role}")


async def _as_owner(connection, role):
    await connection.execute(f"SET strata.tenant_id = '{DEFAULT_TENANT}'")
    for weeks in (10, -100, 0):
        await connection.execute(INSERT, DEFAULT_TENANT, new_id(), monday(weeks) + timedelta(hours=1))
    await connection.execute("RESET strata.tenant_id; SET ROLE strata_app")
    assert await connection.fetchval("SELECT strata_invocation_partitions(10)") == 2
    await connection.execute(f"SET ROLE {role}")
    assert await connection.fetchval("SELECT count(*) FROM tool_invocation") == 0
    assert await connection.fetchval(f"SELECT count(*) FROM {name(monday(10))}") == 0
    end = monday(20)
    assert await partition_repository.count_before(connection, name(monday(10)), end) == 1
    assert await partition_repository.delete_before(connection, DEFAULT, end, 10) == 1
    assert await connection.fetchval(f"SELECT relforcerowsecurity FROM pg_class WHERE relname = '{DEFAULT}'")
    await partition_repository.drop(connection, name(monday(10)))
    assert name(monday(10)) not in await _names(connection)


async def test_going_down_and_up_again_leaves_a_working_trace(dsn, database, settings):
    await Recorder(database, settings).record(invocation())
    await migrate(dsn, "0001")
    async with connected(dsn) as connection:
        left = "SELECT count(*) FROM pg_class WHERE relname ~ '^(tool_invocation|lookup_(misses|slow)|source_usage)'"
        assert await connection.fetchval(left) == 0
    away = Recorder(database, settings)
    await away.record(invocation())
    # Else it tries again by itself, and finds the table when the migration is quick or the try late.
    await away.close()
    await migrate(dsn)
    await Recorder(database, settings).record(invocation())
    async with connected(dsn) as connection:
        assert await connection.fetchval("SELECT count(*) FROM tool_invocation") == 1
