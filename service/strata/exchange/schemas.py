"""The wire of import, export and promotion (snake_case, fields in the order they are sent). Lists are never null.

A field that is ``UNSET`` where there is nothing to say is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET, Struct, UnsetType

from strata.knowledge.graph_schemas import IssueOut, LocatorOut

MAX_PASSAGES = 1_000
"""Most texts of one request."""

MAX_SOURCES = 1_000
"""Most sources of one promotion."""


class QuestionIn(Struct, frozen=True, kw_only=True):
    """A question that a paragraph answers."""

    paragraph: int
    question: str


class SectionIn(Struct, frozen=True, kw_only=True):
    """The section that begins at a paragraph."""

    paragraph: int
    section: str


class LocatorIn(Struct, frozen=True, kw_only=True):
    """Where a paragraph stands in the original."""

    paragraph: int
    locator: LocatorOut


class StorePassagesIn(Struct, frozen=True, kw_only=True):
    """Texts by source id, with what is said of their paragraphs; ``dates`` are epoch seconds."""

    passages: dict[str, str]
    questions: dict[str, list[QuestionIn]] = {}
    sections: dict[str, list[SectionIn]] = {}
    locators: dict[str, list[LocatorIn]] = {}
    tags: dict[str, list[str]] = {}
    dates: dict[str, int] = {}


class StoredPassages(Struct, frozen=True, kw_only=True):
    """What was stored, and what was dropped because its text lacks the paragraph it names."""

    stored: int
    questions_stored: int
    questions_dropped: int
    sections_stored: int
    sections_dropped: int
    locators_stored: int
    locators_dropped: int


class RetractOutcome(Struct, frozen=True, kw_only=True):
    """How many associations a source no longer asserts, and whether it had a text."""

    associations_touched: int
    passage_removed: bool


class ImportOutcome(Struct, frozen=True, kw_only=True):
    """What became of one source; its context goes by the name or by the id, as the stream has it.

    ``retracted`` counts the associations that it asserted before. ``passage_dropped``: it had a text
    and has none any more.
    """

    context: str | UnsetType = UNSET
    context_id: str | UnsetType = UNSET
    source: str
    created: bool
    retracted: int
    associations: int
    aliases: int
    passage_stored: bool
    passage_dropped: bool
    questions_stored: int
    questions_dropped: int
    sections_stored: int
    sections_dropped: int
    locators_stored: int
    locators_dropped: int
    association_paragraphs_dropped: int
    schema_violations: int


class SchemaImportOutcome(Struct, frozen=True, kw_only=True):
    """A schema document that was installed, and how much it declares."""

    context: str | UnsetType = UNSET
    context_id: str | UnsetType = UNSET
    mode: str
    types: int
    relations: int


class GroupImportOutcome(Struct, frozen=True, kw_only=True):
    """A group that was restored (``created``, ``replaced`` or ``unchanged``), and how many members it has."""

    name: str
    outcome: str
    contexts: int
    groups: int


class ImportResult(Struct, frozen=True, kw_only=True):
    """What a stream did; schemas and groups are left out where it has none."""

    batches: list[ImportOutcome]
    schemas: list[SchemaImportOutcome] | UnsetType = UNSET
    groups: list[GroupImportOutcome] | UnsetType = UNSET


class PromoteResult(Struct, frozen=True, kw_only=True):
    """What became of the sources that were carried over. Aliases that do not fit the other context are dropped."""

    batches: list[ImportOutcome]
    aliases_dropped: int


@dataclass(frozen=True, slots=True)
class Imported:
    """A result with what schemas only warn of: the first ``issues`` of all ``violations``."""

    result: ImportResult
    issues: Sequence[IssueOut] = ()
    violations: int = 0


@dataclass(frozen=True, slots=True)
class Promoted:
    """A result with what the schema of the other context only warns of."""

    result: PromoteResult
    issues: Sequence[IssueOut] = ()
    violations: int = 0


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """How many of a stream's sources are dealt with, and which was the last."""

    done: int
    total: int
    context: str
    source: str
