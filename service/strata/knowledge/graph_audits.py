"""Audits: names to merge, facts that disagree or grew old, drift, communities."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from strata.errors import INVALID_REQUEST, StrataError
from strata.graph import audit, communities
from strata.graph.model import Graph
from strata.graph.twins import TWIN_CAP, TWIN_FLOOR, Twins, lexical_twins, semantic_twins
from strata.graph.vocabulary import Namespace
from strata.knowledge import graph_repository as repository
from strata.knowledge.audit_schemas import (
    CommunitiesOut,
    CommunityOut,
    ConsolidationAuditOut,
    ContestedOut,
    ContradictionSection,
    DriftAuditOut,
    MemberOut,
    MergeOut,
    MergeSection,
    ObjectsOut,
    StalenessSection,
    StaleOut,
    TwinsOut,
    UnsourcedOut,
    VocabularyAuditOut,
)
from strata.knowledge.graph_base import Reading, away, limited
from strata.knowledge.graph_matching import DEFAULT_MATCHES
from strata.knowledge.graph_meanings import GraphMeanings
from strata.knowledge.graph_schemas import AssociationOut, MatchCursor

CHECKS = ("merge", "contradiction", "staleness")
NOT_COMPARED = "meanings are not compared here"
_MANY = 10**9


class GraphAudits(GraphMeanings):
    """Candidates for a curator, never verdicts."""

    async def vocabulary_audit(
        self, tenant: UUID, ref: str, *, dice_floor: float | None = None, cosine_floor: float | None = None
    ) -> VocabularyAuditOut:
        """Return pairs of names that may be spellings of one thing, the likest first, at most 100 of each kind."""
        floor = _floor(dice_floor, "/dice_floor")
        _floor(cosine_floor, "/cosine_floor")
        async with self._read(tenant, ref) as reading:
            return await self._twins(reading, floor, cosine_floor)

    async def _twins(self, reading: Reading, floor: float, cosine_floor: float | None) -> VocabularyAuditOut:
        """Return names that are alike in their letters, and in meaning where their vectors are there."""
        graph = reading.graph
        pairs: dict[Namespace, list[TwinsOut]] = {}
        note: str | UnsetType = UNSET
        for space in Namespace:
            found = await self._vectors_of(reading, space)
            if isinstance(found, str):
                pairs[space], note = [], found
                continue
            names, vectors, usual = found
            least = usual if cosine_floor is None else cosine_floor
            twins = await away(_MANY, lambda: semantic_twins(graph, space, names, vectors, floor=least))  # noqa: B023
            pairs[space] = _pairs(twins)
        lexical = [
            await away(graph.edge_count, lambda: lexical_twins(graph, space, floor=floor, cap=TWIN_CAP))  # noqa: B023
            for space in Namespace
        ]
        return VocabularyAuditOut(
            lexical_concepts=_pairs(lexical[0]),
            lexical_labels=_pairs(lexical[1]),
            semantic_concepts=pairs[Namespace.CONCEPT],
            semantic_labels=pairs[Namespace.LABEL],
            semantic_note=note,
        )

    async def drift_audit(
        self,
        tenant: UUID,
        ref: str,
        *,
        unsourced_floor: float | None = None,
        limit: int | None = None,
        after: MatchCursor | None = None,
        include_twins: bool = False,
        dice_floor: float | None = None,
        cosine_floor: float | None = None,
    ) -> DriftAuditOut:
        """Return facts with weight that no source stands behind, the heaviest first, and aliases that lead to no fact.

        ``after`` is the last association of the page before.
        """
        most = limited(limit, DEFAULT_MATCHES)
        floor = _floor(dice_floor, "/dice_floor")
        _floor(cosine_floor, "/cosine_floor")
        async with self._read(tenant, ref) as reading:
            graph = reading.graph
            rows = await repository.unsourced(reading.connection, tenant, reading.row.context_id)
            found = await away(graph.edge_count, _unsourced, graph, rows, unsourced_floor or 0.0)
            page = found[_past(graph, found, after) :][:most]
            facts = await reading.shown([item.position for item in page])
            twins = await self._twins(reading, floor, cosine_floor) if include_twins else UNSET
        return DriftAuditOut(
            total=len(found),
            unsourced=[
                UnsourcedOut(unsourced_weight=item.weight, unsourced_count=item.count, association=fact)
                for item, fact in zip(page, facts, strict=True)
            ],
            dead_concept_aliases=audit.dead_aliases(graph, Namespace.CONCEPT),
            dead_label_aliases=audit.dead_aliases(graph, Namespace.LABEL),
            twins=twins,
        )

    async def consolidation_audit(
        self,
        tenant: UUID,
        ref: str,
        checks: Sequence[str],
        *,
        limit: int | None = None,
        evidence_cap: int | None = None,
        dice_floor: float | None = None,
        cosine_floor: float | None = None,
        floor_secs: int | None = None,
    ) -> ConsolidationAuditOut:
        """Return candidates of the checks asked for: ``merge``, ``contradiction``, ``staleness``."""
        unknown = [check for check in checks if check not in CHECKS]
        if unknown or not checks:
            raise StrataError(INVALID_REQUEST, f"checks names some of {', '.join(CHECKS)}.", pointer="/checks")
        most = limited(limit, audit.CANDIDATES)
        cap = limited(evidence_cap, audit.EVIDENCE_CAP, pointer="/evidence_cap")
        floor = _floor(dice_floor, "/dice_floor")
        _floor(cosine_floor, "/cosine_floor")
        async with self._read(tenant, ref) as reading:
            return await self._consolidation(
                reading, checks, limit=most, cap=cap, floor=floor, floor_seconds=floor_secs or 0
            )

    async def _consolidation(
        self, reading: Reading, checks: Sequence[str], *, limit: int, cap: int, floor: float, floor_seconds: int
    ) -> ConsolidationAuditOut:
        graph, size = reading.graph, reading.graph.edge_count
        rows = await repository.every_attribution(reading.connection, reading.tenant, reading.row.context_id)
        stated = audit.Attributions(graph, await away(size, rows.rows))
        merge: MergeSection | UnsetType = UNSET
        contradiction: ContradictionSection | UnsetType = UNSET
        stale: StalenessSection | UnsetType = UNSET
        if "merge" in checks:
            merge = await away(size, _merge_section, graph, floor, limit, cap)
        if "contradiction" in checks:
            contradiction = await away(size, _contradiction_section, graph, stated, limit, cap)
        if "staleness" in checks:
            stale = await away(size, _staleness_section, graph, stated, floor_seconds, limit)
        return ConsolidationAuditOut(detector=audit.DETECTOR, merge=merge, contradiction=contradiction, staleness=stale)

    async def communities(self, tenant: UUID, ref: str) -> CommunitiesOut:
        """Detect the communities of a context's concepts, leaves first. Work that grows with the graph."""
        async with self._read(tenant, ref) as reading:
            found = await away(reading.graph.edge_count, communities.detect, reading.graph)
            positions = list(dict.fromkeys(place for item in found for place in item.top_associations))
            facts = dict(zip(positions, await reading.shown(positions), strict=True))
        row = reading.row
        return CommunitiesOut(
            algorithm=communities.ALGORITHM,
            context=row.name,
            graph_revision=row.graph_revision,
            passages_revision=row.passages_revision,
            config_revision=row.config_revision,
            communities=[_community(item, facts) for item in found],
        )


