"""Partitions of the trace: made ahead, dropped when old."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import structlog

from strata.errors import INVALID_REQUEST, StrataError
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT
from strata.traces import partition_repository, repository
from strata.traces.schemas import PruneReport

WEEKS_AHEAD = 8
DAY_SECONDS = 86_400.0
DELETE_BATCH = 10_000
LOCK_TRIES = 10

_log = structlog.get_logger(__name__)


async def make_partitions(database: Database, weeks_ahead: int = WEEKS_AHEAD) -> int:
    """Make the weekly partitions up to ``weeks_ahead``; return how many were missing.

    Rows that the default partition caught meanwhile move into theirs.
    """
    async with database.work(DEFAULT_TENANT) as connection:
        return await repository.make_partitions(connection, weeks_ahead)


async def keep_partitions(database: Database, every_seconds: float = DAY_SECONDS) -> None:
    """Make partitions now and once a day until cancelled. Any failure is logged: the default partition is the net."""
    while True:
        try:
            made = await make_partitions(database)
        except StrataError as error:
            _log.warning("invocation.partitions_failed", code=error.code, detail=error.detail)
        except Exception:  # noqa: BLE001 - a defect must not end the task, on which every later week depends
            _log.exception("invocation.partitions_failed")
        else:
            _log.debug("invocation.partitions", made=made)
        await asyncio.sleep(every_seconds)


async def prune(database: Database, older_than: timedelta, *, dry_run: bool = False) -> PruneReport:
    """Remove the calls of all tenants that are older than ``older_than``, as the owner of the tables.

    Partitions that are old as a whole are dropped, which gives their space back at once; the rest is
    deleted in batches. ``dry_run`` counts only. Raises ``invalid_request`` for a negative age.
    """
    if older_than < timedelta(0):
        raise StrataError(INVALID_REQUEST, "The age must not be negative.", pointer="--older-than")
    async with database.owner() as connection:
        now = await partition_repository.database_time(connection)
        try:
            cutoff = now - older_than
        except OverflowError:
            cutoff = datetime(1, 1, 1, tzinfo=UTC)
        dropped: list[str] = []
        in_partitions = deleted = 0
        for partition in await partition_repository.partitions(connection):
            if partition.upper is not None and partition.upper <= cutoff:
                in_partitions += await partition_repository.count_before(connection, partition.name, partition.upper)
                dropped.append(partition.name)
                if not dry_run:
                    await _drop(connection, partition.name)
            elif partition.lower is None or partition.lower < cutoff:
                deleted += await _delete(connection, partition.name, cutoff, dry_run=dry_run)
    report = PruneReport(
        older_than=cutoff,
        partitions_dropped=dropped,
        rows_in_partitions=in_partitions,
        rows_deleted=deleted,
        dry_run=dry_run,
    )
    _log.info("invocation.pruned", partitions=len(dropped), rows=in_partitions + deleted, dry_run=dry_run)
    return report


async def _drop(connection: asyncpg.Connection, partition: str) -> None:
    """Drop a partition; the lock it needs is waited for briefly and often, so that writers never queue long."""
    for attempt in range(1, LOCK_TRIES + 1):
        try:
            await partition_repository.drop(connection, partition)
        except asyncpg.LockNotAvailableError:
            if attempt == LOCK_TRIES:
                raise
            await asyncio.sleep(0.2 * attempt)
        else:
            return


async def _delete(connection: asyncpg.Connection, partition: str, cutoff: datetime, *, dry_run: bool) -> int:
    if dry_run:
        return await partition_repository.count_before(connection, partition, cutoff)
    total = 0
    while True:
        deleted = await partition_repository.delete_before(connection, partition, cutoff, DELETE_BATCH)
        total += deleted
        if deleted < DELETE_BATCH:
            return total
