"""Contexts over REST."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Controller, Request, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from msgspec import Struct

from strata.errors import CONTEXT_EXISTS, CONTEXT_NOT_FOUND
from strata.knowledge.schemas import ContextView, CreateContext, UpdateContext
from strata.knowledge.service import ContextService
from strata.platform.openapi import documented
from strata.platform.problems import read_body

_EXAMPLE = {
    "id": "01981c2b-5c7f-7d3c-9f0a-4b1e2d3c4b5a",
    "name": "handbook",
    "description": "The employee handbook.",
    "revisions": {"graph": 0, "passages": 12, "hints": 3, "config": 0},
    "sources": 118,
    "passages": 2204,
    "createdAt": "2026-01-31T09:30:00.000000Z",
}


class ContextPage(Struct, frozen=True, rename="camel", kw_only=True):
    """Contexts by name; ``nextCursor`` is null on the last page."""

    items: list[ContextView]
    next_cursor: str | None


class ContextController(Controller):
    """A context is addressed by its id or its unique name."""

    path = "/api/v1/contexts"
    tags = ("contexts",)

    @get(
        operation_id="listContexts",
        summary="List contexts",
        opt=documented(response={"items": [_EXAMPLE], "nextCursor": None}),
    )
    async def list_contexts(
        self, contexts: NamedDependency[ContextService], tenant: NamedDependency[UUID]
    ) -> ContextPage:
        """Return every context, by name."""
        return ContextPage(items=(await contexts.list(tenant)).contexts, next_cursor=None)

    @post(
        operation_id="createContext",
        summary="Create a context",
        opt=documented(
            request_type=CreateContext,
            request={"name": "handbook", "description": "The employee handbook."},
            response=_EXAMPLE,
            errors=(CONTEXT_EXISTS,),
        ),
    )
    async def create_context(
        self,
        request: Request[Any, Any, Any],
        contexts: NamedDependency[ContextService],
        tenant: NamedDependency[UUID],
    ) -> ContextView:
        """Make an empty context under a name that no other has."""
        data = read_body(request, CreateContext)
        return await contexts.create(tenant, data.name, data.description)

    @get(
        "/{context:str}",
        operation_id="getContext",
        summary="Describe a context",
        opt=documented(response=_EXAMPLE, errors=(CONTEXT_NOT_FOUND,)),
    )
    async def get_context(
        self, context: FromPath[str], contexts: NamedDependency[ContextService], tenant: NamedDependency[UUID]
    ) -> ContextView:
        """Return one context with its counts and revisions."""
        return await contexts.get(tenant, context)

    @patch(
        "/{context:str}",
        operation_id="updateContext",
        summary="Rename or describe a context",
        opt=documented(
            request_type=UpdateContext,
            request={"description": "The handbook of 2026."},
            response=_EXAMPLE,
            errors=(CONTEXT_NOT_FOUND, CONTEXT_EXISTS),
        ),
    )
    async def update_context(
        self,
        request: Request[Any, Any, Any],
        context: FromPath[str],
        contexts: NamedDependency[ContextService],
        tenant: NamedDependency[UUID],
    ) -> ContextView:
        """Change name or description; a field that is null or absent stays as it is. The id never changes."""
        data = read_body(request, UpdateContext)
        return await contexts.update(tenant, context, name=data.name, description=data.description)

    @delete(
        "/{context:str}",
        operation_id="deleteContext",
        summary="Delete a context",
        opt=documented(errors=(CONTEXT_NOT_FOUND,)),
    )
    async def delete_context(
        self, context: FromPath[str], contexts: NamedDependency[ContextService], tenant: NamedDependency[UUID]
    ) -> None:
        """Delete a context with its sources, index and hints. Final."""
        await contexts.delete(tenant, context)
