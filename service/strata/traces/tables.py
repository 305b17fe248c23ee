"""tool_invocation: one row for every call of a tool on any surface."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CHAR, Boolean, CheckConstraint, Column, Double, Index
from sqlalchemy import text as sql
from sqlmodel import Field, SQLModel

from strata.platform.tables import bigint, json, text, timestamp, uuid


class ToolInvocation(SQLModel, table=True):
    """A recorded call, written when it ends; never changed afterwards.

    ``context_id`` is the first context asked. ``created_at`` is the database's time of writing:
    the call began ``duration_ms`` earlier. Weekly partitions by ``created_at``; a default
    partition takes what no week holds. There is no foreign key: a trace outlives its context.
    """

    __tablename__ = "tool_invocation"
    __table_args__ = (
        Index("tool_invocation_created_idx", "tenant_id", "created_at", "id"),
        Index("tool_invocation_context_idx", "tenant_id", "context_id", "created_at"),
        Index(
            "tool_invocation_status_idx",
            "tenant_id",
            "status",
            "created_at",
            postgresql_where=sql("status <> 'SUCCESS'"),
        ),
        Index(
            "tool_invocation_trace_idx",
            "tenant_id",
            "trace_id",
            postgresql_where=sql("trace_id IS NOT NULL"),
        ),
        Index(
            "tool_invocation_session_idx",
            "tenant_id",
            "session_id",
            "created_at",
            postgresql_where=sql("session_id IS NOT NULL"),
        ),
        Index(
            "tool_invocation_request_idx",
            "tenant_id",
            "request_id",
            postgresql_where=sql("request_id IS NOT NULL"),
        ),
        CheckConstraint("surface IN ('REST', 'MCP', 'CLI')", name="tool_invocation_surface_check"),
        CheckConstraint(
            "status IN ('SUCCESS', 'NOT_FOUND', 'DEGRADED', 'ERROR', 'CANCELLED')",
            name="tool_invocation_status_check",
        ),
        CheckConstraint("relevance_level IN ('HIGH', 'MEDIUM', 'LOW', 'NONE')", name="tool_invocation_relevance_check"),
        CheckConstraint(
            "completeness_hint IN ('COMPLETE', 'PARTIAL', 'HINT_ONLY', 'FALLBACK', 'DEGRADED', 'EMPTY')",
            name="tool_invocation_completeness_check",
        ),
        CheckConstraint(
            "trace_id ~ '^[0-9a-f]{32}$' AND span_id ~ '^[0-9a-f]{16}$'", name="tool_invocation_trace_check"
        ),
        CheckConstraint("evidence_count >= 0 AND duration_ms >= 0", name="tool_invocation_numbers_check"),
        CheckConstraint(
            "jsonb_typeof(arguments) = 'object' AND jsonb_typeof(retrieval_details) = 'object'",
            name="tool_invocation_details_check",
        ),
        {"postgresql_partition_by": "RANGE (created_at)"},
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID | None = uuid(nullable=True)
    id: UUID = uuid(primary_key=True)
    created_at: datetime = timestamp(primary_key=True, server_default=sql("clock_timestamp()"))
    tool_name: str = text()
    surface: str = text()
    session_id: str | None = text(nullable=True)
    agent_id: str | None = text(nullable=True)
    request_id: str | None = text(nullable=True)
    trace_id: str | None = Field(sa_column=Column(CHAR(32), nullable=True))
    span_id: str | None = Field(sa_column=Column(CHAR(16), nullable=True))
    arguments: dict[str, Any] = json()
    status: str = text()
    found: bool | None = Field(sa_column=Column(Boolean, nullable=True))
    relevance_level: str | None = text(nullable=True)
    completeness_hint: str | None = text(nullable=True)
    evidence_count: int = bigint(server_default="0")
    duration_ms: float = Field(sa_column=Column(Double, nullable=False))
    error_type: str | None = text(nullable=True)
    error_message: str | None = text(nullable=True)
    retrieval_details: dict[str, Any] | None = json(nullable=True, server_default=None)
