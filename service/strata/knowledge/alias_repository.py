"""SQL that writes aliases. Callers hold the lock of the context's graph."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from strata.platform.database import Connection


async def insert_aliases(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    namespace: str,
    rows: Sequence[tuple[str, int]],
) -> None:
    """Insert aliases of one namespace with the ids they lead to; those that are there stay."""
    aliases, targets = [alias for alias, _ in rows], [target for _, target in rows]
    await connection.execute(
        """
        INSERT INTO alias (tenant_id, context_id, namespace, alias, concept_id, label_id)
        SELECT $1, $2, $3, alias, CASE $3 WHEN 'concept' THEN target END, CASE $3 WHEN 'label' THEN target END
        FROM unnest($4::text[], $5::bigint[]) AS new (alias, target) ORDER BY alias
        ON CONFLICT DO NOTHING
        """,
        tenant,
        context,
        namespace,
        aliases,
        targets,
    )


async def delete_aliases(
    connection: Connection, tenant: UUID, context: UUID, namespace: str, aliases: Sequence[str]
) -> list[int]:
    """Delete aliases of one namespace; return the id that each led to."""
    rows = await connection.fetch(
        "DELETE FROM alias WHERE tenant_id = $1 AND context_id = $2 AND namespace = $3 AND alias = ANY($4) "
        "RETURNING coalesce(concept_id, label_id)",
        tenant,
        context,
        namespace,
        aliases,
    )
    return [row[0] for row in rows]


async def canonical(
    connection: Connection, tenant: UUID, context: UUID, namespace: str, names: Sequence[str]
) -> list[str]:
    """Return those of the spellings that are canonical names, in code point order."""
    rows = await connection.fetch(
        """
        SELECT name FROM concept
        WHERE $3 = 'concept' AND tenant_id = $1 AND context_id = $2 AND name = ANY($4)
        UNION ALL
        SELECT name FROM label WHERE $3 = 'label' AND tenant_id = $1 AND context_id = $2 AND name = ANY($4)
        ORDER BY name
        """,
        tenant,
        context,
        namespace,
        names,
    )
    return [row[0] for row in rows]


async def aliases_of_label(connection: Connection, tenant: UUID, context: UUID, label: str) -> bool:
    """Tell whether an alias leads to a label."""
    found: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM alias JOIN label USING (tenant_id, context_id, label_id) "
        "WHERE alias.tenant_id = $1 AND alias.context_id = $2 AND label.name = $3)",
        tenant,
        context,
        label,
    )
    return found


async def delete_dead_of_concepts(connection: Connection, tenant: UUID, context: UUID) -> list[int]:
    """Delete the aliases of concepts that no fact is about; return the concept that each led to."""
    rows = await connection.fetch(
        """
        DELETE FROM alias WHERE tenant_id = $1 AND context_id = $2 AND namespace = 'concept'
          AND NOT EXISTS (SELECT FROM association WHERE association.tenant_id = $1 AND association.context_id = $2
            AND association.subject_id = alias.concept_id)
          AND NOT EXISTS (SELECT FROM association WHERE association.tenant_id = $1 AND association.context_id = $2
            AND association.object_id = alias.concept_id)
        RETURNING concept_id
        """,
        tenant,
        context,
    )
    return [row[0] for row in rows]


async def delete_dead_of_labels(connection: Connection, tenant: UUID, context: UUID) -> list[int]:
    """Delete the aliases of labels that no fact uses; return the label that each led to."""
    rows = await connection.fetch(
        """
        DELETE FROM alias WHERE tenant_id = $1 AND context_id = $2 AND namespace = 'label'
          AND NOT EXISTS (SELECT FROM association WHERE association.tenant_id = $1 AND association.context_id = $2
            AND association.label_id = alias.label_id)
        RETURNING label_id
        """,
        tenant,
        context,
    )
    return [row[0] for row in rows]
