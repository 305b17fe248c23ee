"""Schema documents: entity types, what relations may join, and what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from strata.graph.model import Edge, Graph
from strata.graph.names import HIDDEN_LABEL, MAX_NAME_BYTES
from strata.graph.vocabulary import Namespace

SCHEMA_VERSION = 1
MAX_TYPES = 500
MAX_RELATIONS = 500
MAX_SIDE_TYPES = 64
MAX_DEPTH = 8
MODES = ("off", "warn", "strict")

Cardinality = Literal["one", "many"]
CARDINALITIES: tuple[Cardinality, ...] = ("one", "many")

Mode = Literal["off", "warn", "strict"]
IssueKind = Literal[
    "missing", "type", "empty", "too_long", "range", "over_limit", "unknown_reference", "conflict", "domain"
]


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that is not as it should be: where, of what kind, what was wanted, what is there."""

    path: str
    kind: IssueKind
    expected: str
    actual: str


class SchemaInvalid(ValueError):  # noqa: N818 - it says what is so, as the other refusals do
    """A schema document that breaks the rules; ``issues`` lists every one found."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        super().__init__(f"{issues[0].path}: expected {issues[0].expected}, got {issues[0].actual}")
        self.issues = tuple(issues)


@dataclass(frozen=True, slots=True)
class Relation:
    """The types a label's subject (``domain``) and object (``range``) may have; an empty side takes any.

    ``cardinality`` says whether a subject has one object under the label or many, None where nobody said.
    """

    domain: tuple[str, ...]
    range: tuple[str, ...]
    cardinality: Cardinality | None = None

    def record(self) -> dict[str, object]:
        """Give the relation as JSON values."""
        said = {} if self.cardinality is None else {"cardinality": self.cardinality}
        return {"domain": list(self.domain), "range": list(self.range), **said}


@dataclass(frozen=True, slots=True)
class SchemaDocument:
    """A valid schema: ``types`` gives each declared type its direct parents, declared or not."""

    mode: Mode
    closed_labels: bool
    types: Mapping[str, tuple[str, ...]]
    relations: Mapping[str, Relation]

    def record(self) -> dict[str, object]:
        """Give the document as JSON values, in the order it was written."""
        return {
            "schema": SCHEMA_VERSION,
            "mode": self.mode,
            "closed_labels": self.closed_labels,
            "types": {name: {"is_a": list(parents)} for name, parents in self.types.items()},
            "relations": {label: relation.record() for label, relation in self.relations.items()},
        }

    def is_functional(self, label: str) -> bool | None:
        """Tell whether a subject has one object under a label; None where the document does not say."""
        relation = self.relations.get(label)
        return None if relation is None or relation.cardinality is None else relation.cardinality == "one"

    def supertypes(self, name: str) -> frozenset[str]:
        """Give a type and all it is, however far up."""
        found, waiting = {name}, [name]
        while waiting:
            for parent in self.types.get(waiting.pop(), ()):
                if parent not in found:
                    found.add(parent)
                    waiting.append(parent)
        return frozenset(found)

    def expand(self, names: Iterable[str]) -> frozenset[str]:
        """Give types and all their declared subtypes."""
        wanted = frozenset(names)
        return wanted | {name for name in self.types if self.supertypes(name) & wanted}


def parse(fields: Mapping[str, object]) -> SchemaDocument:
    """Read a schema document from JSON values.

    ``mode``, ``closed_labels``, ``types`` and ``relations`` are required, ``schema`` may be 1, and
    nothing else is known. Raises SchemaInvalid with every issue found.
    """
    reader = _Reader()
    for name in fields.keys() - {"schema", *_REQUIRED}:
        reader.add(name, "unknown_reference", f"one of {', '.join(_REQUIRED)}", f"'{name}'")
    for name in _REQUIRED:
        if name not in fields:
            reader.add(name, "missing", "a value", "nothing")
    version = fields.get("schema", SCHEMA_VERSION)
    if isinstance(version, bool) or version != SCHEMA_VERSION:
        reader.add("schema", "range", str(SCHEMA_VERSION), _shown(version))
    mode, closed = fields.get("mode", "off"), fields.get("closed_labels", False)
    if mode not in MODES:
        reader.add("mode", "range", f"one of {', '.join(MODES)}", _shown(mode))
    if not isinstance(closed, bool):
        reader.add("closed_labels", "type", "true or false", _shown(closed))
    types = {
        name: reader.names(f"{path}.is_a", sides["is_a"])
        for name, path, sides in reader.entries("types", fields.get("types", {}), MAX_TYPES, ("is_a",))
    }
    relations = {
        label: Relation(
            domain=reader.names(f"{path}.domain", sides["domain"]),
            range=reader.names(f"{path}.range", sides["range"]),
            cardinality=reader.cardinality(f"{path}.cardinality", sides.get("cardinality")),
        )
        for label, path, sides in reader.entries(
            "relations", fields.get("relations", {}), MAX_RELATIONS, ("domain", "range"), ("cardinality",)
        )
    }
    if HIDDEN_LABEL in relations:
        reader.add(f"relations['{HIDDEN_LABEL}']", "conflict", "a label that is not reserved", f"'{HIDDEN_LABEL}'")
    reader.issues += _hierarchy_issues(types)
    if reader.issues:
        raise SchemaInvalid(sorted(reader.issues, key=lambda issue: (issue.path, issue.kind)))
    return SchemaDocument(cast("Mode", mode), bool(closed), types, relations)


_REQUIRED = ("mode", "closed_labels", "types", "relations")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


class _Reader:
    """Reads the parts of a document and collects what is wrong with them."""

    def __init__(self) -> None:
        self.issues: list[Issue] = []

    def add(self, path: str, kind: IssueKind, expected: str, actual: str) -> None:
        self.issues.append(Issue(path, kind, expected, actual))

    def entries(
        self, path: str, value: object, most: int, sides: tuple[str, ...], more: tuple[str, ...] = ()
    ) -> list[tuple[str, str, Mapping[str, object]]]:
        """List the usable entries of a mapping of names: each with its path and the sides it has.

        What is in ``more`` may be there too.
        """
        if not isinstance(value, Mapping):
            self.add(path, "type", "an object", _shown(value))
            return []
        if len(value) > most:
            self.add(path, "over_limit", f"at most {most} entries", str(len(value)))
            return []
        usable: list[tuple[str, str, Mapping[str, object]]] = []
        for name, entry in value.items():
            own = f"{path}['{_shown(name)[1:-1]}']"
            if not self.is_name(own, name):
                continue
            if not isinstance(entry, Mapping):
                self.add(own, "type", "an object", _shown(entry))
                continue
            for extra in entry.keys() - {*sides, *more}:
                self.add(f"{own}.{extra}", "unknown_reference", f"one of {', '.join((*sides, *more))}", f"'{extra}'")
            for side in sides:
                if side not in entry:
                    self.add(f"{own}.{side}", "missing", "a list of types", "nothing")
            given = {name: entry[name] for name in more if name in entry}
            usable.append((name, own, {side: entry.get(side, []) for side in sides} | given))
        return usable

    def cardinality(self, path: str, value: object) -> Cardinality | None:
        """Read how many objects a subject has under a label."""
        if value is None or value in CARDINALITIES:
            return value
        self.add(path, "range", f"one of {', '.join(CARDINALITIES)}", _shown(value))
        return None

    def names(self, path: str, value: object) -> tuple[str, ...]:
        """Read a list of type names."""
        if not isinstance(value, list | tuple):
            self.add(path, "type", "a list of types", _shown(value))
            return ()
        if len(value) > MAX_SIDE_TYPES:
            self.add(path, "over_limit", f"at most {MAX_SIDE_TYPES} types", str(len(value)))
            return ()
        return tuple(name for place, name in enumerate(value) if self.is_name(f"{path}[{place}]", name))

    def is_name(self, path: str, value: object) -> bool:
        """Check one name of a type or label."""
        if not isinstance(value, str):
            self.add(path, "type", "a string", _shown(value))
        elif not value:
            self.add(path, "empty", "a name", "an empty string")
        elif (size := len(value.encode("utf-8", "surrogatepass"))) > MAX_NAME_BYTES:
            self.add(path, "too_long", f"at most {MAX_NAME_BYTES} bytes", f"{size} bytes")
        else:
            return True
        return False


def _hierarchy_issues(types: Mapping[str, tuple[str, ...]]) -> list[Issue]:
    """Find cycles and chains that are too long, in rounds: a type's height is one more than its parents' highest."""
    heights: dict[str, int] = {}
    waiting = dict(types)
    while waiting:
        settled = {
            name: 1 + max((heights.get(parent, 0) for parent in parents), default=-1)
            for name, parents in waiting.items()
            if not any(parent in waiting for parent in parents)
        }
        if not settled:
            return [
                Issue(f"types['{name}'].is_a", "conflict", "no type that is itself, however far up", "a cycle")
                for name in sorted(waiting)
            ]
        heights |= settled
        waiting = {name: parents for name, parents in waiting.items() if name not in settled}
    return [
        Issue(f"types['{name}'].is_a", "over_limit", f"at most {MAX_DEPTH} steps up", str(height))
        for name, height in sorted(heights.items())
        if height > MAX_DEPTH
    ]


def canonical_types(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Give types as the graph spells them: a document may use an alias."""
    return frozenset(graph.find(Namespace.CONCEPT, name) or name for name in names)


