"""Where the schema of a database stands. Light to import: bringing it forward is in migrations."""

from __future__ import annotations

import asyncpg

from strata.errors import SCHEMA_OUTDATED, StrataError
from strata.platform.dsn import redact_dsn

HEAD_REVISION = "0006"
"""The revision that this code needs; a test holds it equal to the newest in migrations/."""


async def current_revision(connection: asyncpg.Connection) -> str | None:
    """Return the revision of the database, None when it was never migrated."""
    if await connection.fetchval("SELECT to_regclass('alembic_version')") is None:
        return None
    revision: str | None = await connection.fetchval("SELECT version_num FROM alembic_version")
    return revision


async def require_current(connection: asyncpg.Connection, dsn: str) -> None:
    """Raise ``schema_outdated`` unless the database is at the revision that this code needs."""
    present, needed = await current_revision(connection), HEAD_REVISION
    if present != needed:
        raise StrataError(
            SCHEMA_OUTDATED, f"{redact_dsn(dsn)} is at revision {present or 'none'}; this version needs {needed}."
        )
