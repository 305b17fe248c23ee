"""Embeddings: which vectors a context has, and everything that makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from strata.embeddings import passage_repository, queue_repository, repository, upkeep_repository
from strata.embeddings.background import Background
from strata.embeddings.carry import NOTHING_CARRIED, Carried, KeyedPassage, matched
from strata.embeddings.model import (
    EMBED,
    ITEM_PASSAGES,
    ActiveSpace,
    EmbedderSource,
    Failure,
    embed_payloads,
    fill_payload,
    ranges_of,
)
from strata.embeddings.run import Run
from strata.embeddings.schemas import ContextEmbeddings, EmbeddingsStatus, RunProgress, RunReport
from strata.embeddings.status import configured_view, context_view
from strata.embeddings.upkeep import Facts, Upkeep, open_space, survey
from strata.embeddings.worker import EmbeddingWorker
from strata.errors import CONFLICT, INVALID_SETTING, StrataError
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.lanes.vector.repository import delete_vectors
from strata.platform import work_repository
from strata.platform.database import Connection, Database
from strata.platform.work import DEFAULT_POLICY, WorkPolicy
from strata.providers.embeddings.embedders import EmbedderDescription
from strata.settings import Settings

_REBUILD_TIMEOUT_SECONDS = 120.0


class EmbeddingService:
    """The vectors of each context's passages, made behind the writers from a durable queue."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        contexts: ContextService,
        embedders: EmbedderSource,
        policy: WorkPolicy = DEFAULT_POLICY,
    ) -> None:
        self._database = database
        self._settings = settings
        self._contexts = contexts
        self._embedders = embedders
        self._policy = policy
        self._upkeep = Upkeep(database, contexts, exact_limit=settings.vector_exact_limit, is_on=self.is_on)
        self._background = Background(self._worker, self._upkeep)

    @property
    def is_on(self) -> bool:
        """Tell whether this process embeds at all."""
        return self._embedders.mode != "none"

    async def enqueue(
        self,
        connection: Connection,
        tenant: UUID,
        context: UUID,
        placed: Iterable[tuple[int, int]],
        carried: Carried = NOTHING_CARRIED,
    ) -> None:
        """Have the passages of new sources embedded, in the transaction that stores them, but those ``carried``.

        ``placed`` gives the serial of each source and how many passages it has. They go to the active and the
        building space. A context without a space gets one by the first worker that has the embedder: the
        embedder is never waited for here. Holds nothing but the rows that it adds; call :meth:`wake` after
        the commit.
        """
        ranges = [(serial, 0, count) for serial, count in placed if count]
        if not ranges:
            return
        spaces = await repository.open_spaces(connection, tenant, context)
        payloads = [
            payload
            for space_id, _ in spaces
            for payload in embed_payloads(space_id, ranges_of(carried.lacking(space_id, ranges)))
        ]
        if payloads:
            await work_repository.add(connection, tenant, context, EMBED, payloads)
        if self.is_on and not any(state == "active" for _, state in spaces):
            await queue_repository.want_space(connection, tenant, context, fill_payload(None))

    async def remember(
        self, connection: Connection, tenant: UUID, context: UUID, serials: Sequence[int]
    ) -> list[KeyedPassage]:
        """Return the passages of sources that are about to be replaced, where some space may hold their vectors."""
        if not serials or not await repository.open_spaces(connection, tenant, context):
            return []
        return await passage_repository.keyed_passages(connection, tenant, context, serials)

    async def replace(
        self,
        connection: Connection,
        tenant: UUID,
        context: UUID,
        remembered: Sequence[KeyedPassage],
        successors: Mapping[int, int],
    ) -> Carried:
        """Give the vectors of replaced sources to the passages that are embedded from the same text; delete the others.

        In the transaction that replaces them, when the new passages are stored. ``successors`` gives the new
        serial for each old one. Returns what needs no embedding.
        """
        if not successors:
            return NOTHING_CARRIED
        moved: dict[int, set[int]] = {}
        if remembered:
            stored = await passage_repository.keyed_passages(connection, tenant, context, list(successors.values()))
            pairs = matched(remembered, stored, successors)
            spaces = [space_id for space_id, _ in await repository.open_spaces(connection, tenant, context)]
            moved = await passage_repository.move_vectors(connection, tenant, context, spaces, pairs) if pairs else {}
        await self._remove(connection, tenant, context, list(successors), moved)
        return Carried(moved)

    async def remove(self, connection: Connection, tenant: UUID, context: UUID, serials: Sequence[int]) -> None:
        """Delete the vectors of sources in the transaction that deletes them; the sources are locked."""
        if serials:
            await self._remove(connection, tenant, context, serials, {})

    async def active(self, connection: Connection, tenant: UUID, contexts: Sequence[UUID]) -> dict[UUID, ActiveSpace]:
        """Return the active space of each context that has one; one statement."""
        return await repository.active_spaces(connection, tenant, contexts)

    async def status(self, tenant: UUID) -> EmbeddingsStatus:
        """Return how every context is embedded, by name."""
        description = await self._describe()
        async with self._database.work(tenant, snapshot=True) as connection:
            rows = await self._contexts.rows(connection, tenant)
            views = await self._views(connection, tenant, rows, None, description)
        return EmbeddingsStatus(configured=configured_view(description), contexts=views)

    async def context_status(self, tenant: UUID, ref: str) -> ContextEmbeddings:
        """Return how one context is embedded; raises ``context_not_found``."""
        description = await self._describe()
        async with self._database.work(tenant, snapshot=True) as connection:
            row = await self._contexts.resolve(connection, tenant, ref)
            return (await self._views(connection, tenant, [row], row.context_id, description))[0]

    async def run(
        self,
        tenant: UUID,
        ref: str | None = None,
        progress: Callable[[RunProgress], None] | None = None,
        *,
        retries_failed: bool = False,
    ) -> RunReport:
        """Embed until nothing waits in one context, or in any; other workers may take part.

        ``retries_failed`` tries again what had failed for good. What no embedder here can do is left. May be
        broken off at any moment: what was stored stays, the rest waits. Raises ``invalid_setting`` when
        embeddings are off, and ``embedding_unavailable`` when the provider stays away.
        """
        self._require_on()
        context = await self._resolved(tenant, ref)
        if retries_failed:
            async with self._database.work(tenant) as connection:
                await work_repository.revive(connection, tenant, EMBED, context)
        return await Run(self._database, self._worker(), self._upkeep, progress).through(tenant, context)

    async def rebuild(self, tenant: UUID, ref: str, *, force: bool = False) -> ContextEmbeddings:
        """Begin to embed a context in the configured space, beside the one it is searched in.

        The new space takes over by itself when it is complete. One that is being built for the configured
        embedder already goes on, one for another is given up. Raises ``conflict`` when the active space is the
        configured one, unless ``force`` embeds into a fresh one all the same.
        """
        self._require_on()
        embedder = await self._embedders.configured()
        if embedder is None:
            raise _off()
        space = embedder.space
        async with self._database.work(tenant, timeout_seconds=_REBUILD_TIMEOUT_SECONDS) as connection:
            row = await self._contexts.resolve(connection, tenant, ref)
            context = row.context_id
            await self._contexts.hold_alone(connection, tenant, context)
            spaces = {each.state: each for each in await repository.lock_spaces(connection, tenant, context)}
            active, building = spaces.get("active"), spaces.get("building")
            is_current = active is not None and active.space.fingerprint == space.fingerprint
            goes_on = building is not None and building.space.fingerprint == space.fingerprint
            if building is not None and not goes_on:
                await repository.set_state(connection, tenant, context, building.space_id, "retired")
                await queue_repository.drop_work(connection, tenant, context, building.space_id)
            elif is_current and not force and not goes_on:
                raise StrataError(
                    CONFLICT,
                    f"The context {row.name!r} is embedded by {space.model} ({space.dimension} dimensions) already.",
                    remedy="Set another embedder first, or rebuild all the same with --force.",
                )
            if active is None:
                await open_space(connection, tenant, context, space, "active")
            elif not goes_on and (force or not is_current):
                await open_space(connection, tenant, context, space, "building")
        self.wake()
        return await self.context_status(tenant, str(context))

    def start_background(self, tenant: UUID) -> None:
        """Embed behind this process with STRATA_EMBEDDINGS_WORKERS tasks, until :meth:`close`."""
        if self.is_on:
            self._background.start(tenant, self._settings.embeddings_workers)

    def wake(self) -> None:
        """Let the workers of this process look for work now; without any it does nothing."""
        self._background.wake()

    async def settle(self) -> None:
        """Wait until the workers of this process have found nothing to do."""
        await self._background.settle()

    async def close(self) -> None:
        """Stop the workers; what they hold goes back to the queue. Safe to call again."""
        await self._background.close()

    async def _remove(
        self,
        connection: Connection,
        tenant: UUID,
        context: UUID,
        serials: Sequence[int],
        moved: Mapping[int, set[int]],
    ) -> None:
        removed = await delete_vectors(connection, tenant, context, serials)
        if removed or moved:
            numbers = {space_id: len(passages) for space_id, passages in moved.items()}
            await repository.count_removed(connection, tenant, context, removed, numbers)

    def _worker(self) -> EmbeddingWorker:
        texts = self._settings.embeddings_batch * self._settings.embeddings_concurrency
        items = max(1, min(32, texts // ITEM_PASSAGES))
        return EmbeddingWorker(self._database, self._contexts, self._embedders, self._policy, items)

    async def _resolved(self, tenant: UUID, ref: str | None) -> UUID | None:
        if ref is None:
            return None
        async with self._database.work(tenant) as connection:
            return (await self._contexts.resolve(connection, tenant, ref)).context_id

    async def _describe(self) -> EmbedderDescription:
        """Describe the configured embedder, opened if that does not take long: else its space may not be known."""
        description = self._embedders.describe()
        if description.space is None and description.mode != "none":
            try:
                await asyncio.wait_for(self._embedders.configured(), self._settings.embeddings_query_timeout_seconds)
            except (StrataError, TimeoutError):
                return self._embedders.describe()
            description = self._embedders.describe()
        return description

    async def _views(
        self,
        connection: Connection,
        tenant: UUID,
        rows: Sequence[ContextRow],
        context: UUID | None,
        description: EmbedderDescription,
    ) -> list[ContextEmbeddings]:
        facts = {each.context_id: each for each in await survey(connection, tenant, context)}
        failures: dict[UUID, list[Failure]] = {}
        for failure in await queue_repository.failures(connection, tenant, context):
            failures.setdefault(failure.context_id, []).append(failure)
        is_owner = await upkeep_repository.owns_vectors(connection)
        return [
            context_view(
                row,
                facts.get(row.context_id) or Facts(row.context_id, 0, (), {}, {}),
                failures.get(row.context_id, ()),
                description,
                exact_limit=self._settings.vector_exact_limit,
                is_owner=is_owner,
            )
            for row in rows
        ]

    def _require_on(self) -> None:
        if not self.is_on:
            raise _off()


def _off() -> StrataError:
    return StrataError(
        INVALID_SETTING,
        "Embeddings are off: STRATA_EMBEDDINGS is none.",
        pointer="STRATA_EMBEDDINGS",
        remedy="Set STRATA_EMBEDDINGS to auto, local, endpoint or a folder.",
    )
