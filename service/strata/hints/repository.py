"""The SQL of hint entries. Every statement runs inside a unit of work and names its tenant.

Tables that were never analysed make the planner think that a tenant or a context has one row, and
then it joins by reading all of one. ``LATERAL ... OFFSET 0`` makes it look up one key at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from strata.hints.keys import RANKS_PER_ORIGIN, HintKey
from strata.hints.schemas import HintEntry, HintOrigin
from strata.platform.database import Connection

_HINTS_PER_PROBE = 24
_HINTS_PER_KIND = 96

_COLUMNS = """
    e.hint_id, e.context_id, e.origin, e.source_id, e.title, e.aliases, e.keywords, e.category, e.breadcrumb,
    e.summary, e.targets, e.priority, e.valid_from, e.valid_until, e.metadata, e.created_at, e.updated_at
"""

_PROBE = f"""
SELECT c.context_id AS asked_context, c.hints_revision, {_COLUMNS}
FROM context c
LEFT JOIN LATERAL (
    (
        SELECT k.hint_id
        FROM unnest($3::text[]) WITH ORDINALITY AS probe (norm, place) CROSS JOIN LATERAL (
            SELECT hint_id, rank FROM hint_key
            WHERE tenant_id = $1 AND context_id = c.context_id AND kind = 'name' AND norm = probe.norm
            ORDER BY rank, hint_id LIMIT {_HINTS_PER_PROBE}
        ) k
        ORDER BY probe.place, k.rank, k.hint_id LIMIT {_HINTS_PER_KIND}
    )
    UNION
    (
        SELECT k.hint_id
        FROM unnest($4::text[]) WITH ORDINALITY AS probe (norm, place) CROSS JOIN LATERAL (
            SELECT hint_id, rank FROM hint_key
            WHERE tenant_id = $1 AND context_id = c.context_id AND kind = 'keyword' AND norm = probe.norm
            ORDER BY rank, hint_id LIMIT {_HINTS_PER_PROBE}
        ) k
        ORDER BY probe.place, k.rank, k.hint_id LIMIT {_HINTS_PER_KIND}
    )
    UNION
    (
        SELECT hint_id FROM hint_key
        WHERE tenant_id = $1 AND context_id = c.context_id AND kind = 'name' AND norm >= $5 AND norm < $6
        ORDER BY norm, rank, hint_id LIMIT {_HINTS_PER_KIND}
    )
    UNION
    SELECT unnest($7::uuid[])
) found ON true
LEFT JOIN LATERAL (
    SELECT * FROM hint_entry
    WHERE tenant_id = $1 AND context_id = c.context_id AND hint_id = found.hint_id
    OFFSET 0
) e ON (e.valid_from IS NULL OR e.valid_from <= now()) AND (e.valid_until IS NULL OR e.valid_until > now())
WHERE c.tenant_id = $1 AND c.context_id = ANY ($2::uuid[])
"""  # noqa: S608 - constants only

_NAMES = """
SELECT c.hints_revision, k.hint_id, k.norm
FROM context c
LEFT JOIN LATERAL (
    SELECT k.hint_id, k.norm
    FROM hint_entry e CROSS JOIN LATERAL (
        SELECT hint_id, kind, norm, rank, ordinal FROM hint_key
        WHERE tenant_id = $1 AND context_id = $2 AND hint_id = e.hint_id
        OFFSET 0
    ) k
    WHERE e.tenant_id = $1 AND e.context_id = $2 AND e.origin <> 'derived' AND k.kind = 'name'
    ORDER BY k.rank, k.hint_id, k.ordinal
    LIMIT $3
) k ON true
WHERE c.tenant_id = $1 AND c.context_id = $2
"""

_GET = f"""
SELECT {_COLUMNS} FROM hint_entry e WHERE e.tenant_id = $1 AND e.context_id = $2 AND e.hint_id = ANY ($3::uuid[])
"""  # noqa: S608 - constants only

_LIST = f"""
SELECT {_COLUMNS} FROM hint_entry e
WHERE e.tenant_id = $1 AND e.context_id = $2 AND ($3::uuid IS NULL OR e.hint_id > $3)
ORDER BY e.hint_id LIMIT $4
"""  # noqa: S608 - constants only

_LIST_DERIVED = f"""
SELECT {_COLUMNS} FROM hint_entry e
WHERE e.tenant_id = $1 AND e.context_id = $2 AND ($3::uuid IS NULL OR e.hint_id > $3) AND e.origin = 'derived'
ORDER BY e.hint_id LIMIT $4
"""  # noqa: S608 - constants only

_LIST_NAMED = f"""
SELECT {_COLUMNS} FROM hint_entry e
WHERE e.tenant_id = $1 AND e.context_id = $2 AND ($3::uuid IS NULL OR e.hint_id > $3)
    AND e.origin = $5 AND e.origin <> 'derived'
