"""SQL of the passages that embedding spaces cover, and of the sources that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from strata.embeddings.carry import KeyedPassage
from strata.embeddings.model import PassageText
from strata.platform.database import Connection


async def texts(
    connection: Connection, tenant: UUID, context: UUID, space_id: int, passages: Sequence[int]
) -> list[PassageText]:
    """Return what is to be embedded of passages, in the order given; those gone or embedded already are left out."""
    # OFFSET 0 keeps the planner to one probe of a primary key each, also where statistics are missing or old.
    rows = await connection.fetch(
        """
        SELECT w.passage_id, s.title, x.breadcrumb, (
            SELECT convert_from(
              substring(c.content FROM p.start_byte::int + 1 FOR (p.end_byte - p.start_byte)::int), 'UTF8')
            FROM source_content c
            WHERE c.tenant_id = $1 AND c.context_id = $2 AND c.source_id = p.source_id
          )
        FROM unnest($4::bigint[]) WITH ORDINALITY AS w (passage_id, n)
        CROSS JOIN LATERAL (
          SELECT * FROM passage
          WHERE tenant_id = $1 AND context_id = $2 AND passage_id = w.passage_id OFFSET 0
        ) p
        CROSS JOIN LATERAL (
          SELECT * FROM source WHERE tenant_id = $1 AND context_id = $2 AND source_id = p.source_id OFFSET 0
        ) s
        CROSS JOIN LATERAL (
          SELECT * FROM section
          WHERE tenant_id = $1 AND context_id = $2 AND source_id = p.source_id
            AND ordinal = p.section_ordinal OFFSET 0
        ) x
        WHERE NOT EXISTS (
          SELECT FROM passage_vector v
          WHERE v.tenant_id = $1 AND v.context_id = $2 AND v.space_id = $3 AND v.passage_id = w.passage_id
          OFFSET 0)
        ORDER BY w.n
        """,
        tenant,
        context,
        space_id,
        list(passages),
    )
    return [PassageText(*row) for row in rows]


async def lock_live(connection: Connection, tenant: UUID, context: UUID, serials: Sequence[int]) -> set[int]:
    """Keep sources from being replaced or deleted until the transaction ends; return the serials that still stand.

    Locked by id, as every writer does. Replacing a source gives it another serial, which this lock excludes.
    """
    rows = await connection.fetch(
        """
        SELECT serial FROM source
        WHERE tenant_id = $1 AND context_id = $2 AND serial = ANY ($3::bigint[])
        ORDER BY source_id FOR KEY SHARE
        """,
        tenant,
        context,
        list(serials),
    )
    return {row[0] for row in rows}


async def keyed_passages(
    connection: Connection, tenant: UUID, context: UUID, serials: Sequence[int]
) -> list[KeyedPassage]:
    """Return the passages of sources with what decides their vectors."""
    rows = await connection.fetch(
        """
        SELECT p.passage_id, p.sha256, s.title, x.breadcrumb
        FROM unnest($3::bigint[]) AS w (serial)
        CROSS JOIN LATERAL (
          SELECT source_id, title FROM source
          WHERE tenant_id = $1 AND context_id = $2 AND serial = w.serial OFFSET 0
        ) s
        CROSS JOIN LATERAL (
          SELECT passage_id, sha256, section_ordinal FROM passage
          WHERE tenant_id = $1 AND context_id = $2 AND source_id = s.source_id OFFSET 0
        ) p
        CROSS JOIN LATERAL (
          SELECT breadcrumb FROM section
          WHERE tenant_id = $1 AND context_id = $2 AND source_id = s.source_id AND ordinal = p.section_ordinal OFFSET 0
        ) x
        """,
        tenant,
        context,
        list(serials),
    )
    return [KeyedPassage(row[0], (row[1], row[2], tuple(row[3]))) for row in rows]


async def move_vectors(
    connection: Connection, tenant: UUID, context: UUID, spaces: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> dict[int, set[int]]:
    """Give vectors of passages to others, from the first of each pair to the second; return the latter by space."""
    rows = await connection.fetch(
        """
        UPDATE passage_vector v SET passage_id = pair.new
        FROM unnest($4::bigint[], $5::bigint[]) AS pair (old, new)
        WHERE v.tenant_id = $1 AND v.context_id = $2 AND v.space_id = ANY ($3::bigint[]) AND v.passage_id = pair.old
          AND v.passage_id = ANY ($4::bigint[])
        RETURNING v.space_id, v.passage_id
        """,
        tenant,
        context,
        list(spaces),
        [old for old, _ in pairs],
        [new for _, new in pairs],
    )
    moved: dict[int, set[int]] = {}
    for row in rows:
        moved.setdefault(row[0], set()).add(row[1])
    return moved


async def last_passage(connection: Connection, tenant: UUID, context: UUID) -> int | None:
    """Return the highest passage id of a context; None when it is empty."""
    found: int | None = await connection.fetchval(
        "SELECT passage_id FROM passage WHERE tenant_id = $1 AND context_id = $2 ORDER BY passage_id DESC LIMIT 1",
        tenant,
        context,
    )
    return found


async def missing(
    connection: Connection, tenant: UUID, context: UUID, space_id: int, *, after: int, until: int | None, limit: int
) -> tuple[int | None, list[int]]:
    """Look at the next ``limit`` passages of a context; return the last of them and those without a vector.

    The last is None when the end is reached.
    """
    rows = await connection.fetch(
        """
        SELECT p.passage_id, EXISTS (
          SELECT FROM passage_vector v
          WHERE v.tenant_id = $1 AND v.context_id = $2 AND v.space_id = $3 AND v.passage_id = p.passage_id OFFSET 0)
        FROM (
          SELECT passage_id FROM passage
          WHERE tenant_id = $1 AND context_id = $2 AND passage_id > $4 AND ($5::bigint IS NULL OR passage_id <= $5)
          ORDER BY passage_id LIMIT $6
        ) p
        ORDER BY p.passage_id
        """,
        tenant,
        context,
        space_id,
        after,
        until,
        limit,
    )
    last = rows[-1][0] if len(rows) == limit else None
    return last, [row[0] for row in rows if not row[1]]


async def passage_counts(connection: Connection, tenant: UUID, context: UUID | None = None) -> dict[UUID, int]:
    """Return how many passages each context holds; a context without any is left out."""
    rows = await connection.fetch(
        """
        SELECT context_id, sum(passage_count)::bigint FROM source
        WHERE tenant_id = $1 AND ($2::uuid IS NULL OR context_id = $2)
        GROUP BY context_id HAVING sum(passage_count) > 0 ORDER BY context_id
        """,
        tenant,
        context,
    )
    return {row[0]: row[1] for row in rows}
