"""A whole graph judged by a schema document, installed or only proposed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.graph.match import ranked
from strata.graph.model import Graph
from strata.graph.names import HIDDEN_LABEL
from strata.graph.schema import Issue, SchemaDocument, canonical_types, judge_edge
from strata.graph.vocabulary import Ints, distinct

NAMES_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Names:
    """How many names there are, and the first of them by name."""

    total: int
    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Count names and keep the first hundred."""
        ordered = sorted(names)
        return cls(len(ordered), tuple(ordered[:NAMES_SHOWN]))


@dataclass(frozen=True, slots=True)
class SchemaAudit:
    """What of a graph a schema does not cover or allow.

    ``violations`` are the positions of the associations that break it, ranked as matches are;
    ``issues`` tells what one breaks.
    """

    graph: Graph
    document: SchemaDocument
    violations: Ints
    untyped_concepts: Names
    undeclared_types: Names
    unknown_labels: Names
    reserved_aliases: dict[str, str]

    def issues(self, position: int) -> list[Issue]:
        """List what one association breaks."""
        return judge_edge(self.graph, self.document, self.graph.edge(position))


def audit(graph: Graph, document: SchemaDocument) -> SchemaAudit:
    """Judge every live association, whatever the document's mode, and list what it leaves open.

    Untyped concepts are those in associations that have no type and are none; undeclared types are
    asserted, but neither declared nor a parent of one that is; unknown labels are used, but not
    declared; reserved aliases lead to the label that asserts types.
    """
    names = graph.concepts.names
    at, types = graph.topology, graph.types
    used = np.flatnonzero(graph.conducts)
    kinds = {kind for own in types.values() for kind in own}
    linked = set(distinct(np.concatenate((at.subjects[used], at.objects[used]))).tolist())
    labels = {graph.labels.names[label] for label in distinct(at.labels[used]).tolist()}
    declared = (*document.types, *(parent for parents in document.types.values() for parent in parents))
    known = canonical_types(graph, declared)
    hidden = graph.hidden_label
    return SchemaAudit(
        graph=graph,
        document=document,
        violations=ranked(graph, _violations(graph, document)),
        untyped_concepts=Names.of(names[concept] for concept in linked - types.keys() - kinds),
        undeclared_types=Names.of({names[kind] for kind in kinds} - known),
        unknown_labels=Names.of(labels - document.relations.keys()),
        reserved_aliases={
            alias: HIDDEN_LABEL
            for alias, label in graph.labels.aliases.items()
            if hidden is not None and label == hidden
        },
    )


def _violations(graph: Graph, document: SchemaDocument) -> Ints:
    at = graph.topology
    breaks = np.zeros(graph.edge_count, dtype=bool)
    if document.closed_labels:
        declared = np.array([name in document.relations for name in graph.labels.names], dtype=bool)
        breaks |= ~declared[at.labels]
    for label, relation in document.relations.items():
        index = graph.labels.find(label)
        if index is None or graph.labels.names[index] != label:
            continue
        starts, by_label = graph.label_edges
        positions = by_label[starts[index] : starts[index + 1]]
        for column, wanted in ((at.subjects, relation.domain), (at.objects, relation.range)):
            if wanted:
                breaks[positions] |= _misfits(graph, document.expand(wanted))[column[positions]]
    return np.flatnonzero(breaks & graph.conducts)


def _misfits(graph: Graph, wanted: frozenset[str]) -> npt.NDArray[np.bool_]:
    """Mark the concepts that have types, but none of those wanted."""
    concepts, kinds = graph.typings
    allowed = [index for name in wanted if (index := graph.concepts.find(name)) is not None]
    misfits = np.zeros(len(graph.concepts.names), dtype=bool)
    misfits[concepts] = True
    misfits[concepts[np.isin(kinds, allowed)]] = False
    return misfits
