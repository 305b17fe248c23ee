"""Reading documents as agents do, over REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from strata.errors import CONTEXT_NOT_FOUND, SECTION_NOT_FOUND, SOURCE_ARCHIVED, SOURCE_NOT_FOUND
from strata.platform.openapi import documented
from strata.sources.card_view import explored_markdown
from strata.sources.document_schemas import (
    DEFAULT_FETCH_TOKENS,
    MAX_FETCH_TOKENS,
    MIN_FETCH_TOKENS,
    Explored,
    Fetched,
    Mode,
)
from strata.sources.document_view import fetched_markdown
from strata.sources.parameters import MAX_OFFSET, MAX_PREDICATES, Cursor
from strata.sources.relation_schemas import MAX_RELATIONS, Direction, Kind
from strata.sources.service import SourceService

_MARKDOWN = "text/markdown"

Form = Annotated[Literal["json", "markdown"], QueryParameter(name="format", description="JSON, or Markdown to read.")]
T = TypeVar("T", Fetched, Explored)

_FETCHED: dict[str, Any] = {
    "kind": "text",
    "path": "hr/leave.md",
    "pin": "hr/leave.md/v1",
    "revision": 1,
    "state": "CURRENT",
    "title": "Leave",
    "anchor": "vacation",
    "breadcrumb": ["Leave", "Vacation"],
    "startByte": 9,
    "endByte": 63,
    "totalBytes": 63,
    "sha256": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "truncated": False,
    "supersededBy": ["hr/leave-2026.md"],
    "text": "## Vacation\n\nEveryone has 30 days of vacation a year.\n",
    "budget": {"limit": 8000, "used": 131},
}
_NONE: dict[str, Any] = {"outgoing": [], "outgoingMore": False, "incoming": [], "incomingMore": False}
_EXPLORED: dict[str, Any] = {
    "kind": "card",
    "card": {
        "path": "hr/leave.md",
        "pin": "hr/leave.md/v1",
        "revision": 1,
        "state": "CURRENT",
        "title": "Leave",
        "totalBytes": 63,
        "tokens": 16,
        "supersededBy": ["hr/leave-2026.md"],
        "opening": "Everyone has 30 days of vacation a year.",
        "outline": [{"level": 2, "heading": "Vacation", "anchor": "vacation", "startByte": 9, "tokens": 14}],
        "outlineMore": 0,
        "declared": {
            **_NONE,
            "incoming": [{"path": "hr/leave-2026.md", "predicate": "supersedes", "title": "Leave 2026"}],
        },
        "links": _NONE,
        "siblings": {
            "folder": "hr/",
            "items": [{"path": "hr/leave-2026.md", "title": "Leave 2026"}],
            "more": 0,
            "moreAtLeast": False,
        },
        "next": {"tool": "fetch", "arguments": {"context": "handbook", "source": "hr/leave.md/v1"}},
    },
}


class DocumentController(Controller):
    """One document, as much of it as a budget takes, and what it stands among."""

    path = "/api/v1/contexts/{context:str}"
    tags = ("sources",)

    @get(
        "/fetch/{source:path}",
        operation_id="fetchDocument",
        summary="Read a document within a budget",
        opt=documented(
            response=_FETCHED, errors=(CONTEXT_NOT_FOUND, SOURCE_NOT_FOUND, SOURCE_ARCHIVED, SECTION_NOT_FOUND)
        ),
    )
    async def fetch_document(
        self,
        *,
        context: FromPath[str],
        source: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
        section: Annotated[str | None, QueryParameter(description="Only this section: its anchor or heading.")] = None,
        mode: Annotated[
            Mode, QueryParameter(description="The whole text, the outline, or the outline of what is large.")
        ] = "auto",
        known: Annotated[
            str | None,
            QueryParameter(description="The revision or sha256 that you have: what has not changed is not sent again."),
        ] = None,
        max_tokens: Annotated[
            int,
            QueryParameter(
                name="maxTokens",
                ge=MIN_FETCH_TOKENS,
                le=MAX_FETCH_TOKENS,
                description="Tokens of the whole answer at most, by the declared estimate.",
            ),
        ] = DEFAULT_FETCH_TOKENS,
        start_byte: Annotated[
            int | None,
            QueryParameter(name="startByte", ge=0, le=MAX_OFFSET, description="Go on from this byte of the text."),
        ] = None,
        format_: Form = "json",
    ) -> Response[Fetched]:
        """Return a section, the whole text, or the outline of a document; `source` is a path, an id or a pin.

        A document of 8,192 bytes or more answers with its outline unless `mode` is `whole`. What does not fit is
        cut at a paragraph, and `next` has the arguments that go on. `sha256` is of exactly the bytes shown.
        """
        fetched = await sources.documents.fetch(
            tenant,
            context,
            source.removeprefix("/"),
            section=section,
            mode=mode,
            known=known,
            max_tokens=max_tokens,
            start_byte=start_byte,
        )
        return _answer(fetched, format_, fetched_markdown)

    @get(
        "/explore/{source:path}",
        operation_id="exploreDocument",
        summary="See what a document stands among",
        opt=documented(response=_EXPLORED, errors=(CONTEXT_NOT_FOUND, SOURCE_NOT_FOUND, SOURCE_ARCHIVED)),
    )
    async def explore_document(
        self,
        *,
        context: FromPath[str],
        source: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
        direction: Annotated[
            Direction | None, QueryParameter(description="A page of relations: from the source, to it, or both.")
        ] = None,
        kind: Annotated[
            Kind | None, QueryParameter(description="A page of relations: what is declared, links, or all.")
        ] = None,
        predicate: Annotated[
            list[str] | None,
            QueryParameter(max_items=MAX_PREDICATES, description="A page of relations: only these; repeatable."),
        ] = None,
        limit: Annotated[
            int | None, QueryParameter(ge=1, le=MAX_RELATIONS, description="Relations a page. Default 20.")
        ] = None,
        cursor: Cursor = None,
        format_: Form = "json",
    ) -> Response[Explored]:
        """Return a card: outline, opening, relations and links both ways, and its folder; not the text.

        With `direction`, `kind`, `predicate`, `limit` or `cursor` it is a page of relations instead.
        """
        explored = await sources.documents.explore(
            tenant,
            context,
            source.removeprefix("/"),
            direction=direction,
            predicates=predicate,
            kind=kind,
            limit=limit,
            cursor=cursor,
        )
        return _answer(explored, format_, explored_markdown)


def _answer(value: T, form: str, as_markdown: Callable[[T], str]) -> Response[Any]:
    return Response(as_markdown(value), media_type=_MARKDOWN) if form == "markdown" else Response(value)
