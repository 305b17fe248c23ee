"""Bring a database to the revision that this code needs (Alembic, migrations/)."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, pool, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlmodel import SQLModel

from strata.platform.database import translate
from strata.platform.dsn import normalise_dsn

if TYPE_CHECKING:
    from sqlalchemy import Connection as SyncConnection
    from sqlalchemy.engine.interfaces import DBAPIConnection

MIGRATION_LOCK = 0x5354524154410001
"""The advisory lock that one migrating process holds ("STRATA", 1)."""

LOCK_TIMEOUT = "30s"
"""How long a statement of a migration waits for a lock; writers queue behind it meanwhile."""

_UNBOUNDED = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout", "transaction_timeout")

TABLE_MODULES = (
    "strata.knowledge.tables",
    "strata.knowledge.graph_tables",
    "strata.sources.tables",
    "strata.lanes.tables",
    "strata.hints.tables",
    "strata.embeddings.tables",
    "strata.platform.work_tables",
    "strata.traces.tables",
)


def metadata() -> MetaData:
    """Return every table that the domains declare."""
    for module in TABLE_MODULES:
        import_module(module)
    return SQLModel.metadata


def engine(dsn: str) -> AsyncEngine:
    """Return an engine without a pool, whose connections fit a pooler in transaction mode.

    asyncpg reads the address itself, so that it means what it means elsewhere. Nothing is
    prepared beyond its transaction: the one statement without a name is all that is used.
    """
    address = normalise_dsn(dsn)

    async def opened() -> asyncpg.Connection:
        return await asyncpg.connect(
            address, timeout=10, statement_cache_size=0, server_settings={"application_name": "strata"}
        )

    def creator() -> DBAPIConnection:
        connection: DBAPIConnection = made.dialect.loaded_dbapi.connect(
            async_creator_fn=opened, prepared_statement_cache_size=0, prepared_statement_name_func=str
        )
        return connection

    made = create_async_engine("postgresql+asyncpg://", creator=creator, poolclass=pool.NullPool)
    return made


def migrations_directory() -> Path:
    """Return where the revisions are: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parents[1] / "migrations"


async def migrate(dsn: str, revision: str = "head") -> tuple[str | None, str | None]:
    """Bring the database at ``dsn`` to ``revision``; return the revisions before and after.

    Waits for another migrating process. A revision older than the present one downgrades.
    Needs two connections: the guard's transaction holds the lock while the migrations run, each in
    a transaction of its own. Database failures are raised as StrataError; ``overloaded`` when a
    lock was not had within LOCK_TIMEOUT.
    """
    migrating = engine(dsn)
    try:
        async with migrating.connect() as guard:
            await guard.execute(
                text("SELECT set_config(name, '0', true) FROM pg_settings WHERE name = ANY(:names)"),
                {"names": list(_UNBOUNDED)},
            )
            await guard.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
            async with migrating.connect() as connection:
                return await connection.run_sync(_run, revision)
    except Exception as error:
        original = getattr(error, "orig", None)
        raise translate(getattr(original, "__cause__", None) or error, dsn) from error
    finally:
        await migrating.dispose()


def migration_sql() -> str:
    """Return every statement from an empty database to the head, for a person to run."""
    buffer = io.StringIO()
    config = _config(buffer)
    command.upgrade(config, "head", sql=True)
    return buffer.getvalue()


def head_revision() -> str | None:
    """Return the newest revision in migrations/."""
    return ScriptDirectory.from_config(_config()).get_current_head()


def _config(output: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output) if output else Config()
    config.set_main_option("script_location", str(migrations_directory()))
    return config


def _run(connection: SyncConnection, revision: str) -> tuple[str | None, str | None]:
    config = _config()
    config.attributes["connection"] = connection
    before = _stamp(connection)
    going_down = revision == "base" or (revision != "head" and before is not None and revision < before)
    (command.downgrade if going_down else command.upgrade)(config, revision)
    connection.commit()
    return before, _stamp(connection)


def _stamp(connection: SyncConnection) -> str | None:
    exists = connection.execute(text("SELECT to_regclass('alembic_version')")).scalar()
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar() if exists else None
    connection.commit()
    return revision
