"""The workers of one server process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from uuid import UUID

import structlog

from strata.embeddings.upkeep import Upkeep
from strata.embeddings.worker import EmbeddingWorker, Step
from strata.errors import StrataError

BUSY_SECONDS = 1.0
IDLE_SECONDS = 15.0
UPKEEP_SECONDS = 300.0
"""How often the spaces are looked after although no work ended here: another process may have died over it."""

_BUSY_ROUNDS = 5

_log = structlog.get_logger(__name__)


class Background:
    """Tasks that take work as it comes, and one that looks after the spaces when work has ended.

    No task holds a connection while it embeds or waits, and no failure ends one.
    """

    def __init__(self, new_worker: Callable[[], EmbeddingWorker], upkeep: Upkeep) -> None:
        self._new_worker = new_worker
        self._upkeep = upkeep
        self._tenant: UUID | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._wakes: list[asyncio.Event] = []
        self._idle: list[asyncio.Event] = []
        self._has_worked = asyncio.Event()
        self._upkeep_lock = asyncio.Lock()

    def start(self, tenant: UUID, number: int) -> None:
        """Start so many workers for a tenant, unless some run already."""
        if self._tasks or not number:
            return
        self._tenant = tenant
        self._has_worked.set()
        for _ in range(number):
            wake, idle = asyncio.Event(), asyncio.Event()
            self._wakes.append(wake)
            self._idle.append(idle)
            self._tasks.append(asyncio.create_task(self._work(tenant, wake, idle)))
        self._tasks.append(asyncio.create_task(self._look_after(tenant)))

    def wake(self) -> None:
        """Have every worker look for work now."""
        for wake, idle in zip(self._wakes, self._idle, strict=True):
            wake.set()
            idle.clear()

    async def settle(self) -> None:
        """Wait until every worker has nothing to do, or cannot go on now, and the spaces are looked after."""
        while self._tenant is not None and self._tasks:
            self.wake()
            await asyncio.gather(*(idle.wait() for idle in self._idle))
            async with self._upkeep_lock:
                if not await self._upkeep.run(self._tenant):
                    return

    async def close(self) -> None:
        """End the tasks; what workers hold is put back. Safe to call again."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for idle in self._idle:
            idle.set()
        self._wakes, self._idle = [], []

    async def _work(self, tenant: UUID, wake: asyncio.Event, idle: asyncio.Event) -> None:
        worker = self._new_worker()
        quiet = 0
        while True:
            wake.clear()
            step = await self._step(tenant, worker)
            if step.taken:
                self._has_worked.set()
            if step.outage is not None:
                _log.warning("embeddings.outage", code=step.outage.code, detail=step.outage.detail)
                idle.set()
                await asyncio.sleep(worker.wait_seconds())
            elif step.taken and not step.unserved:
                quiet = 0
            else:
                quiet += 1
                if not wake.is_set():
                    idle.set()
                await _wait(wake, BUSY_SECONDS if quiet <= _BUSY_ROUNDS else IDLE_SECONDS)

    async def _step(self, tenant: UUID, worker: EmbeddingWorker) -> Step:
        try:
            return await worker.step(tenant)
        except StrataError as error:
            _log.warning("embeddings.worker_failed", code=error.code, detail=error.detail)
        except Exception:  # noqa: BLE001  a defect is logged, the next item may do better
            _log.exception("embeddings.worker_failed")
        return Step()

    async def _look_after(self, tenant: UUID) -> None:
        while True:
            await _wait(self._has_worked, UPKEEP_SECONDS)
            # While there is work the spaces need nothing.
            await asyncio.gather(*(idle.wait() for idle in self._idle))
            self._has_worked.clear()
            try:
                async with self._upkeep_lock:
                    while await self._upkeep.run(tenant):
                        self.wake()
            except StrataError as error:
                _log.warning("embeddings.upkeep_failed", code=error.code, detail=error.detail)
            except Exception:  # noqa: BLE001  a defect is logged, the next round may do better
                _log.exception("embeddings.upkeep_failed")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event or about so long: workers that started together drift apart."""
    jittered = seconds * (0.75 + random.random() / 2)  # noqa: S311  spreads load, keeps no secret
    try:
        await asyncio.wait_for(event.wait(), jittered)
    except TimeoutError:
        return