def _community(item: communities.Community, facts: dict[int, AssociationOut]) -> CommunityOut:
    is_leaf = item.level == 0
    return CommunityOut(
        id=item.id,
        level=item.level,
        parent=UNSET if item.parent is None else item.parent,
        fingerprint=item.fingerprint,
        concept_count=item.concept_count,
        members=[MemberOut(name=one.name, strength=one.strength) for one in item.members] if is_leaf else UNSET,
        children=UNSET if is_leaf else list(item.children),
        top_associations=[facts[place] for place in item.top_associations] if is_leaf else UNSET,
    )


def _floor(value: float | None, pointer: str) -> float:
    if value is not None and not 0 <= value <= 1:
        raise StrataError(INVALID_REQUEST, "A floor is a number from 0 to 1.", pointer=pointer)
    return TWIN_FLOOR if value is None else value


def _pairs(found: Sequence[Twins]) -> list[TwinsOut]:
    return [TwinsOut(a=pair.a, b=pair.b, score=pair.score) for pair in found]


def _unsourced(graph: Graph, rows: repository.Columns, floor: float) -> list[audit.Unsourced]:
    ids, weights, counts = rows
    stated = [
        audit.Sourced(edge, "", weight, count, None)
        for edge, weight, count in zip(ids.tolist(), weights.tolist(), counts.tolist(), strict=True)
    ]
    return audit.unsourced(graph, audit.Attributions(graph, stated), floor=floor)


def _past(graph: Graph, found: Sequence[audit.Unsourced], after: MatchCursor | None) -> int:
    """Return the place after a cursor; where its association is gone, its weight (the unsourced one) says where."""
    if after is None:
        return 0
    triple = (after.subject, after.label, after.object)
    triples = [(edge.subject, edge.label, edge.object) for edge in graph.edges([item.position for item in found])]
    if triple in triples:
        return triples.index(triple) + 1
    passed = (-abs(after.weight), triple)
    return sum((-abs(item.weight), own) <= passed for item, own in zip(found, triples, strict=True))


def _merge_section(graph: Graph, floor: float, limit: int, cap: int) -> MergeSection:
    found = audit.merge_candidates(graph, dice_floor=floor, limit=limit, evidence_cap=cap)
    candidates = [msgspec.convert(item, MergeOut, from_attributes=True) for item in found.candidates]
    return MergeSection(total=found.total, candidates=candidates, semantic_note=NOT_COMPARED)


def _contradiction_section(graph: Graph, stated: audit.Attributions, limit: int, cap: int) -> ContradictionSection:
    found = audit.contradictions(graph, stated, limit=limit, evidence_cap=cap)
    candidates = [
        _objects(item)
        if isinstance(item, audit.ObjectsCandidate)
        else msgspec.convert(item, ContestedOut, from_attributes=True)
        for item in found.candidates
    ]
    return ContradictionSection(total=found.total, candidates=candidates)


def _objects(item: audit.ObjectsCandidate) -> ObjectsOut:
    shown = msgspec.convert(item, ObjectsOut, from_attributes=True)
    is_whole = item.objects_total == len(item.objects)
    return msgspec.structs.replace(shown, objects_total=UNSET) if is_whole else shown


def _staleness_section(graph: Graph, stated: audit.Attributions, floor_seconds: int, limit: int) -> StalenessSection:
    found = audit.staleness(graph, stated, floor_seconds=floor_seconds, limit=limit)
    return StalenessSection(
        total=found.total,
        candidates=[msgspec.convert(item, StaleOut, from_attributes=True) for item in found.candidates],
        undatable=found.undatable,
    )
