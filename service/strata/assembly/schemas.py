"""The wire of evidence packages (snake_case). What is absent is left out, never null, unless it says so."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from strata.knowledge.graph_schemas import AssociationOut, LocatorOut

MAX_ORIGINS = 1_000
MAX_SEARCH = 200
MAX_CONTEXTS = 32
MAX_ACTIVATED = 1_000
MAX_ITEMS, MAX_BYTES = 1_000, 1_048_576
DEFAULT_ITEMS, DEFAULT_BYTES, DEFAULT_TOKENS = 40, 65_536, 4_000

Share = Annotated[float, Meta(ge=0, le=1)]
Ceiling = Annotated[int, Meta(ge=0, le=2**53)]
Epoch = Annotated[int, Meta(ge=-(2**53), le=2**53)]


class BudgetIn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Three hard ceilings; None is the default of each. Zero is legal and gives an empty package.

    ``reserve_tokens`` are kept free of the tokens, for the answer: the ceiling is what is left.
    """

    max_items: Ceiling | None = None
    max_bytes: Ceiling | None = None
    max_tokens: Ceiling | None = None
    reserve_tokens: Ceiling | None = None


class RerankIn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Asks for the configured reranker; ``model`` pins the call to that model."""

    model: str | None = None


class EvidenceRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to assemble evidence for.

    From ``contexts`` on, each field is an addition whose default leaves the package as it is without:
    ``contexts`` and ``groups`` widen the call; ``tags`` (any of them), ``since`` and ``until`` (epoch
    seconds, half open, over the date of a source) restrict the sources; ``expand`` searches once more with
    the opening of a best passage that stands out added to the question; ``anchor_floor`` makes every
    candidate of a cue from that score on an anchor, and reports them; ``object_facts`` also takes facts
    whose object is an anchor; ``share_text`` never pays a paragraph twice; ``contradictions: "partial"``
    groups only labels that take one object, and admits a group in part where it does not fit whole;
    ``numeric_conflicts`` takes texts for duplicates only where their word order agrees too, and keeps those
    that differ in a number, as a conflict; ``extracts`` puts
    the best sentences in where a paragraph does not fit; ``tokenizer`` names a model whose tokens are
    counted beside the estimate; ``revision`` tells which state of the contexts answered.
    """

    origins: str | list[str]
    labels: str | list[str] | None = None
    dice_floor: Share | None = None
    semantic_floor: Share | None = None
    resolve_limit: Ceiling | None = None
    activate_decay: float | None = None
    activate_limit: Ceiling | None = None
    text_fallback_query: str | None = None
    search_limit: Ceiling | None = None
    include_communities: bool = False
    budget: BudgetIn | None = None
    rerank: RerankIn | None = None
    contexts: list[str] | None = None
    groups: list[str] | None = None
    tags: list[str] = []
    since: Epoch | None = None
    until: Epoch | None = None
    expand: bool = False
    anchor_floor: Share | None = None
    object_facts: bool = False
    share_text: bool = False
    contradictions: Literal["atomic", "partial"] = "atomic"
    numeric_conflicts: bool = False
    extracts: bool = False
    tokenizer: str | None = None
    revision: bool = False


class LaneRankOut(Struct, frozen=True, kw_only=True):
    """The place of an item in one lane, from 1."""

    lane: str
    rank: int


class CitationRef(Struct, frozen=True, kw_only=True):
    """A paragraph of a source; ``context`` where several were asked."""

    source: str
    paragraph: int
    context: str | UnsetType = UNSET


class CorroborationOut(Struct, frozen=True, kw_only=True):
    """Every source that asserts a fact, and the paragraphs where it does."""

    sources: list[str]
    attributions: list[CitationRef]


class LaneScore(Struct, frozen=True, kw_only=True):
    """Rank and score of a passage in one lane; scores are printed as 32-bit floats."""

    rank: int
    score: float


class PassageLanesOut(Struct, frozen=True, kw_only=True):
    """The lanes that found a passage."""

    bm25: LaneScore | UnsetType = UNSET
    vector: LaneScore | UnsetType = UNSET


class PassageOut(Struct, frozen=True, kw_only=True):
    """One paragraph that the search found."""

    source: str
    paragraph: int
    score: float
    text: str
    lanes: PassageLanesOut
    context: str | UnsetType = UNSET


class CommunityMemberOut(Struct, frozen=True, kw_only=True):
    """A concept of a community."""

    name: str
    strength: float


class CommunityOut(Struct, frozen=True, kw_only=True):
    """A summary of a community that the search found, with what its manifest says."""

    community: str
    score: float
    text: str
    paragraph: int
    level: int | UnsetType = UNSET
    parent: str | UnsetType = UNSET
    concept_count: int | UnsetType = UNSET
    members: list[CommunityMemberOut] | UnsetType = UNSET
    members_truncated: bool | UnsetType = UNSET


