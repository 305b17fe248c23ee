"""Sources over REST."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Controller, Request, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter
from msgspec import Struct

from strata.errors import CONTEXT_NOT_FOUND, SOURCE_ARCHIVED, SOURCE_NOT_FOUND, SOURCE_REFUSED, StrataError
from strata.platform.openapi import documented
from strata.platform.problems import JSON_BODY_STATE, read_body
from strata.sources.model import DocumentInput
from strata.sources.parameters import MAX_OFFSET, Cursor
from strata.sources.schemas import (
    MAX_PAGE,
    Deletion,
    DocumentBody,
    IngestReport,
    IngestRequest,
    SourceDetail,
    SourceView,
    TextSlice,
)
from strata.sources.service import SourceService
from strata.sources.uploads import read_uploads

_DOCUMENT = {
    "path": "hr/leave.md",
    "content": "# Leave\n\n## Vacation\n\nEveryone has 30 days of vacation a year.\n",
    "category": "hr",
    "tags": ["policy"],
    "metadata": {"owner": "people team"},
}
_OUTCOME: dict[str, Any] = {
    "path": "hr/leave.md",
    "status": "ADDED",
    "id": "01981c2b-5fd0-7c11-a1b2-c3d4e5f60718",
    "revision": 1,
    "passages": 1,
    "normalisation": {},
    "warnings": [],
}
_REPORT: dict[str, Any] = {
    "contextId": "01981c2b-5c7f-7d3c-9f0a-4b1e2d3c4b5a",
    "context": "handbook",
    "added": 1,
    "replaced": 0,
    "unchanged": 0,
    "refused": 0,
    "pruned": 0,
    "passages": 1,
    "bytes": 63,
    "seconds": 0.012,
    "normalisation": {},
    "skipped": {},
    "outcomes": [_OUTCOME],
    "refusals": [],
}
_VIEW: dict[str, Any] = {
    "id": _OUTCOME["id"],
    "path": "hr/leave.md",
    "title": "Leave",
    "revision": 1,
    "format": "markdown",
    "mediaType": "text/markdown",
    "category": "hr",
    "language": "en",
    "tags": ["policy"],
    "sourceKey": None,
    "occurredAt": None,
    "origin": "",
    "originalBytes": 63,
    "textBytes": 63,
    "passages": 1,
    "createdAt": "2026-01-31T09:30:00.000000Z",
    "updatedAt": "2026-01-31T09:30:00.000000Z",
}
_SECTION = {
    "level": 2,
    "heading": "Vacation",
    "anchor": "vacation",
    "breadcrumb": ["Leave", "Vacation"],
    "startByte": 9,
    "endByte": 63,
}
_DETAIL = {
    **_VIEW,
    "pin": "hr/leave.md/v1",
    "state": "CURRENT",
    "supersededBy": [],
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "metadata": {"owner": "people team"},
    "normalisation": {},
    "warnings": [],
    "sections": [_SECTION],
}
_SLICE = {
    "path": "hr/leave.md",
    "revision": 1,
    "startByte": 22,
    "endByte": 63,
    "totalBytes": 63,
    "sha256": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "text": "Everyone has 30 days of vacation a year.\n",
}


class SourceItems(Struct, frozen=True, rename="camel", kw_only=True):
    """Sources by path; ``nextCursor`` is null on the last page."""

    items: list[SourceView]
    next_cursor: str | None


class SourceController(Controller):
    """The documents of a context. A source is addressed by its path or its id; a path may hold slashes.

    Reading takes pins too: ``hr/leave.md/v2``.
    """

    path = "/api/v1/contexts/{context:str}"
    tags = ("sources",)

    @post(
        "/sources",
        operation_id="ingestSources",
        summary="Ingest documents",
        status_code=200,
        opt=documented(
            request={"documents": [_DOCUMENT]},
            response=_REPORT,
            errors=(SOURCE_REFUSED,),
            request_type=(IngestRequest, DocumentBody),
            accepts_files=True,
        ),
    )
    async def ingest(
        self,
        request: Request[Any, Any, Any],
        context: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
    ) -> IngestReport:
        """Take in one document, or several under `documents`, as JSON; or files, as multipart.

        Unchanged documents are left alone, changed ones replace their source at once. Each is taken
        in or refused on its own: the report names those refused, with the reason. When every one of
        them was refused the answer is 422. A context that does not exist is made. In multipart each
        part with a file name is a document whose path is that name; `category`, `language` and
        `tags` fields apply to all of them.
        """
        report = await sources.ingest(tenant, context, await _documents(request))
        if report.refused and report.refused == len(report.refusals) and not report.outcomes:
            first = report.refusals[0]
            raise StrataError(
                SOURCE_REFUSED,
                first.detail if report.refused == 1 else f"All {report.refused} documents were refused.",
                pointer=first.pointer,
                remedy=first.remedy,
                extra={"reason": first.reason, "refusals": msgspec.to_builtins(report.refusals)},
            )
        return report

    @get(
        "/sources",
        operation_id="listSources",
        summary="List sources",
        opt=documented(response={"items": [_VIEW], "nextCursor": None}, errors=(CONTEXT_NOT_FOUND,)),
    )
    async def list_sources(
        self,
        *,
        context: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
        prefix: Annotated[str, QueryParameter(description="Only paths that begin so.")] = "",
        category: Annotated[str | None, QueryParameter(description="Only sources of this category.")] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE, description="Sources a page.")] = 100,
        cursor: Cursor = None,
        archived: Annotated[bool, QueryParameter(description="Archived sources instead.")] = False,
    ) -> SourceItems:
        """Return one page of sources, by path; of archived ones each is shown at its last revision."""
        page = await sources.list(
            tenant, context, limit=limit, cursor=cursor, prefix=prefix, category=category, archived=archived
        )
        return SourceItems(items=page.sources, next_cursor=page.next_cursor)

    @get(
        "/sources/{source:path}",
        operation_id="getSource",
        summary="Describe a source",
        opt=documented(response=_DETAIL, errors=(CONTEXT_NOT_FOUND, SOURCE_NOT_FOUND, SOURCE_ARCHIVED)),
    )
    async def get_source(
        self,
        context: FromPath[str],
        source: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
    ) -> SourceDetail:
        """Return one source, or the revision that a pin names, with its outline and metadata.

        What was normalised away is said of the current revision only.
        """
        return await sources.get(tenant, context, _reference(source))

    @delete(
        "/sources/{source:path}",
        operation_id="deleteSource",
        summary="Delete a source",
        status_code=200,
        opt=documented(response={"sources": 1, "passages": 1}, errors=(CONTEXT_NOT_FOUND, SOURCE_NOT_FOUND)),
    )
    async def delete_source(
        self,
        context: FromPath[str],
        source: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
    ) -> Deletion:
        """Delete one source, archived or not, with its passages, its revisions and what it gave to the hints.

        Final when it returns. A pin is not a source.
        """
        return await sources.delete(tenant, context, _reference(source))

    @get(
        "/text/{source:path}",
        operation_id="readSourceText",
        summary="Read the stored text of a source",
        opt=documented(response=_SLICE, errors=(CONTEXT_NOT_FOUND, SOURCE_NOT_FOUND, SOURCE_ARCHIVED)),
    )
    async def read_text(
        self,
        *,
        context: FromPath[str],
        source: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
        start_byte: Annotated[
            int, QueryParameter(name="startByte", ge=0, le=MAX_OFFSET, description="First byte, from 0.")
        ] = 0,
        end_byte: Annotated[
            int | None, QueryParameter(name="endByte", ge=0, le=MAX_OFFSET, description="First byte no longer wanted.")
        ] = None,
    ) -> TextSlice:
        """Return a byte range of the stored text with its hash: what a citation points to.

        A pin reads the revision that it names: the `sourceVersion` of a citation makes one. At most 1 MiB
        at a time. A range that cuts a character is narrowed to whole ones.
        """
        return await sources.read_text(tenant, context, _reference(source), start_byte, end_byte)


def _reference(source: str) -> str:
    """Return path or id without the slash that separates it from the route."""
    return source.removeprefix("/")


async def _documents(request: Request[Any, Any, Any]) -> list[DocumentInput]:
    content_type = request.headers.get("content-type", "")
    if content_type.lower().startswith("multipart/"):
        return read_uploads(await request.body(), content_type)
    value = request.scope["state"].get(JSON_BODY_STATE)
    if isinstance(value, dict) and "documents" in value:
        return [document.to_input() for document in read_body(request, IngestRequest).documents]
    return [read_body(request, DocumentBody).to_input()]
