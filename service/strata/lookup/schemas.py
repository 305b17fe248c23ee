"""The wire of the lookup (camelCase). Lists are never null, nulls are sent, enums are upper case."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, field

from strata.evidence.model import KeyBasis, Layer, Reason

MAX_QUERY_CHARS = 4096
MAX_TOP_K = 200
DEFAULT_TOP_K = 5
DEFAULT_ROWS = 30
"""Results of a lookup whose whole result has a budget: those that do not fit cost a line at most."""

MIN_RESULT_TOKENS = 200
"""The least budget of a whole result: enough to say that nothing fits, and what would."""

MAX_RESULT_TOKENS = 100_000
DEFAULT_CONTEXT = "default"

Identifier = Annotated[str, Meta(max_length=128)]
Ceiling = Annotated[int, Meta(ge=0, le=2**53)]
ResultTokens = Annotated[int, Meta(ge=MIN_RESULT_TOKENS, le=MAX_RESULT_TOKENS)]


class RelevanceLevel(StrEnum):
    """How well the best evidence covers the question, by absolute signals (docs/lookup.md)."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"
    NONE = "NONE"


class Completeness(StrEnum):
    """What the result is worth as a whole."""

    COMPLETE = "COMPLETE"
    PARTIAL = "PARTIAL"
    HINT_ONLY = "HINT_ONLY"
    FALLBACK = "FALLBACK"
    DEGRADED = "DEGRADED"
    EMPTY = "EMPTY"


class EmptyReason(StrEnum):
    """Why nothing was found. None of them is a statement about the world."""

    NO_SEARCHABLE_TERMS = "NO_SEARCHABLE_TERMS"
    UNKNOWN_TERMS = "UNKNOWN_TERMS"
    FILTERED_OUT = "FILTERED_OUT"
    BELOW_FLOOR = "BELOW_FLOOR"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    EMPTY_CONTEXT = "EMPTY_CONTEXT"
    LAYER_UNAVAILABLE = "LAYER_UNAVAILABLE"


class Lane(StrEnum):
    """A lane that a request can ask for: hint entries, passages by words, by meaning, and by a second hop, facts.

    The second hop searches once more by meaning, with the opening of the best passage added to the question.
    """

    HINTS = "hints"
    LEXICAL = "lexical"
    VECTOR = "vector"
    HOP = "hop"
    GRAPH = "graph"


class BudgetRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """Hard ceilings for the evidence blocks together.

    ``reserve_tokens`` are kept free of ``max_tokens``, for the answer: the ceiling is what is left.
    """

    max_items: Ceiling | None = None
    max_bytes: Ceiling | None = None
    max_tokens: Ceiling | None = None
    reserve_tokens: Ceiling | None = None


class Filters(Struct, frozen=True, rename="camel", kw_only=True):
    """Hard filters on sources. ``sources`` are globs over paths; ``since`` and ``until`` are ISO dates or times."""

    sources: list[str] | None = None
    tags: list[str] | None = None
    since: str | None = None
    until: str | None = None
    language: str | None = None


class LookupRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """A question with its limits; unknown fields are ignored, and null is the default.

    A ``budget`` that is a number is the tokens of the whole result (docs/budgeted-lookup.md); one that is an
    object bounds the evidence blocks.
    """

    query: str
    context: str | list[str] | None = None
    category: str | list[str] | None = None
    filters: Filters | None = None
    top_k: Annotated[int, Meta(ge=1, le=MAX_TOP_K)] | None = None
    budget: BudgetRequest | ResultTokens | None = None
    expand: bool | None = None
    layers: list[Layer] | None = None
    lanes: list[Lane] | None = None
    content: bool | None = None
    session_id: Identifier | None = None
    agent_id: Identifier | None = None
    format: Literal["json", "markdown"] | None = None


