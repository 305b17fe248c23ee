"""The bodies of the contexts API (snake_case). What is null or absent takes its default; other fields are ignored."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from strata.knowledge.graph_schemas import CrossMatchCursor, ExploreCursor, MatchCursor

Share = Annotated[float, Meta(ge=0, le=1)]
Epoch = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Names = str | list[str]


class CreateContext(Struct, frozen=True, kw_only=True):
    """A context to make."""

    name: str | None = None
    description: str = ""
    pinned: bool = False
    dice_floor: Share | None = None
    semantic_floor: Share | None = None


class PatchContext(Struct, frozen=True, kw_only=True):
    """What to change of a context; None leaves it."""

    name: str | None = None
    description: str | None = None
    pinned: bool | None = None
    dice_floor: Share | None = None
    semantic_floor: Share | None = None


class Rename(Struct, frozen=True, kw_only=True):
    """The new name."""

    to: str


class CreateGroup(Struct, frozen=True, kw_only=True):
    """A group to make, with its members; contexts by id or name."""

    description: str = ""
    contexts: list[str] = []
    context_ids: list[str] = []
    groups: list[str] = []


class PatchGroup(Struct, frozen=True, kw_only=True):
    """What to change of a group; removals come first."""

    description: str | None = None
    add_contexts: list[str] = []
    add_context_ids: list[str] = []
    remove_contexts: list[str] = []
    remove_context_ids: list[str] = []
    add_groups: list[str] = []
    remove_groups: list[str] = []


class AssertionBody(Struct, frozen=True, kw_only=True):
    """A fact to assert; ``valid_from`` and ``valid_until`` bound when it holds (half open, epoch seconds)."""

    subject: str
    label: str
    object: str
    weight: float
    source: str | None = None
    paragraph: Annotated[int, Meta(ge=0)] | None = None
    valid_from: Epoch | None = None
    valid_until: Epoch | None = None


class Triple(Struct, frozen=True, kw_only=True):
    """One association by its three names."""

    subject: str
    label: str
    object: str


class Aliases(Struct, frozen=True, kw_only=True):
    """Aliases with their canonical names."""

    concepts: dict[str, str] = {}
    labels: dict[str, str] = {}


class AliasNames(Struct, frozen=True, kw_only=True):
    """Aliases to remove."""

    concepts: list[str] = []
    labels: list[str] = []


class Cue(Struct, frozen=True, kw_only=True):
    """A cue to resolve."""

    cue: str
    dice_floor: Share | None = None
    semantic_floor: Share | None = None
    limit: int | None = None


class ExplainCue(Struct, frozen=True, kw_only=True):
    """A cue, and the name that was expected for it."""

    cue: str
    expected: str
    dice_floor: Share | None = None
    semantic_floor: Share | None = None
    limit: int | None = None


class Describe(Struct, frozen=True, kw_only=True):
    """A concept to describe."""

    concept: str


class Query(Struct, frozen=True, kw_only=True):
    """Associations by position."""

    subject: Names | None = None
    label: Names | None = None
    object: Names | None = None
    subject_types: Names | None = None
    object_types: Names | None = None
    limit: int | None = None
    after: MatchCursor | None = None
    since: Epoch | None = None
    until: Epoch | None = None


class Recall(Struct, frozen=True, kw_only=True):
    """Everything that touches one name."""

    cue: str
    limit: int | None = None
    after: MatchCursor | None = None
    since: Epoch | None = None
    until: Epoch | None = None


class QueryAcross(Struct, frozen=True, kw_only=True):
    """Associations by position, in contexts and groups of them."""

    contexts: list[str] = []
    context_ids: list[str] = []
    groups: list[str] = []
    subject: Names | None = None
    label: Names | None = None
    object: Names | None = None
    subject_types: Names | None = None
    object_types: Names | None = None
    limit: int | None = None
    after: CrossMatchCursor | None = None
    since: Epoch | None = None
    until: Epoch | None = None


class RecallAcross(Struct, frozen=True, kw_only=True):
    """Everything that touches one name, in contexts and groups of them."""

    contexts: list[str] = []
    context_ids: list[str] = []
    groups: list[str] = []
    cue: str
    limit: int | None = None
    after: CrossMatchCursor | None = None
    since: Epoch | None = None
    until: Epoch | None = None


class Activate(Struct, frozen=True, kw_only=True):
    """Where activation starts, and how it fades."""

    origins: Names
    decay: float | None = None
    limit: int | None = None
    since: Epoch | None = None
    until: Epoch | None = None


class Explore(Struct, frozen=True, kw_only=True):
    """Where a walk starts, and how far it goes."""

    origins: Names
    max_depth: int | None = None
    limit: int | None = None
    after: ExploreCursor | None = None
    since: Epoch | None = None
    until: Epoch | None = None


class Paths(Struct, frozen=True, kw_only=True):
    """The two ends of paths."""

    origins: Names
    targets: Names
    max_depth: int | None = None
    limit: int | None = None


class Unreachable(Struct, frozen=True, kw_only=True):
    """From where everything should be reachable."""

    origins: Names
    limit: int | None = None
    after: MatchCursor | None = None


class SourceNames(Struct, frozen=True, kw_only=True):
    """Sources by name."""

    sources: list[str]


class SearchPassages(Struct, frozen=True, kw_only=True):
    """A search over paragraphs."""

    query: str
    limit: int | None = None
    semantic_floor: Share | None = None
    tags: list[str] = []
    since: Epoch | None = None
    until: Epoch | None = None


class SearchAcross(SearchPassages, frozen=True, kw_only=True):
    """A search over paragraphs, in contexts and groups of them."""

    contexts: list[str] = []
    context_ids: list[str] = []
    groups: list[str] = []


class ExplainSearch(Struct, frozen=True, kw_only=True):
    """A search, and the source that was expected in it."""

    query: str
    source: str
    paragraph: Annotated[int, Meta(ge=0)] | None = None
    limit: int | None = None
    semantic_floor: Share | None = None
    tags: list[str] = []
    since: Epoch | None = None
    until: Epoch | None = None


class Cite(Struct, frozen=True, kw_only=True):
    """One paragraph of a source."""

    source: str
    paragraph: Annotated[int, Meta(ge=0)]


class Retract(Struct, frozen=True, kw_only=True):
    """A source to take back."""

    source: str


class SearchCommunities(Struct, frozen=True, kw_only=True):
    """A search over summaries of communities; ``derived`` names the context that holds them."""

    query: str
    limit: int | None = None
    semantic_floor: Share | None = None
    derived: str | None = None
    derived_id: str | None = None


class AuditVocabulary(Struct, frozen=True, kw_only=True):
    """How alike two names are that may be one."""

    dice_floor: Share | None = None
    cosine_floor: Share | None = None


class AuditDrift(Struct, frozen=True, kw_only=True):
    """What to look for beside unsourced weight."""

    unsourced_floor: float | None = None
    limit: int | None = None
    after: MatchCursor | None = None
    include_twins: bool = False
    dice_floor: Share | None = None
    cosine_floor: Share | None = None


class AuditConsolidation(Struct, frozen=True, kw_only=True):
    """Which checks to run, and how far."""

    checks: list[str]
    limit: int | None = None
    evidence_cap: int | None = None
    dice_floor: Share | None = None
    cosine_floor: Share | None = None
    floor_secs: int | None = None


class AuditSchema(Struct, frozen=True, kw_only=True):
    """A page of the audit against the installed schema."""

    limit: int | None = None
    after: MatchCursor | None = None


class ValidateSchema(Struct, frozen=True, kw_only=True):
    """A schema document to try out."""

    document: dict[str, object]
    limit: int | None = None
    after: MatchCursor | None = None


class Promote(Struct, frozen=True, kw_only=True):
    """Sources to move to another context."""

    into: str
    sources: list[str]
    audit: bool | None = None
