"""Plain search held to a budget, counted as an evidence package is, so that both pay the same for a passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from strata.evaluate.backend import Budget, Hit, Spend
from strata.evidence.metering import Bill, Meter, cost_of
from strata.evidence.model import Limits

_LANES = {("bm25",): "passage_bm25", ("vector",): "passage_vector"}
_FUSED = "passage_fused"


def admitted(hits: Sequence[Hit], context: str, budget: Budget) -> tuple[list[Hit], Spend]:
    """Return the hits that the budget admits, in their order, and what they cost.

    A hit that does not fit is skipped and the next one tried, as the assembly does.
    """
    limits = Limits(max_items=budget.max_items, max_bytes=budget.max_bytes, max_tokens=budget.max_tokens)
    meter = Meter(limits, has_citations=True)
    kept: list[Hit] = []
    for rank, hit in enumerate(hits, 1):
        cost = cost_of(msgspec.json.encode(item(hit, context, rank)).decode())
        bill = Bill(items=1, bytes=cost.bytes, quarters=cost.quarters)
        if meter.admits(bill):
            meter.take(bill)
            kept.append(hit)
    used = meter.spend()
    return kept, Spend(
        items_used=used.items, bytes_used=used.bytes, tokens_used=used.tokens, omitted=len(hits) - len(kept)
    )


def item(hit: Hit, context: str, rank: int) -> Mapping[str, Any]:
    """Return the passage as an item of an evidence package, as far as it is paid for."""
    lanes = tuple(sorted(hit.wire.get("lanes", ())))
    return {
        "candidate_id": "\0".join(("passage", context, hit.source, str(hit.paragraph))),
        "kind": "passage",
        "fused_rank": rank,
        "lane_ranks": [{"lane": _LANES.get(lanes, _FUSED), "rank": rank}],
        "citation_refs": [],
        "passage": hit.wire,
    }
