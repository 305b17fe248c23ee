"""SQL of embedding spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from strata.embeddings.model import ActiveSpace, SpaceRow, State
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


def _space_row(row: Any) -> SpaceRow:
    return SpaceRow(row[0], row[1], _space(row[2]), *row[3:])


def _space(description: Any) -> EmbeddingSpace:
    return msgspec.convert(description, EmbeddingSpace)
