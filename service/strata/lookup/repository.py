"""SQL of the lookup: which sources a filter leaves, and the live rows of what was nominated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from strata.lanes.vector.index import Eligible
from strata.platform.database import Connection


@dataclass(frozen=True, slots=True)
class SourceFilter:
    """Hard filters, all of which must hold. Empty sequences and None filter nothing.

    ``paths`` are POSIX regular expressions (made from globs), any of which may match;
    ``categories`` and ``tags`` are exact: any category, every tag; of ``any_tags`` one is enough. The window
    is over the date that a document states of itself, or, where ``by_arrival``, over the date it was stored
    on for want of that.
    """

    categories: Sequence[str] = ()
    paths: Sequence[str] = ()
    tags: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    language: str | None = None
    any_tags: Sequence[str] = ()
    by_arrival: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether everything passes."""
        lists = self.categories or self.paths or self.tags or self.any_tags
        return not (lists or self.since or self.until or self.language is not None)


class PassageRow(Struct, frozen=True):
    """A live passage with what its source and section say of it; ``text`` is None beyond the window.

    One of a source that ``is_by_paragraph`` stands for itself: such sources are cut where their author cut them.
    """

    context_id: UUID
    passage_id: int
    source_id: UUID
    path: str
    title: str
    category: str | None
    revision: int
    source_key: str | None
    source_key_basis: str | None
    is_by_paragraph: bool
    section: int
    anchor: str | None
    breadcrumb: list[str]
    start_byte: int
    end_byte: int
    sha256: bytes
    page: int | None
    start_ms: int | None
    end_ms: int | None
    speaker: str | None
    text: str | None
    metadata: dict[str, Any] | None


async def eligible(connection: Connection, tenant: UUID, context: UUID, source_filter: SourceFilter) -> Eligible:
    """Return the sources that pass, serials ascending, and how many passages they hold."""
    rows = await connection.fetch(
        """
        SELECT serial, passage_count FROM source
        WHERE tenant_id = $1 AND context_id = $2
          AND (cardinality($3::text[]) = 0 OR category = ANY ($3))
          AND (cardinality($4::text[]) = 0 OR path ~ ANY ($4))
          AND tags @> $5::text[]
          AND ($6::timestamptz IS NULL OR coalesce(occurred_at, CASE WHEN $10 THEN updated_at END) >= $6)
          AND ($7::timestamptz IS NULL OR coalesce(occurred_at, CASE WHEN $10 THEN updated_at END) < $7)
          AND ($8::text IS NULL OR language = $8)
          AND (cardinality($9::text[]) = 0 OR tags && $9)
        ORDER BY serial
        """,
        tenant,
        context,
        list(source_filter.categories),
        list(source_filter.paths),
        list(source_filter.tags),
        source_filter.since,
        source_filter.until,
        source_filter.language,
        list(source_filter.any_tags),
        source_filter.by_arrival,
    )
    return Eligible([row[0] for row in rows], sum(row[1] for row in rows))


async def passage_rows(
    connection: Connection, tenant: UUID, contexts: Sequence[UUID], passages: Sequence[int], window: int
) -> list[PassageRow]:
    """Return the live rows of ``passages`` (ids, one context each) in the order given.

    The first ``window`` come with text and metadata. A passage that is gone has no row.
    """
    # OFFSET 0 keeps the planner to one probe of a primary key each, also where statistics are missing or old.
    rows = await connection.fetch(
        """
        SELECT w.context_id, w.passage_id, s.source_id, s.path, s.title, s.category, s.revision,
               s.source_key, s.source_key_basis, s.format = 'paragraphs', x.ordinal, x.anchor, x.breadcrumb,
               p.start_byte, p.end_byte, p.sha256, p.page, p.start_ms, p.end_ms, p.speaker,
               CASE WHEN w.n <= $4 THEN (
                 SELECT convert_from(
                   substring(c.content FROM p.start_byte::int + 1 FOR (p.end_byte - p.start_byte)::int), 'UTF8')
                 FROM source_content c
                 WHERE c.tenant_id = $1 AND c.context_id = w.context_id AND c.source_id = p.source_id
               ) END,
               CASE WHEN w.n <= $4 THEN s.metadata END
        FROM unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS w (context_id, passage_id, n)
        CROSS JOIN LATERAL (
          SELECT * FROM passage
          WHERE tenant_id = $1 AND context_id = w.context_id AND passage_id = w.passage_id OFFSET 0
        ) p
        CROSS JOIN LATERAL (
          SELECT * FROM source
          WHERE tenant_id = $1 AND context_id = w.context_id AND source_id = p.source_id OFFSET 0
        ) s
        CROSS JOIN LATERAL (
          SELECT * FROM section
          WHERE tenant_id = $1 AND context_id = w.context_id AND source_id = p.source_id
            AND ordinal = p.section_ordinal OFFSET 0
        ) x
        ORDER BY w.n
        """,
        tenant,
        list(contexts),
        list(passages),
        window,
    )
    return [PassageRow(*row) for row in rows]


