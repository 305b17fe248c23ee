"""What was fitted on judged questions: how words and meaning are weighed, and what a score is worth.

The relevance of a passage is the probability that it answers, from absolute signals of its own and how far
it stands above the tail of what was found. All weights but the intercepts are zero or more, so that a passage
that is better by any signal is never worth less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from strata.errors import INVALID_SETTING, StrataError
from strata.lookup.relevance import Cutoffs
from strata.providers.embeddings.base import EmbeddingSpace
from strata.settings import Settings

TAIL = slice(10, 30)
"""The ranks, from 0, whose mean a leading passage is measured against: no evidence, and of the question's kind."""

LEAST = 0.001
"""Relevance of what touches the question, at least."""

WORDS = "words"
"""Stands for the space of a fit that knows no vectors."""

Floats = npt.NDArray[np.float64]


class Signals(Struct, frozen=True):
    """What is known of one passage.

    ``coverage`` is the share of the question's idf mass that it holds, ``bm25_share`` its BM25 score over the
    most that any passage of its context could score on the question: ``(k1 + 1)`` times the sum of weight and
    idf of the terms. Both are 0..1. ``cosine`` is None where it has no vector.
    """

    coverage: float
    bm25: float
    cosine: float | None
    bm25_share: float


def features(signals: Sequence[Signals], background: float = 0.0, depth: int = 64) -> dict[str, Floats]:
    """Return what relevance is reckoned from, by name, one number for each passage of one question.

    A ``lead`` is how far a score stands above the mean of ranks 11 to 30 of all that were found, never below
    zero. Where a context has no so many passages, unrelated ones stand in for them: BM25 0, cosine
    ``background``. Where a lane was cut at ``depth`` before them, its last score does. NaN without a cosine.
    """
    shares = np.array([item.bm25_share for item in signals], np.float64)
    cosines = np.array([np.nan if item.cosine is None else item.cosine for item in signals], np.float64)
    return {
        "coverage": np.array([item.coverage for item in signals], np.float64),
        "bm25_share": shares,
        "bm25_log": np.log1p([max(item.bm25, 0.0) for item in signals]),
        "bm25_lead": _lead(shares, shares[shares > 0], 0.0, depth),
        "cosine": cosines,
        "cosine_lead": _lead(cosines, cosines[~np.isnan(cosines)], background, depth),
    }


def _lead(scores: Floats, known: Floats, background: float, depth: int) -> Floats:
    ordered = -np.sort(-known)[: TAIL.stop]
    last = ordered[-1] if len(ordered) and len(known) >= depth else background
    tail = np.concatenate([ordered, np.full(TAIL.stop - len(ordered), last)])[TAIL]
    lead: Floats = np.maximum(scores - tail.mean(), 0.0)
    return lead


class Line(Struct, frozen=True):
    """A logistic regression: log-odds as a weighted sum of features."""

    intercept: float
    weights: Mapping[str, float]

    def probabilities(self, values: Mapping[str, Floats]) -> Floats:
        """Return one probability for each passage."""
        odds = self.intercept + sum(weight * values[name] for name, weight in self.weights.items())
        probabilities: Floats = 1 / (1 + np.exp(-np.clip(odds, -700, 700)))
        return probabilities


class Model(Struct, frozen=True):
    """``answers``: does a passage answer. ``touches``: is it about the question at all; below ``floor`` it is not."""

    answers: Line
    touches: Line
    floor: float

    def relevances(self, values: Mapping[str, Floats]) -> Floats:
        """Return the probability to answer, 0.001 at least; 0 for what does not touch the question."""
        is_evidence = self.touches.probabilities(values) >= self.floor
        return np.where(is_evidence, np.maximum(self.answers.probabilities(values), LEAST), 0.0)


class SetUsed(Struct, frozen=True, kw_only=True, rename="camel"):
    """A judged set that a fit was made on: its questions by kind, and the SHA-256 of their texts."""

    name: str
    questions: Mapping[str, int]
    digest: str


