"""Hint entries (L0), and the normalised keys by which a question finds them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Column, ForeignKeyConstraint, Index, Text, text
from sqlmodel import Field, SQLModel

from strata.platform import tables as columns


class HintEntryRow(SQLModel, table=True):
    """A hint: names that lead to targets. ``source_id`` owns a front matter or derived one."""

    __tablename__ = "hint_entry"
    __table_args__ = (
        Index("hint_entry_source_idx", "source_id", "tenant_id", "context_id"),
        Index(
            "hint_entry_named_idx",
            "tenant_id",
            "context_id",
            "origin",
            "hint_id",
            postgresql_where=text("origin <> 'derived'"),
        ),
        columns.context_foreign_key(),
        columns.source_foreign_key(),
    )

    tenant_id: UUID = columns.uuid(primary_key=True)
    context_id: UUID = columns.uuid(primary_key=True)
    hint_id: UUID = columns.uuid(primary_key=True)
    origin: str = columns.text()
    source_id: UUID | None = columns.uuid(nullable=True)
    title: str = columns.text()
    aliases: list[str] = columns.texts()
    keywords: list[str] = columns.texts()
    category: str | None = columns.text(nullable=True)
    breadcrumb: list[str] = columns.texts()
    summary: str | None = columns.text(nullable=True)
    targets: list[str] = columns.texts()
    priority: int = columns.bigint(server_default="0")
    valid_from: datetime | None = columns.timestamp(nullable=True)
    valid_until: datetime | None = columns.timestamp(nullable=True)
    metadata_: dict[str, object] = columns.json(name="metadata")
    created_at: datetime = columns.created()
    updated_at: datetime = columns.created()


class HintKeyRow(SQLModel, table=True):
    """One string that a question is compared with by equality or prefix.

    ``norm`` is a whole normalised title or alias (kind ``name``), or the longest word of a keyword
    (kind ``keyword``). ``rank`` orders keys of one norm: curated first, then by priority.
    """

    __tablename__ = "hint_key"
    __table_args__ = (
        Index("hint_key_probe_idx", "tenant_id", "context_id", "kind", "norm", "rank", "hint_id"),
        ForeignKeyConstraint(
            ["tenant_id", "context_id", "hint_id"],
            ["hint_entry.tenant_id", "hint_entry.context_id", "hint_entry.hint_id"],
            ondelete="CASCADE",
        ),
    )

    tenant_id: UUID = columns.uuid(primary_key=True)
    context_id: UUID = columns.uuid(primary_key=True)
    hint_id: UUID = columns.uuid(primary_key=True)
    ordinal: int = columns.bigint(primary_key=True, autoincrement=False)
    kind: str = columns.text()
    norm: str = Field(sa_column=Column(Text(collation="C"), nullable=False))
    rank: int = columns.bigint()
