"""Models and migrations give one schema; migrating loses nothing; tenants are apart."""

from __future__ import annotations

import asyncio
import os
from uuid import uuid4

import asyncpg
import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from strata.errors import DATABASE_SETUP, OVERLOADED, SCHEMA_OUTDATED, StrataError
from strata.platform import migrations
from strata.platform.database import Database
from strata.platform.doctor_repository import role_facts
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.migrations import engine, head_revision, metadata, migrate, migration_sql
from strata.platform.schema import HEAD_REVISION, current_revision, require_current

pytestmark = pytest.mark.database


def test_the_code_needs_the_newest_revision():
    assert head_revision() == HEAD_REVISION


async def test_models_and_migrations_give_the_same_schema(dsn):
    connecting = engine(dsn)

    def compare(connection):
        options = {"include_object": lambda _o, name, kind, *_: kind != "table" or "_p2" not in name}
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata())

    async with connecting.connect() as connection:
        assert await connection.run_sync(compare) == []
    await connecting.dispose()


async def test_up_down_up_keeps_the_rows_of_the_revisions_that_stay(empty_dsn):
    assert await migrate(empty_dsn) == (None, head_revision())
    connection = await asyncpg.connect(empty_dsn)
    context = uuid4()
    await connection.execute(
        "INSERT INTO context (tenant_id, context_id, name) VALUES ($1, $2, 'kept')", DEFAULT_TENANT, context
    )
    await migrate(empty_dsn, "0001")
    await migrate(empty_dsn)
    assert await connection.fetchval("SELECT name FROM context WHERE context_id = $1", context) == "kept"
    await connection.close()
    await migrate(empty_dsn, "base")
    assert await migrate(empty_dsn) == (None, head_revision())


async def test_concurrent_migrations_wait_for_each_other(empty_dsn):
    results = await asyncio.gather(*(migrate(empty_dsn) for _ in range(4)))
    assert any(before is None for before, _ in results)
    assert {after for _, after in results} == {head_revision()}


def _with_query(dsn, query):
    return f"{dsn}{'&' if '?' in dsn else '?'}{query}"


async def test_an_address_with_parameters_migrates_and_works_in_its_schema(empty_dsn, settings):
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute('CREATE SCHEMA "My App"')
    address = _with_query(empty_dsn, "sslmode=prefer&search_path=%22My+App%22&lock_timeout=7s")
    assert await migrate(address) == (None, head_revision())
    assert await connection.fetchval("SELECT to_regclass('public.context')") is None
    assert await connection.fetchval("SELECT to_regclass('\"My App\".context')") is not None
    await connection.close()
    database = Database(address, settings)
    async with database.work(DEFAULT_TENANT) as work:
        assert await work.fetchval("SELECT name FROM tenant") == "default"
        assert await work.fetchval("SHOW lock_timeout") == "7s"
    await database.close()


async def test_a_schema_that_is_missing_is_named(empty_dsn):
    with pytest.raises(StrataError) as raised:
        await migrate(_with_query(empty_dsn, "search_path=nowhere"))
    assert raised.value.kind is DATABASE_SETUP


async def _observed(watching, query, task):
    """Return the first answer that is true while the task runs, None if there is none."""
    while not task.done():
        if (answer := await watching.fetchval(query)) is not None:
            return answer
        await asyncio.sleep(0.01)
    return None


async def test_a_migration_waits_for_a_lock_briefly_under_a_guard_that_is_one_transaction(dsn, monkeypatch):
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT", "700ms")
    watching, holder = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("LOCK TABLE hint_key IN ACCESS SHARE MODE")
    task = asyncio.create_task(migrate(dsn, "base"))
    guard = await _observed(
        watching,
        """
        SELECT state FROM pg_stat_activity JOIN pg_locks USING (pid)
        WHERE datname = current_database() AND locktype = 'advisory' AND granted AND state LIKE 'idle%'
          AND EXISTS (SELECT FROM pg_locks WHERE relation = 'hint_key'::regclass AND NOT granted)
        """,
        task,
    )
    assert guard == "idle in transaction"
    with pytest.raises(StrataError) as raised:
        await asyncio.wait_for(task, 10)
    assert raised.value.kind is OVERLOADED
    await transaction.rollback()
    # Each revision is a transaction: those before the one that waited are undone, that one is whole.
    assert await current_revision(watching) == "0003"
    assert await watching.fetchval("SELECT count(*) FROM pg_class WHERE relname IN ('hint_entry', 'hint_key')") == 2
    left = """
        SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    """
    assert await watching.fetchval(left) == 0
    await asyncio.gather(watching.close(), holder.close())


async def test_a_migration_prepares_nothing_beyond_its_transaction(dsn):
    connecting = engine(dsn)
    async with connecting.connect() as connection:
        await connection.execute(text("SELECT 1"))
        names = await connection.execute(text("SELECT name FROM pg_prepared_statements"))
        assert names.all() == []
    await connecting.dispose()


