"""What lanes nominate, as candidates of the evidence pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from strata.evidence.fusion import reciprocal_rank_fusion
from strata.evidence.model import Candidate, Citation, KeyBasis, LaneRank, Layer
from strata.hints.matching import HintMatch
from strata.hints.names import normalise_name
from strata.hints.schemas import HintOrigin
from strata.lookup.repository import PassageRow

HINTS = "hints"
DERIVED_HINTS = "hints_derived"
WEAK_HINTS = "hints_weak"
LEXICAL = "lexical"
VECTOR = "vector"
HOP = "hop"
HYBRID = "hybrid"
EXPANDED = "lexical_expanded"
CATEGORY = "hint_category"
GRAPH = "graph"
GRAPH_NEAR = "graph_near"

_REASONS = {LEXICAL: "L1_LEXICAL:", VECTOR: "L1_VECTOR:", HOP: "L1_HOP:"}

LANE_WEIGHTS = {
    HINTS: 1.0,
    DERIVED_HINTS: 0.15,
    WEAK_HINTS: 0.02,
    EXPANDED: 0.5,
    CATEGORY: 0.1,
    GRAPH: 0.985,
    GRAPH_NEAR: 0.5,
}
"""Weights in the fusion; a lane not named weighs 1. Those of derived and weak hints are measured on
judged sets (docs/benchmarks.md); what a person wrote, or a question that is a name, counts in full. The
first fact that a question names comes right after the best passage; what is only near it after all passages
of a usual answer."""

HYBRID_WEIGHTS = {
    **LANE_WEIGHTS,
    LEXICAL: 0.0,
    VECTOR: 0.0,
    HOP: 0.0,
    EXPANDED: 0.015,
    DERIVED_HINTS: 0.015,
    WEAK_HINTS: 0.005,
}
"""Weights where words and meaning were fused already: that one order of passages counts, not its parts, and
names that are no more than alike have little to add to it."""

WHOLE_NAME = 0.95
"""Strength from which a hint's name is the whole question."""

Granularity = Literal["section", "source", "passage"]


Rows = Mapping[tuple[UUID, int], PassageRow]
"""Live passages by context and passage id."""


class Hit(Struct, frozen=True):
    """One passage that lanes found, over all contexts, with its places in them."""

    context: UUID
    passage: int
    places: tuple[LaneRank, ...]
    relevance: float
    reasons: tuple[str, ...]


class StatedFact(Struct, frozen=True):
    """A fact with the passages that state it: the payload of its candidate."""

    weight: float
    count: int
    citations: tuple[Citation, ...]


