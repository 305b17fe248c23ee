"""SQL that reads sources, and deletes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from strata.platform.database import Connection
from strata.sources.paths import pin_of

State = Literal["CURRENT", "RETIRED", "ARCHIVED"]

# What makes a SourceRow, in its order.
_COLUMNS = """
  source_id, serial, revision, path, origin, title, format, media_type, category, language, tags, source_key,
  occurred_at, metadata, normalisation, warnings, content_sha256, original_bytes, text_bytes, passage_count,
  created_at, updated_at
"""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source as it stands in its table."""

    source_id: UUID
    serial: int
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
    normalisation: dict[str, int]
    warnings: list[str]
    content_sha256: bytes
    original_bytes: int
    text_bytes: int
    passage_count: int
    created_at: datetime
    updated_at: datetime

    @property
    def pin(self) -> str:
        """The reference that names this revision for ever."""
        return pin_of(self.path, self.revision)

    @property
    def state(self) -> State:
        """What stands in the table is current."""
        return "CURRENT"


@dataclass(frozen=True, slots=True)
class SectionHead:
    """A section as the outline shows it."""

    level: int
    heading: str
    anchor: str | None
    breadcrumb: list[str]
    start_byte: int
    end_byte: int


@dataclass(frozen=True, slots=True)
class Gone:
    """A source that a deletion is about."""

    source_id: UUID
    path: str
    serial: int
    revision: int
    passages: int


async def find(connection: Connection, tenant: UUID, context: UUID, path: str, source: UUID | None) -> SourceRow | None:
    """Return the source with the id or, failing that, the path."""
    row = await connection.fetchrow(
        f"""
        SELECT {_COLUMNS}
        FROM source WHERE tenant_id = $1 AND context_id = $2 AND (path = $3 OR source_id = $4)
        ORDER BY (source_id = $4) IS TRUE DESC LIMIT 1
        """,  # noqa: S608 - constants only
        tenant,
        context,
        path,
        source,
    )
    return SourceRow(*row) if row else None


async def page(
    connection: Connection, tenant: UUID, context: UUID, *, after: str, prefix: str, category: str | None, limit: int
) -> list[SourceRow]:
    """Return up to ``limit`` sources after a path, in code point order of their paths."""
    rows = await connection.fetch(
        f"""
        SELECT {_COLUMNS}
        FROM source
        WHERE tenant_id = $1 AND context_id = $2 AND path COLLATE "C" > $3 AND starts_with(path, $4)
          AND ($5::text IS NULL OR category = $5)
        ORDER BY path COLLATE "C" LIMIT $6
        """,  # noqa: S608 - constants only
        tenant,
        context,
        after,
        prefix,
        category,
        limit,
    )
    return [SourceRow(*row) for row in rows]


async def sections(connection: Connection, tenant: UUID, context: UUID, source: UUID) -> list[SectionHead]:
    """Return the headings of a source in text order; the document itself is not one."""
    rows = await connection.fetch(
        "SELECT level, heading, anchor, breadcrumb, start_byte, end_byte FROM section "
        "WHERE tenant_id = $1 AND context_id = $2 AND source_id = $3 AND level > 0 ORDER BY ordinal",
        tenant,
        context,
        source,
    )
    return [SectionHead(*row) for row in rows]


async def text_range(
    connection: Connection, tenant: UUID, context: UUID, source: UUID, *, start: int, length: int
) -> bytes:
    """Return a byte range of the stored text; shorter where the text ends."""
    found: bytes | None = await connection.fetchval(
        "SELECT substring(content FROM $4::integer + 1 FOR $5::integer) FROM source_content "
        "WHERE tenant_id = $1 AND context_id = $2 AND source_id = $3",
        tenant,
        context,
        source,
        start,
        length,
    )
    return found or b""


async def lock_matching(
    connection: Connection, tenant: UUID, context: UUID, *, prefix: str, origin: str | None, category: str | None
) -> list[Gone]:
    """Lock and return the sources of one context that a deletion by filter is about, by id."""
    rows = await connection.fetch(
        """
        SELECT source_id, path, serial, revision, passage_count FROM source
        WHERE tenant_id = $1 AND context_id = $2 AND starts_with(path, $3)
          AND ($4::text IS NULL OR origin = $4) AND ($5::text IS NULL OR category = $5)
        ORDER BY source_id FOR UPDATE
        """,
        tenant,
        context,
        prefix,
        origin,
        category,
    )
    return [Gone(*row) for row in rows]


async def lock_ids(connection: Connection, tenant: UUID, context: UUID, sources: Sequence[UUID]) -> list[Gone]:
    """Lock and return those of the sources that still exist, by id."""
    rows = await connection.fetch(
        "SELECT source_id, path, serial, revision, passage_count FROM source "
        "WHERE tenant_id = $1 AND context_id = $2 AND source_id = ANY($3) ORDER BY source_id FOR UPDATE",
        tenant,
        context,
        sources,
    )
    return [Gone(*row) for row in rows]


async def lock_unchanged(
    connection: Connection, tenant: UUID, context: UUID, origin: str, sources: Sequence[tuple[UUID, int]]
) -> list[Gone]:
    """Lock and return those of the sources, given with their serials, that are still that revision and origin's.

    By id. Needs READ COMMITTED: what another writer replaces while this waits for it is left out.
    """
    rows = await connection.fetch(
        """
        SELECT source_id, path, serial, revision, passage_count FROM source
        WHERE tenant_id = $1 AND context_id = $2 AND origin = $3
          AND (source_id, serial) IN (SELECT * FROM unnest($4::uuid[], $5::bigint[]))
        ORDER BY source_id FOR UPDATE OF source
        """,
        tenant,
        context,
        origin,
        [source for source, _ in sources],
        [serial for _, serial in sources],
    )
    return [Gone(*row) for row in rows]


async def of_origin(
    connection: Connection, tenant: UUID, context: UUID, origin: str, *, after: UUID, limit: int
) -> list[tuple[UUID, str, int]]:
    """Return ids, paths and serials of what an ingest root brought in, by id, after one."""
    rows = await connection.fetch(
        "SELECT source_id, path, serial FROM source WHERE tenant_id = $1 AND context_id = $2 AND origin = $3 "
        "AND source_id > $4 ORDER BY source_id LIMIT $5",
        tenant,
        context,
        origin,
        after,
        limit,
    )
    return [(row[0], row[1], row[2]) for row in rows]
