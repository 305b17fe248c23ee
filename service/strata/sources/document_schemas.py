"""The wire of reading documents (camelCase). What may be left out is, as each field costs tokens."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from strata.sources.relation_schemas import RelationPage
from strata.sources.repository import State

MIN_FETCH_TOKENS = 200
DEFAULT_FETCH_TOKENS = 8_000
MAX_FETCH_TOKENS = 20_000

Mode = Literal["auto", "whole", "outline"]


class ReadyCall(Struct, frozen=True, rename="camel", kw_only=True):
    """A call that goes on from here: the tool, and all its arguments."""

    tool: str
    arguments: dict[str, Any]


class Heading(Struct, frozen=True, rename="camel", kw_only=True):
    """A heading of an outline. ``tokens`` are those of its section at least, subsections included."""

    level: int
    heading: str
    anchor: str | None
    start_byte: int
    tokens: int


class SpentTokens(Struct, frozen=True, rename="camel", kw_only=True):
    """The tokens that the result may take, and those that the larger of its forms takes, by the declared estimate."""

    limit: int
    used: int


class Fetched(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """Text of one document, its outline, or the notice that it is as the caller knows it (``unchanged``).

    ``startByte``, ``endByte`` (exclusive) and ``sha256`` are of exactly the ``text``; null where none is shown.
    ``anchor`` and ``breadcrumb`` are of the section that was asked for, null and empty for the whole document.
    ``outlineMore`` counts the headings left out at the end. ``supersededBy`` is there where other documents
    stand in place of this one. ``next`` is the call that goes on where the answer was ``truncated``; after an
    outline that is complete, the one that reads the text.
    """

    kind: Literal["text", "outline", "unchanged"]
    path: str
    pin: str
    revision: int
    state: State
    title: str
    anchor: str | None
    breadcrumb: list[str]
    start_byte: int | None
    end_byte: int | None
    total_bytes: int
    sha256: str | None
    truncated: bool
    superseded_by: list[str] = []
    text: str | None = None
    outline: list[Heading] = []
    outline_more: int = 0
    next: ReadyCall | None = None
    budget: SpentTokens


class RelatedDocument(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """The document at the other end of a relation, or of a link, which has no ``predicate``.

    ``path`` is where it is, or would be; of a name that nothing bears, the target as it is written. ``state`` is
    there where it is not a document of the context; ``count`` where a link stands several times.
    """

    path: str
    predicate: str | None = None
    title: str | None = None
    anchor: str | None = None
    label: str | None = None
    state: str | None = None
    count: int = 1


class BothWays(Struct, frozen=True, rename="camel", kw_only=True):
    """The first relations each way; whether there are more. Incoming ones are of the documents that lead here."""

    outgoing: list[RelatedDocument]
    outgoing_more: bool
    incoming: list[RelatedDocument]
    incoming_more: bool


class Sibling(Struct, frozen=True, rename="camel", kw_only=True):
    """Another source of the same folder."""

    path: str
    title: str


class Siblings(Struct, frozen=True, rename="camel", kw_only=True):
    """The first sources of the same folder, by path; ``more`` counts the others, up to a bound (``moreAtLeast``)."""

    folder: str
    items: list[Sibling]
    more: int
    more_at_least: bool


class Card(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """What a document is and what it stands among, without its text.

    ``opening`` is the beginning of its first paragraph. ``declared`` are the relations of its metadata, ``links``
    those of its text; of an earlier revision none are known.
    """

    path: str
    pin: str
    revision: int
    state: State
    title: str
    total_bytes: int
    tokens: int
    superseded_by: list[str] = []
    opening: str | None = None
    outline: list[Heading]
    outline_more: int
    declared: BothWays
    links: BothWays
    siblings: Siblings
    next: ReadyCall


class Explored(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """The card of a document, or a page of its relations where one was asked for."""

    kind: Literal["card", "relations"]
    card: Card | None = None
    relations: RelationPage | None = None
    next: ReadyCall | None = None
