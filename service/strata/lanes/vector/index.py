"""Search the vectors of a context: by index where the space is large, exactly where few rows are eligible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import numpy as np

from strata.errors import EMBEDDING_REFUSED, StrataError
from strata.lanes.vector import repository
from strata.platform.database import Connection
from strata.providers.embeddings.base import Vectors
from strata.settings import Settings


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
        rows = space.vectors if eligible is None else min(space.vectors, eligible.passages)
        serials = None if eligible is None else eligible.serials
        where = (connection, tenant, context, space.space_id, numbers)
        plan = Plan.EXACT
        if space.is_indexed and rows > self._exact_limit and (serials is None or len(serials)):
            found = await repository.nearest_indexed(*where, k=wanted, also=also, serials=serials)
            if not found.has_index or len(found.nearest) >= min(wanted, rows):
                plan = Plan.INDEX if found.has_index else Plan.EXACT
                return _hits(found, also, wanted, plan)
            plan = Plan.FALLBACK
        found = await repository.nearest_exact(*where, k=wanted, also=also, serials=serials)
        return _hits(found, also, wanted, plan)


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
