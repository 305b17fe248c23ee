"""SQL of groups of contexts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from strata.knowledge.model import ContextRow
from strata.platform.database import Connection

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as it stands in its table."""

    group_id: UUID
    name: str
    description: str


async def lock(connection: Connection, key: int) -> None:
    """Hold an advisory lock to the end of the transaction."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", key)


async def find(connection: Connection, tenant: UUID, names: Sequence[str]) -> list[GroupRow]:
    """Return the groups of the names, by name."""
    rows = await connection.fetch(
        "SELECT group_id, name, description FROM context_group WHERE tenant_id = $1 AND name = ANY($2) ORDER BY name",
        tenant,
        names,
    )
    return [GroupRow(*row) for row in rows]


async def page(connection: Connection, tenant: UUID, *, after: str | None, limit: int) -> list[GroupRow]:
    """Return up to ``limit`` groups past a name, by name."""
    rows = await connection.fetch(
        "SELECT group_id, name, description FROM context_group "
        "WHERE tenant_id = $1 AND ($2::text IS NULL OR name > $2) ORDER BY name LIMIT $3",
        tenant,
        after,
        limit,
    )
    return [GroupRow(*row) for row in rows]


async def count(connection: Connection, tenant: UUID) -> int:
    """Return how many groups there are."""
    found: int = await connection.fetchval("SELECT count(*) FROM context_group WHERE tenant_id = $1", tenant)
    return found


async def insert(connection: Connection, tenant: UUID, group: UUID, name: str, description: str) -> bool:
    """Insert a group; False when the name is taken."""
    return (
        await connection.fetchval(
            "INSERT INTO context_group (tenant_id, group_id, name, description) VALUES ($1, $2, $3, $4) "
            "ON CONFLICT (tenant_id, name) DO NOTHING RETURNING true",
            tenant,
            group,
            name,
            description,
        )
        is not None
    )


async def update(
    connection: Connection, tenant: UUID, group: UUID, *, name: str | None = None, description: str | None = None
) -> None:
    """Change what is not None."""
    await connection.execute(
        "UPDATE context_group SET name = coalesce($3, name), description = coalesce($4, description) "
        "WHERE tenant_id = $1 AND group_id = $2",
        tenant,
        group,
        name,
        description,
    )


async def delete(connection: Connection, tenant: UUID, group: UUID) -> None:
    """Delete a group; its members and children stay."""
    await connection.execute("DELETE FROM context_group WHERE tenant_id = $1 AND group_id = $2", tenant, group)


async def add_contexts(connection: Connection, tenant: UUID, group: UUID, contexts: Sequence[UUID]) -> None:
    """Add members; those that are members stay so."""
    await connection.execute(
        "INSERT INTO context_group_context (tenant_id, group_id, context_id) "
        "SELECT $1, $2, context_id FROM unnest($3::uuid[]) AS context_id ORDER BY context_id ON CONFLICT DO NOTHING",
        tenant,
        group,
        contexts,
    )


async def remove_contexts(connection: Connection, tenant: UUID, group: UUID, contexts: Sequence[UUID]) -> None:
    """Remove members."""
    await connection.execute(
        "DELETE FROM context_group_context WHERE tenant_id = $1 AND group_id = $2 AND context_id = ANY($3)",
        tenant,
        group,
        contexts,
    )


async def add_groups(connection: Connection, tenant: UUID, group: UUID, children: Sequence[UUID]) -> None:
    """Add child groups; those that are children stay so."""
    await connection.execute(
        "INSERT INTO context_group_child (tenant_id, group_id, child_id) "
        "SELECT $1, $2, child_id FROM unnest($3::uuid[]) AS child_id ORDER BY child_id ON CONFLICT DO NOTHING",
        tenant,
        group,
        children,
    )


async def remove_groups(connection: Connection, tenant: UUID, group: UUID, children: Sequence[UUID]) -> None:
    """Remove child groups."""
    await connection.execute(
        "DELETE FROM context_group_child WHERE tenant_id = $1 AND group_id = $2 AND child_id = ANY($3)",
        tenant,
        group,
        children,
    )


async def contexts_of(connection: Connection, tenant: UUID, groups: Sequence[UUID]) -> dict[UUID, list[ContextRow]]:
    """Return the member contexts of groups, by name."""
    rows = await connection.fetch(
        """
        SELECT member.group_id, context.context_id, name, description,
               graph_revision, passages_revision, hints_revision, config_revision, languages, context.created_at,
               is_pinned, dice_floor, semantic_floor
        FROM context_group_context member JOIN context USING (tenant_id, context_id)
        WHERE member.tenant_id = $1 AND member.group_id = ANY($2)
        ORDER BY name COLLATE "C"
        """,
        tenant,
        groups,
    )
    return _grouped((row[0], ContextRow(*row[1:])) for row in rows)


async def children_of(connection: Connection, tenant: UUID, groups: Sequence[UUID]) -> dict[UUID, list[GroupRow]]:
    """Return the child groups of groups, by name."""
    rows = await connection.fetch(
        """
        SELECT held.group_id, child.group_id, name, description
        FROM context_group_child held
        JOIN context_group child ON child.tenant_id = held.tenant_id AND child.group_id = held.child_id
        WHERE held.tenant_id = $1 AND held.group_id = ANY($2) ORDER BY name
        """,
        tenant,
        groups,
    )
    return _grouped((row[0], GroupRow(*row[1:])) for row in rows)


async def links(connection: Connection, tenant: UUID) -> list[tuple[UUID, UUID]]:
    """Return every pair of group and child."""
    rows = await connection.fetch(
        "SELECT group_id, child_id FROM context_group_child WHERE tenant_id = $1 ORDER BY group_id, child_id", tenant
    )
    return [(row[0], row[1]) for row in rows]


async def fingerprints(connection: Connection, tenant: UUID, groups: Sequence[UUID]) -> dict[UUID, str]:
    """Return a token for each group that moves with every change of a context that it reaches."""
    rows = await connection.fetch(
        """
        WITH RECURSIVE reach (root, group_id) AS (
          SELECT group_id, group_id FROM unnest($2::uuid[]) AS group_id
          UNION
          SELECT root, child_id FROM reach JOIN context_group_child child
            ON child.tenant_id = $1 AND child.group_id = reach.group_id
        ), member AS (
          SELECT DISTINCT root, context_id FROM reach JOIN context_group_context held
            ON held.tenant_id = $1 AND held.group_id = reach.group_id
        )
        SELECT wanted.root, left(md5(coalesce(string_agg(
            concat_ws(':', context_id, graph_revision, passages_revision, config_revision), ',' ORDER BY context_id),
          '')), 16)
        FROM unnest($2::uuid[]) AS wanted (root)
        LEFT JOIN member ON member.root = wanted.root
        LEFT JOIN context USING (context_id)
        WHERE context.tenant_id = $1 OR context.tenant_id IS NULL
        GROUP BY wanted.root
        """,
        tenant,
        groups,
    )
    return {row[0]: row[1] for row in rows}


def _grouped(rows: Iterable[tuple[UUID, T]]) -> dict[UUID, list[T]]:
    found: dict[UUID, list[T]] = {}
    for group, item in rows:
        found.setdefault(group, []).append(item)
    return found
