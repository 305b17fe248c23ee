"""The benchmarks behind docs/benchmarks.md: ``python -m strata.evaluate.bench`` (``make bench``).

Quality over judged sets next to bm25s in the same run, and evidence packages on the multi-hop sets; the time of one
assembly; then latency, throughput, ingest and memory on one context that grows through the sizes asked for, made of
the sets' own text.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec
import uvloop
from rich.console import Console

from strata.evaluate import report
from strata.evaluate.budgeted import BudgetMeasure, BudgetReport
from strata.evaluate.fit import LevelsReport, judge_fits
from strata.evaluate.metrics import percentile
from strata.evaluate.packages import PackageCoverage, PackageMeasure
from strata.evaluate.pool import PoolTimes, measure_pool
from strata.evaluate.quality import Quality, quality
from strata.evaluate.remix import Corpus
from strata.evaluate.samples import MOST
from strata.evaluate.scale import CONTEXT, Memory, Row, Scale, Statements, Subject, VectorSource, memory_of
from strata.evaluate.service import EvaluateService
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.logging import setup_logging
from strata.services import Services, compose, open_services
from strata.settings import Settings, load_settings

COVERED = ("hotpotqa_100", "musique_100")
"""The sets whose questions need several documents."""

_TELL_SECONDS = 10.0

_err = Console(stderr=True)


class Results(msgspec.Struct, kw_only=True, rename="camel"):
    """Everything that one run measured; what was not asked for is empty."""

    quality: list[Quality] = []
    packages: list[PackageCoverage] = []
    budgeted: BudgetReport | None = None
    pool: PoolTimes | None = None
    relevance: LevelsReport | None = None
    memory: Memory | None = None
    scale: list[Row] = []
    isolation_us: tuple[float, float] = (0.0, 0.0)


def judged_sets(data: Path, names: str = "") -> list[Path]:
    """Return the folders below ``data`` in BEIR layout, by name; only those that ``names`` lists, by comma."""
    found = sorted(p for p in data.iterdir() if all((p / n).is_file() for n in ("corpus.jsonl", "queries.jsonl")))
    return [path for path in found if not names or path.name in names.split(",")]


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


def markdown(results: Results, settings: Settings) -> str:
    """Return the tables as Markdown."""
    parts = [report.heading()]
    if results.quality:
        parts.append(report.quality_tables(results.quality))
    parts += [report.package_table(item) for item in results.packages]
    if results.budgeted is not None:
        parts.append(report.budget_tables(results.budgeted))
    if results.pool is not None:
        parts.append(report.pool_table(results.pool))
    if results.relevance is not None:
        parts.append(report.relevance_tables(results.relevance))
    if results.scale:
        parts.append(report.scale_tables(results.scale, results.memory, settings.vector_exact_limit))
    bare, held = results.isolation_us
    parts.append(f"One read in a bare transaction: {bare:.0f} µs; in a unit of work: {held:.0f} µs.")
    return "\n\n".join(part.strip() for part in parts) + "\n"


async def run(options: argparse.Namespace) -> None:
    """Run what was asked for and print it; ``--json`` for machines."""
    with _own_home(load_settings(), is_fresh=options.fresh) as settings:
        setup_logging(settings)
        results = await _run(options, settings)
    if options.json:
        Console().print_json(msgspec.json.encode(results).decode())
    else:
        print(markdown(results, settings))  # noqa: T201 - the output of the command


@contextmanager
def _own_home(settings: Settings, *, is_fresh: bool) -> Iterator[Settings]:
    """Give the benchmarks an embedded server of their own: they fill it, vacuum it and load it.

    It stays, so that a repeat finds the judged sets taken in and embedded.
    """
    if settings.database_url is not None:
        yield settings
        return
    home = settings.home / "bench"
    if is_fresh:
        shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True, exist_ok=True)
    # The server may run as another user, who must be able to enter.
    home.chmod(0o755)
    yield msgspec.structs.replace(settings, home=home)


async def _run(options: argparse.Namespace, settings: Settings) -> Results:
    directories = judged_sets(options.data, options.sets)
    is_part = options.packages or options.budgets
    sizes = [] if is_part else [int(size) for size in options.sizes.split(",") if size]
    results = Results()
    async with open_services(settings) as opened:
        results.memory = await memory_of(opened.embedders)
        results.isolation_us = await isolation(opened.database)
        if not options.budgets:
            results.pool = measure_pool()
        evaluate = EvaluateService(opened.contexts, opened.sources, opened.lookup, opened.embeddings, opened.embedders)
        tell = _Teller()
        if not options.no_quality and not options.budgets:
            results.packages = await _packages(opened, settings, directories, options.questions, tell)
        if not options.no_quality and not options.packages:
            results.budgeted = await _budgeted(opened.database.dsn, settings, options.linked, tell)
        if not options.no_quality and not is_part:
            for directory in directories:
                results.quality += await quality(
                    evaluate, DEFAULT_TENANT, directory, covered=COVERED, most=options.questions, progress=tell
                )
                _err.print(results.quality[-1])
            results.relevance = await judge_fits(
                evaluate, DEFAULT_TENANT, directories, settings, most=options.questions or MOST, progress=tell
            )
        if sizes:
            vectors = cast("VectorSource", "none" if settings.embeddings == "none" else options.vectors)
            corpus = Corpus(directories)
            results.scale = await _scale(opened.database.dsn, settings, corpus, sizes, vectors)
    return results


async def _packages(
    opened: Services, settings: Settings, directories: Sequence[Path], questions: int | None, tell: _Teller
) -> list[PackageCoverage]:
    words = compose(msgspec.structs.replace(settings, embeddings="none"), opened.database)
    measure = PackageMeasure(
        contexts=opened.contexts,
        exchange=opened.exchange,
        embeddings=opened.embeddings,
        embedders=opened.embedders,
        passages=opened.passages,
        words=words.passages,
        assembly=opened.assembly,
    )
    try:
        return [
            await measure.run(DEFAULT_TENANT, directory, most=questions, progress=tell)
            for directory in directories
            if directory.name in COVERED
        ]
    finally:
        await words.close()


async def _budgeted(dsn: str, settings: Settings, folder: Path, tell: _Teller) -> BudgetReport:
    database = Statements(dsn, settings)
    # Each question is embedded anew, as one that was not asked before.
    services = compose(msgspec.structs.replace(settings, embeddings_cache_entries=0), database)
    try:
        measure = BudgetMeasure(services.contexts, services.sources, services.embeddings, services.lookup, database)
        return await measure.run(DEFAULT_TENANT, folder, progress=tell)
    finally:
        await services.close()
        await database.close()


async def _scale(
    dsn: str, settings: Settings, corpus: Corpus, sizes: Sequence[int], vectors: VectorSource
) -> list[Row]:
    # Each question is embedded anew at every size, as one that was not asked before.
    asking = msgspec.structs.replace(
        settings, embeddings_cache_entries=0, embeddings="none" if vectors == "none" else settings.embeddings
    )
    filling = asking if vectors in {"real", "mixed"} else msgspec.structs.replace(asking, embeddings="none")
    database = Statements(dsn, settings)
    fill, ask = compose(filling, database), compose(asking, database)
    try:
        await _without_context(ask)
        subject = Subject(
            database=database,
            sources=fill.sources,
            lookup=ask.lookup,
            embedders=ask.embedders,
            embed=lambda context: fill.embeddings.run(DEFAULT_TENANT, context),
            exact_limit=settings.vector_exact_limit,
            folder=settings.home / "bench-vectors",
        )
        scale = Scale(subject, corpus, vectors)
        rows = await scale.run(sizes, _err.print)
        await _without_context(ask)
        await scale.close()
    finally:
        await fill.close()
        await ask.close()
        await database.close()
    return rows


async def _without_context(services: Services) -> None:
    """Delete what an earlier run left."""
    if CONTEXT in {view.name for view in (await services.contexts.list(DEFAULT_TENANT)).contexts}:
        await services.contexts.delete(DEFAULT_TENANT, CONTEXT)


class _Teller:
    """Tells on standard error how a stage stands: when it is done, and every ten seconds."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if done == total or time.monotonic() - self._told > _TELL_SECONDS:
            self._told = time.monotonic()
            _err.print(f"{stage}: {done:,} of {total:,}")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m strata.evaluate.bench", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of judged sets in BEIR layout")
    parser.add_argument("--sets", default="", help="only these sets, by comma")
    parser.add_argument(
        "--questions", type=int, help="at most so many of each set, the same ones each time; all unless given"
    )
    parser.add_argument("--sizes", default="10000,100000,1000000", help="passages to grow through; empty for none")
    parser.add_argument(
        "--vectors",
        choices=("real", "mixed", "synthetic", "none"),
        default="synthetic",
        help="what the scale part compares; mixed is real up to 100,000 passages, half an hour on two cores",
    )
    parser.add_argument("--no-quality", action="store_true", help="latency only")
    parser.add_argument("--packages", action="store_true", help="evidence packages and the time of one assembly only")
    parser.add_argument("--budgets", action="store_true", help="budgeted lookups on the linked corpus only")
    parser.add_argument(
        "--linked", type=Path, default=Path("tests/data/linked"), help="the linked corpus with its questions"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs took in and embedded")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of Markdown")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
