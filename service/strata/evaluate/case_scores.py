"""From what was seen of the cases to their values, and from those to the figures of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from strata.evaluate import artifact
from strata.evaluate.case_lanes import ASSOCIATION_OUTCOMES, FOUND, Checked, Mode, Observed, Timings
from strata.evaluate.case_metrics import (
    BY_CASE,
    CATALOGUE,
    Figure,
    distribution,
    first_ranks,
    ndcg,
    ratio,
    recall,
    reciprocal_rank,
    rounded,
    share,
)
from strata.evaluate.cases import ExpectedCitation

Values = dict[str, float | None]
"""Of one case, by metric key; None where the case has no such value."""


def values_of(seen: Observed) -> Values:
    """Return the values of one case, every key of :data:`BY_CASE` among them."""
    case, structural = seen.case, seen.structural
    values: Values = dict.fromkeys(BY_CASE)
    values |= {
        "coverage.concepts": _found(case.expected_concepts, structural.missing_concepts),
        "coverage.labels": _found(case.expected_labels, structural.missing_labels),
        "coverage.associations": share(structural.associations.count(FOUND), len(structural.associations)),
        "citations.locator_validity": share(sum(each.is_valid for each in seen.citations), len(seen.citations)),
    }
    if seen.passages.places is None:
        return values
    ranks = ranks_of(seen)
    values |= {
        "recall.recall_at_k": recall(ranks),
        "recall.mrr": reciprocal_rank(ranks),
        "recall.ndcg": ndcg(case.wanted, ranks),
        "citations.recall": share(sum(_served(seen)), len(case.expected_citations)),
        "diversity.sources": float(len({source for source, _ in seen.passages.places})),
        "latency.passage_ms": _milliseconds(seen.passages.milliseconds),
    }
    return values


def ranks_of(seen: Observed) -> tuple[int | None, ...]:
    """Return the rank at which each wanted source was first hit."""
    return first_ranks(seen.case.wanted, seen.passages.places or (), seen.limit)


def outcome_of(seen: Observed, values: Mapping[str, float | None], mode: Mode) -> artifact.CaseOutcome:
    """Return a case as the artifact states it."""
    passages = seen.passages
    missed = list(_missed(seen))
    return artifact.CaseOutcome(
        case_id=seen.case.case_id,
        context=seen.context,
        passage=artifact.PassageOutcome(
            completed=passages.places is not None,
            error=passages.error,
            hits=len((passages.places or ())[: seen.limit]),
            ranks=list(ranks_of(seen)),
        ),
        associations={name: seen.structural.associations.count(name) for name in ASSOCIATION_OUTCOMES},
        citations={name: [each.outcome for each in seen.citations].count(name) for name in _CITATION_OUTCOMES},
        spend=passages.spend,
        rerank=_rerank(seen, mode),
        metrics=artifact.nested(values),
        missed=missed[: artifact.MAX_MISSED],
        missed_total=len(missed),
    )


def figures_of(
    observed: Sequence[Observed], values: Sequence[Mapping[str, float | None]], timings: Timings, mode: Mode
) -> dict[str, Figure]:
    """Return the figure of every metric of the catalogue, in its order."""
    figures: dict[str, Figure] = {
        key: distribution([value for each in values if (value := each[key]) is not None]) for key in BY_CASE
    }
    figures |= _citation_ratios([each for seen in observed for each in seen.citations])
    figures |= _lane_ratios(observed)
    figures |= {
        f"latency.{name}_ms": distribution(getattr(timings, name))
        for name in ("passage", "resolve", "query", "citation", "evidence")
    }
    failed = sum(seen.passages.places is None for seen in observed)
    figures["passage.failure_rate"] = ratio(failed, len(observed))
    figures["structural.case_rate"] = ratio(sum(seen.case.is_structural for seen in observed), len(observed))
    figures |= _budget_figures(observed)
    asked = [seen for seen in observed if mode.rerank is not None and seen.passages.reranked is not None]
    figures["rerank.ran"] = ratio(sum(bool(seen.passages.reranked) for seen in asked), len(asked))
    return {key: figures[key] for key in CATALOGUE}


_CITATION_OUTCOMES = ("resolved", "no_source", "no_paragraph")


def _citation_ratios(checks: Sequence[Checked]) -> dict[str, Figure]:
    outcomes = [check.outcome for check in checks]
    sections = [check.section for check in checks if check.section is not None]
    quotes = [check.quote for check in checks if check.quote is not None]
    return {
        **{f"citations.{name}": ratio(outcomes.count(name), len(outcomes)) for name in _CITATION_OUTCOMES},
        "citations.section_match": ratio(sum(sections), len(sections)),
        "citations.quote_match": ratio(sum(quotes), len(quotes)),
    }


def _lane_ratios(observed: Sequence[Observed]) -> dict[str, Figure]:
    both = [
        (_structural_hit(seen), any(ranks_of(seen)))
        for seen in observed
        if seen.case.is_structural and seen.case.wanted and seen.passages.places is not None
    ]
    counts = {
        "structural_hit": sum(structural for structural, _ in both),
        "passage_hit": sum(passage for _, passage in both),
        "both": sum(structural and passage for structural, passage in both),
        "neither": sum(not structural and not passage for structural, passage in both),
    }
    return {f"lanes.{name}": ratio(count, len(both)) for name, count in counts.items()}


def _budget_figures(observed: Sequence[Observed]) -> dict[str, Figure]:
    spends = [seen.passages.spend for seen in observed if seen.passages.spend is not None]
    items = sum(spend.items_used for spend in spends)
    omitted = sum(spend.omitted for spend in spends)
    return {
        "budget.items_used": distribution([spend.items_used for spend in spends]),
        "budget.bytes_used": distribution([spend.bytes_used for spend in spends]),
        "budget.tokens_used": distribution([spend.tokens_used for spend in spends]),
        "budget.omitted_rate": ratio(omitted, items + omitted),
    }


def _structural_hit(seen: Observed) -> bool:
    case, structural = seen.case, seen.structural
    return (
        len(structural.missing_concepts) < len(case.expected_concepts)
        or len(structural.missing_labels) < len(case.expected_labels)
        or FOUND in structural.associations
    )


def _served(seen: Observed) -> list[bool]:
    served = seen.structural.places | set((seen.passages.places or ())[: seen.limit])
    return [(expected.source, expected.paragraph) in served for expected in seen.case.expected_citations]


def _missed(seen: Observed) -> Iterator[artifact.Missed]:
    case = seen.case
    for expected, rank in zip(case.wanted, ranks_of(seen), strict=True):
        if rank is None:
            yield artifact.Missed(kind="source", source=expected.source, paragraphs=list(expected.paragraphs))
    for name in seen.structural.missing_concepts:
        yield artifact.Missed(kind="concept", names=[name])
    for name in seen.structural.missing_labels:
        yield artifact.Missed(kind="label", names=[name])
    for fact, outcome in zip(case.expected_associations, seen.structural.associations, strict=True):
        if outcome != FOUND:
            yield artifact.Missed(kind="association", names=[fact.subject, fact.label, fact.object], reason=outcome)
    for cited, check, is_served in zip(case.expected_citations, seen.citations, _served(seen), strict=True):
        if reason := _fault(check) or (None if is_served else "not_served"):
            yield _missed_citation(cited, reason)


def _missed_citation(cited: ExpectedCitation, reason: str) -> artifact.Missed:
    return artifact.Missed(kind="citation", source=cited.source, paragraphs=[cited.paragraph], reason=reason)


def _fault(check: Checked) -> str | None:
    if check.outcome != "resolved":
        return check.outcome
    if check.section is False:
        return "section"
    return "quote" if check.quote is False else None


def _rerank(seen: Observed, mode: Mode) -> artifact.Rerank | None:
    if mode.rerank is None or seen.passages.reranked is None:
        return None
    return artifact.Rerank(ran=seen.passages.reranked, reason=seen.passages.rerank_reason)


def _found(expected: Sequence[str], missing: Sequence[str]) -> float | None:
    return share(len(expected) - len(missing), len(expected))


def _milliseconds(value: float | None) -> float | None:
    return None if value is None else rounded(value)