@pytest.mark.parametrize("grant", ["", "WITH ADMIN TRUE, SET FALSE"])
async def test_the_owner_can_act_as_the_application_role(server_dsn, empty_dsn, grant):
    """One who may already is not granted it again; one who may only grant it is."""
    role = f"strata_member_{os.getpid()}"
    connection = await asyncpg.connect(empty_dsn)
    if grant and connection.get_server_version() < (16, 0):
        await connection.close()
        pytest.skip("SET is an option of a membership from Postgres 16 on")
    await connection.execute("CREATE EXTENSION vector")
    await connection.execute(f"CREATE ROLE {role}")
    try:
        await connection.execute(f"GRANT strata_app TO {role} {grant}")
        await connection.execute(f"GRANT ALL ON SCHEMA public TO {role}")
        await connection.execute(f"SET ROLE {role}")
        await connection.execute(migration_sql())
        assert (await role_facts(connection, "strata_app")).can_assume
    finally:
        await connection.execute("RESET ROLE")
        await connection.execute(f"DROP OWNED BY {role} CASCADE")
        await connection.execute(f"DROP ROLE {role}")
        await connection.close()


async def test_an_owner_under_row_level_security_gives_sources_their_link_names(empty_dsn):
    role, context = f"strata_builder_{os.getpid()}", uuid4()
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute("CREATE EXTENSION vector")
    await connection.execute(f"CREATE ROLE {role} NOSUPERUSER CREATEROLE")
    try:
        await connection.execute(f"GRANT strata_app TO {role} WITH ADMIN OPTION")
        await connection.execute(f"GRANT ALL ON SCHEMA public TO {role}")
        address = _with_query(empty_dsn, f"role={role}")
        await migrate(address, "0005")
        await connection.execute(
            "INSERT INTO context (tenant_id, context_id, name) VALUES ($1, $2, 'kb')", DEFAULT_TENANT, context
        )
        await connection.execute(
            """
            INSERT INTO source (tenant_id, context_id, source_id, serial, path, origin, title, format,
              source_key_basis, content_sha256, fingerprint, original_bytes, text_bytes, passage_count)
            VALUES ($1, $2, $3, 1, 'a/The.Vault.md', '', 'Vault', 'markdown', 'path', '', '', 1, 1, 0)
            """,
            DEFAULT_TENANT,
            context,
            uuid4(),
        )
        await migrate(address)
        assert await connection.fetchval("SELECT tableowner FROM pg_tables WHERE tablename = 'source'") == role
        assert await connection.fetchval("SELECT link_name FROM source") == "the.vault"
    finally:
        await connection.execute(f"DROP OWNED BY {role} CASCADE")
        await connection.execute(f"DROP ROLE {role}")
        await connection.close()


async def test_an_unmigrated_database_is_named_as_such(empty_dsn):
    connection = await asyncpg.connect(empty_dsn)
    with pytest.raises(StrataError) as raised:
        await require_current(connection, empty_dsn)
    await connection.close()
    assert raised.value.kind is SCHEMA_OUTDATED
    assert "none" in raised.value.detail


async def test_the_sql_for_administrators_builds_the_same_schema(empty_dsn):
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute(migration_sql())
    await require_current(connection, empty_dsn)
    await connection.close()


async def test_every_table_has_forced_row_security_and_leads_with_tenant_and_context(dsn):
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("""
        SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity,
               array(SELECT attname::text FROM pg_attribute
                     WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum LIMIT 2) AS lead
        FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
          AND NOT c.relispartition AND c.relname <> 'alembic_version'
    """)
    await connection.close()
    assert len(rows) >= 8
    across = ["tenant_id", "group_id"]
    leads = {"tenant": ["tenant_id", "name"], "context_group": across, "context_group_child": across}
    for row in rows:
        assert row["relrowsecurity"], row["relname"]
        assert row["relforcerowsecurity"], row["relname"]
        assert row["lead"] == leads.get(row["relname"], ["tenant_id", "context_id"]), row["relname"]


async def test_the_application_role_owns_nothing(dsn):
    connection = await asyncpg.connect(dsn)
    owned = await connection.fetchval("SELECT count(*) FROM pg_class WHERE relowner = 'strata_app'::regrole")
    await connection.close()
    assert owned == 0


async def test_a_query_without_a_tenant_sees_nothing(dsn):
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "INSERT INTO context (tenant_id, context_id, name) VALUES ($1, $2, 'x')", DEFAULT_TENANT, uuid4()
    )
    await connection.execute("SET ROLE strata_app")
    assert await connection.fetchval("SELECT count(*) FROM context") == 0
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(
            "INSERT INTO context (tenant_id, context_id, name) VALUES ($1, $2, 'y')", DEFAULT_TENANT, uuid4()
        )
    await connection.close()


async def test_one_tenant_never_sees_the_rows_of_another_on_the_same_connection(dsn, settings):
    """A pool of one connection, alternating tenants, with failures and cancellations between."""
    tenants = [uuid4(), uuid4()]
    owner = await asyncpg.connect(dsn)
    for number, tenant in enumerate(tenants):
        await owner.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, $2)", tenant, str(number))
        await owner.execute(
            "INSERT INTO context (tenant_id, context_id, name) VALUES ($1, $2, $3)", tenant, uuid4(), str(number)
        )
    database = Database(dsn, msgspec.structs.replace(settings, database_pool_size=1))
    for call in range(200):
        tenant = tenants[call % 2]
        try:
            async with database.work(tenant) as connection:
                assert [r["name"] for r in await connection.fetch("SELECT name FROM context")] == [str(call % 2)]
                if call % 7 == 3:
                    raise LookupError  # noqa: TRY301 - the failure of a body is what is tested
                if call % 11 == 5:
                    await asyncio.wait_for(connection.fetch("SELECT pg_sleep(5)"), 0.01)
        except (LookupError, TimeoutError):
            pass
    assert (
        await owner.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
        )
        == 0
    )
    await database.close()
    await owner.close()
