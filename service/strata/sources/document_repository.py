"""SQL of reading one document: what a reference names, a part of its text, and what stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strata.platform.database import Connection
from strata.sources.paths import MAX_PATH_BYTES, pin_of
from strata.sources.relation_repository import MAX_SUPERSEDING, SUPERSEDING
from strata.sources.repository import SectionHead, State

_BEYOND = "\U0010ffff"
_STEPS = 1_000


@dataclass(frozen=True, slots=True)
class Reference:
    """One reading of a reference: a path or id, and what it names as a pin, where it has the form of one."""

    ref: str
    source_id: UUID | None
    path: str | None
    revision: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """What a reference names: a source at its current revision, or an earlier one.

    ``reading`` is which of the readings it is, from 0. ``is_pinned`` is false for the bare path or id of an
    archived source. ``text_sha256`` is of the stored text in hex, None where it was not asked for.
    """

    reading: int
    is_pinned: bool
    is_current: bool
    is_archived: bool
    source_id: UUID
    path: str
    revision: int
    title: str
    text_bytes: int
    content_sha256: bytes
    text_sha256: str | None
    sections: list[SectionHead]

    @property
    def pin(self) -> str:
        """The reference that names this revision for ever."""
        return pin_of(self.path, self.revision)

    @property
    def state(self) -> State:
        """Whether it is the current revision, an earlier one, or the last one of an archived source."""
        return "CURRENT" if self.is_current else "ARCHIVED" if self.is_archived else "RETIRED"


async def find(
    connection: Connection, tenant: UUID, context: UUID, readings: Sequence[Reference], *, with_digest: bool
) -> Found | None:
    """Return what the first of the readings that names anything does, with its outline.

    A live source by id or path, then an archived one, then an earlier revision, then the current one by its pin.
    """
    # OFFSET 0 keeps each look-up an index scan of its own, whatever the statistics say of the tables.
    row = await connection.fetchrow(
        """
        WITH wanted AS (
          SELECT * FROM unnest($3::text[], $4::uuid[], $5::text[], $6::bigint[]) WITH ORDINALITY
            AS w (ref, id, path, revision, n)
        )
        SELECT f.n, f.place <= 1 OR f.place >= 4, f.is_current, f.is_archived, f.source_id, f.path, f.revision, f.title,
          f.text_bytes, f.content_sha256,
          CASE WHEN $7 THEN encode(sha256(CASE WHEN f.is_current THEN (
            SELECT content FROM source_content WHERE tenant_id = $1 AND context_id = $2 AND source_id = f.source_id
          ) ELSE (
            SELECT content FROM source_revision
            WHERE tenant_id = $1 AND context_id = $2 AND path = f.path AND revision = f.revision
          ) END), 'hex') END,
          CASE WHEN f.is_current THEN (
            SELECT jsonb_agg(jsonb_build_array(level, heading, anchor, breadcrumb, start_byte, end_byte)
              ORDER BY ordinal)
            FROM section WHERE tenant_id = $1 AND context_id = $2 AND source_id = f.source_id AND level > 0
          ) ELSE (
            SELECT sections FROM source_revision
            WHERE tenant_id = $1 AND context_id = $2 AND path = f.path AND revision = f.revision
          ) END
        FROM (
          SELECT w.n, 0 AS place, true AS is_current, false AS is_archived, f.*
          FROM wanted w CROSS JOIN LATERAL (
            SELECT source_id, path, revision, title, text_bytes, content_sha256 FROM source
            WHERE tenant_id = $1 AND context_id = $2 AND source_id = w.id OFFSET 0
          ) AS f
          UNION ALL
          SELECT w.n, 1, true, false, f.*
          FROM wanted w CROSS JOIN LATERAL (
            SELECT source_id, path, revision, title, text_bytes, content_sha256 FROM source
            WHERE tenant_id = $1 AND context_id = $2 AND path = w.ref OFFSET 0
          ) AS f
          UNION ALL
          SELECT w.n, 2, false, true, f.*
          FROM wanted w CROSS JOIN LATERAL (
            SELECT source_id, path, revision, title, octet_length(content), content_sha256 FROM source_revision
            WHERE tenant_id = $1 AND context_id = $2 AND is_archived AND source_id = w.id OFFSET 0
          ) AS f
          WHERE w.id IS NOT NULL
          UNION ALL
          SELECT w.n, 3, false, true, f.*
          FROM wanted w CROSS JOIN LATERAL (
            SELECT source_id, path, revision, title, octet_length(content), content_sha256 FROM source_revision
            WHERE tenant_id = $1 AND context_id = $2 AND is_archived AND path = w.ref OFFSET 0
          ) AS f
          UNION ALL
          SELECT w.n, 4, false, f.is_archived, f.source_id, f.path, f.revision, f.title, f.text_bytes, f.content_sha256
          FROM wanted w CROSS JOIN LATERAL (
            SELECT is_archived, source_id, path, revision, title, octet_length(content) AS text_bytes, content_sha256
            FROM source_revision
            WHERE tenant_id = $1 AND context_id = $2 AND path = w.path AND revision = w.revision OFFSET 0
          ) AS f
          UNION ALL
          SELECT w.n, 5, true, false, f.*
          FROM wanted w CROSS JOIN LATERAL (
            SELECT source_id, path, revision, title, text_bytes, content_sha256 FROM source
            WHERE tenant_id = $1 AND context_id = $2 AND path = w.path AND revision = w.revision OFFSET 0
          ) AS f
          ORDER BY n, place LIMIT 1
        ) AS f
        """,
        tenant,
        context,
        [reading.ref for reading in readings],
        [reading.source_id for reading in readings],
        [reading.path for reading in readings],
        [reading.revision for reading in readings],
        with_digest,
    )
    if row is None:
        return None
    sections = [SectionHead(*section) for section in row[11] or ()]
    return Found(*(row[0] - 1, *row[1:11], sections))


async def read(
    connection: Connection, tenant: UUID, context: UUID, found: Found, *, start: int, length: int
) -> tuple[bytes, list[str]]:
    """Return a byte range of the text, shorter where that ends, and what supersedes the source, sorted."""
    row = await connection.fetchrow(
        f"""
        SELECT CASE WHEN $9 THEN (
            SELECT substring(content FROM $7::integer + 1 FOR $8::integer) FROM source_content
            WHERE tenant_id = $1 AND context_id = $2 AND source_id = ($3::uuid[])[1]
          ) ELSE (
            SELECT substring(content FROM $7::integer + 1 FOR $8::integer) FROM source_revision
            WHERE tenant_id = $1 AND context_id = $2 AND path = $5 AND revision = $6
          ) END,
          ARRAY(SELECT u.path FROM ({SUPERSEDING}) AS u ORDER BY u.path)
        """,  # noqa: S608 - constants only
        tenant,
        context,
        [found.source_id],
        MAX_SUPERSEDING,
        found.path,
        found.revision,
        start,
        length,
        found.is_current,
    )
    return row[0] or b"", row[1]


async def siblings(
    connection: Connection, tenant: UUID, context: UUID, path: str, *, folder: str, limit: int
) -> list[tuple[str, str]]:
    """Return path and title of up to ``limit`` other sources directly in a folder, by path.

    ``folder`` ends with a slash and is empty for the root. Goes from one to the next and over each subfolder in
    one step; a thousand steps at most.
    """
    rows = await connection.fetch(
        """
        WITH RECURSIVE walk AS (
          (SELECT path FROM source
           WHERE tenant_id = $1 AND context_id = $2 AND path > $3 AND path < $4 ORDER BY path LIMIT 1)
          UNION ALL
          SELECT (
            SELECT s.path FROM source s
            WHERE s.tenant_id = $1 AND s.context_id = $2 AND s.path < $4 AND s.path > CASE
              WHEN strpos(substr(w.path, $6), '/') > 0
              THEN $3 || split_part(substr(w.path, $6), '/', 1) || '/' || $5 ELSE w.path END
            ORDER BY s.path LIMIT 1
          ) FROM walk w WHERE w.path IS NOT NULL
        )
        SELECT s.path, s.title
        FROM (SELECT path FROM walk LIMIT $9) AS w
        JOIN source s ON s.tenant_id = $1 AND s.context_id = $2 AND s.path = w.path
        WHERE strpos(substr(w.path, $6), '/') = 0 AND w.path <> $7
        ORDER BY s.path LIMIT $8
        """,
        tenant,
        context,
        folder,
        folder[:-1] + chr(ord(folder[-1]) + 1) if folder else _BEYOND * MAX_PATH_BYTES,
        _BEYOND,
        len(folder) + 1,
        path,
        limit,
        _STEPS,
    )
    return [(row[0], row[1]) for row in rows]