class Achieved(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the cut-offs gave, 0..1: means over sets, each weighing the same whatever its size.

    ``high`` and ``medium`` are shares of the answerable questions (MEDIUM or better); the precisions say in how
    many of those an answer is among the first 1, 3 and 5 (None: there are none). ``none`` is the share without
    any evidence. ``unanswerable`` has for each kind the shares that are HIGH, MEDIUM or better, and without any.
    """

    high: float
    high_precision: Sequence[float] | None
    medium: float
    medium_precision: Sequence[float] | None
    none: float
    unanswerable: Mapping[str, tuple[float, float, float]]


class Provenance(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a fit comes from. ``left_out`` judges each set by lines fitted on all the others."""

    command: str
    targets: Mapping[str, float]
    sets: Sequence[SetUsed]
    left_out: Achieved
    fitted: Achieved


class Fit(Struct, frozen=True, kw_only=True, rename="camel"):
    """Constants of one embedding space, or of words alone (``space`` is then ``words``).

    ``cosine_weight`` goes to the fusion. ``meaning`` judges passages with a vector, ``words`` those without;
    ``background`` is the cosine that an unrelated passage reaches.
    """

    space: str
    cosine_weight: float | None
    words: Model
    meaning: Model | None
    background: float
    cutoffs: Cutoffs
    provenance: Provenance

    def relevances(self, signals: Sequence[Signals], depth: int = 64) -> list[float]:
        """Return the relevance of each passage of one question, 0..1; 0: no evidence.

        ``signals`` are all that the lanes nominated, in any order, each lane at most ``depth``. A fit that
        does not know the space cannot rule out what was found by its vector: that is LOW at least.
        """
        if not signals:
            return []
        values = features(signals, self.background, depth)
        has_vector = ~np.isnan(values["cosine"])
        found = self.words.relevances(values)
        judged = np.maximum(found, LEAST) if self.meaning is None else self.meaning.relevances(values)
        found = np.where(has_vector, judged, found)
        relevances: list[float] = found.tolist()
        return relevances


def read_fit(data: bytes, name: str) -> Fit:
    """Read a fit as ``strata evaluate fit`` writes it. Raises ``invalid_setting`` for what is none."""
    try:
        fit = msgspec.json.decode(data, type=Fit)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unfit(f"{name}: {error}") from error
    known = features([Signals(0.0, 0.0, 0.0, 0.0)])
    for model in (fit.words, fit.meaning):
        for line in (model.answers, model.touches) if model else ():
            if not line.weights.keys() <= known.keys() or min(line.weights.values(), default=0.0) < 0:
                raise _unfit(f"{name}: weights are for {', '.join(known)}, and none is negative")
    if not 0 < fit.cutoffs.low <= fit.cutoffs.medium <= fit.cutoffs.high <= 1:
        raise _unfit(f"{name}: the cut-offs must ascend, above 0 and to at most 1")
    return fit


def _unfit(detail: str) -> StrataError:
    return StrataError(INVALID_SETTING, f"STRATA_RELEVANCE_FIT: {detail}.", pointer="STRATA_RELEVANCE_FIT")


@cache
def bundled_fits() -> Mapping[str, Fit]:
    """Return the fits that come with Strata, by space."""
    folder = resources.files("strata.lookup") / "fits"
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".json")), key=lambda item: item.name)
    fits = [read_fit(item.read_bytes(), item.name) for item in files]
    return {fit.space: fit for fit in fits}


DEFAULT_FIT = bundled_fits()[WORDS]
"""For words alone, and for spaces that nothing was fitted to."""


class Fits:
    """The fits that this process has: those that come with Strata, and that of STRATA_RELEVANCE_FIT before them.

    Cut-offs that are set win over fitted ones. Raises ``invalid_setting`` for a file that is no fit.
    """

    def __init__(self, settings: Settings) -> None:
        fits = dict(bundled_fits())
        if settings.relevance_fit is not None:
            own = _read_file(settings.relevance_fit)
            fits[own.space] = own
        self._fits = {space: structs.replace(fit, cutoffs=_cutoffs(fit, settings)) for space, fit in fits.items()}

    def of(self, spaces: Sequence[EmbeddingSpace]) -> Fit:
        """Return the fit of the first space; that of words alone where there is none, or none is fitted to it."""
        space = spaces[0].fingerprint.hex() if spaces else WORDS
        return self._fits.get(space, self._fits[WORDS])


def _cutoffs(fit: Fit, settings: Settings) -> Cutoffs:
    asked = (settings.relevance_high, settings.relevance_medium, settings.relevance_floor)
    fitted = (fit.cutoffs.high, fit.cutoffs.medium, fit.cutoffs.low)
    return Cutoffs(*(mine if mine is not None else theirs for mine, theirs in zip(asked, fitted, strict=True)))


def _read_file(path: Path) -> Fit:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unfit(f"{path}: {error.strerror}") from error
    return read_fit(data, str(path))
