"""Bring a database to the revision that this code needs (Alembic, migrations/)."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, pool, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlmodel import SQLModel

from strata.platform.database import translate

if TYPE_CHECKING:
    from sqlalchemy import Connection as SyncConnection

MIGRATION_LOCK = 0x5354524154410001
"""The advisory lock that one migrating process holds ("STRATA", 1)."""


TABLE_MODULES = (
    "strata.knowledge.tables",
    "strata.sources.tables",
    "strata.lanes.tables",
    "strata.hints.tables",
    "strata.traces.tables",
)


def metadata() -> MetaData:
    """Return every table that the domains declare."""
    for module in TABLE_MODULES:
        import_module(module)
    return SQLModel.metadata


def sqlalchemy_url(dsn: str) -> str:
    """Return a ``postgresql://`` address in the form that SQLAlchemy takes."""
    return dsn.replace("postgresql://", "postgresql+asyncpg://", 1)


def migrations_directory() -> Path:
    """Return where the revisions are: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parents[1] / "migrations"


async def migrate(dsn: str, revision: str = "head") -> tuple[str | None, str | None]:
    """Bring the database at ``dsn`` to ``revision``; return the revisions before and after.

    Waits for another migrating process. A revision older than the present one downgrades.
    """
    engine = create_async_engine(sqlalchemy_url(dsn), poolclass=pool.NullPool)
    try:
        async with engine.connect() as guard:
            await guard.execute(text("SELECT pg_advisory_lock(:key)"), {"key": MIGRATION_LOCK})
            before = await _stamp(guard)
            async with engine.connect() as connection:
                await connection.execute(text("SET lock_timeout = '30s'"))
                await connection.commit()
                await connection.run_sync(_run, revision)
            after = await _stamp(guard)
    except Exception as error:
        cause = error.__cause__ or error
        original = getattr(error, "orig", None)
        raise translate(getattr(original, "__cause__", None) or cause, dsn) from error
    finally:
        await engine.dispose()
    return before, after


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


def _run(connection: SyncConnection, revision: str) -> None:
    config = _config()
    config.attributes["connection"] = connection
    current = connection.execute(text("SELECT to_regclass('alembic_version')")).scalar()
    present = connection.execute(text("SELECT version_num FROM alembic_version")).scalar() if current else None
    connection.commit()
    going_down = revision == "base" or (revision != "head" and present is not None and revision < present)
    (command.downgrade if going_down else command.upgrade)(config, revision)
    connection.commit()


async def _stamp(connection: AsyncConnection) -> str | None:
    exists = (await connection.execute(text("SELECT to_regclass('alembic_version')"))).scalar()
    if not exists:
        return None
    return (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar()
