"""One system in a process of its own, told by lines of JSON on standard input what to do.

``python -m benchmarks.peers.worker NAME DSN FOLDER``; each line gets one line of JSON back. What the
libraries print goes to standard error.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks.peers.corpus import Corpus, read
from benchmarks.peers.systems import Hnsw, Setup, System

WARM_UP = 100


def make(name: str, dsn: str) -> System:
    """Return the system of that name; only its own libraries are imported."""
    if name == "strata":
        from benchmarks.peers.strata_system import StrataSystem

        return StrataSystem(dsn)
    if name == "haystack":
        from benchmarks.peers.haystack_system import HaystackSystem

        return HaystackSystem(dsn)
    if name == "llama-index":
        from benchmarks.peers.llama_index_system import LlamaIndexSystem

        return LlamaIndexSystem(dsn)
    if name == "langchain":
        from benchmarks.peers.langchain_system import LangChainSystem

        return LangChainSystem(dsn)
    raise SystemExit(f"there is no system {name}")


class Worker:
    """Runs the commands; the answers that a system gives alone are kept to compare with those under load."""

    def __init__(self, system: System, corpus: Corpus) -> None:
        self._system = system
        self._corpus = corpus
        self._answers: list[list[str]] = []

    async def load(self, **hnsw: int) -> dict[str, Any]:
        """Store everything and build the indexes."""
        started = time.perf_counter()
        await self._system.load(self._corpus, Hnsw(**hnsw))
        return {"seconds": round(time.perf_counter() - started, 1)}

    async def about(self) -> dict[str, Any]:
        """Tell versions and configuration."""
        return self._system.describe()

    async def open(self, **setup: Any) -> dict[str, Any]:
        """Open for questions; every question of the warm-up is asked once."""
        await self._system.open(msgspec.convert(setup, Setup), self._corpus)
        for question in self._corpus.questions[:WARM_UP]:
            await self._system.hybrid(question.text)
        # The same for all: caches hold many small objects, and full collections would be the slowest calls.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 1_000)
        return {}

    async def answers(self) -> dict[str, Any]:
        """Ask every question, one after the other."""
        self._answers = [list(await self._system.hybrid(question.text)) for question in self._corpus.questions]
        return {"ids": self._answers}

    async def nearest(self) -> dict[str, Any]:
        """Ask the vector leg every question."""
        return {"ids": [list(await self._system.nearest(question.text)) for question in self._corpus.questions]}

    async def measure(self, clients: int, seconds: float) -> dict[str, Any]:
        """Let clients ask as fast as they are answered; milliseconds of each call, and the calls in a second."""
        questions = self._corpus.questions
        times: list[float] = []
        differing = 0
        started = time.perf_counter()
        deadline = started + seconds

        async def client(at: int) -> None:
            nonlocal differing
            while (begun := time.perf_counter()) < deadline:
                ids = await self._system.hybrid(questions[at].text)
                times.append((time.perf_counter() - begun) * 1000)
                differing += list(ids) != self._answers[at]
                at = (at + clients) % len(questions)

        await asyncio.gather(*(client(number) for number in range(clients)))
        elapsed = time.perf_counter() - started
        return {"times": times, "per_second": len(times) / elapsed, "differing": differing}

    async def close(self) -> dict[str, Any]:
        """Let go of everything."""
        await self._system.close()
        return {}


async def serve(worker: Worker, answer: Callable[[dict[str, Any]], None]) -> None:
    """Run one command a line until there are no more."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = msgspec.json.decode(line)
        command: Callable[..., Awaitable[dict[str, Any]]] = getattr(worker, request.pop("do"))
        try:
            answer(await command(**request))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})
            raise


def main() -> None:
    """Take standard output for the answers alone, and serve."""
    name, dsn, folder = sys.argv[1:]
    channel = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def answer(value: dict[str, Any]) -> None:
        channel.write(msgspec.json.encode(value) + b"\n")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Worker(make(name, dsn), read(Path(folder))), answer))


if __name__ == "__main__":
    main()