def types_of_all(graph: Graph) -> dict[str, frozenset[str]]:
    """Give the asserted types of each typed concept, by names."""
    names = graph.concepts.names
    return {names[concept]: frozenset(names[kind] for kind in kinds) for concept, kinds in graph.types.items()}


def concepts_of_types(graph: Graph, document: SchemaDocument | None, types: Iterable[str]) -> list[str]:
    """List the concepts of any of some types or their subtypes, by name; none where there is no schema."""
    if document is None:
        return []
    wanted = canonical_types(graph, document.expand(types))
    return sorted(name for name, own in types_of_all(graph).items() if own & wanted)


def violations(
    graph: Graph,
    document: SchemaDocument,
    associations: Sequence[tuple[str, str, str, float]],
    *,
    path: Callable[[int], str] = "associations[{}]".format,
) -> list[Issue]:
    """Judge associations (subject, label, object, weight) about to be written, in their order.

    Types count as they will be: those asserted already and those that the same associations
    affirm. A concept without a type breaks nothing. A document that is ``off`` judges nothing.
    """
    if document.mode == "off":
        return []
    judge = _Judge(graph, document)
    triples = [
        (judge.concept(subject), graph.find(Namespace.LABEL, label) or label, judge.concept(object_), weight)
        for subject, label, object_, weight in associations
    ]
    for subject, label, object_, weight in triples:
        if label == HIDDEN_LABEL and weight > 0:
            judge.declare(subject, object_)
    return [
        issue
        for place, (subject, label, object_, _) in enumerate(triples)
        for issue in judge.issues(subject, label, object_, path(place), in_parts=True)
    ]


