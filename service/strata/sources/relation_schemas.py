"""The wire of relations (camelCase). Lists are never null, nulls are sent."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

MAX_RELATIONS = 100
DEFAULT_RELATIONS = 50

Direction = Literal["both", "outgoing", "incoming"]
Kind = Literal["declared", "links", "all"]
State = Literal["RESOLVED", "ARCHIVED", "DANGLING", "EXTERNAL"]


class RelatedSource(Struct, frozen=True, rename="camel", kw_only=True):
    """The document that has a relation."""

    path: str
    title: str
    revision: int


class RelationView(Struct, frozen=True, rename="camel", kw_only=True):
    """A relation of ``source``, or a link in its text, with what it leads to now.

    ``predicate`` is null for a link. ``target`` is as written; ``path`` is where it is, or would be: null for a
    name that nothing bears. ``title`` and ``revision`` are of the live or the archived target. ``anchorFound`` is
    null without an anchor or a live target. ``section`` is the breadcrumb of where it stands, empty for what is
    declared; ``count`` how often.
    """

    direction: Literal["OUTGOING", "INCOMING"]
    kind: Literal["DECLARED", "LINK"]
    predicate: str | None
    state: State
    source: RelatedSource
    target: str
    path: str | None
    title: str | None
    revision: int | None
    anchor: str | None
    anchor_found: bool | None
    label: str | None
    section: list[str]
    count: int


class RelationPage(Struct, frozen=True, rename="camel", kw_only=True):
    """One page of relations; ``nextCursor`` is null on the last."""

    items: list[RelationView]
    next_cursor: str | None
