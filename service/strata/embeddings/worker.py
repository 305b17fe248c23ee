"""One worker of the queue: takes work, embeds outside of any transaction, stores in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import numpy as np
import structlog

from strata.embeddings import passage_repository, queue_repository, repository
from strata.embeddings.model import (
    EMBED,
    FILL,
    ITEM_PASSAGES,
    EmbedderSource,
    PassageText,
    SpaceRow,
    embed_payloads,
    fill_payload,
    passage_ids,
    ranges_of,
)
from strata.embeddings.upkeep import open_space
from strata.errors import CONTEXT_NOT_FOUND, EMBEDDING_REFUSED, EMBEDDING_UNAVAILABLE, StrataError
from strata.knowledge.service import ContextService
from strata.lanes.vector.repository import insert_vectors
from strata.platform import telemetry, work_repository
from strata.platform.database import Connection, Database
from strata.platform.ids import SERIAL_BITS
from strata.platform.work import WorkPolicy, WorkQueue
from strata.platform.work_repository import Item
from strata.providers.embeddings.base import Embedder, Vectors, checked
from strata.text.contextual import embedded_text

_FILL_PASSAGES = 64 * ITEM_PASSAGES
_UNSERVED_SECONDS = 60.0
_STORE_TIMEOUT_SECONDS = 60.0
_MISCONFIGURED = frozenset({401, 403, 404})
"""Statuses of a provider that speak of the key, the address or the model, and of no text."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Step:
    """What one step did.

    ``taken`` items were claimed; ``embedded`` and ``failed`` count passages. ``outage`` is why the provider
    could not be had, or would not have us: the items went back uncounted. ``unserved`` are spaces that no
    embedder here makes.
    """

    taken: int = 0
    embedded: int = 0
    failed: int = 0
    outage: StrataError | None = None
    unserved: set[int] = field(default_factory=set)


def _is_outage(error: StrataError) -> bool:
    """Tell whether no text would be embedded now: the provider is away, or its configuration wrong."""
    is_misconfigured = error.kind is EMBEDDING_REFUSED and error.extra.get("providerStatus") in _MISCONFIGURED
    return error.kind is EMBEDDING_UNAVAILABLE or is_misconfigured


def _is_of_the_text(error: StrataError) -> bool:
    """Tell whether it may be the text that was refused."""
    return error.kind is EMBEDDING_REFUSED and not _is_outage(error)


class _SpaceRetiredError(Exception):
    """The space takes no vectors any more: what was stored is rolled back."""


@dataclass(slots=True)
class _Embedded:
    """Passages with their vectors, and those that would not embed with the reason."""

    ids: list[int]
    vectors: Vectors
    refused: dict[int, str]


@dataclass(frozen=True, slots=True)
class _Group:
    """Items of one space that are seen through together."""

    tenant: UUID
    context: UUID
    space_id: int
    items: Sequence[Item]


