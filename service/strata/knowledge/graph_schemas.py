"""The wire of the graph (snake_case, fields in the order they are sent). Lists are never null, nulls are sent.

A field that is ``UNSET`` where there is nothing to say is left out.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class IssueOut(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a request: where, of which kind, what was expected and what stood there."""

    path: str
    kind: str
    expected: str
    actual: str


class LocatorOut(Struct, frozen=True, kw_only=True):
    """Where a paragraph stands in the original: a page, a slide, a cell."""

    kind: str
    value: str


class IntervalOut(Struct, frozen=True, kw_only=True):
    """The time for which a source asserts a fact: epoch seconds, half open, null where open."""

    valid_from: int | None
    valid_until: int | None
    weight: float
    count: int


class AttributionOut(Struct, frozen=True, kw_only=True):
    """What one source says of a fact; ``weight`` is its sum. ``intervals`` is left out where it names none."""

    source: str
    weight: float
    count: int
    paragraph: int | None
    section: str | None
    locator: LocatorOut | None
    intervals: list[IntervalOut] | UnsetType = UNSET


class AssociationOut(Struct, frozen=True, kw_only=True):
    """A fact with who asserts it; ``weight`` is the average assertion."""

    subject: str
    label: str
    object: str
    weight: float
    count: int
    attributions: list[AttributionOut]


class CrossAssociationOut(AssociationOut, frozen=True, kw_only=True):
    """A fact, and the context that it is from."""

    context: str


class MatchCursor(Struct, frozen=True, kw_only=True):
    """The last fact of a page of facts, to go on from."""

    weight: float
    subject: str
    label: str
    object: str


class CrossMatchCursor(MatchCursor, frozen=True, kw_only=True):
    """The last fact of a page over several contexts."""

    context: str


class ExploreCursor(Struct, frozen=True, kw_only=True):
    """The last fact of a page of distances."""

    distance: int
    subject: str
    label: str
    object: str


class MatchPlan(Struct, frozen=True, kw_only=True):
    """The contexts that were searched, in order."""

    contexts: list[str]


class MatchPage(Struct, frozen=True, kw_only=True):
    """Facts in rank; ``total`` counts all that fit."""

    total: int
    matches: list[AssociationOut]
    plan: MatchPlan | UnsetType = UNSET


class CrossMatchPage(Struct, frozen=True, kw_only=True):
    """Facts of several contexts in one rank."""

    total: int
    matches: list[CrossAssociationOut]
    plan: MatchPlan


class ActivationOut(Struct, frozen=True, kw_only=True):
    """A fact that activation reached: how strongly, and by which concepts."""

    strength: float
    path: list[str]
    association: AssociationOut


class ActivationPage(Struct, frozen=True, kw_only=True):
    """Facts by activation."""

    total: int
    matches: list[ActivationOut]


class RecollectionOut(Struct, frozen=True, kw_only=True):
    """A fact some hops away."""

    distance: int
    path: list[str]
    association: AssociationOut


class ExplorePage(Struct, frozen=True, kw_only=True):
    """Facts by distance."""

    total: int
    matches: list[RecollectionOut]


class TrailOut(Struct, frozen=True, kw_only=True):
    """One path: its concepts, its weakest link, its facts in the order walked."""

    distance: int
    path: list[str]
    strength: float
    associations: list[AssociationOut]


class PathsPage(Struct, frozen=True, kw_only=True):
    """Paths, the shortest first; where ``capped``, there may be more than ``total``."""

    total: int
    capped: bool
    matches: list[TrailOut]


class ResolutionOut(Struct, frozen=True, kw_only=True):
    """A name that a cue may mean. ``kind`` is left out of what was found by meaning."""

    name: str
    score: float
    tier: str
    kind: str | UnsetType = UNSET
    gloss: str | UnsetType = UNSET
    types: list[str] | UnsetType = UNSET


class NearestOut(Struct, frozen=True, kw_only=True):
    """A spelling near a cue."""

    name: str
    score: float
    kind: str


class NearestGlossOut(Struct, frozen=True, kw_only=True):
    """A name whose description is near a cue in meaning."""

    name: str
    cosine: float


class NearestSpellingsOut(Struct, frozen=True, kw_only=True):
    """What an unknown name may have been meant for."""

    lexical: list[NearestOut]
    semantic: list[NearestGlossOut]
    semantic_note: str | UnsetType = UNSET


class LexicalExplainOut(Struct, frozen=True, kw_only=True):
    """How the expected name stands by its letters."""

    score: float | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    floor: float
    confident: bool


class SemanticExplainOut(Struct, frozen=True, kw_only=True):
    """How the expected name stands by meaning."""

    entered: bool
    reason: str | UnsetType = UNSET
    floor: float | UnsetType = UNSET
    cosine: float | UnsetType = UNSET
    rank: int | UnsetType = UNSET
    cap: int | UnsetType = UNSET


class ResolveRankingOut(Struct, frozen=True, kw_only=True):
    """Where the expected name is in the list served; ``limit_to_reach`` serves it."""

    rank: int | UnsetType = UNSET
    tier: str | UnsetType = UNSET
    score: float | UnsetType = UNSET
    limit: int
    served: bool
    limit_to_reach: int | UnsetType = UNSET


class ResolveExplanationOut(Struct, frozen=True, kw_only=True):
    """Why a cue leads to a name, or does not."""

    verdict: str
    summary: str
    cue: str
    expected: str
    in_vocabulary: bool
    canonical: str | UnsetType = UNSET
    expected_kind: str | UnsetType = UNSET
    lexical: LexicalExplainOut | UnsetType = UNSET
    semantic: SemanticExplainOut | UnsetType = UNSET
    ranking: ResolveRankingOut | UnsetType = UNSET
    nearest: NearestSpellingsOut | UnsetType = UNSET


class LabelCountOut(Struct, frozen=True, kw_only=True):
    """A name and how many facts use it."""

    label: str
    count: int


class DescriptionOut(Struct, frozen=True, kw_only=True):
    """The labels of a concept in each role, the most used first."""

    concept: str
    as_subject: list[LabelCountOut]
    as_object: list[LabelCountOut]
    types: list[str] | UnsetType = UNSET


class LabelPage(Struct, frozen=True, kw_only=True):
    """Labels in code point order."""

    total: int
    labels: list[str]


class AliasPage(Struct, frozen=True, kw_only=True):
    """Aliases, those of concepts first, with the names they lead to."""

    total: int
    concepts: dict[str, str]
    labels: dict[str, str]


class ChangeOut(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event; its kind says which of the others are there."""

    seq: int
    kind: str
    count: int | None = None
    subject: str | None = None
    label: str | None = None
    object: str | None = None
    source: str | None = None
    mode: str | None = None


class ChangesPage(Struct, frozen=True, kw_only=True):
    """Events since a position; ``next`` is the one to go on from."""

    events: list[ChangeOut]
    next: str
    more: bool


class ContextStatsOut(Struct, frozen=True, kw_only=True):
    """What a context's graph holds. Nothing dead is kept, so those counts are 0."""

    associations: int
    concepts: int
    labels: int
    sources: int
    top_concepts: list[LabelCountOut]
    label_sample: list[str]
    dead_edges: int
    dead_attributions: int
    arena_slack: int
    footprint_bytes: int
    unsourced_edges: int
    unsourced_weight: float


class RetractionOut(Struct, frozen=True, kw_only=True):
    """Whether there was such a fact, and how many sources no longer assert it."""

    retracted: bool
    attributions_removed: int
