"""Fit the relevance of passages, and the cut-offs of its levels, to judged questions. Pure and deterministic."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from strata.errors import INVALID_REQUEST, StrataError
from strata.evaluate.logistic import logistic
from strata.lookup.fit import (
    LEAST,
    WORDS,
    Achieved,
    Fit,
    Floats,
    Line,
    Model,
    Provenance,
    SetUsed,
    Signals,
    features,
)
from strata.lookup.relevance import Cutoffs

ANSWERABLE = "answerable"
FOREIGN = "foreign"
GOLD_REMOVED = "gold_removed"
"""Only what is judged an answer was taken out. What stays may answer all the same: nothing is learnt from it."""

SHOWN = 5
"""Blocks that a caller gets unless told; the best of them decides the level of a result."""

_LEARNT = 10  # first passages of each question that the lines are fitted to
_MEANING = "meaning"
_ANSWERS = {WORDS: ("bm25_lead", "bm25_log"), _MEANING: ("cosine", "bm25_lead", "cosine_lead")}
_TOUCHES = {WORDS: ("coverage", "bm25_share"), _MEANING: ("coverage", "cosine")}
_DEPTHS = (1, 3, 5)
_DIGITS = 6


Places = npt.NDArray[np.intp]


class Targets(Struct, frozen=True, kw_only=True):
    """What the cut-offs must reach, in the mean over sets that each weigh the same.

    HIGH: among answerable questions, one in ``precision`` has an answer first, and of each kind of
    unanswerable question at most ``unanswerable`` are HIGH. MEDIUM or better: the same with an answer among
    the first 3, and for foreign questions. The floor keeps the share ``kept`` of the answers in the first 10.
    """

    precision: float = 0.9
    unanswerable: float = 0.02
    kept: float = 0.997


@dataclass(frozen=True, slots=True)
class Question:
    """One question asked of one set, with all that the lanes nominated, as a lookup ranks it, best first.

    ``kind`` is ``answerable``, ``foreign`` (of another set), ``gold_removed`` or any other name for questions
    without an answer here. ``gold[i]`` tells whether passage ``i`` answers.
    """

    judged_set: str
    kind: str
    text: str
    signals: Sequence[Signals]
    gold: Sequence[bool]


class SetReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the fit gives on one set: by lines fitted without it, and by those fitted with all."""

    name: str
    left_out: Achieved
    fitted: Achieved


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fit, and what it gives on each set in the order of their names."""

    fit: Fit
    report: Sequence[SetReport]


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """The first passages of the questions of one kind of one set, as rows; ``at`` is the question of a row."""

    values: Mapping[str, Floats]
    gold: Floats
    at: Places
    questions: int


_Sets = Mapping[str, Mapping[str, _Kind]]


def fit_words(
    questions: Sequence[Question], *, command: str, cosine_weight: float | None = None, targets: Targets | None = None
) -> Fitted:
    """Fit relevance to words alone; ``signals`` are those of the lexical lane by itself. Raises as :func:`fit_meaning`.

    ``cosine_weight`` is what spaces that nothing was fitted to get in the fusion.
    """
    return _fit(
        questions,
        space=WORDS,
        cosine_weight=cosine_weight,
        words=None,
        background=0.0,
        command=command,
        targets=targets or Targets(),
    )


def fit_meaning(
    questions: Sequence[Question],
    *,
    space: str,
    words: Model,
    cosine_weight: float | None,
    command: str,
    targets: Targets | None = None,
) -> Fitted:
    """Fit relevance to words and the cosines of one space (the fingerprint, in hex).

    ``words`` judges passages without a vector. Every set weighs the same, whatever its number of questions.
    The cut-offs are the lowest that reach the targets on sets that the lines were not fitted to; one that
    nothing reaches is 1. Raises ``invalid_request`` for fewer than two sets, and for a set without an answer
    among the first ten passages or without unanswerable questions.
    """
    found = [_background(asked) for asked in _by_set(questions).values()]
    background = round(float(np.mean([cosine for cosine in found if cosine is not None] or [0.0])), 4)
    return _fit(
        questions,
        space=space,
        cosine_weight=cosine_weight,
        words=words,
        background=background,
        command=command,
        targets=targets or Targets(),
    )


def _fit(
    questions: Sequence[Question],
    *,
    space: str,
    cosine_weight: float | None,
    words: Model | None,
    background: float,
    command: str,
    targets: Targets,
) -> Fitted:
    asked = _by_set(questions)
    sets = {name: _kinds(group, background) for name, group in asked.items()}
    _check(sets)
    use = WORDS if words is None else _MEANING
    left_out = {name: _model(_without(sets, name), use) for name in sets}
    floor = _floor(sets, left_out, targets.kept)
    whole = structs.replace(_model(sets, use), floor=floor)
    tried = {name: _outcomes(sets[name], structs.replace(model, floor=floor)) for name, model in left_out.items()}
    final = {name: _outcomes(kinds, whole) for name, kinds in sets.items()}
    cutoffs = _cutoffs(tried, targets)
    fit = Fit(
        space=space,
        cosine_weight=cosine_weight,
        words=whole if words is None else words,
        meaning=None if words is None else whole,
        background=background,
        cutoffs=cutoffs,
        provenance=Provenance(
            command=command,
            targets=structs.asdict(targets),
            sets=[_set_used(name, group) for name, group in asked.items()],
            left_out=_achieved(tried, cutoffs),
            fitted=_achieved(final, cutoffs),
        ),
    )
    return Fitted(fit, [_set_report(name, tried[name], final[name], cutoffs) for name in sets])


def _by_set(questions: Iterable[Question]) -> dict[str, list[Question]]:
    """Group by set, in the order of names; within a set the order does not matter but for sums."""
    grouped: dict[str, list[Question]] = {}
    for question in sorted(questions, key=lambda item: (item.judged_set, item.kind, item.text)):
        grouped.setdefault(question.judged_set, []).append(question)
    return grouped


def _kinds(questions: Sequence[Question], background: float) -> dict[str, _Kind]:
    grouped: dict[str, list[Question]] = {}
    for question in questions:
        grouped.setdefault(question.kind, []).append(question)
    return {kind: _kind(asked, background) for kind, asked in grouped.items()}


def _kind(questions: Sequence[Question], background: float) -> _Kind:
    rows = [features(question.signals, background) for question in questions]
    counts = [min(_LEARNT, len(question.signals)) for question in questions]
    return _Kind(
        values={
            name: np.nan_to_num(np.concatenate([row[name][:_LEARNT] for row in rows]), nan=background)
            for name in rows[0]
        },
        gold=np.array([flag for question in questions for flag in question.gold[:_LEARNT]], np.float64),
        at=np.repeat(np.arange(len(questions)), counts),
        questions=len(questions),
    )


def _background(questions: Sequence[Question]) -> float | None:
    """Return the mean, over foreign questions, of the median cosine of all that was found for them."""
    medians = [
        np.median(cosines)
        for question in questions
        if question.kind == FOREIGN
        and (cosines := [item.cosine for item in question.signals if item.cosine is not None])
    ]
    return float(np.mean(medians)) if medians else None


def _check(sets: _Sets) -> None:
    if len(sets) < 2:
        raise _unfit("A fit needs two sets: each is judged by what was fitted to the others")
    for name, kinds in sets.items():
        if ANSWERABLE not in kinds or not kinds[ANSWERABLE].gold.any():
            raise _unfit(f"{name} has no question whose answer is among the first {_LEARNT} passages")
        if kinds.keys() <= {ANSWERABLE, GOLD_REMOVED}:
            raise _unfit(f"{name} has no unanswerable questions")


def _unfit(detail: str) -> StrataError:
    return StrataError(INVALID_REQUEST, f"{detail}.", pointer="DIR")


def _without(sets: _Sets, name: str) -> _Sets:
    return {other: kinds for other, kinds in sets.items() if other != name}


def _model(sets: _Sets, use: str) -> Model:
    """Fit both lines; the floor is still to be found."""
    return Model(_answers(sets, _ANSWERS[use]), _touches(sets, _TOUCHES[use]), 0.0)


def _answers(sets: _Sets, names: Sequence[str]) -> Line:
    """Tell answers from all else. Answerable questions weigh as much as the two sorts of unanswerable together."""
    rows, truth, weights = [], [], []
    for kinds in sets.values():
        others = len(kinds.keys() - {ANSWERABLE, FOREIGN, GOLD_REMOVED})
        for kind, part in kinds.items():
            if kind == GOLD_REMOVED:
                continue
            weight = 1.0 if kind == ANSWERABLE else 0.5 if kind == FOREIGN else 0.5 / others
            rows.append(_columns(part, names))
            truth.append(part.gold)
            weights.append(np.full(len(part.gold), weight / max(1, len(part.gold))))
    return _line(rows, truth, weights, names)


def _touches(sets: _Sets, names: Sequence[str]) -> Line:
    """Tell answers from what is found for foreign questions, or for any unanswerable where there are none."""
    rows, truth, weights = [], [], []
    for kinds in sets.values():
        own = kinds[ANSWERABLE]
        is_gold = own.gold > 0
        known = {kind: part for kind, part in kinds.items() if kind not in (ANSWERABLE, GOLD_REMOVED)}
        foreign = [known[FOREIGN]] if FOREIGN in known else list(known.values())
        for part in foreign:
            rows += [_columns(own, names)[is_gold], _columns(part, names)]
            truth += [np.ones(int(is_gold.sum())), np.zeros(len(part.gold))]
            weights += [np.full(len(flags), 1.0 / max(1, len(flags))) for flags in truth[-2:]]
    return _line(rows, truth, weights, names)


def _columns(part: _Kind, names: Sequence[str]) -> Floats:
    return np.stack([part.values[name] for name in names], 1)


def _line(rows: Sequence[Floats], truth: Sequence[Floats], weights: Sequence[Floats], names: Sequence[str]) -> Line:
    intercept, found = logistic(np.concatenate(rows), np.concatenate(truth), np.concatenate(weights))
    return Line(
        round(intercept, _DIGITS),
        {name: round(float(weight), _DIGITS) for name, weight in zip(names, found, strict=True)},
    )


def _floor(sets: _Sets, models: Mapping[str, Model], kept: float) -> float:
    """Return the highest floor, in steps of a thousandth, above which the share ``kept`` of the answers stays."""
    chances = [
        np.sort(models[name].touches.probabilities(kinds[ANSWERABLE].values)[kinds[ANSWERABLE].gold > 0])
        for name, kinds in sets.items()
    ]
    steps = np.arange(1000) / 1000
    shares = np.mean([1 - np.searchsorted(chance, steps) / len(chance) for chance in chances], 0)
    return float(steps[np.flatnonzero(shares >= kept)[-1]])


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """Each question's highest relevance among the blocks shown, and where its first answer is (from 0; inf)."""

    best: Floats
    first: Floats


