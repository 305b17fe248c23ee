"""SQL that writes facts, names and aliases. Callers hold the lock of the context's graph.

Rows go in as columns: COPY is not allowed under row-level security.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from strata.knowledge.graph_model import Change, Edge, Share
from strata.platform.database import Connection


async def lock(connection: Connection, key: int) -> None:
    """Hold an advisory lock to the end of the transaction; one held already costs nothing.

    Statements are planned without their values until then. Of a context whose rows no statistics
    know yet, the planner would think that it has none, and walk all of it to find one.
    """
    await connection.execute(
        "SELECT set_config('plan_cache_mode', 'force_generic_plan', true), pg_advisory_xact_lock($1)", key
    )


async def find_concepts(
    connection: Connection, tenant: UUID, context: UUID, names: Sequence[str], keys: Sequence[str]
) -> list[int | None]:
    """Return the concept of each spelling: by its name, else by an alias, else the oldest of its key."""
    rows = await connection.fetch(
        """
        SELECT coalesce(exact.concept_id, other.concept_id, folded.concept_id)
        FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS new (name, key, n)
        LEFT JOIN concept exact ON exact.tenant_id = $1 AND exact.context_id = $2 AND exact.name = new.name
        LEFT JOIN alias other ON other.tenant_id = $1 AND other.context_id = $2 AND other.namespace = 'concept'
          AND other.alias = new.name
        LEFT JOIN LATERAL (
          SELECT concept_id FROM concept
          WHERE tenant_id = $1 AND context_id = $2 AND concept.key = new.key
            AND exact.concept_id IS NULL AND other.concept_id IS NULL
          ORDER BY concept_id LIMIT 1
        ) folded ON true
        ORDER BY n
        """,
        tenant,
        context,
        names,
        keys,
    )
    return [row[0] for row in rows]


async def find_labels(
    connection: Connection, tenant: UUID, context: UUID, names: Sequence[str], keys: Sequence[str]
) -> list[int | None]:
    """Return the label of each spelling: by its name, else by an alias, else the oldest of its key."""
    rows = await connection.fetch(
        """
        SELECT coalesce(exact.label_id, other.label_id, folded.label_id)
        FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS new (name, key, n)
        LEFT JOIN label exact ON exact.tenant_id = $1 AND exact.context_id = $2 AND exact.name = new.name
        LEFT JOIN alias other ON other.tenant_id = $1 AND other.context_id = $2 AND other.namespace = 'label'
          AND other.alias = new.name
        LEFT JOIN LATERAL (
          SELECT label_id FROM label
          WHERE tenant_id = $1 AND context_id = $2 AND label.key = new.key
            AND exact.label_id IS NULL AND other.label_id IS NULL
          ORDER BY label_id LIMIT 1
        ) folded ON true
        ORDER BY n
        """,
        tenant,
        context,
        names,
        keys,
    )
    return [row[0] for row in rows]


async def insert_concepts(
    connection: Connection, tenant: UUID, context: UUID, names: Sequence[str], keys: Sequence[str]
) -> dict[str, int]:
    """Insert new concepts, ids rising in the order given; return the id of each name."""
    rows = await connection.fetch(
        "INSERT INTO concept (tenant_id, context_id, name, key) SELECT $1, $2, name, key "
        "FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS new (name, key, n) ORDER BY n "
        "RETURNING name, concept_id",
        tenant,
        context,
        names,
        keys,
    )
    return {row[0]: row[1] for row in rows}


async def insert_labels(
    connection: Connection, tenant: UUID, context: UUID, names: Sequence[str], keys: Sequence[str]
) -> dict[str, int]:
    """Insert new labels, ids rising in the order given; return the id of each name."""
    rows = await connection.fetch(
        "INSERT INTO label (tenant_id, context_id, name, key) SELECT $1, $2, name, key "
        "FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS new (name, key, n) ORDER BY n "
        "RETURNING name, label_id",
        tenant,
        context,
        names,
        keys,
    )
    return {row[0]: row[1] for row in rows}


async def upsert_associations(
    connection: Connection, tenant: UUID, context: UUID, edges: Sequence[Edge]
) -> tuple[dict[tuple[int, int, int], int], list[int]]:
    """Insert the associations that are new; return the id of each triple, and the ids that stood before."""
    rows = await connection.fetch(
        """
        INSERT INTO association AS old (tenant_id, context_id, subject_id, label_id, object_id, weight, count)
        SELECT $1, $2, subject_id, label_id, object_id, weight, count
        FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::double precision[], $7::bigint[])
          WITH ORDINALITY AS new (subject_id, label_id, object_id, weight, count, n)
        ORDER BY n
        ON CONFLICT (tenant_id, context_id, subject_id, label_id, object_id)
          DO UPDATE SET weight = old.weight + excluded.weight, count = old.count + excluded.count
        RETURNING subject_id, label_id, object_id, association_id, xmax <> 0
        """,
        tenant,
        context,
        [edge.subject for edge in edges],
        [edge.label for edge in edges],
        [edge.object for edge in edges],
        [edge.weight for edge in edges],
        [edge.count for edge in edges],
    )
    return {(row[0], row[1], row[2]): row[3] for row in rows}, [row[3] for row in rows if row[4]]


async def upsert_attributions(connection: Connection, tenant: UUID, context: UUID, shares: Sequence[Share]) -> None:
    """Add what sources say; the paragraph that a source named first stays."""
    await connection.execute(
        """
        INSERT INTO attribution AS old (
          tenant_id, context_id, association_id, source, valid_from, valid_until, weight, count, paragraph)
        SELECT $1, $2, association_id, source, valid_from, valid_until, weight, count, paragraph
        FROM unnest($3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::double precision[], $8::bigint[],
          $9::bigint[])
          WITH ORDINALITY AS new (association_id, source, valid_from, valid_until, weight, count, paragraph, n)
        ORDER BY n
        ON CONFLICT (tenant_id, context_id, association_id, source, valid_from, valid_until)
          DO UPDATE SET weight = old.weight + excluded.weight, count = old.count + excluded.count,
            paragraph = coalesce(old.paragraph, excluded.paragraph)
        """,
        tenant,
        context,
        [share.association for share in shares],
        [share.source for share in shares],
        [share.valid_from for share in shares],
        [share.valid_until for share in shares],
        [share.weight for share in shares],
        [share.count for share in shares],
        [share.paragraph for share in shares],
    )


async def add_up(connection: Connection, tenant: UUID, context: UUID, associations: Sequence[int]) -> None:
    """Set each association to the sum of its attributions, always added in one order: equal facts weigh equally."""
    await connection.execute(
        """
        UPDATE association SET weight = total.weight, count = total.count
        FROM (
          SELECT association_id, sum(weight ORDER BY source, valid_from, valid_until) AS weight,
            sum(count)::bigint AS count
          FROM attribution WHERE tenant_id = $1 AND context_id = $2 AND association_id = ANY($3)
          GROUP BY association_id
        ) total
        WHERE association.tenant_id = $1 AND association.context_id = $2
          AND association.association_id = total.association_id
        """,
        tenant,
        context,
        associations,
    )


async def delete_shares_of_sources(
    connection: Connection, tenant: UUID, context: UUID, sources: Sequence[str]
) -> list[int]:
    """Delete what sources say; return the association of each attribution that went."""
    rows = await connection.fetch(
        "DELETE FROM attribution WHERE tenant_id = $1 AND context_id = $2 AND source = ANY($3) "
        "RETURNING association_id",
        tenant,
        context,
        sources,
    )
    return [row[0] for row in rows]


async def delete_shares_of_association(connection: Connection, tenant: UUID, context: UUID, association: int) -> int:
    """Delete what every source says of an association; return how many distinct sources are named."""
    rows = await connection.fetch(
        "DELETE FROM attribution WHERE tenant_id = $1 AND context_id = $2 AND association_id = $3 RETURNING source",
        tenant,
        context,
        association,
    )
    return len({row[0] for row in rows if row[0]})


async def delete_unstated(
    connection: Connection, tenant: UUID, context: UUID, associations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Delete those associations that nobody states any more; return the concepts and labels that they named."""
    rows = await connection.fetch(
        """
        DELETE FROM association WHERE tenant_id = $1 AND context_id = $2 AND association_id = ANY($3)
          AND NOT EXISTS (
            SELECT FROM attribution WHERE attribution.tenant_id = $1 AND attribution.context_id = $2
              AND attribution.association_id = association.association_id)
        RETURNING subject_id, object_id, label_id
        """,
        tenant,
        context,
        associations,
    )
    return sorted({end for row in rows for end in (row[0], row[1])}), sorted({row[2] for row in rows})


