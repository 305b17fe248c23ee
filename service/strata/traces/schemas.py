"""A recorded call as Python sees it, and ``retrieval_details`` version 1 (camelCase in the row).

No text of a passage is held here: a block carries the length and hash of its content instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

SCHEMA_VERSION = 1


class Surface(StrEnum):
    """Where a call came in."""

    REST = "REST"
    MCP = "MCP"
    CLI = "CLI"


class Status(StrEnum):
    """How a call ended. NOT_FOUND is an answer: nothing at or above the floor."""

    SUCCESS = "SUCCESS"
    NOT_FOUND = "NOT_FOUND"
    DEGRADED = "DEGRADED"
    ERROR = "ERROR"
    CANCELLED = "CANCELLED"


class ContextRevision(Struct, frozen=True, rename="camel", kw_only=True):
    """A context that was asked, at the passages revision that was read."""

    id: UUID
    revision: int


class HintLayerTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """What L0 did: hint entries that matched."""

    matched: int
    duration_ms: float


class RetrievalLayerTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """What L1 did: candidates of all its lanes together."""

    candidates: int
    duration_ms: float


class LayersTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """Both layers; None for one that was not asked."""

    l0: HintLayerTrace | None = None
    l1: RetrievalLayerTrace | None = None


class LaneTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """What one lane did. ``reason`` says why it did not run, or why it ran short."""

    ran: bool
    reason: str | None = None
    candidates: int = 0
    duration_ms: float = 0.0


class FiltersTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """The category filter; ``relaxed`` when L1 ran once more without it."""

    category: str | list[str] | None = None
    relaxed: bool = False


class PostprocessTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """Counts of the pipeline: ``raw`` candidates = kept + the sum of ``omitted_by_reason``."""

    raw: int = 0
    deduplicated: int = 0
    duplicates_dropped: int = 0
    near_duplicates_dropped: int = 0
    previews_truncated: int = 0
    omitted_by_reason: dict[str, int] = {}


class BudgetTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """What was used of which ceilings (``maxItems``, ``maxBytes``, ``maxTokens``)."""

    items_used: int
    bytes_used: int
    tokens_used: int
    limits: dict[str, int | None] = {}


class LaneRankTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """The place in one lane, from 1."""

    lane: str
    rank: int


class BlockTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """One evidence block. ``passage`` is the key of the passage (None for a hint)."""

    rank: int
    source_key: str
    source_key_basis: str
    layers: list[str]
    title: str
    breadcrumb: list[str]
    score: float
    lane_ranks: list[LaneRankTrace]
    hit_reasons: list[str]
    content_chars: int
    content_sha256: str | None
    source: str | None = None
    passage: str | None = None


class OmissionTrace(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One candidate that did not get in; fields after ``lane_ranks`` are left out when None.

    ``source`` is also left out where the source key ``path:<source>[#anchor]`` tells it.
    ``duplicate_of`` is the source key of the candidate that stands for it.
    """

    source_key: str
    reason: str
    lane_ranks: list[LaneRankTrace]
    source: str | None = None
    passage: str | None = None
    duplicate_of: str | None = None


class ShownTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """A run of text that a budgeted result shows: bytes of a revision, for which rows, or by which relation."""

    source: str
    revision: int
    start_byte: int
    end_byte: int
    sha256: str
    rows: list[int] = []
    relation: str | None = None


class ExpansionTrace(Struct, frozen=True, rename="camel", kw_only=True):
    """What a budget for the whole result was spent on.

    ``limit`` and ``used`` are tokens. ``taken`` steps fitted, ``documents`` were read, ``omitted`` parts
    left out.
    """

    limit: int
    used: int
    taken: int
    documents: int
    omitted: int
    shown: list[ShownTrace] = []


class RetrievalDetails(Struct, frozen=True, rename="camel", kw_only=True):
    """How a lookup came to its answer, version 1.

    ``omitted`` is in the order of the pipeline, capped by size; ``omitted_total`` counts all.
    ``trimmed`` names what was left out to stay under the size limit.
    """

    contexts: list[ContextRevision]
    layers: LayersTrace
    lanes: dict[str, LaneTrace]
    filters: FiltersTrace
    postprocess: PostprocessTrace
    fallback: str | None = None
    budget: BudgetTrace | None = None
    empty_reason: str | None = None
    evidence_blocks: list[BlockTrace] = []
    omitted: list[OmissionTrace] = []
    omitted_total: int = 0
    trimmed: list[str] = []
    expansion: ExpansionTrace | UnsetType = UNSET
    schema_version: int = SCHEMA_VERSION


