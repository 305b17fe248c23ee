"""Relations between documents over REST."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from litestar import Controller, get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from strata.errors import CONTEXT_NOT_FOUND, SOURCE_ARCHIVED, SOURCE_NOT_FOUND
from strata.platform.openapi import documented
from strata.sources.parameters import MAX_PREDICATES, Cursor
from strata.sources.relation_schemas import (
    DEFAULT_RELATIONS,
    MAX_RELATIONS,
    Direction,
    Kind,
    RelationPage,
    State,
)
from strata.sources.service import SourceService

_Kind = Annotated[Kind, QueryParameter(description="What is declared, links in the text, or all.")]
_Limit = Annotated[int, QueryParameter(ge=1, le=MAX_RELATIONS, description="Relations a page.")]

_RELATION: dict[str, Any] = {
    "direction": "OUTGOING",
    "kind": "DECLARED",
    "predicate": "supersedes",
    "state": "RESOLVED",
    "source": {"path": "hr/leave.md", "title": "Leave", "revision": 2},
    "target": "../archive/leave-2025.md#vacation",
    "path": "archive/leave-2025.md",
    "title": "Leave 2025",
    "revision": 1,
    "anchor": "vacation",
    "anchorFound": True,
    "label": None,
    "section": [],
    "count": 1,
}
_DANGLING: dict[str, Any] = {
    **_RELATION,
    "predicate": "depends-on",
    "state": "DANGLING",
    "target": "payroll.md",
    "path": "hr/payroll.md",
    "title": None,
    "revision": None,
    "anchor": None,
    "anchorFound": None,
}


class RelationController(Controller):
    """How documents relate: what they declare in ``rel-*`` metadata, and the links in their text."""

    path = "/api/v1/contexts/{context:str}"
    tags = ("sources",)

    @get(
        "/relations/{source:path}",
        operation_id="listRelationsOfSource",
        summary="List the relations of a source, both ways",
        opt=documented(
            response={"items": [_RELATION], "nextCursor": None},
            errors=(CONTEXT_NOT_FOUND, SOURCE_NOT_FOUND, SOURCE_ARCHIVED),
        ),
    )
    async def list_relations_of_source(
        self,
        *,
        context: FromPath[str],
        source: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
        direction: Annotated[Direction, QueryParameter(description="From the source, to it, or both.")] = "both",
        kind: _Kind = "declared",
        predicate: Annotated[
            list[str] | None, QueryParameter(max_items=MAX_PREDICATES, description="Only these; repeatable.")
        ] = None,
        limit: _Limit = DEFAULT_RELATIONS,
        cursor: Cursor = None,
    ) -> RelationPage:
        """Return one page: outgoing relations in the order of the document, then incoming ones by path.

        Each is resolved now: a target that arrives later resolves by itself, one that is deleted dangles.
        """
        return await sources.relations.of(
            tenant,
            context,
            source.removeprefix("/"),
            direction=direction,
            predicates=predicate,
            kind=kind,
            limit=limit,
            cursor=cursor,
        )

    @get(
        "/relations",
        operation_id="listRelations",
        summary="List the relations of all sources",
        opt=documented(response={"items": [_DANGLING], "nextCursor": None}, errors=(CONTEXT_NOT_FOUND,)),
    )
    async def list_relations(
        self,
        *,
        context: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
        state_: Annotated[
            State | None, QueryParameter(name="state", description="Only of this state, such as `DANGLING`.")
        ] = None,
        kind: _Kind = "declared",
        limit: _Limit = DEFAULT_RELATIONS,
        cursor: Cursor = None,
    ) -> RelationPage:
        """Return one page of relations by path of the document that has them, each in its order."""
        return await sources.relations.all(tenant, context, state=state_, kind=kind, limit=limit, cursor=cursor)