ORDER BY e.hint_id LIMIT $4
"""  # noqa: S608 - constants only

_CURATED_WITH_TITLES = f"""
SELECT {_COLUMNS}
FROM unnest($3::text[]) AS title (norm) CROSS JOIN LATERAL (
    SELECT hint_id, ordinal FROM hint_key
    WHERE tenant_id = $1 AND context_id = $2 AND kind = 'name' AND norm = title.norm AND rank < {RANKS_PER_ORIGIN}
    ORDER BY rank, hint_id
    OFFSET 0
) k CROSS JOIN LATERAL (
    SELECT * FROM hint_entry WHERE tenant_id = $1 AND context_id = $2 AND hint_id = k.hint_id
    OFFSET 0
) e
WHERE k.ordinal = 0
"""  # noqa: S608 - constants only

_OWNED = """
SELECT owned.hint_id
FROM unnest($3::uuid[]) AS source (source_id) CROSS JOIN LATERAL (
    SELECT hint_id FROM hint_entry WHERE tenant_id = $1 AND context_id = $2 AND source_id = source.source_id
    OFFSET 0
) owned
"""

_UPSERT = """
INSERT INTO hint_entry AS e (
    tenant_id, context_id, hint_id, origin, source_id, title, aliases, keywords, category, breadcrumb, summary,
    targets, priority, valid_from, valid_until, metadata
)
SELECT $1, $2, r.hint_id, r.origin, r.source_id, r.title, r.aliases, r.keywords, r.category, r.breadcrumb, r.summary,
    r.targets, r.priority, r.valid_from, r.valid_until, r.metadata
FROM jsonb_to_recordset($3::jsonb) AS r (
    hint_id uuid, origin text, source_id uuid, title text, aliases text[], keywords text[], category text,
    breadcrumb text[], summary text, targets text[], priority bigint, valid_from timestamptz,
    valid_until timestamptz, metadata jsonb
)
ON CONFLICT (tenant_id, context_id, hint_id) DO UPDATE SET
    title = excluded.title, aliases = excluded.aliases, keywords = excluded.keywords, category = excluded.category,
    breadcrumb = excluded.breadcrumb, summary = excluded.summary, targets = excluded.targets,
    priority = excluded.priority, valid_from = excluded.valid_from, valid_until = excluded.valid_until,
    metadata = excluded.metadata, updated_at = now()
