"""What ingest works on: inputs, tasks, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from strata.sources.readers import BeirRecord
from strata.sources.relations import Relation
from strata.text.document import Passage, Section

Stage = Literal["find", "read", "parse", "build", "store"]


@dataclass(frozen=True, slots=True)
class DocumentInput:
    """One document as a caller hands it over.

    ``path`` or ``id`` names it within its context (``path`` wins; without both its identity fields
    or its bytes name it). ``content`` is text or the bytes of a file. What is given here wins over
    what the document says of itself. ``occurred_at`` is an ISO date or time.
    """

    content: str | bytes
    path: str | None = None
    id: str | None = None
    media_type: str | None = None
    title: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    category: str | None = None
    tags: Sequence[str] = ()
    language: str | None = None
    occurred_at: str | None = None
    source_key: str | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller says of a source, cleaned; part of its fingerprint."""

    media_type: str | None = None
    title: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    category: str | None = None
    tags: tuple[str, ...] = ()
    language: str | None = None
    occurred_at: str | None = None
    source_key: str | None = None
    source_key_basis: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What the database holds under a path."""

    source_id: UUID
    serial: int
    revision: int
    origin: str
    content_sha256: bytes
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Task:
    """One source to be read and built; crosses to a worker process.

    Exactly one of ``data``, ``file`` (a path on this machine) and ``record`` is set. ``size`` is in
    bytes. ``pointer`` names the document in the request. ``changes`` counts what was cleaned
    already, in the path and in the given fields. ``content_sha256`` is set where the bytes that came
    in are not those of ``data``.
    """

    path: str
    size: int
    data: bytes | None = None
    file: str | None = None
    record: BeirRecord | None = None
    origin: str = ""
    given: Given = field(default_factory=Given)
    pointer: str | None = None
    changes: Mapping[str, int] = field(default_factory=dict)
    known: Known | None = None
    content_sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A source that was not taken in: ``code`` of the error catalogue, ``reason`` within it, and where it failed."""

    path: str
    code: str
    reason: str
    detail: str
    stage: Stage
    remedy: str
    pointer: str | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Same:
    """A source whose bytes and given fields are those that the database holds."""

    path: str
    known: Known
    origin: str
    size: int


@dataclass(frozen=True, slots=True)
class Locator:
    """Where a passage stands in the original: a page, a slide, a cell, a time. ``kind`` is an open word."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Built:
    """A source ready to be written; ``passage_sha256`` stand beside ``passages``.

    ``relations`` are in their order. ``questions`` are (passage, question), by passage. ``locators`` belong to the
    passage of the number.
    ``stored_at`` is None for the moment it is written.
    """

    path: str
    origin: str
    pointer: str | None
    size: int
    title: str
    format: str
    media_type: str | None
    category: str | None
    language: str | None
    analysed_as: str
    tags: tuple[str, ...]
    source_key: str | None
    source_key_basis: str | None
    occurred_at: datetime | None
    metadata: Mapping[str, object]
    normalisation: Mapping[str, int]
    warnings: tuple[str, ...]
    content_sha256: bytes
    fingerprint: bytes
    content: bytes
    sections: Sequence[Section]
    passages: Sequence[Passage]
    passage_sha256: Sequence[bytes]
    questions: Sequence[tuple[int, str]] = ()
    locators: Mapping[int, Locator] = field(default_factory=dict)
    stored_at: datetime | None = None
    relations: Sequence[Relation] = ()
