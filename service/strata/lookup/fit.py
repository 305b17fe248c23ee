"""What was fitted on judged questions: how words and meaning are weighed, and what a score is worth."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from strata.lookup.relevance import Cutoffs
from strata.providers.embeddings.base import EmbeddingSpace
from strata.settings import Settings


class Signals(Struct, frozen=True):
    """What is known of one passage: ``coverage`` 0..1 of the question's idf mass, its BM25 score, its cosine."""

    coverage: float
    bm25: float
    cosine: float | None


class Fit(Struct, frozen=True, kw_only=True):
    """Constants of one embedding space, or of words alone."""

    cosine_weight: float | None
    cutoffs: Cutoffs

    def relevances(self, signals: Sequence[Signals]) -> list[float]:
        """Return the relevance of each passage of one question, 0..1."""
        return [
            max(item.coverage, 0.0 if item.cosine is None else min(1.0, max(0.0, (item.cosine - 0.8) / 0.12)))
            for item in signals
        ]


DEFAULT_FIT = Fit(cosine_weight=None, cutoffs=Cutoffs(0.85, 0.5, 0.05))


class Fits:
    """The fits that this process has."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def of(self, spaces: Sequence[EmbeddingSpace]) -> Fit:
        """Return the fit of the first space, of words alone where there is none."""
        return DEFAULT_FIT
