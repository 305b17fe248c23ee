"""The schema document of a context: installed, audited, tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from strata.errors import CONFLICT, SCHEMA_NOT_FOUND, StrataError
from strata.graph import match, schema, schema_audit
from strata.graph.names import HIDDEN_LABEL
from strata.knowledge import alias_repository, graph_write_repository
from strata.knowledge import graph_repository as repository
from strata.knowledge.audit_schemas import AuditAliasesOut, AuditNamesOut, SchemaAuditOut, SchemaViolationOut
from strata.knowledge.graph_base import Reading, away, limited
from strata.knowledge.graph_judge import parse_document, record
from strata.knowledge.graph_matching import DEFAULT_MATCHES
from strata.knowledge.graph_model import Change
from strata.knowledge.graph_schemas import IssueOut, MatchCursor
from strata.knowledge.graph_writing import GraphWriting
from strata.platform.database import Connection

_ALIASES_SHOWN = 100

SchemaRecord = dict[str, object]
"""A schema document as JSON values: schema, mode, closed_labels, types, relations."""


class GraphSchema(GraphWriting):
    """What types and relations a context expects, and what breaks it."""

    async def get_schema(self, tenant: UUID, ref: str) -> SchemaRecord:
        """Return the schema document; raises ``schema_not_found``."""
        async with self._snapshot(tenant) as connection:
            row = await self._contexts.resolve(connection, tenant, ref)
            return record(await _installed(connection, tenant, row.context_id))

    async def document(self, connection: Connection, tenant: UUID, context_id: UUID) -> schema.SchemaDocument | None:
        """Return the schema document inside a unit of work; None where there is none, or it is off."""
        stored = await repository.schema(connection, tenant, context_id)
        return None if stored is None or stored[0] == "off" else schema.parse(stored[1])

    async def put_schema(self, tenant: UUID, ref: str, fields: Mapping[str, object]) -> SchemaRecord:
        """Install or replace the schema document; only later writes are held against it.

        Raises ``invalid_request`` with the issues of a document that breaks the rules, and ``conflict``
        where an alias leads to the reserved label.
        """
        parse_document(fields)
        async with self._database.work(tenant) as connection:
            row = await self._contexts.resolve(connection, tenant, ref)
            return await self.install_schema(connection, tenant, row.context_id, fields)

    async def install_schema(
        self, connection: Connection, tenant: UUID, context_id: UUID, fields: Mapping[str, object]
    ) -> SchemaRecord:
        """Install or replace a schema document inside a unit of work; raises as :meth:`put_schema`."""
        document = parse_document(fields)
        await self.hold(connection, tenant, context_id)
        if await alias_repository.aliases_of_label(connection, tenant, context_id, HIDDEN_LABEL):
            detail = f"An alias leads to the reserved label {HIDDEN_LABEL!r}; remove it first."
            raise StrataError(CONFLICT, detail)
        installed = record(document)
        await graph_write_repository.put_schema(connection, tenant, context_id, document.mode, installed)
        await self._contexts.bump_config(connection, tenant, context_id)
        change = Change("schema_updated", {"mode": document.mode})
        await graph_write_repository.record(connection, tenant, context_id, [change], is_graph_changed=False)
        return installed

    async def audit_schema(
        self, tenant: UUID, ref: str, *, limit: int | None = None, after: MatchCursor | None = None
    ) -> SchemaAuditOut:
        """Hold every fact against the installed document, whatever its mode; raises ``schema_not_found``."""
        most = limited(limit, DEFAULT_MATCHES)
        async with self._read(tenant, ref) as reading:
            document = await _installed(reading.connection, tenant, reading.row.context_id)
            return await _audited(reading, document, most, after)

    async def validate_schema(
        self,
        tenant: UUID,
        ref: str,
        fields: Mapping[str, object],
        *,
        limit: int | None = None,
        after: MatchCursor | None = None,
    ) -> SchemaAuditOut:
        """Hold every fact against a document that is only proposed."""
        most = limited(limit, DEFAULT_MATCHES)
        document = parse_document(fields)
        async with self._read(tenant, ref) as reading:
            return await _audited(reading, document, most, after)


async def _installed(connection: Connection, tenant: UUID, context: UUID) -> schema.SchemaDocument:
    stored = await repository.schema(connection, tenant, context)
    if stored is None:
        raise StrataError(SCHEMA_NOT_FOUND, "No schema document is installed in this context.")
    return schema.parse(stored[1])


async def _audited(
    reading: Reading, document: schema.SchemaDocument, limit: int, after: MatchCursor | None
) -> SchemaAuditOut:
    graph = reading.graph
    found = await away(graph.edge_count, schema_audit.audit, graph, document)
    positions = found.violations
    if after is not None:
        positions = match.after(
            graph,
            positions,
            weight=after.weight,
            subject=after.subject,
            label=after.label,
            object=after.object,
        )
    page = positions[:limit]
    facts = await reading.shown(page)
    return SchemaAuditOut(
        total=len(found.violations),
        violations=[
            SchemaViolationOut(association=fact, issues=_issues(found.issues(position)))
            for fact, position in zip(facts, page.tolist(), strict=True)
        ],
        untyped_concepts=_names(found.untyped_concepts),
        undeclared_types=_names(found.undeclared_types),
        unknown_labels=_names(found.unknown_labels),
        reserved_alias_conflicts=AuditAliasesOut(
            total=len(found.reserved_aliases), aliases=dict(sorted(found.reserved_aliases.items())[:_ALIASES_SHOWN])
        ),
    )


def _issues(found: Sequence[schema.Issue]) -> list[IssueOut]:
    return [IssueOut(path=issue.path, kind=issue.kind, expected=issue.expected, actual=issue.actual) for issue in found]


def _names(found: schema_audit.Names) -> AuditNamesOut:
    return AuditNamesOut(total=found.total, names=list(found.names))