class Candidates:
    """Makes the candidates of one lookup.

    ``floor`` is the least relevance of evidence; ``is_l1_out`` and ``is_l0_out`` name a layer that failed.
    """

    def __init__(
        self,
        granularity: Granularity,
        weights: Mapping[str, float],
        *,
        floor: float,
        is_l1_out: bool = False,
        is_l0_out: bool = False,
    ) -> None:
        self._granularity: Granularity = granularity
        self._weights = weights
        self._floor = floor
        self._l1_reasons = ("FALLBACK_L1_ONLY",) if is_l0_out else ()
        self._l0_reasons = ("FALLBACK_L0_ONLY",) if is_l1_out else ()

    def found(self, hits: Sequence[Hit], rows: Rows, suggested: frozenset[str]) -> list[Candidate]:
        """Return the candidates of the lanes over passages, in their order; the first is protected.

        What stands in a category of ``suggested`` is raised; a hit without a live row is gone.
        """
        in_category = 0
        candidates = []
        for rank, hit in enumerate(hits, 1):
            row = rows.get((hit.context, hit.passage))
            if row is None:
                candidates.append(_gone(hit, rank))
                continue
            reasons = [
                f"L1_RANK:{rank}",
                *(_REASONS[place.lane] + str(place.rank) for place in hit.places if place.lane in _REASONS),
                *hit.reasons,
            ]
            places = hit.places
            if row.category in suggested:
                in_category += 1
                places = (*places, LaneRank(CATEGORY, in_category, hit.places[0].score))
                reasons.append("L0_HINT_BOOST")
            reasons += self._l1_reasons
            candidates.append(
                self._passage(row, Layer.L1, places, tuple(reasons), relevance=hit.relevance, is_protected=rank == 1)
            )
        return candidates

    def expanded(self, hits: Sequence[Hit], rows: Rows) -> list[Candidate]:
        """Return the candidates of the search with the names that hints added."""
        return [
            self._passage(
                row,
                Layer.L1,
                hit.places,
                ("L0_HINT_BOOST",),
                relevance=hit.relevance,
            )
            for hit in hits
            if (row := rows.get((hit.context, hit.passage))) is not None
        ]

    def hinted(self, row: PassageRow, match: HintMatch, place: LaneRank) -> Candidate:
        """Return the passage that a hint points to; what a person wrote of it names it."""
        candidate = self._passage(
            row,
            Layer.L0,
            (place,),
            (*match.reasons, "L0_HINT_BOOST", *self._l0_reasons),
            relevance=self._hint_relevance(match),
        )
        if match.entry.origin is not HintOrigin.CURATED:
            return candidate
        breadcrumb = tuple(match.entry.breadcrumb) or candidate.breadcrumb
        return replace(candidate, title=match.entry.title, breadcrumb=breadcrumb)

    def summary(self, match: HintMatch, place: LaneRank) -> Candidate:
        """Return the hint itself as evidence: its summary is the text, and it cites nothing."""
        entry = match.entry
        return Candidate(
            kind="hint",
            key=str(entry.hint_id),
            layer=Layer.L0,
            source_key=f"title:{normalise_name(entry.title)}",
            source_key_basis=KeyBasis.TITLE,
            source=f"hint:{entry.hint_id}",
            title=entry.title,
            breadcrumb=tuple(entry.breadcrumb),
            category=entry.category,
            lane_ranks=(place,),
            layers=(Layer.L0,),
            hit_reasons=(*match.reasons, *self._l0_reasons),
            relevance=self._hint_relevance(match),
            text=entry.summary,
            metadata=entry.metadata,
            scope=entry.context_id.hex,
        )

    def _hint_relevance(self, match: HintMatch) -> float:
        """Return the strength of what a person wrote, or of a name that is the question; else evidence, no more.

        That a question names a document or a section says where to look, not that the answer stands there.
        """
        return match.strength if hint_lane(match) == HINTS else self._floor

    def _passage(
        self,
        row: PassageRow,
        layer: Layer,
        places: tuple[LaneRank, ...],
        reasons: tuple[str, ...],
        *,
        relevance: float,
        is_protected: bool = False,
    ) -> Candidate:
        key, basis = source_key(row, self._granularity)
        return Candidate(
            kind="passage",
            key=_key(row.context_id, row.passage_id),
            layer=layer,
            source_key=key,
            source_key_basis=basis,
            source=row.path,
            title=row.title,
            breadcrumb=tuple(row.breadcrumb),
            anchor=row.anchor,
            category=row.category,
            lane_ranks=places,
            layers=(layer,),
            hit_reasons=reasons,
            fused_score=reciprocal_rank_fusion(places, self._weights),
            text=row.text,
            citation=citation_of(row) if row.text is not None else None,
            relevance=relevance,
            metadata=row.metadata or {},
            scope=row.context_id.hex,
            is_protected=is_protected,
        )


def source_key(row: PassageRow, granularity: Granularity) -> tuple[str, KeyBasis]:
    """Return the stable identity of what a passage is a piece of, and how good it is."""
    if row.source_key is not None:
        return row.source_key, KeyBasis(row.source_key_basis or KeyBasis.EXPLICIT)
    key = f"path:{row.path}"
    if granularity == "source":
        return key, KeyBasis.PATH
    if row.anchor is not None:
        key += f"#{row.anchor}"
    is_whole = granularity == "section" and not row.is_by_paragraph
    return (key if is_whole else f"{key}@{row.start_byte}"), KeyBasis.PATH


def loaded(candidate: Candidate, row: PassageRow | None) -> Candidate:
    """Return the candidate with its text; without a row it is gone."""
    if row is None:
        return replace(candidate, is_gone=True)
    return replace(candidate, text=row.text, citation=citation_of(row), metadata=row.metadata or {})


def _gone(hit: Hit, rank: int) -> Candidate:
    """Return what is left to say of a passage that the index has and the tables have not."""
    return Candidate(
        kind="passage",
        key=_key(hit.context, hit.passage),
        layer=Layer.L1,
        source_key=f"rank:{Layer.L1}:{rank}",
        source_key_basis=KeyBasis.RANK,
        source="",
        title="",
        lane_ranks=hit.places,
        layers=(Layer.L1,),
        relevance=hit.relevance,
        scope=hit.context.hex,
        is_gone=True,
    )


def _key(context: UUID, passage: int) -> str:
    return f"{context.hex}:{passage:020}"


def hint_lane(match: HintMatch) -> str:
    """Return the lane that a hint nominates in: by what it was made from, and how surely it is meant."""
    if not match.is_confident:
        return WEAK_HINTS
    is_meant = match.entry.origin is HintOrigin.CURATED or match.strength >= WHOLE_NAME
    return HINTS if is_meant else DERIVED_HINTS


def citation_of(row: PassageRow) -> Citation:
    """Return where a passage stands."""
    return Citation(
        source=row.path,
        source_version=row.revision,
        anchor=row.anchor,
        start_byte=row.start_byte,
        end_byte=row.end_byte,
        sha256=row.sha256.hex(),
        page=row.page,
        start_ms=row.start_ms,
        end_ms=row.end_ms,
        speaker=row.speaker,
    )


def passage_of(candidate: Candidate) -> tuple[UUID, int]:
    """Return the context and id of a passage candidate."""
    context, _, passage = candidate.key.partition(":")
    return UUID(context), int(passage)
