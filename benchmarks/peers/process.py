"""The workers as the driver sees them: a process for each system, told what to do by lines of JSON."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil

ROOT = Path(__file__).resolve().parents[2]
MAX_LINE_BYTES = 256 * 1024 * 1024
STOP_SECONDS = 20


class Worker:
    """The process of one system, and what it is told to do."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process

    async def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send one command and wait for its answer; an error there ends the run here."""
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 - pipes
        self._process.stdin.write(msgspec.json.encode({"do": do, **arguments}) + b"\n")
        await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        answer: dict[str, Any] = msgspec.json.decode(line) if line else {"error": "the process ended"}
        if "error" in answer:
            raise SystemExit(f"error: {self.name}, {do}: {answer['error']}")
        return answer

    @property
    def memory_mb(self) -> int:
        """The resident memory of the process."""
        return round(psutil.Process(self._process.pid).memory_info().rss / 2**20)

    async def stop(self) -> None:
        """Close the system and wait for the process."""
        if self._process.returncode is None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()


@asynccontextmanager
async def worker(name: str, python: Path, address: str, folder: Path) -> AsyncIterator[Worker]:
    """Start the worker of a system and end it; ``python`` is the peers', Strata's is that of this process."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'service'}{os.pathsep}{ROOT}", "TOKENIZERS_PARALLELISM": "0"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable if name == "strata" else str(python), "-m", "benchmarks.peers.worker"),
        *(name, address, str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=environment,
        limit=MAX_LINE_BYTES,
    )
    started = Worker(name, process)
    try:
        yield started
    finally:
        await started.stop()
