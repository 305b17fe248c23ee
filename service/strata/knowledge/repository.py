"""SQL of contexts."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from strata.knowledge.graph_write_repository import delete_graph
from strata.knowledge.model import ContextCounts, ContextOptions, ContextRow
from strata.lanes.lexical.repository import delete_index, hold_merges
from strata.lanes.vector.repository import delete_context as delete_vectors
from strata.platform.database import Connection


async def find(connection: Connection, tenant: UUID, ids: Sequence[UUID], names: Sequence[str]) -> list[ContextRow]:
    """Return the contexts with one of the ids or names, by name."""
    rows = await connection.fetch(
        """
        SELECT context_id, name, description,
               graph_revision, passages_revision, hints_revision, config_revision, languages, created_at,
               is_pinned, dice_floor, semantic_floor
        FROM context WHERE tenant_id = $1 AND (context_id = ANY($2) OR name = ANY($3))
        ORDER BY name COLLATE "C"
        """,
        tenant,
        ids,
        names,
    )
    return [ContextRow(*row) for row in rows]


async def list_all(connection: Connection, tenant: UUID) -> list[ContextRow]:
    """Return every context, by name in code point order."""
    rows = await connection.fetch(
        """
        SELECT context_id, name, description,
               graph_revision, passages_revision, hints_revision, config_revision, languages, created_at,
               is_pinned, dice_floor, semantic_floor
        FROM context WHERE tenant_id = $1
        ORDER BY name COLLATE "C"
        """,
        tenant,
    )
    return [ContextRow(*row) for row in rows]


async def page(
    connection: Connection, tenant: UUID, *, after: str | None, is_pinned: bool | None, limit: int
) -> list[ContextRow]:
    """Return up to ``limit`` contexts past a name, in code point order of their names."""
    rows = await connection.fetch(
        """
        SELECT context_id, name, description,
               graph_revision, passages_revision, hints_revision, config_revision, languages, created_at,
               is_pinned, dice_floor, semantic_floor
        FROM context
        WHERE tenant_id = $1 AND ($2::text IS NULL OR name COLLATE "C" > $2) AND ($3::bool IS NULL OR is_pinned = $3)
        ORDER BY name COLLATE "C" LIMIT $4
        """,
        tenant,
        after,
        is_pinned,
        limit,
    )
    return [ContextRow(*row) for row in rows]


async def count(connection: Connection, tenant: UUID, *, is_pinned: bool | None) -> int:
    """Return how many contexts there are."""
    found: int = await connection.fetchval(
        "SELECT count(*) FROM context WHERE tenant_id = $1 AND ($2::bool IS NULL OR is_pinned = $2)",
        tenant,
        is_pinned,
    )
    return found


async def insert(
    connection: Connection, tenant: UUID, context: UUID, *, name: str, description: str, options: ContextOptions
) -> ContextRow | None:
    """Insert a context; None when the name is taken, also by a transaction that is just committing."""
    row = await connection.fetchrow(
        """
        INSERT INTO context (tenant_id, context_id, name, description, is_pinned, dice_floor, semantic_floor)
        VALUES ($1, $2, $3, $4, coalesce($5, false), $6, $7)
        ON CONFLICT (tenant_id, name) DO NOTHING
        RETURNING context_id, name, description,
               graph_revision, passages_revision, hints_revision, config_revision, languages, created_at,
               is_pinned, dice_floor, semantic_floor
        """,
        tenant,
        context,
        name,
        description,
        options.is_pinned,
        options.dice_floor,
        options.semantic_floor,
    )
    return ContextRow(*row) if row else None


async def update(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    *,
    name: str | None,
    description: str | None,
    options: ContextOptions,
) -> ContextRow | None:
    """Change what is not None and move the config revision; None when the context is gone."""
    row = await connection.fetchrow(
        """
        UPDATE context
        SET name = coalesce($3, name), description = coalesce($4, description), config_revision = config_revision + 1,
          is_pinned = coalesce($5, is_pinned), dice_floor = coalesce($6, dice_floor),
          semantic_floor = coalesce($7, semantic_floor)
        WHERE tenant_id = $1 AND context_id = $2
        RETURNING context_id, name, description,
               graph_revision, passages_revision, hints_revision, config_revision, languages, created_at,
               is_pinned, dice_floor, semantic_floor
        """,
        tenant,
        context,
        name,
        description,
        options.is_pinned,
        options.dice_floor,
        options.semantic_floor,
    )
    return ContextRow(*row) if row else None


async def delete(connection: Connection, tenant: UUID, context: UUID) -> bool:
    """Delete a context with all that hangs on it; False when it was gone already.

    Merges of the index are held before the row: they lock postings before segments, which the row takes
    along. Then the row: it waits for writers of the context, and those that come later find it gone. The
    graph goes from the outside in, which spares a look for each of its rows. Postings and vectors have no
    foreign key, so they are deleted by name.
    """
    await hold_merges(connection, tenant, context)
    if not await hold_alone(connection, tenant, context):
        return False
    await delete_graph(connection, tenant, context)
    deleted = await connection.fetchval(
        "DELETE FROM context WHERE tenant_id = $1 AND context_id = $2 RETURNING true", tenant, context
    )
    if deleted is None:
        return False
    await delete_index(connection, tenant, context)
    await delete_vectors(connection, tenant, context)
    return True


async def hold(connection: Connection, tenant: UUID, context: UUID) -> bool:
    """Keep the context from being deleted until the transaction ends; False when it is gone.

    Does not block other writers nor the revision counters.
    """
    return (
        await connection.fetchval(
            "SELECT true FROM context WHERE tenant_id = $1 AND context_id = $2 FOR KEY SHARE", tenant, context
        )
        is not None
    )


async def hold_alone(connection: Connection, tenant: UUID, context: UUID) -> bool:
    """Wait for all who hold the context and keep others from it until the transaction ends; False when it is gone."""
    return (
        await connection.fetchval(
            "SELECT true FROM context WHERE tenant_id = $1 AND context_id = $2 FOR UPDATE", tenant, context
        )
        is not None
    )


async def bump_config(connection: Connection, tenant: UUID, context: UUID) -> None:
    """Move the config revision."""
    await connection.execute(
        "UPDATE context SET config_revision = config_revision + 1 WHERE tenant_id = $1 AND context_id = $2",
        tenant,
        context,
    )


async def bump_passages(
    connection: Connection, tenant: UUID, context: UUID, languages: Sequence[str] = ()
) -> int | None:
    """Move the passages revision, add ``languages`` to those analysed, and return the revision.

    Holds the row to the end of the unit of work: call it last.
    """
    revision: int | None = await connection.fetchval(
        """
        UPDATE context
        SET passages_revision = passages_revision + 1,
            languages = CASE WHEN languages @> $3::text[] THEN languages
                             ELSE ARRAY(SELECT DISTINCT unnest(languages || $3::text[]) ORDER BY 1) END
        WHERE tenant_id = $1 AND context_id = $2 RETURNING passages_revision
        """,
        tenant,
        context,
        list(languages),
    )
    return revision


async def counts(connection: Connection, tenant: UUID, contexts: Sequence[UUID]) -> dict[UUID, ContextCounts]:
    """Return the counts of the contexts that hold at least one source."""
    rows = await connection.fetch(
        "SELECT context_id, count(*), coalesce(sum(passage_count), 0)::bigint FROM source "
        "WHERE tenant_id = $1 AND context_id = ANY($2) GROUP BY context_id",
        tenant,
        contexts,
    )
    return {row[0]: ContextCounts(row[1], row[2]) for row in rows}
