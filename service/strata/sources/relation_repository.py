"""SQL that reads relations. What a relation leads to is found when it is read: nothing of it is stored.

A target is a live source of the same context (``relation_target`` in migrations/versions/0006_documents.py). Which
relations may lead to a source is found by what it may be called (``relation_names``); each is then resolved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strata.platform.database import Connection
from strata.sources.targets import IMPLIED

MAX_SUPERSEDING = 100

# What the target of relation r may have for its path, and that no source has any of these: each a look-up of its own.
_CANDIDATES = ("r.target", *(f"r.target || '{ending}'" for ending in IMPLIED))
_PATHS = f"ARRAY[{', '.join(_CANDIDATES)}]"
_UNMET = " AND ".join(
    f"NOT EXISTS (SELECT FROM source o WHERE o.tenant_id = $1 AND o.context_id = $2 AND o.path = {path})"
    for path in _CANDIDATES
)
# The source that relation r of source s leads to.
FOUND = "relation_target($1, $2, r.form, r.target, s.path)"
# Relation r of source s with its target t, or the archived one a.
TARGETS = f"""
  LEFT JOIN LATERAL (SELECT {FOUND} AS id OFFSET 0) AS f ON true
  LEFT JOIN source t ON t.tenant_id = $1 AND t.context_id = $2 AND t.source_id = f.id
  LEFT JOIN LATERAL (
    SELECT v.path, v.title, v.revision FROM source_revision v
    WHERE f.id IS NULL AND r.form <> 'name' AND v.tenant_id = $1 AND v.context_id = $2 AND v.is_archived
      AND v.path = ANY ({_PATHS})
      AND v.path <> s.path
    ORDER BY length(v.path), v.path COLLATE "C" LIMIT 1
  ) AS a ON true
"""  # noqa: S608 - constants only
STATE = """
  CASE WHEN f.id IS NOT NULL THEN 'RESOLVED' WHEN a.path IS NOT NULL THEN 'ARCHIVED'
    WHEN r.form = 'url' THEN 'EXTERNAL' ELSE 'DANGLING' END
"""
# Where relation r stands in source s, and the section of its target that its anchor names.
SECTIONS = """
  LEFT JOIN section h ON h.tenant_id = $1 AND h.context_id = $2 AND h.source_id = s.source_id
    AND h.ordinal = r.section_ordinal
  LEFT JOIN LATERAL (
    SELECT p.ordinal FROM section p
    WHERE r.anchor IS NOT NULL AND p.tenant_id = $1 AND p.context_id = $2 AND p.source_id = f.id AND p.level > 0
      AND (lower(p.anchor) = lower(r.anchor) OR lower(p.heading) = lower(r.anchor))
    ORDER BY (p.anchor = r.anchor) DESC, (lower(p.anchor) = lower(r.anchor)) DESC, p.ordinal LIMIT 1
  ) AS p ON true
"""
COLUMNS = f"""
  r.ordinal, r.predicate, r.form, r.target, r.written, r.anchor, r.label, r.count, h.breadcrumb,
  s.source_id, s.path, s.title, s.revision, {STATE}, t.source_id, coalesce(t.path, a.path), coalesce(t.title, a.title),
  coalesce(t.revision, a.revision), p.ordinal
"""


# (source, path of what supersedes it) for the sources $3; at most $4 that say so of each.
SUPERSEDING = f"""
  SELECT r.source_id, coalesce(t.path, a.path, CASE r.form WHEN 'name' THEN r.written ELSE r.target END)
    COLLATE "C" AS path
  FROM document_relation r JOIN source s ON s.tenant_id = $1 AND s.context_id = $2 AND s.source_id = r.source_id
  {TARGETS}
  WHERE r.tenant_id = $1 AND r.context_id = $2 AND r.source_id = ANY($3) AND r.predicate = 'superseded-by'
  UNION
  SELECT d.source_id, e.path
  FROM source d
  CROSS JOIN LATERAL (SELECT relation_names(d.path) AS names OFFSET 0) AS called
  CROSS JOIN LATERAL (
    SELECT x.path FROM (
      SELECT s.path, r.form, r.target, r.form <> 'name' AND r.target = d.path AS is_exact
      FROM (
        SELECT r.source_id, r.form, r.target FROM document_relation r
        WHERE r.tenant_id = $1 AND r.context_id = $2 AND r.target = ANY (called.names)
          AND r.predicate = 'supersedes' AND r.source_id <> d.source_id OFFSET 0
      ) AS r
      JOIN source s ON s.tenant_id = $1 AND s.context_id = $2 AND s.source_id = r.source_id
      ORDER BY s.path COLLATE "C" OFFSET 0
    ) AS x
    WHERE x.is_exact OR relation_target($1, $2, x.form, x.target, x.path) = d.source_id
    ORDER BY x.path COLLATE "C" LIMIT $4
  ) AS e
  WHERE d.tenant_id = $1 AND d.context_id = $2 AND d.source_id = ANY($3)
