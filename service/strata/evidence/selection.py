"""From candidates to a package: the pipeline, as one pure function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from strata.evidence.duplicates import drop_near_duplicates, merge_by_source_key
from strata.evidence.model import Candidate, Limits, Omission, Package, Reason, Spend
from strata.text.estimate import token_quarters, tokens_of_quarters

Render = Callable[[Candidate, int], str]
"""Gives the JSON text of a candidate at a rank (from 1): what it costs is the length of that."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a package is selected by.

    ``top_k`` is the number of items wanted, ``limits`` the hard ceilings, ``floor`` the least
    relevance (0..1) that counts as evidence, ``weights`` the lanes' weights in the fusion,
    ``least_item_bytes`` what no item costs less than.
    """

    top_k: int
    limits: Limits = field(default_factory=Limits)
    floor: float = 0.0
    weights: Mapping[str, float] | None = None
    least_item_bytes: int = 0


def assemble(fused: Sequence[Candidate], policy: Policy, render: Render) -> Package:
    """Merge, deduplicate, diversify and select under the ceilings what :func:`fuse` returned.

    Total and deterministic, and every candidate is either kept or omitted with one reason. A
    candidate without text is never kept; the caller loads more texts and calls again while
    :func:`wants_more` says so.
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
    distinct, near = drop_near_duplicates(eligible, wanted)
    omitted += near
    ordered = protect(diversify(distinct, policy.top_k), policy.top_k)
    kept, cut, spend = select(ordered, policy, render)
    return Package(kept=tuple(kept), omitted=tuple(omitted + cut), spend=spend, raw=len(fused))


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


def diversify(candidates: Sequence[Candidate], top_k: int) -> list[Candidate]:
    """Within tiers of a quarter of ``top_k``, put sources not seen before ahead of repeats.

    The order inside both groups stays; no candidate moves across a tier.
    """
    width = max(1, top_k // 4)
    seen: set[str] = set()
    ordered: list[Candidate] = []
    for start in range(0, len(candidates), width):
        fresh: list[Candidate] = []
        repeated: list[Candidate] = []
        for candidate in candidates[start : start + width]:
            (repeated if candidate.source in seen else fresh).append(candidate)
            seen.add(candidate.source)
        ordered += fresh + repeated
    return ordered


def protect(candidates: Sequence[Candidate], top_k: int) -> list[Candidate]:
    """Bring a protected candidate into the first ``top_k`` where others pushed it out."""
    ordered = list(candidates)
    for index, candidate in enumerate(candidates):
        if candidate.is_protected and index >= top_k > 0:
            ordered.remove(candidate)
            ordered.insert(top_k - 1, candidate)
    return ordered


class _Meter:
    """Counts the JSON array of the items taken so far, exactly."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._items = self._bytes = self._quarters = 0

    def spend(self, *texts: str) -> Spend:
        """Return what the package uses with ``texts`` added: brackets, commas and items."""
        items = self._items + len(texts)
        overhead = 2 + max(0, items - 1)
        return Spend(
            items=items,
            bytes=self._bytes + sum(len(text.encode()) for text in texts) + overhead,
            tokens=tokens_of_quarters(self._quarters + sum(map(token_quarters, texts)) + overhead),
        )

    def admits(self, *texts: str) -> bool:
        """Tell whether all ceilings still hold with ``texts`` added."""
        spend, limits = self.spend(*texts), self._limits
        return (
            (limits.max_items is None or spend.items <= limits.max_items)
            and (limits.max_bytes is None or spend.bytes <= limits.max_bytes)
            and (limits.max_tokens is None or spend.tokens <= limits.max_tokens)
        )

    def has_room(self, least_bytes: int) -> bool:
        """Tell whether an item of so many bytes, ASCII at the best, could still be admitted."""
        return self.admits(" " * least_bytes)

    def take(self, text: str) -> None:
        """Count ``text`` as taken."""
        self._items += 1
        self._bytes += len(text.encode())
        self._quarters += token_quarters(text)


def select(
    candidates: Sequence[Candidate], policy: Policy, render: Render
) -> tuple[list[Candidate], list[Omission], Spend]:
    """Admit candidates in order while every ceiling holds; one that does not fit is skipped.

    Room is held for a protected candidate until its turn, so that nothing before it takes its place.
    Without ceilings nothing is rendered, and the spend is that of nothing.
    """
    meter = _Meter(policy.limits)
    kept: list[Candidate] = []
    omitted: list[Omission] = []
    awaited = next((item for item in candidates[: policy.top_k] if item.is_protected and item.text is not None), None)
    # The rank is not known yet; the widest one that can occur costs as much or more.
    is_bounded = policy.limits != Limits()
    reserve = [render(awaited, policy.top_k)] if awaited and is_bounded else []
    if reserve and not meter.admits(*reserve):
        reserve = []
    for candidate in candidates:
        if candidate is awaited:
            reserve = []
        if len(kept) >= policy.top_k:
            omitted.append(Omission(candidate, Reason.BELOW_TOP_K))
            continue
        if candidate.text is None:
            is_open = meter.has_room(policy.least_item_bytes)
            omitted.append(Omission(candidate, Reason.BELOW_TOP_K if is_open else Reason.BUDGET_EXCEEDED))
            continue
        text = render(candidate, len(kept) + 1) if is_bounded else ""
        if meter.admits(text, *reserve):
            meter.take(text)
            kept.append(candidate)
        else:
            omitted.append(Omission(candidate, Reason.BUDGET_EXCEEDED))
    return kept, omitted, meter.spend() if is_bounded else Spend(items=len(kept))
