"""Write one row for every call, without ever standing in the way of its answer."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any
from uuid import UUID

import msgspec
import structlog
from opentelemetry import metrics, trace

from strata.platform.database import Database
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
GROUP_SECONDS = 0.2
GROUP_ROWS = 200
MAX_WAITING = 10_000

_log = structlog.get_logger(__name__)
_tracer = trace.get_tracer("strata.traces")
_failures = metrics.get_meter("strata.traces").create_counter(
    "strata.invocation.record.failures", unit="{row}", description="Calls whose trace row could not be written."
)

Row = tuple[Any, ...]


class Recorder:
    """Writes invocations; a failure is logged and counted, never raised.

    With ``trace_grouped`` off, :meth:`record` returns when the row is written (or two seconds have
    passed). With it on, rows wait in memory up to 0.2 s and are written together: a crash of the
    process loses them. Call :meth:`close` before the database closes.
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

    async def record(self, invocation: Invocation) -> None:
        """Write one call. Raises nothing of its own; a cancelled caller leaves the write running."""
        try:
            row = self._row(invocation)
        except Exception as error:  # noqa: BLE001 - an answer is worth more than its trace
            self._failed(error, 1)
            return
        if self._grouped:
            self._enqueue(row)
            return
        task = asyncio.create_task(self._write(row))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for what is being written, then write what still waits. Safe to call again."""
        if self._flusher is not None:
            self._full.set()
            await self._flusher
        while self._writing:
            await asyncio.wait(self._writing)

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
                    await repository.insert(connection, row)
        except Exception as error:  # noqa: BLE001 - an answer is worth more than its trace
            self._failed(error, 1)

    def _enqueue(self, row: Row) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._failed(OverflowError("too many rows wait"), 1)
            return
        self._waiting.append(row)
        if len(self._waiting) >= GROUP_ROWS:
            self._full.set()
        if self._flusher is None or self._flusher.done():
            self._full.clear()
            self._flusher = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        """Wait for a full group or the end of the interval; end when nothing waits."""
        while self._waiting:
            try:
                async with asyncio.timeout(GROUP_SECONDS):
                    await self._full.wait()
            except TimeoutError:
                pass
            self._full.clear()
            rows, self._waiting = self._waiting, []
            await self._write_group(rows)

    async def _write_group(self, rows: list[Row]) -> None:
        by_tenant: dict[UUID, list[Row]] = defaultdict(list)
        for row in rows:
            by_tenant[row[0]].append(row)
        for tenant, group in by_tenant.items():
            try:
                async with asyncio.timeout(WRITE_SECONDS * 5):
                    async with self._database.work(tenant, sync_commit=self._sync_commit) as connection:
                        await repository.insert_many(connection, group)
            except Exception as error:  # noqa: BLE001 - an answer is worth more than its trace
                self._failed(error, len(group))

    def _failed(self, error: Exception, rows: int) -> None:
        _failures.add(rows)
        _log.error("invocation.record_failed", error=type(error).__name__, detail=str(error)[:500], rows=rows)
