"""Column and constraint helpers shared by the table modules.

The SQLModel classes state the schema; migrations build it; a test holds the two equal.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKeyConstraint,
    LargeBinary,
    Text,
    Uuid,
    func,
)
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlmodel import Field


def context_foreign_key() -> ForeignKeyConstraint:
    """Return the reference of a row to its context; deleting the context deletes the row."""
    return ForeignKeyConstraint(
        ["tenant_id", "context_id"], ["context.tenant_id", "context.context_id"], ondelete="CASCADE"
    )


def source_foreign_key() -> ForeignKeyConstraint:
    """Return the reference of a row to its source; deleting the source deletes the row."""
    return ForeignKeyConstraint(
        ["tenant_id", "context_id", "source_id"],
        ["source.tenant_id", "source.context_id", "source.source_id"],
        ondelete="CASCADE",
    )


def bigint(**options: Any) -> Any:
    """Return a bigint column; never null unless ``nullable=True``."""
    return Field(sa_column=Column(BigInteger, **{"nullable": False, **options}))


def double(**options: Any) -> Any:
    """Return a double precision column; never null unless ``nullable=True``."""
    return Field(sa_column=Column(Double, **{"nullable": False, **options}))


def boolean(**options: Any) -> Any:
    """Return a boolean column, false by default."""
    return Field(sa_column=Column(Boolean, **{"nullable": False, "server_default": sql("false"), **options}))


def text(*, collation: str | None = None, **options: Any) -> Any:
    """Return a text column; never null unless ``nullable=True``. Collation C is code point order."""
    return Field(sa_column=Column(Text(collation=collation), **{"nullable": False, **options}))


def texts(**options: Any) -> Any:
    """Return a text[] column, empty by default."""
    return Field(sa_column=Column(ARRAY(Text), **{"nullable": False, "server_default": "{}", **options}))


def json(**options: Any) -> Any:
    """Return a jsonb column, ``{}`` by default."""
    return Field(sa_column=Column(JSONB, **{"nullable": False, "server_default": "{}", **options}))


def binary(**options: Any) -> Any:
    """Return a bytea column; never null unless ``nullable=True``."""
    return Field(sa_column=Column(LargeBinary, **{"nullable": False, **options}))


def uuid(**options: Any) -> Any:
    """Return a uuid column; never null unless ``nullable=True``."""
    return Field(sa_column=Column(Uuid, **{"nullable": False, **options}))


def timestamp(**options: Any) -> Any:
    """Return a timestamptz column; database time is the clock where ``server_default`` says so."""
    return Field(sa_column=Column(DateTime(timezone=True), **{"nullable": False, **options}))


def created() -> Any:
    """Return a timestamptz column that is set by the database when the row is made."""
    return timestamp(server_default=func.now())
