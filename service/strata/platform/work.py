"""Durable work over Postgres: any number of workers in any number of processes, each item by one at a time.

Items are added in the transaction that makes them needed. A worker takes some under a lease, does them, and
deletes them in the transaction that stores what came of it. The lease of one that dies runs out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog

from strata.errors import StrataError
from strata.platform import work_repository as repository
from strata.platform.database import Database
from strata.platform.ids import new_id
from strata.platform.work_repository import Item

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkPolicy:
    """How long an item is lent, how often it is tried, and how long a failed try waits.

    The wait doubles from the first to the longest; up to a quarter of it is taken off at random.
    """

    lease_seconds: float = 60.0
    max_attempts: int = 8
    first_wait_seconds: float = 1.0
    longest_wait_seconds: float = 300.0

    def wait_seconds(self, tries: int) -> float:
        """Return how long to wait after so many failed tries, the first being 1."""
        doubled = self.first_wait_seconds * 2.0 ** min(max(tries, 1) - 1, 30)
        jitter = 1 - random.random() / 4  # noqa: S311  spreads load, keeps no secret
        return min(doubled, self.longest_wait_seconds) * jitter


DEFAULT_POLICY = WorkPolicy()


def new_worker() -> str:
    """Return a name that no other worker has; it says where the worker runs."""
    return f"{socket.gethostname()[:64]}/{os.getpid()}/{new_id()}"


class WorkQueue:
    """The items of one kind, as one worker sees them. Each method is a unit of work of its own."""

    def __init__(self, database: Database, kind: str, policy: WorkPolicy = DEFAULT_POLICY) -> None:
        self._database = database
        self._kind = kind
        self.policy = policy
        self.worker = new_worker()

    async def claim(self, tenant: UUID, limit: int, context: UUID | None = None) -> list[Item]:
        """Take up to ``limit`` items that are due, by number."""
        async with self._database.work(tenant) as connection:
            return await repository.claim(
                connection,
                tenant,
                self._kind,
                limit=limit,
                lease_seconds=self.policy.lease_seconds,
                worker=self.worker,
                context=context,
            )

    @contextlib.asynccontextmanager
    async def kept(self, tenant: UUID, items: Sequence[Item]) -> AsyncIterator[None]:
        """Extend the lease of items while the body runs; put them back when it is cancelled.

        Items put back at a cancellation are due at once and their attempt is not counted. A lease that could
        not be extended is left to run out: the work of the body is then done twice, never wrongly.
        """
        beat = asyncio.create_task(self._extend(tenant, items))
        try:
            yield
        except asyncio.CancelledError:
            await asyncio.shield(self._put_back_quietly(tenant, items))
            raise
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    async def put_back(
        self, tenant: UUID, items: Sequence[Item], *, delay_seconds: float = 0.0, error: str | None = None
    ) -> None:
        """Give up items without counting the attempt; they are due again after the delay."""
        if items:
            async with self._database.work(tenant) as connection:
                await repository.put_back(
                    connection, tenant, items, delay_seconds=delay_seconds, error=error, is_counted=False
                )

    async def retry(self, tenant: UUID, items: Sequence[Item], error: str) -> None:
        """Give up items after a failed try: each waits by its attempts, or fails for good after the last."""
        async with self._database.work(tenant) as connection:
            for item in items:
                if item.attempts >= self.policy.max_attempts:
                    await repository.fail(connection, tenant, item, error)
                    continue
                delay = self.policy.wait_seconds(item.attempts)
                await repository.put_back(connection, tenant, [item], delay_seconds=delay, error=error)

    async def fail(self, tenant: UUID, item: Item, error: str, payload: Mapping[str, Any] | None = None) -> None:
        """Keep an item as failed for good."""
        async with self._database.work(tenant) as connection:
            await repository.fail(connection, tenant, item, error, payload)

    async def _extend(self, tenant: UUID, items: Sequence[Item]) -> None:
        while True:
            await asyncio.sleep(self.policy.lease_seconds / 3)
            try:
                async with self._database.work(tenant) as connection:
                    await repository.extend(connection, tenant, items, self.policy.lease_seconds)
            except StrataError as error:
                _log.warning("work.lease_not_extended", kind=self._kind, code=error.code)

    async def _put_back_quietly(self, tenant: UUID, items: Sequence[Item]) -> None:
        with contextlib.suppress(StrataError, TimeoutError):
            await asyncio.wait_for(self.put_back(tenant, items), 5)
