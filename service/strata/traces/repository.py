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


async def insert_many(connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Write several calls of one tenant."""
    await connection.executemany(_INSERT, rows)


async def make_partitions(connection: Connection, weeks_ahead: int) -> int:
    """Make the weekly partitions from this week on; return how many were missing."""
    made: int = await connection.fetchval("SELECT strata_invocation_partitions($1)", weeks_ahead)
    return made
