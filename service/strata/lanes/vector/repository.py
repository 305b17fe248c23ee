"""The vectors of passages in Postgres, and the nearest of them. SQL only; calls run in the caller's unit of work.

A space id and a dimension stand in some statements as literals, so that the planner can prove the partial index of
the space whatever plan is cached. They are integers, and nothing else is ever put into a statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import numpy as np
import numpy.typing as npt

from strata.errors import DATABASE_SETUP, EMBEDDING_REFUSED, StrataError
from strata.platform.database import Connection
from strata.platform.ids import ORDINALS, SERIAL_BITS
from strata.providers.embeddings.base import Vectors

Serials: TypeAlias = npt.NDArray[np.int64]

_NEAREST, _ALSO = 0, 1

_MAX_MAP_BITS = 1 << 20
_SPARSE = 64  # above so many bits a serial, an array is the smaller one

# The bit of a serial that is not eligible is 0; CASE keeps get_bit away from serials outside of the map.
_MAP_FILTER = """
    AND CASE WHEN passage_id >> 20 BETWEEN $6 AND $7
             THEN get_bit($8::bytea, (passage_id >> 20) - $6) = 1 ELSE false END
"""
# IS TRUE keeps it a hashed filter: = ANY of a parameter is searched in turn, and IN alone becomes a join.
_ARRAY_FILTER = "AND ((passage_id >> 20) IN (SELECT unnest($6::bigint[]))) IS TRUE"

_INDEXED = """
SELECT 0 AS part, passage_id, distance FROM (
  SELECT passage_id, embedding::halfvec(@dimension) <=> (SELECT $3::real[]::halfvec(@dimension)) AS distance
  FROM passage_vector
  WHERE tenant_id = $1 AND context_id = $2 AND space_id = @space @filter
  ORDER BY distance
  LIMIT $4
) AS nearest
UNION ALL
SELECT 1, passage_id, embedding <=> (SELECT $3::real[]::halfvec)
FROM passage_vector
WHERE tenant_id = $1 AND context_id = $2 AND space_id = @space AND passage_id = ANY ($5::bigint[])
UNION ALL
SELECT 2, count(*), 0 FROM pg_index
WHERE indexrelid = to_regclass('passage_vector_hnsw_@space') AND indisvalid
"""

_EXACT = """
SELECT 0 AS part, passage_id, distance FROM (
  SELECT passage_id, embedding <=> (SELECT $4::real[]::halfvec) AS distance
  FROM passage_vector
  WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3
  ORDER BY distance, passage_id
  LIMIT $5
) AS nearest
UNION ALL
SELECT 1, passage_id, embedding <=> (SELECT $4::real[]::halfvec)
FROM passage_vector
WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3 AND passage_id = ANY ($6::bigint[])
"""

_BEFORE = """
SET LOCAL enable_sort = off; SET LOCAL hnsw.ef_search = @breadth; SET LOCAL hnsw.max_scan_tuples = @visits
"""

# OFFSET 0 keeps the range scan of the primary key from being turned into a join of another kind.
_EXACT_RANGES = """
SELECT 0 AS part, passage_id, distance FROM (
  SELECT v.passage_id, v.embedding <=> (SELECT $4::real[]::halfvec) AS distance
  FROM unnest($7::bigint[], $8::bigint[]) AS range (first, last)
  CROSS JOIN LATERAL (
    SELECT passage_id, embedding FROM passage_vector
    WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3 AND passage_id BETWEEN range.first AND range.last
    OFFSET 0
  ) AS v
  ORDER BY distance, passage_id
  LIMIT $5
) AS nearest
UNION ALL
SELECT 1, passage_id, embedding <=> (SELECT $4::real[]::halfvec)
FROM passage_vector
WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3 AND passage_id = ANY ($6::bigint[])
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What one statement found: nearest first, equal distances by id; ``also`` holds those that have a vector.

    ``has_index`` tells whether a valid HNSW index of the space stood when it was asked for one.
    """

    nearest: Sequence[tuple[int, float]]
    also: dict[int, float]
    has_index: bool = False


async def insert_vectors(  # noqa: PLR0917 - a row is its key and its vector
    connection: Connection, tenant: UUID, context: UUID, space_id: int, passage_ids: Sequence[int], vectors: Vectors
) -> int:
    """Store one vector for each passage; return how many are new. A passage that has one keeps it.

    Raises ``embedding_refused`` when there are not as many vectors as passages, or one is not finite.
    """
    rows = np.asarray(vectors, np.float32)
    if rows.ndim != 2 or len(rows) != len(passage_ids):
        detail = f"{len(rows) if rows.ndim == 2 else rows.shape} vectors for {len(passage_ids)} passages"
        raise StrataError(EMBEDDING_REFUSED, f"{detail}: nothing was stored.")
    if not (np.isfinite(rows).all() and rows.any(axis=1).all()):
        raise StrataError(EMBEDDING_REFUSED, "A vector is zero, or has NaN or infinity: nothing was stored.")
    if not len(rows):
        return 0
    # A slice of one flat array, not text: parsing the text form would take longer than storing it.
    stored: int = await connection.fetchval(
        """
        WITH stored AS (
          INSERT INTO passage_vector (tenant_id, context_id, space_id, passage_id, embedding)
          SELECT $1, $2, $3, id, ($5::real[])[(at - 1) * $6 + 1 : at * $6]::halfvec
          FROM unnest($4::bigint[]) WITH ORDINALITY AS given (id, at)
          ORDER BY id
          ON CONFLICT DO NOTHING
          RETURNING 1
        )
        SELECT count(*) FROM stored
        """,
        tenant,
        context,
        space_id,
        list(passage_ids),
        rows.ravel().tolist(),
        rows.shape[1],
    )
    return stored


async def delete_vectors(connection: Connection, tenant: UUID, context: UUID, serials: Sequence[int]) -> dict[int, int]:
    """Delete the vectors of the sources with the given serials in every space; return how many by space id."""
    firsts, lasts = ranges_of(serials)
    # PostgreSQL before 18 cannot skip through the key, so the few spaces are looked up one by one.
    rows = await connection.fetch(
        """
        WITH RECURSIVE space AS (
          SELECT min(space_id) AS id FROM passage_vector WHERE tenant_id = $1 AND context_id = $2
          UNION ALL
          SELECT (SELECT min(space_id) FROM passage_vector
                  WHERE tenant_id = $1 AND context_id = $2 AND space_id > space.id)
          FROM space WHERE id IS NOT NULL
        ), gone AS (
          DELETE FROM passage_vector AS v
          USING space, unnest($3::bigint[], $4::bigint[]) AS range (first, last)
          WHERE v.tenant_id = $1 AND v.context_id = $2 AND v.space_id = space.id
            AND v.passage_id BETWEEN range.first AND range.last
          RETURNING v.space_id
        )
        SELECT space_id, count(*) AS vectors FROM gone GROUP BY space_id ORDER BY space_id
        """,
        tenant,
        context,
        firsts,
        lasts,
    )
    return {row["space_id"]: row["vectors"] for row in rows}


async def delete_space(connection: Connection, tenant: UUID, context: UUID, space_id: int, *, limit: int) -> int:
    """Delete up to ``limit`` vectors of one space; return how many, 0 when none is left."""
    gone: int = await connection.fetchval(
        """
        WITH gone AS (
          DELETE FROM passage_vector
          WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3 AND passage_id = ANY (ARRAY(
            SELECT passage_id FROM passage_vector
            WHERE tenant_id = $1 AND context_id = $2 AND space_id = $3 ORDER BY passage_id LIMIT $4))
          RETURNING 1
        )
        SELECT count(*) FROM gone
        """,
        tenant,
        context,
        space_id,
        limit,
    )
    return gone


async def delete_context(connection: Connection, tenant: UUID, context: UUID) -> None:
    """Delete every vector of a context, whatever its space."""
    await connection.execute("DELETE FROM passage_vector WHERE tenant_id = $1 AND context_id = $2", tenant, context)


async def nearest_exact(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    space_id: int,
    query: Sequence[float],
    *,
    k: int,
    also: Sequence[int],
    serials: Serials | None,
) -> Found:
    """Compare the query with every vector of the space, or of the sources with the given serials."""
    arguments: list[Any] = [tenant, context, space_id, query, k, also]
    if serials is None:
        return _found(await connection.fetch(_EXACT, *arguments))
    return _found(await connection.fetch(_EXACT_RANGES, *arguments, *ranges_of(serials)))


async def nearest_indexed(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    space_id: int,
    query: Sequence[float],
    *,
    k: int,
    also: Sequence[int],
    serials: Serials | None,
    ef_search: int,
    visits: int,
) -> Found:
    """Ask the HNSW index of the space for ``k``; without a valid one every vector is compared.

    It may find fewer than there are, above all where it had to give up after ``visits`` vectors.
    """
    condition, values = filter_of(serials)
    statement = indexed_statement(space_id, len(query), condition)
    arguments = (tenant, context, query, k, also, *values)
    # Else a sort looks cheaper wherever statistics are missing, or take columns that depend on each other for
    # independent ones.
    await connection.execute(_BEFORE.replace("@breadth", str(int(ef_search))).replace("@visits", str(int(visits))))
    rows = await connection.fetch(statement, *arguments)
    await connection.execute("SET LOCAL enable_sort TO DEFAULT")
    return _found(rows)


def indexed_statement(space_id: int, dimension: int, condition: str = "") -> str:
    """Return the statement that asks the index of one space, under a condition of :func:`filter_of`."""
    statement = _INDEXED.replace("@filter", condition)
    return statement.replace("@space", str(int(space_id))).replace("@dimension", str(int(dimension)))


def filter_of(serials: Sequence[int] | Serials | None) -> tuple[str, tuple[Any, ...]]:
    """Return the condition that keeps the sources with the given serials, at least one, and its arguments.

    A map of one bit a serial is tested in no time whatever its size; serials far apart go as an array.
    """
    if serials is None:
        return "", ()
    wanted = distinct(serials)
    first, last = int(wanted[0]), int(wanted[-1])
    if last - first >= max(_MAX_MAP_BITS, _SPARSE * len(wanted)):
        return _ARRAY_FILTER, (wanted.tolist(),)
    bits = np.zeros(last - first + 1, np.bool_)
    bits[wanted - first] = True
    return _MAP_FILTER, (first, last, np.packbits(bits, bitorder="little").tobytes())


async def apply_settings(connection: Connection, settings: Mapping[str, str]) -> str:
    """Set what must hold for the transaction and read it back; return the version of the extension.

    Raises ``database_setup`` naming the setting, what was asked and what took.
    """
    version: str | None = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    if version is None:
        raise StrataError(DATABASE_SETUP, "The extension vector is not created.", remedy="Run `strata migrate`.")
    try:
        # The library brings its settings with it; until something of it is used, any name is taken.
        await connection.fetchval("SELECT '[1]'::halfvec")
    except asyncpg.UndefinedObjectError as error:
        raise _not_taken(version, "halfvec", "there", "unknown") from error
    for name, asked in settings.items():
        try:
            await connection.execute("SELECT set_config($1, $2, true)", name, asked)
            took = await connection.fetchval("SELECT current_setting($1, true)", name)
        except (asyncpg.InvalidNameError, asyncpg.UndefinedObjectError, asyncpg.InvalidParameterValueError) as error:
            raise _not_taken(version, name, asked, str(error)) from error
        if took != asked:
            raise _not_taken(version, name, asked, f"it is {took}")
    return version


def _not_taken(version: str, name: str, asked: str, reason: str) -> StrataError:
    detail = f"pgvector {version} did not take {name} = {asked}: {reason}."
    remedy = "Install pgvector 0.8 or newer, which scans an index on until a filter has enough rows."
    return StrataError(DATABASE_SETUP, detail, remedy=f"{remedy} Then ALTER EXTENSION vector UPDATE.")


def distinct(serials: Sequence[int] | Serials) -> Serials:
    """Return the serials in ascending order, each once."""
    return np.unique(np.asarray(serials, np.int64))


def ranges_of(serials: Sequence[int] | Serials) -> tuple[list[int], list[int]]:
    """Return the first and last passage ids of the sources with the given serials, neighbours as one range."""
    wanted = distinct(serials)
    if not len(wanted):
        return [], []
    breaks = np.flatnonzero(np.diff(wanted) != 1)
    firsts = wanted[np.concatenate(([0], breaks + 1))] << SERIAL_BITS
    lasts = (wanted[np.concatenate((breaks, [len(wanted) - 1]))] << SERIAL_BITS) | ORDINALS
    return firsts.tolist(), lasts.tolist()


def _found(rows: Sequence[Any]) -> Found:
    nearest = sorted((row[2], row[1]) for row in rows if row[0] == _NEAREST)
    return Found(
        [(passage_id, distance) for distance, passage_id in nearest],
        {row[1]: row[2] for row in rows if row[0] == _ALSO},
        any(row[0] not in {_NEAREST, _ALSO} and row[1] for row in rows),
    )
