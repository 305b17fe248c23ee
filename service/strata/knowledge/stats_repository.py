"""SQL that counts what graphs hold."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from strata.knowledge.graph_schemas import ContextStatsOut, LabelCountOut
from strata.platform.database import Connection

_TOP_CONCEPTS = 10
_LABELS = 50


async def stats(connection: Connection, tenant: UUID, contexts: Sequence[UUID]) -> dict[UUID, ContextStatsOut]:
    """Return what the graphs of contexts hold. ``footprint_bytes`` is that of the names and of 88 bytes for a fact."""
    # Planned without its values, a statement does not depend on what is known of the contexts.
    await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    rows = await connection.fetch(
        """
        SELECT wanted.context_id,
          (SELECT count(*) FROM association
            WHERE tenant_id = $1 AND context_id = wanted.context_id) AS associations,
          concepts.count, labels.count, concepts.bytes + labels.bytes AS bytes,
          (SELECT count(*) FROM (
            SELECT source FROM attribution
              WHERE tenant_id = $1 AND context_id = wanted.context_id AND source <> ''
            UNION SELECT path FROM source WHERE tenant_id = $1 AND context_id = wanted.context_id) every) AS sources,
          unsourced.edges, unsourced.weight
        FROM unnest($2::uuid[]) AS wanted (context_id),
          LATERAL (SELECT count(*), coalesce(sum(octet_length(name) + 8), 0)::bigint AS bytes FROM concept
            WHERE tenant_id = $1 AND context_id = wanted.context_id) concepts,
          LATERAL (SELECT count(*), coalesce(sum(octet_length(name) + 8), 0)::bigint AS bytes FROM label
            WHERE tenant_id = $1 AND context_id = wanted.context_id) labels,
          LATERAL (SELECT count(DISTINCT association_id) AS edges,
              coalesce(sum(weight ORDER BY association_id, valid_from, valid_until), 0) AS weight
            FROM attribution WHERE tenant_id = $1 AND context_id = wanted.context_id AND source = '') unsourced
        """,
        tenant,
        contexts,
    )
    top = await _top_concepts(connection, tenant, contexts)
    labels = await _labels(connection, tenant, contexts)
    return {
        row[0]: ContextStatsOut(
            associations=row[1],
            concepts=row[2],
            labels=row[3],
            sources=row[5],
            top_concepts=top.get(row[0], []),
            label_sample=labels.get(row[0], []),
            dead_edges=0,
            dead_attributions=0,
            arena_slack=0,
            footprint_bytes=row[4] + 88 * row[1],
            unsourced_edges=row[6],
            unsourced_weight=row[7],
        )
        for row in rows
    }


async def _top_concepts(
    connection: Connection, tenant: UUID, contexts: Sequence[UUID]
) -> dict[UUID, list[LabelCountOut]]:
    rows = await connection.fetch(
        """
        SELECT wanted.context_id, top.name, top.count FROM unnest($2::uuid[]) AS wanted (context_id),
          LATERAL (
            SELECT name, count(*) AS count FROM (
              SELECT subject_id AS concept_id FROM association
                WHERE tenant_id = $1 AND context_id = wanted.context_id
              UNION ALL
              SELECT object_id FROM association WHERE tenant_id = $1 AND context_id = wanted.context_id
            ) ends
            JOIN concept ON concept.tenant_id = $1 AND concept.context_id = wanted.context_id
              AND concept.concept_id = ends.concept_id
            GROUP BY name ORDER BY count(*) DESC, name LIMIT $3
          ) top
        ORDER BY wanted.context_id, top.count DESC, top.name
        """,
        tenant,
        contexts,
        _TOP_CONCEPTS,
    )
    found: dict[UUID, list[LabelCountOut]] = {}
    for context, name, count in rows:
        found.setdefault(context, []).append(LabelCountOut(label=name, count=count))
    return found


async def _labels(connection: Connection, tenant: UUID, contexts: Sequence[UUID]) -> dict[UUID, list[str]]:
    rows = await connection.fetch(
        """
        SELECT wanted.context_id, sample.name FROM unnest($2::uuid[]) AS wanted (context_id),
          LATERAL (SELECT name FROM label WHERE tenant_id = $1 AND context_id = wanted.context_id
            ORDER BY name LIMIT $3) sample
        ORDER BY wanted.context_id, sample.name
        """,
        tenant,
        contexts,
        _LABELS,
    )
    found: dict[UUID, list[str]] = {}
    for context, name in rows:
        found.setdefault(context, []).append(name)
    return found
