"""Sources: ingest, list, read and delete documents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from strata.embeddings.service import EmbeddingService
from strata.errors import CONTEXT_NOT_FOUND, INVALID_REQUEST, StrataError
from strata.hints.service import HintService
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.lanes.lexical.repository import contexts_with_dead
from strata.platform.database import Connection, Database
from strata.settings import Settings
from strata.sources import reading, repository, revision_repository
from strata.sources.discover import Survey, survey, tasks_of
from strata.sources.document_service import DocumentService
from strata.sources.ingest import BULK, ONLINE, PARALLEL_BYTES, Limits, Pipeline, Run, Tally
from strata.sources.inputs import input_tasks
from strata.sources.merging import Merger
from strata.sources.metadata import clean_given
from strata.sources.model import DocumentInput, Given, Task
from strata.sources.reading import Document
from strata.sources.relation_service import RelationService
from strata.sources.repository import Gone
from strata.sources.revision_service import RevisionService
from strata.sources.schemas import (
    MAX_DOCUMENTS,
    MAX_PAGE,
    MAX_SLICE_BYTES,
    Deletion,
    IngestReport,
    Progress,
    SourceDetail,
    SourcePage,
    TextSlice,
)
from strata.sources.store import FactKeeper, Store
from strata.sources.text_service import TextService
from strata.sources.views import decode_cursor, encode_cursor, is_storable, source_detail, source_view, text_slice
from strata.sources.workers import Workers, worker_count

_BATCHES_PER_MERGE = 8
_STATISTICS_AFTER = frozenset({1, 8, 64, 512})
_PRUNE_PAGE = 1_000
_DELETE_TIMEOUT_SECONDS = 300.0
_NIL = UUID(int=0)


class SourceService:
    """The documents of a context. Ingest replaces a source as a whole; delete is final.

    ``facts``, where given, forgets what a source asserted when its text is replaced or deleted. ``texts``
    are the sources that are stored as they stand, paragraph by paragraph; ``revisions`` are the earlier
    states of sources, ``relations`` what stands between them; ``documents`` reads one for an agent.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        contexts: ContextService,
        hints: HintService,
        embeddings: EmbeddingService,
        *,
        facts: FactKeeper | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._contexts = contexts
        self._embeddings = embeddings
        self._store = Store(database, contexts, hints, embeddings, facts, revisions_kept=settings.revisions_kept)
        self._workers = Workers(settings)
        self._merger = Merger(database)
        self.texts = TextService(database, contexts, embeddings, self._store, self._merger)
        self.revisions = RevisionService(database, contexts, self._store, self._merger)
        self.relations = RelationService(database, contexts)
        self.documents = DocumentService(database, contexts, self.relations)

    async def ingest(
        self, tenant: UUID, context_name: str, documents: Sequence[DocumentInput], *, origin: str = ""
    ) -> IngestReport:
        """Take in documents that are at hand; makes the context where there is none of the name.

        A document that cannot be taken in is in the report with its reason and a pointer
        (``/documents/3``); the others are taken in. Of two with one path the first counts.
        Raises ``invalid_request`` for more than 1,000 documents.
        """
        if len(documents) > MAX_DOCUMENTS:
            raise StrataError(
                INVALID_REQUEST, f"A request has at most {MAX_DOCUMENTS} documents.", pointer="/documents"
            )
        tally = Tally()
        tasks = await asyncio.to_thread(lambda: list(input_tasks(documents, origin, tally.refuse)))
        context = await self._context(tenant, context_name, is_wanted=bool(tasks))
        if context is not None and tasks:
            size = sum(task.size for task in tasks)
            run = self._run(tenant, context, ONLINE, self._processes(size, None), is_patient=False)
            await self._ingest(run, tally, iter(tasks))
        return tally.report(context, context_name, {})

    async def ingest_paths(
        self,
        tenant: UUID,
        context_name: str,
        paths: Sequence[Path],
        *,
        prune: bool = False,
        progress: Callable[[Progress], None] | None = None,
        workers: int | None = None,
        category: str | None = None,
        tags: Sequence[str] = (),
        language: str | None = None,
    ) -> IngestReport:
        """Take in files and folders of this machine; a run that was broken off goes on where it stood.

        ``prune`` deletes the sources that an earlier run found below the same folder (or in the same
        corpus) and this one did not; not where a part of it could not be read. ``workers`` is how many
        processes build, None for the setting. ``category``, ``tags`` and ``language`` are given to
        every source, over what its document says. Waits for the merges that it causes.
        """
        given = clean_given(DocumentInput(content="", category=category, tags=tags, language=language), {}, None)
        found = await asyncio.to_thread(survey, paths)
        total, size = sum(entry.records for entry in found.found), sum(entry.size for entry in found.found)
        tally = Tally(progress, total + len(found.refused), size)
        for refused in found.refused:
            tally.refuse(refused)
        context = await self._context(tenant, context_name, is_wanted=bool(found.found))
        if context is not None:
            processes = self._processes(size, workers)
            await self._ingest(
                self._run(tenant, context, BULK, processes, is_patient=True), tally, _tasks(found, tally, given)
            )
            if prune:
                for origin in found.prunable:
                    await self._prune(tenant, context, origin, tally)
            await self._merger.settle()
        return tally.report(context, context_name, found.skipped)

    async def delete(self, tenant: UUID, context_ref: str, path_or_id: str) -> Deletion:
        """Delete one source, archived or not, with all its revisions; when this returns, none of it is found any more.

        Raises ``source_not_found``, also for a pin. The merge that is scheduled takes the last of it out
        of the index.
        """
        async with self._database.work(tenant, timeout_seconds=_DELETE_TIMEOUT_SECONDS) as connection:
            context = await self._contexts.resolve(connection, tenant, context_ref)
            row = await reading.find_named(connection, tenant, context.context_id, path_or_id)
            if row is None:
                raise reading.not_found(path_or_id)
            await self._store.hold(connection, tenant, context.context_id)
            gone = await repository.lock_ids(connection, tenant, context.context_id, [row.source_id])
            archived = await revision_repository.lock_archived(connection, tenant, context.context_id, [row.path])
            if not gone and not archived:
                # An ingest that was waited for may have brought it back, with its id.
                gone = await repository.lock_ids(connection, tenant, context.context_id, [row.source_id])
            if not gone and not archived:
                raise reading.not_found(path_or_id)
            deletion = await self._delete(connection, tenant, context.context_id, gone, list(archived))
        self._merger.schedule(tenant, context.context_id, purge=True)
        return deletion

    async def delete_all(
        self,
        tenant: UUID,
        context_ref: str,
        *,
        prefix: str = "",
        origin: str | None = None,
        category: str | None = None,
    ) -> Deletion:
        """Delete the sources of one context that match every filter given, archived ones too; all when none is given.

        One transaction. What other contexts hold is never touched.
        """
        if not is_storable(prefix + (origin or "") + (category or "")):
            return Deletion(sources=0, passages=0)
        async with self._database.work(tenant, timeout_seconds=_DELETE_TIMEOUT_SECONDS) as connection:
            context = await self._contexts.resolve(connection, tenant, context_ref)
            await self._store.hold(connection, tenant, context.context_id)
            gone = await repository.lock_matching(
                connection, tenant, context.context_id, prefix=prefix, origin=origin, category=category
            )
            archived = await revision_repository.lock_matching(
                connection, tenant, context.context_id, prefix=prefix, origin=origin, category=category
            )
            deletion = await self._delete(connection, tenant, context.context_id, gone, archived)
        if deletion.sources:
            self._merger.schedule(tenant, context.context_id, purge=True)
        return deletion

    async def list(
        self,
        tenant: UUID,
        context_ref: str,
        *,
        limit: int = 100,
        cursor: str | None = None,
        prefix: str = "",
        category: str | None = None,
        archived: bool = False,
    ) -> SourcePage:
        """Return one page of sources by path; ``cursor`` is the ``nextCursor`` of the page before.

        ``archived`` lists the archived ones instead, each at its last revision.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise StrataError(INVALID_REQUEST, f"A page has 1 to {MAX_PAGE} sources.", pointer="?limit")
        after = decode_cursor(cursor)
        async with self._database.work(tenant) as connection:
            context = await self._contexts.resolve(connection, tenant, context_ref)
            read = revision_repository.page_archived if archived else repository.page
            rows: Sequence[Document] = (
                await read(
                    connection,
                    tenant,
                    context.context_id,
                    after=after,
                    prefix=prefix,
                    category=category,
                    limit=limit + 1,
                )
                if is_storable(prefix + (category or ""))
                else []
            )
        more = len(rows) > limit
        rows = rows[:limit]
        return SourcePage(
            sources=[source_view(row) for row in rows],
            next_cursor=encode_cursor(rows[-1].path) if more else None,
        )

    async def get(self, tenant: UUID, context_ref: str, path_or_id: str) -> SourceDetail:
        """Return one source, or the revision that a pin names, with its outline.

        Raises ``source_not_found`` and ``source_archived``.
        """
        async with self._database.work(tenant, snapshot=True) as connection:
            context = await self._contexts.resolve(connection, tenant, context_ref)
            row = await reading.find_document(connection, tenant, context.context_id, path_or_id)
            heads = await reading.outline(connection, tenant, context.context_id, row)
            superseded = await self.relations.superseded_by(connection, tenant, context.context_id, [row.source_id])
        return source_detail(row, heads, superseded.get(row.source_id, ()))

    async def read_text(
        self, tenant: UUID, context_ref: str, path_or_id: str, start_byte: int = 0, end_byte: int | None = None
    ) -> TextSlice:
        """Return a range of the stored text, at most 1 MiB of it; ``end_byte`` None means as far as that goes.

        A pin reads the revision that it names. A range that cuts a character is narrowed to whole ones;
        the slice says what it holds. Raises ``source_not_found`` and ``source_archived``.
        """
        if start_byte < 0 or (end_byte is not None and end_byte < start_byte):
            raise StrataError(INVALID_REQUEST, "The range ends before it starts.", pointer="?startByte")
        async with self._database.work(tenant, snapshot=True) as connection:
            context = await self._contexts.resolve(connection, tenant, context_ref)
            row = await reading.find_document(connection, tenant, context.context_id, path_or_id)
            start = min(start_byte, row.text_bytes)
            end = min(row.text_bytes if end_byte is None else end_byte, start + MAX_SLICE_BYTES, row.text_bytes)
            data = await reading.text_range(
                connection, tenant, context.context_id, row, start=start, length=max(0, end - start)
            )
        return text_slice(row, start, data)

    async def resume(self, tenant: UUID) -> None:
        """Schedule the purges that an earlier process owed: what it deleted must leave the index."""
        async with self._database.work(tenant) as connection:
            contexts = await contexts_with_dead(connection, tenant)
        for context in contexts:
            self._merger.schedule(tenant, context, purge=True)

    async def settle(self) -> None:
        """Wait until the merges that were scheduled are done."""
        await self._merger.settle()

    async def close(self) -> None:
        """Stop merges, readers and builders. Safe to call again."""
        await self._merger.close()
        await self._workers.close()

    async def _ingest(self, run: Run, tally: Tally, tasks: Iterator[Task]) -> None:
        batches = 0

        async def after_write() -> None:
            nonlocal batches
            batches += 1
            self._embeddings.wake()
            if batches % _BATCHES_PER_MERGE == 0:
                self._merger.schedule(run.tenant, run.context.context_id)
            if run.limits is BULK and batches in _STATISTICS_AFTER:
                await self._store.refresh_statistics()

        try:
            await Pipeline(self._store, self._workers, run, tally).ingest(tasks, after_write)
        finally:
            if batches:
                self._merger.schedule(run.tenant, run.context.context_id)

    async def _prune(self, tenant: UUID, context: ContextRow, origin: str, tally: Tally) -> None:
        """Delete what the origin brought in before and this run has not seen, unless another run has it now."""
        after = _NIL
        while True:
            async with self._database.work(tenant, timeout_seconds=_DELETE_TIMEOUT_SECONDS) as connection:
                page = await repository.of_origin(
                    connection, tenant, context.context_id, origin, after=after, limit=_PRUNE_PAGE
                )
                if not page:
                    return
                vanished = [(source, serial) for source, path, serial in page if not tally.has_seen(path)]
                if vanished:
                    await self._store.hold(connection, tenant, context.context_id)
                    gone = await repository.lock_unchanged(connection, tenant, context.context_id, origin, vanished)
                    await self._delete(connection, tenant, context.context_id, gone)
                    for source in sorted(gone, key=lambda item: item.path):
                        tally.prune(source.path, source.source_id, source.revision)
            if vanished:
                self._merger.schedule(tenant, context.context_id, purge=True)
            after = page[-1][0]

    async def _delete(
        self, connection: Connection, tenant: UUID, context: UUID, gone: Sequence[Gone], archived: Sequence[str] = ()
    ) -> Deletion:
        await self._store.remove(connection, tenant, context, gone, archived=archived)
        return Deletion(sources=len(gone) + len(archived), passages=sum(source.passages for source in gone))

    async def _context(self, tenant: UUID, ref: str, *, is_wanted: bool) -> ContextRow | None:
        """Return the context, made when there is something to put in; None when there is neither."""
        async with self._database.work(tenant) as connection:
            if is_wanted:
                return await self._contexts.ensure(connection, tenant, ref, pointer="/context")
            try:
                return await self._contexts.resolve(connection, tenant, ref)
            except StrataError as error:
                if error.kind is not CONTEXT_NOT_FOUND:
                    raise
                return None

    def _processes(self, size: int, asked: int | None) -> int:
        return worker_count(self._settings, asked) if size >= PARALLEL_BYTES else 1

    def _run(self, tenant: UUID, context: ContextRow, limits: Limits, processes: int, *, is_patient: bool) -> Run:
        return Run(tenant, context, limits, processes, self._settings.max_source_bytes, is_patient)


def _tasks(found: Survey, tally: Tally, given: Given) -> Iterator[Task]:
    """Yield the sources of all files; a corpus with a line that is none is not pruned."""
    for entry in found.found:
        before = tally.refused
        yield from (replace(task, given=given) for task in tasks_of(entry, tally.refuse))
        if entry.is_corpus and tally.refused > before and entry.origin in found.prunable:
            found.prunable.remove(entry.origin)
