"""Groups of contexts, to be searched together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from strata.errors import CONFLICT, GROUP_EXISTS, GROUP_NOT_FOUND, INVALID_REQUEST, OVER_LIMIT, StrataError
from strata.knowledge import group_repository as repository
from strata.knowledge.group_repository import GroupRow
from strata.knowledge.group_schemas import GroupOut, GroupPage
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService, clean_ref, valid_description, valid_name
from strata.platform.database import Connection, Database
from strata.platform.ids import new_id

MAX_CONTEXTS = 1_000
MAX_GROUPS = 1_000
MAX_STOREYS = 3

Outcome = Literal["created", "replaced", "unchanged"]


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The whole truth of a group: contexts by id or name, groups by name."""

    name: str
    description: str = ""
    contexts: Sequence[str] = ()
    groups: Sequence[str] = ()


class GroupService:
    """A group is addressed by its unique name; it may have the name of a context."""

    def __init__(self, database: Database, contexts: ContextService) -> None:
        self._database = database
        self._contexts = contexts

    async def create(
        self,
        tenant: UUID,
        name: str,
        *,
        description: str = "",
        contexts: Sequence[str] = (),
        groups: Sequence[str] = (),
    ) -> GroupOut:
        """Make a group of contexts and groups that are there; raises ``group_exists``."""
        name, description = valid_name(name, what="group"), valid_description(description)
        async with self._database.work(tenant) as connection:
            await repository.lock(connection, _lock_key(tenant))
            row = GroupRow(new_id(), name, description)
            if not await repository.insert(connection, tenant, row.group_id, name, description):
                raise _exists(name)
            await self._add(connection, tenant, row, contexts, groups)
            return (await _shown(connection, tenant, [row]))[0]

    async def get(self, tenant: UUID, name: str) -> GroupOut:
        """Return a group; raises ``group_not_found``."""
        async with self._database.work(tenant, snapshot=True) as connection:
            return (await _shown(connection, tenant, [await _find(connection, tenant, name)]))[0]

    async def list(self, tenant: UUID, *, limit: int = MAX_GROUPS, after: str | None = None) -> GroupPage:
        """Return groups by name; ``after`` is the last name of the page before, ``total`` counts all."""
        async with self._database.work(tenant, snapshot=True) as connection:
            rows = await repository.page(connection, tenant, after=_storable(after), limit=limit)
            return GroupPage(
                total=await repository.count(connection, tenant), groups=await _shown(connection, tenant, rows)
            )

    async def update(
        self,
        tenant: UUID,
        name: str,
        *,
        description: str | None = None,
        add_contexts: Sequence[str] = (),
        remove_contexts: Sequence[str] = (),
        add_groups: Sequence[str] = (),
        remove_groups: Sequence[str] = (),
    ) -> GroupOut:
        """Change a group, removals first; to remove what is no member changes nothing."""
        description = None if description is None else valid_description(description)
        async with self._database.work(tenant) as connection:
            await repository.lock(connection, _lock_key(tenant))
            row = await _find(connection, tenant, name)
            if description is not None:
                await repository.update(connection, tenant, row.group_id, description=description)
                row = GroupRow(row.group_id, row.name, description)
            await self._remove(connection, tenant, row, remove_contexts, remove_groups)
            await self._add(
                connection, tenant, row, add_contexts, add_groups, pointers=("/add_contexts", "/add_groups")
            )
            return (await _shown(connection, tenant, [row]))[0]

    async def rename(self, tenant: UUID, name: str, to: str) -> GroupOut:
        """Give a group another name; raises ``group_exists`` when it is taken."""
        to = valid_name(to, "/to", what="group")
        async with self._database.work(tenant) as connection:
            await repository.lock(connection, _lock_key(tenant))
            row = await _find(connection, tenant, name)
            if row.name != to and await repository.find(connection, tenant, [to]):
                raise _exists(to, "/to")
            await repository.update(connection, tenant, row.group_id, name=to)
            return (await _shown(connection, tenant, [GroupRow(row.group_id, to, row.description)]))[0]

    async def delete(self, tenant: UUID, name: str) -> None:
        """Delete a group; its contexts and child groups stay."""
        async with self._database.work(tenant) as connection:
            await repository.lock(connection, _lock_key(tenant))
            await repository.delete(connection, tenant, (await _find(connection, tenant, name)).group_id)

    async def put_all(self, connection: Connection, tenant: UUID, records: Sequence[GroupRecord]) -> Sequence[Outcome]:
        """Make the groups what the records say, inside a unit of work; they may name each other in any order.

        Raises what :meth:`create` and :meth:`update` raise; then nothing of it may be committed.
        """
        await repository.lock(connection, _lock_key(tenant))
        cleaned = [
            GroupRecord(
                valid_name(record.name, what="group"),
                valid_description(record.description),
                record.contexts,
                record.groups,
            )
            for record in records
        ]
        names = [record.name for record in cleaned]
        before = {row.name: row for row in await repository.find(connection, tenant, names)}
        shown = {group.name: group for group in await _shown(connection, tenant, list(before.values()))}
        rows = []
        for record in cleaned:
            row = before.get(record.name) or GroupRow(new_id(), record.name, record.description)
            if record.name not in before:
                await repository.insert(connection, tenant, row.group_id, row.name, record.description)
            await repository.update(connection, tenant, row.group_id, description=record.description)
            held = shown.get(record.name)
            if held is not None:
                await self._remove(connection, tenant, row, held.contexts, held.groups)
            rows.append(GroupRow(row.group_id, row.name, record.description))
        for row, record in zip(rows, cleaned, strict=True):
            await self._add(connection, tenant, row, record.contexts, record.groups)
        after = await _shown(connection, tenant, rows)
        return [_outcome(shown.get(group.name), group) for group in after]

    async def expand(
        self, connection: Connection, tenant: UUID, contexts: Sequence[str], groups: Sequence[str]
    ) -> Sequence[ContextRow]:
        """Return the contexts to search: those named, then those that each group reaches, by name; each once.

        Raises ``context_not_found``, ``group_not_found``, ``invalid_request`` where nothing is named, and
        ``over_limit`` for more than 1,000 of either, or of contexts in all.
        """
        if not contexts and not groups:
            raise StrataError(INVALID_REQUEST, "Name at least one context or group.", pointer="/contexts")
        for pointer, refs in (("/contexts", contexts), ("/groups", groups)):
            _require_at_most(len(refs), MAX_CONTEXTS, pointer)
        named = await self._contexts.resolve_many(connection, tenant, contexts, pointer="/contexts") if contexts else ()
        found = {row.context_id: row for row in named}
        for number, name in enumerate(groups):
            row = await _find(connection, tenant, name, f"/groups/{number}")
            for member in await _reached(connection, tenant, row.group_id):
                found.setdefault(member.context_id, member)
        _require_at_most(len(found), MAX_CONTEXTS, "/groups")
        return tuple(found.values())

    async def _add(
        self,
        connection: Connection,
        tenant: UUID,
        row: GroupRow,
        contexts: Sequence[str],
        groups: Sequence[str],
        *,
        pointers: tuple[str, str] = ("/contexts", "/groups"),
    ) -> None:
        for pointer, refs in zip(pointers, (contexts, groups), strict=True):
            _require_at_most(len(refs), MAX_CONTEXTS, pointer)
        if contexts:
            members = await self._contexts.resolve_many(connection, tenant, contexts, pointer=pointers[0])
            for member in sorted(members, key=lambda item: item.context_id):
                await self._contexts.hold(connection, tenant, member.context_id)
            await repository.add_contexts(connection, tenant, row.group_id, [item.context_id for item in members])
            held = await repository.contexts_of(connection, tenant, [row.group_id])
            _require_at_most(len(held[row.group_id]), MAX_CONTEXTS, pointers[0])
        if groups:
            children = [
                await _find(connection, tenant, name, f"{pointers[1]}/{number}") for number, name in enumerate(groups)
            ]
            for number, child in enumerate(children):
                if child.group_id == row.group_id:
                    raise StrataError(CONFLICT, "A group does not hold itself.", pointer=f"{pointers[1]}/{number}")
            await repository.add_groups(connection, tenant, row.group_id, [child.group_id for child in children])
            below = await repository.children_of(connection, tenant, [row.group_id])
            _require_at_most(len(below[row.group_id]), MAX_GROUPS, pointers[1])
            _require_low(await repository.links(connection, tenant), pointers[1])

    async def _remove(
        self,
        connection: Connection,
        tenant: UUID,
        row: GroupRow,
        contexts: Sequence[str],
        groups: Sequence[str],
    ) -> None:
        if contexts:
            held = await repository.contexts_of(connection, tenant, [row.group_id])
            refs = {clean_ref(ref) for ref in contexts}
            gone = [
                member.context_id
                for member in held.get(row.group_id, ())
                if member.name in refs or str(member.context_id) in refs
            ]
            await repository.remove_contexts(connection, tenant, row.group_id, gone)
        if groups:
            below = await repository.children_of(connection, tenant, [row.group_id])
            names = {clean_ref(name) for name in groups}
            gone = [child.group_id for child in below.get(row.group_id, ()) if child.name in names]
            await repository.remove_groups(connection, tenant, row.group_id, gone)


