"""What a stream holds: sources with their lines, schemas and groups, in both header forms.

A stream names contexts either by name (``Form.NAME``) or by id (``Form.ID``); every record says
which, so that an answer and a copy can be written in the form that was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from strata.graph.schema import Cardinality

REVISION = "2026-10-01"
UNSOURCED_SOURCE = "export:unsourced"
EMPTY_SOURCE = "export:empty"

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_NAME_BYTES = 1_024
MAX_SOURCE_BYTES = 1_024
MAX_CONTEXT_CHARS = 128
MAX_DESCRIPTION_BYTES = 4_096
MAX_PASSAGE_BYTES = 8 * 1024 * 1024
MAX_TAGS = 32
MAX_TAG_BYTES = 128
MAX_QUESTION_BYTES = 512
MAX_QUESTIONS = 8
MAX_SECTION_BYTES = 512
MAX_LOCATOR_KIND_BYTES = 64
MAX_LOCATOR_VALUE_BYTES = 512
MAX_GROUP_MEMBERS = 1_000
MAX_WEIGHT = 1e6
MAX_PARAGRAPH = 2**32 - 1
# The years 1 to 9999: what a calendar, and so every date shown, can say.
MIN_EPOCH = -62_135_596_800
MAX_EPOCH = 253_402_300_799

AliasKind = Literal["concept", "label"]
SchemaMode = Literal["off", "warn", "strict"]


class Form(StrEnum):
    """How the headers of a stream name a context: by its name or by its id."""

    NAME = "name"
    ID = "id"


class AssociationLine(Struct, frozen=True, gc=False):
    """One assertion. ``weight`` is signed; the interval is half open, in epoch seconds, None where open."""

    subject: str
    label: str
    object: str
    weight: float
    paragraph: int | None = None
    valid_from: int | None = None
    valid_until: int | None = None
    line: int = 0


class AliasLine(Struct, frozen=True, gc=False):
    """One more spelling of a concept or a label."""

    alias: str
    canonical: str
    kind: AliasKind
    line: int = 0


class PassageLine(Struct, frozen=True):
    """The text of a source, as it stands. Times are epoch seconds; ``date`` is that of the document."""

    text: str
    stored_at: int | None = None
    date: int | None = None
    tags: tuple[str, ...] = ()
    line: int = 0


class QuestionLine(Struct, frozen=True, gc=False):
    """A question that a paragraph answers."""

    paragraph: int
    question: str
    line: int = 0


class SectionLine(Struct, frozen=True, gc=False):
    """The section that begins at a paragraph."""

    paragraph: int
    section: str
    line: int = 0


class LocatorLine(Struct, frozen=True, gc=False):
    """Where a paragraph stands in the original: a page, a slide, a cell."""

    paragraph: int
    kind: str
    value: str
    line: int = 0


class Create(Struct, frozen=True, kw_only=True):
    """How to make the context where there is none. ``name`` is set in the id form only."""

    name: str | None = None
    description: str = ""
    pinned: bool = False
    dice_floor: float | None = None
    semantic_floor: float | None = None


class SourceBatch(Struct, frozen=True, kw_only=True):
    """The whole truth of one source: what it asserted before is replaced by this.

    Questions, sections and locators stand by ascending paragraph, the last two with one a paragraph.
    ``line`` is that of the header in ``file``, counted from 1.
    """

    form: Form = Form.NAME
    context: str
    source: str
    create: Create | None = None
    passage: PassageLine | None = None
    associations: tuple[AssociationLine, ...] = ()
    aliases: tuple[AliasLine, ...] = ()
    questions: tuple[QuestionLine, ...] = ()
    sections: tuple[SectionLine, ...] = ()
    locators: tuple[LocatorLine, ...] = ()
    file: str | None = None
    line: int = 0


class TypeRule(Struct, frozen=True):
    """The types that a type is a kind of."""

    is_a: tuple[str, ...]


class RelationRule(Struct, frozen=True, omit_defaults=True):
    """The types that the subject and the object of a label may have, and how many objects a subject has."""

    domain: tuple[str, ...]
    range: tuple[str, ...]
    cardinality: Cardinality | None = None


class SchemaRecord(Struct, frozen=True, kw_only=True):
    """A schema document for a context; its own rules (cycles, caps) are judged where it is stored."""

    form: Form = Form.NAME
    context: str
    mode: SchemaMode
    closed_labels: bool
    types: Mapping[str, TypeRule]
    relations: Mapping[str, RelationRule]
    file: str | None = None
    line: int = 0


class GroupRecord(Struct, frozen=True, kw_only=True):
    """The whole truth of a group. ``contexts`` are names or ids, as the form says; ``groups`` are names."""

    form: Form = Form.NAME
    name: str
    description: str = ""
    contexts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    file: str | None = None
    line: int = 0


class Stream(Struct, frozen=True, kw_only=True):
    """Everything that one run imports: all sources, then all schemas, then all groups."""

    sources: tuple[SourceBatch, ...] = ()
    schemas: tuple[SchemaRecord, ...] = ()
    groups: tuple[GroupRecord, ...] = ()
