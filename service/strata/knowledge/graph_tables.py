"""The knowledge graph: names, aliases, associations and who asserted them."""

from __future__ import annotations

from uuid import UUID

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, Identity, Index, UniqueConstraint
from sqlmodel import Field, SQLModel

from strata.platform.tables import bigint, binary, context_foreign_key, double, text, uuid


def _name_foreign_key(table: str, column: str | None = None, *, ondelete: str | None = None) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["tenant_id", "context_id", column or f"{table}_id"],
        [f"{table}.tenant_id", f"{table}.context_id", f"{table}.{table}_id"],
        ondelete=ondelete,
    )


class Concept(SQLModel, table=True):
    """What associations are about. Spellings that are one name have one ``key`` (:func:`strata.graph.names.key`)."""

    __tablename__ = "concept"
    __table_args__ = (
        UniqueConstraint("tenant_id", "context_id", "name", name="concept_name_key"),
        Index("concept_key_idx", "tenant_id", "context_id", "key"),
        context_foreign_key(),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    concept_id: int = bigint(primary_key=True, server_default=Identity(always=True))
    name: str = text(collation="C")
    key: str = text(collation="C")


class Label(SQLModel, table=True):
    """What an association says: the name of a relation."""

    __tablename__ = "label"
    __table_args__ = (
        UniqueConstraint("tenant_id", "context_id", "name", name="label_name_key"),
        Index("label_key_idx", "tenant_id", "context_id", "key"),
        context_foreign_key(),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    label_id: int = bigint(primary_key=True, server_default=Identity(always=True))
    name: str = text(collation="C")
    key: str = text(collation="C")


class Alias(SQLModel, table=True):
    """Another spelling of a concept or a label; results always show the canonical one."""

    __tablename__ = "alias"
    __table_args__ = (
        CheckConstraint(
            "CASE namespace WHEN 'concept' THEN concept_id IS NOT NULL AND label_id IS NULL "
            "WHEN 'label' THEN label_id IS NOT NULL AND concept_id IS NULL ELSE false END",
            name="alias_target_check",
        ),
        Index("alias_concept_idx", "tenant_id", "context_id", "concept_id"),
        Index("alias_label_idx", "tenant_id", "context_id", "label_id"),
        context_foreign_key(),
        _name_foreign_key("concept"),
        _name_foreign_key("label"),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    namespace: str = text(primary_key=True)
    alias: str = text(primary_key=True, collation="C")
    concept_id: int | None = bigint(nullable=True)
    label_id: int | None = bigint(nullable=True)


class NameVector(SQLModel, table=True):
    """The vector of what a concept or a label is about: its name with its heaviest facts.

    ``space`` is the fingerprint of the embedding space, ``gloss_sha256`` of the text that was embedded. It
    goes with its name.
    """

    __tablename__ = "name_vector"
    __table_args__ = (
        UniqueConstraint(
            "tenant_id",
            "context_id",
            "concept_id",
            "label_id",
            name="name_vector_name_key",
            postgresql_nulls_not_distinct=True,
        ),
        CheckConstraint("num_nonnulls(concept_id, label_id) = 1", name="name_vector_name_check"),
        Index("name_vector_label_idx", "tenant_id", "context_id", "label_id"),
        context_foreign_key(),
        _name_foreign_key("concept", ondelete="CASCADE"),
        _name_foreign_key("label", ondelete="CASCADE"),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    vector_id: int = bigint(primary_key=True, server_default=Identity(always=True))
    concept_id: int | None = bigint(nullable=True)
    label_id: int | None = bigint(nullable=True)
    space: bytes = binary()
    gloss_sha256: bytes = binary()
    embedding: str = Field(sa_column=Column(HALFVEC, nullable=False))


class Association(SQLModel, table=True):
    """A fact: one row for a triple. ``weight`` and ``count`` are the sums over its attributions."""

    __tablename__ = "association"
    __table_args__ = (
        UniqueConstraint(
            "tenant_id", "context_id", "subject_id", "label_id", "object_id", name="association_triple_key"
        ),
        CheckConstraint("subject_id <> object_id", name="association_self_check"),
        Index("association_label_idx", "tenant_id", "context_id", "label_id"),
        Index("association_object_idx", "tenant_id", "context_id", "object_id"),
        context_foreign_key(),
        _name_foreign_key("concept", "subject_id"),
        _name_foreign_key("label"),
        _name_foreign_key("concept", "object_id"),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    association_id: int = bigint(primary_key=True, server_default=Identity(always=True))
    subject_id: int = bigint()
    label_id: int = bigint()
    object_id: int = bigint()
    weight: float = double()
    count: int = bigint()


class Attribution(SQLModel, table=True):
    """Who asserted a fact, for which interval (epoch seconds, half open), how often, and in which paragraph first.

    An empty ``source`` is that of an assertion without one.
    """

    __tablename__ = "attribution"
    __table_args__ = (
        UniqueConstraint(
            "tenant_id",
            "context_id",
            "association_id",
            "source",
            "valid_from",
            "valid_until",
            name="attribution_key",
            postgresql_nulls_not_distinct=True,
        ),
        CheckConstraint("valid_from < valid_until", name="attribution_interval_check"),
        Index("attribution_source_idx", "tenant_id", "context_id", "source"),
        ForeignKeyConstraint(
            ["tenant_id", "context_id", "association_id"],
            ["association.tenant_id", "association.context_id", "association.association_id"],
            ondelete="CASCADE",
        ),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    attribution_id: int = bigint(primary_key=True, server_default=Identity(always=True))
    association_id: int = bigint()
    source: str = text(collation="C")
    valid_from: int | None = bigint(nullable=True)
    valid_until: int | None = bigint(nullable=True)
    weight: float = double()
    count: int = bigint()
    paragraph: int | None = bigint(nullable=True)
