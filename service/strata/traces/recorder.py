"""Write one row for every call, without ever standing in the way of its answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import structlog
from opentelemetry import metrics, trace

from strata.errors import DATABASE_UNAVAILABLE, OVERLOADED, StrataError
from strata.platform.database import Connection, Database
from strata.settings import Settings
from strata.traces import repository
from strata.traces.bounds import (
    MAX_ERROR_CHARS,
    MAX_IDENTIFIER_CHARS,
    bounded_arguments,
    bounded_details,
    clean_text,
    hex_id,
)
from strata.traces.schemas import Invocation

WRITE_SECONDS = 2.0
GROUP_SECONDS = 10.0
GROUP_ROWS = 200
MAX_WAITING = 2_000
PAUSES = (0.2, 1.0, 3.0, 10.0)
"""Seconds before a group is written, and before each further try."""

_log = structlog.get_logger(__name__)
_tracer = trace.get_tracer("strata.traces")
_failures = metrics.get_meter("strata.traces").create_counter(
    "strata.invocation.record.failures", unit="{row}", description="Calls whose trace row could not be written."
)

_UNAVAILABLE = 503
_BUSY = (OVERLOADED.code, DATABASE_UNAVAILABLE.code)

Row = tuple[Any, ...]


class Recorder:
    """Writes invocations; a failure is logged and counted, never raised.

    With ``trace_grouped`` off, :meth:`record` returns when the row is written, or after two seconds.
    A row that an overloaded or restarting database did not take then is tried again in the
    background for a quarter of a minute; the row of a call that failed for such a reason goes there
    at once, so that its answer waits no longer. With ``trace_grouped`` on, every row goes that way: it
    waits up to 0.2 s and is written with others. What waits is lost with the process, so call
    :meth:`close` before the database closes.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._privacy = settings.trace_query
        self._sync_commit = settings.trace_commit == "sync"
        self._grouped = settings.trace_grouped
        self._writing: set[asyncio.Task[None]] = set()
        self._waiting: list[Row] = []
        self._flusher: asyncio.Task[None] | None = None
        self._full = asyncio.Event()
        self._closing = asyncio.Event()

    async def record(self, invocation: Invocation, connection: Connection | None = None) -> None:
        """Write one call. Raises nothing of its own; a cancelled caller leaves the write running.

        With a ``connection`` the row is the last statement of that unit of work, which has only
        read until then: one round trip, committed with it. Where the insert fails, the row waits
        and is tried again by itself.
        """
        try:
            row = self._row(invocation)
        except Exception as error:  # noqa: BLE001 - an answer is worth more than its trace
            self._failed(error, 1)
            return
        if self._grouped or invocation.error_type in _BUSY:
            self._enqueue(row)
        elif connection is not None:
            await self._write_within(connection, row)
        else:
            task = asyncio.create_task(self._write(row))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
            await asyncio.shield(task)

    async def _write_within(self, connection: Connection, row: Row) -> None:
        try:
            with _tracer.start_as_current_span("strata.trace.write"):
                await repository.insert(connection, row)
        except asyncpg.PostgresError:
            self._enqueue(row)

    async def close(self) -> None:
        """Wait for what is being written, then try once more what still waits. Safe to call again."""
        while self._writing:
            await asyncio.wait(self._writing)
        self._closing.set()
        self._full.set()
        if self._flusher is not None:
            await self._flusher
        self._closing.clear()

    def _row(self, invocation: Invocation) -> Row:
        details = invocation.retrieval_details
        return (
            invocation.tenant_id,
            invocation.context_id,
            invocation.id,
            clean_text(invocation.tool_name, MAX_IDENTIFIER_CHARS),
            invocation.surface,
            clean_text(invocation.session_id, MAX_IDENTIFIER_CHARS),
            clean_text(invocation.agent_id, MAX_IDENTIFIER_CHARS),
            clean_text(invocation.request_id, MAX_IDENTIFIER_CHARS),
            hex_id(invocation.trace_id, 32),
            hex_id(invocation.span_id, 16),
            msgspec.Raw(bounded_arguments(invocation.arguments, self._privacy)),
            invocation.status,
            invocation.found,
            invocation.relevance_level,
            invocation.completeness_hint,
            invocation.evidence_count,
            max(0.0, invocation.duration_ms),
            clean_text(invocation.error_type, MAX_IDENTIFIER_CHARS),
            clean_text(invocation.error_message, MAX_ERROR_CHARS),
            None if details is None else msgspec.Raw(bounded_details(details)),
        )

    async def _write(self, row: Row) -> None:
        try:
            with _tracer.start_as_current_span("strata.trace.write"):
                async with (
                    asyncio.timeout(WRITE_SECONDS),
                    self._database.work(row[0], sync_commit=self._sync_commit) as connection,
                ):
                    # A call that was cancelled at its very end may have its row already.
                    await repository.insert_missing(connection, [row])
        except Exception as error:  # noqa: BLE001 - an answer is worth more than its trace
            if _is_passing(error):
                self._enqueue(row)
            else:
                self._failed(error, 1)

    def _enqueue(self, row: Row) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._failed(OverflowError("too many rows wait"), 1)
            return
        self._waiting.append(row)
        if len(self._waiting) >= GROUP_ROWS:
            self._full.set()
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        """Write what waits in groups; end when nothing does."""
        tries = 0
        while self._waiting:
            await self._pause(tries)
            is_last = self._closing.is_set() or tries + 1 == len(PAUSES)
            rows, self._waiting = self._waiting, []
            self._full.clear()
            left, error = await self._write_groups(rows)
            if error is not None and is_last:
                self._failed(error, len(left))
                left = []
            self._waiting[:0] = left
            tries = tries + 1 if left else 0

    async def _pause(self, tries: int) -> None:
        """Wait for the time of a try; a full group does not wait for its first, closing for none."""
        event = self._closing if tries else self._full
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), PAUSES[tries])

    async def _write_groups(self, rows: list[Row]) -> tuple[list[Row], Exception | None]:
        """Write the rows, one transaction a tenant; return those to try again, and why."""
        by_tenant: dict[UUID, list[Row]] = defaultdict(list)
        for row in rows:
            by_tenant[row[0]].append(row)
        left: list[Row] = []
        cause: Exception | None = None
        for tenant, group in by_tenant.items():
            try:
                async with (
                    asyncio.timeout(GROUP_SECONDS),
                    self._database.work(tenant, sync_commit=self._sync_commit) as connection,
                ):
                    await repository.insert_missing(connection, group)
            except Exception as error:  # noqa: BLE001 - an answer is worth more than its trace
                if _is_passing(error):
                    left += group
                    cause = error
                elif len(group) == 1:
                    self._failed(error, 1)
                else:
                    for row in group:
                        await self._write_groups([row])
        return left, cause

    def _failed(self, error: Exception, rows: int) -> None:
        _failures.add(rows)
        _log.error("invocation.record_failed", error=type(error).__name__, detail=str(error)[:500], rows=rows)


def _is_passing(error: Exception) -> bool:
    """Tell whether the same write can succeed later."""
    return isinstance(error, TimeoutError) or (isinstance(error, StrataError) and error.kind.status == _UNAVAILABLE)
