"""Tenants, contexts and groups of them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint
from sqlmodel import SQLModel

from strata.platform.tables import (
    bigint,
    boolean,
    context_foreign_key,
    created,
    double,
    json,
    text,
    texts,
    timestamp,
    uuid,
)


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
    ``change_seq`` is the number of the last event of its change feed. The floors (0..1) are what
    its searches use where a call names none.
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
    is_pinned: bool = boolean()
    dice_floor: float | None = double(nullable=True)
    semantic_floor: float | None = double(nullable=True)
    change_seq: int = bigint(server_default="0")


class ContextUsage(SQLModel, table=True):
    """How often a context was read and written; kept apart, so that counting a read locks no writer out."""

    __tablename__ = "context_usage"
    __table_args__ = (context_foreign_key(),)

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    reads: int = bigint(server_default="0")
    empty_reads: int = bigint(server_default="0")
    writes: int = bigint(server_default="0")
    last_read_at: datetime | None = timestamp(nullable=True)
    last_write_at: datetime | None = timestamp(nullable=True)


class ContextChange(SQLModel, table=True):
    """One event of a context's change feed, numbered from 1 without gaps, written with the change itself."""

    __tablename__ = "context_change"
    __table_args__ = (context_foreign_key(),)

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    seq: int = bigint(primary_key=True, autoincrement=False)
    kind: str = text()
    payload: dict[str, object] = json()
    created_at: datetime = created()


class ContextSchema(SQLModel, table=True):
    """The schema document of a context, and how strictly it is held."""

    __tablename__ = "context_schema"
    __table_args__ = (
        CheckConstraint("mode IN ('off', 'warn', 'strict')", name="context_schema_mode_check"),
        context_foreign_key(),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    mode: str = text()
    document: dict[str, object] = json()


def _group_foreign_key(column: str = "group_id") -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["tenant_id", column], ["context_group.tenant_id", "context_group.group_id"], ondelete="CASCADE"
    )


class ContextGroup(SQLModel, table=True):
    """Contexts under one name, to be searched together; groups hold groups, up to three tall."""

    __tablename__ = "context_group"
    __table_args__ = (UniqueConstraint("tenant_id", "name", name="context_group_name_key"),)

    tenant_id: UUID = uuid(primary_key=True)
    group_id: UUID = uuid(primary_key=True)
    name: str = text(collation="C")
    description: str = text(server_default="")
    created_at: datetime = created()


class ContextGroupContext(SQLModel, table=True):
    """A context in a group."""

    __tablename__ = "context_group_context"
    __table_args__ = (
        Index("context_group_context_group_idx", "tenant_id", "group_id"),
        context_foreign_key(),
        _group_foreign_key(),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    group_id: UUID = uuid(primary_key=True)


class ContextGroupChild(SQLModel, table=True):
    """A group in a group."""

    __tablename__ = "context_group_child"
    __table_args__ = (
        Index("context_group_child_child_idx", "tenant_id", "child_id"),
        CheckConstraint("group_id <> child_id", name="context_group_child_self_check"),
        _group_foreign_key(),
        _group_foreign_key("child_id"),
    )

    tenant_id: UUID = uuid(primary_key=True)
    group_id: UUID = uuid(primary_key=True)
    child_id: UUID = uuid(primary_key=True)
