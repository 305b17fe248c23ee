"""What a lookup leaves in the trace: the call, and how its answer came about."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from strata.evidence.model import Candidate, Limits, Package, Reason
from strata.lookup.candidates import EXPANDED, GRAPH, HINTS, HOP, LEXICAL, VECTOR
from strata.lookup.gather import Gathered
from strata.lookup.request import Plan
from strata.lookup.view import BlockRenderer, in_rank_order
from strata.traces.schemas import (
    BlockTrace,
    BudgetTrace,
    ContextRevision,
    FiltersTrace,
    HintLayerTrace,
    LaneRankTrace,
    LayersTrace,
    OmissionTrace,
    PostprocessTrace,
    RetrievalDetails,
    RetrievalLayerTrace,
)


def retrieval_details(
    plan: Plan,
    gathered: Gathered,
    package: Package,
    renderer: BlockRenderer,
    *,
    empty_reason: str | None,
) -> RetrievalDetails:
    """Return ``retrieval_details`` v1; it holds no passage text."""
    l0 = gathered.lanes[HINTS]
    l1 = [lane for name in (LEXICAL, VECTOR, HOP, EXPANDED, GRAPH) if (lane := gathered.lanes.get(name)) and lane.ran]
    return RetrievalDetails(
        contexts=[ContextRevision(id=row.context_id, revision=row.passages_revision) for row in gathered.contexts],
        layers=LayersTrace(
            l0=HintLayerTrace(matched=len(gathered.hints), duration_ms=l0.duration_ms) if l0.ran else None,
            l1=RetrievalLayerTrace(
                candidates=sum(lane.candidates for lane in l1),
                duration_ms=round(sum(lane.duration_ms for lane in l1), 3),
            )
            if l1
            else None,
        ),
        lanes=gathered.lanes,
        filters=FiltersTrace(category=_category(plan.categories), relaxed=gathered.is_relaxed),
        postprocess=_postprocess(package, None if plan.result_tokens is not None else renderer),
        fallback=_fallback(gathered),
        budget=_budget(package, plan.limits) if plan.has_budget else None,
        empty_reason=empty_reason,
        evidence_blocks=[_block(item, rank, renderer) for rank, item in enumerate(package.kept, 1)],
        omitted=[
            OmissionTrace(
                source_key=item.candidate.source_key,
                reason=item.reason.value,
                lane_ranks=_ranks(item.candidate),
                source=item.candidate.source,
                passage=_passage(item.candidate),
                duplicate_of=item.duplicate_of,
            )
            for item in in_rank_order(package.omitted)
        ],
        omitted_total=len(package.omitted),
    )


def _fallback(gathered: Gathered) -> str | None:
    if gathered.is_l1_out:
        return "FALLBACK_L0_ONLY"
    if HINTS in gathered.failures:
        return "FALLBACK_L1_ONLY"
    return "CATEGORY_FILTER_RELAXED" if gathered.is_relaxed else None


def _category(categories: Sequence[str]) -> str | list[str] | None:
    if len(categories) == 1:
        return categories[0]
    return list(categories) or None


def _postprocess(package: Package, renderer: BlockRenderer | None) -> PostprocessTrace:
    """Return the counts of the pipeline; without a renderer nothing is shown as a preview."""
    counts = dict.fromkeys(Reason, 0)
    for item in package.omitted:
        counts[item.reason] += 1
    return PostprocessTrace(
        raw=package.raw,
        deduplicated=package.raw - counts[Reason.DUPLICATE_SOURCE],
        duplicates_dropped=counts[Reason.DUPLICATE_SOURCE],
        near_duplicates_dropped=counts[Reason.NEAR_DUPLICATE],
        previews_truncated=sum(map(renderer.is_truncated, package.kept)) if renderer else 0,
        omitted_by_reason={reason.value: count for reason, count in sorted(counts.items()) if count},
    )


def _budget(package: Package, limits: Limits) -> BudgetTrace:
    spend = package.spend
    return BudgetTrace(
        items_used=spend.items,
        bytes_used=spend.bytes,
        tokens_used=spend.tokens,
        limits={"maxItems": limits.max_items, "maxBytes": limits.max_bytes, "maxTokens": limits.max_tokens},
    )


def _block(candidate: Candidate, rank: int, renderer: BlockRenderer) -> BlockTrace:
    text = candidate.text or ""
    return BlockTrace(
        rank=rank,
        source_key=candidate.source_key,
        source_key_basis=candidate.source_key_basis.value,
        layers=[layer.value for layer in candidate.layers],
        title=candidate.title,
        breadcrumb=list(candidate.breadcrumb),
        score=renderer.score(candidate),
        lane_ranks=_ranks(candidate),
        hit_reasons=list(candidate.hit_reasons),
        content_chars=len(text),
        content_sha256=candidate.citation.sha256 if candidate.citation else sha256(text.encode()).hexdigest(),
        source=candidate.source,
        passage=_passage(candidate),
    )


def _ranks(candidate: Candidate) -> list[LaneRankTrace]:
    return [LaneRankTrace(lane=item.lane, rank=item.rank) for item in candidate.lane_ranks]


def _passage(candidate: Candidate) -> str | None:
    return str(int(candidate.key.rpartition(":")[2])) if candidate.kind == "passage" else None


def arguments_of(request: msgspec.Struct) -> dict[str, object]:
    """Return the request as it is recorded: the wire's names, without fields that were left out."""
    values: dict[str, object] = msgspec.to_builtins(request)
    return {name: value for name, value in values.items() if value is not None}
