"""Fit what Strata weighs words and meaning by, and what a score is worth, to judged sets; and judge a fit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from msgspec import Struct

from strata.errors import INVALID_REQUEST, StrataError
from strata.evaluate.fitting import SHOWN, Fitted, Question, SetReport, fit_meaning, fit_words
from strata.evaluate.samples import MOST, Kind, Sample, Samples, collect
from strata.evaluate.scratch import Progress
from strata.evaluate.service import EvaluateService
from strata.evaluate.weights import FittedWeight, fit_weight, ranked, ranked_by_words
from strata.lookup.fit import Fit, Fits, Signals
from strata.lookup.pool import CandidateSignals
from strata.lookup.relevance import Cutoffs
from strata.settings import Settings

T = TypeVar("T")


class FitResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A fit, the weight in it, and what it gives on each set. ``weight`` is None for words alone."""

    fit: Fit
    weight: FittedWeight | None
    sets: Sequence[SetReport]


class KindLevels(Struct, frozen=True, kw_only=True, rename="camel"):
    """Levels of one kind of question on one set: how many, and the shares (0..1) at each level.

    ``high_precision`` is the share of the HIGH ones with an answer first, ``high_precision_shown`` with one
    among the blocks shown; None for unanswerable questions and where none is HIGH.
    """

    questions: int
    high: float
    medium: float
    low: float
    none: float
    high_precision: float | None = None
    high_precision_shown: float | None = None


class SetLevels(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the levels are worth on one set, by kind of question."""

    name: str
    kinds: dict[str, KindLevels]


class LevelsReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the levels of the fits in use are worth: ``words`` with the vector lane off, ``meaning`` with both."""

    words: list[SetLevels]
    meaning: list[SetLevels] | None


async def fit(
    evaluate: EvaluateService,
    tenant: UUID,
    directories: Sequence[Path],
    *,
    command: str,
    most: int = MOST,
    words_only: bool = False,
    keep: bool = False,
    progress: Progress | None = None,
) -> FitResult:
    """Fit to the sets in ``directories``; at most ``most`` questions of each kind from each.

    Without vectors, or with ``words_only``, to words alone. ``command`` is noted in the fit. Raises
    ``invalid_request`` for an unfit folder, for fewer than two sets, and for sets that cannot be fitted to.
    """
    if len(directories) < 2:
        raise StrataError(
            INVALID_REQUEST,
            "A fit needs two sets: each is judged by what was fitted to the others.",
            pointer="DIR",
            remedy="Name two folders or more; a set can be split by topic.",
        )
    samples = await collect(evaluate, tenant, directories, most=most, keep=keep, progress=progress)
    return await _aside(lambda: fitted(samples, command=command, words_only=words_only))


def fitted(samples: Samples, *, command: str, words_only: bool = False) -> FitResult:
    """Fit to questions that were collected."""
    if samples.space is None or words_only:
        words = fit_words(word_questions(samples.samples), command=command)
        return FitResult(fit=words.fit, weight=None, sets=words.report)
    weight = fit_weight(samples.samples)
    words = fit_words(word_questions(samples.samples), command=command, cosine_weight=weight.weight)
    both: Fitted = fit_meaning(
        fused_questions(samples.samples, weight.weight),
        space=samples.space.fingerprint.hex(),
        words=words.fit.words,
        cosine_weight=weight.weight,
        command=command,
    )
    return FitResult(fit=both.fit, weight=weight, sets=both.report)


async def judge_fits(
    evaluate: EvaluateService,
    tenant: UUID,
    directories: Sequence[Path],
    settings: Settings,
    *,
    most: int = MOST,
    keep: bool = True,
    progress: Progress | None = None,
) -> LevelsReport:
    """Return what the levels of the fits that lookups use here are worth on judged sets."""
    samples = await collect(evaluate, tenant, directories, most=most, keep=keep, progress=progress)
    fits = Fits(settings)

    def judge() -> LevelsReport:
        words = fits.of([])
        report = levels_by_set(word_questions(samples.samples), words, settings.candidates_per_lane)
        if samples.space is None:
            return LevelsReport(words=report, meaning=None)
        both = fits.of([samples.space])
        asked = fused_questions(samples.samples, both.cosine_weight)
        return LevelsReport(words=report, meaning=levels_by_set(asked, both, settings.candidates_per_lane))

    return await _aside(judge)


def word_questions(samples: Sequence[Sample]) -> list[Question]:
    """Return the questions as the lexical lane alone answers them."""
    return [_question(sample, ranked_by_words(sample.candidates), has_vectors=False) for sample in samples]


def fused_questions(samples: Sequence[Sample], weight: float | None) -> list[Question]:
    """Return the questions as both lanes answer them, fused by a weight."""
    return [_question(sample, ranked(sample.candidates, weight), has_vectors=True) for sample in samples]


def _question(sample: Sample, ranking: Sequence[CandidateSignals], *, has_vectors: bool) -> Question:
    gold = sample.gold
    return Question(
        judged_set=sample.corpus,
        kind=str(sample.kind),
        text=sample.query.text,
        signals=[
            Signals(
                item.scored.coverage,
                item.scored.bm25,
                item.scored.cosine if has_vectors else None,
                item.scored.bm25 / item.scored.ideal if item.scored.ideal else 0.0,
            )
            for item in ranking
        ],
        gold=[item.source in gold for item in ranking],
    )


def levels_by_set(questions: Sequence[Question], found: Fit, depth: int) -> list[SetLevels]:
    """Return what a fit gives on each set, by name, as a lookup would answer: what is no evidence is left out."""
    rows: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for question in questions:
        outcome = _outcome(question, found, depth)
        rows.setdefault(question.judged_set, {}).setdefault(question.kind, []).append(outcome)
    return [
        SetLevels(
            name=name, kinds={kind: _levels(kind, rows[name][kind], found.cutoffs) for kind in sorted(rows[name])}
        )
        for name in sorted(rows)
    ]


def _outcome(question: Question, found: Fit, depth: int) -> tuple[float, float]:
    """Return the highest relevance among the blocks shown, and the place of the first answer, from 0."""
    relevances = found.relevances(question.signals, depth)
    kept = [
        (relevance, is_gold)
        for relevance, is_gold in zip(relevances, question.gold, strict=True)
        if relevance >= found.cutoffs.low
    ]
    best = max((relevance for relevance, _ in kept[:SHOWN]), default=0.0)
    return best, next((at for at, (_, is_gold) in enumerate(kept) if is_gold), float("inf"))


def _levels(kind: str, outcomes: Sequence[tuple[float, float]], cutoffs: Cutoffs) -> KindLevels:
    count = len(outcomes)
    high = [first for best, first in outcomes if best >= cutoffs.high]
    shares = [sum(best >= cut for best, _ in outcomes) / count for cut in (cutoffs.high, cutoffs.medium, cutoffs.low)]
    is_judged = kind == Kind.ANSWERABLE and bool(high)
    return KindLevels(
        questions=count,
        high=round(shares[0], 4),
        medium=round(shares[1] - shares[0], 4),
        low=round(shares[2] - shares[1], 4),
        none=round(1 - shares[2], 4),
        high_precision=round(sum(first < 1 for first in high) / len(high), 4) if is_judged else None,
        high_precision_shown=round(sum(first < SHOWN for first in high) / len(high), 4) if is_judged else None,
    )


async def _aside(work: Callable[[], T]) -> T:
    """Reckon in a thread: it takes seconds."""
    return await asyncio.to_thread(work)
