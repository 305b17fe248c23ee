"""The metrics of an eval: what each means, its shape, and the arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from strata.evaluate.cases import ExpectedSource

PLACES = 6
STATISTICS = ("n", "min", "p50", "p90", "p99", "max", "mean", "sum")
RATIO_PARTS = ("n", "numerator")


class Distribution(Struct, frozen=True, kw_only=True):
    """Figures over the cases or calls that have a value; all null where none has. Percentiles are nearest-rank."""

    n: int
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None
    mean: float | None = None
    sum: float | None = None


class Ratio(Struct, frozen=True, kw_only=True):
    """``numerator`` of ``n``; null where there is nothing to share out."""

    value: float | None
    n: int
    numerator: int


Figure = Distribution | Ratio


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the catalogue. ``by_case``: each case has a value. ``compared``: more is better, case by case."""

    key: str
    shape: Literal["distribution", "ratio"]
    definition: str
    by_case: bool = False
    compared: bool = False

    def statistics(self) -> tuple[str, ...]:
        """Return what else of it can be named in thresholds, beside the key itself."""
        return STATISTICS if self.shape == "distribution" else RATIO_PARTS


def _compared(key: str, definition: str) -> Metric:
    return Metric(key, "distribution", definition, by_case=True, compared=True)


def _ratio(key: str, definition: str) -> Metric:
    return Metric(key, "ratio", definition)


def _spread(key: str, definition: str) -> Metric:
    return Metric(key, "distribution", definition)


CATALOGUE: Mapping[str, Metric] = {
    metric.key: metric
    for metric in (
        _compared(
            "recall.recall_at_k",
            "Share of the expected sources of relevance 1 or more that are hit within k, k being options.limit,"
            " or within what the budget admits of it.",
        ),
        _compared("recall.mrr", "1 / rank of the first hit that meets any expected source; 0 where none does."),
        _compared(
            "recall.ndcg",
            "Each expected source counts once, at its first hit: relevance / log2(rank + 1), over the same sum for"
            " all of them in the order of their relevance; at most 1.",
        ),
        _compared("coverage.concepts", "Share of the expected concepts among the best names that the cues resolve to."),
        _compared("coverage.labels", "Share of the expected labels among the best labels that the cues resolve to."),
        _compared(
            "coverage.associations",
            "Share of the expected associations whose subject, label and object each resolve to one name, and that"
            " the graph holds.",
        ),
        _compared(
            "citations.recall",
            "Share of the expected citations whose paragraph is among the hits or the attributions of the expected"
            " associations that were found.",
        ),
        _compared(
            "citations.locator_validity",
            "Share of the expected citations that can be cited and whose section and quote are as stated.",
        ),
        _ratio("citations.resolved", "Expected citations that can be cited."),
        _ratio("citations.no_source", "Expected citations whose source does not exist."),
        _ratio("citations.no_paragraph", "Expected citations whose source has no such paragraph."),
        _ratio("citations.section_match", "Of the citations that state a section and can be cited: those in it."),
        _ratio("citations.quote_match", "Of the citations that state a quote and can be cited: those that hold it."),
        _ratio(
            "lanes.structural_hit",
            "Of the cases that expect both sources and something of the graph, and whose passages were answered:"
            " those in which the graph gave anything expected.",
        ),
        _ratio("lanes.passage_hit", "Of the same cases: those with any expected source among the hits."),
        _ratio("lanes.both", "Of the same cases: those with both."),
        _ratio("lanes.neither", "Of the same cases: those with neither."),
        Metric("latency.passage_ms", "distribution", "Milliseconds of each passage search.", by_case=True),
        _spread("latency.resolve_ms", "Milliseconds of each call that resolves a cue to concepts or labels."),
        _spread("latency.query_ms", "Milliseconds of each query for an expected association."),
        _spread("latency.citation_ms", "Milliseconds of each citation."),
        _spread("latency.evidence_ms", "Milliseconds of each assembled package."),
        _ratio("passage.failure_rate", "Cases whose passages or package were answered with an error."),
        _ratio("structural.case_rate", "Cases that expect something of the graph."),
        _compared("diversity.sources", "Distinct sources of the admitted passages and cited paragraphs of a case."),
        _spread("budget.items_used", "Items of a case that were admitted."),
        _spread("budget.bytes_used", "Bytes of the admitted items and citations of a case."),
        _spread("budget.tokens_used", "Estimated tokens of the admitted items and citations of a case."),
        _ratio("budget.omitted_rate", "Of all items but near duplicates: those that the budget kept out."),
        _ratio("rerank.ran", "Of the cases that asked for a reranker: those that it put in order."),
    )
}
"""Every metric by key, in the order of the artifact."""