async def _find(connection: Connection, tenant: UUID, name: str, pointer: str | None = None) -> GroupRow:
    cleaned = clean_ref(name)
    found = await repository.find(connection, tenant, [cleaned]) if _storable(cleaned) == cleaned else []
    if not found:
        shown = name[:128].encode("utf-8", "replace").decode()
        raise StrataError(GROUP_NOT_FOUND, f"There is no group {shown!r}.", pointer=pointer)
    return found[0]


def _storable(name: str | None) -> str | None:
    """Return a name as Postgres takes text; one it does not take names nothing."""
    return None if name is None else name.encode("utf-8", "replace").decode().replace("\x00", "")


async def _reached(connection: Connection, tenant: UUID, group: UUID) -> Sequence[ContextRow]:
    seen, frontier = {group}, [group]
    found: dict[UUID, ContextRow] = {}
    while frontier:
        for members in (await repository.contexts_of(connection, tenant, frontier)).values():
            found.update((member.context_id, member) for member in members)
        below = await repository.children_of(connection, tenant, frontier)
        frontier = sorted({child.group_id for children in below.values() for child in children} - seen)
        seen.update(frontier)
    return sorted(found.values(), key=lambda row: row.name)


async def _shown(connection: Connection, tenant: UUID, rows: Sequence[GroupRow]) -> list[GroupOut]:
    ids = [row.group_id for row in rows]
    contexts = await repository.contexts_of(connection, tenant, ids)
    children = await repository.children_of(connection, tenant, ids)
    tokens = await repository.fingerprints(connection, tenant, ids)
    return [
        GroupOut(
            name=row.name,
            description=row.description,
            contexts=[member.name for member in contexts.get(row.group_id, ())],
            groups=[child.name for child in children.get(row.group_id, ())],
            fingerprint=tokens[row.group_id],
        )
        for row in rows
    ]