_Outcomes = Mapping[str, Mapping[str, _Outcome]]


def _outcomes(kinds: Mapping[str, _Kind], model: Model) -> dict[str, _Outcome]:
    outcomes = {}
    for kind, part in kinds.items():
        relevances = model.relevances(part.values)
        # What is no evidence is left out, and the answers after it move up.
        kept = relevances > 0
        passed: Places = np.cumsum(kept) - kept
        start = np.searchsorted(part.at, part.at)
        rank: Places = passed - passed[start]
        best, first = np.zeros(part.questions), np.full(part.questions, np.inf)
        shown = kept & (rank < SHOWN)
        np.maximum.at(best, part.at[shown], relevances[shown])
        is_gold = kept & (part.gold > 0)
        np.minimum.at(first, part.at[is_gold], rank[is_gold])
        outcomes[kind] = _Outcome(best, first)
    return outcomes


def _cutoffs(outcomes: _Outcomes, targets: Targets) -> Cutoffs:
    """Return the lowest cut-offs that reach the targets, in steps of a thousandth; 1 where none does."""
    steps = np.arange(1, 1000) / 1000
    share = _share(outcomes, ANSWERABLE, steps)
    others = sorted({kind for kinds in outcomes.values() for kind in kinds} - {ANSWERABLE})
    limits = {kind: _share(outcomes, kind, steps) <= targets.unanswerable for kind in others}
    is_high = (share > 0) & (_share(outcomes, ANSWERABLE, steps, within=1) >= targets.precision * share)
    for is_rare in limits.values():
        is_high &= is_rare
    is_medium = (share > 0) & (_share(outcomes, ANSWERABLE, steps, within=3) >= targets.precision * share)
    is_medium &= limits.get(FOREIGN, True)
    high, medium = (float(steps[np.argmax(reached)]) if reached.any() else 1.0 for reached in (is_high, is_medium))
    return Cutoffs(high, min(medium, high), LEAST)