"""

_INSERT_KEYS = """
INSERT INTO hint_key (tenant_id, context_id, hint_id, ordinal, kind, norm, rank)
SELECT $1, $2, r.hint_id, r.ordinal, r.kind, r.norm, r.rank
FROM unnest($3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::bigint[]) AS r (hint_id, ordinal, kind, norm, rank)
"""


@dataclass(frozen=True, slots=True)
class Probed:
    """What a question finds: entries valid now, and the hints revision of each context asked."""

    entries: Sequence[HintEntry]
    revisions: dict[UUID, int]


async def probe(
    connection: Connection,
    tenant: UUID,
    contexts: Sequence[UUID],
    *,
    names: Sequence[str],
    keywords: Sequence[str],
    prefix: str | None,
    hints: Sequence[UUID],
) -> Probed:
    """Return the entries of ``contexts`` that a question may mean, in one statement.

    Each probe is bounded, and all of a kind together; where there are more, the first ``names`` and
    ``keywords`` go first.
    """
    low, high = (prefix, f"{prefix}\U0010ffff") if prefix else (None, None)
    rows = await connection.fetch(_PROBE, tenant, contexts, names, keywords, low, high, hints)
    revisions = {row["asked_context"]: row["hints_revision"] for row in rows}
    return Probed([_entry(row) for row in rows if row["hint_id"] is not None], revisions)


async def fuzzy_names(
    connection: Connection, tenant: UUID, context: UUID, limit: int
) -> tuple[int, list[tuple[UUID, str]]]:
    """Return the hints revision and the first ``limit`` names that are not derived, curated ones first."""
    rows = await connection.fetch(_NAMES, tenant, context, limit)
    revision = rows[0]["hints_revision"] if rows else 0
    return revision, [(row["hint_id"], row["norm"]) for row in rows if row["hint_id"] is not None]


async def get(connection: Connection, tenant: UUID, context: UUID, hints: Sequence[UUID]) -> list[HintEntry]:
    """Return the entries with these ids, valid now or not, in no order."""
    return [_entry(row) for row in await connection.fetch(_GET, tenant, context, hints)]


async def page(
    connection: Connection, tenant: UUID, context: UUID, *, origin: HintOrigin | None, after: UUID | None, limit: int
) -> list[HintEntry]:
    """Return up to ``limit`` entries in id order, those after ``after``."""
    if origin is None:
        rows = await connection.fetch(_LIST, tenant, context, after, limit)
    elif origin is HintOrigin.DERIVED:
        rows = await connection.fetch(_LIST_DERIVED, tenant, context, after, limit)
    else:
        rows = await connection.fetch(_LIST_NAMED, tenant, context, after, limit, origin.value)
    return [_entry(row) for row in rows]


async def curated_with_titles(
    connection: Connection, tenant: UUID, context: UUID, norms: Sequence[str]
) -> list[HintEntry]:
    """Return the curated entries whose title has one of these keys."""
    return [_entry(row) for row in await connection.fetch(_CURATED_WITH_TITLES, tenant, context, norms)]


async def lock(connection: Connection, tenant: UUID, context: UUID) -> bool:
    """Keep every other writer of the context out until the unit of work ends; False when it is gone."""
    return bool(
        await connection.fetchval(
            "SELECT true FROM context WHERE tenant_id = $1 AND context_id = $2 FOR NO KEY UPDATE", tenant, context
        )
    )


async def bump(connection: Connection, tenant: UUID, context: UUID) -> None:
    """Move the hints revision of a context."""
    await connection.execute(
        "UPDATE context SET hints_revision = hints_revision + 1 WHERE tenant_id = $1 AND context_id = $2",
        tenant,
        context,
    )


async def write(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    entries: Sequence[HintEntry],
    keys: Sequence[HintKey],
    *,
    replaced: Sequence[UUID] = (),
) -> None:
    """Write entries with their keys; ``replaced`` are those of them that are there already."""
    await connection.execute(_UPSERT, tenant, context, [_row(entry) for entry in entries])
    if replaced:
        await connection.executemany(
            "DELETE FROM hint_key WHERE tenant_id = $1 AND context_id = $2 AND hint_id = $3",
            [(tenant, context, hint) for hint in replaced],
        )
    await connection.execute(
        _INSERT_KEYS,
        tenant,
        context,
        [key.hint_id for key in keys],
        [key.ordinal for key in keys],
        [key.kind for key in keys],
        [key.norm for key in keys],
        [key.rank for key in keys],
    )


async def delete(connection: Connection, tenant: UUID, context: UUID, hint: UUID) -> bool:
    """Delete an entry with its keys; False when there is none."""
    status = await connection.execute(
        "DELETE FROM hint_entry WHERE tenant_id = $1 AND context_id = $2 AND hint_id = $3", tenant, context, hint
    )
    return not status.endswith(" 0")


async def delete_for_sources(connection: Connection, tenant: UUID, context: UUID, sources: Sequence[UUID]) -> bool:
    """Delete what these sources own; False when they own nothing."""
    owned = [row["hint_id"] for row in await connection.fetch(_OWNED, tenant, context, sources)]
    if owned:
        await connection.execute(
            "DELETE FROM hint_entry WHERE tenant_id = $1 AND context_id = $2 AND hint_id = ANY ($3::uuid[])",
            tenant,
            context,
            owned,
        )
    return bool(owned)


def _entry(row: Any) -> HintEntry:
    return HintEntry(
        hint_id=row["hint_id"],
        context_id=row["context_id"],
        origin=HintOrigin(row["origin"]),
        source_id=row["source_id"],
        title=row["title"],
        aliases=row["aliases"],
        keywords=row["keywords"],
        category=row["category"],
        breadcrumb=row["breadcrumb"],
        summary=row["summary"],
        targets=row["targets"],
        priority=row["priority"],
        valid_from=row["valid_from"],
        valid_until=row["valid_until"],
        metadata=row["metadata"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _row(entry: HintEntry) -> dict[str, Any]:
    return msgspec.structs.asdict(entry)
