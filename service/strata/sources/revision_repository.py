"""SQL of earlier revisions: kept when a source is replaced or archived, read by pin, thinned out, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strata.platform.database import Connection
from strata.sources.paths import pin_of
from strata.sources.repository import SectionHead, State

# What makes a RevisionRow, in its order.
_COLUMNS = """
  source_id, revision, path, origin, title, format, media_type, category, language, tags, source_key, occurred_at,
  metadata, content_sha256, original_bytes, octet_length(content), passage_count, stored_at, retired_at, is_archived
"""


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A revision that is no longer the current one, without its text.

    ``stored_at`` is when it became the current one, ``retired_at`` when it ceased to be.
    """

    source_id: UUID
    revision: int
    path: str
    origin: str
    title: str
    format: str
    media_type: str | None
    category: str | None
    language: str | None
    tags: list[str]
    source_key: str | None
    occurred_at: datetime | None
    metadata: dict[str, Any]
    content_sha256: bytes
    original_bytes: int
    text_bytes: int
    passage_count: int
    stored_at: datetime
    retired_at: datetime
    is_archived: bool

    @property
    def pin(self) -> str:
        """The reference that names this revision for ever."""
        return pin_of(self.path, self.revision)

    @property
    def state(self) -> State:
        """Whether it is the last one of an archived source."""
        return "ARCHIVED" if self.is_archived else "RETIRED"


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A line of a source's history; ``retired_at`` is None for the current revision."""

    revision: int
    title: str
    content_sha256: bytes
    text_bytes: int
    stored_at: datetime
    retired_at: datetime | None
    is_archived: bool


async def retire(
    connection: Connection, tenant: UUID, context: UUID, sources: Sequence[UUID], *, is_archived: bool
) -> None:
    """Copy the current revisions of locked sources, with text and outline, to where earlier ones are kept."""
    await connection.execute(
        """
        INSERT INTO source_revision (
          tenant_id, context_id, path, revision, source_id, origin, title, format, media_type, category, language, tags,
          source_key, occurred_at, metadata, content_sha256, original_bytes, passage_count, sections, content,
          stored_at, is_archived)
        SELECT $1, $2, s.path, s.revision, s.source_id, s.origin, s.title, s.format, s.media_type, s.category,
          s.language, s.tags, s.source_key, s.occurred_at, s.metadata, s.content_sha256, s.original_bytes,
          s.passage_count, coalesce((
            SELECT jsonb_agg(
              jsonb_build_array(x.level, x.heading, x.anchor, x.breadcrumb, x.start_byte, x.end_byte)
              ORDER BY x.ordinal)
            FROM section x
            WHERE x.tenant_id = $1 AND x.context_id = $2 AND x.source_id = s.source_id AND x.level > 0
          ), '[]'), (
            SELECT c.content FROM source_content c
            WHERE c.tenant_id = $1 AND c.context_id = $2 AND c.source_id = s.source_id
          ), s.updated_at, $4
        FROM source s WHERE s.tenant_id = $1 AND s.context_id = $2 AND s.source_id = ANY($3)
        """,
        tenant,
        context,
        sources,
        is_archived,
    )


async def thin(connection: Connection, tenant: UUID, context: UUID, paths: Sequence[str], kept: int) -> None:
    """Delete all but the newest ``kept`` earlier revisions of each of the paths."""
    await connection.execute(
        """
        DELETE FROM source_revision r
        WHERE r.tenant_id = $1 AND r.context_id = $2 AND r.path = ANY($3) AND NOT r.is_archived AND r.revision <= (
          SELECT newer.revision FROM source_revision newer
          WHERE newer.tenant_id = $1 AND newer.context_id = $2 AND newer.path = r.path
          ORDER BY newer.revision DESC OFFSET $4 LIMIT 1)
        """,
        tenant,
        context,
        paths,
        kept,
    )


async def delete(connection: Connection, tenant: UUID, context: UUID, paths: Sequence[str]) -> None:
    """Delete all revisions kept of the paths."""
    await connection.execute(
        "DELETE FROM source_revision WHERE tenant_id = $1 AND context_id = $2 AND path = ANY($3)",
        tenant,
        context,
        paths,
    )


async def lock_archived(connection: Connection, tenant: UUID, context: UUID, paths: Sequence[str]) -> dict[str, UUID]:
    """Lock the archived ones of the paths, by path, after the rows of sources; return the id that each had."""
    rows = await connection.fetch(
        "SELECT path, source_id FROM source_revision "
        "WHERE tenant_id = $1 AND context_id = $2 AND path = ANY($3) AND is_archived ORDER BY path FOR UPDATE",
        tenant,
        context,
        paths,
    )
    return {row[0]: row[1] for row in rows}


async def lock_matching(
    connection: Connection, tenant: UUID, context: UUID, *, prefix: str, origin: str | None, category: str | None
) -> list[str]:
    """Lock the archived sources that a deletion by filter is about, by path; return their paths."""
    rows = await connection.fetch(
        """
        SELECT path FROM source_revision
        WHERE tenant_id = $1 AND context_id = $2 AND starts_with(path, $3) AND is_archived
          AND ($4::text IS NULL OR origin = $4) AND ($5::text IS NULL OR category = $5)
        ORDER BY path FOR UPDATE
        """,
        tenant,
        context,
        prefix,
        origin,
        category,
    )
    return [row[0] for row in rows]


