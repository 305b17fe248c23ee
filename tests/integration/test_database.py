"""The pool, the unit of work and what their failures become."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import tempfile
from pathlib import Path

import asyncpg
import msgspec
import pytest

from strata.errors import CONFLICT, DATABASE_SETUP, DATABASE_UNAVAILABLE, OVERLOADED, StrataError
from strata.platform.database import Database, translate
from strata.platform.embedded import EmbeddedPostgres
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.migrations import migrate
from strata.traces import retention

pytestmark = pytest.mark.database

NOWHERE = "postgresql://strata@127.0.0.1:1/strata"


async def answer(database):
    async with database.work(DEFAULT_TENANT) as connection:
        return await connection.fetchval("SELECT 1")


class Reviver:
    """Counts how often the server was asked for, and says where it is."""

    def __init__(self, dsn):
        self.dsn = dsn
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.dsn


@pytest.fixture
async def revived(dsn, settings):
    reviver = Reviver(dsn)
    database = Database(dsn, settings, revive=reviver)
    await database.open()
    yield database, reviver
    await database.close()


def fail_first(monkeypatch, error, times=1):
    """Let the pool fail to connect so often."""
    acquire, left = asyncpg.Pool.acquire, [error] * times

    def flaky(self, **options):
        if left:
            raise left.pop()
        return acquire(self, **options)

    monkeypatch.setattr(asyncpg.Pool, "acquire", flaky)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncpg.TooManyConnectionsError("sorry, too many clients already"), OVERLOADED),
        (OSError(errno.EMFILE, "Too many open files"), DATABASE_UNAVAILABLE),
        (PermissionError(errno.EACCES, "Permission denied"), DATABASE_UNAVAILABLE),
        (asyncpg.ClientConfigurationError("no such sslmode"), DATABASE_SETUP),
    ],
)
async def test_a_server_that_is_there_is_not_started_again(revived, monkeypatch, error, kind):
    database, reviver = revived
    fail_first(monkeypatch, error)
    with pytest.raises(StrataError) as raised:
        await answer(database)
    assert raised.value.kind is kind
    assert reviver.calls == 0
    assert await answer(database) == 1


async def test_a_server_that_is_gone_is_started_once_and_the_work_on_the_pool_goes_on(revived, monkeypatch):
    database, reviver = revived
    async with database.work(DEFAULT_TENANT) as connection:
        fail_first(monkeypatch, ConnectionRefusedError(), times=3)
        assert await asyncio.gather(*(answer(database) for _ in range(3))) == [1, 1, 1]
        assert await connection.fetchval("SELECT 2") == 2
    assert reviver.calls == 1


async def test_a_server_at_a_new_address_is_followed(dsn, settings):
    reviver = Reviver(dsn)
    database = Database(NOWHERE, settings, revive=reviver)
    assert await asyncio.gather(*(answer(database) for _ in range(4))) == [1] * 4
    assert reviver.calls == 1
    assert database.dsn != NOWHERE
    await database.close()


@pytest.fixture
def embedded():
    """A server that the test may kill."""
    with tempfile.TemporaryDirectory(prefix="strata-test-") as directory:
        Path(directory).chmod(0o755)
        server = EmbeddedPostgres(Path(directory), fsync=False)
        server.acquire()
        yield server
        server.release()


async def patient_answer(database):
    """Try again while a backend that outlives its killed server takes a unit of work, and then ends."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await answer(database)
            except StrataError as error:
                if error.kind is not DATABASE_UNAVAILABLE:
                    raise


async def test_a_killed_server_is_started_again_for_all_who_work(settings, embedded):
    database = Database(embedded.acquire().dsn, settings, revive=lambda: embedded.acquire().dsn)
    await migrate(database.dsn)
    assert await asyncio.gather(*(answer(database) for _ in range(4))) == [1] * 4
    os.kill(embedded.status().pid, signal.SIGKILL)
    assert await asyncio.gather(*(patient_answer(database) for _ in range(4))) == [1] * 4
    await database.close()


async def test_a_server_that_does_not_come_back_is_unavailable(settings):
    database = Database(NOWHERE, settings, revive=Reviver(NOWHERE))
    with pytest.raises(StrataError) as raised:
        await answer(database)
    assert raised.value.kind is DATABASE_UNAVAILABLE
    await database.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncpg.LockNotAvailableError, OVERLOADED),
        (asyncpg.DeadlockDetectedError, CONFLICT),
        (asyncpg.ReadOnlySQLTransactionError, DATABASE_UNAVAILABLE),
        (asyncpg.IdleInTransactionSessionTimeoutError, DATABASE_UNAVAILABLE),
        (asyncpg.TargetServerAttributeNotMatched, DATABASE_UNAVAILABLE),
    ],
)
def test_a_passing_failure_says_what_to_do(error, kind):
    translated = translate(error("x"), "postgresql://u:s3cret@h/d?password=s3cret")
    assert translated.kind is kind
    assert "s3cret" not in translated.detail


async def test_a_read_only_server_is_unavailable(database):
    async def write():
        async with database.work(DEFAULT_TENANT) as connection:
            await connection.execute("SET TRANSACTION READ ONLY")
            await connection.execute("DELETE FROM context")

    with pytest.raises(StrataError) as raised:
        await write()
    assert raised.value.kind is DATABASE_UNAVAILABLE


async def test_a_transaction_that_rested_too_long_is_unavailable_and_the_next_one_works(database):
    async def rest():
        async with database.work(DEFAULT_TENANT) as connection:
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '20ms'")
            await asyncio.sleep(0.2)
            await connection.fetchval("SELECT 1")

    with pytest.raises(StrataError) as raised:
        await rest()
    assert raised.value.kind is DATABASE_UNAVAILABLE
    assert await answer(database) == 1


async def test_idle_connections_that_the_server_ends_are_replaced_unseen(database):
    await asyncio.gather(*(answer(database) for _ in range(4)))
    async with database.owner() as owner:
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        await owner.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}")
        assert await asyncio.gather(*(answer(database) for _ in range(4))) == [1] * 4


async def test_a_cancellation_during_the_rollback_of_an_error_is_kept(database, monkeypatch):
    execute, rolling_back, done = asyncpg.Connection.execute, asyncio.Event(), []

    async def slow(self, query, *args, **options):
        if query == "ROLLBACK":
            rolling_back.set()
            await asyncio.sleep(0.05)
        status = await execute(self, query, *args, **options)
        done.append(query)
        return status

    async def failing():
        async with database.work(DEFAULT_TENANT):
            raise LookupError

    monkeypatch.setattr(asyncpg.Connection, "execute", slow)
    task = asyncio.create_task(failing())
    await rolling_back.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done[-1] == "ROLLBACK"
    assert await answer(database) == 1


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_owner_keeps_prepared_statements_only_where_they_are_allowed(dsn, settings, is_kept):
    database = Database(dsn, msgspec.structs.replace(settings, database_prepared_statements=is_kept))
    async with database.owner() as connection:
        await connection.fetchval("SELECT 1")
        assert (await connection.fetchval("SELECT count(*) FROM pg_prepared_statements") > 0) is is_kept


async def test_no_failure_ends_the_making_of_partitions(database, monkeypatch):
    calls, enough = [], asyncio.Event()

    async def flaky(_database):
        calls.append(len(calls))
        if len(calls) == 1:
            raise ValueError("not a failure of the database")
        enough.set()
        return 0

    monkeypatch.setattr(retention, "make_partitions", flaky)
    keeper = asyncio.create_task(retention.keep_partitions(database, 0.01))
    await asyncio.wait_for(enough.wait(), 5)
    keeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeper
