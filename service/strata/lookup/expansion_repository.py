"""SQL of the expansion: what the first document is related to, and the documents that may be printed.

``OFFSET 0`` keeps the planner to one probe of an index for each: it cannot know how few a function leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from msgspec import Struct

from strata.platform.database import Connection

WHOLE_BYTES = 256 * 1024
"""Of a larger document only the passages asked for are read, not all of its text."""

SEPARATOR = "\x1f"
"""Joins a breadcrumb; normalised text holds no such character."""

MAX_SECTIONS = 400
MAX_DECLARED = 40
MAX_SUPERSEDING = 20


class DocumentRow(Struct, frozen=True):
    """A live document with what of it may be printed.

    ``content`` is None beyond :data:`WHOLE_BYTES`: then ``texts`` are those of the passages. The arrays of passages
    are parallel, and those of sections, each of whose breadcrumbs is joined by :data:`SEPARATOR`. ``declared`` are
    (predicate, target as written), in order; ``superseding`` are the serials of what stands in its place, by path,
    None for what is not there.
    """

    context_id: UUID
    serial: int
    path: str
    title: str
    revision: int
    language: str | None
    text_bytes: int
    content: bytes | None
    ordinals: list[int]
    starts: list[int]
    ends: list[int]
    passage_sections: list[int]
    texts: list[bytes] | None
    section_ordinals: list[int]
    levels: list[int]
    headings: list[str]
    anchors: list[str | None]
    breadcrumbs: list[str]
    section_starts: list[int]
    section_ends: list[int]
    declared: list[list[str]]
    superseding: list[int | None]
    superseding_paths: list[str]


class RelatedRow(Struct, frozen=True):
    """A live document that another one names under ``predicate``, or that names the other."""

    predicate: str
    direction: Literal["outgoing", "incoming"]
    serial: int
    anchor: str | None


async def related(connection: Connection, tenant: UUID, context: UUID, serial: int) -> list[RelatedRow]:
    """Return what a document declares of others that are live, and which live ones declare to supersede it.

    Its own in its order, then the others by path.
    """
    rows = await connection.fetch(
        """
        SELECT predicate, direction, serial, anchor FROM (
          SELECT r.predicate, 'outgoing' AS direction, t.serial, r.anchor, r.ordinal, '' AS path
          FROM source s
          JOIN document_relation r ON r.tenant_id = $1 AND r.context_id = $2 AND r.source_id = s.source_id
            AND r.predicate <> ''
          CROSS JOIN LATERAL (SELECT relation_target($1, $2, r.form, r.target, s.path) AS id OFFSET 0) AS f
          CROSS JOIN LATERAL (
            SELECT serial FROM source WHERE tenant_id = $1 AND context_id = $2 AND source_id = f.id OFFSET 0
          ) AS t
          WHERE s.tenant_id = $1 AND s.context_id = $2 AND s.serial = $3
          UNION ALL
          (SELECT r.predicate, 'incoming', t.serial, NULL, r.ordinal, t.path
          FROM source s
          CROSS JOIN LATERAL (SELECT relation_names(s.path) AS names OFFSET 0) AS called
          JOIN document_relation r ON r.tenant_id = $1 AND r.context_id = $2 AND r.predicate = 'supersedes'
            AND r.target = ANY (called.names)
          CROSS JOIN LATERAL (
            SELECT serial, path FROM source
            WHERE tenant_id = $1 AND context_id = $2 AND source_id = r.source_id OFFSET 0
          ) AS t
          WHERE s.tenant_id = $1 AND s.context_id = $2 AND s.serial = $3 AND r.source_id <> s.source_id
            AND (r.form <> 'name' AND r.target = s.path
              OR relation_target($1, $2, r.form, r.target, t.path) = s.source_id)
          ORDER BY t.path COLLATE "C" LIMIT $4)
        ) AS found
        ORDER BY direction DESC, path COLLATE "C", ordinal
        """,
        tenant,
        context,
        serial,
        MAX_SUPERSEDING,
    )
    return [RelatedRow(*row) for row in rows]


async def documents(
    connection: Connection,
    tenant: UUID,
    contexts: Sequence[UUID],
    serials: Sequence[int],
    nominated: Sequence[int],
) -> list[DocumentRow]:
    """Return live documents (one context each), in the order given; what is gone has no row.

    Of a large document only its first passage, the ``nominated`` ones (ids) and its first sections are returned.
    """
    rows = await connection.fetch(
        """
        WITH wanted AS MATERIALIZED (
          SELECT w.n, w.context_id, s.serial, s.source_id, s.path, s.title, s.revision, s.language, s.text_bytes
          FROM unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS w (context_id, serial, n)
          CROSS JOIN LATERAL (
            SELECT * FROM source WHERE tenant_id = $1 AND context_id = w.context_id AND serial = w.serial OFFSET 0
          ) AS s
        ), superseding AS MATERIALIZED (
          SELECT w.n, t.serial,
            coalesce(t.path, CASE r.form WHEN 'name' THEN r.written ELSE r.target END) COLLATE "C" AS path
          FROM wanted w
          JOIN document_relation r ON r.tenant_id = $1 AND r.context_id = w.context_id
            AND r.source_id = w.source_id AND r.predicate = 'superseded-by'
          CROSS JOIN LATERAL (SELECT relation_target($1, w.context_id, r.form, r.target, w.path) AS id OFFSET 0) AS f
          LEFT JOIN LATERAL (
            SELECT serial, path FROM source
            WHERE tenant_id = $1 AND context_id = w.context_id AND source_id = f.id OFFSET 0
          ) AS t ON true
          UNION
          SELECT w.n, f.serial, f.path
          FROM wanted w
          CROSS JOIN LATERAL (SELECT relation_names(w.path) AS names OFFSET 0) AS called
          CROSS JOIN LATERAL (
            SELECT t.serial, t.path
            FROM document_relation r
            CROSS JOIN LATERAL (
              SELECT serial, path FROM source
              WHERE tenant_id = $1 AND context_id = w.context_id AND source_id = r.source_id OFFSET 0
            ) AS t
            WHERE r.tenant_id = $1 AND r.context_id = w.context_id AND r.predicate = 'supersedes'
              AND r.target = ANY (called.names) AND r.source_id <> w.source_id
              AND (r.form <> 'name' AND r.target = w.path
                OR relation_target($1, w.context_id, r.form, r.target, t.path) = w.source_id)
            ORDER BY t.path COLLATE "C" LIMIT $8
          ) AS f
        )
        SELECT w.context_id, w.serial, w.path, w.title, w.revision, w.language, w.text_bytes,
          CASE WHEN w.text_bytes <= $5 THEN c.content END,
          p.ordinals, p.starts, p.ends, p.sections,
          CASE WHEN w.text_bytes > $5 THEN p.texts END,
          x.*,
          ARRAY(
            SELECT ARRAY[predicate, written] FROM document_relation
            WHERE tenant_id = $1 AND context_id = w.context_id AND source_id = w.source_id AND predicate <> ''
            ORDER BY ordinal LIMIT $7
          ),
          ARRAY(SELECT serial FROM superseding WHERE n = w.n ORDER BY path COLLATE "C", serial),
          ARRAY(SELECT path FROM superseding WHERE n = w.n ORDER BY path COLLATE "C", serial)
        FROM wanted w
        CROSS JOIN LATERAL (
          SELECT content FROM source_content
          WHERE tenant_id = $1 AND context_id = w.context_id AND source_id = w.source_id OFFSET 0
        ) AS c
        CROSS JOIN LATERAL (
          SELECT coalesce(array_agg(passage_id & 1048575 ORDER BY passage_id), '{}') AS ordinals,
            coalesce(array_agg(start_byte ORDER BY passage_id), '{}') AS starts,
            coalesce(array_agg(end_byte ORDER BY passage_id), '{}') AS ends,
            coalesce(array_agg(section_ordinal ORDER BY passage_id), '{}') AS sections,
            coalesce(array_agg(CASE WHEN w.text_bytes > $5 THEN
              substring(c.content FROM start_byte::int + 1 FOR (end_byte - start_byte)::int) END ORDER BY passage_id),
              '{}') AS texts
          FROM passage
          WHERE tenant_id = $1 AND context_id = w.context_id AND source_id = w.source_id
            AND (w.text_bytes <= $5 OR passage_id = ANY ($4::bigint[]) OR passage_id = w.serial << 20)
        ) p
        CROSS JOIN LATERAL (
          SELECT coalesce(array_agg(ordinal ORDER BY ordinal), '{}'), coalesce(array_agg(level ORDER BY ordinal), '{}'),
            coalesce(array_agg(heading ORDER BY ordinal), '{}'), coalesce(array_agg(anchor ORDER BY ordinal), '{}'),
            coalesce(array_agg(array_to_string(breadcrumb, E'\\x1f') ORDER BY ordinal), '{}'),
            coalesce(array_agg(start_byte ORDER BY ordinal), '{}'), coalesce(array_agg(end_byte ORDER BY ordinal), '{}')
          FROM section
          WHERE tenant_id = $1 AND context_id = w.context_id AND source_id = w.source_id
            AND (w.text_bytes <= $5 OR ordinal < $6 OR ordinal = ANY (p.sections))
        ) x
        ORDER BY w.n
        """,
        tenant,
        list(contexts),
        list(serials),
        list(nominated),
        WHOLE_BYTES,
        MAX_SECTIONS,
        MAX_DECLARED,
        MAX_SUPERSEDING,
    )
    return [DocumentRow(*row) for row in rows]
