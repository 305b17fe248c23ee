"""Search the vectors of a context: by index where the space is large, exactly where few rows are eligible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import numpy as np

from strata.errors import EMBEDDING_REFUSED, StrataError
from strata.lanes.vector import repository
from strata.lanes.vector.repository import Serials
from strata.lanes.vector.tuning import MAX_EF_SEARCH, MAX_SCAN_TUPLES
from strata.platform.database import Connection
from strata.providers.embeddings.base import Vectors
from strata.settings import Settings

_LEAST, _SPARE = 64, 16
"""At least so many rows, and so many beyond those wanted, are asked of the index: it gives them out of order."""

# Microseconds of one core at 384 dimensions (python -m strata.evaluate.vectors); only what they are to each other
# matters.
_ROW_COST = 0.4
_RANGE_COST = 3.0
_VISIT_COST = 3.0
_VISITS_PER_ROW = 2.5
_CAUTION = 3


@dataclass(frozen=True, slots=True)
class SpaceRef:
    """The space to search: its id, how long its vectors are, how many there are, and whether an index stands."""

    space_id: int
    dimension: int
    vectors: int
    is_indexed: bool


@dataclass(frozen=True, slots=True)
class Eligible:
    """The sources that a filter left, by serial, and how many passages they hold together."""

    serials: Sequence[int]
    passages: int


class Plan(StrEnum):
    """How a search was answered; ``FALLBACK``: the index gave fewer than there are, so all were compared."""

    EXACT = "exact"
    INDEX = "index"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class VectorHit:
    """One passage and its cosine with the query."""

    passage_id: int
    cosine: float


@dataclass(frozen=True, slots=True)
class VectorHits:
    """The result of one search, best first, equal cosines by ascending passage id.

    ``also`` holds the cosine of each further passage asked for, in that order, None where it has no vector.
    """

    hits: Sequence[VectorHit]
    also: Sequence[float | None]
    plan: Plan

    @property
    def is_exact(self) -> bool:
        """Whether every eligible vector was compared, so that nothing nearer can be missing."""
        return self.plan is not Plan.INDEX


class VectorIndex:
    """Searches; holds no state but the settings."""

    def __init__(self, settings: Settings) -> None:
        self._exact_limit = settings.vector_exact_limit
        self._ef_search = settings.vector_ef_search

    async def search(
        self,
        connection: Connection,
        tenant: UUID,
        context: UUID,
        space: SpaceRef,
        query: Vectors,
        *,
        k: int,
        eligible: Eligible | None = None,
        also: Sequence[int] = (),
    ) -> VectorHits:
        """Return the ``k`` nearest passages, of the eligible sources only if given, and the cosines of ``also``.

        There are ``k`` hits unless fewer eligible passages have a vector. The unit of work should have been begun
        with :func:`~strata.lanes.vector.tuning.search_settings`. Raises ``embedding_refused`` for a query that is
        not of the space's dimension, not finite, or zero.
        """
        numbers = _checked(query, space.dimension)
        wanted = max(0, k)
        serials = None if eligible is None else repository.distinct(eligible.serials)
        rows = space.vectors if eligible is None else min(space.vectors, eligible.passages)
        where = (connection, tenant, context, space.space_id, numbers)
        visits = self._visits(space, rows, serials, wanted)
        plan = Plan.EXACT
        if visits:
            asked = max(wanted + _SPARE, _LEAST)
            found = await repository.nearest_indexed(
                *where, k=asked, also=also, serials=serials, ef_search=self._breadth(space.vectors), visits=visits
            )
            if not found.has_index:
                return _hits(found, also, wanted, Plan.EXACT)
            if len(found.nearest) >= min(wanted, rows):
                return _hits(found, also, wanted, Plan.INDEX)
            plan = Plan.FALLBACK
        found = await repository.nearest_exact(*where, k=wanted, also=also, serials=serials)
        return _hits(found, also, wanted, plan)

    def _breadth(self, vectors: int) -> int:
        """Return the ef_search for a space of that size: as set up to 100,000, that again for each tenfold."""
        return min(MAX_EF_SEARCH, round(self._ef_search * max(1.0, math.log10(max(1, vectors)) - 4)))

    def _visits(self, space: SpaceRef, rows: int, serials: Serials | None, k: int) -> int:
        """Return how many vectors the index may visit for a search, 0 to compare all that are eligible instead.

        A filter makes the index go on until enough eligible rows came by: for one that has nothing to do with the
        question that takes k * all / eligible rows, for one that keeps what is far from it many more. So the index
        is taken where it should cost a third of comparing, and given up where it has cost as much. It is not asked
        in a context of up to STRATA_VECTOR_EXACT_LIMIT vectors, and always where that is 0.
        """
        is_empty = not rows or (serials is not None and not len(serials))
        if is_empty or not space.is_indexed or space.vectors <= self._exact_limit:
            return 0
        if serials is None or not self._exact_limit:
            return MAX_SCAN_TUPLES
        ranges = 1 + int(np.count_nonzero(np.diff(serials) != 1))
        comparing = _ROW_COST * rows + _RANGE_COST * ranges
        going_on = _VISIT_COST * _VISITS_PER_ROW * max(k, _LEAST) * space.vectors / rows
        if _CAUTION * going_on > comparing:
            return 0
        return min(MAX_SCAN_TUPLES, int(comparing / _VISIT_COST))


def _checked(query: Vectors, dimension: int) -> list[float]:
    vector = np.asarray(query, np.float32).reshape(-1)
    if len(vector) != dimension:
        detail = f"The query has {len(vector)} dimensions, the vectors of the context have {dimension}."
        remedy = "Embed the query with the model of the context, or run `strata embeddings rebuild`."
        raise StrataError(EMBEDDING_REFUSED, detail, remedy=remedy)
    if not np.isfinite(vector).all():
        raise StrataError(EMBEDDING_REFUSED, "The vector of the query has NaN or infinity.")
    if not vector.any():
        raise StrataError(EMBEDDING_REFUSED, "The vector of the query is zero.")
    numbers: list[float] = vector.tolist()
    return numbers


def _hits(found: repository.Found, also: Sequence[int], k: int, plan: Plan) -> VectorHits:
    return VectorHits(
        [VectorHit(passage_id, 1 - distance) for passage_id, distance in found.nearest[:k]],
        [None if (distance := found.also.get(passage_id)) is None else 1 - distance for passage_id in also],
        plan,
    )
