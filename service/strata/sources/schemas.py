"""The wire of sources (camelCase). Lists are never null, nulls are sent."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta, Struct

from strata.sources.model import DocumentInput, Refused, Stage
from strata.sources.repository import State

MAX_DOCUMENTS = 1_000
MAX_PAGE = 1_000
MAX_OUTCOMES = 1_000
MAX_SLICE_BYTES = 1024 * 1024


class DocumentBody(Struct, frozen=True, rename="camel", kw_only=True):
    """One document in a request; ``path`` or ``id`` names it (docs/ingest.md)."""

    content: str
    path: str | None = None
    id: str | None = None
    media_type: str | None = None
    title: str | None = None
    metadata: dict[str, Any] = {}
    category: str | None = None
    tags: list[str] = []
    language: str | None = None
    occurred_at: str | None = None
    source_key: str | None = None

    def to_input(self) -> DocumentInput:
        """Return what the service takes."""
        return DocumentInput(
            content=self.content,
            path=self.path,
            id=self.id,
            media_type=self.media_type,
            title=self.title,
            metadata=self.metadata,
            category=self.category,
            tags=tuple(self.tags),
            language=self.language,
            occurred_at=self.occurred_at,
            source_key=self.source_key,
        )


class IngestRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """Documents to ingest together; each succeeds or is refused on its own."""

    documents: Annotated[list[DocumentBody], Meta(min_length=1, max_length=MAX_DOCUMENTS)]


class SourceOutcome(Struct, frozen=True, rename="camel", kw_only=True):
    """What became of one source that is in the context now (PRUNED: that no longer is)."""

    path: str
    status: Literal["ADDED", "REPLACED", "UNCHANGED", "PRUNED"]
    id: UUID
    revision: int
    passages: int | None = None
    normalisation: dict[str, int] = {}
    warnings: list[str] = []


class RefusalView(Struct, frozen=True, rename="camel", kw_only=True):
    """A document that was not taken in: the error's code, the reason within it, and the stage it failed at."""

    path: str
    code: str
    reason: str
    detail: str
    stage: Stage
    remedy: str
    pointer: str | None = None

    @classmethod
    def of(cls, refused: Refused) -> RefusalView:
        """Return a refusal as it is sent."""
        return cls(
            path=refused.path,
            code=refused.code,
            reason=refused.reason,
            detail=refused.detail,
            stage=refused.stage,
            remedy=refused.remedy,
            pointer=refused.pointer,
        )


class IngestReport(Struct, frozen=True, rename="camel", kw_only=True):
    """What a run did.

    ``passages`` and ``bytes`` count what was written. ``outcomes`` and ``refusals`` hold the first
    1,000 each; the counts are of all. ``skipped`` counts files passed over, by extension or cause.
    ``normalisation`` sums what was normalised away in what was written. ``contextId`` is null when
    nothing could be tried and no context of the name exists.
    """

    context_id: UUID | None
    context: str
    added: int
    replaced: int
    unchanged: int
    refused: int
    pruned: int
    passages: int
    bytes: int
    seconds: float
    normalisation: dict[str, int]
    skipped: dict[str, int]
    outcomes: list[SourceOutcome]
    refusals: list[RefusalView]


class SourceView(Struct, frozen=True, rename="camel", kw_only=True):
    """A source at its current revision, or an earlier one: both its times are then when it was stored."""

    id: UUID
    path: str
    title: str
    revision: int
    format: str
    media_type: str | None
    category: str | None
    language: str | None
    tags: list[str]
    source_key: str | None
    occurred_at: datetime | None
    origin: str
    original_bytes: int
    text_bytes: int
    passages: int
    created_at: datetime
    updated_at: datetime


class SourcePage(Struct, frozen=True, rename="camel", kw_only=True):
    """One page of sources by path; ``nextCursor`` is null on the last."""

    sources: list[SourceView]
    next_cursor: str | None


class SectionView(Struct, frozen=True, rename="camel", kw_only=True):
    """A section: its heading, where it stands in the tree, and its byte range (subtree included)."""

    level: int
    heading: str
    anchor: str | None
    breadcrumb: list[str]
    start_byte: int
    end_byte: int


class SourceDetail(SourceView, frozen=True, rename="camel", kw_only=True):
    """A source, or an earlier revision of one, with its outline, metadata, and what was normalised away.

    ``pin`` names this revision for ever. What was normalised away is known of the current one only.
    ``supersededBy`` are the paths of the documents that now stand in its place, as relations say.
    """

    pin: str
    state: State
    superseded_by: list[str]
    sha256: str
    metadata: dict[str, Any]
    normalisation: dict[str, int]
    warnings: list[str]
    sections: list[SectionView]


class TextSlice(Struct, frozen=True, rename="camel", kw_only=True):
    """A range of the stored text of one revision; the range is that of whole characters."""

    path: str
    revision: int
    start_byte: int
    end_byte: int
    total_bytes: int
    sha256: str
    text: str


class RevisionView(Struct, frozen=True, rename="camel", kw_only=True):
    """A revision of a source; ``retiredAt`` is null for the current one. ``sha256`` is of the original's bytes."""

    revision: int
    pin: str
    state: State
    title: str
    sha256: str
    text_bytes: int
    stored_at: datetime
    retired_at: datetime | None


class RevisionPage(Struct, frozen=True, rename="camel", kw_only=True):
    """One page of the revisions of a source, newest first; ``nextCursor`` is null on the last."""

    items: list[RevisionView]
    next_cursor: str | None


class Archival(Struct, frozen=True, rename="camel", kw_only=True):
    """A source that left search and stays readable by its pins; ``pin`` is of its last revision."""

    path: str
    revision: int
    pin: str


class Deletion(Struct, frozen=True, rename="camel", kw_only=True):
    """How many sources and passages a deletion took away."""

    sources: int
    passages: int


class Progress(Struct, frozen=True, rename="camel", kw_only=True):
    """Where a run stands: sources dealt with of all, refused, unchanged, bytes, and passages written."""

    done: int
    total: int
    failed: int
    unchanged: int
    bytes_done: int
    bytes_total: int
    passages: int