class EmbeddingWorker:
    """Does one step of work at a time. Each worker has a name of its own; any number may run."""

    def __init__(
        self,
        database: Database,
        contexts: ContextService,
        embedders: EmbedderSource,
        policy: WorkPolicy,
        items_per_step: int = 4,
    ) -> None:
        self._database = database
        self._contexts = contexts
        self._embedders = embedders
        self._policy = policy
        self._limit = items_per_step
        self._queue = WorkQueue(database, EMBED, policy)
        self._fills = WorkQueue(database, FILL, policy)
        self._outages = 0

    async def step(self, tenant: UUID, context: UUID | None = None) -> Step:
        """Take some items and see them through; nothing taken means that nothing is due.

        Only a failure of the database is raised. Items taken are put back when the step is cancelled.
        """
        items = await self._queue.claim(tenant, self._limit, context)
        if items:
            async with self._queue.kept(tenant, items):
                return await self._embed(tenant, items)
        fills = await self._fills.claim(tenant, 1, context)
        if not fills:
            return Step()
        async with self._fills.kept(tenant, fills):
            return await self._fill(tenant, fills[0])

    def wait_seconds(self) -> float:
        """Return how long to wait after the failures in a row so far."""
        return self._policy.wait_seconds(self._outages)

    async def _embed(self, tenant: UUID, items: Sequence[Item]) -> Step:
        step = Step(taken=len(items))
        groups: dict[tuple[UUID, int], list[Item]] = {}
        for item in items:
            groups.setdefault((item.context_id, item.payload["space"]), []).append(item)
        waiting = [_Group(tenant, context, space_id, members) for (context, space_id), members in groups.items()]
        while waiting:
            try:
                await self._see_through(waiting[0], step)
            except StrataError as error:
                self._outages += 1
                step.outage = error if _is_outage(error) else None
                rest = [item for group in waiting for item in group.items]
                await self._queue.put_back(
                    tenant, rest, delay_seconds=self.wait_seconds(), error=f"{error.code}: {error.detail}"
                )
                if step.outage is None:
                    raise
                return step
            self._outages = 0
            del waiting[0]
        return step

    async def _see_through(self, group: _Group, step: Step) -> None:
        """Embed what the items of a group name, and finish them; raises what is the fault of none of them."""
        group = await self._without_worn_out(group, step)
        space, passages = await self._read(group)
        if space is None or not passages:
            await self._store(group, None, step)
            return
        embedder = await self._embedders.for_space(space.space)
        if embedder is None:
            step.unserved.add(group.space_id)
            reason = f"No embedder here makes vectors of {space.space.model} ({space.space.dimension} dimensions)."
            await self._queue.put_back(group.tenant, group.items, delay_seconds=_UNSERVED_SECONDS, error=reason)
            return
        try:
            embedded = await _embed_all(embedder, passages)
        except StrataError as error:
            if not _is_of_the_text(error):
                raise
            await self._retry(group, f"{error.code}: {error.detail}", step)
        except Exception as error:  # noqa: BLE001  a defect must not end the worker, nor the item be lost
            _log.exception("embeddings.defect", context=str(group.context), passages=len(passages))
            await self._retry(group, f"internal_error: {type(error).__name__}", step)
        else:
            await self._store(group, embedded, step)

    async def _read(self, group: _Group) -> tuple[SpaceRow | None, list[PassageText]]:
        """Return the space unless it is gone or retired, and what is to be embedded in it."""
        wanted = passage_ids(part for item in group.items for part in item.payload["ranges"])
        async with self._database.work(group.tenant, snapshot=True) as connection:
            space = await repository.space(connection, group.tenant, group.context, group.space_id)
            if space is None or space.state == "retired":
                return None, []
            ids = list(dict.fromkeys(wanted))
            return space, await passage_repository.texts(connection, group.tenant, group.context, group.space_id, ids)

    async def _retry(self, group: _Group, error: str, step: Step) -> None:
        """Give back items none of whose passages embed; count as failed those that are not tried again."""
        await self._queue.retry(group.tenant, group.items, error)
        last = [item for item in group.items if item.attempts >= self._policy.max_attempts]
        step.failed += sum(part[2] for item in last for part in item.payload["ranges"])

    async def _without_worn_out(self, group: _Group, step: Step) -> _Group:
        """Fail the items whose workers have died as often as an item is tried; return the others."""
        worn_out = [item for item in group.items if item.attempts > self._policy.max_attempts]
        for item in worn_out:
            reason = f"internal_error: Taken {item.attempts - 1} times and never finished."
            await self._queue.fail(group.tenant, item, reason)
            step.failed += sum(part[2] for part in item.payload["ranges"])
        return replace(group, items=[item for item in group.items if item not in worn_out])

    async def _store(self, group: _Group, embedded: _Embedded | None, step: Step) -> None:
        """Store the vectors of the passages that still stand and finish the items, in one transaction.

        Locks context, sources by id, space, work, in this order as every writer of a context does.
        """
        refused = embedded.refused if embedded else {}
        stored = 0
        try:
            async with self._database.work(group.tenant, timeout_seconds=_STORE_TIMEOUT_SECONDS) as connection:
                if embedded is not None and embedded.ids:
                    await self._contexts.hold(connection, group.tenant, group.context)
                    stored = await _put(connection, group, embedded)
                await _finish(connection, group, refused)
        except _SpaceRetiredError:
            await self._store(group, None, step)
        except StrataError as error:
            # With the context the items went too.
            if error.kind is not CONTEXT_NOT_FOUND:
                raise
        else:
            step.embedded += stored
            telemetry.count_embedded(stored)
            step.failed += len(refused)

    async def _fill(self, tenant: UUID, item: Item) -> Step:
        """Add the work for the next passages that a space lacks, making the space first where there is none."""
        step = Step(taken=1)
        try:
            if item.payload["space"] is None:
                await self._open_space(tenant, item)
            else:
                await self._fill_space(tenant, item)
            self._outages = 0
        except StrataError as error:
            if error.kind is CONTEXT_NOT_FOUND:
                return step
            self._outages += 1
            step.outage = error if _is_outage(error) else None
            await self._fills.put_back(
                tenant, [item], delay_seconds=self.wait_seconds(), error=f"{error.code}: {error.detail}"
            )
            if step.outage is None:
                raise
        return step

    async def _open_space(self, tenant: UUID, item: Item) -> None:
        embedder = await self._embedders.configured()
        async with self._database.work(tenant, timeout_seconds=_STORE_TIMEOUT_SECONDS) as connection:
            if embedder is not None:
                # Ingests under way end first, and later ones see the space: no passage falls between.
                await self._contexts.hold_alone(connection, tenant, item.context_id)
                await open_space(connection, tenant, item.context_id, embedder.space, "active")
            await work_repository.finish(connection, tenant, [item])

    async def _fill_space(self, tenant: UUID, item: Item) -> None:
        context, space_id = item.context_id, item.payload["space"]
        async with self._database.work(tenant, timeout_seconds=_STORE_TIMEOUT_SECONDS) as connection:
            await self._contexts.hold(connection, tenant, context)
            space = await repository.space(connection, tenant, context, space_id)
            if space is not None and space.state != "retired":
                last, lacking = await passage_repository.missing(
                    connection,
                    tenant,
                    context,
                    space_id,
                    after=item.payload["after"],
                    until=item.payload["until"],
                    limit=_FILL_PASSAGES,
                )
                known = {
                    failure.serial << SERIAL_BITS | ordinal
                    for failure in await queue_repository.failures(connection, tenant, context)
                    if failure.space_id == space_id
                    for ordinal in failure.ordinals
                }
                payloads = embed_payloads(space_id, ranges_of(set(lacking) - known))
                await work_repository.add(connection, tenant, context, EMBED, payloads)
                if last is not None:
                    rest = fill_payload(space_id, item.payload["until"], last)
                    await work_repository.add(connection, tenant, context, FILL, [rest])
            await work_repository.finish(connection, tenant, [item])


