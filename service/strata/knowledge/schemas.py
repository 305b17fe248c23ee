"""The wire of contexts (camelCase). Lists are never null, nulls are sent."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

MAX_NAME_CHARS = 128
MAX_DESCRIPTION_CHARS = 4_096


class Revisions(Struct, frozen=True, rename="camel", kw_only=True):
    """Counters that move with every change of their kind."""

    graph: int
    passages: int
    hints: int
    config: int


class ContextView(Struct, frozen=True, rename="camel", kw_only=True):
    """A knowledge base, with how many sources and passages it holds."""

    id: UUID
    name: str
    description: str
    revisions: Revisions
    sources: int
    passages: int
    created_at: datetime


class ContextList(Struct, frozen=True, rename="camel", kw_only=True):
    """Every context of the tenant, by name."""

    contexts: list[ContextView]


class CreateContext(Struct, frozen=True, rename="camel", kw_only=True):
    """A context to make; the name is unique within the tenant."""

    name: str
    description: str = ""


class UpdateContext(Struct, frozen=True, rename="camel", kw_only=True):
    """What to change; None leaves it as it is."""

    name: str | None = None
    description: str | None = None
