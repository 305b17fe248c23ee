"""What an assembly leaves in the trace: its lanes, what it kept, and what became of every other candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from strata.assembly.nominate import Nominations
from strata.evidence.model import Candidate, Package, Reason
from strata.evidence.package import omission_reason
from strata.knowledge.model import ContextRow
from strata.traces.schemas import (
    BlockTrace,
    BudgetTrace,
    ContextRevision,
    FiltersTrace,
    LaneRankTrace,
    LaneTrace,
    LayersTrace,
    OmissionTrace,
    PostprocessTrace,
    RetrievalDetails,
)


def details_of(rows: Sequence[ContextRow], found: Nominations, package: Package) -> RetrievalDetails:
    """Return ``retrieval_details`` v1 of an assembly; no text of a passage is in it."""
    reasons = Counter(item.reason.value for item in package.omitted)
    return RetrievalDetails(
        contexts=[ContextRevision(id=row.context_id, revision=row.passages_revision) for row in rows],
        layers=LayersTrace(),
        lanes={
            name: LaneTrace(ran=state.ran, reason=state.reason, candidates=state.candidates)
            for name, state in found.lanes.items()
        },
        filters=FiltersTrace(),
        postprocess=PostprocessTrace(
            raw=package.raw,
            deduplicated=package.raw,
            near_duplicates_dropped=reasons[Reason.NEAR_DUPLICATE.value],
            omitted_by_reason=dict(sorted(reasons.items())),
        ),
        budget=BudgetTrace(
            items_used=package.spend.items, bytes_used=package.spend.bytes, tokens_used=package.spend.tokens
        ),
        evidence_blocks=[_block(item, rank) for rank, item in enumerate(package.kept, 1)],
        omitted=[
            OmissionTrace(
                source_key=item.candidate.candidate_id.replace("\0", "|"),
                reason=omission_reason(item).upper(),
                lane_ranks=_ranks(item.candidate),
                source=item.candidate.source or None,
                duplicate_of=item.duplicate_of.replace("\0", "|") if item.duplicate_of else None,
            )
            for item in package.omitted
        ],
        omitted_total=len(package.omitted),
    )


def _block(candidate: Candidate, rank: int) -> BlockTrace:
    text = candidate.text or ""
    return BlockTrace(
        rank=rank,
        # Postgres takes no NUL in text.
        source_key=candidate.candidate_id.replace("\0", "|"),
        source_key_basis=candidate.source_key_basis.value,
        layers=[layer.value for layer in candidate.layers],
        title=candidate.title,
        breadcrumb=list(candidate.breadcrumb),
        score=candidate.fused_score,
        lane_ranks=_ranks(candidate),
        hit_reasons=list(candidate.hit_reasons),
        content_chars=len(text),
        content_sha256=sha256(text.encode()).hexdigest(),
        source=candidate.source or None,
    )


def _ranks(candidate: Candidate) -> list[LaneRankTrace]:
    return [LaneRankTrace(lane=item.lane, rank=item.rank) for item in candidate.lane_ranks]
