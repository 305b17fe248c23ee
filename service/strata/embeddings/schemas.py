"""The wire of embeddings (camelCase). Lists are never null, nulls are sent."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct

MAX_FAILURES = 100


class ConfiguredView(Struct, frozen=True, rename="camel", kw_only=True):
    """The embedder of the settings.

    ``dimension`` is null while it is not known: an endpoint tells it when it first answers. ``error`` says
    why the embedder could not be had when it was last asked.
    """

    mode: Literal["none", "local", "folder", "endpoint"]
    model: str | None
    revision: str | None
    dimension: int | None
    error: str | None


class SpaceView(Struct, frozen=True, rename="camel", kw_only=True):
    """One embedding space of a context.

    ``coverage`` is the share of the context's passages that have a vector in it, 0 to 1. ``removed`` counts
    vectors deleted since the index was built. The items of work hold up to 32 passages each.
    """

    id: int
    state: Literal["building", "active", "retired"]
    provider: str
    model: str
    revision: str
    dimension: int
    vectors: int
    coverage: float
    is_indexed: bool
    removed: int
    waiting: int
    running: int
    failed: int
    created_at: datetime
    activated_at: datetime | None


class FailureView(Struct, frozen=True, rename="camel", kw_only=True):
    """Passages of one source, by ordinal, that could not be embedded."""

    path: str
    space: int
    ordinals: list[int]
    error: str


class ContextEmbeddings(Struct, frozen=True, rename="camel", kw_only=True):
    """How a context is embedded.

    ``coverage`` is that of the active space, 0 where there is none, 1 for an empty context. ``failures``
    holds the first 100. ``notes`` are sentences for a person: what is unusual, and what to do about it.
    """

    context_id: UUID
    context: str
    passages: int
    coverage: float
    configured: ConfiguredView
    spaces: list[SpaceView]
    failures: list[FailureView]
    notes: list[str]


class EmbeddingsStatus(Struct, frozen=True, rename="camel", kw_only=True):
    """Every context, by name."""

    configured: ConfiguredView
    contexts: list[ContextEmbeddings]


class RunProgress(Struct, frozen=True, rename="camel", kw_only=True):
    """Where a run stands: vectors made of those wanted, by whichever worker, and passages that failed in this run."""

    done: int
    total: int
    failed: int


class RunReport(Struct, frozen=True, rename="camel", kw_only=True):
    """What a run did; ``coverage`` is vectors over passages of the active spaces that it looked after."""

    embedded: int
    failed: int
    coverage: float
    seconds: float
