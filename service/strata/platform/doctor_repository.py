"""What ``strata doctor`` asks a database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

import asyncpg


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server and its ``vector`` extension; ``now`` is its clock."""

    version: str
    version_number: int
    now: datetime
    is_replica: bool
    vector_installed: str | None
    vector_available: str | None


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """The application role, seen from the login role; ``exists`` False leaves the others False or empty.

    ``owned`` names tables of the role's own, which row-level security would have to force it into.
    """

    exists: bool
    is_privileged: bool
    can_assume: bool
    owned: tuple[str, ...]


async def server_facts(connection: asyncpg.Connection) -> ServerFacts:
    """Read them in one statement."""
    row = await connection.fetchrow(
        """
        SELECT current_setting('server_version'), current_setting('server_version_num')::int,
               clock_timestamp(), pg_is_in_recovery(), installed_version, default_version
        FROM (SELECT 'vector' AS name) AS wanted LEFT JOIN pg_available_extensions USING (name)
        """
    )
    return ServerFacts(*row)


async def role_facts(connection: asyncpg.Connection, role: str) -> RoleFacts:
    """Read what the role is and whether the login role may act as it."""
    row = await connection.fetchrow(
        """
        SELECT rolsuper OR rolbypassrls OR rolcreaterole,
               pg_has_role(current_user, oid, CASE
                 WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END),
               array(SELECT relname::text FROM pg_class
                     WHERE relowner = r.oid AND relkind IN ('r', 'p') ORDER BY relname)
        FROM pg_roles AS r WHERE rolname = $1
        """,
        role,
    )
    if row is None:
        return RoleFacts(exists=False, is_privileged=False, can_assume=False, owned=())
    return RoleFacts(exists=True, is_privileged=row[0], can_assume=row[1], owned=tuple(row[2]))


async def unprotected_tables(connection: asyncpg.Connection) -> list[str]:
    """Return the tables with a ``tenant_id`` whose row-level security is not on and forced."""
    rows = await connection.fetch(
        """
        SELECT c.relname::text AS name
        FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
        WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace
          AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
        ORDER BY c.relname
        """
    )
    return [row["name"] for row in rows]


@asynccontextmanager
async def as_role(connection: asyncpg.Connection, role: str) -> AsyncIterator[None]:
    """Run a read-only transaction under a role."""
    async with connection.transaction(readonly=True):
        await connection.execute("SELECT set_config('role', $1, true)", role)
        yield


async def visible_tenants(connection: asyncpg.Connection) -> tuple[int, int]:
    """Count the tenants that the application role sees without a tenant, and with one that does not exist."""
    async with connection.transaction(readonly=True):
        await connection.execute("SET LOCAL ROLE strata_app")
        without: int = await connection.fetchval("SELECT count(*) FROM tenant")
        await connection.execute("SELECT set_config('strata.tenant_id', $1, true)", str(uuid4()))
        foreign: int = await connection.fetchval("SELECT count(*) FROM tenant")
    return without, foreign
