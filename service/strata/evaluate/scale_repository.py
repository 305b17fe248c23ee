"""Statements of the scale benchmark: an embedding space whose vectors were not made by its embedder."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from strata.platform.database import Connection
from strata.providers.embeddings.base import EmbeddingSpace


async def vacuum(connection: Any) -> None:
    """Clean and count every table now: else autovacuum takes one of the cores while lookups are timed."""
    await connection.execute("VACUUM (ANALYZE)")


async def context_id(connection: Connection, tenant: UUID, name: str) -> UUID:
    """Return the id of a context."""
    found: UUID = await connection.fetchval(
        "SELECT context_id FROM context WHERE tenant_id = $1 AND name = $2", tenant, name
    )
    return found


async def active_space(connection: Connection, tenant: UUID, context: UUID, space: EmbeddingSpace) -> int:
    """Return the id of the active space of a context, made where there is none."""
    found: int | None = await connection.fetchval(
        "SELECT space_id FROM embedding_space WHERE tenant_id = $1 AND context_id = $2 AND state = 'active'",
        tenant,
        context,
    )
    if found is not None:
        return found
    made: int = await connection.fetchval(
        """
        INSERT INTO embedding_space (tenant_id, context_id, fingerprint, description, dimension, state, activated_at)
        VALUES ($1, $2, $3, $4, $5, 'active', now()) RETURNING space_id
        """,
        tenant,
        context,
        space.fingerprint,
        msgspec.to_builtins(space),
        space.dimension,
    )
    return made


async def bare_passages(
    connection: Connection, tenant: UUID, context: UUID, space_id: int, *, after: int, limit: int
) -> list[int]:
    """Return the next passages of a context that have no vector in a space, by id."""
    rows = await connection.fetch(
        """
        SELECT p.passage_id FROM passage p
        WHERE p.tenant_id = $1 AND p.context_id = $2 AND p.passage_id > $4
          AND NOT EXISTS (
            SELECT FROM passage_vector v
            WHERE v.tenant_id = $1 AND v.context_id = $2 AND v.space_id = $3 AND v.passage_id = p.passage_id
          )
        ORDER BY p.passage_id LIMIT $5
        """,
        tenant,
        context,
        space_id,
        after,
        limit,
    )
    return [row["passage_id"] for row in rows]


async def count_vectors(connection: Connection, tenant: UUID, context: UUID, space_id: int, added: int) -> None:
    """Add to the count of vectors of a space."""
    await connection.execute(
        """
        UPDATE embedding_space SET vectors = vectors + $4
        WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3
        """,
        tenant,
        context,
        space_id,
        added,
    )


async def mark_indexed(connection: Connection, tenant: UUID, context: UUID, space_id: int, *, is_indexed: bool) -> None:
    """Note whether a valid HNSW index of the space stands."""
    await connection.execute(
        """
        UPDATE embedding_space SET indexed_at = CASE WHEN $4 THEN now() END
        WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3
        """,
        tenant,
        context,
        space_id,
        is_indexed,
    )
