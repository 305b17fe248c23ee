"""What the pipeline works on: candidates before selection, evidence and omissions after it.

What a call makes by the hundred is a msgspec Struct, which is made several times as fast as a
frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct, field


class Layer(StrEnum):
    """L0: hint entries. L1: retrieval over passages."""

    L0 = "L0"
    L1 = "L1"


class KeyBasis(StrEnum):
    """How good a source key is, best first."""

    EXPLICIT = "EXPLICIT"
    PATH = "PATH"
    METADATA = "METADATA"
    TITLE = "TITLE"
    RANK = "RANK"


class Reason(StrEnum):
    """Why a candidate is not in the package. Every candidate that was not kept has exactly one."""

    DUPLICATE_SOURCE = "DUPLICATE_SOURCE"
    NEAR_DUPLICATE = "NEAR_DUPLICATE"
    BELOW_FLOOR = "BELOW_FLOOR"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    BELOW_TOP_K = "BELOW_TOP_K"
    GONE = "GONE"


class Citation(Struct, frozen=True):
    """Where evidence stands: a byte range of the stored text of one source revision.

    ``sha256`` (hex) is of exactly those bytes. ``page`` counts from 1; ``start_ms`` and ``end_ms``
    give the interval of a recording.
    """

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


class LaneRank(Struct, frozen=True):
    """The place of a candidate in one lane, counted from 1, with the lane's own score."""

    lane: str
    rank: int
    score: float = 0.0


class Candidate(Struct, frozen=True, kw_only=True):
    """One thing that a lane nominated.

    ``(kind, key)`` identifies it within a call. ``source_key`` groups candidates that stand for
    the same piece of a document, within one ``scope`` (a context). ``text`` is what a reader gets;
    None while it is not loaded (such a candidate cannot be selected). ``relevance`` is an absolute
    signal in 0..1, such as the share of the query's idf mass that the text covers; it is comparable
    between calls. A candidate that ``is_gone`` was nominated, but has no live row behind it. One
    that ``is_protected`` is selected wherever it fits, whatever other lanes put before it.
    """

    kind: str
    key: str
    layer: Layer
    source_key: str
    source_key_basis: KeyBasis
    source: str
    title: str
    breadcrumb: tuple[str, ...] = ()
    anchor: str | None = None
    category: str | None = None
    lane_ranks: tuple[LaneRank, ...] = ()
    layers: tuple[Layer, ...] = ()
    hit_reasons: tuple[str, ...] = ()
    fused_score: float = 0.0
    relevance: float = 0.0
    text: str | None = None
    citation: Citation | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    scope: str = ""
    merged_count: int = 1
    is_protected: bool = False
    is_gone: bool = False

    @property
    def identity(self) -> tuple[str, str]:
        """The total tie-break: kind, then key."""
        return (self.kind, self.key)


@dataclass(frozen=True, slots=True)
class Omission:
    """A candidate that did not get in. ``duplicate_of`` is the source key that stands for it."""

    candidate: Candidate
    reason: Reason
    duplicate_of: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard ceilings of a package; None means no ceiling. Zero is legal and gives an empty package."""

    max_items: int | None = None
    max_bytes: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Spend:
    """What a package uses, by the declared counters; bytes and tokens are counted under a ceiling only."""

    items: int = 0
    bytes: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Package:
    """The outcome: ``kept`` in rank order, ``omitted`` with reasons; together all candidates.

    ``kept`` holds merged candidates; a candidate merged into another is in ``omitted`` as
    DUPLICATE_SOURCE or NEAR_DUPLICATE.
    """

    kept: tuple[Candidate, ...]
    omitted: tuple[Omission, ...]
    spend: Spend
    raw: int