def judge_edge(graph: Graph, document: SchemaDocument, edge: Edge) -> list[Issue]:
    """List what a stored association breaks, by the types asserted now, whatever the document's mode."""
    path = f"edge({edge.subject}, {edge.label}, {edge.object})"
    return _Judge(graph, document).issues(edge.subject, edge.label, edge.object, path, in_parts=False)


class _Judge:
    """Knows the types of concepts, and says what an association breaks."""

    def __init__(self, graph: Graph, document: SchemaDocument) -> None:
        self._graph = graph
        self._document = document
        self._declared: dict[str, set[str]] = {}
        self._allowed: dict[tuple[str, ...], frozenset[str]] = {}

    def concept(self, spelling: str) -> str:
        return self._graph.find(Namespace.CONCEPT, spelling) or spelling

    def declare(self, concept: str, kind: str) -> None:
        self._declared.setdefault(concept, set()).add(kind)

    def issues(self, subject: str, label: str, object_: str, path: str, *, in_parts: bool) -> list[Issue]:
        """List what an association breaks; ``in_parts`` points at the part of the path that does."""
        if label == HIDDEN_LABEL:
            return []
        relation = self._document.relations.get(label)
        if relation is None:
            if not self._document.closed_labels:
                return []
            where = f"{path}.label" if in_parts else path
            return [Issue(where, "unknown_reference", "a label that the schema declares", f"'{label}'")]
        sides: tuple[tuple[str, IssueKind, str, tuple[str, ...]], ...] = (
            ("subject", "domain", subject, relation.domain),
            ("object", "range", object_, relation.range),
        )
        return [
            Issue(
                path=f"{path}.{part}" if in_parts else path,
                kind=kind,
                expected=f"'{name}' typed as one of [{', '.join(wanted)}] (or a subtype), for relation '{label}'",
                actual=f"typed as [{', '.join(sorted(own))}]",
            )
            for part, kind, name, wanted in sides
            if wanted and (own := self._types(name)) and not own & self._expanded(wanted)
        ]

    def _types(self, concept: str) -> set[str]:
        return {*self._graph.types_of(concept), *self._declared.get(concept, ())}

    def _expanded(self, wanted: tuple[str, ...]) -> frozenset[str]:
        if wanted not in self._allowed:
            self._allowed[wanted] = canonical_types(self._graph, self._document.expand(wanted))
        return self._allowed[wanted]
