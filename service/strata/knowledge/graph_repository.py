"""SQL that reads graphs. Columns of numbers come as packed bytes: a million rows are no million objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from strata.graph.audit import Sourced
from strata.graph.model import EdgeRows
from strata.graph.vocabulary import Namespace
from strata.knowledge.graph_model import AttributionRow
from strata.platform.database import Connection

# A time that no calendar has.
_NO_TIME = -(2**63)

Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class NameRows:
    """Ids and names, packed: a name is not empty and holds no NUL. None where there are none."""

    ids: bytes | None
    names: bytes | None

    def pairs(self) -> list[tuple[int, str]]:
        """Unpack them; CPU work that grows with them."""
        if not self.names:
            return []
        return list(zip(_integers(self.ids).tolist(), self.names.decode().split("\0"), strict=True))


@dataclass(frozen=True, slots=True)
class SourcedRows:
    """What sources add to associations, as packed columns. None where there is nothing."""

    associations: bytes | None
    sources: bytes | None
    weights: bytes | None
    counts: bytes | None
    times: bytes | None

    def rows(self) -> list[Sourced]:
        """Unpack them; CPU work that grows with them."""
        if self.sources is None:
            return []
        times = [None if at == _NO_TIME else at for at in _integers(self.times).tolist()]
        columns = (
            _integers(self.associations).tolist(),
            self.sources.decode().split("\0"),
            _floats(self.weights).tolist(),
            _integers(self.counts).tolist(),
            times,
        )
        return [Sourced(*values) for values in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A type that is affirmed of a concept."""

    concept_id: int
    concept: str
    type_id: int
    type: str


async def concepts(connection: Connection, tenant: UUID, context: UUID) -> NameRows:
    """Return every concept, by name."""
    row = await connection.fetchrow(
        """
        SELECT string_agg(int8send(concept_id), '' ORDER BY name),
          string_agg(convert_to(name, 'UTF8'), '\\x00' ORDER BY name)
        FROM concept WHERE tenant_id = $1 AND context_id = $2
        """,
        tenant,
        context,
    )
    return NameRows(*row)


async def labels(connection: Connection, tenant: UUID, context: UUID) -> NameRows:
    """Return every label, by name."""
    row = await connection.fetchrow(
        """
        SELECT string_agg(int8send(label_id), '' ORDER BY name),
          string_agg(convert_to(name, 'UTF8'), '\\x00' ORDER BY name)
        FROM label WHERE tenant_id = $1 AND context_id = $2
        """,
        tenant,
        context,
    )
    return NameRows(*row)


async def aliases(connection: Connection, tenant: UUID, context: UUID, namespace: Namespace) -> NameRows:
    """Return every alias of a namespace, in code point order, with the id it leads to."""
    row = await connection.fetchrow(
        """
        SELECT string_agg(int8send(coalesce(concept_id, label_id)), '' ORDER BY alias),
          string_agg(convert_to(alias, 'UTF8'), '\\x00' ORDER BY alias)
        FROM alias WHERE tenant_id = $1 AND context_id = $2 AND namespace = $3
        """,
        tenant,
        context,
        namespace,
    )
    return NameRows(*row)


async def edges(connection: Connection, tenant: UUID, context: UUID) -> EdgeRows:
    """Return every association, ids rising."""
    row = await connection.fetchrow(
        """
        SELECT string_agg(int8send(association_id), ''), string_agg(int8send(subject_id), ''),
          string_agg(int8send(label_id), ''), string_agg(int8send(object_id), ''),
          string_agg(float8send(weight), ''), string_agg(int8send(count), '')
        FROM (
          SELECT association_id, subject_id, label_id, object_id, weight, count FROM association
          WHERE tenant_id = $1 AND context_id = $2 ORDER BY association_id
        ) ordered
        """,
        tenant,
        context,
    )
    ids, subjects, label_ids, objects, weights, counts = row
    return EdgeRows(
        ids=_integers(ids),
        subjects=_integers(subjects),
        labels=_integers(label_ids),
        objects=_integers(objects),
        weights=_floats(weights),
        counts=_integers(counts),
    )


