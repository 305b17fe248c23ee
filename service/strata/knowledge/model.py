"""Contexts as the services hand them around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class ContextRow:
    """A context as it stands in its table."""

    context_id: UUID
    name: str
    description: str
    graph_revision: int
    passages_revision: int
    hints_revision: int
    config_revision: int
    languages: list[str]
    created_at: datetime
    is_pinned: bool = False
    dice_floor: float | None = None
    semantic_floor: float | None = None


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """What a context may be given beside name and description; None leaves it as it is (or as new ones are)."""

    is_pinned: bool | None = None
    dice_floor: float | None = None
    semantic_floor: float | None = None


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """How often a context was read and written, and when last."""

    reads: int = 0
    empty_reads: int = 0
    writes: int = 0
    last_read_at: datetime | None = None
    last_write_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A context as the directory lists it."""

    row: ContextRow
    usage: ContextUsage
    schema_mode: str | None


@dataclass(frozen=True, slots=True)
class DirectoryPage:
    """Part of the directory, by name; ``total`` counts all that fit the filter."""

    total: int
    entries: Sequence[DirectoryEntry]


@dataclass(frozen=True, slots=True)
class ContextCounts:
    """How many sources and passages a context holds."""

    sources: int
    passages: int
