"""Sources with their text, sections and passages."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, UniqueConstraint, column
from sqlmodel import SQLModel

from strata.platform.tables import (
    bigint,
    binary,
    boolean,
    context_foreign_key,
    created,
    json,
    source_foreign_key,
    text,
    texts,
    timestamp,
    uuid,
)


class Source(SQLModel, table=True):
    """An ingested document at its current revision.

    ``serial`` is new with every revision; passage ids are ``serial << 20 | ordinal``. ``path`` is
    its identity within the context: a POSIX path or the id it was ingested under; ``link_name`` is what
    a wiki link calls it. ``occurred_at`` is the date that the document states of itself.
    ``normalisation`` counts what was normalised away. ``origin`` names the ingest root that found it,
    for pruning.
    """

    __tablename__ = "source"
    __table_args__ = (
        UniqueConstraint("tenant_id", "context_id", "path", name="source_path_key"),
        Index("source_serial_idx", "tenant_id", "context_id", "serial", unique=True),
        Index(
            "source_category_idx",
            "tenant_id",
            "context_id",
            "category",
            postgresql_where=column("category").is_not(None),
        ),
        Index(
            "source_link_name_idx",
            "tenant_id",
            "context_id",
            "link_name",
            postgresql_where=column("link_name") != "",
        ),
        context_foreign_key(),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    source_id: UUID = uuid(primary_key=True)
    serial: int = bigint()
    revision: int = bigint(server_default="1")
    path: str = text(collation="C")
    link_name: str = text(collation="C", server_default="")
    origin: str = text(server_default="")
    title: str = text(server_default="")
    format: str = text()
    media_type: str | None = text(nullable=True)
    category: str | None = text(nullable=True)
    language: str | None = text(nullable=True)
    tags: list[str] = texts()
    source_key: str | None = text(nullable=True)
    source_key_basis: str | None = text(nullable=True)
    occurred_at: datetime | None = timestamp(nullable=True)
    metadata_: dict[str, object] = json(name="metadata")
    normalisation: dict[str, object] = json()
    warnings: list[str] = texts()
    content_sha256: bytes = binary()
    fingerprint: bytes = binary()
    original_bytes: int = bigint()
    text_bytes: int = bigint()
    passage_count: int = bigint()
    created_at: datetime = created()
    updated_at: datetime = created()


class SourceContent(SQLModel, table=True):
    """The normalised text of a source as UTF-8, stored uncompressed so that a slice reads only itself."""

    __tablename__ = "source_content"
    __table_args__ = (source_foreign_key(),)

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    source_id: UUID = uuid(primary_key=True)
    content: bytes = binary()


class SectionRow(SQLModel, table=True):
    """A section of a source: breadcrumb, anchor and byte range (subtree included)."""

    __tablename__ = "section"
    __table_args__ = (source_foreign_key(),)

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    source_id: UUID = uuid(primary_key=True)
    ordinal: int = bigint(primary_key=True)
    level: int = bigint()
    heading: str = text()
    anchor: str | None = text(nullable=True)
    breadcrumb: list[str] = texts()
    start_byte: int = bigint()
    end_byte: int = bigint()


class PassageRow(SQLModel, table=True):
    """A passage: a byte range of the source's text. ``sha256`` is of those bytes."""

    __tablename__ = "passage"
    __table_args__ = (
        Index("passage_source_idx", "source_id", "context_id", "tenant_id", "section_ordinal"),
        Index("passage_cue_idx", "tenant_id", "context_id", "passage_id", postgresql_where=column("kind") == "cue"),
        source_foreign_key(),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    passage_id: int = bigint(primary_key=True, autoincrement=False)
    source_id: UUID = uuid()
    section_ordinal: int = bigint()
    kind: str = text()
    start_byte: int = bigint()
    end_byte: int = bigint()
    sha256: bytes = binary()
    page: int | None = bigint(nullable=True)
    start_ms: int | None = bigint(nullable=True)
    end_ms: int | None = bigint(nullable=True)
    speaker: str | None = text(nullable=True)
    locator_kind: str | None = text(nullable=True)
    locator_value: str | None = text(nullable=True)


class PassageQuestion(SQLModel, table=True):
    """A question that a paragraph answers, as its importer says; its terms are indexed with the paragraph."""

    __tablename__ = "passage_question"
    __table_args__ = (source_foreign_key(),)

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    source_id: UUID = uuid(primary_key=True)
    paragraph: int = bigint(primary_key=True, autoincrement=False)
    ordinal: int = bigint(primary_key=True, autoincrement=False)
    question: str = text()


class DocumentRelation(SQLModel, table=True):
    """A relation that a source declares, or a link in its text, which has no predicate.

    ``target`` is what it is found by: a path within the context, the lower-case name that a wiki link gives,
    or a URL (``form``). It is resolved when it is read, so that targets may come and go. ``written`` is the
    target as the document has it, ``section_ordinal`` where it stands, ``count`` how often.
    """

    __tablename__ = "document_relation"
    __table_args__ = (
        Index("document_relation_target_idx", "tenant_id", "context_id", "target", "predicate"),
        CheckConstraint("form IN ('path', 'name', 'url')", name="document_relation_form_check"),
        source_foreign_key(),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    source_id: UUID = uuid(primary_key=True)
    ordinal: int = bigint(primary_key=True, autoincrement=False)
    predicate: str = text(collation="C")
    form: str = text()
    target: str = text(collation="C")
    written: str = text()
    anchor: str | None = text(nullable=True)
    label: str = text(server_default="")
    section_ordinal: int = bigint(server_default="0")
    count: int = bigint(server_default="1")


class SourceRevision(SQLModel, table=True):
    """A revision that is no longer the current one, readable by its pin ``path/vN``.

    Keyed by path, without a reference to the source: what is archived has revisions only, and of these the
    newest ``is_archived``; no revision of a source that stands is. ``sections`` holds
    ``[level, heading, anchor, breadcrumb, start_byte, end_byte]`` each, ``content`` the normalised text.
    """

    __tablename__ = "source_revision"
    __table_args__ = (
        Index(
            "source_revision_archived_idx",
            "tenant_id",
            "context_id",
            "path",
            postgresql_where=column("is_archived"),
        ),
        Index(
            "source_revision_archived_id_idx",
            "tenant_id",
            "context_id",
            "source_id",
            postgresql_where=column("is_archived"),
        ),
        context_foreign_key(),
    )

    tenant_id: UUID = uuid(primary_key=True)
    context_id: UUID = uuid(primary_key=True)
    path: str = text(collation="C", primary_key=True)
    revision: int = bigint(primary_key=True, autoincrement=False)
    source_id: UUID = uuid()
    origin: str = text()
    title: str = text()
    format: str = text()
    media_type: str | None = text(nullable=True)
    category: str | None = text(nullable=True)
    language: str | None = text(nullable=True)
    tags: list[str] = texts()
    source_key: str | None = text(nullable=True)
    occurred_at: datetime | None = timestamp(nullable=True)
    metadata_: dict[str, object] = json(name="metadata")
    content_sha256: bytes = binary()
    original_bytes: int = bigint()
    passage_count: int = bigint()
    sections: list[object] = json(server_default="[]")
    content: bytes = binary()
    stored_at: datetime = timestamp()
    retired_at: datetime = created()
    is_archived: bool = boolean()
