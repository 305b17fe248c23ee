"""Hint entries on the wire and in files (camelCase). Lists are never null, nulls are sent."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct, field

MAX_HINTS_PER_CALL = 20_000
MAX_TITLE_CHARS = 1000
MAX_NAME_CHARS = 300
MAX_ALIASES = 64
MAX_KEYWORDS = 128
MAX_TARGETS = 64
MAX_TARGET_CHARS = 2048
MAX_BREADCRUMB = 32
MAX_CATEGORY_CHARS = 128
MAX_SUMMARY_CHARS = 4000
MAX_PRIORITY = 1000
MAX_METADATA_BYTES = 16 * 1024
MAX_PAGE = 1000


class HintOrigin(StrEnum):
    """Where a hint comes from: a person, the head of a document, or its titles and headings."""

    CURATED = "curated"
    FRONTMATTER = "frontmatter"
    DERIVED = "derived"


class HintInput(Struct, frozen=True, rename="camel", kw_only=True):
    """A curated hint as sent. Without ``id`` it replaces the curated hint of the same title, or is new."""

    id: UUID | None = None
    title: str
    aliases: list[str] = []
    keywords: list[str] = []
    category: str | None = None
    breadcrumb: list[str] = []
    summary: str | None = None
    targets: list[str] = []
    priority: int = 0
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    metadata: dict[str, Any] = {}


class HintEntry(Struct, frozen=True, rename="camel", kw_only=True):
    """A stored hint. ``targets`` are source paths, with ``#anchor`` where one section is meant."""

    hint_id: UUID = field(name="id")
    context_id: UUID
    origin: HintOrigin
    source_id: UUID | None = None
    title: str
    aliases: list[str] = []
    keywords: list[str] = []
    category: str | None = None
    breadcrumb: list[str] = []
    summary: str | None = None
    targets: list[str] = []
    priority: int = 0
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    metadata: dict[str, Any] = {}
    created_at: datetime | None = None
    updated_at: datetime | None = None


class HintReport(Struct, frozen=True, rename="camel", kw_only=True):
    """What a change did; ``ids`` are in the order of the hints sent."""

    created: int
    updated: int
    unchanged: int
    ids: list[UUID]


class HintPage(Struct, frozen=True, rename="camel", kw_only=True):
    """One page of hints in id order; ``nextCursor`` is null on the last."""

    hints: list[HintEntry]
    next_cursor: str | None
