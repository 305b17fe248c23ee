"""What a context's spaces need when their work is done: to be filled, to take over, to go, to be indexed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import asyncpg
import structlog

from strata.embeddings import passage_repository, queue_repository, repository, upkeep_repository
from strata.embeddings.model import FILL, SpaceRow, State, WorkCounts, fill_payload
from strata.errors import CONTEXT_NOT_FOUND, StrataError
from strata.knowledge.service import ContextService
from strata.lanes.vector.index_repository import create_index, drop_index, index_is_valid, rebuild_index
from strata.lanes.vector.repository import delete_space as delete_some_vectors
from strata.platform import work_repository
from strata.platform.database import Connection, Database
from strata.providers.embeddings.base import EmbeddingSpace

REBUILD_SHARE = 10
"""An index is built anew once more than one in so many of its vectors were removed."""

_FAILED_SHARE = 100
"""A space takes over although one passage in so many could not be embedded."""

_DROP_BATCH = 5_000
_STRAYS_PER_ROUND = 16
_TIMEOUT_SECONDS = 300.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Facts:
    """Where the spaces of one context stand: passages, spaces by number, their work, passages that failed."""

    context_id: UUID
    passages: int
    spaces: Sequence[SpaceRow]
    work: dict[int | None, WorkCounts]
    failed: dict[int, int]

    def space(self, state: State) -> SpaceRow | None:
        """Return the space in a state; the oldest of several retired ones."""
        return next((space for space in self.spaces if space.state == state), None)

    def pending(self, space_id: int | None) -> int:
        """Return how many items something will still come of; for None those that make the first space."""
        return self.work.get(space_id, WorkCounts()).pending

    def lacking(self, space: SpaceRow) -> int:
        """Return how many passages have neither a vector nor failed."""
        return max(0, self.passages - space.vectors - self.failed.get(space.space_id, 0))


async def survey(connection: Connection, tenant: UUID, context: UUID | None = None) -> list[Facts]:
    """Return where one context stands, or all that have passages or spaces, by id; best in a snapshot."""
    spaces = await repository.spaces(connection, tenant, context)
    passages = await passage_repository.passage_counts(connection, tenant, context)
    work = await queue_repository.work_counts(connection, tenant, context)
    failures = await queue_repository.failures(connection, tenant, context)
    found = []
    for identifier in sorted({*passages, *(space.context_id for space in spaces)}):
        failed: dict[int, int] = {}
        for failure in failures:
            if failure.context_id == identifier:
                failed[failure.space_id] = failed.get(failure.space_id, 0) + len(failure.ordinals)
        found.append(
            Facts(
                identifier,
                passages.get(identifier, 0),
                [space for space in spaces if space.context_id == identifier],
                {key[1]: counts for key, counts in work.items() if key[0] == identifier},
                failed,
            )
        )
    return found


async def open_space(
    connection: Connection, tenant: UUID, context: UUID, space: EmbeddingSpace, state: State
) -> int | None:
    """Make a space and the work that fills it; None when the context has one of that state. Holds the context alone."""
    made = await repository.insert_space(connection, tenant, context, space, state)
    last = await passage_repository.last_passage(connection, tenant, context) if made is not None else None
    if last is not None:
        await work_repository.add(connection, tenant, context, FILL, [fill_payload(made, last)])
    return made


class Upkeep:
    """Looks after the spaces; several processes may, each thing is done by one."""

    def __init__(self, database: Database, contexts: ContextService, *, exact_limit: int, is_on: bool) -> None:
        self._database = database
        self._contexts = contexts
        self._exact_limit = exact_limit
        self._is_on = is_on
        self._has_warned = False

    async def run(self, tenant: UUID, context: UUID | None = None) -> bool:
        """Do what is due; True when there is new work to take, or more to look after."""
        async with self._database.work(tenant, snapshot=True, timeout_seconds=_TIMEOUT_SECONDS) as connection:
            facts = await survey(connection, tenant, context)
        async with self._database.work(tenant) as connection:
            await queue_repository.forget_failures(connection, tenant, context)
        is_more = False
        for each in facts:
            try:
                is_more |= await self._context(tenant, each)
            except StrataError as error:
                if error.kind is not CONTEXT_NOT_FOUND:
                    raise
        if context is None:
            await self._drop_strays(tenant)
        return is_more

    async def _context(self, tenant: UUID, facts: Facts) -> bool:
        is_more = await self._first(tenant, facts)
        for space in facts.spaces:
            if space.state == "retired":
                await self._drop(tenant, space)
            elif facts.pending(space.space_id):
                continue
            elif facts.lacking(space):
                is_more |= await self._refill(tenant, space, facts)
            elif await self._index_is_other(tenant, space):
                is_more = True
            else:
                await self._index(tenant, space)
                if space.state == "building":
                    is_more |= await self._switch(tenant, space)
        return is_more

    async def _first(self, tenant: UUID, facts: Facts) -> bool:
        if not self._is_on or facts.space("active") or not facts.passages or facts.pending(None):
            return False
        async with self._database.work(tenant) as connection:
            await self._contexts.hold(connection, tenant, facts.context_id)
            await queue_repository.want_space(connection, tenant, facts.context_id, fill_payload(None))
        return True

    async def _refill(self, tenant: UUID, space: SpaceRow, facts: Facts) -> bool:
        """Look for passages that were missed: by an ingest of a process that knew of no space, or by a crash."""
        context = space.context_id
        async with self._database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
            await self._contexts.hold(connection, tenant, context)
            await repository.lock_spaces(connection, tenant, context)
            vectors = await repository.recount(connection, tenant, context, space.space_id)
            passages = (await passage_repository.passage_counts(connection, tenant, context)).get(context, 0)
            if vectors + facts.failed.get(space.space_id, 0) >= passages:
                return vectors != space.vectors
            await work_repository.add(connection, tenant, context, FILL, [fill_payload(space.space_id)])
        return True

    async def _switch(self, tenant: UUID, space: SpaceRow) -> bool:
        """Make a building space the active one, if nothing is wanting still, and retire the active; one transaction."""
        context = space.context_id
        async with self._database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
            await self._contexts.hold(connection, tenant, context)
            locked = await repository.lock_spaces(connection, tenant, context)
            facts = next(iter(await survey(connection, tenant, context)), None)
            now = next((each for each in locked if each.space_id == space.space_id), None)
            if facts is None or now is None or now.state != "building" or not _is_complete(facts, now):
                return False
            before = next((each for each in locked if each.state == "active"), None)
            if before is not None:
                await repository.set_state(connection, tenant, context, before.space_id, "retired")
                await queue_repository.drop_work(connection, tenant, context, before.space_id)
            await repository.set_state(connection, tenant, context, space.space_id, "active")
            await self._contexts.bump_config(connection, tenant, context)
        _log.info("embeddings.switched", context=str(context), space=space.space_id, model=space.space.model)
        return True

    async def _drop(self, tenant: UUID, space: SpaceRow) -> None:
        """Drop what is left of a retired space, a batch a transaction."""
        if space.indexed_at is not None:
            await self._change_index(tenant, space, wants_index=False)
        context, space_id = space.context_id, space.space_id
        while True:
            async with self._database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
                if not await delete_some_vectors(connection, tenant, context, space_id, limit=_DROP_BATCH):
                    await queue_repository.drop_work(connection, tenant, context, space_id)
                    await repository.delete_space(connection, tenant, context, space_id)
                    return

    async def _index_is_other(self, tenant: UUID, space: SpaceRow) -> bool:
        """Say of an index what is: a crash left it invalid, or an administrator made or dropped it."""
        async with self._database.work(tenant) as connection:
            stands = await index_is_valid(connection, space.space_id)
            if stands == (space.indexed_at is not None):
                return False
            await repository.set_indexed(connection, tenant, space.context_id, space.space_id, is_indexed=stands)
        return True

    async def _index(self, tenant: UUID, space: SpaceRow) -> None:
        """Build the index of a space that is large and has none, or one with too much removed."""
        if wants_index(space, self._exact_limit):
            await self._change_index(tenant, space, wants_index=True)

    async def _change_index(self, tenant: UUID, space: SpaceRow, *, wants_index: bool) -> None:
        """Build, rebuild or drop an index by the rights of the owner, while no other worker does."""
        async with self._database.work(tenant) as connection:
            is_owner = await upkeep_repository.owns_vectors(connection)
        if not is_owner:
            if not self._has_warned:
                _log.warning("embeddings.index_needs_owner", space=space.space_id)
            self._has_warned = True
            return
        try:
            async with self._claimed(tenant, space.space_id) as owner:
                if owner is None:
                    return
                if wants_index:
                    await self._build(owner, tenant, space)
                else:
                    await self._set_indexed(tenant, space, is_indexed=False)
                    await drop_index(owner, space.space_id)
        except StrataError as error:
            # Searches go on as they were, and the next upkeep tries again.
            _log.warning("embeddings.index_not_changed", space=space.space_id, code=error.code, error=error.detail)

    async def _build(self, owner: asyncpg.Connection, tenant: UUID, space: SpaceRow) -> None:
        """Build the index of a space; one that stands answers until the new one does."""
        _log.info("embeddings.index_building", space=space.space_id, vectors=space.vectors)
        build = create_index if space.indexed_at is None else rebuild_index
        stands = await build(owner, space.space_id, space.space.dimension, vectors=space.vectors)
        await self._set_indexed(tenant, space, is_indexed=stands)

    async def _drop_strays(self, tenant: UUID) -> None:
        """Drop, one after the other, some of the indexes whose space went with its context.

        Only where the login role sees past row-level security: else spaces of other tenants would seem gone.
        """
        async with self._database.work(tenant) as connection:
            if not await upkeep_repository.stray_indexes(connection, 1):
                return
            if not await upkeep_repository.owns_vectors(connection):
                return
        try:
            async with self._database.owner() as owner:
                if not await upkeep_repository.sees_every_space(owner):
                    return
                strays = await upkeep_repository.stray_indexes(owner, _STRAYS_PER_ROUND)
            for space_id in strays:
                async with self._claimed(tenant, space_id) as owner:
                    if owner is not None:
                        await drop_index(owner, space_id)
                        _log.info("embeddings.index_dropped", space=space_id)
        except StrataError as error:
            _log.warning("embeddings.index_not_dropped", code=error.code, error=error.detail)

    @asynccontextmanager
    async def _claimed(self, tenant: UUID, space_id: int) -> AsyncIterator[asyncpg.Connection | None]:
        """Give an owner connection while this process alone looks after a space; None when another does."""
        async with (
            # The lock is one transaction's, on a connection of its own: no index is built in a transaction,
            # and a lock of a session would not pass a pool of connections.
            self._database.owner() as guard,
            guard.transaction(),
            self._database.owner() as owner,
        ):
            yield owner if await upkeep_repository.claim_upkeep(guard, tenant, space_id) else None

    async def _set_indexed(self, tenant: UUID, space: SpaceRow, *, is_indexed: bool) -> None:
        async with self._database.work(tenant) as connection:
            await repository.set_indexed(connection, tenant, space.context_id, space.space_id, is_indexed=is_indexed)


def wants_index(space: SpaceRow, exact_limit: int) -> bool:
    """Tell whether a space should have an index built: it is large and has none, or much of it was removed."""
    if space.indexed_at is None:
        return space.vectors >= max(1, exact_limit)
    return space.removed * REBUILD_SHARE > space.vectors


def _is_complete(facts: Facts, space: SpaceRow) -> bool:
    failed = facts.failed.get(space.space_id, 0)
    return not (facts.pending(space.space_id) or facts.lacking(space) or failed * _FAILED_SHARE > facts.passages)
