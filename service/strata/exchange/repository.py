"""SQL of import and export: what a context holds beside its texts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from strata.exchange.dump import Fact
from strata.exchange.records import AliasLine
from strata.knowledge.model import ContextOptions
from strata.platform.database import Connection


async def schema(connection: Connection, tenant: UUID, context: UUID) -> tuple[str, dict[str, Any]] | None:
    """Return the mode and the document of a context's schema; None where it has none."""
    row = await connection.fetchrow(
        "SELECT mode, document FROM context_schema WHERE tenant_id = $1 AND context_id = $2", tenant, context
    )
    return (row[0], row[1]) if row else None


async def insert_context(
    connection: Connection, tenant: UUID, context: UUID, *, name: str, description: str, options: ContextOptions
) -> bool:
    """Insert a context; False where its name or its id is taken, also by a transaction that is just committing."""
    row = await connection.fetchval(
        """
        INSERT INTO context (tenant_id, context_id, name, description, is_pinned, dice_floor, semantic_floor)
        VALUES ($1, $2, $3, $4, coalesce($5, false), $6, $7) ON CONFLICT DO NOTHING RETURNING true
        """,
        tenant,
        context,
        name,
        description,
        options.is_pinned,
        options.dice_floor,
        options.semantic_floor,
    )
    return row is not None


async def facts(
    connection: Connection, tenant: UUID, context: UUID, sources: Sequence[str]
) -> Mapping[str, Sequence[Fact]]:
    """Return what sources state by subject, label and object, under their names; the empty one is that of no source."""
    rows = await connection.fetch(
        """
        SELECT a.source, subject.name, label.name, object.name, a.weight, a.count, a.paragraph, a.valid_from,
          a.valid_until
        FROM attribution a
        JOIN association e USING (tenant_id, context_id, association_id)
        JOIN concept subject ON subject.tenant_id = $1 AND subject.context_id = $2
          AND subject.concept_id = e.subject_id
        JOIN label ON label.tenant_id = $1 AND label.context_id = $2 AND label.label_id = e.label_id
        JOIN concept object ON object.tenant_id = $1 AND object.context_id = $2 AND object.concept_id = e.object_id
        WHERE a.tenant_id = $1 AND a.context_id = $2 AND a.source = ANY($3)
        ORDER BY 2, 3, 4
        """,
        tenant,
        context,
        list(sources),
    )
    return await asyncio.to_thread(_by_source, rows)


def _by_source(rows: Sequence[Any]) -> dict[str, list[Fact]]:
    found: dict[str, list[Fact]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(Fact(*row[1:]))
    return found


async def aliases(connection: Connection, tenant: UUID, context: UUID) -> list[AliasLine]:
    """Return every alias with the name it leads to."""
    rows = await connection.fetch(
        """
        SELECT alias, coalesce(concept.name, label.name), namespace
        FROM alias
        LEFT JOIN concept USING (tenant_id, context_id, concept_id)
        LEFT JOIN label USING (tenant_id, context_id, label_id)
        WHERE tenant_id = $1 AND context_id = $2 ORDER BY namespace, alias
        """,
        tenant,
        context,
    )
    return [AliasLine(row[0], row[1], row[2]) for row in rows]


async def has_facts(connection: Connection, tenant: UUID, context: UUID, sources: Sequence[str]) -> set[str]:
    """Return those of the sources that state something."""
    rows = await connection.fetch(
        "SELECT name FROM unnest($3::text[]) AS name WHERE EXISTS (SELECT FROM attribution "
        "WHERE tenant_id = $1 AND context_id = $2 AND source = name)",
        tenant,
        context,
        list(sources),
    )
    return {row[0] for row in rows}


async def group_contexts(connection: Connection, tenant: UUID, name: str) -> list[tuple[UUID, str]]:
    """Return ids and names of the contexts in a group, by name."""
    rows = await connection.fetch(
        """
        SELECT context.context_id, context.name
        FROM context_group g
        JOIN context_group_context m USING (tenant_id, group_id)
        JOIN context USING (tenant_id, context_id)
        WHERE tenant_id = $1 AND g.name = $2 ORDER BY context.name COLLATE "C"
        """,
        tenant,
        name,
    )
    return [(row[0], row[1]) for row in rows]
