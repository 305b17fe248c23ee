"""Texts by name: stored byte for byte, replaced whole, listed, read and cited by paragraph."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from strata.embeddings.service import EmbeddingService
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.platform.database import Connection, Database
from strata.platform.ids import ORDINALS
from strata.sources import revision_repository, text_repository
from strata.sources.merging import Merger
from strata.sources.model import Locator
from strata.sources.store import Store
from strata.sources.text_dump import TextDump, dump, locator_of
from strata.sources.texts import Prepared, TextSource, TextStored, epoch, prepare_texts
from strata.sources.views import is_storable

_MIN_PARAGRAPH, _MAX_PARAGRAPH = 0, ORDINALS


@dataclass(frozen=True, slots=True)
class TextEntry:
    """A source of a list, times in epoch seconds; ``stored_at`` is None where it only asserts facts."""

    name: str
    stored_at: int | None = None
    date: int | None = None
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TextPage:
    """One page of sources by name; ``total`` counts all that have the prefix."""

    total: int
    entries: Sequence[TextEntry]


@dataclass(frozen=True, slots=True)
class Cited:
    """A passage as it is cited: its exact text, the innermost heading above it, and where it stands in the original."""

    text: str
    section: str | None = None
    locator: Locator | None = None
    passage_id: int = 0


@dataclass(frozen=True, slots=True)
class Citations:
    """The passages of (source, paragraph) pairs; the others lack their source or, of a known one, the paragraph."""

    found: Mapping[tuple[str, int], Cited] = field(default_factory=dict)
    no_source: Sequence[tuple[str, int]] = ()
    no_paragraph: Sequence[tuple[str, int]] = ()


class TextService:
    """The sources of a context by their names, whatever their format.

    A name has one source: what is stored under it is replaced whole. Facts that a source asserts stay
    when its text is replaced or removed here.
    """

    def __init__(
        self,
        database: Database,
        contexts: ContextService,
        embeddings: EmbeddingService,
        store: Store,
        merger: Merger,
    ) -> None:
        self._database = database
        self._contexts = contexts
        self._embeddings = embeddings
        self._store = store
        self._merger = merger

    async def prepare(self, texts: Sequence[TextSource]) -> Prepared:
        """Cut, check and analyse texts in a thread, before any unit of work; raises ``invalid_request``."""
        return await asyncio.to_thread(prepare_texts, texts)

    async def lock(self, connection: Connection, tenant: UUID, context_id: UUID, names: Sequence[str]) -> None:
        """Keep every other writer of the sources out until the unit of work ends, first of all locks.

        Raises ``context_not_found``.
        """
        await self._store.lock(connection, tenant, context_id, names)

    async def put(
        self, connection: Connection, tenant: UUID, context: ContextRow, prepared: Prepared
    ) -> Sequence[TextStored]:
        """Store texts in the caller's unit of work, each replacing what its name held; call :meth:`wake` afterwards.

        A text that stands there already, with all that is said of it, is only stamped anew.
        """
        context_id = context.context_id
        written = await self._store.replace(connection, tenant, context_id, prepared.batch, keeps_facts=True)
        if written.same:
            given = {source.path: source.stored_at for source in prepared.batch.built}
            stamps = [(same.known.source_id, given[same.path]) for same in written.same]
            await text_repository.touch(connection, tenant, context_id, stamps)
            if not written.placed:
                await self._contexts.bump_passages(connection, tenant, context_id)
        return prepared.stored

    async def remove(self, connection: Connection, tenant: UUID, context_id: UUID, names: Sequence[str]) -> int:
        """Delete the texts of sources, archived ones too, with all that hangs on them; return how many had one."""
        askable = [name for name in dict.fromkeys(names) if is_storable(name)]
        await self._store.lock(connection, tenant, context_id, askable)
        gone = await text_repository.lock_named(connection, tenant, context_id, askable)
        archived = await revision_repository.lock_archived(connection, tenant, context_id, askable)
        await self._store.remove(connection, tenant, context_id, gone, archived=archived, keeps_facts=True)
        return len(gone) + len(archived)

    def wake(self, tenant: UUID, context_id: UUID, *, purge: bool = False) -> None:
        """After the commit of what was stored or (``purge``) removed: let vectors and the index follow."""
        self._embeddings.wake()
        self._merger.schedule(tenant, context_id, purge=purge)

    async def page(
        self,
        connection: Connection,
        tenant: UUID,
        context_id: UUID,
        *,
        after: str = "",
        limit: int = 100,
        prefix: str = "",
    ) -> TextPage:
        """Return sources by name in code point order, also those that only assert facts."""
        if not is_storable(prefix):
            return TextPage(0, ())
        count = await text_repository.total(connection, tenant, context_id, prefix)
        rows = (
            await text_repository.page(connection, tenant, context_id, after=after, prefix=prefix, limit=limit)
            if is_storable(after)
            else []
        )
        return TextPage(
            count, [TextEntry(row.name, epoch(row.stored_at), epoch(row.occurred_at), row.tags or ()) for row in rows]
        )

    async def lookup(self, tenant: UUID, ref: str, names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """Return the whole texts by name, and the names without one, both in the order asked for, each once."""
        asked = list(dict.fromkeys(names))
        async with self._database.work(tenant, snapshot=True) as connection:
            context = await self._contexts.resolve(connection, tenant, ref)
            found = await text_repository.contents(
                connection, tenant, context.context_id, [name for name in asked if is_storable(name)]
            )
        return (
            {name: found[name].decode() for name in asked if name in found},
            [name for name in asked if name not in found],
        )

    async def read(
        self, connection: Connection, tenant: UUID, context_id: UUID, names: Sequence[str]
    ) -> dict[str, str]:
        """Return the whole texts of the sources that have one, by name."""
        askable = [name for name in names if is_storable(name)]
        found = await text_repository.contents(connection, tenant, context_id, askable)
        return {name: found[name].decode() for name in askable if name in found}

    async def cite(
        self, connection: Connection, tenant: UUID, context_id: UUID, pairs: Sequence[tuple[str, int]]
    ) -> Citations:
        """Return the passages of (source, paragraph) pairs; one statement, for sources of every format."""
        asked = list(dict.fromkeys(pairs))
        askable = [pair for pair in asked if is_storable(pair[0])]
        # A number beyond all passages of a source would be one of the next source.
        numbered = [(source, min(max(number, -1), _MAX_PARAGRAPH + 1)) for source, number in askable]
        rows = await text_repository.cited(connection, tenant, context_id, numbered) if numbered else []
        known = {row.source for row in rows}
        by_pair = {(row.source, row.paragraph): row for row in rows if row.passage_id is not None}
        found: dict[tuple[str, int], Cited] = {}
        for source, number in asked:
            row = by_pair.get((source, number)) if _MIN_PARAGRAPH <= number <= _MAX_PARAGRAPH else None
            if row is not None and row.passage_id is not None:
                found[source, number] = Cited(
                    (row.content or b"").decode(),
                    row.heading or None,
                    locator_of(row.locator_kind, row.locator_value, row.page, row.start_ms, row.end_ms),
                    row.passage_id,
                )
        missing = [pair for pair in asked if pair not in found]
        return Citations(
            found,
            [pair for pair in missing if pair[0] not in known],
            [pair for pair in missing if pair[0] in known],
        )

    async def paragraphs(
        self, connection: Connection, tenant: UUID, context_id: UUID, names: Sequence[str]
    ) -> dict[str, int]:
        """Return how many paragraphs each of the sources has that have a text."""
        askable = [name for name in names if is_storable(name)]
        return await text_repository.paragraph_counts(connection, tenant, context_id, askable)

    async def dump(
        self, connection: Connection, tenant: UUID, context_id: UUID, names: Sequence[str]
    ) -> dict[str, TextDump]:
        """Return the sources of the names that have a text, as they can be stored again."""
        askable = [name for name in names if is_storable(name)]
        rows = await text_repository.stored(connection, tenant, context_id, askable)
        ids = [row.source_id for row in rows]
        sections = await text_repository.stored_sections(connection, tenant, context_id, ids)
        passages = await text_repository.stored_passages(connection, tenant, context_id, ids)
        questions = await text_repository.stored_questions(connection, tenant, context_id, ids)
        return {
            row.name: await asyncio.to_thread(
                dump,
                row,
                sections.get(row.source_id, ()),
                passages.get(row.source_id, ()),
                questions.get(row.source_id, ()),
            )
            for row in rows
        }