"""  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True)
class RelationRow:
    """A relation with the document that has it, and what it leads to now.

    ``target_path``, ``target_title`` and ``target_revision`` are those of the live or the archived source, None
    where there is neither; ``target_id`` is of a live one only, and ``target_section`` the ordinal of its section
    that ``anchor`` names. ``is_incoming`` tells from which end it was asked for.
    """

    is_incoming: bool
    ordinal: int
    predicate: str
    form: str
    target: str
    written: str
    anchor: str | None
    label: str
    count: int
    section: list[str]
    source_id: UUID
    source_path: str
    source_title: str
    source_revision: int
    state: str
    target_id: UUID | None
    target_path: str | None
    target_title: str | None
    target_revision: int | None
    target_section: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which relations are asked for; ``predicates`` None for every one."""

    is_outgoing: bool = True
    is_incoming: bool = True
    has_declared: bool = True
    has_links: bool = False
    predicates: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the order of a page: relations after it are wanted."""

    is_incoming: bool = False
    is_link: bool = False
    path: str = ""
    ordinal: int = -1


async def page_of(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    source: UUID,
    wanted: Wanted,
    *,
    after: Place,
    limit: int,
    is_limit_each_way: bool = False,
) -> list[RelationRow]:
    """Return relations of one source: outgoing ones as it has them, then incoming ones.

    Of these, declared ones come before links, each by path of the document that has them, and in its order.
    ``is_limit_each_way`` returns up to ``limit`` of either direction.
    """
    rows = await connection.fetch(
        f"""
        WITH picked AS (
          (SELECT false AS is_incoming, r.source_id, r.ordinal FROM document_relation r
          WHERE $4 AND NOT $9 AND r.tenant_id = $1 AND r.context_id = $2 AND r.source_id = $3 AND r.ordinal > $12
            AND CASE r.predicate WHEN '' THEN $7::boolean ELSE $6::boolean END
            AND ($8::text[] IS NULL OR r.predicate = ANY($8))
          ORDER BY r.ordinal LIMIT $13)
          UNION ALL
          (SELECT true, e.source_id, e.ordinal FROM (
            SELECT r.source_id, r.ordinal, r.form, r.target, s.path, r.is_link, r.is_exact
            FROM (
              SELECT r.source_id, r.ordinal, r.form, r.target, r.predicate = '' AS is_link,
                r.form <> 'name' AND r.target = d.path AS is_exact
              FROM source d
              CROSS JOIN LATERAL (SELECT relation_names(d.path) AS names OFFSET 0) AS called
              JOIN document_relation r ON r.tenant_id = $1 AND r.context_id = $2 AND r.target = ANY (called.names)
              WHERE $5 AND d.tenant_id = $1 AND d.context_id = $2 AND d.source_id = $3 AND r.source_id <> $3
                AND CASE r.predicate WHEN '' THEN $7::boolean ELSE $6::boolean END
                AND ($8::text[] IS NULL OR r.predicate = ANY($8))
              OFFSET 0
            ) AS r
            JOIN source s ON s.tenant_id = $1 AND s.context_id = $2 AND s.source_id = r.source_id
            WHERE NOT $9 OR (r.is_link, s.path COLLATE "C", r.ordinal) > ($10::boolean, $11::text, $12)
            ORDER BY r.is_link, s.path COLLATE "C", r.ordinal OFFSET 0
          ) AS e
          WHERE e.is_exact OR relation_target($1, $2, e.form, e.target, e.path) = $3
          ORDER BY e.is_link, e.path COLLATE "C", e.ordinal LIMIT $13)
        )
        SELECT n.is_incoming, {COLUMNS}
        FROM picked n
        JOIN document_relation r ON r.tenant_id = $1 AND r.context_id = $2 AND r.source_id = n.source_id
          AND r.ordinal = n.ordinal
        JOIN source s ON s.tenant_id = $1 AND s.context_id = $2 AND s.source_id = n.source_id
        {TARGETS} {SECTIONS}
        ORDER BY n.is_incoming, r.predicate = '', CASE WHEN n.is_incoming THEN s.path END COLLATE "C", r.ordinal
        LIMIT $14
        """,  # noqa: S608 - constants only
        tenant,
        context,
        source,
        wanted.is_outgoing,
        wanted.is_incoming,
        wanted.has_declared,
        wanted.has_links,
        wanted.predicates,
        after.is_incoming,
        after.is_link,
        after.path,
        after.ordinal,
        limit,
        2 * limit if is_limit_each_way else limit,
    )
    return [RelationRow(*row) for row in rows]


async def page_of_context(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    wanted: Wanted,
    *,
    state: str | None,
    after: Place,
    limit: int,
) -> list[RelationRow]:
    """Return relations of all sources by path, each in its order; those of one state where it is given.

    What cannot be of that state is passed over before the costly part, which is to resolve.
    """
    rows = await connection.fetch(
        f"""
        SELECT false, {COLUMNS}
        FROM source s JOIN document_relation r ON r.tenant_id = $1 AND r.context_id = $2 AND r.source_id = s.source_id
        {TARGETS} {SECTIONS}
        WHERE s.tenant_id = $1 AND s.context_id = $2 AND s.path COLLATE "C" >= $6
          AND (s.path COLLATE "C" > $6 OR r.ordinal > $7)
          AND CASE r.predicate WHEN '' THEN $4::boolean ELSE $3::boolean END AND ($5::text IS NULL OR {STATE} = $5)
          AND CASE $5
            WHEN 'EXTERNAL' THEN r.form = 'url'
            WHEN 'ARCHIVED' THEN r.form <> 'name' AND EXISTS (SELECT FROM source_revision v
              WHERE v.tenant_id = $1 AND v.context_id = $2 AND v.is_archived AND v.path = ANY (
                {_PATHS}))
            WHEN 'DANGLING' THEN r.form <> 'url' AND NOT EXISTS (SELECT FROM source o
              WHERE o.tenant_id = $1 AND o.context_id = $2 AND o.path = r.target AND r.form = 'path')
            ELSE true END
        ORDER BY s.path COLLATE "C", r.ordinal LIMIT $8
        """,  # noqa: S608 - constants only
        tenant,
        context,
        wanted.has_declared,
        wanted.has_links,
        state,
        after.path,
        after.ordinal,
        limit,
    )
    return [RelationRow(*row) for row in rows]


async def superseding(
    connection: Connection, tenant: UUID, context: UUID, sources: Sequence[UUID]
) -> list[tuple[UUID, str]]:
    """Return (superseded source, what supersedes it), by source and path.

    What supersedes is a live document that says so (the first 100 by path), or what the superseded one names:
    the path of the live or the archived source, else what it would be found by, and a name that nothing bears
    as it is written.
    """
    rows = await connection.fetch(
        f"{SUPERSEDING} ORDER BY 1, 2",
        tenant,
        context,
        sources,
        MAX_SUPERSEDING,
    )
    return [(row[0], row[1]) for row in rows]


async def count_dangling(connection: Connection, tenant: UUID, context: UUID) -> int:
    """Return how many declared relations of a context lead to nothing, archived sources apart."""
    count: int = await connection.fetchval(
        f"""
        SELECT (
          SELECT count(*) FROM document_relation r
          WHERE r.tenant_id = $1 AND r.context_id = $2 AND r.predicate <> '' AND r.form = 'path'
            AND {_UNMET}
            AND NOT EXISTS (SELECT FROM source_revision v
              WHERE v.tenant_id = $1 AND v.context_id = $2 AND v.is_archived AND v.path = ANY ({_PATHS}))
        ) + (
          SELECT count(*) FROM document_relation r
          WHERE r.tenant_id = $1 AND r.context_id = $2 AND r.predicate <> '' AND r.form = 'name'
            AND NOT EXISTS (SELECT FROM source o WHERE o.tenant_id = $1 AND o.context_id = $2
              AND o.link_name = r.target AND o.link_name <> '' AND o.source_id <> r.source_id)
        )
        """,  # noqa: S608 - constants only
        tenant,
        context,
    )
    return count
