"""SQL of texts by name: lists, citations, filters, and everything that is stored of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strata.platform.database import Connection
from strata.platform.ids import SERIAL_BITS
from strata.sources.repository import Gone


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source of a list; all but the name are None where it only asserts facts."""

    name: str
    stored_at: datetime | None
    occurred_at: datetime | None
    tags: list[str] | None


@dataclass(frozen=True, slots=True)
class CitedRow:
    """A passage by the name of its source and its number; ``passage_id`` is None where there is none of the number."""

    source: str
    paragraph: int
    passage_id: int | None
    content: bytes | None
    heading: str | None
    page: int | None
    start_ms: int | None
    end_ms: int | None
    locator_kind: str | None
    locator_value: str | None


@dataclass(frozen=True, slots=True)
class StoredSource:
    """The row of a source and its text."""

    source_id: UUID
    name: str
    format: str
    tags: list[str]
    occurred_at: datetime | None
    stored_at: datetime
    content: bytes


@dataclass(frozen=True, slots=True)
class StoredSection:
    """A section as it is stored."""

    ordinal: int
    heading: str
    start_byte: int
    end_byte: int


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """Where a passage stands in its text and in the original."""

    ordinal: int
    section: int
    start_byte: int
    page: int | None
    start_ms: int | None
    end_ms: int | None
    locator_kind: str | None
    locator_value: str | None


async def lock_named(connection: Connection, tenant: UUID, context: UUID, names: Sequence[str]) -> list[Gone]:
    """Lock and return the sources of the names, by id."""
    rows = await connection.fetch(
        "SELECT source_id, path, serial, revision, passage_count FROM source "
        "WHERE tenant_id = $1 AND context_id = $2 AND path = ANY($3) ORDER BY source_id FOR UPDATE",
        tenant,
        context,
        list(names),
    )
    return [Gone(*row) for row in rows]


async def touch(
    connection: Connection, tenant: UUID, context: UUID, stored: Sequence[tuple[UUID, datetime | None]]
) -> None:
    """Set when locked sources count as stored; None is now."""
    await connection.execute(
        "UPDATE source SET updated_at = coalesce(new.stored_at, now()) "
        "FROM unnest($3::uuid[], $4::timestamptz[]) AS new (source_id, stored_at) "
        "WHERE source.tenant_id = $1 AND source.context_id = $2 AND source.source_id = new.source_id",
        tenant,
        context,
        [source for source, _ in stored],
        [moment for _, moment in stored],
    )


async def page(
    connection: Connection, tenant: UUID, context: UUID, *, after: str, prefix: str, limit: int
) -> list[NamedSource]:
    """Return up to ``limit`` names after one, in code point order: of texts, and of those that only assert facts."""
    rows = await connection.fetch(
        """
        SELECT name, s.updated_at, s.occurred_at, s.tags
        FROM (
          (SELECT path AS name FROM source
           WHERE tenant_id = $1 AND context_id = $2 AND path > $3 AND starts_with(path, $4)
           ORDER BY path LIMIT $5)
          UNION
          (SELECT DISTINCT source FROM attribution
           WHERE tenant_id = $1 AND context_id = $2 AND source > $3 AND starts_with(source, $4)
           ORDER BY source LIMIT $5)
        ) n
        LEFT JOIN source s ON s.tenant_id = $1 AND s.context_id = $2 AND s.path = n.name
        ORDER BY name LIMIT $5
        """,
        tenant,
        context,
        after,
        prefix,
        limit,
    )
    return [NamedSource(*row) for row in rows]


async def total(connection: Connection, tenant: UUID, context: UUID, prefix: str) -> int:
    """Return how many names there are, of texts and of sources that only assert facts."""
    count: int = await connection.fetchval(
        """
        SELECT count(*) FROM (
          SELECT path FROM source WHERE tenant_id = $1 AND context_id = $2 AND starts_with(path, $3)
          UNION
          SELECT source FROM attribution
          WHERE tenant_id = $1 AND context_id = $2 AND source <> '' AND starts_with(source, $3)
        ) names
        """,
        tenant,
        context,
        prefix,
    )
    return count


async def contents(connection: Connection, tenant: UUID, context: UUID, names: Sequence[str]) -> dict[str, bytes]:
    """Return the whole texts of the sources that have one."""
    rows = await connection.fetch(
        "SELECT path, content FROM source JOIN source_content USING (tenant_id, context_id, source_id) "
        "WHERE tenant_id = $1 AND context_id = $2 AND path = ANY($3)",
        tenant,
        context,
        list(names),
    )
    return {row[0]: row[1] for row in rows}


