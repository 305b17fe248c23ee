"""What a result is worth, from absolute signals: never from a fused rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from strata.evidence.model import Candidate, Layer, Package, Reason
from strata.lookup.schemas import Completeness, EmptyReason, RelevanceLevel


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Least relevance (0..1) for each level; below ``low`` a candidate is no evidence."""

    high: float
    medium: float
    low: float

    def level(self, relevance: float) -> RelevanceLevel:
        """Return the level of one block."""
        if relevance >= self.high:
            return RelevanceLevel.HIGH
        if relevance >= self.medium:
            return RelevanceLevel.MEDIUM
        return RelevanceLevel.LOW if relevance >= self.low else RelevanceLevel.NONE


def inverse_document_frequency(passages: int, holding: int) -> float:
    """Return ``ln(1 + (N - n + 0.5) / (n + 0.5))``: BM25's idf, never negative."""
    return math.log1p((passages - holding + 0.5) / (holding + 0.5))


class Coverage:
    """Share of a question's idf mass that a passage holds.

    ``groups`` gives for each query term the part of the question it stands for: a part counts once,
    with the idf of its most frequent term in the context (its stem rather than its rare exact form),
    and it is held where any of its terms is. Terms that the context lacks weigh most of all: what
    nobody wrote about cannot be covered.
    """

    def __init__(self, groups: Sequence[int], frequencies: Sequence[int], passages: int) -> None:
        holding: dict[int, int] = {}
        for group, frequency in zip(groups, frequencies, strict=True):
            holding[group] = max(holding.get(group, 0), frequency)
        self._groups = groups
        self._mass = {group: inverse_document_frequency(passages, count) for group, count in holding.items()}
        self._total = sum(self._mass.values())

    def of(self, matched: Iterable[int]) -> float:
        """Return the coverage (0..1) of a passage that holds the terms at these indexes."""
        if not self._total:
            return 0.0
        held = {self._groups[index] for index in matched}
        return min(1.0, sum(mass for group, mass in self._mass.items() if group in held) / self._total)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fields of a result that say what it is worth."""

    level: RelevanceLevel
    completeness: Completeness
    message: str | None
    empty_reason: EmptyReason | None


_EMPTY_MESSAGES: Mapping[EmptyReason, str] = {
    EmptyReason.NO_SEARCHABLE_TERMS: "The question holds no searchable term; ask with words.",
    EmptyReason.UNKNOWN_TERMS: (
        "No term of the question occurs in this context; rephrase, or search another context. "
        "This says nothing about the world."
    ),
    EmptyReason.FILTERED_OUT: "Matches exist outside the filters; relax them or ask without.",
    EmptyReason.BELOW_FLOOR: "Only passages that hardly touch the question were found; rephrase with more specific words.",
    EmptyReason.EMPTY_CONTEXT: "The context holds no passages; ingest sources first.",
    EmptyReason.LAYER_UNAVAILABLE: "A layer that could have answered is unavailable; try again later.",
}


def judge(
    package: Package,
    cutoffs: Cutoffs,
    *,
    degraded: Sequence[str] = (),
    relaxed: bool = False,
    l1_unavailable: bool = False,
    empty_reason: EmptyReason | None = None,
) -> Verdict:
    """Return the verdict over a package.

    ``degraded`` names lanes that should have run and did not; ``relaxed`` says that the category
    filter was dropped; ``empty_reason`` explains an empty package. DEGRADED beats FALLBACK beats
    PARTIAL.
    """
    if not package.kept:
        reason = empty_reason or EmptyReason.BELOW_FLOOR
        return Verdict(RelevanceLevel.NONE, Completeness.EMPTY, _EMPTY_MESSAGES[reason], reason)
    best = max(candidate.relevance for candidate in package.kept)
    level = cutoffs.level(best)
    if l1_unavailable:
        return Verdict(
            level, Completeness.HINT_ONLY, "Only curated hints answered; passages were not searched. Retry later.", None
        )
    if degraded:
        names = ", ".join(degraded)
        return Verdict(
            level, Completeness.DEGRADED, f"Answered without {names}; evidence may be missing. Retry later.", None
        )
    if all(candidate.layers == (Layer.L0,) for candidate in package.kept):
        return Verdict(
            level, Completeness.HINT_ONLY, "Only hint entries matched; no passage supports them by its words.", None
        )
    if relaxed:
        message = "The category held too little; blocks marked CATEGORY_FILTER_RELAXED come from other categories."
        return Verdict(level, Completeness.FALLBACK, message, None)
    cut = _relevant_and_cut(package, cutoffs)
    if cut:
        message = f"{cut} more relevant candidate{'s were' if cut > 1 else ' was'} cut; raise topK or the budget."
        return Verdict(level, Completeness.PARTIAL, message, None)
    if level is not RelevanceLevel.HIGH:
        message = "The evidence covers the question in part; check it, or ask about the missing part by itself."
        return Verdict(level, Completeness.PARTIAL, message, None)
    return Verdict(level, Completeness.COMPLETE, None, None)


def _relevant_and_cut(package: Package, cutoffs: Cutoffs) -> int:
    """Count candidates cut by topK or budget that cover the question as well as HIGH evidence does."""
    return sum(
        item.reason in (Reason.BELOW_TOP_K, Reason.BUDGET_EXCEEDED) and _as_good(item.candidate, cutoffs)
        for item in package.omitted
    )


def _as_good(candidate: Candidate, cutoffs: Cutoffs) -> bool:
    return candidate.relevance >= cutoffs.high
