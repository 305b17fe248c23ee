"""SQL of the work that fills embedding spaces, and of what it could not embed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from strata.embeddings.model import EMBED, FILL, Failure, WorkCounts
from strata.platform.database import Connection


async def want_space(connection: Connection, tenant: UUID, context: UUID, payload: Mapping[str, Any]) -> None:
    """Add the work that makes the first space of a context, unless it waits already."""
    await connection.execute(
        """
        INSERT INTO work (tenant_id, context_id, kind, payload)
        SELECT $1, $2, $3, $4
        WHERE NOT EXISTS (
          SELECT FROM work
          WHERE tenant_id = $1 AND context_id = $2 AND kind = $3 AND NOT is_failed AND payload->'space' = 'null'::jsonb)
        """,
        tenant,
        context,
        FILL,
        payload,
    )


async def drop_work(connection: Connection, tenant: UUID, context: UUID, space_id: int) -> None:
    """Delete the work of a space that is retired."""
    await connection.execute(
        """
        DELETE FROM work
        WHERE tenant_id = $1 AND context_id = $2 AND kind = ANY ($3::text[])
          AND payload->'space' = to_jsonb($4::bigint)
        """,
        tenant,
        context,
        [EMBED, FILL],
        space_id,
    )


async def work_counts(
    connection: Connection, tenant: UUID, context: UUID | None = None
) -> dict[tuple[UUID, int | None], WorkCounts]:
    """Return the items of each context and space; the space is None for the work that makes the first."""
    rows = await connection.fetch(
        """
        SELECT context_id, (payload->>'space')::bigint,
          count(*) FILTER (WHERE NOT is_failed AND (worker IS NULL OR run_at <= now())),
          count(*) FILTER (WHERE NOT is_failed AND worker IS NOT NULL AND run_at > now()),
          count(*) FILTER (WHERE is_failed)
        FROM work
        WHERE tenant_id = $1 AND kind = ANY ($2::text[]) AND ($3::uuid IS NULL OR context_id = $3)
        GROUP BY 1, 2
        """,
        tenant,
        [EMBED, FILL],
        context,
    )
    return {(row[0], row[1]): WorkCounts(row[2], row[3], row[4]) for row in rows}


async def failures(connection: Connection, tenant: UUID, context: UUID | None = None) -> list[Failure]:
    """Return what could not be embedded of the sources that still stand, by context, path and space."""
    rows = await connection.fetch(
        """
        SELECT w.context_id, (w.payload->>'space')::bigint, s.serial, s.path,
          array_agg(DISTINCT ordinal ORDER BY ordinal), min(coalesce(w.error, ''))
        FROM work w
        CROSS JOIN LATERAL jsonb_array_elements(w.payload->'ranges') AS r (range)
        JOIN source s ON s.tenant_id = $1 AND s.context_id = w.context_id AND s.serial = (r.range->>0)::bigint
        CROSS JOIN LATERAL generate_series(
          (r.range->>1)::bigint, (r.range->>1)::bigint + (r.range->>2)::bigint - 1) AS ordinal
        WHERE w.tenant_id = $1 AND w.kind = $2 AND w.is_failed AND ($3::uuid IS NULL OR w.context_id = $3)
        GROUP BY 1, 2, 3, 4
        ORDER BY 1, s.path COLLATE "C", 2
        """,
        tenant,
        EMBED,
        context,
    )
    return [Failure(*row) for row in rows]


async def forget_failures(connection: Connection, tenant: UUID, context: UUID | None = None) -> None:
    """Delete failed items none of whose sources still stand."""
    await connection.execute(
        """
        DELETE FROM work w
        WHERE w.tenant_id = $1 AND w.kind = $2 AND w.is_failed AND ($3::uuid IS NULL OR w.context_id = $3)
          AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(w.payload->'ranges') AS r (range)
            JOIN source s ON s.tenant_id = $1 AND s.context_id = w.context_id AND s.serial = (r.range->>0)::bigint)
        """,
        tenant,
        EMBED,
        context,
    )
