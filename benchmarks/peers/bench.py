"""Strata beside three libraries on the same Postgres, passages, vectors and embedder, in one run.

Each system runs in a process of its own; they take turns, so that what disturbs the machine disturbs
all alike.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import numpy as np
from rich.console import Console

from benchmarks.peers import corpus as corpora
from benchmarks.peers.corpus import Corpus, Floats, Question, document_of
from benchmarks.peers.pieces import read_set
from benchmarks.peers.process import ROOT, Worker, worker
from benchmarks.peers.report import Load, Row, markdown, mean
from strata.evaluate.metrics import ndcg_at, recall_at
from strata.lanes.vector.index_repository import EF_CONSTRUCTION, M
from strata.platform.dsn import with_database
from strata.platform.embedded import EmbeddedPostgres
from strata.providers.embeddings import e5
from strata.providers.embeddings.onnx import OnnxModel

# English alone: the peers' full-text search knows no words of scripts without spaces.
SETS = "scifact,foolmetwice,hotpotqa_100,musique_100,quotesum"
SYSTEMS = ("strata", "haystack", "llama-index", "langchain")
CLIENTS = (1, 4, 16)
TOP_K = 10
# The peers get the index that Strata builds.
HNSW = {"m": M, "ef_construction": EF_CONSTRUCTION}
WIDE = 50
EF_SEARCH = (40, 64, 100, 150, 200, 400, 800)
LEAST_RECALL = 0.95
# So close is equal: one passage of ten in two hundred questions.
EQUAL_RECALL = 0.005
QUERY_PREFIX = "query: "
PASSAGE_PREFIX = "passage: "
PEERS_DATABASE = "peers"

_err = Console(stderr=True)


@dataclass(slots=True)
class Contender:
    """One row of the report: a system in one configuration, with what was measured of it."""

    row: Row
    setup: dict[str, Any]
    times: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    rates: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    differing: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, mode: str, clients: int, found: dict[str, Any]) -> None:
        """Note one measurement."""
        key = (mode, clients)
        self.times.setdefault(key, []).extend(found["times"])
        self.rates.setdefault(key, []).append(round(found["per_second"], 1))
        self.differing[key] = self.differing.get(key, 0) + found["differing"]

    def loads(self, mode: str) -> list[Load]:
        """Return what was measured in one mode."""
        found = []
        for (of, clients), times in self.times.items():
            if of == mode:
                rounds = self.rates[of, clients]
                found.append(
                    Load(
                        clients=clients,
                        per_second=round(sum(rounds) / len(rounds), 1),
                        rounds=rounds,
                        p50_ms=percentile(times, 50),
                        p95_ms=percentile(times, 95),
                        p99_ms=percentile(times, 99),
                        calls=len(times),
                        differing=self.differing[of, clients],
                    )
                )
        return found


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile of milliseconds, to the hundredth."""
    return round(float(np.percentile(values, percent)), 2)


def build_corpus(options: argparse.Namespace, model: Path, folder: Path) -> Corpus:
    """Choose questions and passages, and embed both."""
    by_set: dict[str, list[Question]] = {}
    passages = []
    for name in options.sets.split(","):
        found, by_set[name] = read_set(options.data / name)
        passages += found
    questions = corpora.choose_questions(by_set, options.questions)
    chosen = corpora.choose_passages(passages, questions, options.passages)
    _err.print(f"{len(chosen):,} passages, {len(questions)} questions")
    texts = [PASSAGE_PREFIX + passage.content for passage in chosen]
    vectors = embed(model, texts + [QUERY_PREFIX + question.text for question in questions], options.vectors)
    return Corpus(folder, chosen, questions, vectors[: len(chosen)], vectors[len(chosen) :])


def embed(model: Path, texts: Sequence[str], kept: Path | None) -> Floats:
    """Return unit vectors, one for each text; ``kept`` names a file that saves embedding them again."""
    known: dict[bytes, Floats] = {}
    if kept is not None and kept.is_file():
        with np.load(kept) as stored:
            known = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))
    keys = [hashlib.sha256(f"{model.name}\0{text}".encode()).hexdigest().encode() for text in texts]
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if missing:
        encoder = OnnxModel(model)
        started = time.perf_counter()
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            vectors = threads.map(encoder.embed, missing.values())
            for done, (key, vector) in enumerate(zip(missing, vectors, strict=True), 1):
                known[key] = vector / np.linalg.norm(vector)
                if done % 1000 == 0:
                    _err.print(f"embedded {done:,} of {len(missing):,}, {done / (time.perf_counter() - started):.0f}/s")
    if kept is not None and missing:
        np.savez(kept, keys=np.array(list(known)), vectors=np.stack(list(known.values())))
    return np.stack([known[key] for key in keys]).astype(np.float32)


