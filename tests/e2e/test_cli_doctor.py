"""The doctor on real databases: sound ones, and ones with one thing wrong."""

import asyncpg
import pytest

from strata.platform.doctor import Status, examine
from strata.settings import load_settings

pytestmark = pytest.mark.database


async def failures(dsn, home):
    report = await examine(load_settings({}, home=str(home), database_url=dsn))
    failed = {check.name: check for check in report.checks if check.status is Status.FAIL}
    assert report.healthy is (not failed)
    assert all(check.remedy for check in failed.values())
    return failed


async def execute(dsn, *statements):
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def test_a_migrated_database_is_healthy(dsn, home):
    assert await failures(dsn, home) == {}


async def test_an_empty_database_needs_a_migration(empty_dsn, home):
    failed = await failures(empty_dsn, home)
    assert failed.keys() == {"pgvector", "schema"}
    assert "strata migrate" in failed["schema"].remedy


async def test_a_newer_schema_asks_for_a_newer_program(dsn, home):
    await execute(dsn, "UPDATE alembic_version SET version_num = '9999'")
    assert "newer Strata" in (await failures(dsn, home))["schema"].remedy


async def test_a_table_without_forced_row_level_security_is_named(dsn, home):
    await execute(dsn, "ALTER TABLE passage NO FORCE ROW LEVEL SECURITY")
    assert "passage" in (await failures(dsn, home))["isolation"].detail


async def test_a_policy_that_lets_everyone_see_everything_is_found(dsn, home):
    await execute(dsn, "CREATE POLICY open_to_all ON tenant USING (true)")
    assert (await failures(dsn, home)).keys() == {"isolation"}


async def test_a_server_that_is_not_there_is_one_failure(home):
    failed = await failures("postgresql://strata:secret@127.0.0.1:1/strata", home)
    assert failed.keys() == {"database"}
    assert "secret" not in failed["database"].detail


async def test_a_database_that_does_not_exist_is_one_failure(server_dsn, home):
    from strata.platform.dsn import with_database

    assert (await failures(with_database(server_dsn, "no_such_database"), home)).keys() == {"database"}


async def test_looking_makes_nothing(tmp_path):
    report = await examine(load_settings({}, home=str(tmp_path / "home")))
    assert report.healthy
    assert not (tmp_path / "home").exists()
