"""The lexical index in Postgres. SQL only; every call runs in the caller's unit of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

import numpy as np

from strata.lanes.lexical.scoring import SegmentArrays
from strata.lanes.lexical.segment import Mask, SegmentData, pack_dead, segment_from_rows, unpack_dead
from strata.platform.database import Connection
from strata.platform.ids import ORDINALS, SERIAL_BITS
from strata.text.tokenise import ANALYSER_VERSION

_ROWS_PER_INSERT = 20_000
_MERGE_LOCK, _KILL_LOCK = 7402, 7403  # seeds of the hash of a context that names its advisory locks


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The head of a stored segment; ``version`` moves when its dead passages do."""

    segment_id: int
    version: int
    analyser: int
    passages: int
    dead_count: int

    @property
    def live(self) -> int:
        """How many of its passages are live."""
        return self.passages - self.dead_count


@dataclass(frozen=True, slots=True)
class PostingRow:
    """The postings of one term in one segment, as stored."""

    segment_id: int
    term: int
    passages: bytes
    frequencies: bytes


async def add_segment(
    connection: Connection, tenant: UUID, context: UUID, data: SegmentData, *, analyser: int = ANALYSER_VERSION
) -> int:
    """Store a segment and its postings; return its id. ``analyser`` is the version that made its terms."""
    segment_id: int = await connection.fetchval(
        """
        INSERT INTO lexical_segment
          (tenant_id, context_id, analyser, passages, total_length, min_passage_id, max_passage_id,
           lengths, passage_ids)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        RETURNING segment_id
        """,
        tenant,
        context,
        analyser,
        len(data.passage_ids),
        data.total_length,
        int(data.passage_ids[0]),
        int(data.passage_ids[-1]),
        data.lengths.astype("<u2").tobytes(),
        data.passage_ids.astype("<i8").tobytes(),
    )
    rows = data.rows()
    while chunk := list(islice(rows, _ROWS_PER_INSERT)):
        terms, places, frequencies = zip(*chunk, strict=True)
        await connection.execute(
            """
            INSERT INTO lexical_posting (tenant_id, context_id, segment_id, term, passages, frequencies)
            SELECT $1, $2, $3, * FROM unnest($4::bigint[], $5::bytea[], $6::bytea[])
            """,
            tenant,
            context,
            segment_id,
            terms,
            places,
            frequencies,
        )
    return segment_id


async def kill_sources(connection: Connection, tenant: UUID, context: UUID, serials: Sequence[int]) -> int:
    """Mark every passage of the given source serials dead; return how many were live.

    Needs READ COMMITTED. Until the unit of work ends, other calls for the context wait, and so does the last step
    of a merge of the same segments; a merge that replaces a segment meanwhile is waited for, and its result
    marked instead. Serials with no passages do nothing.
    """
    if not serials:
        return 0
    # Two calls and a merge could otherwise come to hold each other's segments.
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1::text || '/' || $2::text, $3))",
        str(tenant),
        str(context),
        _KILL_LOCK,
    )
    firsts = np.array(sorted(set(serials)), np.int64) << SERIAL_BITS
    done: set[int] = set()
    killed = 0
    while True:
        rows = await connection.fetch(
            """
            SELECT segment_id, passages, passage_ids, dead FROM lexical_segment s
            WHERE tenant_id = $1 AND context_id = $2 AND segment_id <> ALL ($5::bigint[])
              AND EXISTS (SELECT FROM unnest($3::bigint[], $4::bigint[]) r(first, last)
                          WHERE s.min_passage_id <= r.last AND s.max_passage_id >= r.first)
            ORDER BY segment_id
            FOR UPDATE
            """,
            tenant,
            context,
            firsts.tolist(),
            (firsts | ORDINALS).tolist(),
            sorted(done),
        )
        for row in rows:
            done.add(row["segment_id"])
            killed += await _kill_in(connection, tenant, context, row, firsts)
        # Under READ COMMITTED a statement that waited for a merge does not see what the merge made: look again.
        if not await _unseen(connection, tenant, context, firsts, done=done):
            return killed


