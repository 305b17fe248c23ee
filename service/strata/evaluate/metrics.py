"""Retrieval metrics over one ranked list (as trec_eval defines them)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Judgments = Mapping[str, int]
"""Document id to relevance; above 0 is relevant."""


def ndcg_at(ranking: Sequence[str], judged: Judgments, k: int) -> float:
    """Return nDCG@k with linear gain and log2 discount (Järvelin and Kekäläinen, TOIS 2002); 0..1.

    0 where nothing is judged relevant. A document listed twice counts at its first place only.
    """
    ideal = sum(gain / math.log2(place + 2) for place, gain in enumerate(_gains(judged)[:k]))
    if not ideal:
        return 0.0
    found = sum(max(0, judged.get(doc, 0)) / math.log2(place + 2) for place, doc in enumerate(_first(ranking)[:k]))
    return found / ideal


def recall_at(ranking: Sequence[str], judged: Judgments, k: int) -> float:
    """Return the share of the relevant documents among the first ``k``; 0 where none is relevant."""
    relevant = {doc for doc, gain in judged.items() if gain > 0}
    return len(relevant.intersection(_first(ranking)[:k])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], judged: Judgments) -> float:
    """Return 1 / rank of the first relevant document, 0 where none is listed."""
    return next((1 / (place + 1) for place, doc in enumerate(_first(ranking)) if judged.get(doc, 0) > 0), 0.0)


def _gains(judged: Judgments) -> list[int]:
    return sorted((gain for gain in judged.values() if gain > 0), reverse=True)


def _first(ranking: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ranking))
