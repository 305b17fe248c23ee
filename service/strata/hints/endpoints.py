"""Hints over REST."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from litestar import Controller, Request, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter
from msgspec import Meta, Struct, structs

from strata.errors import CONFLICT, CONTEXT_NOT_FOUND, HINT_NOT_FOUND, INVALID_REQUEST, StrataError
from strata.hints.schemas import MAX_HINTS_PER_CALL, MAX_PAGE, HintEntry, HintInput, HintOrigin, HintReport
from strata.hints.service import HintService
from strata.platform.openapi import documented
from strata.platform.problems import read_body

_INPUT = {
    "title": "Vacation policy",
    "aliases": ["annual leave", "PTO"],
    "keywords": ["days off"],
    "category": "hr",
    "summary": "How many days, and how to ask for them.",
    "targets": ["hr/leave.md#vacation"],
    "priority": 10,
}
_ENTRY = {
    "id": "01981c2b-6a10-7b1e-8c2d-5d0f9e8a7b6c",
    "contextId": "01981c2b-5c7f-7d3c-9f0a-4b1e2d3c4b5a",
    "origin": "curated",
    "sourceId": None,
    **_INPUT,
    "breadcrumb": [],
    "validFrom": None,
    "validUntil": None,
    "metadata": {},
    "createdAt": "2026-01-31T09:30:00.000000Z",
    "updatedAt": "2026-01-31T09:30:00.000000Z",
}
_REPORT = {"created": 1, "updated": 0, "unchanged": 0, "ids": ["01981c2b-6a10-7b1e-8c2d-5d0f9e8a7b6c"]}


class HintsBody(Struct, frozen=True, rename="camel", kw_only=True):
    """Curated hints to store together, all or none."""

    hints: Annotated[list[HintInput], Meta(min_length=1, max_length=MAX_HINTS_PER_CALL)]


class HintItems(Struct, frozen=True, rename="camel", kw_only=True):
    """Hints in id order; ``nextCursor`` is null on the last page."""

    items: list[HintEntry]
    next_cursor: str | None


class HintController(Controller):
    """The L0 entries of a context. Only curated ones are written here; documents give the others."""

    path = "/api/v1/contexts/{context:str}/hints"
    tags = ("hints",)

    @get(
        operation_id="listHints",
        summary="List hints",
        opt=documented(response={"items": [_ENTRY], "nextCursor": None}, errors=(CONTEXT_NOT_FOUND,)),
    )
    async def list_hints(
        self,
        *,
        context: FromPath[str],
        hints: NamedDependency[HintService],
        tenant: NamedDependency[UUID],
        origin: Annotated[HintOrigin | None, QueryParameter(description="Only hints of this origin.")] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE, description="Hints a page.")] = 100,
        cursor: Annotated[str | None, QueryParameter(description="`nextCursor` of the page before.")] = None,
    ) -> HintItems:
        """Return one page of hints in id order."""
        page = await hints.list(tenant, context, origin=origin, limit=limit, cursor=cursor)
        return HintItems(items=page.hints, next_cursor=page.next_cursor)

    @post(
        operation_id="putHints",
        summary="Store curated hints",
        status_code=200,
        opt=documented(request_type=HintsBody, request={"hints": [_INPUT]}, response=_REPORT, errors=(CONFLICT,)),
    )
    async def put_hints(
        self,
        request: Request[Any, Any, Any],
        context: FromPath[str],
        hints: NamedDependency[HintService],
        tenant: NamedDependency[UUID],
    ) -> HintReport:
        """Store curated hints, all or none.

        One with an id replaces that hint; one without replaces the curated hint of the same title,
        or is new. A context that does not exist is made.
        """
        return await hints.put(tenant, context, read_body(request, HintsBody).hints)

    @get(
        "/{hint_id:uuid}",
        operation_id="getHint",
        summary="Read a hint",
        opt=documented(response=_ENTRY, errors=(CONTEXT_NOT_FOUND, HINT_NOT_FOUND)),
    )
    async def get_hint(
        self,
        context: FromPath[str],
        hint_id: FromPath[UUID],
        hints: NamedDependency[HintService],
        tenant: NamedDependency[UUID],
    ) -> HintEntry:
        """Return one hint of any origin."""
        return await hints.get(tenant, context, hint_id)

    @put(
        "/{hint_id:uuid}",
        operation_id="putHint",
        summary="Replace a curated hint",
        opt=documented(request_type=HintInput, request=_INPUT, response=_REPORT, errors=(CONFLICT,)),
    )
    async def put_hint(
        self,
        request: Request[Any, Any, Any],
        context: FromPath[str],
        hint_id: FromPath[UUID],
        hints: NamedDependency[HintService],
        tenant: NamedDependency[UUID],
    ) -> HintReport:
        """Store one curated hint under its id, making it where there is none."""
        data = read_body(request, HintInput)
        if data.id not in {None, hint_id}:
            raise StrataError(INVALID_REQUEST, "The id is not that of the path.", pointer="/id")
        return await hints.put(tenant, context, [structs.replace(data, id=hint_id)], pointer="")

    @delete(
        "/{hint_id:uuid}",
        operation_id="deleteHint",
        summary="Delete a curated hint",
        opt=documented(errors=(CONTEXT_NOT_FOUND, HINT_NOT_FOUND, CONFLICT)),
    )
    async def delete_hint(
        self,
        context: FromPath[str],
        hint_id: FromPath[UUID],
        hints: NamedDependency[HintService],
        tenant: NamedDependency[UUID],
    ) -> None:
        """Delete a curated hint. One that a document gives goes with its document."""
        await hints.delete(tenant, context, hint_id)
