"""Tenants and contexts."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import UniqueConstraint
from sqlmodel import SQLModel

from strata.platform.tables import bigint, created, text, texts, uuid


class Tenant(SQLModel, table=True):
    """Who owns contexts; no row of one is ever seen by another."""

    __tablename__ = "tenant"

    tenant_id: UUID = uuid(primary_key=True)
    name: str = text(unique=True)
    created_at: datetime = created()


class Context(SQLModel, table=True):
    """A knowledge base, addressed by id or by its unique name.

    The revision counters move with every change of their kind, in the same transaction: caches
    and traces bind to them. ``languages`` are those by whose rules its passages were analysed.
    """

    __tablename__ = "context"
    __table_args__ = (UniqueConstraint("tenant_id", "name", name="context_name_key"),)

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    name: str = text()
    description: str = text(server_default="")
    graph_revision: int = bigint(server_default="0")
    passages_revision: int = bigint(server_default="0")
    hints_revision: int = bigint(server_default="0")
    config_revision: int = bigint(server_default="0")
    languages: list[str] = texts()
    created_at: datetime = created()
