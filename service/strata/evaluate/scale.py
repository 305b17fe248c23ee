"""Latency, throughput, ingest and memory on one context that grows through the sizes asked for."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from strata.evaluate import scale_repository as repository
from strata.evaluate.metrics import percentile
from strata.evaluate.remix import Corpus, SyntheticVectors, base_vectors
from strata.evaluate.watch import LoopWatch, PartTimes, part_times, resident_mib
from strata.lanes.vector.index_repository import create_index, drop_index
from strata.lanes.vector.repository import insert_vectors
from strata.lookup.schemas import MAX_QUERY_CHARS, LookupRequest
from strata.lookup.service import Caller, LookupService
from strata.platform.database import Connection, Database
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.server import tune_garbage_collection
from strata.providers.embeddings.base import Embedder
from strata.providers.embeddings.embedders import Embedders
from strata.sources.service import SourceService
from strata.traces.schemas import Surface

CONTEXT = "benchmark-scale"
AGENT = "strata-bench"
CLIENTS = (1, 4, 16)
INSERT = 2_000

VectorSource = Literal["real", "mixed", "synthetic", "none"]

REAL_PASSAGES = 100_000
"""As far as ``mixed`` embeds; beyond, vectors are synthetic."""


Call: TypeAlias = tuple[str, str, tuple[Any, ...]]
"""Method of the connection, statement, arguments."""


class Row(msgspec.Struct, kw_only=True, rename="camel"):
    """Latency and throughput of one size of the context; parts are of the lookups timed.

    The part ``embed_query`` is what a lookup waits for its vector; ``embed_p50_ms`` and ``embed_p95_ms`` are the
    embedder by itself.
    """

    passages: int
    vectors: int
    vector_source: VectorSource
    ingest_passages_per_second: float
    vectors_per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    parts_p50_ms: dict[str, float]
    parts_p95_ms: dict[str, float]
    lookups_per_second: dict[int, float]
    bare_sql_p50_ms: float
    ratio_to_bare_sql: float
    trace_share: float
    loop_held_ms: float
    embed_p50_ms: float
    embed_p95_ms: float
    rss_mib: int


class Memory(msgspec.Struct, kw_only=True, rename="camel"):
    """Resident memory of this process (MiB) before and after the embedder answered its first question."""

    without_model_mib: int
    with_model_mib: int


class Statements(Database):
    """A database that notes what a unit of work asks, so that it can be asked again without us."""

    log: list[Call] | None = None

    @asynccontextmanager
    async def work(self, *args: Any, **options: Any) -> AsyncIterator[Connection]:
        """Open the unit of work with a connection that notes its queries."""
        async with super().work(*args, **options) as connection:
            yield connection if self.log is None else _Noting(connection, self.log)


class _Noting:
    def __init__(self, connection: Any, log: list[Call]) -> None:
        self._connection = connection
        self._log = log

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._connection, name)

        def noted(query: str, *args: Any, **options: Any) -> Any:
            self._log.append((name, query, args))
            return method(query, *args, **options)

        return noted if name.startswith(("fetch", "execute")) else method


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured. ``sources`` embeds what it takes in only where the vectors are to be real ones."""

    database: Statements
    sources: SourceService
    lookup: LookupService
    embedders: Embedders
    embed: Callable[[str], Awaitable[object]]
    exact_limit: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Rounds:
    """Questions asked before the clock starts, timed, and asked again as bare statements; seconds of throughput."""

    warm: int = 200
    timed: int = 600
    bare: int = 100
    seconds: float = 5.0


