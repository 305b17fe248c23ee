"""SQL of the trace: write a call, list and show calls, partitions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from strata.platform.database import Connection

COLUMNS = (
    "tenant_id",
    "context_id",
    "id",
    "tool_name",
    "surface",
    "session_id",
    "agent_id",
    "request_id",
    "trace_id",
    "span_id",
    "arguments",
    "status",
    "found",
    "relevance_level",
    "completeness_hint",
    "evidence_count",
    "duration_ms",
    "error_type",
    "error_message",
    "retrieval_details",
)

_INSERT = """
INSERT INTO tool_invocation (
  tenant_id, context_id, id, tool_name, surface, session_id, agent_id, request_id, trace_id, span_id,
  arguments, status, found, relevance_level, completeness_hint, evidence_count, duration_ms,
  error_type, error_message, retrieval_details
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
"""


async def insert(connection: Connection, row: Sequence[Any]) -> None:
    """Write one call; ``row`` is in the order of :data:`COLUMNS`."""
    await connection.execute(_INSERT, *row)


_INSERT_MISSING = """
INSERT INTO tool_invocation (
  tenant_id, context_id, id, tool_name, surface, session_id, agent_id, request_id, trace_id, span_id,
  arguments, status, found, relevance_level, completeness_hint, evidence_count, duration_ms,
  error_type, error_message, retrieval_details
) SELECT $1::uuid, $2::uuid, $3::uuid, $4, $5, $6, $7, $8, $9, $10, $11::jsonb, $12, $13::boolean, $14, $15,
         $16::bigint, $17::double precision, $18, $19, $20::jsonb
WHERE NOT EXISTS (
  SELECT FROM tool_invocation WHERE tenant_id = $1 AND id = $3 AND created_at > now() - interval '1 hour'
)
"""


async def insert_missing(connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Write several calls of one tenant, leaving out those that an earlier try wrote after all."""
    await connection.executemany(_INSERT_MISSING, rows)


async def make_partitions(connection: Connection, weeks_ahead: int) -> int:
    """Make the weekly partitions from this week on; return how many were missing."""
    made: int = await connection.fetchval("SELECT strata_invocation_partitions($1)", weeks_ahead)
    return made


_SUMMARY = """
SELECT id, created_at, tool_name, surface, status, context_id, session_id, agent_id, request_id, trace_id,
       arguments ->> 'query' AS query, found, relevance_level, completeness_hint, evidence_count, duration_ms,
       error_type
FROM tool_invocation
WHERE tenant_id = $1
"""

_CONDITIONS = {
    "context": " AND context_id = ${}",
    "status": " AND status = ${}",
    "tool": " AND tool_name = ${}",
    "session_id": " AND session_id = ${}",
    "trace_id": " AND trace_id = ${}",
    "query": " AND strpos(lower(arguments ->> 'query'), lower(${})) > 0",
    "since": " AND created_at >= ${}",
    "until": " AND created_at < ${}",
    "after": " AND (created_at, id) < (${}::timestamptz, ${}::uuid)",
}


async def list_page(
    connection: Connection, tenant: UUID, conditions: Sequence[tuple[str, Sequence[Any]]], limit: int
) -> list[Any]:
    """Return the newest calls that meet all conditions (names of :data:`_CONDITIONS` with their values)."""
    sql, values = _SUMMARY, [tenant]
    for name, given in conditions:
        places = range(len(values) + 1, len(values) + 1 + len(given))
        sql += _CONDITIONS[name].format(*places)
        values.extend(given)
    sql += f" ORDER BY created_at DESC, id DESC LIMIT ${len(values) + 1}"
    return await connection.fetch(sql, *values, limit)


async def one(connection: Connection, tenant: UUID, invocation: UUID) -> Any:
    """Return a whole row, None when the tenant has none of that id."""
    return await connection.fetchrow(
        """
        SELECT id, created_at, tool_name, surface, status, context_id, session_id, agent_id, request_id, trace_id,
               span_id, arguments, found, relevance_level, completeness_hint, evidence_count, duration_ms,
               error_type, error_message, retrieval_details
        FROM tool_invocation WHERE tenant_id = $1 AND id = $2
        """,
        tenant,
        invocation,
    )


async def context_id(connection: Connection, tenant: UUID, name: str) -> UUID | None:
    """Return the id of the context of that name."""
    found: UUID | None = await connection.fetchval(
        "SELECT context_id FROM context WHERE tenant_id = $1 AND name = $2", tenant, name
    )
    return found


async def context_names(connection: Connection, tenant: UUID, contexts: Sequence[UUID]) -> dict[UUID, str]:
    """Return the names of those contexts that still exist."""
    rows = await connection.fetch(
        "SELECT context_id, name FROM context WHERE tenant_id = $1 AND context_id = ANY ($2)", tenant, contexts
    )
    return {row["context_id"]: row["name"] for row in rows}


async def live_sources(
    connection: Connection, tenant: UUID, *, path: str, source_key: str, serial: int | None, passage: int | None
) -> list[Any]:
    """Return the sources that a target can mean, in all contexts: exact matches, else by the end of the path.

    A path may carry an anchor. ``passage_exists`` tells whether the passage asked about is current.
    """
    return await connection.fetch(
        """
        WITH found AS (
          SELECT s.*, c.name AS context,
                 CASE WHEN s.path = $2 OR s.source_key = $3 OR s.serial = $4 THEN 0
                      WHEN s.path = split_part($2, '#', 1) THEN 1 ELSE 2 END AS distance
          FROM source s JOIN context c USING (tenant_id, context_id)
          WHERE s.tenant_id = $1 AND (
            s.path = $2 OR s.path = split_part($2, '#', 1) OR s.source_key = $3 OR s.serial = $4
            OR right(s.path, length($2) + 1) = '/' || $2)
        )
        SELECT context_id, context, source_id, serial, path, revision, created_at, updated_at, passage_count, language,
               distance,
               EXISTS (SELECT FROM passage p WHERE p.tenant_id = $1 AND p.context_id = found.context_id
                       AND p.passage_id = $5) AS passage_exists
        FROM found WHERE distance = (SELECT min(distance) FROM found)
        ORDER BY context, path LIMIT 50
        """,
        tenant,
        path,
        source_key,
        serial,
        passage,
    )


async def failed_filters(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    source: UUID,
    *,
    categories: Sequence[str],
    paths: Sequence[str],
    tags: Sequence[str],
    since: datetime | None,
    until: datetime | None,
    language: str | None,
) -> list[str]:
    """Return the names of the filters that the source does not pass; ``paths`` are regular expressions."""
    failed: list[str] = await connection.fetchval(
        """
        SELECT array_remove(ARRAY[
          CASE WHEN cardinality($4::text[]) > 0 AND (category = ANY ($4)) IS NOT TRUE THEN 'category' END,
          CASE WHEN cardinality($5::text[]) > 0 AND NOT path ~ ANY ($5) THEN 'sources' END,
          CASE WHEN NOT tags @> $6::text[] THEN 'tags' END,
          CASE WHEN $7::timestamptz IS NOT NULL AND (occurred_at >= $7) IS NOT TRUE THEN 'since' END,
          CASE WHEN $8::timestamptz IS NOT NULL AND (occurred_at < $8) IS NOT TRUE THEN 'until' END,
          CASE WHEN $9::text IS NOT NULL AND (language = $9) IS NOT TRUE THEN 'language' END
        ], NULL)
        FROM source WHERE tenant_id = $1 AND context_id = $2 AND source_id = $3
        """,
        tenant,
        context,
        source,
        categories,
        paths,
        tags,
        since,
        until,
        language,
    )
    return failed or []


async def passage_texts(
    connection: Connection, tenant: UUID, context: UUID, source: UUID, *, passage: int | None, limit: int
) -> list[tuple[int, str]]:
    """Return the texts of a source's passages in order, or of the one asked about."""
    rows = await connection.fetch(
        """
        SELECT p.passage_id,
               substring(c.content FROM p.start_byte::int + 1 FOR (p.end_byte - p.start_byte)::int) AS text
        FROM passage p JOIN source_content c USING (tenant_id, context_id, source_id)
        WHERE p.tenant_id = $1 AND p.context_id = $2 AND p.source_id = $3
          AND ($4::bigint IS NULL OR p.passage_id = $4)
        ORDER BY p.passage_id LIMIT $5
        """,
        tenant,
        context,
        source,
        passage,
        limit,
    )
    return [(row["passage_id"], bytes(row["text"]).decode("utf-8", "replace")) for row in rows]