async def revive(connection: Connection, tenant: UUID, context: UUID, paths: Sequence[str]) -> dict[UUID, int]:
    """Let archived sources that stand again go on counting; return the revision that each has now, by id."""
    rows = await connection.fetch(
        """
        WITH last AS (
          UPDATE source_revision SET is_archived = false
          WHERE tenant_id = $1 AND context_id = $2 AND path = ANY($3) AND is_archived
          RETURNING path, revision)
        UPDATE source SET revision = last.revision + 1 FROM last
        WHERE source.tenant_id = $1 AND source.context_id = $2 AND source.path = last.path
        RETURNING source.source_id, source.revision
        """,
        tenant,
        context,
        paths,
    )
    return {row[0]: row[1] for row in rows}


async def find_archived(
    connection: Connection, tenant: UUID, context: UUID, path: str, source: UUID | None
) -> RevisionRow | None:
    """Return the last revision of the archived source with the id or, failing that, the path."""
    row = await connection.fetchrow(
        f"""
        SELECT {_COLUMNS}
        FROM source_revision
        WHERE tenant_id = $1 AND context_id = $2 AND is_archived AND (path = $3 OR source_id = $4)
        ORDER BY (source_id = $4) IS TRUE DESC LIMIT 1
        """,  # noqa: S608 - constants only
        tenant,
        context,
        path,
        source,
    )
    return RevisionRow(*row) if row else None


async def find(connection: Connection, tenant: UUID, context: UUID, path: str, revision: int) -> RevisionRow | None:
    """Return one earlier revision of a path."""
    row = await connection.fetchrow(
        f"""
        SELECT {_COLUMNS}
        FROM source_revision WHERE tenant_id = $1 AND context_id = $2 AND path = $3 AND revision = $4
        """,  # noqa: S608 - constants only
        tenant,
        context,
        path,
        revision,
    )
    return RevisionRow(*row) if row else None


async def page_archived(
    connection: Connection, tenant: UUID, context: UUID, *, after: str, prefix: str, category: str | None, limit: int
) -> list[RevisionRow]:
    """Return up to ``limit`` archived sources after a path, each at its last revision, by path in code point order."""
    rows = await connection.fetch(
        f"""
        SELECT {_COLUMNS}
        FROM source_revision
        WHERE tenant_id = $1 AND context_id = $2 AND is_archived AND path > $3 AND starts_with(path, $4)
          AND ($5::text IS NULL OR category = $5)
        ORDER BY path LIMIT $6
        """,  # noqa: S608 - constants only
        tenant,
        context,
        after,
        prefix,
        category,
        limit,
    )
    return [RevisionRow(*row) for row in rows]


async def history(
    connection: Connection, tenant: UUID, context: UUID, path: str, *, before: int, limit: int
) -> list[HistoryRow]:
    """Return up to ``limit`` revisions of a path below a number, the current one included, newest first."""
    rows = await connection.fetch(
        """
        SELECT * FROM (
          SELECT revision, title, content_sha256, text_bytes, updated_at, NULL::timestamptz AS retired_at,
            false AS is_archived
          FROM source WHERE tenant_id = $1 AND context_id = $2 AND path = $3 AND revision < $4
          UNION ALL
          (SELECT revision, title, content_sha256, octet_length(content), stored_at, retired_at, is_archived
           FROM source_revision
           WHERE tenant_id = $1 AND context_id = $2 AND path = $3 AND revision < $4
           ORDER BY revision DESC LIMIT $5)
        ) every ORDER BY revision DESC LIMIT $5
        """,
        tenant,
        context,
        path,
        before,
        limit,
    )
    return [HistoryRow(*row) for row in rows]


async def spans(connection: Connection, tenant: UUID, context: UUID, path: str, *, limit: int) -> list[tuple[int, int]]:
    """Return the runs of consecutive revisions that a path has, the newest ``limit`` of them, newest first."""
    rows = await connection.fetch(
        """
        SELECT min(revision), max(revision) FROM (
          SELECT revision, revision - row_number() OVER (ORDER BY revision) AS run FROM (
            SELECT revision FROM source WHERE tenant_id = $1 AND context_id = $2 AND path = $3
            UNION ALL
            SELECT revision FROM source_revision WHERE tenant_id = $1 AND context_id = $2 AND path = $3
          ) every
        ) numbered GROUP BY run ORDER BY 1 DESC LIMIT $4
        """,
        tenant,
        context,
        path,
        limit,
    )
    return [(row[0], row[1]) for row in rows]


async def sections(connection: Connection, tenant: UUID, context: UUID, path: str, revision: int) -> list[SectionHead]:
    """Return the headings of an earlier revision in text order."""
    found: list[list[Any]] | None = await connection.fetchval(
        "SELECT sections FROM source_revision WHERE tenant_id = $1 AND context_id = $2 AND path = $3 AND revision = $4",
        tenant,
        context,
        path,
        revision,
    )
    return [SectionHead(*section) for section in found or ()]


async def text_range(
    connection: Connection, tenant: UUID, context: UUID, path: str, revision: int, *, start: int, length: int
) -> bytes:
    """Return a byte range of the text of an earlier revision; shorter where the text ends."""
    found: bytes | None = await connection.fetchval(
        "SELECT substring(content FROM $5::integer + 1 FOR $6::integer) FROM source_revision "
        "WHERE tenant_id = $1 AND context_id = $2 AND path = $3 AND revision = $4",
        tenant,
        context,
        path,
        revision,
        start,
        length,
    )
    return found or b""
