"""The passages that lanes nominated for one question: true scores, ranks, and the order that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from strata.evidence.fusion import linear_combination, second_hop
from strata.evidence.model import LaneRank
from strata.lookup.candidates import HOP, HYBRID, LEXICAL, VECTOR

HEAD = 48
"""Passages of each lane that set the scale of the fusion and come first in it, however many are asked for."""


class Scored(Struct, frozen=True):
    """A passage with its true score in both lanes, and its rank (from 1) in those that nominated it.

    ``order`` is the place of its context among those asked; ``bm25`` is 0 where it holds no term,
    ``ideal`` the most that a passage of its context could score on the question, ``cosine`` None where it
    has no vector, ``coverage`` the share of the question's idf mass that it holds.
    """

    order: int
    context: UUID
    passage: int
    bm25: float
    ideal: float
    cosine: float | None
    coverage: float
    lexical_rank: int | None = None
    vector_rank: int | None = None
    hop_rank: int | None = None

    @property
    def is_head(self) -> bool:
        """Whether it is among the first of a lane."""
        ranks = (self.lexical_rank, self.vector_rank, self.hop_rank)
        return any(rank is not None and rank <= HEAD for rank in ranks)


class CandidateSignals(Struct, frozen=True):
    """What the lanes know of a passage of one source."""

    source: str
    scored: Scored


class Pool:
    """The passages of one search with their fused scores. ``by_words`` False leaves words out of those."""

    def __init__(self, scored: Sequence[Scored], cosine_weight: float | None, *, by_words: bool) -> None:
        self.scored = list(scored)
        self.combination = linear_combination(
            [item.bm25 if by_words else 0.0 for item in scored],
            [item.cosine for item in scored],
            cosine_weight,
            [item.is_head for item in scored],
        )
        self.fused = self.combination.fused

    def places(self) -> list[int]:
        """Return the places of the passages, best first.

        What only a deeper search nominates comes after the heads: it must not change who is first.
        """
        scored, fused = self.scored, self.fused
        return sorted(
            range(len(scored)),
            key=lambda at: (not scored[at].is_head, -fused[at], scored[at].order, scored[at].passage),
        )


def with_hop(
    pool: Pool,
    first: int,
    found: Sequence[tuple[Scored, int]],
    cosines: Mapping[tuple[UUID, int], float],
    cosine_weight: float | None,
) -> Pool:
    """Return the pool with what a second hop found, each with its rank there, and the scores that follow."""
    ranks = {(item.context, item.passage): rank for item, rank in found}
    scored = [replace(item, hop_rank=ranks.pop((item.context, item.passage), None)) for item in pool.scored]
    scored += [replace(item, hop_rank=rank) for item, rank in found if (item.context, item.passage) in ranks]
    longer = Pool(scored, cosine_weight, by_words=True)
    longer.fused[: len(pool.fused)] = pool.fused
    hop = [cosines.get((item.context, item.passage)) for item in scored]
    longer.fused = second_hop(longer.fused, longer.combination, hop, first)
    return longer


def ranks_of(union: Sequence[Scored], score: Callable[[Scored], float | None], most: int) -> dict[int, int]:
    """Return the rank of the passages that have a score, by their place in the union; ``most`` of them."""
    known = [
        (-value, item.order, item.passage, at) for at, item in enumerate(union) if (value := score(item)) is not None
    ]
    return {at: rank for rank, (_, _, _, at) in enumerate(sorted(known)[:most], 1)}


def places_of(item: Scored, score: float, rank: int | None) -> tuple[LaneRank, ...]:
    """Return the places of a passage in the lanes, the fused one first where both ran."""
    places = [] if rank is None else [LaneRank(HYBRID, rank, score)]
    if item.lexical_rank is not None:
        places.append(LaneRank(LEXICAL, item.lexical_rank, item.bm25))
    if item.vector_rank is not None:
        places.append(LaneRank(VECTOR, item.vector_rank, item.cosine or 0.0))
    if item.hop_rank is not None:
        places.append(LaneRank(HOP, item.hop_rank))
    return tuple(places)
