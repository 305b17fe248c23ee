"""From candidates to a package: the pipeline, as pure functions.

``assemble`` runs it whole. Where something that takes its time stands between (a reranker), its two halves
are ``deduplicate`` and ``admit``, with ``reorder`` between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strata.evidence.admission import Cite, Render, select
from strata.evidence.duplicates import drop_near_duplicates, merge_by_source_key
from strata.evidence.model import Candidate, Limits, Omission, Package, Reason
from strata.evidence.policy import Policy
from strata.evidence.units import T, diversify_tiers, group_contradictions, protect

__all__ = [
    "Cite",
    "Policy",
    "Render",
    "Survivors",
    "admit",
    "assemble",
    "deduplicate",
    "diversify",
    "reorder",
    "wants_more",
]

INVALID_PERMUTATION = "invalid_permutation"


@dataclass(frozen=True, slots=True)
class Survivors:
    """What may be selected, best first, and what is out already; ``raw`` counts both."""

    candidates: tuple[Candidate, ...]
    omitted: tuple[Omission, ...]
    raw: int
    dedup_dropped: int = 0


def deduplicate(fused: Sequence[Candidate], policy: Policy, nominated: int | None = None) -> Survivors:
    """Merge what stands for one source key, drop what is gone, below the floor or said already.

    ``fused`` is what :func:`fuse` returned of ``nominated`` nominations (None: of as many).
    """
    merged, omitted = merge_by_source_key(fused, policy.weights)
    eligible: list[Candidate] = []
    for candidate in merged:
        if candidate.is_gone:
            omitted.append(Omission(candidate, Reason.GONE))
        elif candidate.relevance < policy.floor:
            omitted.append(Omission(candidate, Reason.BELOW_FLOOR))
        else:
            eligible.append(candidate)
    # Under a ceiling any number may be skipped before the last that fits, so all are compared.
    wanted = policy.top_k if policy.limits == Limits() else len(eligible)
    distinct, near = drop_near_duplicates(eligible, wanted, policy.duplicates)
    return Survivors(
        candidates=tuple(distinct),
        omitted=(*omitted, *near),
        raw=len(fused),
        dedup_dropped=0 if nominated is None else nominated - len(fused),
    )


def reorder(survivors: Survivors, permutation: Sequence[int]) -> tuple[Survivors, str | None]:
    """Return the survivors in another order, each index of theirs exactly once.

    Anything else leaves them as they are and returns the reason beside them.
    """
    if any(type(index) is not int for index in permutation) or sorted(permutation) != list(
        range(len(survivors.candidates))
    ):
        return survivors, INVALID_PERMUTATION
    return replace(survivors, candidates=tuple(survivors.candidates[index] for index in permutation)), None


def admit(survivors: Survivors, policy: Policy, render: Render, cite: Cite | None = None) -> Package:
    """Group, diversify and select the survivors under the ceilings.

    Total and deterministic, and every candidate is either kept or omitted with one reason. A
    candidate without text is never kept; the caller loads more texts and calls again while
    :func:`wants_more` says so.
    """
    units, groups = group_contradictions(survivors.candidates, policy)
    ordered = protect(diversify_tiers(units, policy.tier_width), policy.top_k)
    admitted = select(ordered, policy, render, cite)
    return Package(
        kept=admitted.kept,
        omitted=survivors.omitted + admitted.omitted,
        spend=admitted.spend,
        raw=survivors.raw,
        costs=admitted.costs,
        citations=admitted.citations,
        contradiction_groups=groups,
        dedup_dropped=survivors.dedup_dropped,
        tier_width=policy.tier_width,
    )


def assemble(fused: Sequence[Candidate], policy: Policy, render: Render, cite: Cite | None = None) -> Package:
    """Run the pipeline over what :func:`fuse` returned."""
    return admit(deduplicate(fused, policy), policy, render, cite)


def wants_more(package: Package, policy: Policy) -> bool:
    """Tell whether loading more texts could change the package.

    It could where fewer are kept than wanted, or where one that was cut for want of its text stands
    before one that was kept. What the ceilings have no room for is omitted for that reason, unread.
    """
    unloaded = [
        item.candidate.fused_score
        for item in package.omitted
        if item.reason is Reason.BELOW_TOP_K and item.candidate.text is None
    ]
    if not unloaded or len(package.kept) < policy.top_k:
        return bool(unloaded)
    return max(unloaded) > min(item.fused_score for item in package.kept)


def diversify(units: Sequence[T], top_k: int) -> list[T]:
    """Return units with sources not seen before ahead of repeats, within tiers of a quarter of ``top_k``."""
    return diversify_tiers(units, max(1, top_k // 4))