class LookupQuery(Struct, frozen=True, rename="camel", kw_only=True):
    """The same request as query parameters; a list repeats its parameter."""

    q: str
    context: list[str] = field(default_factory=lambda: [DEFAULT_CONTEXT])
    category: list[str] = []
    sources: list[str] = []
    tags: list[str] = []
    since: str | None = None
    until: str | None = None
    language: str | None = None
    top_k: Annotated[int, Meta(ge=1, le=MAX_TOP_K)] | None = None
    budget: ResultTokens | None = None
    max_items: Ceiling | None = None
    max_bytes: Ceiling | None = None
    max_tokens: Ceiling | None = None
    reserve_tokens: Ceiling | None = None
    expand: bool | None = None
    layers: list[Layer] = []
    lanes: list[Lane] = []
    content: bool | None = None
    session_id: Identifier | None = None
    agent_id: Identifier | None = None
    format: Literal["json", "markdown"] = "json"


class LaneRankView(Struct, frozen=True, rename="camel", kw_only=True):
    """The place of a block in one lane, from 1."""

    lane: str
    rank: int


class CitationView(Struct, frozen=True, rename="camel", kw_only=True):
    """A byte range of the stored source text; ``sha256`` is of exactly those bytes."""

    source: str
    source_version: int
    anchor: str | None
    start_byte: int
    end_byte: int
    sha256: str
    page: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    speaker: str | None = None


class FactView(Struct, frozen=True, rename="camel", kw_only=True):
    """A fact of the knowledge graph. ``weight`` is the average assertion, negative where the sources deny it.

    ``sources`` are all that assert it, ``citations`` the passages where they do, ``contradicts`` the source
    keys of the blocks and omissions that name another object.
    """

    subject: str
    label: str
    object: str
    weight: float
    count: int
    sources: list[str]
    citations: list[CitationView]
    contradicts: list[str]


class EvidenceBlock(Struct, frozen=True, rename="camel", kw_only=True):
    """One piece of evidence. ``score`` is comparable within one result only; ``fact`` is left out of passages."""

    rank: int
    source_key: str
    source_key_basis: KeyBasis
    source: str
    title: str
    breadcrumb: list[str]
    anchor: str | None
    category: str | None
    layer: Layer
    layers: list[Layer]
    score: float
    lane_ranks: list[LaneRankView]
    hit_reasons: list[str]
    content_preview: str
    content: str | None
    citation: CitationView | None
    merged_count: int
    metadata: dict[str, Any]
    fact: FactView | UnsetType = UNSET


class OmittedItem(Struct, frozen=True, rename="camel", kw_only=True):
    """A candidate that did not get in."""

    source_key: str
    reason: Reason
    duplicate_of: str | None
    lane_ranks: list[LaneRankView]


class Omitted(Struct, frozen=True, rename="camel", kw_only=True):
    """What did not get in, and why; ``items`` holds the first 20 in rank order."""

    total: int
    by_reason: dict[str, int]
    items: list[OmittedItem]


class BudgetLimits(Struct, frozen=True, rename="camel", kw_only=True):
    """The ceilings that applied, less what was reserved; null where there was none."""

    max_items: int | None
    max_bytes: int | None
    max_tokens: int | None


class BudgetUsed(Struct, frozen=True, rename="camel", kw_only=True):
    """What the evidence blocks use of their ceilings."""

    items_used: int
    bytes_used: int
    tokens_used: int
    limits: BudgetLimits


class LookupResult(Struct, frozen=True, rename="camel", kw_only=True):
    """The answer: evidence blocks in rank order, and what they are worth."""

    lookup_id: UUID
    found: bool
    primary: str | None
    supplement: str | None
    relevance_level: RelevanceLevel
    completeness_hint: Completeness
    completeness_message: str | None
    empty_reason: EmptyReason | None
    vector_coverage: float | None
    evidence_blocks: list[EvidenceBlock]
    omitted: Omitted
    budget: BudgetUsed | None
    markdown: str | None
    trace_id: str
    took_ms: float
