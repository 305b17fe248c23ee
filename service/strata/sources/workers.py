"""Where sources are built: in this process while there is little, in worker processes when there is much."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing.connection import wait

from strata.settings import Settings
from strata.sources.build import Batch, Loaded, build_all
from strata.sources.discover import refusal
from strata.sources.model import Refused
from strata.sources.readers import refuse
from strata.sources.readers.sandbox import ReaderPool


def worker_count(settings: Settings, asked: int | None = None) -> int:
    """Return how many processes may build: as asked, as set, else one a core."""
    return asked or settings.ingest_workers or len(os.sched_getaffinity(0))


class Workers:
    """Builders and readers that are started when first needed and stopped by ``close``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._readers: ReaderPool | None = None
        self._builders: ProcessPoolExecutor | None = None
        self._size = 0

    @property
    def readers(self) -> ReaderPool:
        """The sandbox of formats whose libraries can crash."""
        if self._readers is None:
            self._readers = ReaderPool(
                worker_count(self._settings),
                timeout_seconds=self._settings.reader_timeout_seconds,
                memory_bytes=self._settings.reader_memory_bytes,
            )
        return self._readers

    async def build(self, loaded: Sequence[Loaded], size: int) -> Batch:
        """Build a batch, in one of ``size`` processes where that is more than one, else in a thread.

        A process that dies takes nothing with it: its documents are built again one at a time, and
        the one that kills a process again is refused.
        """
        if not loaded or size <= 1:
            return await asyncio.to_thread(build_all, loaded)
        try:
            return await self._submit(loaded, size)
        except BrokenExecutor:
            return await self._one_by_one(loaded)

    async def _submit(self, loaded: Sequence[Loaded], size: int) -> Batch:
        pool = self._pool(size)
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, build_all, loaded)
        except BrokenExecutor:
            if self._builders is pool:
                self._builders = None
            pool.shutdown(wait=False, cancel_futures=True)
            raise

    async def _one_by_one(self, loaded: Sequence[Loaded]) -> Batch:
        """Build in a pool of one that no other batch shares, to tell which document it is."""
        killers: list[Refused] = []
        healthy: list[Loaded] = []
        pool = _new_pool(1)
        try:
            for item in loaded:
                try:
                    await asyncio.get_running_loop().run_in_executor(pool, build_all, [item])
                except BrokenExecutor:
                    pool.shutdown(wait=False, cancel_futures=True)
                    pool = _new_pool(1)
                    killers.append(_killer(item))
                else:
                    healthy.append(item)
            batch = await asyncio.get_running_loop().run_in_executor(pool, build_all, healthy)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return Batch(batch.built, (*batch.refused, *killers), (), batch.segments)

    def _pool(self, size: int) -> ProcessPoolExecutor:
        if self._builders is None or self._size < size:
            self._stop_builders()
            self._builders, self._size = _new_pool(size), size
        return self._builders

    def _stop_builders(self) -> None:
        if self._builders is not None:
            self._builders.shutdown(wait=False, cancel_futures=True)
            self._builders = None

    async def close(self) -> None:
        """Stop every process. Safe to call again; what is used afterwards starts anew."""
        self._stop_builders()
        readers, self._readers = self._readers, None
        if readers is not None:
            await asyncio.to_thread(readers.close)


def _new_pool(size: int) -> ProcessPoolExecutor:
    # Spawned, not forked: a fork would copy the event loop and the database connections.
    return ProcessPoolExecutor(size, multiprocessing.get_context("spawn"), initializer=_start_worker)


def _start_worker() -> None:
    """Leave interrupts to the parent, and end when it ends: its death closes no pipe that a worker reads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    with contextlib.suppress(OSError):
        wait([sentinel])
    os._exit(1)


def _killer(loaded: Loaded) -> Refused:
    error = refuse("crashed", "Building it ended the process, most likely for want of memory.")
    task = loaded.task
    return refusal(task.path, error, "build", pointer=task.pointer, size=task.size)
