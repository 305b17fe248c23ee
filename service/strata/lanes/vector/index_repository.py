"""The HNSW indexes of large embedding spaces, one partial index each, made by the owner of the table.

They are built, rebuilt and dropped CONCURRENTLY: readers and writers go on, and no transaction may be open.
"""

from __future__ import annotations

import re
from enum import StrEnum

import asyncpg
import structlog

from strata.platform.database import Connection

M = 16
EF_CONSTRUCTION = 128
MAX_BUILD_BYTES = 2 * 1024**3
"""The most memory a build may take; above what that holds, the rest of the graph is built on disk, slowly."""

_LINK_BYTES = 16
_NODE_BYTES = 200
_MIN_BUILD_BYTES = 64 * 1024**2

_CREATE = """
CREATE INDEX CONCURRENTLY @index ON passage_vector
USING hnsw ((embedding::halfvec(@dimension)) halfvec_cosine_ops) WITH (m = @m, ef_construction = @ef)
WHERE space_id = @space
"""

_log = structlog.get_logger(__name__)


class IndexState(StrEnum):
    """What there is of the index of a space; ``INVALID`` is left by a build that failed."""

    ABSENT = "absent"
    BUILDING = "building"
    INVALID = "invalid"
    VALID = "valid"


def index_name(space_id: int) -> str:
    """Return the name of the index of a space."""
    return f"passage_vector_hnsw_{int(space_id)}"


async def index_state(connection: Connection, space_id: int) -> IndexState:
    """Return what there is of the index, over an owner connection: others cannot tell a build from one that failed."""
    row = await connection.fetchrow(
        """
        SELECT i.indisvalid, p.pid IS NOT NULL AS is_building
        FROM pg_index AS i LEFT JOIN pg_stat_progress_create_index AS p ON p.index_relid = i.indexrelid
        WHERE i.indexrelid = to_regclass($1)
        """,
        index_name(space_id),
    )
    if row is None:
        return IndexState.ABSENT
    if row["indisvalid"]:
        return IndexState.VALID
    return IndexState.BUILDING if row["is_building"] else IndexState.INVALID


async def index_is_valid(connection: Connection, space_id: int) -> bool:
    """Return whether the space has an index that answers."""
    return await index_state(connection, space_id) is IndexState.VALID


async def invalid_indexes(connection: Connection) -> list[str]:
    """Return the names of the vector indexes that a failed build left, of every space."""
    rows = await connection.fetch(
        """
        SELECT i.indexrelid::regclass::text AS name
        FROM pg_index AS i LEFT JOIN pg_stat_progress_create_index AS p ON p.index_relid = i.indexrelid
        WHERE i.indrelid = to_regclass('passage_vector') AND NOT i.indisvalid AND p.pid IS NULL
        ORDER BY name
        """
    )
    return [row["name"] for row in rows]


async def index_bytes(connection: Connection, space_id: int) -> int:
    """Return the size of the index on disk, 0 where there is none."""
    size: int = await connection.fetchval("SELECT coalesce(pg_relation_size(to_regclass($1)), 0)", index_name(space_id))
    return size


async def create_index(
    connection: asyncpg.Connection,
    space_id: int,
    dimension: int,
    *,
    vectors: int,
    max_bytes: int = MAX_BUILD_BYTES,
    workers: int = 1,
    m: int = M,
    ef_construction: int = EF_CONSTRUCTION,
) -> bool:
    """Build the index of a space over an owner connection; return whether a valid one stands now.

    False when another session builds it just now. What a failed build left is dropped first. ``vectors`` says how
    many there are, for the memory the build asks for; ``workers`` are parallel ones beside the session itself.
    """
    state = await index_state(connection, space_id)
    if state in {IndexState.VALID, IndexState.BUILDING}:
        return state is IndexState.VALID
    statement = _CREATE.replace("@index", index_name(space_id))
    for name, value in (("@dimension", dimension), ("@space", space_id), ("@m", m), ("@ef", ef_construction)):
        statement = statement.replace(name, str(int(value)))
    try:
        await _build(connection, statement, space_id, build_bytes(vectors, dimension, max_bytes, m=m), workers)
    except asyncpg.DuplicateTableError:
        return False
    # Without statistics the planner takes the table for a small one.
    await connection.execute("ANALYZE passage_vector (tenant_id, context_id, space_id, passage_id)")
    return True


