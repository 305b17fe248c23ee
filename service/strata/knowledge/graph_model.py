"""Facts as writers hand them in, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from strata.graph.vocabulary import Namespace
from strata.knowledge.graph_schemas import IssueOut

MAX_OPERATIONS = 10_000
"""Most associations, aliases or alias removals of one request."""

MAX_ISSUES = 20
"""Most issues that one answer lists; it counts them all."""

MAX_WEIGHT = 1e6
MAX_SOURCE_BYTES = 1_024
UNSOURCED = ""

ChangeKind = Literal[
    "associations_added",
    "association_retracted",
    "aliases_added",
    "aliases_removed",
    "source_stored",
    "source_retracted",
    "schema_updated",
]


class Assertion(Struct, frozen=True, gc=False):
    """One statement of a fact. ``weight`` is signed; the interval is half open, epoch seconds, None where open."""

    subject: str
    label: str
    object: str
    weight: float
    paragraph: int | None = None
    valid_from: int | None = None
    valid_until: int | None = None


class SourcedAssertion(Struct, frozen=True, gc=False):
    """One statement of a fact by a source, ``""`` for none."""

    assertion: Assertion
    source: str = UNSOURCED


class AliasRow(Struct, frozen=True, gc=False):
    """One more spelling of a concept or a label."""

    alias: str
    canonical: str
    kind: Namespace | Literal["concept", "label"]


@dataclass(frozen=True, slots=True)
class Change:
    """An event of the change feed; ``payload`` holds what its kind carries."""

    kind: ChangeKind
    payload: dict[str, object]


@dataclass(frozen=True, slots=True)
class Retracted:
    """What a retraction took away: associations that lost a statement, and the attributions that went."""

    associations_touched: int = 0
    attributions: int = 0


@dataclass(frozen=True, slots=True)
class Applied:
    """What a write did. ``issues`` are the first of the ``violations`` that a schema only warns of."""

    associations: int
    aliases: int
    retracted: Retracted = field(default_factory=Retracted)
    issues: Sequence[IssueOut] = ()
    violations: int = 0


class Edge(Struct, frozen=True, gc=False):
    """An association to be written, by ids: its statements added up, and those of each source and interval."""

    subject: int
    label: int
    object: int
    weight: float
    count: int


class Share(Struct, frozen=True, gc=False):
    """What one source says of an association for one interval."""

    association: int
    source: str
    valid_from: int | None
    valid_until: int | None
    weight: float
    count: int
    paragraph: int | None


@dataclass(frozen=True, slots=True)
class AttributionRow:
    """An attribution as it stands, with where its paragraph is."""

    association_id: int
    source: str
    valid_from: int | None
    valid_until: int | None
    weight: float
    count: int
    paragraph: int | None
    section: str | None
    locator_kind: str | None
    locator_value: str | None
