"""One run over whole sources: in a transaction for each, or all in one that is undone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import UUID

import asyncpg
import stamina

from strata.errors import StrataError
from strata.exchange.importing import Applying, SourceApplied, SourceImporter
from strata.exchange.records import SourceBatch
from strata.exchange.schemas import ImportProgress
from strata.platform.database import Connection, Database

TIMEOUT_SECONDS = 120.0
_TRIES, _TRIES_SECONDS = 8, 60.0
_SERVER_ERRORS = 500
_PASSING = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)
T = TypeVar("T")

BatchAt = Callable[[int], Awaitable[SourceBatch]]
"""Gives a source of the run by its number."""


class _UndoneError(Exception):
    """Ends a transaction that must leave nothing."""


class Transactions:
    """Where a run writes: each part in a transaction of its own or, dry, all in ``connection``, which is undone."""

    def __init__(self, database: Database, tenant: UUID, connection: Connection | None = None) -> None:
        self._database = database
        self._connection = connection
        self.tenant = tenant

    @property
    def is_dry(self) -> bool:
        """Whether what is written is undone."""
        return self._connection is not None

    async def within(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do work in a transaction, tried again where another writer got in its way."""
        if self._connection is not None:
            return await work(self._connection)
        async for trial in stamina.retry_context(
            on=_is_passing, attempts=_TRIES, timeout=_TRIES_SECONDS, wait_initial=0.05, wait_max=5
        ):
            with trial:
                async with self._database.work(self.tenant, timeout_seconds=TIMEOUT_SECONDS) as connection:
                    return await work(connection)
        raise AssertionError("the last trial returns or raises")


@asynccontextmanager
async def transactions(database: Database, tenant: UUID, *, is_dry: bool) -> AsyncIterator[Transactions]:
    """Give the transactions of a run; of a dry one nothing is left when the block ends."""
    if not is_dry:
        yield Transactions(database, tenant)
        return
    try:
        async with database.work(tenant, timeout_seconds=TIMEOUT_SECONDS) as connection:
            yield Transactions(database, tenant, connection)
            _undo()
    except _UndoneError:
        return


def _undo() -> None:
    raise _UndoneError


def _is_passing(error: Exception) -> bool:
    """Tell whether two writers got in each other's way, which says nothing of what either wanted."""
    return isinstance(error, StrataError) and isinstance(error.__cause__, _PASSING)


async def apply_sources(
    importer: SourceImporter,
    where: Transactions,
    total: int,
    batch_at: BatchAt,
    progress: Callable[[ImportProgress], None] | None = None,
) -> Sequence[SourceApplied]:
    """Apply sources in their order; the next text is cut and analysed while one is written.

    Raises what refuses a source, with what stands of the run.
    """
    applied: list[SourceApplied] = []
    ahead: asyncio.Task[Applying] | None = None
    try:
        for number in range(total):
            current = ahead or asyncio.create_task(_prepared(importer, batch_at, number))
            ahead = None
            try:
                applying = await current
                if number + 1 < total:
                    ahead = asyncio.create_task(_prepared(importer, batch_at, number + 1))
                applied.append(await _apply(importer, where, applying))
            except StrataError as error:
                what = f"Source {number + 1} of {total}"
                raise refused(error, what, durable=0 if where.is_dry else number) from error
            batch = applying.batch
            if progress is not None:
                progress(ImportProgress(number + 1, total, batch.context, batch.source))
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
    return applied


async def _prepared(importer: SourceImporter, batch_at: BatchAt, number: int) -> Applying:
    return await importer.prepare(await batch_at(number), f"batches[{number}].")


async def _apply(importer: SourceImporter, where: Transactions, applying: Applying) -> SourceApplied:
    applied = await where.within(lambda connection: importer.apply(connection, where.tenant, applying))
    if not where.is_dry:
        importer.wake(where.tenant, applied)
    return applied


def refused(error: StrataError, what: str, *, durable: int, is_partial: bool = False) -> StrataError:
    """Return the refusal of a part of a run, with what stands: ``durable`` sources, or (``is_partial``) other parts."""
    is_written = durable > 0 or is_partial
    stands = f"{durable} before it stand; to send the whole again is safe" if is_written else "nothing was written"
    return StrataError(
        error.kind,
        f"{what} was refused, {stands}. {error.detail}",
        pointer=error.pointer,
        remedy=error.remedy,
        extra={
            **error.extra,
            "integrity": "durable_prefix" if is_written else "nothing_written",
            "durable_batches": durable,
            "retryable_after_correction": error.kind.status < _SERVER_ERRORS,
        },
    )
