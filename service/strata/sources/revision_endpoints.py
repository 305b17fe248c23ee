"""Revisions and the archive over REST."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from litestar import Controller, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from strata.errors import CONTEXT_NOT_FOUND, SOURCE_ARCHIVED, SOURCE_NOT_FOUND
from strata.platform.openapi import documented
from strata.sources.parameters import Cursor
from strata.sources.schemas import MAX_PAGE, Archival, RevisionPage
from strata.sources.service import SourceService

_REVISIONS = {
    "items": [
        {
            "revision": 2,
            "pin": "hr/leave.md/v2",
            "state": "CURRENT",
            "title": "Leave",
            "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "textBytes": 63,
            "storedAt": "2026-02-27T10:00:00.000000Z",
            "retiredAt": None,
        },
        {
            "revision": 1,
            "pin": "hr/leave.md/v1",
            "state": "RETIRED",
            "title": "Leave",
            "sha256": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
            "textBytes": 58,
            "storedAt": "2026-01-31T09:30:00.000000Z",
            "retiredAt": "2026-02-27T10:00:00.000000Z",
        },
    ],
    "nextCursor": None,
}
_ARCHIVAL = {"path": "hr/leave.md", "revision": 2, "pin": "hr/leave.md/v2"}


class RevisionController(Controller):
    """What a source said before, and sources that are out of search."""

    path = "/api/v1/contexts/{context:str}"
    tags = ("sources",)

    @get(
        "/revisions/{source:path}",
        operation_id="listRevisions",
        summary="List the revisions of a source",
        opt=documented(response=_REVISIONS, errors=(CONTEXT_NOT_FOUND, SOURCE_NOT_FOUND)),
    )
    async def list_revisions(
        self,
        *,
        context: FromPath[str],
        source: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE, description="Revisions a page.")] = 100,
        cursor: Cursor = None,
    ) -> RevisionPage:
        """Return one page of the revisions of a source, newest first, the current one included.

        Of an archived source too. `pin` reads a revision wherever a source is read.
        """
        return await sources.revisions.page(tenant, context, source.removeprefix("/"), limit=limit, cursor=cursor)

    @post(
        "/archive/{source:path}",
        operation_id="archiveSource",
        summary="Archive a source",
        status_code=200,
        opt=documented(response=_ARCHIVAL, errors=(CONTEXT_NOT_FOUND, SOURCE_NOT_FOUND, SOURCE_ARCHIVED)),
    )
    async def archive_source(
        self,
        context: FromPath[str],
        source: FromPath[str],
        sources: NamedDependency[SourceService],
        tenant: NamedDependency[UUID],
    ) -> Archival:
        """Take one source out of search and of the list; its revisions stay readable by their pins.

        What it gave to the hints and the facts that it asserted go. Ingesting it again brings it back, under
        the next revision; deleting it deletes the revisions too.
        """
        return await sources.revisions.archive(tenant, context, source.removeprefix("/"))
