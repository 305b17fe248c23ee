"""The benchmarks behind docs/benchmarks.md: ``python -m strata.evaluate.bench`` (``make bench``).

Quality over judged sets next to bm25s in the same run; then latency, throughput and ingest on one
context that grows through the sizes asked for, made of the sets' own text.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from rich.console import Console

from strata.evaluate.beir import JudgedSet, load_judged_set
from strata.evaluate.metrics import ndcg_at, recall_at
from strata.evaluate.rival import rival_for
from strata.evaluate.service import DEPTH, LANES, EvaluateService, LaneScores, percentile
from strata.lookup.schemas import MAX_QUERY_CHARS, LookupRequest
from strata.lookup.service import Caller
from strata.platform.database import Connection, Database
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.logging import setup_logging
from strata.platform.server import tune_garbage_collection
from strata.services import Services, compose, open_services
from strata.settings import Settings, load_settings
from strata.sources.readers import iter_beir
from strata.traces.schemas import Invocation, Surface

CONTEXT = "benchmark-scale"
WORDS_PER_PASSAGE = 110
CLIENTS = (1, 4, 16)

_err = Console(stderr=True)


class Row(msgspec.Struct, kw_only=True):
    """Latency and throughput of one size of the context."""

    passages: int
    ingest_passages_per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    lookups_per_second: dict[int, float]
    bare_sql_p50_ms: float
    ratio_to_bare_sql: float
    trace_share: float
    loop_held_ms: float


def judged_sets(data: Path) -> list[Path]:
    """Return the folders below ``data`` in BEIR layout, by name."""
    return sorted(p for p in data.iterdir() if all((p / n).is_file() for n in ("corpus.jsonl", "queries.jsonl")))


async def quality(services: Services, directory: Path) -> dict[str, dict[str, float]]:
    """Return nDCG@10 and recall@100 of bm25s and of each lane on one set."""
    evaluate = EvaluateService(services.contexts, services.sources, services.lookup)
    judged = load_judged_set(directory)
    by_language = len({query.lang for query in judged.queries}) > 1
    scores: dict[str, LaneScores] = await evaluate.beir(DEFAULT_TENANT, directory, lanes=LANES, by_language=by_language)
    found = {
        lane: {"ndcg@10": value.ndcg_at_10, "recall@100": value.recall_at_100, "queries": value.queries}
        for lane, value in scores.items()
    }
    return {"bm25s": _rival_scores(judged, by_language=by_language), **found}


def _rival_scores(judged: JudgedSet, *, by_language: bool) -> dict[str, float]:
    languages = {query.lang for query in judged.queries} if by_language else {None}
    rankings: dict[str, list[str]] = {}
    for language in sorted(languages, key=str):
        rival = rival_for(judged, language)
        for query in judged.queries:
            if language is None or query.lang == language:
                rankings[query.id] = rival.ranking(query, DEPTH)
    rows = [(rankings[q.id], judged.judgments[q.id]) for q in judged.queries]
    return {
        "ndcg@10": round(sum(ndcg_at(r, j, 10) for r, j in rows) / len(rows), 4),
        "recall@100": round(sum(recall_at(r, j, DEPTH) for r, j in rows) / len(rows), 4),
        "queries": len(rows),
    }


class Corpus:
    """Passages remixed from the sentences of judged sets, the same for the same seed."""

    def __init__(self, directories: Sequence[Path], seed: int = 7) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a benchmark wants the same numbers again
        self._sentences: list[str] = []
        self.queries: list[str] = []
        for directory in directories:
            for record in iter_beir(directory / "corpus.jsonl", []):
                self._sentences += [part for part in record.text.split(". ") if 20 < len(part) < 400]
            self.queries += [query.text for query in load_judged_set(directory).queries]
        self._random.shuffle(self.queries)
        self._made = 0

    def write(self, path: Path, passages: int) -> None:
        """Write that many more documents of one passage each, in BEIR layout."""
        with path.open("wb") as file:
            for _ in range(passages):
                parts: list[str] = []
                words = 0
                while words < WORDS_PER_PASSAGE:
                    sentence = self._random.choice(self._sentences)
                    parts.append(sentence)
                    words += max(1, len(sentence) // 6)
                title = " ".join(parts[0].split()[:6])
                record = {"_id": f"doc/{self._made:08}", "title": title, "text": ". ".join(parts)}
                file.write(msgspec.json.encode(record) + b"\n")
                self._made += 1


class _Statements(Database):
    """A database that notes what a unit of work asks, so that it can be asked again without us."""

    log: list[tuple[str, tuple[Any, ...]]] | None = None

    @asynccontextmanager
    async def work(self, *args: Any, **options: Any) -> AsyncIterator[Connection]:
        """Open the unit of work with a connection that notes its queries."""
        async with super().work(*args, **options) as connection:
            yield connection if self.log is None else _Noting(connection, self.log)


class _Noting:
    def __init__(self, connection: Any, log: list[tuple[str, tuple[Any, ...]]]) -> None:
        self._connection = connection
        self._log = log

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._connection, name)

        def noted(query: str, *args: Any, **options: Any) -> Any:
            self._log.append((query, args))
            return method(query, *args, **options)

        return noted if name.startswith(("fetch", "execute")) else method


async def scale(services: Services, database: _Statements, corpus: Corpus, sizes: Sequence[int]) -> list[Row]:
    """Grow one context through the sizes and measure lookups at each."""
    rows: list[Row] = []
    have = 0
    with tempfile.TemporaryDirectory(prefix="strata-bench-") as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.jsonl"
            await asyncio.to_thread(corpus.write, path, size - have)
            started = time.perf_counter()
            await services.sources.ingest_paths(DEFAULT_TENANT, CONTEXT, [path])
            rate = (size - have) / (time.perf_counter() - started)
            path.unlink()
            have = size
            async with database.owner() as connection:
                # Else autovacuum takes one of the cores while lookups are timed.
                await connection.execute("VACUUM (ANALYZE)")
            rows.append(await _measure(services, database, corpus.queries, size, rate))
            _err.print(rows[-1])
    return rows


async def _measure(services: Services, database: _Statements, queries: Sequence[str], size: int, rate: float) -> Row:
    for query in queries[:200]:
        await _ask(services, query)
    tune_garbage_collection()
    recorder = services.lookup._recorder  # noqa: SLF001 - timed in place, so that the share is of this very run
    trace = _timed_record(recorder)
    held = _LoopWatch()
    times = [await _timed(services, query) for query in queries[200:800]]
    trace_ms = trace.stop()
    # Of one caller: with several, a tick waits for all of their turns, not for one that holds the loop.
    loop_held = held.stop()
    throughput = {clients: await _throughput(services, queries, clients) for clients in CLIENTS}
    ratios, bare = await _bare_sql(services, database, queries[200:300])
    return Row(
        passages=size,
        ingest_passages_per_second=round(rate),
        p50_ms=percentile(times, 50),
        p95_ms=percentile(times, 95),
        p99_ms=percentile(times, 99),
        lookups_per_second=throughput,
        bare_sql_p50_ms=bare,
        ratio_to_bare_sql=ratios,
        trace_share=round(trace_ms / sum(times), 3),
        loop_held_ms=loop_held,
    )


async def _ask(services: Services, query: str) -> None:
    request = LookupRequest(query=query[:MAX_QUERY_CHARS], context=CONTEXT, agent_id="strata-bench")
    await services.lookup.lookup(DEFAULT_TENANT, request, Caller(Surface.CLI))


async def _timed(services: Services, query: str) -> float:
    started = time.perf_counter()
    await _ask(services, query)
    return (time.perf_counter() - started) * 1000


class _timed_record:  # noqa: N801 - used like a function
    """Adds up the time that the recorder takes, until stopped."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._spent = 0.0
        original = recorder.record

        async def record(invocation: Invocation, connection: Connection | None = None) -> None:
            started = time.perf_counter()
            await original(invocation, connection)
            self._spent += (time.perf_counter() - started) * 1000

        recorder.record = record

    def stop(self) -> float:
        """Return the milliseconds spent, and put the recorder back."""
        del self._recorder.record
        return self._spent


