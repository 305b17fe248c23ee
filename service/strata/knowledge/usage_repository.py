"""SQL of how often contexts are read and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strata.knowledge.model import ContextUsage
from strata.platform.database import Connection


@dataclass(frozen=True, slots=True)
class Reads:
    """Reads of one context, to be added to what is counted."""

    reads: int
    empty_reads: int
    last_read_at: datetime


async def add_reads(connection: Connection, tenant: UUID, reads: Mapping[UUID, Reads]) -> None:
    """Add reads to the counts of contexts; those of contexts that are gone are dropped."""
    ordered = sorted(reads)
    await connection.execute(
        """
        INSERT INTO context_usage AS old (tenant_id, context_id, reads, empty_reads, last_read_at)
        SELECT $1, new.context_id, new.reads, new.empty_reads, new.last_read_at
        FROM (
          SELECT context.context_id, counted.reads, counted.empty_reads, counted.last_read_at
          FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::timestamptz[])
            AS counted (context_id, reads, empty_reads, last_read_at)
          JOIN context ON context.tenant_id = $1 AND context.context_id = counted.context_id
          ORDER BY context.context_id FOR KEY SHARE OF context
        ) new
        ON CONFLICT (tenant_id, context_id) DO UPDATE SET
          reads = old.reads + excluded.reads, empty_reads = old.empty_reads + excluded.empty_reads,
          last_read_at = greatest(old.last_read_at, excluded.last_read_at)
        """,
        tenant,
        ordered,
        [reads[context].reads for context in ordered],
        [reads[context].empty_reads for context in ordered],
        [reads[context].last_read_at for context in ordered],
    )


async def usage(connection: Connection, tenant: UUID, contexts: Sequence[UUID]) -> dict[UUID, ContextUsage]:
    """Return the counts of the contexts that have some."""
    rows = await connection.fetch(
        "SELECT context_id, reads, empty_reads, writes, last_read_at, last_write_at FROM context_usage "
        "WHERE tenant_id = $1 AND context_id = ANY($2)",
        tenant,
        contexts,
    )
    return {row[0]: ContextUsage(*row[1:]) for row in rows}


async def schema_modes(connection: Connection, tenant: UUID, contexts: Sequence[UUID]) -> dict[UUID, str]:
    """Return the schema mode of the contexts that have a schema document."""
    rows = await connection.fetch(
        "SELECT context_id, mode FROM context_schema WHERE tenant_id = $1 AND context_id = ANY($2)",
        tenant,
        contexts,
    )
    return {row[0]: row[1] for row in rows}