async def _unseen(connection: Connection, tenant: UUID, context: UUID, firsts: Any, *, done: set[int]) -> bool:
    found: bool = await connection.fetchval(
        """
        SELECT EXISTS (
          SELECT FROM lexical_segment s
          WHERE tenant_id = $1 AND context_id = $2 AND segment_id <> ALL ($5::bigint[])
            AND EXISTS (SELECT FROM unnest($3::bigint[], $4::bigint[]) r(first, last)
                        WHERE s.min_passage_id <= r.last AND s.max_passage_id >= r.first))
        """,
        tenant,
        context,
        firsts.tolist(),
        (firsts | ORDINALS).tolist(),
        sorted(done),
    )
    return found


async def _kill_in(connection: Connection, tenant: UUID, context: UUID, row: Any, firsts: Any) -> int:
    ids = np.frombuffer(row["passage_ids"], "<i8")
    was_dead = unpack_dead(row["dead"], row["passages"])
    dead: Mask = np.zeros(len(ids), np.bool_) if was_dead is None else was_dead.copy()
    before = int(dead.sum())
    dead |= np.isin(ids >> SERIAL_BITS, firsts >> SERIAL_BITS)
    killed = int(dead.sum()) - before
    if killed:
        await _set_dead(connection, tenant, context, row["segment_id"], dead)
    return killed


async def _set_dead(connection: Connection, tenant: UUID, context: UUID, segment_id: int, dead: Mask) -> None:
    await connection.execute(
        """
        UPDATE lexical_segment SET dead = $4, dead_count = $5, version = version + 1
        WHERE tenant_id = $1 AND context_id = $2 AND segment_id = $3
        """,
        tenant,
        context,
        segment_id,
        pack_dead(dead),
        int(dead.sum()),
    )


async def list_segments(connection: Connection, tenant: UUID, context: UUID) -> list[SegmentInfo]:
    """Return the heads of all segments of a context, by id."""
    rows = await connection.fetch(
        """
        SELECT segment_id, version, analyser, passages, dead_count FROM lexical_segment
        WHERE tenant_id = $1 AND context_id = $2 ORDER BY segment_id
        """,
        tenant,
        context,
    )
    return [SegmentInfo(*row) for row in rows]


async def contexts_with_dead(connection: Connection, tenant: UUID) -> list[UUID]:
    """Return the contexts whose index holds dead passages."""
    rows = await connection.fetch(
        "SELECT DISTINCT context_id FROM lexical_segment WHERE tenant_id = $1 AND dead_count > 0 ORDER BY context_id",
        tenant,
    )
    return [row[0] for row in rows]


async def read_arrays(
    connection: Connection, tenant: UUID, context: UUID, segment_ids: Sequence[int]
) -> dict[int, SegmentArrays]:
    """Return what the scorer keeps of the given segments, by id; those that are gone are left out."""
    rows = await connection.fetch(
        """
        SELECT segment_id, version, passages, passage_ids, lengths, dead FROM lexical_segment
        WHERE tenant_id = $1 AND context_id = $2 AND segment_id = ANY ($3::bigint[])
        """,
        tenant,
        context,
        segment_ids,
    )
    return {
        row["segment_id"]: SegmentArrays(
            row["segment_id"],
            row["version"],
            np.frombuffer(row["passage_ids"], "<i8"),
            np.frombuffer(row["lengths"], "<u2"),
            unpack_dead(row["dead"], row["passages"]),
        )
        for row in rows
    }