@contextmanager
def own_server() -> Iterator[tuple[Path, str]]:
    """Give a STRATA_HOME of this run and the address of the server in it; both are gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="strata-peers-"))
    # The server may run as another user, who must be able to enter.
    home.chmod(0o755)
    try:
        with EmbeddedPostgres(home) as server:
            yield home, server.acquire().dsn
    finally:
        shutil.rmtree(home, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Bench:
    """One run: what was asked for, the corpus on disk, and where each system finds its data."""

    options: argparse.Namespace
    corpus: Corpus
    model: Path
    addresses: dict[str, str]

    @property
    def setup(self) -> dict[str, Any]:
        """What every system is opened with."""
        return {
            "model": str(self.model),
            "query_prefix": QUERY_PREFIX,
            "top_k": TOP_K,
            "candidates": self.options.candidates,
            "clients": max(CLIENTS),
            "hnsw": HNSW,
        }

    def worker(self, system: str) -> AbstractAsyncContextManager[Worker]:
        """Start a process for a system."""
        return worker(system, self.options.peers_python, self.addresses[system], self.corpus.folder)


async def run(options: argparse.Namespace) -> None:
    """Prepare, load, compare and print."""
    with own_server() as (home, dsn), tempfile.TemporaryDirectory(prefix="strata-peers-") as name:
        model = await asyncio.to_thread(e5.prepare, home / "models")
        corpus = await asyncio.to_thread(build_corpus, options, model, Path(name))
        corpora.write(corpus)
        peers = with_database(dsn, PEERS_DATABASE)
        bench = Bench(options, corpus, model, dict.fromkeys(SYSTEMS, peers) | {"strata": str(home)})
        await create_database(dsn)
        chosen = options.systems.split(",")
        for system in chosen:
            async with bench.worker(system) as told:
                seconds = (await told.ask("load", **HNSW))["seconds"]
            _err.print(f"{system}: loaded in {seconds} s")
        about = about_run(options, corpus, await settle([dsn, peers]))
        contenders: list[Contender] = []
        wanted = LEAST_RECALL
        for system in chosen:
            async with bench.worker(system) as told:
                contenders += await configurations(bench, told, wanted)
            if system == "strata":
                wanted = max(wanted, contenders[-1].row.vector_recall - EQUAL_RECALL)
        for mode in ("computed", "given"):
            await measure(bench, contenders, mode)
    rows = [each.row for each in contenders]
    if options.json:
        options.json.write_bytes(msgspec.json.encode({"about": about, "rows": rows}))
    sys.stdout.write(markdown(rows, about))


def about_run(options: argparse.Namespace, corpus: Corpus, server: str) -> dict[str, str]:
    """Return what holds for every row."""
    return {
        "Machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "Server": server,
        "Corpus": f"{len(corpus.passages):,} passages, {len(corpus.questions)} questions of {options.sets}",
        "Load": f"{options.rounds} rounds of {options.seconds:g} s for each number of clients, the systems in turn",
        "Vectors": f"HNSW for all: m {M}, ef_construction {EF_CONSTRUCTION}, cosine",
        "Asked for": f"the best {TOP_K}; {options.candidates} candidates from each leg of the peers",
    }


async def create_database(dsn: str) -> None:
    """Make the database of the peers."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"CREATE DATABASE {PEERS_DATABASE}")
    await connection.close()


async def settle(addresses: Sequence[str]) -> str:
    """Vacuum and analyse, so that no autovacuum runs while others are timed; say which server it is."""
    for address in addresses:
        connection = await asyncpg.connect(address)
        await connection.execute("VACUUM (ANALYZE)")
        server = await connection.fetchval("SHOW server_version")
        extension = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
        await connection.close()
    return f"Postgres {server}, pgvector {extension}, {time.strftime('%Y-%m-%d', time.gmtime())}"


async def configurations(bench: Bench, told: Worker, wanted: float) -> list[Contender]:
    """Return a system as it comes and, where its vector leg finds less than wanted, with ef_search raised."""
    if told.name == "strata":
        own = {**bench.setup, "ef_search": None}
        return [await configuration(bench, told, own, await recall_of(bench, told, own))]
    contenders = []
    for ef_search in EF_SEARCH:
        own = {**bench.setup, "ef_search": ef_search}
        recall = await recall_of(bench, told, own)
        _err.print(f"{told.name}, ef_search {ef_search}: recall {recall:.4f}, wanted {wanted:.4f}")
        if ef_search == EF_SEARCH[0] or recall >= wanted or ef_search == EF_SEARCH[-1]:
            contenders.append(await configuration(bench, told, own, recall))
        if recall >= wanted:
            break
    return contenders


