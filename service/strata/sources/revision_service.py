"""Earlier states of sources: what revisions there are, and sources that leave search and stay readable."""

from __future__ import annotations

from uuid import UUID

from strata.errors import INVALID_REQUEST, StrataError
from strata.knowledge.service import ContextService
from strata.platform.database import Database
from strata.sources import reading, repository, revision_repository
from strata.sources.merging import Merger
from strata.sources.paths import pin_of
from strata.sources.repository import SourceRow
from strata.sources.revision_repository import RevisionRow
from strata.sources.schemas import MAX_PAGE, Archival, RevisionPage
from strata.sources.store import Store
from strata.sources.views import decode_revision, encode_cursor, revision_view

_TIMEOUT_SECONDS = 300.0


class RevisionService:
    """The revisions of sources, and the archive."""

    def __init__(self, database: Database, contexts: ContextService, store: Store, merger: Merger) -> None:
        self._database = database
        self._contexts = contexts
        self._store = store
        self._merger = merger

    async def page(
        self, tenant: UUID, context_ref: str, ref: str, *, limit: int = 100, cursor: str | None = None
    ) -> RevisionPage:
        """Return one page of the revisions of a source, newest first; ``ref`` is a path, an id or a pin.

        Of an archived source too. Raises ``source_not_found``.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise StrataError(INVALID_REQUEST, f"A page has 1 to {MAX_PAGE} revisions.", pointer="?limit")
        before = decode_revision(cursor)
        async with self._database.work(tenant, snapshot=True) as connection:
            context = (await self._contexts.resolve(connection, tenant, context_ref)).context_id
            named = await reading.find_named(connection, tenant, context, ref)
            path = (named or await reading.find_document(connection, tenant, context, ref)).path
            rows = await revision_repository.history(connection, tenant, context, path, before=before, limit=limit + 1)
        more = len(rows) > limit
        rows = rows[:limit]
        return RevisionPage(
            items=[revision_view(path, row) for row in rows],
            next_cursor=encode_cursor(str(rows[-1].revision)) if more else None,
        )

    async def archive(self, tenant: UUID, context_ref: str, path_or_id: str) -> Archival:
        """Take one source out of search as a deletion does; its revisions stay readable by pin.

        What it asserted goes. Ingesting it again brings it back, counting on. Raises ``source_not_found``,
        also for a pin, and ``source_archived``.
        """
        async with self._database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
            context = (await self._contexts.resolve(connection, tenant, context_ref)).context_id
            row = await reading.find_named(connection, tenant, context, path_or_id)
            await self._store.hold(connection, tenant, context)
            ids = [row.source_id] if isinstance(row, SourceRow) else []
            gone = await repository.lock_ids(connection, tenant, context, ids)
            if not gone:
                row = await reading.find_named(connection, tenant, context, path_or_id)
                raise reading.archived(row) if isinstance(row, RevisionRow) else reading.not_found(path_or_id)
            await self._store.archive(connection, tenant, context, gone)
        self._merger.schedule(tenant, context, purge=True)
        path, revision = gone[0].path, gone[0].revision
        return Archival(path=path, revision=revision, pin=pin_of(path, revision))