def _outcome(before: GroupOut | None, after: GroupOut) -> Outcome:
    if before is None:
        return "created"
    same = (before.description, before.contexts, before.groups) == (after.description, after.contexts, after.groups)
    return "unchanged" if same else "replaced"


def _require_at_most(count: int, most: int, pointer: str) -> None:
    if count > most:
        raise StrataError(OVER_LIMIT, f"At most {most:,}; this would be {count:,}.", pointer=pointer)


def _require_low(links: Sequence[tuple[UUID, UUID]], pointer: str) -> None:
    """Raise ``conflict`` where groups hold each other in a circle, or are nested more than three tall."""
    below: dict[UUID, list[UUID]] = {}
    for group, child in links:
        below.setdefault(group, []).append(child)
    heights: dict[UUID, int] = {}
    for group in below:
        if _height(group, below, heights, 0) > MAX_STOREYS:
            detail = f"Groups are nested in a circle, or more than {MAX_STOREYS} tall."
            raise StrataError(CONFLICT, detail, pointer=pointer)


def _height(group: UUID, below: Mapping[UUID, Sequence[UUID]], heights: dict[UUID, int], depth: int) -> int:
    """Return how tall a group is; more than allowed is as good as endless, so a circle ends there."""
    if depth > MAX_STOREYS or group in heights:
        return heights.get(group, 1)
    tallest = max((_height(child, below, heights, depth + 1) for child in below.get(group, ())), default=0) + 1
    if depth == 0:
        heights[group] = tallest
    return tallest


def _exists(name: str, pointer: str = "/name") -> StrataError:
    return StrataError(GROUP_EXISTS, f"There is a group named {name!r} already.", pointer=pointer)


def _lock_key(tenant: UUID) -> int:
    digest = hashlib.blake2b(tenant.bytes + b"groups", digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