async def in_window(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    *,
    since: int | None = None,
    until: int | None = None,
    tags: Sequence[str] = (),
) -> Columns:
    """Return sum and count of each association over the sources within ``[since, until)`` that have any of the tags.

    The time of a source is its own date, else that of its last storage; epoch seconds.
    """
    row = await connection.fetchrow(
        """
        SELECT string_agg(int8send(association_id), ''), string_agg(float8send(weight), ''),
          string_agg(int8send(count), '')
        FROM (
          SELECT association_id, sum(weight ORDER BY attribution.source, valid_from, valid_until) AS weight,
            sum(count)::bigint AS count
          FROM attribution
          JOIN source ON source.tenant_id = $1 AND source.context_id = $2 AND source.path = attribution.source
          WHERE attribution.tenant_id = $1 AND attribution.context_id = $2
            AND ($3::float8 IS NULL OR extract(epoch FROM coalesce(occurred_at, updated_at)) >= $3)
            AND ($4::float8 IS NULL OR extract(epoch FROM coalesce(occurred_at, updated_at)) < $4)
            AND (cardinality($5::text[]) = 0 OR tags && $5)
          GROUP BY association_id ORDER BY association_id
        ) windowed
        """,
        tenant,
        context,
        since,
        until,
        list(tags),
    )
    return _integers(row[0]), _floats(row[1]), _integers(row[2])


async def attributions(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    associations: Sequence[int],
    *,
    since: int | None = None,
    until: int | None = None,
    tags: Sequence[str] = (),
) -> list[AttributionRow]:
    """Return who states the associations, by association and source, with section and locator of the paragraph.

    A window, where given, leaves sources outside ``[since, until)`` out, and those without a time; tags leave
    out the sources that have none of them.
    """
    rows = await connection.fetch(
        """
        SELECT attribution.association_id, attribution.source, valid_from, valid_until, weight, count, paragraph,
          section.heading, locator_kind, locator_value
        FROM attribution
        LEFT JOIN source ON source.tenant_id = $1 AND source.context_id = $2 AND source.path = attribution.source
        LEFT JOIN passage ON passage.tenant_id = $1 AND passage.context_id = $2
          AND passage.passage_id = (source.serial << 20 | attribution.paragraph)
          AND attribution.paragraph < 1 << 20
        LEFT JOIN section ON section.tenant_id = $1 AND section.context_id = $2
          AND section.source_id = source.source_id AND section.ordinal = passage.section_ordinal
          AND section.ordinal > 0
        WHERE attribution.tenant_id = $1 AND attribution.context_id = $2 AND association_id = ANY($3)
          AND attribution.source <> ''
          AND ($4::float8 IS NULL OR extract(epoch FROM coalesce(occurred_at, updated_at)) >= $4)
          AND ($5::float8 IS NULL OR extract(epoch FROM coalesce(occurred_at, updated_at)) < $5)
          AND (cardinality($6::text[]) = 0 OR tags && $6)
        ORDER BY association_id, attribution.source COLLATE "C", attribution_id
        """,
        tenant,
        context,
        associations,
        since,
        until,
        list(tags),
    )
    return [AttributionRow(*row) for row in rows]


async def unsourced(connection: Connection, tenant: UUID, context: UUID) -> Columns:
    """Return sum and count of what no source states, by association."""
    row = await connection.fetchrow(
        """
        SELECT string_agg(int8send(association_id), ''), string_agg(float8send(weight), ''),
          string_agg(int8send(count), '')
        FROM (
          SELECT association_id, sum(weight ORDER BY valid_from, valid_until) AS weight, sum(count)::bigint AS count
          FROM attribution WHERE tenant_id = $1 AND context_id = $2 AND source = ''
          GROUP BY association_id ORDER BY association_id
        ) ordered
        """,
        tenant,
        context,
    )
    return _integers(row[0]), _floats(row[1]), _integers(row[2])


async def schema(connection: Connection, tenant: UUID, context: UUID) -> tuple[str, dict[str, Any]] | None:
    """Return the mode and the document of a context's schema; None where there is none."""
    row = await connection.fetchrow(
        "SELECT mode, document FROM context_schema WHERE tenant_id = $1 AND context_id = $2", tenant, context
    )
    return (row[0], row[1]) if row else None