async def delete_unused_concepts(connection: Connection, tenant: UUID, context: UUID, concepts: Sequence[int]) -> None:
    """Delete those concepts that no association and no alias leads to."""
    await connection.execute(
        """
        DELETE FROM concept WHERE tenant_id = $1 AND context_id = $2 AND concept_id = ANY($3)
          AND NOT EXISTS (SELECT FROM association
            WHERE association.tenant_id = $1 AND association.context_id = $2
              AND association.subject_id = concept.concept_id)
          AND NOT EXISTS (SELECT FROM association
            WHERE association.tenant_id = $1 AND association.context_id = $2
              AND association.object_id = concept.concept_id)
          AND NOT EXISTS (SELECT FROM alias
            WHERE alias.tenant_id = $1 AND alias.context_id = $2 AND alias.concept_id = concept.concept_id)
        """,
        tenant,
        context,
        concepts,
    )


async def delete_unused_labels(connection: Connection, tenant: UUID, context: UUID, labels: Sequence[int]) -> None:
    """Delete those labels that no association and no alias leads to."""
    await connection.execute(
        """
        DELETE FROM label WHERE tenant_id = $1 AND context_id = $2 AND label_id = ANY($3)
          AND NOT EXISTS (SELECT FROM association
            WHERE association.tenant_id = $1 AND association.context_id = $2
              AND association.label_id = label.label_id)
          AND NOT EXISTS (SELECT FROM alias
            WHERE alias.tenant_id = $1 AND alias.context_id = $2 AND alias.label_id = label.label_id)
        """,
        tenant,
        context,
        labels,
    )