class ExtractOut(Struct, frozen=True, kw_only=True):
    """Whole sentences of a paragraph that does not fit, by byte range within it; ``text`` of the item holds them."""

    spans: list[tuple[int, int]]
    of_bytes: int


class EvidenceItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of evidence; exactly one of association, passage and community is there.

    ``bytes`` and ``estimated_tokens`` are those of its compact JSON without these two fields.
    """

    candidate_id: str
    kind: str
    fused_rank: int
    lane_ranks: list[LaneRankOut]
    citation_refs: list[CitationRef]
    corroboration: CorroborationOut | UnsetType = UNSET
    contradicts: list[str] | UnsetType = UNSET
    conflicts_with: list[str] | UnsetType = UNSET
    context: str | UnsetType = UNSET
    extract: ExtractOut | UnsetType = UNSET
    association: AssociationOut | UnsetType = UNSET
    passage: PassageOut | UnsetType = UNSET
    community: CommunityOut | UnsetType = UNSET
    bytes: int | UnsetType = UNSET
    estimated_tokens: int | UnsetType = UNSET


class CitationOut(Struct, frozen=True, kw_only=True):
    """A paragraph, word for word; ``section`` and ``locator`` are null where there is none."""

    text: str
    source: str
    section: str | None
    locator: LocatorOut | None


class SharedCitationOut(Struct, frozen=True, kw_only=True):
    """A paragraph whose text stands in the item named: it is not paid for again."""

    text_in: str
    source: str
    section: str | None
    locator: LocatorOut | None


class CitationEntry(Struct, frozen=True, kw_only=True):
    """A citation under its key; every item that refers to it shares it."""

    source: str
    paragraph: int
    citation: CitationOut | SharedCitationOut
    context: str | UnsetType = UNSET


class LimitsOut(Struct, frozen=True, kw_only=True):
    """The ceilings that applied."""

    max_items: int
    max_bytes: int
    max_tokens: int


class CountedOut(Struct, frozen=True, kw_only=True):
    """What a real tokenizer counts for items and citations as sent."""

    model: str
    tokens: int


class BudgetOut(Struct, frozen=True, kw_only=True):
    """What the package uses of its ceilings, by the declared counter."""

    items_used: int
    bytes_used: int
    tokens_used: int
    limits: LimitsOut
    counted: CountedOut | UnsetType = UNSET


class OmittedOut(Struct, frozen=True, kw_only=True):
    """A candidate that is not in the package, and why."""

    candidate_id: str
    kind: str
    reason: str
    duplicate_of: str | UnsetType = UNSET


class LanePlanOut(Struct, frozen=True, kw_only=True):
    """Whether a lane ran, and why not; the details where ``revision`` was asked for."""

    ran: bool
    reason: str | UnsetType = UNSET
    floor: float | UnsetType = UNSET
    candidates: int | UnsetType = UNSET


class LanesOut(Struct, frozen=True, kw_only=True):
    """Every lane of an assembly."""

    resolve: LanePlanOut
    query: LanePlanOut
    activate: LanePlanOut
    passages: LanePlanOut
    communities: LanePlanOut
    citations: LanePlanOut


class SelectionOut(Struct, frozen=True, kw_only=True):
    """What the selection did."""

    dedup_dropped: int
    contradiction_groups: int
    diversity_tier_width: int


class RerankerOut(Struct, frozen=True, kw_only=True):
    """Whether a reranker is there and ran, and why not where it was asked for."""

    configured: bool
    ran: bool
    model: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class PlanOut(Struct, frozen=True, kw_only=True):
    """How the package came about."""

    lanes: LanesOut
    selection: SelectionOut
    reranker: RerankerOut


class AnchorOut(Struct, frozen=True, kw_only=True):
    """A concept that a cue resolved to; ambiguous where another one scores as well or nearly so."""

    cue: str
    name: str
    kind: str
    score: float
    ambiguous: bool
    context: str | UnsetType = UNSET


class RevisionOut(Struct, frozen=True, kw_only=True):
    """The state of a context that answered; compare for equality only."""

    context: str
    graph: int
    passages: int
    config: int


class EvidencePackage(Struct, frozen=True, kw_only=True):
    """The evidence, what it costs, what was left out and why, and how it was found."""

    items: list[EvidenceItem]
    citations: list[CitationEntry]
    budget: BudgetOut
    omitted: list[OmittedOut]
    omitted_total: int
    omitted_by_reason: dict[str, int]
    plan: PlanOut
    anchors: list[AnchorOut] | UnsetType = UNSET
    revision: list[RevisionOut] | UnsetType = UNSET