async def read_postings(
    connection: Connection, tenant: UUID, context: UUID, segment_ids: Sequence[int], terms: Sequence[int]
) -> list[PostingRow]:
    """Return the postings of the given terms in the given segments, in no particular order."""
    rows = await connection.fetch(
        """
        SELECT segment_id, term, passages, frequencies FROM lexical_posting
        WHERE tenant_id = $1 AND context_id = $2 AND segment_id = ANY ($3::bigint[]) AND term = ANY ($4::bigint[])
        """,
        tenant,
        context,
        segment_ids,
        terms,
    )
    return [PostingRow(*row) for row in rows]


async def read_segment(connection: Connection, tenant: UUID, context: UUID, arrays: SegmentArrays) -> SegmentData:
    """Return a whole segment whose arrays are at hand, postings included."""
    rows = await connection.fetch(
        """
        SELECT term, passages, frequencies FROM lexical_posting
        WHERE tenant_id = $1 AND context_id = $2 AND segment_id = $3 ORDER BY term
        """,
        tenant,
        context,
        arrays.segment_id,
    )
    return segment_from_rows(arrays.passage_ids, arrays.lengths, [tuple(row) for row in rows])


async def claim_merge(connection: Connection, tenant: UUID, context: UUID) -> bool:
    """Take the context's merge lock until the unit of work ends; False when another merge holds it."""
    claimed: bool = await connection.fetchval(
        "SELECT pg_try_advisory_xact_lock(hashtextextended($1::text || '/' || $2::text, $3))",
        str(tenant),
        str(context),
        _MERGE_LOCK,
    )
    return claimed


async def hold_merges(connection: Connection, tenant: UUID, context: UUID) -> None:
    """Wait for a merge of the context to end, and keep others out until the unit of work ends."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended($1::text || '/' || $2::text, $3))",
        str(tenant),
        str(context),
        _MERGE_LOCK,
    )


async def drop_postings(connection: Connection, tenant: UUID, context: UUID, segment_ids: Sequence[int]) -> None:
    """Delete the postings of segments that a merge replaces."""
    await connection.execute(
        "DELETE FROM lexical_posting WHERE tenant_id = $1 AND context_id = $2 AND segment_id = ANY ($3::bigint[])",
        tenant,
        context,
        segment_ids,
    )


async def lock_dead(
    connection: Connection, tenant: UUID, context: UUID, segment_ids: Sequence[int]
) -> Mapping[int, Mask | None]:
    """Lock segments in id order and return their dead masks as they stand now; those that are gone are left out."""
    rows = await connection.fetch(
        """
        SELECT segment_id, passages, dead FROM lexical_segment
        WHERE tenant_id = $1 AND context_id = $2 AND segment_id = ANY ($3::bigint[])
        ORDER BY segment_id
        FOR UPDATE
        """,
        tenant,
        context,
        segment_ids,
    )
    return {row["segment_id"]: unpack_dead(row["dead"], row["passages"]) for row in rows}


async def mark_dead(connection: Connection, tenant: UUID, context: UUID, segment_id: int, dead: Mask) -> None:
    """Set the dead passages of a segment that this unit of work made or holds the lock of."""
    await _set_dead(connection, tenant, context, segment_id, dead)


async def drop_segments(connection: Connection, tenant: UUID, context: UUID, segment_ids: Sequence[int]) -> None:
    """Delete segments whose postings are gone."""
    await connection.execute(
        "DELETE FROM lexical_segment WHERE tenant_id = $1 AND context_id = $2 AND segment_id = ANY ($3::bigint[])",
        tenant,
        context,
        segment_ids,
    )


async def delete_index(connection: Connection, tenant: UUID, context: UUID) -> None:
    """Delete the whole lexical index of a context.

    After :func:`hold_merges` and the deletion of the context's row in the same unit of work, so that a merge or
    an ingest under way has ended and nothing is left behind.
    """
    await connection.execute("DELETE FROM lexical_posting WHERE tenant_id = $1 AND context_id = $2", tenant, context)
    await connection.execute("DELETE FROM lexical_segment WHERE tenant_id = $1 AND context_id = $2", tenant, context)
