"""Embedding spaces of a context."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Identity, Index
from sqlalchemy import text as sql
from sqlmodel import SQLModel

from strata.platform.tables import bigint, binary, context_foreign_key, created, json, text, timestamp, uuid


class EmbeddingSpaceRow(SQLModel, table=True):
    """One space that passages of a context are, or were, embedded in.

    ``description`` is the whole :class:`~strata.providers.embeddings.base.EmbeddingSpace` and
    ``fingerprint`` its identity. A context searches its one ``active`` space; one ``building`` beside
    it takes its place in one transaction, and what was replaced is ``retired`` until its vectors are gone.
    ``vectors`` counts the vectors stored; ``indexed_at`` is set while a valid HNSW index stands, and
    ``removed`` counts the vectors deleted since.
    """

    __tablename__ = "embedding_space"
    __table_args__ = (
        context_foreign_key(),
        CheckConstraint("state IN ('building', 'active', 'retired')", name="embedding_space_state_check"),
        Index(
            "embedding_space_active_key",
            "tenant_id",
            "context_id",
            unique=True,
            postgresql_where=sql("state = 'active'"),
        ),
        Index(
            "embedding_space_building_key",
            "tenant_id",
            "context_id",
            unique=True,
            postgresql_where=sql("state = 'building'"),
        ),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    space_id: int = bigint(primary_key=True, server_default=Identity(always=True))
    fingerprint: bytes = binary()
    description: dict[str, Any] = json(server_default=None)
    dimension: int = bigint()
    state: str = text()
    vectors: int = bigint(server_default="0")
    indexed_at: datetime | None = timestamp(nullable=True)
    removed: int = bigint(server_default="0")
    created_at: datetime = created()
    activated_at: datetime | None = timestamp(nullable=True)