async def _put(connection: Connection, group: _Group, embedded: _Embedded) -> int:
    """Insert the vectors of passages whose source still stands, and count them; return how many are new."""
    serials = sorted({identifier >> SERIAL_BITS for identifier in embedded.ids})
    live = await passage_repository.lock_live(connection, group.tenant, group.context, serials)
    kept = [place for place, identifier in enumerate(embedded.ids) if identifier >> SERIAL_BITS in live]
    ids = [embedded.ids[place] for place in kept]
    target = (connection, group.tenant, group.context, group.space_id)
    stored = await insert_vectors(*target, ids, embedded.vectors[kept])
    if not await repository.count_stored(*target, stored):
        raise _SpaceRetiredError
    return stored


async def _finish(connection: Connection, group: _Group, refused: Mapping[int, str]) -> None:
    """Delete the items that are done; one with passages that would not embed stays as failed, reduced to them."""
    done = []
    for item in group.items:
        bad = [one for one in passage_ids(item.payload["ranges"]) if one in refused]
        if bad:
            payload = {"space": group.space_id, "ranges": ranges_of(bad)}
            await work_repository.fail(connection, group.tenant, item, refused[bad[0]], payload)
        else:
            done.append(item)
    await work_repository.finish(connection, group.tenant, done)


async def _embed_all(embedder: Embedder, passages: Sequence[PassageText]) -> _Embedded:
    """Embed passages together; one by one where that fails, so that one text does not stop the others.

    Raises what the batch raised when not one of them embeds: then it is not the text.
    """
    ids = [passage.passage_id for passage in passages]
    contents = [embedded_text(passage.title, passage.breadcrumb, passage.text) for passage in passages]
    try:
        return _Embedded(ids, await _embed(embedder, contents), {})
    except Exception as error:
        if len(passages) == 1 or (isinstance(error, StrataError) and not _is_of_the_text(error)):
            raise
        good, rows, refused = await _one_by_one(embedder, ids, contents)
        if not good:
            raise
        return _Embedded(good, np.concatenate(rows), refused)


async def _one_by_one(
    embedder: Embedder, ids: Sequence[int], contents: Sequence[str]
) -> tuple[list[int], list[Vectors], dict[int, str]]:
    good: list[int] = []
    rows: list[Vectors] = []
    refused: dict[int, str] = {}
    for identifier, content in zip(ids, contents, strict=True):
        try:
            rows.append(await _embed(embedder, [content]))
            good.append(identifier)
        except StrataError as error:
            if not _is_of_the_text(error):
                raise
            refused[identifier] = f"{error.code}: {error.detail}"
        except Exception as error:  # noqa: BLE001  whatever one text brings out, the others go on
            refused[identifier] = f"internal_error: {type(error).__name__}"
    return good, rows, refused


async def _embed(embedder: Embedder, contents: Sequence[str]) -> Vectors:
    rows = await embedder.embed_passages(contents)
    return checked(rows, count=len(contents), dimension=embedder.space.dimension)