def _share(outcomes: _Outcomes, kind: str, cuts: Floats, within: float | None = None) -> Floats:
    """Return the share of questions at or above each cut, with an answer among the first ``within`` if given."""
    shares = []
    for kinds in outcomes.values():
        if (outcome := kinds.get(kind)) is not None:
            best = outcome.best if within is None else outcome.best[outcome.first < within]
            shares.append((len(best) - np.searchsorted(np.sort(best), cuts)) / max(1, len(outcome.best)))
    mean: Floats = np.mean(shares, 0)
    return mean


def _achieved(outcomes: _Outcomes, cutoffs: Cutoffs) -> Achieved:
    cuts = np.array([cutoffs.high, cutoffs.medium, LEAST])
    high, medium, some = _share(outcomes, ANSWERABLE, cuts).tolist()
    within = [_share(outcomes, ANSWERABLE, cuts, within=depth).tolist() for depth in _DEPTHS]
    unanswerable = {}
    for kind in sorted({kind for kinds in outcomes.values() for kind in kinds} - {ANSWERABLE}):
        shares = _share(outcomes, kind, cuts).tolist()
        unanswerable[kind] = (round(shares[0], 4), round(shares[1], 4), round(1 - shares[2], 4))
    return Achieved(
        high=round(high, 4),
        high_precision=[round(right[0] / high, 4) for right in within] if high else None,
        medium=round(medium, 4),
        medium_precision=[round(right[1] / medium, 4) for right in within] if medium else None,
        none=round(1 - some, 4),
        unanswerable=unanswerable,
    )


def _set_report(name: str, tried: Mapping[str, _Outcome], final: Mapping[str, _Outcome], cutoffs: Cutoffs) -> SetReport:
    return SetReport(name=name, left_out=_achieved({name: tried}, cutoffs), fitted=_achieved({name: final}, cutoffs))


def _set_used(name: str, questions: Sequence[Question]) -> SetUsed:
    texts = "\n".join(f"{question.kind}\t{question.text}" for question in questions)
    counts = Counter(question.kind for question in questions)
    digest = hashlib.sha256(texts.encode("utf-8", "surrogatepass")).hexdigest()
    return SetUsed(name=name, questions={kind: counts[kind] for kind in sorted(counts)}, digest=digest)
