"""Hints: keep curated ones, take those that documents give, and find what a question means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar
from uuid import UUID

from strata.errors import CONFLICT, CONTEXT_NOT_FOUND, HINT_NOT_FOUND, INVALID_REQUEST, StrataError
from strata.hints import repository
from strata.hints.derive import SourceHints, derive_entries
from strata.hints.files import MAX_FILE_BYTES, SUFFIXES, HintFormat, parse_hints, render_hints
from strata.hints.fuzzy import MAX_FUZZY_NAMES, FuzzyCache, FuzzyNames
from strata.hints.keys import HintKey, entry_keys
from strata.hints.matching import HintMatch, match
from strata.hints.names import Question, name_key, normalise_name, read_question
from strata.hints.schemas import (
    MAX_HINTS_PER_CALL,
    MAX_PAGE,
    HintEntry,
    HintInput,
    HintOrigin,
    HintPage,
    HintReport,
)
from strata.hints.validate import valid_hint
from strata.knowledge.service import ContextService
from strata.platform.database import Connection, Database
from strata.platform.ids import new_id

_WRITE_BATCH = 1000
_INLINE = 100
_P = ParamSpec("_P")
_T = TypeVar("_T")
_CONTENT_FIELDS = tuple(
    name for name in HintInput.__struct_fields__ if name != "id"
)  # what makes a stored hint differ from one that is sent


class HintService:
    """The hints of each tenant's contexts. Safe to share between tasks of one event loop."""

    def __init__(self, database: Database, contexts: ContextService) -> None:
        self._database = database
        self._contexts = contexts
        self._fuzzy = FuzzyCache()
        self._refreshing = asyncio.Lock()

    async def put(
        self, tenant: UUID, context_ref: str, hints: Sequence[HintInput], *, pointer: str = "/hints"
    ) -> HintReport:
        """Store curated hints, all or none: by id, without one by title; the context is made if need be.

        Raises ``invalid_request`` with a pointer below ``pointer`` (``/hints/3/title``), and
        ``conflict`` where another curated hint has the title.
        """
        if len(hints) > MAX_HINTS_PER_CALL:
            detail = f"At most {MAX_HINTS_PER_CALL} hints can be sent at once; there are {len(hints)}."
            raise StrataError(INVALID_REQUEST, detail, pointer=pointer or None)
        cleaned = await _off_loop(len(hints), _clean, hints, pointer)
        async with self._database.work(tenant) as connection:
            context = (await self._contexts.ensure(connection, tenant, context_ref)).context_id
            return await _store(connection, tenant, context, cleaned, pointer)

    async def import_file(
        self, tenant: UUID, context_ref: str, source: Path | bytes, file_format: HintFormat | None = None
    ) -> HintReport:
        """Store the curated hints of a file, all or none.

        The format is that of the file's suffix unless given; bytes without one are YAML. Raises
        ``invalid_request`` that names entry and line; ``extra["errors"]`` holds the first twenty.
        """
        data, known = await asyncio.to_thread(_read, source, file_format)
        hints = await asyncio.to_thread(parse_hints, data, known)
        return await self.put(tenant, context_ref, hints, pointer="")

    async def export(
        self,
        tenant: UUID,
        context_ref: str,
        file_format: HintFormat = "yaml",
        origin: HintOrigin | None = HintOrigin.CURATED,
    ) -> str:
        """Return the hints of one origin (None: of all) as a file that can be imported again."""
        entries: list[HintEntry] = []
        async with self._database.work(tenant, snapshot=True) as connection:
            context = (await self._contexts.resolve(connection, tenant, context_ref)).context_id
            after: UUID | None = None
            while True:
                rows = await repository.page(
                    connection, tenant, context, origin=origin, after=after, limit=_WRITE_BATCH
                )
                entries += rows
                if len(rows) < _WRITE_BATCH:
                    break
                after = rows[-1].hint_id
        return await asyncio.to_thread(render_hints, entries, file_format)

    async def list(
        self,
        tenant: UUID,
        context_ref: str,
        *,
        origin: HintOrigin | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> HintPage:
        """Return one page of hints in id order; ``cursor`` is the ``nextCursor`` of the page before."""
        if not 1 <= limit <= MAX_PAGE:
            raise StrataError(INVALID_REQUEST, f"A page has 1 to {MAX_PAGE} hints.", pointer="?limit")
        after = _cursor(cursor)
        async with self._database.work(tenant) as connection:
            context = (await self._contexts.resolve(connection, tenant, context_ref)).context_id
            rows = await repository.page(connection, tenant, context, origin=origin, after=after, limit=limit + 1)
        more = len(rows) > limit
        return HintPage(hints=rows[:limit], next_cursor=str(rows[limit - 1].hint_id) if more else None)

    async def get(self, tenant: UUID, context_ref: str, hint_id: UUID) -> HintEntry:
        """Return one hint of any origin; raises ``hint_not_found``."""
        async with self._database.work(tenant) as connection:
            context = (await self._contexts.resolve(connection, tenant, context_ref)).context_id
            return await _found(connection, tenant, context, hint_id)

    async def delete(self, tenant: UUID, context_ref: str, hint_id: UUID) -> None:
        """Delete a curated hint; raises ``hint_not_found``, and ``conflict`` for one that a document gives."""
        async with self._database.work(tenant) as connection:
            context = (await self._contexts.resolve(connection, tenant, context_ref)).context_id
            await repository.lock(connection, tenant, context)
            entry = await _found(connection, tenant, context, hint_id)
            if entry.origin is not HintOrigin.CURATED:
                remedy = "Change or delete the source, or curate a hint of the same title."
                raise StrataError(CONFLICT, f"This hint comes from the source {entry.source_id}.", remedy=remedy)
            await repository.delete(connection, tenant, context, hint_id)
            await repository.bump(connection, tenant, context)

    async def match(
        self, connection: Connection, tenant: UUID, context_ids: Sequence[UUID], query: str
    ) -> Sequence[HintMatch]:
        """Return the hints of these contexts that a question means, best first, 20 at most.

        One statement, whose cost depends on the words of the question and not on the number of
        hints; after a change of the hints one more reads the names for fuzzy matching.
        """
        question = read_question(query)
        contexts = list(dict.fromkeys(context_ids))
        if not question.norm or not contexts:
            return []
        alike = [hint for context in contexts for hint in self._fuzzy.search(tenant, context, question.norm)]
        probed = await _probe(connection, tenant, contexts, question, alike)
        matches = match(question, probed.entries)
        late = await self._refresh(connection, tenant, probed.revisions, question.norm)
        if not late:
            return matches
        probed = await _probe(connection, tenant, contexts, question, [*alike, *late])
        return match(question, probed.entries)

    async def replace_for_source(
        self, connection: Connection, tenant: UUID, context_id: UUID, source_id: UUID, derived: SourceHints
    ) -> None:
        """Replace what a source gives by what its new revision gives, in the caller's unit of work."""
        await self.replace_for_sources(connection, tenant, context_id, [(source_id, derived)])

    async def replace_for_sources(
        self, connection: Connection, tenant: UUID, context_id: UUID, derived: Sequence[tuple[UUID, SourceHints]]
    ) -> None:
        """Replace what many sources give; the rows of the sources must exist.

        Moves the hints revision last, and only where something changed: the row of the context is
        locked from then until the unit of work ends.
        """
        changed = await repository.delete_for_sources(connection, tenant, context_id, [source for source, _ in derived])
        for start in range(0, len(derived), _WRITE_BATCH):
            batch = derived[start : start + _WRITE_BATCH]
            headings = sum(len(offered.sections) for _, offered in batch)
            entries = await _off_loop(len(batch) + headings, _derive, context_id, batch)
            await _write(connection, tenant, context_id, entries)
            changed = changed or bool(entries)
        if changed:
            await repository.bump(connection, tenant, context_id)

    async def remove_for_sources(
        self, connection: Connection, tenant: UUID, context_id: UUID, source_ids: Sequence[UUID]
    ) -> None:
        """Delete what sources give before they are deleted themselves, so that the hints revision moves."""
        if await repository.delete_for_sources(connection, tenant, context_id, source_ids):
            await repository.bump(connection, tenant, context_id)

    async def _refresh(
        self, connection: Connection, tenant: UUID, revisions: Mapping[UUID, int], norm: str
    ) -> Sequence[UUID]:
        """Read the fuzzy names of contexts that changed; return the hints that resemble the question there."""
        stale = [key for key, revision in revisions.items() if not self._fuzzy.is_current(tenant, key, revision)]
        for context in stale:
            # One reader at a time: those that waited find the names held.
            async with self._refreshing:
                if not self._fuzzy.is_current(tenant, context, revisions[context]):
                    read, names = await repository.fuzzy_names(connection, tenant, context, MAX_FUZZY_NAMES)
                    self._fuzzy.put(tenant, context, read, await asyncio.to_thread(FuzzyNames, names))
        return [hint for context in stale for hint in self._fuzzy.search(tenant, context, norm)]


async def _probe(
    connection: Connection, tenant: UUID, contexts: Sequence[UUID], question: Question, hints: Sequence[UUID]
) -> repository.Probed:
    return await repository.probe(
        connection,
        tenant,
        contexts,
        names=question.name_probes,
        keywords=question.keyword_probes,
        prefix=question.prefix,
        hints=hints,
    )


async def _found(connection: Connection, tenant: UUID, context: UUID, hint_id: UUID) -> HintEntry:
    rows = await repository.get(connection, tenant, context, [hint_id])
    if not rows:
        raise StrataError(HINT_NOT_FOUND, f"There is no hint {hint_id} in this context.")
    return rows[0]


async def _store(
    connection: Connection, tenant: UUID, context: UUID, hints: Sequence[HintInput], pointer: str
) -> HintReport:
    """Write cleaned hints under the lock of the context, so that titles stay unique among curated ones."""
    if not await repository.lock(connection, tenant, context):
        raise StrataError(CONTEXT_NOT_FOUND, f"There is no context {context}.")
    by_id = {
        row.hint_id: row
        for row in await repository.get(connection, tenant, context, [hint.id for hint in hints if hint.id])
    }
    titles = [_title_key(hint.title) for hint in hints]
    holders = {
        _title_key(row.title): row for row in await repository.curated_with_titles(connection, tenant, context, titles)
    }
    sent = {hint.id for hint in hints if hint.id}
    stored: list[HintEntry] = []
    before: list[HintEntry | None] = []
    for number, (hint, key) in enumerate(zip(hints, titles, strict=True)):
        holder = holders.get(key)
        old = by_id.get(hint.id) if hint.id else holder
        if old is not None and old.origin is not HintOrigin.CURATED:
            detail = f"This hint comes from the source {old.source_id} and changes with it."
            raise StrataError(CONFLICT, detail, pointer=f"{pointer}/{number}/id")
        if holder and hint.id and holder.hint_id != hint.id and holder.hint_id not in sent:
            detail = f"The hint {holder.hint_id} has this title already."
            raise StrataError(CONFLICT, detail, pointer=f"{pointer}/{number}/title")
        if holder and not hint.id and holder.hint_id in sent:
            detail = f"The hint {holder.hint_id}, which has this title, is sent by its id too."
            raise StrataError(INVALID_REQUEST, detail, pointer=f"{pointer}/{number}/title")
        stored.append(_entry(context, hint, old))
        before.append(old)
    changed = [new for new, old in zip(stored, before, strict=True) if old is None or not _same(new, old)]
    await _write(connection, tenant, context, changed, {row.hint_id for row in before if row})
    if changed:
        await repository.bump(connection, tenant, context)
    created = sum(old is None for old in before)
    return HintReport(
        created=created,
        updated=len(changed) - created,
        unchanged=len(stored) - len(changed),
        ids=[entry.hint_id for entry in stored],
    )


def _entry(context: UUID, hint: HintInput, old: HintEntry | None) -> HintEntry:
    content = {name: getattr(hint, name) for name in _CONTENT_FIELDS}
    hint_id = hint.id or (old.hint_id if old else new_id())
    return HintEntry(hint_id=hint_id, context_id=context, origin=HintOrigin.CURATED, **content)


def _same(new: HintEntry, old: HintEntry) -> bool:
    return all(getattr(new, name) == getattr(old, name) for name in _CONTENT_FIELDS)


async def _write(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    entries: Sequence[HintEntry],
    known: Collection[UUID] = frozenset(),
) -> None:
    for start in range(0, len(entries), _WRITE_BATCH):
        batch = entries[start : start + _WRITE_BATCH]
        keys = await _off_loop(len(batch), _keys, batch)
        replaced = [entry.hint_id for entry in batch if entry.hint_id in known]
        await repository.write(connection, tenant, context, batch, keys, replaced=replaced)


async def _off_loop(size: int, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Do work for ``size`` things in a thread where it would hold the event loop for long."""
    if size <= _INLINE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


def _derive(context: UUID, derived: Sequence[tuple[UUID, SourceHints]]) -> Sequence[HintEntry]:
    return [entry for source, offered in derived for entry in derive_entries(context, source, offered)]


def _keys(entries: Sequence[HintEntry]) -> Sequence[HintKey]:
    return [key for entry in entries for key in entry_keys(entry)]


def _clean(hints: Sequence[HintInput], pointer: str) -> Sequence[HintInput]:
    cleaned = [valid_hint(hint, f"{pointer}/{number}") for number, hint in enumerate(hints)]
    _refuse_repeats(cleaned, pointer)
    return cleaned


def _title_key(title: str) -> str:
    return name_key(normalise_name(title))


def _refuse_repeats(hints: Sequence[HintInput], pointer: str) -> None:
    """Refuse a call in which two hints have one id or one title: which should win?"""
    ids: dict[UUID, int] = {}
    titles: dict[str, int] = {}
    for number, hint in enumerate(hints):
        if hint.id and ids.setdefault(hint.id, number) != number:
            detail = f"Hint {number + 1} repeats the id of hint {ids[hint.id] + 1}."
            raise StrataError(INVALID_REQUEST, detail, pointer=f"{pointer}/{number}/id")
        first = titles.setdefault(_title_key(hint.title), number)
        if first != number:
            detail = f"Hint {number + 1} repeats the title of hint {first + 1}."
            raise StrataError(INVALID_REQUEST, detail, pointer=f"{pointer}/{number}/title")


def _cursor(cursor: str | None) -> UUID | None:
    if not cursor:
        return None
    try:
        return UUID(cursor)
    except ValueError as error:
        raise StrataError(INVALID_REQUEST, "This is not a cursor of a page of hints.", pointer="?cursor") from error


def _read(source: Path | bytes, file_format: HintFormat | None) -> tuple[bytes, HintFormat]:
    if isinstance(source, bytes):
        return source, file_format or "yaml"
    known = file_format or SUFFIXES.get(source.suffix.lower())
    if known is None:
        suffixes = ", ".join(SUFFIXES)
        raise StrataError(INVALID_REQUEST, f"{source.name}: name the format, or use one of the suffixes {suffixes}.")
    try:
        with source.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1), known
    except OSError as error:
        raise StrataError(INVALID_REQUEST, f"{source.name}: {error.strerror or error}.") from error