BY_CASE = tuple(key for key, metric in CATALOGUE.items() if metric.by_case)
COMPARED = tuple(key for key, metric in CATALOGUE.items() if metric.compared)


def rounded(value: float) -> float:
    """Return a value as it is written and compared: to six places."""
    return round(value, PLACES)


def share(numerator: int, n: int) -> float | None:
    """Return a share; None of nothing."""
    return rounded(numerator / n) if n else None


def ratio(numerator: int, n: int) -> Ratio:
    """Return a ratio with its parts."""
    return Ratio(value=share(numerator, n), n=n, numerator=numerator)


def distribution(values: Sequence[float]) -> Distribution:
    """Return the figures of the values; their order does not matter."""
    if not values:
        return Distribution(n=0)
    ordered = sorted(values)
    total = math.fsum(ordered)
    low, high = rounded(ordered[0]), rounded(ordered[-1])
    p50, p90, p99 = (rounded(nearest_rank(ordered, percent)) for percent in (50, 90, 99))
    mean = rounded(total / len(ordered))
    return Distribution(n=len(ordered), min=low, p50=p50, p90=p90, p99=p99, max=high, mean=mean, sum=rounded(total))


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """Return the nearest-rank percentile of ascending values: the smallest that so many percent do not exceed."""
    return ordered[max(1, -(-len(ordered) * percent // 100)) - 1]


def figure(key: str, figures: Mapping[str, Figure]) -> float | None:
    """Return what a threshold or a comparison reads: a key alone means the mean, or the ratio's value.

    A statistic is named after the key: ``latency.passage_ms.p90``.
    """
    if key in figures:
        found = figures[key]
        return found.mean if isinstance(found, Distribution) else found.value
    base, _, statistic = key.rpartition(".")
    value: float | None = getattr(figures[base], statistic)
    return value


def first_ranks(expected: Sequence[ExpectedSource], hits: Sequence[tuple[str, int]], k: int) -> tuple[int | None, ...]:
    """Return for each expectation the rank, from 1, of the first of ``k`` hits that meets it; None where none does."""
    return tuple(_first(hits[:k], wanted.is_met_by) for wanted in expected)


def _first(hits: Sequence[tuple[str, int]], meets: Callable[[str, int], bool]) -> int | None:
    return next((rank for rank, hit in enumerate(hits, 1) if meets(*hit)), None)


def recall(ranks: Sequence[int | None]) -> float | None:
    """Return the share of expectations that were hit."""
    return share(sum(rank is not None for rank in ranks), len(ranks))


def reciprocal_rank(ranks: Sequence[int | None]) -> float | None:
    """Return 1 / rank of the best hit, 0 for none."""
    if not ranks:
        return None
    return rounded(max((1 / rank for rank in ranks if rank), default=0.0))


def ndcg(expected: Sequence[ExpectedSource], ranks: Sequence[int | None]) -> float | None:
    """Return nDCG with linear gain (Järvelin and Kekäläinen, TOIS 2002), one credit for each expectation.

    One hit may meet several expectations, so the sum can pass the ideal one: it is cut at 1.
    """
    if not expected:
        return None
    gained = math.fsum(
        wanted.relevance / math.log2(rank + 1) for wanted, rank in zip(expected, ranks, strict=True) if rank
    )
    best = sorted((wanted.relevance for wanted in expected), reverse=True)
    ideal = math.fsum(relevance / math.log2(place + 1) for place, relevance in enumerate(best, 1))
    return rounded(min(1.0, gained / ideal))
