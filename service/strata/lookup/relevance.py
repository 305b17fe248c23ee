"""What a result is worth, from absolute signals: never from a fused rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strata.evidence.model import Layer, Package, Reason
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
    EmptyReason.BELOW_FLOOR: "Only passages that hardly touch the question were found; ask with more specific words.",
    EmptyReason.BUDGET_EXCEEDED: "Evidence was found, and none of it fits the budget; raise the budget.",
    EmptyReason.EMPTY_CONTEXT: "The context holds no passages; ingest sources first.",
    EmptyReason.LAYER_UNAVAILABLE: "A layer that could have answered was not asked or is unavailable; ask again.",
}


def judge(
    package: Package,
    cutoffs: Cutoffs,
    *,
    degraded: Sequence[str] = (),
    relaxed: bool = False,
    l1_unavailable: bool = False,
    coverage: float | None = None,
    empty_reason: EmptyReason | None = None,
) -> Verdict:
    """Return the verdict over a package.

    ``degraded`` names lanes that should have run and did not; ``relaxed`` says that the category
    filter was dropped; ``coverage`` is the share of passages with a vector, None where embeddings are
    off; ``empty_reason`` explains an empty package. DEGRADED beats FALLBACK beats
    PARTIAL.
    """
    if not package.kept:
        reason = empty_reason or EmptyReason.BELOW_FLOOR
        return Verdict(RelevanceLevel.NONE, Completeness.EMPTY, _EMPTY_MESSAGES[reason], reason)
    level = cutoffs.level(max(candidate.relevance for candidate in package.kept))
    completeness, message = _completeness(
        package, cutoffs, level, degraded=degraded, relaxed=relaxed, l1_unavailable=l1_unavailable, coverage=coverage
    )
    return Verdict(level, completeness, message, None)


def _completeness(
    package: Package,
    cutoffs: Cutoffs,
    level: RelevanceLevel,
    *,
    degraded: Sequence[str],
    relaxed: bool,
    l1_unavailable: bool,
    coverage: float | None,
) -> tuple[Completeness, str | None]:
    """Return the first that holds, worst first, with what an agent should do about it."""
    cut = _relevant_and_cut(package, cutoffs)
    more = f"{cut} more relevant candidate{'s were' if cut > 1 else ' was'} cut; raise topK or the budget."
    names = ", ".join(degraded)
    share = math.floor(100 * (1.0 if coverage is None else coverage))
    unseen = f"{share} % of the passages have a vector yet, the others were searched by words alone. Ask again."
    rules: tuple[tuple[bool, Completeness, str], ...] = (
        (l1_unavailable, Completeness.HINT_ONLY, "Only hints answered; passages were not searched. Retry later."),
        (bool(degraded), Completeness.DEGRADED, f"Answered without {names}; evidence may be missing. Retry later."),
        (
            all(candidate.layers == (Layer.L0,) for candidate in package.kept),
            Completeness.HINT_ONLY,
            "Only hint entries matched; no passage supports them by its words.",
        ),
        (
            relaxed,
            Completeness.FALLBACK,
            "The category held too little; blocks marked CATEGORY_FILTER_RELAXED come from other categories.",
        ),
        (cut > 0, Completeness.PARTIAL, more),
        (
            coverage is not None and coverage < 1,
            Completeness.PARTIAL,
            unseen,
        ),
        (
            level is RelevanceLevel.MEDIUM,
            Completeness.PARTIAL,
            "An answer is likely among the first three blocks; read them before relying on one.",
        ),
        (
            level is not RelevanceLevel.HIGH,
            Completeness.PARTIAL,
            "The blocks touch the question and may not answer it; ask more precisely, or about one part by itself.",
        ),
    )
    return next(((hint, message) for holds, hint, message in rules if holds), (Completeness.COMPLETE, None))


def _relevant_and_cut(package: Package, cutoffs: Cutoffs) -> int:
    """Count candidates cut by topK or budget that cover the question as well as HIGH evidence does."""
    return sum(
        item.reason in (Reason.BELOW_TOP_K, Reason.BUDGET_EXCEEDED) and item.candidate.relevance >= cutoffs.high
        for item in package.omitted
    )
