"""Fuse ranked lanes into one order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from strata.evidence.model import Candidate, LaneRank, Layer

TYPICAL_BM25 = 30.0
"""The best BM25 score of a middling question: there its words count as if they were divided by their maximum."""

NEIGHBOUR_SHARE = 0.3
"""What the better neighbour of a cue says of it: a turn of a conversation seldom names what it is about."""

HOP_OFFSET = 0.4
"""Measured on judged sets (docs/benchmarks.md); flat from 0.3 to 0.6."""

RRF_K = 60
"""The constant of the paper; large enough that a single first place does not outweigh agreement."""


def reciprocal_rank_fusion(
    lane_ranks: Iterable[LaneRank], weights: Mapping[str, float] | None = None, k: int = RRF_K
) -> float:
    """Return the fused score of a candidate (Cormack, Clarke and Buettcher, SIGIR 2009).

    The sum over its lanes of ``weight / (k + rank)``, ranks counted from 1, weight 1 for a lane
    that ``weights`` does not name. A lane that lacks the candidate adds nothing. Summed in lane
    order, so that the floating-point result does not depend on the order given.
    """
    ordered = sorted(lane_ranks, key=lambda item: item.lane)
    return sum((weights or {}).get(item.lane, 1.0) / (k + item.rank) for item in ordered)


def best_ranks(lane_ranks: Iterable[LaneRank]) -> tuple[LaneRank, ...]:
    """Return the best rank of each lane, in lane order."""
    lane_ranks = tuple(lane_ranks)
    if len(lane_ranks) < 2:
        return lane_ranks
    best: dict[str, LaneRank] = {}
    for item in lane_ranks:
        known = best.get(item.lane)
        if known is None or (item.rank, -item.score) < (known.rank, -known.score):
            best[item.lane] = item
    return tuple(best[lane] for lane in sorted(best))


def fuse(
    candidates: Iterable[Candidate], weights: Mapping[str, float] | None = None, k: int = RRF_K
) -> list[Candidate]:
    """Unite what several lanes nominated and order it by fused score.

    Candidates of one identity become one with all its lane ranks, reasons and layers. Equal scores
    fall back to ``(kind, key)``: the order is total and does not depend on the order given.
    """
    grouped: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in candidates:
        grouped.setdefault(candidate.identity, []).append(candidate)
    fused = [unite(sorted(group, key=_lane_order), weights, k) for group in grouped.values()]
    return sorted(fused, key=fused_order)


def unite(group: list[Candidate], weights: Mapping[str, float] | None = None, k: int = RRF_K) -> Candidate:
    """Return the first of ``group`` with the lanes, layers, reasons and signals of all, and the score they give.

    Title and breadcrumb come from a hint where one has them.
    """
    first = group[0]
    lane_ranks = best_ranks(item for member in group for item in member.lane_ranks)
    score = reciprocal_rank_fusion(lane_ranks, weights, k)
    if len(group) == 1:
        is_done = first.fused_score == score and len(first.lane_ranks) == len(lane_ranks) == 1
        return first if is_done else replace(first, lane_ranks=lane_ranks, fused_score=score)
    titled = next((member for member in group if member.layer is Layer.L0 and member.title), first)
    return replace(
        first,
        title=titled.title,
        breadcrumb=titled.breadcrumb or first.breadcrumb,
        lane_ranks=lane_ranks,
        fused_score=score,
        layers=tuple(sorted({layer for member in group for layer in (member.layers or (member.layer,))})),
        hit_reasons=tuple(dict.fromkeys(reason for member in group for reason in member.hit_reasons)),
        relevance=max(member.relevance for member in group),
        is_protected=any(member.is_protected for member in group),
    )


def with_ranks(fused: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with their places, counted from 1."""
    return [replace(candidate, fused_rank=rank) for rank, candidate in enumerate(fused, 1)]


def fused_order(candidate: Candidate) -> tuple[float, str, str]:
    """Sort key of the fused order: score descending, then kind and key."""
    return (-candidate.fused_score, *candidate.identity)


def _lane_order(candidate: Candidate) -> tuple[int, str, tuple[str, ...]]:
    best = min(candidate.lane_ranks, key=lambda item: (item.rank, item.lane), default=None)
    return (best.rank, best.lane, candidate.hit_reasons) if best else (2**31, "", candidate.hit_reasons)


@dataclass(frozen=True, slots=True)
class Combination:
    """Fused scores and what gave them: the words' part, what BM25 was divided by, what a cosine of 1 is worth."""

    fused: list[float]
    words: list[float]
    scale: float
    cosine_weight: float

    def of(self, bm25: float, cosine: float) -> float:
        """Return the score that a further passage has."""
        return (bm25 / self.scale if self.scale else 0.0) + self.cosine_weight * cosine


def linear_combination(
    lexical: Sequence[float], cosines: Sequence[float | None], cosine_weight: float | None, heads: Sequence[bool]
) -> Combination:
    """Score passages that two lanes scored: ``bm25 / sqrt(30 * max bm25) + cosine_weight * cosine``.

    A convex combination (Bruch, Gai and Ingber, TOIS 2023) up to a factor, in which the words of a question
    count the more the more they can tell, and the meaning does not depend on what else was found. None for
    the weight lets the cosines of the ``heads`` span as much as the words do. What is taken from the data is
    taken from the heads, so what else was asked for moves no score. A passage without a vector is taken to
    mean as much as its words say.
    """
    most = max((score for score, is_head in zip(lexical, heads, strict=True) if is_head), default=0.0)
    known = [cosine for cosine, is_head in zip(cosines, heads, strict=True) if is_head and cosine is not None]
    least, best = min(known, default=0.0), max(known, default=0.0)
    scale = math.sqrt(most * TYPICAL_BM25)
    words = [score / scale if scale else 0.0 for score in lexical]
    weight = cosine_weight
    if weight is None:
        weight = (max(words, default=0.0) or 1.0) / (best - least) if best > least else 0.0
    meant = (
        cosine if cosine is not None else least + (best - least) * (score / most if most else 0.0)
        for score, cosine in zip(lexical, cosines, strict=True)
    )
    fused = [share + weight * cosine for share, cosine in zip(words, meant, strict=True)]
    return Combination(fused, words, scale, weight)


def with_neighbours(score: float, neighbours: Sequence[float]) -> float:
    """Return the score of a cue: its own, and in part that of the better of the cues before and after it."""
    return (1 - NEIGHBOUR_SHARE) * score + NEIGHBOUR_SHARE * max(neighbours) if neighbours else score


def second_hop(
    scores: Sequence[float], combination: Combination, cosines: Sequence[float | None], first: int
) -> list[float]:
    """Return the scores after a second search, whose question has the text of the passage ``first`` added to it.

    ``scores`` and ``combination`` are of the first round, ``cosines`` of the longer question, None for what it
    did not find. What it found enters ``HOP_OFFSET`` below the first passage at the highest, and no passage
    loses: each keeps the better of its scores.
    """
    hops = {
        at: combination.words[at] + combination.cosine_weight * cosine
        for at, cosine in enumerate(cosines)
        if cosine is not None and at != first
    }
    shift = scores[first] - HOP_OFFSET - max(hops.values(), default=0.0)
    return [max(score, hops[at] + shift) if at in hops else score for at, score in enumerate(scores)]