async def source_sizes(
    connection: Connection, tenant: UUID, context: UUID, names: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """Return serial and number of passages of the sources that exist."""
    rows = await connection.fetch(
        "SELECT path, serial, passage_count FROM source "
        "WHERE tenant_id = $1 AND context_id = $2 AND path = ANY ($3::text[]) ORDER BY path",
        tenant,
        context,
        list(names),
    )
    return {row[0]: (row[1], row[2]) for row in rows}


async def paragraph_passages(
    connection: Connection, tenant: UUID, wanted: Sequence[tuple[UUID, str, int]]
) -> list[int | None]:
    """Return the passage of each (context, source, paragraph), None where the source has no such paragraph."""
    rows = await connection.fetch(
        """
        SELECT (
          SELECT p.passage_id FROM source s
          JOIN passage p ON p.tenant_id = $1 AND p.context_id = s.context_id
            AND p.passage_id = (s.serial << 20) + w.paragraph
          WHERE s.tenant_id = $1 AND s.context_id = w.context_id AND s.path = w.source
            AND w.paragraph < s.passage_count
        )
        FROM unnest($2::uuid[], $3::text[], $4::bigint[]) WITH ORDINALITY AS w (context_id, source, paragraph, n)
        ORDER BY w.n
        """,
        tenant,
        [item[0] for item in wanted],
        [item[1] for item in wanted],
        [item[2] for item in wanted],
    )
    return [row[0] for row in rows]


async def cues(connection: Connection, tenant: UUID, context: UUID, passages: Sequence[int]) -> list[int]:
    """Return those of the passages that are cues of a recording, ascending."""
    rows = await connection.fetch(
        "SELECT passage_id FROM passage WHERE tenant_id = $1 AND context_id = $2 AND passage_id = ANY ($3::bigint[]) "
        "AND kind = 'cue' ORDER BY passage_id",
        tenant,
        context,
        list(passages),
    )
    return [row[0] for row in rows]


async def opening(connection: Connection, tenant: UUID, context: UUID, passage: int, chars: int) -> str:
    """Return the first ``chars`` characters of a passage; nothing where it is gone."""
    text: str | None = await connection.fetchval(
        """
        SELECT left(convert_from(
          substring(c.content FROM p.start_byte::int + 1 FOR (p.end_byte - p.start_byte)::int), 'UTF8'), $4)
        FROM passage p JOIN source_content c USING (tenant_id, context_id, source_id)
        WHERE p.tenant_id = $1 AND p.context_id = $2 AND p.passage_id = $3
        """,
        tenant,
        context,
        passage,
        chars,
    )
    return text or ""


async def target_passages(
    connection: Connection, tenant: UUID, contexts: Sequence[UUID], paths: Sequence[str], anchors: Sequence[str | None]
) -> list[int | None]:
    """Return for each hint target the first passage of its source, or of its section where an anchor names one.

    None where the target does not exist (any more). A section without text of its own gives the
    first passage below it.
    """
    rows = await connection.fetch(
        """
        SELECT (
          SELECT min(p.passage_id)
          FROM (SELECT source_id FROM source
                WHERE tenant_id = $1 AND context_id = w.context_id AND path = w.path OFFSET 0) s
          CROSS JOIN LATERAL (
            SELECT 0::bigint AS start_byte, NULL::bigint AS end_byte WHERE w.anchor IS NULL
            UNION ALL
            SELECT start_byte, end_byte FROM section
            WHERE tenant_id = $1 AND context_id = w.context_id AND source_id = s.source_id AND anchor = w.anchor
          ) x
          CROSS JOIN LATERAL (
            SELECT passage_id FROM passage
            WHERE tenant_id = $1 AND context_id = w.context_id AND source_id = s.source_id
              AND end_byte > x.start_byte AND (x.end_byte IS NULL OR start_byte < x.end_byte) OFFSET 0
          ) p
        )
        FROM unnest($2::uuid[], $3::text[], $4::text[]) WITH ORDINALITY AS w (context_id, path, anchor, n)
        ORDER BY w.n
        """,
        tenant,
        list(contexts),
        list(paths),
        list(anchors),
    )
    return [row[0] for row in rows]


async def has_passages(connection: Connection, tenant: UUID, contexts: Sequence[UUID]) -> bool:
    """Tell whether any of the contexts holds a passage."""
    found: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM passage WHERE tenant_id = $1 AND context_id = ANY ($2::uuid[]))",
        tenant,
        list(contexts),
    )
    return found
