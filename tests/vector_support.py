"""One context with vectors, its index, and what a search of it should find."""

from __future__ import annotations

from uuid import uuid4

import msgspec
import numpy as np

from strata.lanes.vector import index_repository, repository
from strata.lanes.vector.index import SpaceRef, VectorIndex
from strata.lanes.vector.tuning import search_settings
from strata.platform.ids import DEFAULT_TENANT

SPACE = 41
PER_SOURCE = 4


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def made(count, dimension=32, seed=0):
    """Clustered unit vectors, and questions beside some of them."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(1, count // 100), dimension))
    rows = unit(centres[rng.integers(0, len(centres), count)] + 0.5 * rng.standard_normal((count, dimension)))
    return rows, unit(rows[:: max(1, count // 50)][:50] + 0.1 * rng.standard_normal((min(50, count), dimension)))


def passage(place):
    return ((place // PER_SOURCE + 1) << 20) | place % PER_SOURCE


def ids(count):
    return [passage(place) for place in range(count)]


class Lane:
    """One context with vectors in it."""

    def __init__(self, database, settings, **changes):
        self.database = database
        self.settings = msgspec.structs.replace(settings, **changes)
        self.context = uuid4()
        self.rows = np.zeros((0, 0), np.float32)

    async def fill(self, rows, space=SPACE, tenant=DEFAULT_TENANT):
        self.rows = rows
        async with self.database.work(tenant) as connection:
            return await repository.insert_vectors(connection, tenant, self.context, space, ids(len(rows)), rows)

    async def build(self, **options):
        async with self.database.owner() as owner:
            return await index_repository.create_index(
                owner, SPACE, self.rows.shape[1], vectors=len(self.rows), **options
            )

    async def state(self):
        async with self.database.owner() as owner:
            return await index_repository.index_state(owner, SPACE)

    async def delete(self, *serials):
        async with self.database.work(DEFAULT_TENANT) as connection:
            return await repository.delete_vectors(connection, DEFAULT_TENANT, self.context, serials)

    async def search(
        self, query, *, exact_limit=None, indexed=True, tenant=DEFAULT_TENANT, local=None, timeout=None, k=10, **options
    ):
        limit = self.settings.vector_exact_limit if exact_limit is None else exact_limit
        settings = msgspec.structs.replace(self.settings, vector_exact_limit=limit)
        space = options.pop("space", SpaceRef(SPACE, self.rows.shape[1], len(self.rows), indexed))
        own = {**search_settings(settings), **(local or {})}
        async with self.database.work(tenant, snapshot=True, local=own, timeout_seconds=timeout) as connection:
            return await VectorIndex(settings).search(connection, tenant, self.context, space, query, k=k, **options)


def found(hits):
    return [hit.passage_id for hit in hits.hits]


def truth(rows, query, k, places=None):
    among = np.arange(len(rows)) if places is None else np.asarray(places)
    order = np.argsort(-(rows[among] @ query), kind="stable")[:k]
    return [passage(int(among[at])) for at in order]
