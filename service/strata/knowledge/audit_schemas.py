"""The wire of audits, communities and schema documents (snake_case). Lists are never null; ``UNSET`` is left out."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from strata.knowledge.graph_schemas import AssociationOut, IssueOut


class TwinsOut(Struct, frozen=True, kw_only=True):
    """Two names that may be one; ``a`` was stored first."""

    a: str
    b: str
    score: float


class VocabularyAuditOut(Struct, frozen=True, kw_only=True):
    """Names that may be spellings of one thing."""

    lexical_concepts: list[TwinsOut]
    lexical_labels: list[TwinsOut]
    semantic_concepts: list[TwinsOut]
    semantic_labels: list[TwinsOut]
    semantic_note: str | UnsetType = UNSET


class UnsourcedOut(Struct, frozen=True, kw_only=True):
    """A fact with weight that no source stands behind."""

    unsourced_weight: float
    unsourced_count: int
    association: AssociationOut


class DriftAuditOut(Struct, frozen=True, kw_only=True):
    """Where graph and sources have drifted apart."""

    total: int
    unsourced: list[UnsourcedOut]
    dead_concept_aliases: dict[str, str]
    dead_label_aliases: dict[str, str]
    twins: VocabularyAuditOut | UnsetType = UNSET


class NeighbourOut(Struct, frozen=True, kw_only=True):
    """One fact of a concept, seen from it."""

    direction: str
    label: str
    other: str


class MergeOut(Struct, frozen=True, kw_only=True):
    """Two concepts that may be one."""

    a: str
    b: str
    tier: str
    name_score: float
    overlap: float
    shared: list[NeighbourOut]
    shared_total: int
    only_a: list[NeighbourOut]
    only_a_total: int
    only_b: list[NeighbourOut]
    only_b_total: int
    fingerprint: str


class MergeSection(Struct, frozen=True, kw_only=True):
    """Merge candidates, the first of ``total``."""

    total: int
    candidates: list[MergeOut]
    semantic_note: str | UnsetType = UNSET


class ObjectClaimOut(Struct, frozen=True, kw_only=True):
    """One of several objects of a subject under a label."""

    object: str
    weight: float
    count: int
    sources: list[str]
    latest: int | None


class ObjectsOut(Struct, frozen=True, kw_only=True):
    """A subject with several objects; ``objects_total`` is left out where all are listed."""

    kind: str
    subject: str
    label: str
    functional_tendency: float
    objects: list[ObjectClaimOut]
    objects_total: int | UnsetType = UNSET
    fingerprint: str


class ContestedOut(Struct, frozen=True, kw_only=True):
    """A fact that some sources affirm and others deny."""

    kind: str
    subject: str
    label: str
    object: str
    weight: float
    count: int
    supporting_sources: list[str]
    disputing_sources: list[str]
    fingerprint: str


class ContradictionSection(Struct, frozen=True, kw_only=True):
    """Facts that may disagree, the first of ``total``."""

    total: int
    candidates: list[ObjectsOut | ContestedOut]


class StaleOut(Struct, frozen=True, kw_only=True):
    """A fact older than the newest about its subject, by ``gap`` seconds."""

    subject: str
    label: str
    object: str
    latest: int
    neighborhood_latest: int
    gap: int
    sources: list[str]
    fingerprint: str


class StalenessSection(Struct, frozen=True, kw_only=True):
    """Stale facts, the first of ``total``, and how many have no dated source."""

    total: int
    candidates: list[StaleOut]
    undatable: int


class ConsolidationAuditOut(Struct, frozen=True, kw_only=True):
    """The sections asked for."""

    detector: str
    merge: MergeSection | UnsetType = UNSET
    contradiction: ContradictionSection | UnsetType = UNSET
    staleness: StalenessSection | UnsetType = UNSET


class MemberOut(Struct, frozen=True, kw_only=True):
    """A concept of a community and its weight in it."""

    name: str
    strength: float


class CommunityOut(Struct, frozen=True, kw_only=True):
    """A community: a leaf has members and its heaviest facts, another has children."""

    id: str
    level: int
    parent: str | UnsetType = UNSET
    fingerprint: str
    concept_count: int
    members: list[MemberOut] | UnsetType = UNSET
    children: list[str] | UnsetType = UNSET
    top_associations: list[AssociationOut] | UnsetType = UNSET


class CommunitiesOut(Struct, frozen=True, kw_only=True):
    """The communities of a context at a revision, leaves first."""

    algorithm: str
    context: str
    graph_revision: int
    passages_revision: int
    config_revision: int
    communities: list[CommunityOut]


class AuditNamesOut(Struct, frozen=True, kw_only=True):
    """Names, the first of ``total``."""

    total: int
    names: list[str]


class AuditAliasesOut(Struct, frozen=True, kw_only=True):
    """Aliases with what they lead to, the first of ``total``."""

    total: int
    aliases: dict[str, str]


class SchemaViolationOut(Struct, frozen=True, kw_only=True):
    """A fact, and what it breaks of the schema."""

    association: AssociationOut
    issues: list[IssueOut]


class SchemaAuditOut(Struct, frozen=True, kw_only=True):
    """What of a graph a schema does not allow or cover."""

    total: int
    violations: list[SchemaViolationOut]
    untyped_concepts: AuditNamesOut
    undeclared_types: AuditNamesOut
    unknown_labels: AuditNamesOut
    reserved_alias_conflicts: AuditAliasesOut
