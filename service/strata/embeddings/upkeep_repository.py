"""SQL of the upkeep: who may build and drop the indexes of spaces, and which are left over."""

from __future__ import annotations

from uuid import UUID

from strata.lanes.vector.index_repository import EF_CONSTRUCTION, M, index_name
from strata.platform.database import Connection


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


async def stray_indexes(connection: Connection, limit: int) -> list[int]:
    """Return the numbers of spaces that have an index and no row that this connection sees, the lowest first.

    Row-level security hides the spaces of other tenants. An index that is being built is left out.
    """
    rows = await connection.fetch(
        """
        SELECT DISTINCT number FROM (
          SELECT substring(c.relname::text FROM '^passage_vector_hnsw_([0-9]{1,18})(?:_cc(?:new|old)[0-9]*)?$')::bigint
          FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
          WHERE i.indrelid = 'passage_vector'::regclass
            AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = i.indexrelid)
        ) AS found (number)
        WHERE number IS NOT NULL AND NOT EXISTS (SELECT FROM embedding_space s WHERE s.space_id = found.number)
        ORDER BY number LIMIT $1
        """,
        limit,
    )
    return [row[0] for row in rows]


async def sees_every_space(connection: Connection) -> bool:
    """Tell whether row-level security hides nothing from this connection."""
    found: bool = await connection.fetchval("SELECT NOT row_security_active('embedding_space')")
    return found