async def rebuild_index(
    connection: asyncpg.Connection,
    space_id: int,
    dimension: int,
    *,
    vectors: int,
    max_bytes: int = MAX_BUILD_BYTES,
    workers: int = 1,
) -> bool:
    """Build the index of a space anew beside the one that stands, which answers until then; else as to create it.

    After many deletions this costs less than the repair of the graph that VACUUM would do.
    """
    if await index_state(connection, space_id) is not IndexState.VALID:
        return await create_index(
            connection, space_id, dimension, vectors=vectors, max_bytes=max_bytes, workers=workers
        )
    statement = "REINDEX INDEX CONCURRENTLY @index".replace("@index", index_name(space_id))
    await _build(connection, statement, space_id, build_bytes(vectors, dimension, max_bytes), workers)
    return True


async def drop_index(connection: asyncpg.Connection, space_id: int) -> None:
    """Drop the index of a space over an owner connection, and what failed builds left of it."""
    await connection.execute("SET lock_timeout = 0")
    await connection.execute("SET statement_timeout = 0")
    for name in [index_name(space_id), *await _left_over(connection, space_id)]:
        await connection.execute("DROP INDEX CONCURRENTLY IF EXISTS @index".replace("@index", name))


async def _left_over(connection: asyncpg.Connection, space_id: int) -> list[str]:
    """Return the names of the invalid indexes that builds of one space left and nobody works on."""
    name = index_name(space_id)
    pattern = f"{name}(_cc(new|old)[0-9]*)?"
    return [found for found in await invalid_indexes(connection) if re.fullmatch(pattern, found)]


async def _build(connection: asyncpg.Connection, statement: str, space_id: int, memory: int, workers: int) -> None:
    """Build by a statement; alone where parallel workers find no room for the graph that they share."""
    for name in await _left_over(connection, space_id):
        await connection.execute("DROP INDEX CONCURRENTLY IF EXISTS @index".replace("@index", name))
    await _prepare(connection, memory, workers)
    try:
        await connection.execute(statement)
    except asyncpg.InsufficientResourcesError as error:
        # It lies in /dev/shm, which containers keep small.
        if workers == 0:
            raise
        _log.warning("vector.index_build_alone", space=space_id, error=str(error))
        await _build(connection, statement, space_id, memory, 0)
    finally:
        await _restore(connection)


def build_bytes(vectors: int, dimension: int, max_bytes: int = MAX_BUILD_BYTES, *, m: int = M) -> int:
    """Return the memory in bytes that a build of so many vectors takes, between 64 MiB and ``max_bytes``."""
    node = 2 * dimension + 2 * m * _LINK_BYTES + _NODE_BYTES
    return max(_MIN_BUILD_BYTES, min(max_bytes, vectors * node * 5 // 4))


async def _prepare(connection: asyncpg.Connection, memory: int, workers: int) -> None:
    for name, value in (
        ("maintenance_work_mem", f"{memory // 1024}kB"),
        ("max_parallel_maintenance_workers", str(workers)),
        ("statement_timeout", "0"),
        ("lock_timeout", "0"),
    ):
        await connection.execute("SELECT set_config($1, $2, false)", name, value)


async def _restore(connection: asyncpg.Connection) -> None:
    if not connection.is_closed():
        for name in ("maintenance_work_mem", "max_parallel_maintenance_workers", "statement_timeout", "lock_timeout"):
            await connection.execute("RESET @name".replace("@name", name))
