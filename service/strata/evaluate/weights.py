"""Fit the weight of cosines in the fusion to judged questions. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from strata.evaluate.metrics import ndcg_at
from strata.evaluate.samples import Kind, Sample
from strata.lookup.pool import CandidateSignals, Pool, Scored

GRID = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 24.0, 28.0, 32.0, 48.0, 64.0)
"""Weights tried. At 16 a cosine that is .0625 higher makes up for the best BM25 of a middling question."""


class SetWeight(Struct, frozen=True, kw_only=True, rename="camel"):
    """nDCG@10 of one set: by the lanes alone, by the weight fitted to the other sets, and by that fitted to all."""

    name: str
    lexical: float
    vector: float
    left_out_weight: float
    left_out: float
    fitted: float


class FittedWeight(Struct, frozen=True, kw_only=True, rename="camel"):
    """The weight that is best in the mean over sets, each weighing the same; ``tried`` has that mean by weight."""

    weight: float
    tried: dict[float, float]
    sets: list[SetWeight]


def fit_weight(samples: Sequence[Sample]) -> FittedWeight:
    """Return the best weight for the answerable questions of all sets; of equals the smallest."""
    by_set: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.kind is Kind.ANSWERABLE:
            by_set.setdefault(sample.corpus, []).append(sample)
    scores = {name: {weight: _mean(asked, weight) for weight in GRID} for name, asked in by_set.items()}
    best = _best(scores)
    return FittedWeight(
        weight=best,
        tried={weight: round(_over_sets(scores, weight), 4) for weight in GRID},
        sets=[_of_set(name, by_set[name], scores, best) for name in sorted(by_set)],
    )


def ranked(candidates: Sequence[CandidateSignals], weight: float | None) -> list[CandidateSignals]:
    """Return the candidates as a lookup ranks them before any second hop: fused, best first."""
    pool = Pool([candidate.scored for candidate in candidates], weight, by_words=True)
    return [candidates[at] for at in pool.places()]


def ranked_by_words(candidates: Sequence[CandidateSignals]) -> list[CandidateSignals]:
    """Return those that the lexical lane nominated, best first."""
    return _nominated(candidates, lambda scored: scored.lexical_rank)


def _of_set(name: str, asked: Sequence[Sample], scores: Mapping[str, Mapping[float, float]], best: float) -> SetWeight:
    others = {other: values for other, values in scores.items() if other != name}
    left_out = _best(others) if others else best
    return SetWeight(
        name=name,
        lexical=round(_mean_of(asked, [ranked_by_words(sample.candidates) for sample in asked]), 4),
        vector=round(_mean_of(asked, [_by_meaning(sample.candidates) for sample in asked]), 4),
        left_out_weight=left_out,
        left_out=round(scores[name][left_out], 4),
        fitted=round(scores[name][best], 4),
    )


def _by_meaning(candidates: Sequence[CandidateSignals]) -> list[CandidateSignals]:
    return _nominated(candidates, lambda scored: scored.vector_rank)


def _nominated(candidates: Sequence[CandidateSignals], rank: Callable[[Scored], int | None]) -> list[CandidateSignals]:
    known = [(place, at) for at, item in enumerate(candidates) if (place := rank(item.scored)) is not None]
    return [candidates[at] for _, at in sorted(known)]


def _mean(asked: Sequence[Sample], weight: float) -> float:
    return _mean_of(asked, [ranked(sample.candidates, weight) for sample in asked])


def _mean_of(asked: Sequence[Sample], rankings: Sequence[Sequence[CandidateSignals]]) -> float:
    found = [
        ndcg_at([candidate.source for candidate in ranking], sample.judgments, 10)
        for sample, ranking in zip(asked, rankings, strict=True)
    ]
    return sum(found) / len(found)


def _best(scores: Mapping[str, Mapping[float, float]]) -> float:
    return max(GRID, key=lambda weight: (round(_over_sets(scores, weight), 6), -weight))


def _over_sets(scores: Mapping[str, Mapping[float, float]], weight: float) -> float:
    return sum(values[weight] for values in scores.values()) / len(scores)