class _LoopWatch:
    """Notes the longest time for which the event loop ran nothing else."""

    STEP = 0.002

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._longest = 0.0
        self._due = self._loop.time() + self.STEP
        self._handle = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self._longest = max(self._longest, self._loop.time() - self._due)
        self._due = self._loop.time() + self.STEP
        self._handle = self._loop.call_at(self._due, self._tick)

    def stop(self) -> float:
        """Return the longest hold in milliseconds."""
        self._handle.cancel()
        return round(self._longest * 1000, 1)


async def _throughput(services: Services, queries: Sequence[str], clients: int, seconds: float = 5.0) -> float:
    """Return lookups per second with that many callers in this process."""
    deadline = time.perf_counter() + seconds
    done = 0

    async def caller(offset: int) -> None:
        nonlocal done
        at = offset
        while time.perf_counter() < deadline:
            await _ask(services, queries[at % len(queries)])
            at += clients
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(clients)))
    return round(done / (time.perf_counter() - started), 1)


async def _bare_sql(services: Services, database: _Statements, queries: Sequence[str]) -> tuple[float, float]:
    """Return the ratio of a whole lookup to its own statements asked bare, and the latter's median (ms)."""
    whole: list[float] = []
    bare: list[float] = []
    for query in queries:
        log: list[tuple[str, tuple[Any, ...]]] = []
        database.log = log
        started = time.perf_counter()
        await _ask(services, query)
        whole.append((time.perf_counter() - started) * 1000)
        database.log = None
        reads = [(text, args) for text, args in log if not text.lstrip().upper().startswith("INSERT")]
        started = time.perf_counter()
        async with database.work(DEFAULT_TENANT, snapshot=True) as connection:
            for text, args in reads:
                await connection.fetch(text, *args)
        bare.append((time.perf_counter() - started) * 1000)
    return round(percentile(whole, 50) / percentile(bare, 50), 2), percentile(bare, 50)


