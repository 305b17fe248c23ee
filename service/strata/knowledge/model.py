"""Contexts as the services hand them around."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class ContextCounts:
    """How many sources and passages a context holds."""

    sources: int
    passages: int
