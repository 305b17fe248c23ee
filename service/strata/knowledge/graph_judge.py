"""Holding a write against the schema document of its context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from strata.errors import INVALID_REQUEST, SCHEMA_VIOLATION
from strata.graph import schema
from strata.graph.model import EdgeRows, Graph
from strata.graph.names import HIDDEN_LABEL
from strata.graph.vocabulary import Namespace
from strata.knowledge import graph_repository as repository
from strata.knowledge.graph_base import away
from strata.knowledge.graph_checks import Issues, Names, problem_of_name
from strata.knowledge.graph_model import Assertion
from strata.platform.database import Connection


async def judge(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    assertions: Sequence[Assertion],
    *,
    names: Mapping[Namespace, Names],
    replaces: str | None,
    warnings: Issues,
) -> None:
    """Note what assertions break of the schema; raises ``schema_violation`` with it where that is strict.

    Types count as they will be: without what ``replaces``, a source, states now.
    """
    stored = await repository.schema(connection, tenant, context)
    if stored is None or stored[0] == "off" or not assertions:
        return
    document = schema.parse(stored[1])
    concepts = await _canonical(connection, tenant, context, Namespace.CONCEPT, names[Namespace.CONCEPT])
    labels = await _canonical(connection, tenant, context, Namespace.LABEL, names[Namespace.LABEL])
    ends = sorted({token for token in names[Namespace.CONCEPT].tokens.values() if isinstance(token, int)})
    typed = await repository.types(connection, tenant, context, HIDDEN_LABEL, ends, without=replaces)
    facts = [(concepts[item.subject], labels[item.label], concepts[item.object], item.weight) for item in assertions]
    for issue in await away(len(facts), schema.violations, _types_graph(typed), document, facts):
        warnings.add(issue.path, issue.kind, issue.expected, issue.actual)
    if document.mode == "strict":
        warnings.refuse(SCHEMA_VIOLATION, "The schema is strict, and this breaks it; nothing was written")


async def _canonical(
    connection: Connection, tenant: UUID, context: UUID, space: Namespace, names: Names
) -> dict[str, str]:
    """Return the name that each spelling is recorded under, or will be."""
    ids = sorted({token for token in names.tokens.values() if isinstance(token, int)})
    known = await repository.names(connection, tenant, context, space, ids)
    return {
        spelling: names.fresh[token] if isinstance(token, str) else known[token]
        for spelling, token in names.tokens.items()
    }


def _types_graph(typed: Sequence[repository.TypeRow]) -> Graph:
    """Return a graph that knows the types of the concepts concerned, and nothing else."""
    concepts = dict([(row.concept_id, row.concept) for row in typed] + [(row.type_id, row.type) for row in typed])
    edges = [(place, row.concept_id, 0, row.type_id, 1.0, 1) for place, row in enumerate(typed)]
    return Graph.build(0, list(concepts.items()), [(0, HIDDEN_LABEL)], (), EdgeRows.of(edges))


def parse_document(fields: Mapping[str, object]) -> schema.SchemaDocument:
    """Read a schema document; raises ``invalid_request`` with every issue found."""
    issues = Issues()
    try:
        document = schema.parse(fields)
    except schema.SchemaInvalid as error:
        for issue in error.issues:
            issues.add(issue.path, issue.kind, issue.expected, issue.actual)
        issues.refuse(INVALID_REQUEST, "The schema document breaks its rules")
        raise
    for path, name in _every_name(document):
        problem = problem_of_name(name)
        if problem:
            issues.add(path, *problem)
    issues.refuse(INVALID_REQUEST, "The schema document breaks its rules")
    return document


def _every_name(document: schema.SchemaDocument) -> list[tuple[str, str]]:
    return [
        *(("types", name) for kind, parents in document.types.items() for name in (kind, *parents)),
        *(
            ("relations", name)
            for label, relation in document.relations.items()
            for name in (label, *relation.domain, *relation.range)
        ),
    ]


def record(document: schema.SchemaDocument) -> dict[str, object]:
    """Return a document as it is stored and shown: types and relations by name."""
    ordered = schema.SchemaDocument(
        mode=document.mode,
        closed_labels=document.closed_labels,
        types={name: document.types[name] for name in sorted(document.types)},
        relations={label: document.relations[label] for label in sorted(document.relations)},
    )
    return ordered.record()
