"""Recall and latency of the vector lane against an exact search: ``python -m strata.evaluate.vectors``.

Vectors come from ``--vectors`` (a folder of .npz files, each with passages ``d`` and questions ``q`` of one set), from
``--data`` (judged sets in BEIR layout, embedded here), or are made: clusters of unit vectors. What is missing up to a
size is mixed from those at hand. The same arguments give the same vectors, questions and filters.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import numpy as np
import uvloop
from rich.console import Console

from strata.evaluate.vector_pool import Filter, clusters, embed, grow, make_filters, nearest, read_pool, recall
from strata.lanes.vector import index_repository, repository
from strata.lanes.vector.index import SpaceRef, VectorHits, VectorIndex
from strata.lanes.vector.tuning import search_settings
from strata.platform.database import Database
from strata.platform.dsn import with_database
from strata.platform.embedded import EmbeddedPostgres
from strata.platform.ids import DEFAULT_TENANT, SERIAL_BITS, new_id
from strata.platform.migrations import migrate
from strata.providers.embeddings.base import Vectors
from strata.settings import Settings, load_settings

SPACE = 1
DEPTHS = (10, 64)
_BATCH = 2_000
_err = Console(stderr=True)


class Row(msgspec.Struct, kw_only=True, rename="camel"):
    """One line of the table; ``rows`` is the least that any search returned, of those wanted."""

    vectors: int
    filter: str
    eligible: int
    ef_search: int
    recall_at_10: float
    recall_at_64: float
    p50_ms: float
    p95_ms: float
    rows: int
    plans: dict[str, int]


class Bench:
    """One size of one scratch context, filled, indexed and asked."""

    def __init__(self, database: Database, settings: Settings, vectors: Vectors, per_source: int) -> None:
        self._database = database
        self._settings = settings
        self._context = new_id()
        self._vectors = vectors
        places = np.arange(len(vectors))
        self._ids = ((places // per_source + 1) << SERIAL_BITS) | places % per_source
        self._places = dict(zip(self._ids.tolist(), places.tolist(), strict=True))

    async def fill(self) -> float:
        """Store the vectors; return how many a second."""
        started = time.perf_counter()
        for start in range(0, len(self._vectors), _BATCH):
            part = slice(start, start + _BATCH)
            async with self._database.work(DEFAULT_TENANT, timeout_seconds=600) as connection:
                await repository.insert_vectors(
                    connection, DEFAULT_TENANT, self._context, SPACE, self._ids[part].tolist(), self._vectors[part]
                )
        async with self._database.owner() as owner:
            await owner.execute("VACUUM (ANALYZE) passage_vector")
        return len(self._vectors) / (time.perf_counter() - started)

    async def build(self, *, workers: int, m: int, ef_construction: int) -> float:
        """Build the index; return the seconds."""
        started = time.perf_counter()
        async with self._database.owner() as owner:
            await index_repository.create_index(
                owner,
                SPACE,
                self._vectors.shape[1],
                vectors=len(self._vectors),
                workers=workers,
                m=m,
                ef_construction=ef_construction,
            )
        return time.perf_counter() - started

    async def index_bytes(self) -> int:
        """Return the size of the index on disk."""
        async with self._database.owner() as owner:
            return await index_repository.index_bytes(owner, SPACE)

    async def ask(self, chosen: Filter, questions: Vectors, ef_search: int, exact_limit: int) -> Row:
        """Ask every question twice, the first time to warm up, and compare with the truth."""
        settings = msgspec.structs.replace(
            self._settings, vector_ef_search=ef_search, vector_exact_limit=exact_limit, statement_timeout_seconds=120.0
        )
        truth = await asyncio.to_thread(nearest, self._vectors, questions, chosen.places, DEPTHS[-1])
        await self._searches(settings, chosen, questions)
        times, found = await self._searches(settings, chosen, questions)
        places = [[self._places[hit.passage_id] for hit in hits.hits] for hits in found]
        return Row(
            vectors=len(self._vectors),
            filter=chosen.name,
            eligible=len(self._vectors) if chosen.eligible is None else chosen.eligible.passages,
            ef_search=ef_search,
            recall_at_10=recall(places, truth, DEPTHS[0]),
            recall_at_64=recall(places, truth, DEPTHS[1]),
            p50_ms=round(float(np.percentile(times, 50)), 2),
            p95_ms=round(float(np.percentile(times, 95)), 2),
            rows=min(len(hits.hits) for hits in found),
            plans=dict(sorted(Counter(hits.plan.value for hits in found).items())),
        )

    async def _searches(
        self, settings: Settings, chosen: Filter, questions: Vectors
    ) -> tuple[list[float], list[VectorHits]]:
        index = VectorIndex(settings)
        space = SpaceRef(SPACE, self._vectors.shape[1], len(self._vectors), is_indexed=True)
        times: list[float] = []
        found: list[VectorHits] = []
        for question in questions:
            async with self._database.work(
                DEFAULT_TENANT, snapshot=True, timeout_seconds=120, local=search_settings(settings)
            ) as connection:
                started = time.perf_counter()
                hits = await index.search(
                    connection,
                    DEFAULT_TENANT,
                    self._context,
                    space,
                    question,
                    k=DEPTHS[-1],
                    eligible=chosen.eligible,
                )
                times.append((time.perf_counter() - started) * 1000)
            found.append(hits)
        return times, found


@asynccontextmanager
async def scratch_database(settings: Settings) -> AsyncIterator[Database]:
    """Make a database on the configured server, or on an embedded one of its own, and drop it afterwards."""
    with _server(settings) as dsn:
        name = f"strata_vectors_{os.getpid()}"
        server = Database(dsn, settings)
        async with server.owner() as owner:
            await owner.execute(f"CREATE DATABASE {name}")
        try:
            database = Database(with_database(dsn, name), settings)
            await migrate(database.dsn)
            try:
                yield database
            finally:
                await database.close()
        finally:
            async with server.owner() as owner:
                await owner.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _server(settings: Settings) -> Iterator[str]:
    if settings.database_url is not None:
        yield settings.database_url
        return
    home = Path(tempfile.mkdtemp(prefix="strata-vectors-"))
    # The server may run as another user, who must be able to enter.
    home.chmod(0o755)
    server = EmbeddedPostgres(home)
    try:
        yield server.acquire().dsn
    finally:
        server.release()
        shutil.rmtree(home, ignore_errors=True)


_HEAD = "| vectors | filter | eligible | ef_search | recall@10 | recall@64 | p50 ms | p95 ms | rows | answered by |"


def _line(row: Row) -> str:
    plans = ", ".join(f"{plan} {count}" for plan, count in row.plans.items())
    return (
        f"| {row.vectors:,} | {row.filter} | {row.eligible:,} | {row.ef_search} | {row.recall_at_10:.3f} "
        f"| {row.recall_at_64:.3f} | {row.p50_ms:.1f} | {row.p95_ms:.1f} | {row.rows} | {plans} |"
    )


async def run(options: argparse.Namespace) -> None:
    """Run what was asked for; a table on the output, progress beside it."""
    settings = load_settings()
    rng = np.random.default_rng(options.seed)
    if options.vectors is not None:
        pool = read_pool(options.vectors, rng)
    elif options.data is not None:
        pool = await embed(options.data, settings, options.per_set, rng)
    else:
        pool = clusters(min(50_000, max(options.sizes)), options.dimension, rng)
    questions = pool.questions[rng.permutation(len(pool.questions))[: options.questions]]
    print(f"Vectors: {pool.origin}; beyond them, mixes of neighbours with noise. {len(questions)} questions.\n")  # noqa: T201 - the output of the command
    print(f"{_HEAD}\n{'|---' * _HEAD.count(' | ')}|---|")  # noqa: T201
    for size in options.sizes:
        async with scratch_database(settings) as database:
            vectors = await asyncio.to_thread(grow, pool, size, rng)
            bench = Bench(database, settings, vectors, options.per_source)
            _err.print(f"{size:,}: stored at {await bench.fill():,.0f} vectors/s")
            built = await bench.build(workers=options.workers, m=options.m, ef_construction=options.ef_construction)
            _err.print(f"{size:,}: index built in {built:.1f} s")
            _err.print(f"{size:,}: index of {await bench.index_bytes() / 2**20:,.0f} MiB")
            filters = make_filters(options.filters, vectors, questions, options.per_source, rng)
            for chosen, limit, ef_search in itertools.product(filters, options.limits, options.ef_search):
                if ef_search != options.ef_search[0] and limit >= size:
                    continue
                print(_line(await bench.ask(chosen, questions, ef_search, limit)), flush=True)  # noqa: T201


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _shares(text: str) -> list[float]:
    return [float(part) / 100 for part in text.split(",") if part]


def main() -> None:
    """Parse the command line and run."""
    settings = load_settings()
    parser = argparse.ArgumentParser(prog="python -m strata.evaluate.vectors", description=__doc__)
    parser.add_argument("--sizes", type=_numbers, default=[100_000], help="numbers of vectors, by comma")
    parser.add_argument("--vectors", type=Path, help="folder of .npz files, each with arrays d and q")
    parser.add_argument("--data", type=Path, help="folder of judged sets in BEIR layout, embedded here")
    parser.add_argument("--per-set", type=int, default=2_000, help="documents embedded of each judged set")
    parser.add_argument("--filters", type=_shares, default=[0.01, 0.05, 0.2], help="eligible sources, in percent")
    parser.add_argument("--ef-search", type=_numbers, default=[settings.vector_ef_search])
    parser.add_argument(
        "--limits",
        type=_numbers,
        default=[settings.vector_exact_limit],
        help="compare all up to so many; 0: never",
    )
    parser.add_argument("--per-source", type=int, default=8, help="vectors of one source")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--dimension", type=int, default=384, help="of made vectors")
    parser.add_argument("--workers", type=int, default=1, help="parallel workers of the index build")
    parser.add_argument("--m", type=int, default=index_repository.M)
    parser.add_argument("--ef-construction", type=int, default=index_repository.EF_CONSTRUCTION)
    parser.add_argument("--seed", type=int, default=7)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