async def configuration(bench: Bench, told: Worker, setup: dict[str, Any], recall: float) -> Contender:
    """Judge the answers of a system that was just opened with a setup."""
    questions = bench.corpus.questions
    answers = (await told.ask("answers"))["ids"]
    ndcg, found = judge(questions, answers)
    row = Row(
        system=told.name,
        ef_search=setup["ef_search"],
        vector_recall=round(recall, 4),
        ndcg=ndcg,
        recall=found,
        empty=sum(not ids for ids in answers),
        about=await told.ask("about"),
    )
    if told.name != "strata":
        wide = {**setup, "candidates": WIDE, "ef_search": max(WIDE, setup["ef_search"])}
        await told.ask("open", **wide, embeds=False)
        row.wide_ndcg = round(mean(judge(questions, (await told.ask("answers"))["ids"])[0]), 4)
    _err.print(f"{row.label}: vector recall {row.vector_recall:.4f}, nDCG@10 {mean(ndcg):.4f}")
    return Contender(row, setup)


async def recall_of(bench: Bench, told: Worker, setup: dict[str, Any]) -> float:
    """Open with a setup and return the recall of the vector leg."""
    await told.ask("open", **setup, embeds=False)
    return corpora.vector_recall(bench.corpus, (await told.ask("nearest"))["ids"], TOP_K)


def judge(questions: Sequence[Question], answers: Sequence[Sequence[str]]) -> tuple[dict[str, float], dict[str, float]]:
    """Return nDCG@10 and recall@10 of each set, over documents at their best passage."""
    ndcg: dict[str, list[float]] = {}
    recall: dict[str, list[float]] = {}
    for question, ids in zip(questions, answers, strict=True):
        documents = list(dict.fromkeys(map(document_of, ids)))
        ndcg.setdefault(question.set, []).append(ndcg_at(documents, question.judgments, TOP_K))
        recall.setdefault(question.set, []).append(recall_at(documents, question.judgments, TOP_K))
    return (
        {name: round(sum(values) / len(values), 4) for name, values in ndcg.items()},
        {name: round(sum(values) / len(values), 4) for name, values in recall.items()},
    )


async def measure(bench: Bench, contenders: Sequence[Contender], mode: str) -> None:
    """Let all answer in turn, each in a fresh process, each round in another order."""
    options = bench.options
    async with AsyncExitStack() as stack:
        pairs = []
        for each in contenders:
            told = await stack.enter_async_context(bench.worker(each.row.system))
            await told.ask("open", **each.setup, embeds=mode == "computed")
            await told.ask("answers")
            pairs.append((each, told))
        for number in range(options.rounds):
            turn = number % len(pairs)
            for clients in CLIENTS:
                for each, told in [*pairs[turn:], *pairs[:turn]]:
                    found = await told.ask("measure", clients=clients, seconds=options.seconds)
                    each.add(mode, clients, found)
                    _err.print(
                        f"{mode}, round {number + 1}, {clients} clients, {each.row.label}: {found['per_second']:.0f}/s"
                    )
        for each, told in pairs:
            if mode == "computed":
                each.row.memory_mb = told.memory_mb
            setattr(each.row, mode, each.loads(mode))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.bench", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of judged sets in BEIR layout")
    parser.add_argument("--sets", default=SETS, help="the sets to take, by comma")
    parser.add_argument("--passages", type=int, default=25_000, help="passages in all")
    parser.add_argument("--questions", type=int, default=400, help="questions in all")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="the systems to run, by comma")
    parser.add_argument("--candidates", type=int, default=TOP_K, help="passages from each leg of the peers")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of load")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of load for each measurement")
    parser.add_argument("--vectors", type=Path, help="file (.npz) to keep vectors in between runs")
    parser.add_argument("--json", type=Path, help="file for the figures as JSON")
    parser.add_argument("--peers-python", type=Path, default=ROOT / ".venv-peers/bin/python", help="the peers' Python")
    options = parser.parse_args()
    if options.questions < 4 * max(CLIENTS):
        parser.error(f"fewer than {4 * max(CLIENTS)} questions would come round while their vectors are still kept")
    if unknown := set(options.systems.split(",")) - set(SYSTEMS):
        parser.error(f"there is no system {', '.join(sorted(unknown))}")
    # Ended as by Ctrl-C, so that the server and the workers end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
