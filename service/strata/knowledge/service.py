"""Contexts: make, find, describe and delete knowledge bases."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from uuid import UUID

from strata.errors import CONFLICT, CONTEXT_EXISTS, CONTEXT_NOT_FOUND, INVALID_REQUEST, StrataError
from strata.knowledge import repository, usage_repository
from strata.knowledge.model import (
    ContextCounts,
    ContextOptions,
    ContextRow,
    ContextUsage,
    DirectoryEntry,
    DirectoryPage,
)
from strata.knowledge.schemas import MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS, ContextList, ContextView, Revisions
from strata.knowledge.usage import UsageCounter
from strata.platform.database import Connection, Database
from strata.platform.ids import new_id

_HIDDEN = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
_UNSEEN = frozenset({"Cc", "Cf", "Mn", "Zs"})
_NO_OPTIONS = ContextOptions()


def valid_name(name: str, pointer: str = "/name", what: str = "context") -> str:
    """Return a name (of a context, or of ``what``), trimmed and in NFC; ``invalid_request`` says what is wrong with it.

    1 to 128 characters, one of them visible by itself, no control characters or lone surrogates, and
    not the shape of an id: a name must never be taken for one.
    """
    trimmed = clean_ref(name)
    if all(unicodedata.category(char) in _UNSEEN for char in trimmed):
        raise StrataError(INVALID_REQUEST, f"A {what} name needs at least one visible character.", pointer=pointer)
    if len(trimmed) > MAX_NAME_CHARS:
        raise StrataError(
            INVALID_REQUEST,
            f"A {what} name has at most {MAX_NAME_CHARS} characters; this one has {len(trimmed)}.",
            pointer=pointer,
        )
    if any(unicodedata.category(char) in _HIDDEN for char in trimmed):
        raise StrataError(INVALID_REQUEST, f"A {what} name holds no control or unassigned characters.", pointer=pointer)
    if as_uuid(trimmed) is not None:
        raise StrataError(INVALID_REQUEST, f"A {what} name must not have the shape of an id.", pointer=pointer)
    return trimmed


def clean_ref(ref: str) -> str:
    """Return a reference to a context as names are stored: trimmed and in NFC, so that one spelling is one name."""
    return unicodedata.normalize("NFC", ref.strip())


def valid_description(description: str, pointer: str = "/description") -> str:
    """Return the trimmed description: at most 4,096 characters, line breaks allowed, no other control ones."""
    trimmed = description.strip()
    if len(trimmed) > MAX_DESCRIPTION_CHARS:
        raise StrataError(
            INVALID_REQUEST, f"A description has at most {MAX_DESCRIPTION_CHARS} characters.", pointer=pointer
        )
    if any(unicodedata.category(char) in {"Cc", "Cs"} and char not in "\n\t" for char in trimmed):
        raise StrataError(INVALID_REQUEST, "A description holds no control characters.", pointer=pointer)
    return trimmed


def valid_options(options: ContextOptions) -> None:
    """Raise ``invalid_request`` for a floor that is not from 0 to 1."""
    for name, value in (("dice_floor", options.dice_floor), ("semantic_floor", options.semantic_floor)):
        if value is not None and not 0 <= value <= 1:
            raise StrataError(INVALID_REQUEST, f"{name} is a number from 0 to 1.", pointer=f"/{name}")


def as_uuid(ref: str) -> UUID | None:
    """Return the id that ``ref`` spells in any form that UUID takes, None when it spells none."""
    try:
        return UUID(ref)
    except ValueError:
        return None


class ContextService:
    """The contexts of each tenant. A reference is an id or a unique name."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._usage = UsageCounter(database)

    async def create(
        self, tenant: UUID, name: str, description: str = "", options: ContextOptions = _NO_OPTIONS
    ) -> ContextView:
        """Make a context; raises ``context_exists`` when the name is taken."""
        name, description = valid_name(name), valid_description(description)
        valid_options(options)
        async with self._database.work(tenant) as connection:
            row = await repository.insert(
                connection, tenant, new_id(), name=name, description=description, options=options
            )
        if row is None:
            raise StrataError(CONTEXT_EXISTS, f"There is a context named {name!r} already.", pointer="/name")
        return _view(row, None)

    async def list(self, tenant: UUID) -> ContextList:
        """Return every context, by name."""
        async with self._database.work(tenant, snapshot=True) as connection:
            rows = await repository.list_all(connection, tenant)
            counts = await repository.counts(connection, tenant, [row.context_id for row in rows])
        return ContextList(contexts=[_view(row, counts.get(row.context_id)) for row in rows])

    async def get(self, tenant: UUID, ref: str) -> ContextView:
        """Return one context; raises ``context_not_found``."""
        async with self._database.work(tenant, snapshot=True) as connection:
            row = await self.resolve(connection, tenant, ref)
            counts = await repository.counts(connection, tenant, [row.context_id])
        return _view(row, counts.get(row.context_id))

    async def directory(
        self, tenant: UUID, *, limit: int, after: str | None = None, is_pinned: bool | None = None
    ) -> DirectoryPage:
        """Return part of the directory, by name; ``after`` is the last name of the part before.

        What was read until now is counted.
        """
        await self.flush_usage()
        if after is not None and not _is_storable(after):
            after = after.encode("utf-8", "replace").decode().replace("\x00", "")
        async with self._database.work(tenant, snapshot=True) as connection:
            rows = await repository.page(connection, tenant, after=after, is_pinned=is_pinned, limit=limit)
            total = await repository.count(connection, tenant, is_pinned=is_pinned)
            return DirectoryPage(total=total, entries=await self._entries(connection, tenant, rows))

    async def entry(self, tenant: UUID, ref: str) -> DirectoryEntry:
        """Return one context as the directory lists it; raises ``context_not_found``."""
        await self.flush_usage()
        async with self._database.work(tenant, snapshot=True) as connection:
            row = await self.resolve(connection, tenant, ref)
            return (await self._entries(connection, tenant, [row]))[0]

    async def rename(self, tenant: UUID, ref: str, name: str) -> ContextView:
        """Give a context another name; raises ``context_exists`` when it is taken."""
        return await self.update(tenant, ref, name=name)

    def count_read(self, tenant: UUID, context: UUID, *, is_empty: bool) -> None:
        """Count a read of a context, an empty one where it found nothing; written down within seconds."""
        self._usage.count(tenant, context, is_empty=is_empty)

    async def flush_usage(self) -> None:
        """Write down the reads counted until now."""
        await self._usage.flush()

    async def flushed(self, tenant: UUID) -> Sequence[str]:
        """Write down the reads counted until now; return the names of the contexts that had any, by name."""
        counted = self._usage.counted(tenant)
        await self._usage.flush()
        if not counted:
            return []
        async with self._database.work(tenant) as connection:
            return [row.name for row in await repository.find(connection, tenant, sorted(counted), [])]

    async def close(self) -> None:
        """Stop counting reads, and write down those that were counted. Safe to call again."""
        await self._usage.close()

    async def _entries(
        self, connection: Connection, tenant: UUID, rows: Sequence[ContextRow]
    ) -> Sequence[DirectoryEntry]:
        ids = [row.context_id for row in rows]
        usage = await usage_repository.usage(connection, tenant, ids)
        modes = await usage_repository.schema_modes(connection, tenant, ids)
        return tuple(
            DirectoryEntry(row, usage.get(row.context_id, ContextUsage()), modes.get(row.context_id)) for row in rows
        )

    async def update(
        self,
        tenant: UUID,
        ref: str,
        *,
        name: str | None = None,
        description: str | None = None,
        options: ContextOptions = _NO_OPTIONS,
    ) -> ContextView:
        """Rename or describe a context; None leaves a field as it is. Its id never changes."""
        name = None if name is None else valid_name(name)
        description = None if description is None else valid_description(description)
        valid_options(options)
        try:
            async with self._database.work(tenant) as connection:
                row = await self.resolve(connection, tenant, ref)
                changed = await repository.update(
                    connection, tenant, row.context_id, name=name, description=description, options=options
                )
                counts = await repository.counts(connection, tenant, [row.context_id])
        except StrataError as error:
            if error.kind is not CONFLICT or name is None:
                raise
            raise StrataError(CONTEXT_EXISTS, f"There is a context named {name!r} already.", pointer="/name") from error
        if changed is None:
            raise _not_found(ref, None)
        return _view(changed, counts.get(row.context_id))

    async def delete(self, tenant: UUID, ref: str) -> None:
        """Delete a context with its sources, index, vectors and hints; final when this returns."""
        async with self._database.work(tenant, timeout_seconds=600) as connection:
            row = await self.resolve(connection, tenant, ref)
            if not await repository.delete(connection, tenant, row.context_id):
                raise _not_found(ref, None)

    async def resolve(
        self, connection: Connection, tenant: UUID, ref: str, *, pointer: str | None = None
    ) -> ContextRow:
        """Return the context that ``ref`` names inside a unit of work; raises ``context_not_found``."""
        return (await self.resolve_many(connection, tenant, [ref], pointer=pointer))[0]

    async def resolve_many(
        self, connection: Connection, tenant: UUID, refs: Sequence[str], *, pointer: str | None = None
    ) -> Sequence[ContextRow]:
        """Return the contexts in the order of ``refs``, each once; one statement.

        Raises ``context_not_found`` for the first that is missing; where several were asked for,
        the pointer gets its index (``/context/2``).
        """
        cleaned = [clean_ref(ref) for ref in refs]
        ids = [as_uuid(ref) for ref in cleaned]
        askable = [ref for ref in cleaned if _is_storable(ref)]
        rows = await repository.find(connection, tenant, [found for found in ids if found], askable)
        by_id = {row.context_id: row for row in rows}
        by_name = {row.name: row for row in rows}
        resolved: dict[UUID, ContextRow] = {}
        for index, (ref, identifier) in enumerate(zip(cleaned, ids, strict=True)):
            row = by_id.get(identifier) if identifier else by_name.get(ref)
            if row is None:
                raise _not_found(ref, f"{pointer}/{index}" if pointer and len(refs) > 1 else pointer)
            resolved.setdefault(row.context_id, row)
        return tuple(resolved.values())

    async def ensure(
        self,
        connection: Connection,
        tenant: UUID,
        ref: str,
        *,
        pointer: str | None = None,
        description: str = "",
        options: ContextOptions = _NO_OPTIONS,
    ) -> ContextRow:
        """Return the context that ``ref`` names, making one of that name where there is none.

        ``description`` and ``options`` are for one that is made. An id that is unknown makes nothing:
        ``context_not_found``. Callers at the same moment get the same context.
        """
        if as_uuid(ref.strip()) is not None:
            return await self.resolve(connection, tenant, ref, pointer=pointer)
        name, description = valid_name(ref, pointer or "/context"), valid_description(description)
        valid_options(options)
        # A second round finds what another transaction committed between the two statements.
        for _ in range(3):
            found = await repository.find(connection, tenant, [], [name])
            if found:
                return found[0]
            made = await repository.insert(
                connection, tenant, new_id(), name=name, description=description, options=options
            )
            if made:
                return made
        raise StrataError(CONFLICT, f"The context {name!r} is being made and deleted at this moment.", pointer=pointer)

    async def hold(self, connection: Connection, tenant: UUID, context: UUID) -> None:
        """Keep a context from being deleted until the unit of work ends; raises ``context_not_found``."""
        if not await repository.hold(connection, tenant, context):
            raise _not_found(str(context), None)

    async def hold_alone(self, connection: Connection, tenant: UUID, context: UUID) -> None:
        """Wait for every writer that holds a context, and keep others out until the unit of work ends.

        Only where nothing is locked yet: who holds the context already would wait for others who do.
        Raises ``context_not_found``.
        """
        if not await repository.hold_alone(connection, tenant, context):
            raise _not_found(str(context), None)

    async def rows(self, connection: Connection, tenant: UUID) -> Sequence[ContextRow]:
        """Return every context by name, inside a unit of work."""
        return await repository.list_all(connection, tenant)

    async def bump_config(self, connection: Connection, tenant: UUID, context: UUID) -> None:
        """Move the config revision; the last statement of a unit of work that changed how a context answers."""
        await repository.bump_config(connection, tenant, context)

    async def bump_passages(
        self, connection: Connection, tenant: UUID, context: UUID, languages: Sequence[str] = ()
    ) -> None:
        """Move the passages revision; the last statement of a unit of work that changed passages.

        ``languages`` are those by whose rules the passages were analysed: questions are analysed
        by the rules of all of a context's.
        """
        await repository.bump_passages(connection, tenant, context, languages)


def _is_storable(ref: str) -> bool:
    if "\x00" in ref:
        return False
    try:
        ref.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_found(ref: str, pointer: str | None) -> StrataError:
    shown = ref[:MAX_NAME_CHARS].encode("utf-8", "replace").decode()
    return StrataError(CONTEXT_NOT_FOUND, f"There is no context {shown!r}.", pointer=pointer)


def _view(row: ContextRow, counts: ContextCounts | None) -> ContextView:
    return ContextView(
        id=row.context_id,
        name=row.name,
        description=row.description,
        revisions=Revisions(
            graph=row.graph_revision,
            passages=row.passages_revision,
            hints=row.hints_revision,
            config=row.config_revision,
        ),
        sources=counts.sources if counts else 0,
        passages=counts.passages if counts else 0,
        created_at=row.created_at,
    )