async def put_schema(
    connection: Connection, tenant: UUID, context: UUID, mode: str, document: dict[str, object]
) -> None:
    """Install or replace the schema document."""
    await connection.execute(
        "INSERT INTO context_schema (tenant_id, context_id, mode, document) VALUES ($1, $2, $3, $4) "
        "ON CONFLICT (tenant_id, context_id) DO UPDATE SET mode = excluded.mode, document = excluded.document",
        tenant,
        context,
        mode,
        document,
    )


async def record(
    connection: Connection, tenant: UUID, context: UUID, changes: Sequence[Change], *, is_graph_changed: bool
) -> None:
    """Append events to the change feed, count one write, and move the graph revision.

    Holds the context's row to the end of the transaction: call it last.
    """
    await connection.execute(
        """
        WITH moved AS (
          UPDATE context
          SET graph_revision = graph_revision + $5::int, change_seq = change_seq + cardinality($3::text[])
          WHERE tenant_id = $1 AND context_id = $2
          RETURNING change_seq - cardinality($3::text[]) AS before
        ), counted AS (
          INSERT INTO context_usage AS old (tenant_id, context_id, writes, last_write_at)
          VALUES ($1, $2, 1, now())
          ON CONFLICT (tenant_id, context_id)
            DO UPDATE SET writes = old.writes + excluded.writes, last_write_at = excluded.last_write_at
        )
        INSERT INTO context_change (tenant_id, context_id, seq, kind, payload)
        SELECT $1, $2, moved.before + n, kind, payload
        FROM moved, unnest($3::text[], $4::jsonb[]) WITH ORDINALITY AS new (kind, payload, n)
        """,
        tenant,
        context,
        [change.kind for change in changes],
        [change.payload for change in changes],
        int(is_graph_changed),
    )


async def find_association(
    connection: Connection, tenant: UUID, context: UUID, *, subject: int | None, label: int | None, object_: int | None
) -> int | None:
    """Return the association of a triple; None where there is none."""
    found: int | None = await connection.fetchval(
        "SELECT association_id FROM association "
        "WHERE tenant_id = $1 AND context_id = $2 AND subject_id = $3 AND label_id = $4 AND object_id = $5",
        tenant,
        context,
        subject,
        label,
        object_,
    )
    return found


async def stating(connection: Connection, tenant: UUID, context: UUID, sources: Sequence[str]) -> list[str]:
    """Return those of the sources that state anything, in code point order."""
    rows = await connection.fetch(
        "SELECT source FROM unnest($3::text[]) AS source WHERE EXISTS (SELECT FROM attribution "
        "WHERE tenant_id = $1 AND context_id = $2 AND attribution.source = source.source) "
        'GROUP BY source ORDER BY source COLLATE "C"',
        tenant,
        context,
        sources,
    )
    return [row[0] for row in rows]


async def delete_graph(connection: Connection, tenant: UUID, context: UUID) -> None:
    """Delete every fact, alias and name of a context."""
    arguments = tenant, context
    await connection.execute("DELETE FROM attribution WHERE tenant_id = $1 AND context_id = $2", *arguments)
    await connection.execute("DELETE FROM association WHERE tenant_id = $1 AND context_id = $2", *arguments)
    await connection.execute("DELETE FROM alias WHERE tenant_id = $1 AND context_id = $2", *arguments)
    await connection.execute("DELETE FROM concept WHERE tenant_id = $1 AND context_id = $2", *arguments)
    await connection.execute("DELETE FROM label WHERE tenant_id = $1 AND context_id = $2", *arguments)
