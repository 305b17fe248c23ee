"""What the pipeline works on: candidates before selection, evidence and omissions after it.

What a call makes by the hundred is a msgspec Struct, which is made several times as fast as a
frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from strata.text.estimate import tokens_of_quarters


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


class Locator(NamedTuple):
    """A paragraph of a source, in a context; sorted in this order of fields."""

    source: str
    paragraph: int
    context: str = ""


class Attribution(NamedTuple):
    """Who asserted a fact: a source, the paragraph where that is known, and the raw sum of the weights."""

    source: str
    paragraph: int | None
    weight: float = 1.0


class Fact(NamedTuple):
    """What an association says."""

    subject: str
    label: str
    object: str


class Excerpt(NamedTuple):
    """A span of a text, ends exclusive, in characters and in bytes of UTF-8."""

    start: int
    end: int
    start_byte: int
    end_byte: int


class Candidate(Struct, frozen=True, kw_only=True):
    """One thing that a lane nominated.

    ``(kind, key)`` identifies it within a call. ``source_key`` groups candidates that stand for
    the same piece of a document, within one ``scope`` (a context). ``text`` is what a reader gets;
    None while it is not loaded (such a candidate cannot be selected). ``relevance`` is an absolute
    signal in 0..1, such as the share of the query's idf mass that the text covers; it is comparable
    between calls. A candidate that ``is_gone`` was nominated, but has no live row behind it. One
    that ``is_protected`` is selected wherever it fits, whatever other lanes put before it.

    ``paragraph`` is set where the text is that paragraph of ``source``; ``fact``, ``attributions``
    and ``citation_refs`` (the paragraphs that can be shown) belong to an association. The pipeline
    sets ``fused_rank`` (from 1), ``contradicts`` and ``conflicts`` (ids of candidates that say
    otherwise: of one subject and label, or in numbers), and ``excerpts`` where less than the text
    is shown. ``payload`` is the caller's own.
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
    paragraph: int | None = None
    fact: Fact | None = None
    attributions: tuple[Attribution, ...] = ()
    citation_refs: tuple[Locator, ...] = ()
    fused_rank: int = 0
    contradicts: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    payload: object = None

    @property
    def identity(self) -> tuple[str, str]:
        """The total tie-break: kind, then key."""
        return (self.kind, self.key)

    @property
    def candidate_id(self) -> str:
        """The identity as one string."""
        return f"{self.kind}\0{self.key}"

    @property
    def locator(self) -> Locator | None:
        """The paragraph that the text is, None where it is none."""
        return None if self.paragraph is None else Locator(self.source, self.paragraph, self.scope)


class GroupFate(StrEnum):
    """Why a member of a contradiction group found no room: the whole group has none, or only a part has."""

    WHOLE = "WHOLE"
    PARTIAL = "PARTIAL"


@dataclass(frozen=True, slots=True)
class Omission:
    """A candidate that did not get in.

    ``duplicate_of`` is the source key that stands for it; ``group`` says how much of its contradiction
    group was too much for the budget, where it belongs to one.
    """

    candidate: Candidate
    reason: Reason
    duplicate_of: str | None = None
    group: GroupFate | None = None


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


class Cost(NamedTuple):
    """The size of a text: bytes of UTF-8, and quarters of estimated tokens."""

    bytes: int = 0
    quarters: int = 0

    @property
    def tokens(self) -> int:
        """Whole tokens, rounded up."""
        return tokens_of_quarters(self.quarters)


@dataclass(frozen=True, slots=True)
class CitationEntry:
    """A paragraph cited by what was kept.

    ``held_by`` is the id of the kept passage that shows its text, where the two share one copy.
    """

    locator: Locator
    held_by: str | None = None


@dataclass(frozen=True, slots=True)
class Package:
    """The outcome: ``kept`` in the order of admission, ``omitted`` with reasons; together all candidates.

    ``kept`` holds merged candidates; a candidate merged into another is in ``omitted`` as
    DUPLICATE_SOURCE or NEAR_DUPLICATE. ``raw`` counts what was fused, ``dedup_dropped`` the
    nominations that fusing took together. ``costs`` are those of the kept, counted under a ceiling
    only; ``citations`` are sorted, each once.
    """

    kept: tuple[Candidate, ...]
    omitted: tuple[Omission, ...]
    spend: Spend
    raw: int
    costs: tuple[Cost, ...] = ()
    citations: tuple[CitationEntry, ...] = ()
    contradiction_groups: int = 0
    dedup_dropped: int = 0
    tier_width: int = 0
