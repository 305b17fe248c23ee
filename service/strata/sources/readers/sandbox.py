"""Readers in processes of their own: a file that crashes, hangs or swells takes nothing else down."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import msgspec

from strata.sources.readers.refusal import Reason, refuse
from strata.sources.readers.wire import ReadReply, ReadRequest, read_frame, write_frame
from strata.text.document import Document

MAX_READS_PER_WORKER = 500

# All that a reader process may know of its surroundings: settings hold secrets, and files are hostile.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV")
# A process that has closed its output is on its way out; its exit status says why.
_DYING_SECONDS = 5.0
_DECODER = msgspec.msgpack.Decoder(ReadReply)


class _Worker:
    """One reader process; used by one thread at a time, killed from any."""

    def __init__(self, memory_bytes: int) -> None:
        self.reads = 0
        self.timed_out = False
        self.spent = False
        self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [sys.executable, "-P", "-m", "strata.sources.readers.worker", str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            start_new_session=True,
        )

    def read(self, request: ReadRequest, data: bytes, timeout_seconds: float) -> ReadReply:
        """Return the worker's reply, or what its death means. A dead worker must not be used again."""
        self.reads += 1
        clock = threading.Timer(timeout_seconds, self._expire)
        clock.start()
        try:
            frame = self._exchange(msgspec.msgpack.encode(request), data)
        finally:
            clock.cancel()
        if frame is None:
            return self._death(timeout_seconds)
        reply = _DECODER.decode(frame)
        self.spent = reply.reason == "memory"
        return reply

    def _exchange(self, request: bytes, data: bytes) -> bytes | None:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            return None
        # A worker that cannot take the file in says so and leaves while it is still being written.
        with contextlib.suppress(OSError):
            write_frame(stdin, request)
            write_frame(stdin, data)
        try:
            return read_frame(stdout)
        except (OSError, ValueError):
            return None

    def _expire(self) -> None:
        self.timed_out = True
        self.kill()

    def _death(self, timeout_seconds: float) -> ReadReply:
        try:
            code = self._process.wait(_DYING_SECONDS)
        except subprocess.TimeoutExpired:
            code = 0
        self.kill()
        if self.timed_out or code == -signal.SIGXCPU:
            return ReadReply(None, "timeout", f"Reading it takes more than {timeout_seconds:g} seconds.")
        # Killed, but not by us: the kernel takes the largest process when memory runs out.
        reason: Reason = "memory" if code == -signal.SIGKILL else "crashed"
        detail = "Reading it takes too much memory." if reason == "memory" else "The reader crashed on it."
        return ReadReply(None, reason, detail)

    def kill(self) -> None:
        """End the process at once; repeated calls do nothing."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    @property
    def alive(self) -> bool:
        """Return whether the process still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process and release its pipes."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class _Job:
    """A reading in progress, which can be called off before or while it runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self.cancelled = False

    def hold(self, worker: _Worker | None) -> bool:
        """Name the worker in use; False when the job was called off."""
        with self._lock:
            self._worker = worker
            return not self.cancelled

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            if self._worker is not None:
                self._worker.kill()


class ReaderPool:
    """Up to ``size`` reader processes, started when needed and again after a crash.

    Each may use ``memory_bytes`` of address space and ``timeout_seconds`` of time a file, its start
    included. ``read`` may be awaited from many tasks; a cancelled read kills its process. ``close``
    ends them all; a closed pool raises RuntimeError. Usable as an async context manager.
    """

    def __init__(self, size: int, *, timeout_seconds: float, memory_bytes: int) -> None:
        self._timeout_seconds = timeout_seconds
        self._memory_bytes = memory_bytes
        self._threads = ThreadPoolExecutor(max(1, size), thread_name_prefix="reader")
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._jobs: set[_Job] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    async def read(self, name: str, data: bytes, media_type: str | None = None) -> Document:
        """Read one file; raises as ``read_document``, and ``timeout``, ``crashed`` or ``memory`` besides."""
        request = ReadRequest(name, media_type, math.ceil(self._timeout_seconds) + 1)
        job = _Job()
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._run, job, request, data)
        try:
            reply = await future
        except asyncio.CancelledError:
            job.cancel()
            raise
        if reply.document is None:
            raise refuse(reply.reason or "crashed", reply.detail)
        return reply.document

    def close(self) -> None:
        """End all processes; readings in progress end as crashed. Closing twice does nothing."""
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            job.cancel()
        self._threads.shutdown(wait=True, cancel_futures=True)
        while self._idle:
            self._idle.pop().close()

    def _run(self, job: _Job, request: ReadRequest, data: bytes) -> ReadReply:
        with self._lock:
            self._jobs.add(job)
        worker: _Worker | None = None
        try:
            worker = None if job.cancelled else self._take()
            if worker is None or not job.hold(worker):
                return ReadReply(None, "crashed", "The reading was called off.")
            return worker.read(request, data, self._timeout_seconds)
        finally:
            job.hold(None)
            with self._lock:
                self._jobs.discard(job)
            if worker is not None:
                self._give_back(worker)

    def _take(self) -> _Worker:
        while True:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                return _Worker(self._memory_bytes)
            if worker.alive:
                return worker
            worker.close()

    def _give_back(self, worker: _Worker) -> None:
        usable = worker.alive and not worker.timed_out and not worker.spent
        if usable and worker.reads < MAX_READS_PER_WORKER:
            with self._lock:
                self._idle.append(worker)
        else:
            worker.close()


def read_in_sandbox(
    name: str, data: bytes, media_type: str | None = None, *, timeout_seconds: float, memory_bytes: int
) -> Document:
    """Read one file in a process of its own, which ends with it; raises as ``ReaderPool.read``."""
    worker = _Worker(memory_bytes)
    try:
        request = ReadRequest(name, media_type, math.ceil(timeout_seconds) + 1)
        reply = worker.read(request, data, timeout_seconds)
    finally:
        worker.close()
    if reply.document is None:
        raise refuse(reply.reason or "crashed", reply.detail)
    return reply.document
