"""SQL of durable work. Times are the database's; what was taken is fenced by number, attempt and worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strata.platform.database import Connection


@dataclass(frozen=True, slots=True)
class Item:
    """One item of work as a worker took it; ``attempts`` counts this time too."""

    context_id: UUID
    work_id: int
    attempts: int
    worker: str
    payload: Mapping[str, Any]


async def add(
    connection: Connection, tenant: UUID, context: UUID, kind: str, payloads: Sequence[Mapping[str, Any]]
) -> None:
    """Add items that may be taken as soon as the transaction commits.

    The caller holds the context (its foreign key does too), so that it is not deleted meanwhile.
    """
    await connection.execute(
        "INSERT INTO work (tenant_id, context_id, kind, payload) "
        "SELECT $1, $2, $3, payload FROM unnest($4::jsonb[]) WITH ORDINALITY AS new (payload, n) ORDER BY n",
        tenant,
        context,
        kind,
        list(payloads),
    )


async def claim(
    connection: Connection,
    tenant: UUID,
    kind: str,
    *,
    limit: int,
    lease_seconds: float,
    worker: str,
    context: UUID | None = None,
) -> list[Item]:
    """Take up to ``limit`` items that are due, the longest due first; passes over what others are taking now.

    They become due again when the lease ends, unless it is extended. ``context`` None takes any context's.
    """
    rows = await connection.fetch(
        """
        WITH due AS MATERIALIZED (
          SELECT context_id, work_id FROM work
          WHERE tenant_id = $1 AND kind = $2 AND NOT is_failed AND run_at <= now()
            AND ($6::uuid IS NULL OR context_id = $6)
          ORDER BY run_at, work_id LIMIT $3
          FOR UPDATE SKIP LOCKED
        )
        UPDATE work SET attempts = attempts + 1, worker = $5,
          run_at = clock_timestamp() + make_interval(secs => $4)
        FROM due
        WHERE work.tenant_id = $1 AND work.context_id = due.context_id AND work.work_id = due.work_id
        RETURNING work.context_id, work.work_id, attempts, worker, payload
        """,
        tenant,
        kind,
        limit,
        lease_seconds,
        worker,
        context,
    )
    return sorted((Item(*row) for row in rows), key=lambda item: item.work_id)


async def extend(connection: Connection, tenant: UUID, items: Sequence[Item], lease_seconds: float) -> set[int]:
    """Begin the lease of items anew; return the numbers of those that are still the worker's."""
    rows = await connection.fetch(
        """
        UPDATE work SET run_at = clock_timestamp() + make_interval(secs => $6)
        FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::text[]) AS mine (context_id, work_id, attempts, worker)
        WHERE work.tenant_id = $1 AND work.context_id = mine.context_id AND work.work_id = mine.work_id
          AND work.attempts = mine.attempts AND work.worker = mine.worker AND NOT is_failed
        RETURNING work.work_id
        """,
        *_fence(tenant, items),
        lease_seconds,
    )
    return {row[0] for row in rows}


async def finish(connection: Connection, tenant: UUID, items: Sequence[Item]) -> int:
    """Delete items that are done and still the worker's; return how many."""
    rows = await connection.fetch(
        """
        DELETE FROM work
        USING unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::text[]) AS mine (context_id, work_id, attempts, worker)
        WHERE work.tenant_id = $1 AND work.context_id = mine.context_id AND work.work_id = mine.work_id
          AND work.attempts = mine.attempts AND work.worker = mine.worker
        RETURNING work.work_id
        """,
        *_fence(tenant, items),
    )
    return len(rows)


async def put_back(
    connection: Connection,
    tenant: UUID,
    items: Sequence[Item],
    *,
    delay_seconds: float = 0.0,
    error: str | None = None,
    is_counted: bool = True,
) -> int:
    """Give up items that are still the worker's; they are due again after the delay. Return how many.

    ``is_counted`` False takes the attempt back: it was not the item's fault.
    """
    rows = await connection.fetch(
        """
        UPDATE work SET worker = NULL, error = coalesce($7, error),
          attempts = work.attempts - CASE WHEN $8 THEN 0 ELSE 1 END,
          run_at = clock_timestamp() + make_interval(secs => $6)
        FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::text[]) AS mine (context_id, work_id, attempts, worker)
        WHERE work.tenant_id = $1 AND work.context_id = mine.context_id AND work.work_id = mine.work_id
          AND work.attempts = mine.attempts AND work.worker = mine.worker AND NOT is_failed
        RETURNING work.work_id
        """,
        *_fence(tenant, items),
        delay_seconds,
        error,
        is_counted,
    )
    return len(rows)


async def fail(
    connection: Connection, tenant: UUID, item: Item, error: str, payload: Mapping[str, Any] | None = None
) -> bool:
    """Keep an item as failed for good, with what remains of its payload if given; False when it is not the worker's."""
    row = await connection.fetchval(
        """
        UPDATE work SET is_failed = true, worker = NULL, error = $6, payload = coalesce($7::jsonb, payload)
        WHERE tenant_id = $1 AND context_id = $2 AND work_id = $3 AND attempts = $4 AND worker = $5 AND NOT is_failed
        RETURNING true
        """,
        tenant,
        item.context_id,
        item.work_id,
        item.attempts,
        item.worker,
        error,
        payload,
    )
    return row is not None


async def revive(connection: Connection, tenant: UUID, kind: str, context: UUID | None = None) -> int:
    """Make failed items due again, as if they were new; return how many."""
    rows = await connection.fetch(
        """
        UPDATE work SET is_failed = false, attempts = 0, run_at = clock_timestamp()
        WHERE tenant_id = $1 AND kind = $2 AND is_failed AND ($3::uuid IS NULL OR context_id = $3)
        RETURNING work_id
        """,
        tenant,
        kind,
        context,
    )
    return len(rows)


def _fence(tenant: UUID, items: Sequence[Item]) -> tuple[UUID, list[UUID], list[int], list[int], list[str]]:
    return (
        tenant,
        [item.context_id for item in items],
        [item.work_id for item in items],
        [item.attempts for item in items],
        [item.worker for item in items],
    )