class Invocation(Struct, frozen=True, kw_only=True):
    """One call as its surface reports it when it ends.

    ``id`` is made by the caller (a UUIDv7), so that the answer can name its row. ``context_id`` is
    the first context asked. ``arguments`` are what the caller sent, decoded. ``found`` and what
    follows are None for tools that look nothing up.
    """

    tenant_id: UUID
    id: UUID
    tool_name: str
    surface: Surface
    status: Status
    duration_ms: float
    context_id: UUID | None = None
    session_id: str | None = None
    agent_id: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    arguments: Mapping[str, Any] = {}
    found: bool | None = None
    relevance_level: str | None = None
    completeness_hint: str | None = None
    evidence_count: int = 0
    error_type: str | None = None
    error_message: str | None = None
    retrieval_details: RetrievalDetails | None = None


class InvocationSummary(Struct, frozen=True, rename="camel", kw_only=True):
    """One line of the list. ``query`` is None where the tool has none or privacy left it out."""

    id: UUID
    created_at: datetime
    tool_name: str
    surface: Surface
    status: Status
    context_id: UUID | None
    session_id: str | None
    agent_id: str | None
    request_id: str | None
    trace_id: str | None
    query: str | None
    found: bool | None
    relevance_level: str | None
    completeness_hint: str | None
    evidence_count: int
    duration_ms: float
    error_type: str | None


class InvocationPage(Struct, frozen=True, rename="camel", kw_only=True):
    """Newest first; ``next_cursor`` is None on the last page."""

    items: list[InvocationSummary]
    next_cursor: str | None


class InvocationView(Struct, frozen=True, rename="camel", kw_only=True):
    """A whole row."""

    id: UUID
    created_at: datetime
    tool_name: str
    surface: Surface
    status: Status
    context_id: UUID | None
    session_id: str | None
    agent_id: str | None
    request_id: str | None
    trace_id: str | None
    span_id: str | None
    arguments: dict[str, Any]
    found: bool | None
    relevance_level: str | None
    completeness_hint: str | None
    evidence_count: int
    duration_ms: float
    error_type: str | None
    error_message: str | None
    retrieval_details: dict[str, Any] | None


class Stage(StrEnum):
    """Where a candidate's way ended, in the order of the pipeline. CALL: the call itself ended first."""

    CALL = "CALL"
    INGEST = "INGEST"
    FILTER = "FILTER"
    LANE = "LANE"
    FUSION = "FUSION"
    DEDUPLICATION = "DEDUPLICATION"
    FLOOR = "FLOOR"
    BUDGET = "BUDGET"
    TOP_K = "TOP_K"
    CONFIRM = "CONFIRM"
    SELECTED = "SELECTED"


class CandidateFate(Struct, frozen=True, rename="camel", kw_only=True):
    """What became of one candidate that matches the target. ``rank`` is that of a selected one."""

    source_key: str
    source: str | None
    passage: str | None
    stage: Stage
    reason: str | None
    rank: int | None
    duplicate_of: str | None
    lane_ranks: list[LaneRankTrace]


class LiveSource(Struct, frozen=True, rename="camel", kw_only=True):
    """The source of the target as it is now.

    ``terms_held`` and ``terms_missing`` are words of the query, by the passage that holds most of
    them. ``lexical_rank`` is the place that passage would have now without filters, from 1, and
    ``vector_rank`` that of the source's nearest passage; None when unknown or not ranked.
    """

    context: str
    path: str
    revision: int
    ingested_at: datetime
    updated_at: datetime
    passages: int
    changed_after_call: bool
    filters_failed: list[str] = []
    terms_held: list[str] = []
    terms_missing: list[str] = []
    lexical_rank: int | None = None
    vector_rank: int | None = None


class WhyReport(Struct, frozen=True, rename="camel", kw_only=True):
    """Why the target is, or is not, in the result of one call.

    ``stage`` and ``reason`` are for machines, ``sentence`` is for a person. ``candidates`` holds
    every recorded candidate that matches, best fate first; ``live`` is filled when none does.
    """

    invocation_id: UUID
    target: str
    stage: Stage
    reason: str | None
    is_selected: bool
    rank: int | None
    sentence: str
    candidates: list[CandidateFate]
    live: LiveSource | None = None
    notes: list[str] = []


class PruneReport(Struct, frozen=True, rename="camel", kw_only=True):
    """What retention removed, or would remove when ``dry_run``."""

    older_than: datetime
    partitions_dropped: list[str]
    rows_in_partitions: int
    rows_deleted: int
    dry_run: bool
