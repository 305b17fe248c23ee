"""Retrieval metrics over one ranked list (as trec_eval defines them)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from strata.text.estimate import token_quarters, tokens_of_quarters

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


def all_within(texts: Iterable[tuple[str, str]], gold: Collection[str], max_tokens: int) -> bool:
    """Tell whether pieces of every gold document stand whole inside the first ``max_tokens`` of a result.

    ``texts`` are (document, text) in rank order, counted by the declared estimate, rounded up once
    over their sum. The first that does not fit ends the result: a reader stops there. False where
    nothing is gold.
    """
    missing = set(gold)
    quarters = 0
    for document, text in texts:
        quarters += token_quarters(text)
        if tokens_of_quarters(quarters) > max_tokens:
            return False
        missing.discard(document)
        if not missing:
            return bool(gold)
    return False


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile, rounded to three places; 0.0 for no values."""
    if not values:
        return 0.0
    return round(sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1], 3)


def _gains(judged: Judgments) -> list[int]:
    return sorted((gain for gain in judged.values() if gain > 0), reverse=True)


def _first(ranking: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ranking))
