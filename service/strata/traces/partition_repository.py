"""SQL on single partitions of the trace, run by their owner across all tenants.

The names come quoted from the catalogue; they are the only thing ever put into a statement.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

import asyncpg

_DELETE = """
WITH gone AS (
  DELETE FROM @partition WHERE ctid = ANY (ARRAY(SELECT ctid FROM @partition WHERE created_at < $1 LIMIT $2))
  RETURNING 1
)
SELECT count(*) FROM gone
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition by its quoted name; both bounds are None for the default partition."""

    name: str
    lower: datetime | None
    upper: datetime | None


async def database_time(connection: asyncpg.Connection) -> datetime:
    """Return the database's clock, which the rows were stamped by."""
    now: datetime = await connection.fetchval("SELECT now()")
    return now


async def partitions(connection: asyncpg.Connection) -> list[Partition]:
    """Return every partition, oldest first, the default one last."""
    rows = await connection.fetch(
        """
        SELECT name,
               (regexp_match(bound, 'FROM \\(''([^'']+)''\\)'))[1]::timestamptz AS lower,
               (regexp_match(bound, 'TO \\(''([^'']+)''\\)'))[1]::timestamptz AS upper
        FROM (
          SELECT i.inhrelid::regclass::text AS name, pg_get_expr(c.relpartbound, c.oid) AS bound
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
          WHERE i.inhparent = 'tool_invocation'::regclass
        ) AS parts
        ORDER BY lower NULLS LAST, name
        """
    )
    return [Partition(row["name"], row["lower"], row["upper"]) for row in rows]


async def drop(connection: asyncpg.Connection, partition: str) -> None:
    """Drop a partition with its rows; raises LockNotAvailableError when writers hold it for two seconds."""
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '2s'")
        await connection.execute(_on("DROP TABLE @partition", partition))


async def count_before(connection: asyncpg.Connection, partition: str, cutoff: datetime) -> int:
    """Count the rows of all tenants older than ``cutoff``."""
    async with _all_tenants(connection, partition):
        counted: int = await connection.fetchval(
            _on("SELECT count(*) FROM @partition WHERE created_at < $1", partition), cutoff
        )
    return counted


async def delete_before(connection: asyncpg.Connection, partition: str, cutoff: datetime, limit: int) -> int:
    """Delete up to ``limit`` rows of all tenants older than ``cutoff``; return how many went."""
    async with _all_tenants(connection, partition):
        deleted: int = await connection.fetchval(_on(_DELETE, partition), cutoff, limit)
    return deleted


@asynccontextmanager
async def _all_tenants(connection: asyncpg.Connection, partition: str) -> AsyncIterator[None]:
    """Open a transaction that sees every row of one partition.

    An owner who is no superuser is under row security like everyone; it is lifted for this
    partition and this transaction only.
    """
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '5s'")
        is_hidden = await connection.fetchval("SELECT row_security_active($1::text)", partition)
        if is_hidden:
            await connection.execute(_on("ALTER TABLE @partition NO FORCE ROW LEVEL SECURITY", partition))
        yield
        if is_hidden:
            await connection.execute(_on("ALTER TABLE @partition FORCE ROW LEVEL SECURITY", partition))


def _on(sql: str, partition: str) -> str:
    return sql.replace("@partition", partition)
