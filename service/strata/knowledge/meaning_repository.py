"""SQL of what names mean: their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import numpy as np

from strata.graph.vocabulary import Namespace
from strata.platform.database import Connection
from strata.providers.embeddings.base import Vectors


async def stored(
    connection: Connection, tenant: UUID, context: UUID, space: bytes
) -> dict[Namespace, dict[int, bytes]]:
    """Return the digest of what was embedded of each name, for the names with a vector of the space."""
    rows = await connection.fetch(
        "SELECT concept_id, label_id, gloss_sha256 FROM name_vector "
        "WHERE tenant_id = $1 AND context_id = $2 AND space = $3",
        tenant,
        context,
        space,
    )
    found: dict[Namespace, dict[int, bytes]] = {Namespace.CONCEPT: {}, Namespace.LABEL: {}}
    for concept, label, digest in rows:
        if concept is not None:
            found[Namespace.CONCEPT][concept] = digest
        else:
            found[Namespace.LABEL][label] = digest
    return found


async def put(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    namespace: Namespace,
    *,
    ids: Sequence[int],
    digests: Sequence[bytes],
    vectors: Vectors,
    space: bytes,
) -> None:
    """Store the vectors of names, in place of those they had; names that are gone get none."""
    rows = np.asarray(vectors, np.float32)
    await connection.execute(
        """
        INSERT INTO name_vector (tenant_id, context_id, concept_id, label_id, space, gloss_sha256, embedding)
        SELECT $1, $2, named.concept_id, named.label_id, $6, given.digest,
          ($7::real[])[(given.at - 1) * $8 + 1 : given.at * $8]::halfvec
        FROM unnest($4::bigint[], $5::bytea[]) WITH ORDINALITY AS given (id, digest, at)
        JOIN (
          SELECT concept_id AS id, concept_id, NULL::bigint AS label_id FROM concept
          WHERE $3 = 'concept' AND tenant_id = $1 AND context_id = $2 AND concept_id = ANY($4)
          UNION ALL
          SELECT label_id, NULL, label_id FROM label
          WHERE $3 = 'label' AND tenant_id = $1 AND context_id = $2 AND label_id = ANY($4)
        ) named ON named.id = given.id
        ORDER BY given.id
        ON CONFLICT (tenant_id, context_id, concept_id, label_id) DO UPDATE SET
          space = excluded.space, gloss_sha256 = excluded.gloss_sha256, embedding = excluded.embedding
        """,
        tenant,
        context,
        namespace.value,
        list(ids),
        list(digests),
        space,
        rows.ravel().tolist(),
        rows.shape[1],
    )


async def nearest(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    namespace: Namespace,
    *,
    space: bytes,
    vector: Vectors,
    limit: int,
) -> list[tuple[int, float]]:
    """Return names by the cosine of their vectors, the nearest first, equal ones by id. An exact scan."""
    rows = await connection.fetch(
        """
        SELECT coalesce(concept_id, label_id) AS id, 1 - (embedding <=> (SELECT $5::real[]::halfvec)) AS cosine
        FROM name_vector
        WHERE tenant_id = $1 AND context_id = $2 AND space = $4
          AND CASE $3 WHEN 'concept' THEN concept_id IS NOT NULL ELSE label_id IS NOT NULL END
        ORDER BY cosine DESC, id LIMIT $6
        """,
        tenant,
        context,
        namespace.value,
        space,
        np.asarray(vector, np.float32).tolist(),
        limit,
    )
    return [(row[0], row[1]) for row in rows]


async def vectors(
    connection: Connection, tenant: UUID, context: UUID, namespace: Namespace, *, space: bytes, most: int
) -> list[tuple[int, list[float]]]:
    """Return the vectors of names by id, at most ``most``."""
    rows = await connection.fetch(
        """
        SELECT coalesce(concept_id, label_id) AS id, embedding::real[] FROM name_vector
        WHERE tenant_id = $1 AND context_id = $2 AND space = $4
          AND CASE $3 WHEN 'concept' THEN concept_id IS NOT NULL ELSE label_id IS NOT NULL END
        ORDER BY id LIMIT $5
        """,
        tenant,
        context,
        namespace.value,
        space,
        most,
    )
    return [(row[0], row[1]) for row in rows]


async def counts(connection: Connection, tenant: UUID, context: UUID, space: bytes) -> tuple[int, int]:
    """Return how many concepts and labels have a vector of the space."""
    row = await connection.fetchrow(
        "SELECT count(concept_id), count(label_id) FROM name_vector "
        "WHERE tenant_id = $1 AND context_id = $2 AND space = $3",
        tenant,
        context,
        space,
    )
    return row[0], row[1]