async def types(
    connection: Connection, tenant: UUID, context: UUID, label: str, concepts: Sequence[int], *, without: str | None
) -> list[TypeRow]:
    """Return the types that a label affirms of concepts, leaving out what the source ``without`` states."""
    rows = await connection.fetch(
        """
        SELECT association.subject_id, subject.name, association.object_id, kind.name FROM association
        JOIN label ON label.tenant_id = $1 AND label.context_id = $2 AND label.label_id = association.label_id
        JOIN concept subject ON subject.tenant_id = $1 AND subject.context_id = $2
          AND subject.concept_id = association.subject_id
        JOIN concept kind ON kind.tenant_id = $1 AND kind.context_id = $2 AND kind.concept_id = association.object_id
        JOIN attribution ON attribution.tenant_id = $1 AND attribution.context_id = $2
          AND attribution.association_id = association.association_id AND attribution.source IS DISTINCT FROM $5
        WHERE association.tenant_id = $1 AND association.context_id = $2 AND label.name = $3
          AND association.subject_id = ANY($4)
        GROUP BY 1, 2, 3, 4 HAVING sum(attribution.weight) > 0 ORDER BY 1, 3
        """,
        tenant,
        context,
        label,
        concepts,
        without,
    )
    return [TypeRow(*row) for row in rows]


async def names(
    connection: Connection, tenant: UUID, context: UUID, namespace: Namespace, ids: Sequence[int]
) -> dict[int, str]:
    """Return the canonical names of records."""
    rows = await connection.fetch(
        """
        SELECT concept_id, name FROM concept
        WHERE $3 = 'concept' AND tenant_id = $1 AND context_id = $2 AND concept_id = ANY($4)
        UNION ALL
        SELECT label_id, name FROM label
        WHERE $3 = 'label' AND tenant_id = $1 AND context_id = $2 AND label_id = ANY($4)
        """,
        tenant,
        context,
        namespace,
        ids,
    )
    return {row[0]: row[1] for row in rows}


async def changes(
    connection: Connection, tenant: UUID, context: UUID, since: int, limit: int
) -> list[tuple[int, str, dict[str, Any]]]:
    """Return up to ``limit`` events past a position."""
    rows = await connection.fetch(
        "SELECT seq, kind, payload FROM context_change WHERE tenant_id = $1 AND context_id = $2 AND seq > $3 "
        "ORDER BY seq LIMIT $4",
        tenant,
        context,
        since,
        limit,
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def last_change(connection: Connection, tenant: UUID, context: UUID) -> int:
    """Return the number of the last event; 0 before the first."""
    found: int | None = await connection.fetchval(
        "SELECT change_seq FROM context WHERE tenant_id = $1 AND context_id = $2", tenant, context
    )
    return found or 0


def _integers(packed: bytes | None) -> npt.NDArray[np.int64]:
    return np.frombuffer(packed or b"", dtype=">i8").astype(np.int64)


def _floats(packed: bytes | None) -> npt.NDArray[np.float64]:
    return np.frombuffer(packed or b"", dtype=">f8").astype(np.float64)


async def every_attribution(connection: Connection, tenant: UUID, context: UUID) -> SourcedRows:
    """Return what each source, or none, adds to each association, with the source's time in epoch seconds."""
    row = await connection.fetchrow(
        """
        SELECT string_agg(int8send(association_id), ''), string_agg(convert_to(source, 'UTF8'), '\\x00'),
          string_agg(float8send(weight), ''), string_agg(int8send(count), ''),
          string_agg(int8send(coalesce(at, $3)), '')
        FROM (
          SELECT association_id, attribution.source, sum(weight ORDER BY valid_from, valid_until) AS weight,
            sum(count)::bigint AS count,
            floor(extract(epoch FROM min(coalesce(occurred_at, updated_at))))::bigint AS at
          FROM attribution
          LEFT JOIN source ON source.tenant_id = $1 AND source.context_id = $2 AND source.path = attribution.source
          WHERE attribution.tenant_id = $1 AND attribution.context_id = $2
          GROUP BY association_id, attribution.source
          ORDER BY association_id, attribution.source COLLATE "C"
        ) ordered
        """,
        tenant,
        context,
        _NO_TIME,
    )
    return SourcedRows(*row)
