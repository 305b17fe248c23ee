"""The shape of a read document: one normalised text, and what stands where in it.

Readers produce a :class:`Document`; passages, anchors and breadcrumbs are derived from it by
pure functions. All offsets here are character offsets into ``Document.text``; byte offsets
appear only on passages and sections, which are what is stored and cited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

BlockKind = Literal["heading", "paragraph", "list", "table", "code", "quote", "cue"]


@dataclass(frozen=True, slots=True)
class Block:
    """One run of the text that should stay together where it fits.

    ``start`` and ``end`` are character offsets, end exclusive. ``level`` (1 to 6), ``heading``
    (the rendered heading, without markup) and ``anchor`` (as the document declares it) belong to
    headings. ``page`` counts from 1. A cue has its interval in milliseconds and may name a speaker.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    heading: str = ""
    anchor: str | None = None
    page: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link in the text to another document; no image, and nothing that stands in code.

    ``start`` is the offset of the line or table row that it stands on. ``target`` is as written, with entities
    and escapes resolved; that of a wiki link is a name, a fragment included.
    """

    start: int
    target: str
    label: str = ""
    is_wiki: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A document as a reader leaves it.

    ``blocks`` are in text order and do not overlap. ``metadata`` is what the document says of
    itself (front matter, HTML meta, PDF info), JSON-safe. ``changes`` counts what normalising took
    away or replaced, by name (``nul``, ``lone_surrogates``, ``bom``, ``undecodable_bytes``, ...).
    ``title`` is empty when the document names none. ``warnings`` are sentences for a person. ``links`` are
    in text order.
    """

    text: str
    blocks: Sequence[Block]
    title: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    language: str | None = None
    links: Sequence[Link] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with all that stands under it up to the next heading of its level or above.

    Section 0 is the document itself (level 0, no anchor). ``breadcrumb`` holds the headings from
    the outermost to this one. ``start_byte`` and ``end_byte`` span the UTF-8 text, subtree included.
    """

    ordinal: int
    level: int
    heading: str
    anchor: str | None
    breadcrumb: tuple[str, ...]
    start_byte: int
    end_byte: int


@dataclass(frozen=True, slots=True)
class Passage:
    """The retrieval unit: a byte range of the stored text inside one section.

    ``kind`` is that of its blocks, ``mixed`` when they differ. ``page`` is the first page it stands
    on; cues give ``start_ms``, ``end_ms`` and ``speaker`` (None when several speak).
    """

    ordinal: int
    section: int
    kind: str
    start_byte: int
    end_byte: int
    text: str
    page: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    speaker: str | None = None
