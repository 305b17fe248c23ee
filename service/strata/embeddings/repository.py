"""SQL of embedding spaces, and of the passages that they cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from strata.embeddings.carry import KeyedPassage
from strata.embeddings.model import ActiveSpace, PassageText, SpaceRow, State
from strata.lanes.vector.index_repository import EF_CONSTRUCTION, M, index_name
from strata.platform.database import Connection
from strata.providers.embeddings.base import EmbeddingSpace


async def active_spaces(connection: Connection, tenant: UUID, contexts: Sequence[UUID]) -> dict[UUID, ActiveSpace]:
    """Return the active space of each context that has one."""
    rows = await connection.fetch(
        """
        SELECT context_id, space_id, description, vectors, indexed_at IS NOT NULL FROM embedding_space
        WHERE tenant_id = $1 AND context_id = ANY ($2::uuid[]) AND state = 'active'
        """,
        tenant,
        list(contexts),
    )
    return {row[0]: ActiveSpace(row[1], _space(row[2]), row[3], row[4]) for row in rows}


async def open_spaces(connection: Connection, tenant: UUID, context: UUID) -> list[tuple[int, State]]:
    """Return number and state of the spaces that new passages go into, by number."""
    rows = await connection.fetch(
        """
        SELECT space_id, state FROM embedding_space
        WHERE tenant_id = $1 AND context_id = $2 AND state <> 'retired' ORDER BY space_id
        """,
        tenant,
        context,
    )
    return [(row[0], row[1]) for row in rows]


async def spaces(connection: Connection, tenant: UUID, context: UUID | None = None) -> list[SpaceRow]:
    """Return every space of a context, or of all, by number."""
    rows = await connection.fetch(
        """
        SELECT context_id, space_id, description, state, vectors, removed, indexed_at, created_at, activated_at
        FROM embedding_space
        WHERE tenant_id = $1 AND ($2::uuid IS NULL OR context_id = $2) ORDER BY space_id
        """,
        tenant,
        context,
    )
    return [_space_row(row) for row in rows]


async def space(connection: Connection, tenant: UUID, context: UUID, space_id: int) -> SpaceRow | None:
    """Return one space; None when it is gone."""
    row = await connection.fetchrow(
        """
        SELECT context_id, space_id, description, state, vectors, removed, indexed_at, created_at, activated_at
        FROM embedding_space WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3
        """,
        tenant,
        context,
        space_id,
    )
    return _space_row(row) if row else None


async def lock_spaces(connection: Connection, tenant: UUID, context: UUID) -> list[SpaceRow]:
    """Lock the spaces of a context to the end of the transaction, and return them, by number."""
    rows = await connection.fetch(
        """
        SELECT context_id, space_id, description, state, vectors, removed, indexed_at, created_at, activated_at
        FROM embedding_space WHERE tenant_id = $1 AND context_id = $2 ORDER BY space_id FOR NO KEY UPDATE
        """,
        tenant,
        context,
    )
    return [_space_row(row) for row in rows]


async def insert_space(
    connection: Connection, tenant: UUID, context: UUID, embedding_space: EmbeddingSpace, state: State
) -> int | None:
    """Insert a space and return its number; None when the context has one of that state."""
    number: int | None = await connection.fetchval(
        """
        INSERT INTO embedding_space (tenant_id, context_id, fingerprint, description, dimension, state, activated_at)
        VALUES ($1, $2, $3, $4, $5, $6::text, CASE WHEN $6::text = 'active' THEN now() END)
        ON CONFLICT DO NOTHING RETURNING space_id
        """,
        tenant,
        context,
        embedding_space.fingerprint,
        msgspec.to_builtins(embedding_space),
        embedding_space.dimension,
        state,
    )
    return number


async def set_state(connection: Connection, tenant: UUID, context: UUID, space_id: int, state: State) -> None:
    """Move a space to another state."""
    await connection.execute(
        """
        UPDATE embedding_space
        SET state = $4::text, activated_at = CASE WHEN $4::text = 'active' THEN now() ELSE activated_at END
        WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3
        """,
        tenant,
        context,
        space_id,
        state,
    )


async def delete_space(connection: Connection, tenant: UUID, context: UUID, space_id: int) -> bool:
    """Delete a retired space that has no vectors left; False when it has some."""
    deleted = await connection.fetchval(
        """
        DELETE FROM embedding_space s
        WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3 AND state = 'retired'
          AND NOT EXISTS (
            SELECT FROM passage_vector v
            WHERE v.tenant_id = $1 AND v.context_id = $2 AND v.space_id = $3)
        RETURNING true
        """,
        tenant,
        context,
        space_id,
    )
    return deleted is not None


async def count_stored(connection: Connection, tenant: UUID, context: UUID, space_id: int, number: int) -> bool:
    """Raise the vectors of a space by those stored in this transaction; False when it takes none any more."""
    row = await connection.fetchval(
        """
        UPDATE embedding_space SET vectors = vectors + $4
        WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3 AND state <> 'retired' RETURNING true
        """,
        tenant,
        context,
        space_id,
        number,
    )
    return row is not None


async def count_removed(
    connection: Connection, tenant: UUID, context: UUID, removed: Mapping[int, int], moved: Mapping[int, int]
) -> None:
    """Lower the vectors of spaces by those deleted in this transaction; the rows are locked by number.

    Those moved to other passages leave as much dead in an index as those deleted do.
    """
    numbers = sorted({*removed, *moved})
    await connection.execute(
        """
        WITH locked AS MATERIALIZED (
          SELECT space_id FROM embedding_space
          WHERE tenant_id = $1 AND context_id = $2 AND space_id = ANY ($3::bigint[])
          ORDER BY space_id FOR NO KEY UPDATE
        )
        UPDATE embedding_space s SET vectors = vectors - gone.number, removed = removed + gone.number + gone.moved
        FROM locked JOIN unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS gone (space_id, number, moved)
          USING (space_id)
        WHERE s.tenant_id = $1 AND s.context_id = $2 AND s.space_id = locked.space_id
        """,
        tenant,
        context,
        numbers,
        [removed.get(number, 0) for number in numbers],
        [moved.get(number, 0) for number in numbers],
    )


async def recount(connection: Connection, tenant: UUID, context: UUID, space_id: int) -> int:
    """Count the vectors of a space that this transaction has locked, set the number right and return it."""
    number: int = await connection.fetchval(
        """
        UPDATE embedding_space SET vectors = (
          SELECT count(*) FROM passage_vector v
          WHERE v.tenant_id = $1 AND v.context_id = $2 AND v.space_id = $3)
        WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3 RETURNING vectors
        """,
        tenant,
        context,
        space_id,
    )
    return number


async def set_indexed(connection: Connection, tenant: UUID, context: UUID, space_id: int, *, is_indexed: bool) -> None:
    """Say whether a valid HNSW index stands for a space; what was removed before no longer counts."""
    await connection.execute(
        """
        UPDATE embedding_space
        SET indexed_at = CASE WHEN $4 THEN now() END, removed = CASE WHEN $4 THEN 0 ELSE removed END
        WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3
        """,
        tenant,
        context,
        space_id,
        is_indexed,
    )


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


def index_statement(space_id: int, dimension: int) -> str:
    """Return the statement by which the owner of the table builds the index of a space."""
    return (
        f"CREATE INDEX CONCURRENTLY {index_name(space_id)} ON passage_vector "
        f"USING hnsw ((embedding::halfvec({dimension})) halfvec_cosine_ops) "
        f"WITH (m = {M}, ef_construction = {EF_CONSTRUCTION}) WHERE space_id = {space_id};"
    )


async def owns_vectors(connection: Connection) -> bool:
    """Tell whether the login role may build indexes on the vectors."""
    found: bool = await connection.fetchval(
        "SELECT pg_has_role(session_user, relowner, 'USAGE') FROM pg_class WHERE oid = 'passage_vector'::regclass"
    )
    return found


async def claim_upkeep(connection: Connection, tenant: UUID, space_id: int) -> bool:
    """Take the lock of a space's upkeep until the transaction ends; False when another worker holds it.

    Leaves no snapshot open, for which the building of an index would wait.
    """
    claimed: bool = await connection.fetchval(
        "SELECT pg_try_advisory_xact_lock(hashtextextended('embedding_space/' || $1::text || '/' || $2::text, 0))",
        str(tenant),
        str(space_id),
    )
    # The result of a statement with parameters keeps its snapshot until the next statement; this one has none.
    await connection.execute("SELECT 1")
    return claimed


def _space_row(row: Any) -> SpaceRow:
    return SpaceRow(row[0], row[1], _space(row[2]), *row[3:])


def _space(description: Any) -> EmbeddingSpace:
    return msgspec.convert(description, EmbeddingSpace)