async def paragraph_counts(connection: Connection, tenant: UUID, context: UUID, names: Sequence[str]) -> dict[str, int]:
    """Return how many passages each of the sources has that have a text."""
    rows = await connection.fetch(
        "SELECT path, passage_count FROM source WHERE tenant_id = $1 AND context_id = $2 AND path = ANY($3)",
        tenant,
        context,
        list(names),
    )
    return {row[0]: row[1] for row in rows}


async def cited(
    connection: Connection, tenant: UUID, context: UUID, pairs: Sequence[tuple[str, int]]
) -> list[CitedRow]:
    """Return the passages of (source, number) pairs; a pair whose source has no text has no row."""
    rows = await connection.fetch(
        """
        SELECT w.source, w.paragraph, p.passage_id, (
            SELECT substring(c.content FROM p.start_byte::int + 1 FOR (p.end_byte - p.start_byte)::int)
            FROM source_content c
            WHERE c.tenant_id = $1 AND c.context_id = $2 AND c.source_id = p.source_id
          ), (
            SELECT x.heading FROM section x
            WHERE x.tenant_id = $1 AND x.context_id = $2 AND x.source_id = p.source_id
              AND x.ordinal = p.section_ordinal AND x.ordinal > 0
          ), p.page, p.start_ms, p.end_ms, p.locator_kind, p.locator_value
        FROM unnest($3::text[], $4::bigint[]) AS w (source, paragraph)
        CROSS JOIN LATERAL (
          SELECT serial FROM source WHERE tenant_id = $1 AND context_id = $2 AND path = w.source OFFSET 0
        ) s
        LEFT JOIN LATERAL (
          SELECT * FROM passage
          WHERE tenant_id = $1 AND context_id = $2 AND passage_id = (s.serial << $5::int) + w.paragraph OFFSET 0
        ) p ON true
        """,
        tenant,
        context,
        [source for source, _ in pairs],
        [paragraph for _, paragraph in pairs],
        SERIAL_BITS,
    )
    return [CitedRow(*row) for row in rows]


async def stored(connection: Connection, tenant: UUID, context: UUID, names: Sequence[str]) -> list[StoredSource]:
    """Return sources with their texts, by name in code point order."""
    rows = await connection.fetch(
        "SELECT source_id, path, format, tags, occurred_at, updated_at, content "
        "FROM source JOIN source_content USING (tenant_id, context_id, source_id) "
        "WHERE tenant_id = $1 AND context_id = $2 AND path = ANY($3) ORDER BY path",
        tenant,
        context,
        list(names),
    )
    return [StoredSource(*row) for row in rows]


async def stored_sections(
    connection: Connection, tenant: UUID, context: UUID, sources: Sequence[UUID]
) -> dict[UUID, list[StoredSection]]:
    """Return the sections of sources in order, the whole text (number 0) included."""
    rows = await connection.fetch(
        "SELECT source_id, ordinal, heading, start_byte, end_byte FROM section "
        "WHERE tenant_id = $1 AND context_id = $2 AND source_id = ANY($3) ORDER BY source_id, ordinal",
        tenant,
        context,
        list(sources),
    )
    found: dict[UUID, list[StoredSection]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(StoredSection(*row[1:]))
    return found


async def stored_passages(
    connection: Connection, tenant: UUID, context: UUID, sources: Sequence[UUID]
) -> dict[UUID, list[StoredPassage]]:
    """Return the passages of sources in order."""
    rows = await connection.fetch(
        """
        SELECT source_id, passage_id & ((1::bigint << $4::int) - 1), section_ordinal, start_byte, page, start_ms,
          end_ms, locator_kind, locator_value
        FROM passage WHERE tenant_id = $1 AND context_id = $2 AND source_id = ANY($3) ORDER BY passage_id
        """,
        tenant,
        context,
        list(sources),
        SERIAL_BITS,
    )
    found: dict[UUID, list[StoredPassage]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(StoredPassage(*row[1:]))
    return found


async def stored_questions(
    connection: Connection, tenant: UUID, context: UUID, sources: Sequence[UUID]
) -> dict[UUID, list[tuple[int, str]]]:
    """Return the questions of sources, by paragraph, in their order."""
    rows = await connection.fetch(
        "SELECT source_id, paragraph, question FROM passage_question "
        "WHERE tenant_id = $1 AND context_id = $2 AND source_id = ANY($3) ORDER BY source_id, paragraph, ordinal",
        tenant,
        context,
        list(sources),
    )
    found: dict[UUID, list[tuple[int, str]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append((row[1], row[2]))
    return found