class Scale:
    """Grows one context and measures lookups at each size."""

    def __init__(self, subject: Subject, corpus: Corpus, vectors: VectorSource, rounds: Rounds | None = None) -> None:
        self._rounds = rounds or Rounds()
        self._subject = subject
        self._corpus = corpus
        self._source = vectors
        self._have = 0
        self._vectors = 0
        self._synthetic: SyntheticVectors | None = None
        self._space: int | None = None

    async def run(self, sizes: Sequence[int], seen: Callable[[Row], None]) -> list[Row]:
        """Return a row for each size, in order; ``seen`` is told of each as it comes."""
        rows: list[Row] = []
        for size in sizes:
            ingest_rate = await self._grow(size)
            vector_rate = await self._embed()
            async with self._subject.database.owner() as connection:
                await repository.vacuum(connection)
            rows.append(await self._measure(ingest_rate, vector_rate))
            seen(rows[-1])
        return rows

    async def close(self) -> None:
        """Drop the index that was built; the context is the caller's to delete."""
        if self._space is not None:
            async with self._subject.database.owner() as connection:
                await drop_index(connection, self._space)

    async def _grow(self, size: int) -> float:
        with tempfile.TemporaryDirectory(prefix="strata-bench-") as folder:
            path = Path(folder) / f"{size}.jsonl"
            await asyncio.to_thread(self._corpus.write, path, size - self._have)
            started = time.perf_counter()
            await self._subject.sources.ingest_paths(DEFAULT_TENANT, CONTEXT, [path])
            rate = (size - self._have) / (time.perf_counter() - started)
        self._have = size
        return rate

    async def _embed(self) -> float:
        """Give every passage its vector; return vectors a second, the index included."""
        if self._source == "none":
            return 0.0
        is_real = self._source == "real" or (self._source == "mixed" and self._have <= REAL_PASSAGES)
        if not is_real and self._synthetic is None:
            bases = await base_vectors(await self._embedder(), self._corpus, self._subject.folder)
            self._synthetic = SyntheticVectors(bases)
        started = time.perf_counter()
        before = self._vectors
        if is_real:
            await self._subject.embed(CONTEXT)
            self._vectors = self._have
        else:
            await self._insert_synthetic()
        return (self._vectors - before) / (time.perf_counter() - started)

    async def _insert_synthetic(self) -> None:
        assert self._synthetic is not None  # noqa: S101 - made before the clock started
        embedder = await self._embedder()
        database = self._subject.database
        async with database.work(DEFAULT_TENANT) as connection:
            context = await repository.context_id(connection, DEFAULT_TENANT, CONTEXT)
            space = await repository.active_space(connection, DEFAULT_TENANT, context, embedder.space)
        self._space = space
        async with database.owner() as connection:
            # Building anew is faster than adding to what stands, row by row.
            await drop_index(connection, space)
        after = -1
        while True:
            async with database.work(DEFAULT_TENANT) as connection:
                passages = await repository.bare_passages(
                    connection, DEFAULT_TENANT, context, space, after=after, limit=INSERT
                )
                if not passages:
                    break
                vectors = self._synthetic.take(len(passages))
                await insert_vectors(connection, DEFAULT_TENANT, context, space, passages, vectors)
                await repository.count_vectors(connection, DEFAULT_TENANT, context, space, len(passages))
            after = passages[-1]
            self._vectors += len(passages)
        await self._build_index(context, space, embedder.space.dimension)

    async def _embedder(self) -> Embedder:
        embedder = await self._subject.embedders.configured()
        assert embedder is not None  # noqa: S101 - checked where the options are read
        return embedder

    async def _build_index(self, context: UUID, space: int, dimension: int) -> None:
        is_wanted = self._vectors > self._subject.exact_limit
        async with self._subject.database.owner() as connection:
            if is_wanted:
                await create_index(connection, space, dimension, vectors=self._vectors)
        async with self._subject.database.work(DEFAULT_TENANT) as connection:
            await repository.mark_indexed(connection, DEFAULT_TENANT, context, space, is_indexed=is_wanted)

    async def _measure(self, ingest_rate: float, vector_rate: float) -> Row:
        rounds = self._rounds
        for query in self._questions(0, rounds.warm):
            await self._ask(query)
        tune_garbage_collection()
        held = LoopWatch()
        timed = self._questions(rounds.warm, rounds.timed)
        with part_times() as parts:
            times = [await self._timed(query, parts) for query in timed]
        # Of one caller: with several, a tick waits for all of their turns, not for one that holds the loop.
        loop_held = held.stop()
        throughput = {clients: await self._throughput(clients) for clients in CLIENTS}
        embedding = await self._embedding(self._questions(-rounds.bare, rounds.bare))
        ratio, bare = await self._bare_sql(self._questions(rounds.warm, rounds.bare))
        return Row(
            passages=self._have,
            vectors=self._vectors,
            vector_source=self._source,
            ingest_passages_per_second=round(ingest_rate),
            vectors_per_second=round(vector_rate),
            p50_ms=percentile(times, 50),
            p95_ms=percentile(times, 95),
            p99_ms=percentile(times, 99),
            parts_p50_ms=parts.percentiles(50),
            parts_p95_ms=parts.percentiles(95),
            lookups_per_second=throughput,
            bare_sql_p50_ms=bare,
            ratio_to_bare_sql=ratio,
            trace_share=round(parts.total("record") / sum(times), 3),
            loop_held_ms=loop_held,
            embed_p50_ms=percentile(embedding, 50),
            embed_p95_ms=percentile(embedding, 95),
            rss_mib=resident_mib(),
        )

    async def _embedding(self, queries: Sequence[str]) -> list[float]:
        """Return how long each question takes to embed by itself, in milliseconds."""
        if self._source == "none":
            return []
        embedder = await self._embedder()
        times = []
        for query in queries:
            started = time.perf_counter()
            await embedder.embed_query(query)
            times.append((time.perf_counter() - started) * 1000)
        return times

    async def _ask(self, query: str) -> None:
        request = LookupRequest(query=query[:MAX_QUERY_CHARS], context=CONTEXT, agent_id=AGENT)
        await self._subject.lookup.lookup(DEFAULT_TENANT, request, Caller(Surface.CLI))

    async def _timed(self, query: str, parts: PartTimes) -> float:
        parts.begin()
        started = time.perf_counter()
        await self._ask(query)
        return (time.perf_counter() - started) * 1000

    def _questions(self, first: int, count: int) -> list[str]:
        """Return so many questions from one on; where there are too few, they come round again."""
        queries = self._corpus.queries
        return [queries[at % len(queries)] for at in range(first, first + count)]

    async def _throughput(self, clients: int) -> float:
        """Return lookups per second with that many callers in this process."""
        queries = self._questions(self._rounds.warm + self._rounds.timed, len(self._corpus.queries))
        deadline = time.perf_counter() + self._rounds.seconds
        done = 0

        async def caller(offset: int) -> None:
            nonlocal done
            at = offset
            while time.perf_counter() < deadline:
                await self._ask(queries[at % len(queries)])
                at += clients
                done += 1

        started = time.perf_counter()
        await asyncio.gather(*(caller(number) for number in range(clients)))
        return round(done / (time.perf_counter() - started), 1)

    async def _bare_sql(self, queries: Sequence[str]) -> tuple[float, float]:
        """Return the ratio of a whole lookup to its own statements asked bare, and the latter's median (ms)."""
        database = self._subject.database
        whole: list[float] = []
        bare: list[float] = []
        for query in queries:
            log: list[Call] = []
            database.log = log
            started = time.perf_counter()
            await self._ask(query)
            whole.append((time.perf_counter() - started) * 1000)
            database.log = None
            reads = [call for call in log if not call[1].lstrip().upper().startswith("INSERT")]
            started = time.perf_counter()
            async with database.work(DEFAULT_TENANT, snapshot=True) as connection:
                for method, text, args in reads:
                    await getattr(connection, method)(text, *args)
            bare.append((time.perf_counter() - started) * 1000)
        return round(percentile(whole, 50) / percentile(bare, 50), 2), percentile(bare, 50)


async def memory_of(embedders: Embedders) -> Memory:
    """Return what the embedder adds to this process; for before anything was embedded."""
    before = resident_mib()
    embedder = await embedders.configured()
    if embedder is not None:
        await embedder.embed_query("How much memory does a question take?")
    return Memory(without_model_mib=before, with_model_mib=resident_mib())