async def isolation(database: Database, rounds: int = 2000) -> tuple[float, float]:
    """Return the microseconds of one read in a bare transaction and in a unit of work, medians, in turn.

    The same statement on the same table: what differs is the role, the tenant, the limits, the
    pool and row-level security.
    """
    read = "SELECT context_id FROM context WHERE tenant_id = $1 AND name = $2"
    bare: list[float] = []
    held: list[float] = []
    async with database.owner() as connection:
        for _ in range(rounds):
            started = time.perf_counter()
            await connection.execute("BEGIN")
            await connection.fetch(read, DEFAULT_TENANT, CONTEXT)
            await connection.execute("COMMIT")
            bare.append((time.perf_counter() - started) * 1e6)
            started = time.perf_counter()
            async with database.work(DEFAULT_TENANT) as inside:
                await inside.fetch(read, DEFAULT_TENANT, CONTEXT)
            held.append((time.perf_counter() - started) * 1e6)
    return round(percentile(bare, 50)), round(percentile(held, 50))


_SCALE_HEAD = (
    "| passages | ingest passages/s | p50 ms | p95 ms | p99 ms | lookups/s at 1, 4, 16 clients "
    "| bare SQL p50 ms | whole / bare SQL | trace share | longest hold of the event loop ms |"
)


def _scale_row(row: Row) -> str:
    throughput = ", ".join(f"{value:.0f}" for value in row.lookups_per_second.values())
    return (
        f"| {row.passages:,} | {row.ingest_passages_per_second:,.0f} | {row.p50_ms} | {row.p95_ms} | {row.p99_ms} "
        f"| {throughput} | {row.bare_sql_p50_ms} | {row.ratio_to_bare_sql} | {row.trace_share:.1%} "
        f"| {row.loop_held_ms} |"
    )


def report(
    quality_rows: dict[str, dict[str, dict[str, float]]], rows: Sequence[Row], isolated: tuple[float, float]
) -> str:
    """Return the tables as Markdown."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    lines = [f"Machine: {machine}. Run of {time.strftime('%Y-%m-%d', time.gmtime())}.", ""]
    if quality_rows:
        lanes = ["bm25s", *LANES]
        lines += ["| set | questions | " + " | ".join(f"{lane} nDCG@10 | {lane} recall@100" for lane in lanes) + " |"]
        lines += ["|---|---|" + "---|---|" * len(lanes)]
        for name, values in quality_rows.items():
            cells = " | ".join(f"{values[lane]['ndcg@10']:.4f} | {values[lane]['recall@100']:.4f}" for lane in lanes)
            lines.append(f"| {name} | {values['lexical']['queries']} | {cells} |")
        lines.append("")
    if rows:
        lines += [
            _SCALE_HEAD,
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        lines += [_scale_row(row) for row in rows]
    lines += ["", f"One read in a bare transaction: {isolated[0]:.0f} µs; in a unit of work: {isolated[1]:.0f} µs."]
    return "\n".join(lines) + "\n"


async def run(options: argparse.Namespace) -> None:
    """Run what was asked for and print it; ``--json`` for machines."""
    with _own_home(load_settings()) as settings:
        setup_logging(settings)
        await _run(options, settings)


@contextmanager
def _own_home(settings: Settings) -> Iterator[Settings]:
    """Give the benchmarks an embedded server of their own: they fill it, vacuum it and load it."""
    if settings.database_url is not None:
        yield settings
        return
    home = Path(tempfile.mkdtemp(prefix="strata-bench-"))
    # The server may run as another user, who must be able to enter.
    home.chmod(0o755)
    try:
        yield msgspec.structs.replace(settings, home=home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _run(options: argparse.Namespace, settings: Settings) -> None:
    directories = judged_sets(options.data)
    if options.sets:
        directories = [path for path in directories if path.name in options.sets.split(",")]
    async with open_services(settings) as opened:
        database = _Statements(opened.database.dsn, settings)
        services = compose(settings, database)
        isolated = await isolation(database)
        quality_rows = {}
        for directory in directories if not options.no_quality else []:
            quality_rows[directory.name] = await quality(services, directory)
            _err.print(directory.name, quality_rows[directory.name])
        rows: list[Row] = []
        sizes = [int(size) for size in options.sizes.split(",") if size]
        if sizes:
            contexts = {view.name for view in (await services.contexts.list(DEFAULT_TENANT)).contexts}
            if CONTEXT in contexts:
                await services.contexts.delete(DEFAULT_TENANT, CONTEXT)
            rows = await scale(services, database, Corpus(directories), sizes)
            await services.contexts.delete(DEFAULT_TENANT, CONTEXT)
        await services.sources.close()
        await database.close()
    if options.json:
        Console().print_json(
            json.dumps(
                {"quality": quality_rows, "scale": msgspec.to_builtins(rows, str_keys=True), "isolationUs": isolated}
            )
        )
    else:
        print(report(quality_rows, rows, isolated))  # noqa: T201 - the output of the command


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m strata.evaluate.bench", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of judged sets in BEIR layout")
    parser.add_argument("--sets", default="", help="only these sets, by comma")
    parser.add_argument("--sizes", default="10000,100000,1000000", help="passages to grow through; empty for none")
    parser.add_argument("--no-quality", action="store_true", help="latency only")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of Markdown")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
