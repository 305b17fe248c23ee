"""Durable work: what must be done after a transaction, by whichever worker comes first."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Identity, Index
from sqlalchemy import text as sql
from sqlmodel import SQLModel

from strata.platform.tables import bigint, boolean, context_foreign_key, created, json, text, timestamp, uuid


class Work(SQLModel, table=True):
    """One item of work. It is deleted when done; one that failed for good stays, with its error.

    ``run_at`` is when it may be taken; taking it moves ``run_at`` to the end of the lease, so that
    an item whose worker died becomes free by itself. ``attempts`` counts the times it was taken and
    fences them: only the last who took it may finish it.
    """

    __tablename__ = "work"
    __table_args__ = (
        context_foreign_key(),
        Index("work_due_idx", "tenant_id", "kind", "run_at", "work_id", postgresql_where=sql("NOT is_failed")),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    work_id: int = bigint(primary_key=True, server_default=Identity(always=True))
    kind: str = text()
    payload: dict[str, Any] = json(server_default=None)
    is_failed: bool = boolean()
    attempts: int = bigint(server_default="0")
    run_at: datetime = timestamp(server_default=sql("now()"))
    worker: str | None = text(nullable=True)
    error: str | None = text(nullable=True)
    created_at: datetime = created()
