"""Write what was built: each batch in one transaction, old revisions out and new ones in."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from uuid import UUID

import asyncpg
import numpy as np
import stamina
import structlog

from strata.embeddings.service import EmbeddingService
from strata.errors import CONFLICT, DATABASE_UNAVAILABLE, OVERLOADED, STATEMENT_TIMEOUT, StrataError
from strata.hints.derive import SourceHints
from strata.hints.service import HintService
from strata.knowledge.service import ContextService
from strata.lanes.lexical.repository import add_segment, kill_sources
from strata.lanes.lexical.segment import SegmentData, merge_segments
from strata.platform.database import Connection, Database
from strata.platform.ids import ORDINALS, SERIAL_BITS, new_id
from strata.sources import revision_repository as revisions
from strata.sources import write_repository as repository
from strata.sources.build import Batch, failed, log_defect
from strata.sources.discover import refusal
from strata.sources.model import Built, Known, Refused, Same
from strata.sources.repository import Gone
from strata.sources.write_repository import Placed

_TIMEOUT_SECONDS = 120.0
_TRIES_SECONDS, _PATIENT_TRIES_SECONDS = 60.0, 600.0
T = TypeVar("T")

# What one document can make the server say. Anything else it says would be said of every document.
_OF_A_DOCUMENT = (asyncpg.DataError, asyncpg.ProgramLimitExceededError, asyncpg.IntegrityConstraintViolationError)
_OF_THE_SERVER = (
    asyncpg.InvalidTransactionStateError,  # read-only, as after a failover
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
)

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Written:
    """What a transaction did: sources with their revision, and those that another writer had brought in already."""

    placed: list[tuple[Placed, int]] = field(default_factory=list)
    same: list[Same] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


class FactKeeper(Protocol):
    """Keeps the facts that sources assert."""

    async def hold(self, connection: Connection, tenant: UUID, context_id: UUID) -> None:
        """Keep other writers of a context's facts out, before any source is locked."""

    async def forget_sources(
        self, connection: Connection, tenant: UUID, context_id: UUID, sources: Sequence[str]
    ) -> object:
        """Forget what sources assert, in the caller's unit of work."""


class Store:
    """Writes batches of built sources into one context at a time, archives and deletes sources.

    ``revisions_kept`` is how many earlier revisions of a source stay when it is replaced, None for all.
    """

    def __init__(
        self,
        database: Database,
        contexts: ContextService,
        hints: HintService,
        embeddings: EmbeddingService,
        facts: FactKeeper | None = None,
        *,
        revisions_kept: int | None = None,
    ) -> None:
        self._database = database
        self._contexts = contexts
        self._hints = hints
        self._embeddings = embeddings
        self._facts = facts
        self._revisions_kept = revisions_kept

    async def write(self, tenant: UUID, context: UUID, batch: Batch, *, is_patient: bool) -> Written:
        """Write a batch; readers see all of it or nothing.

        A conflict is tried again, a database that is away, slow or overloaded too when ``is_patient``.
        When one document makes the batch fail, its halves are written, and so on until that one is
        alone and refused.
        Raises what remains: ``context_not_found`` when the context was deleted meanwhile, and what
        is wrong with the database, not with a document.
        """

        async def attempt() -> Written:
            try:
                async with self._database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
                    return await self.replace(connection, tenant, context, batch)
            except _OF_THE_SERVER as error:
                detail = f"It takes no writes now: {error}"
                raise StrataError(DATABASE_UNAVAILABLE, detail) from error

        try:
            return await _retried(attempt, is_patient=is_patient)
        except StrataError:
            raise
        except Exception as error:
            if not _is_of_a_document(error):
                raise
            if len(batch.built) == 1:
                log_defect("ingest.store_failed", error, format=batch.built[0].format)
                return Written(refused=[_refused(batch.built[0], error)])
        middle = len(batch.built) // 2
        first = await self.write(tenant, context, _part(batch, 0, middle), is_patient=is_patient)
        second = await self.write(tenant, context, _part(batch, middle, len(batch.built)), is_patient=is_patient)
        return Written(first.placed + second.placed, first.same + second.same, first.refused + second.refused)

    async def known(self, tenant: UUID, context: UUID, paths: Sequence[str], *, is_patient: bool) -> dict[str, Known]:
        """Return what stands under the paths now."""

        async def attempt() -> dict[str, Known]:
            async with self._database.work(tenant) as connection:
                return await repository.known(connection, tenant, context, paths)

        return await _retried(attempt, is_patient=is_patient)

    async def set_origins(
        self, tenant: UUID, context: UUID, moved: Sequence[tuple[UUID, str]], *, is_patient: bool
    ) -> None:
        """Say which ingest root found unchanged sources last."""

        async def attempt() -> None:
            async with self._database.work(tenant) as connection:
                await repository.set_origins(connection, tenant, context, moved)

        await _retried(attempt, is_patient=is_patient)

    async def refresh_statistics(self) -> None:
        """Let the planner see the rows that a run has written to tables it has no statistics of.

        Until autovacuum comes by, an empty table's plans are kept: each reference to a source would
        be checked by walking the whole context. Needs the owner's rights; without them Postgres warns and skips.
        """
        try:
            async with self._database.owner() as connection:
                await repository.analyse(connection)
        except StrataError as error:
            _log.info("ingest.statistics_skipped", code=error.code)

    async def hold(self, connection: Connection, tenant: UUID, context: UUID) -> None:
        """Keep a context and its facts for this unit of work: the first of all locks of who deletes sources.

        Raises ``context_not_found``.
        """
        await self._contexts.hold(connection, tenant, context)
        if self._facts is not None:
            await self._facts.hold(connection, tenant, context)

    async def _hold_asserting(
        self, connection: Connection, tenant: UUID, context: UUID, paths: Sequence[str]
    ) -> Sequence[str]:
        """Lock the paths, before them the facts where any path asserts some; return those that do.

        Raises ``conflict`` where one came to between the two: to wait for the facts with paths locked
        would be to wait in a circle with an import. A second try finds it at once.
        """
        await self._contexts.hold(connection, tenant, context)
        is_held = self._facts is not None and bool(await repository.asserting(connection, tenant, context, paths))
        if self._facts is not None and is_held:
            await self._facts.hold(connection, tenant, context)
        await self.lock(connection, tenant, context, paths)
        asserting = [] if self._facts is None else await repository.asserting(connection, tenant, context, paths)
        if asserting and not is_held:
            raise StrataError(CONFLICT, "Facts of a source came in at the moment in which it is replaced.")
        return asserting

    async def lock(self, connection: Connection, tenant: UUID, context: UUID, paths: Iterable[str]) -> None:
        """Keep the context, and all other writers of the paths out, until the unit of work ends.

        Raises ``context_not_found``.
        """
        await self._contexts.hold(connection, tenant, context)
        await repository.lock_paths(connection, _lock_keys(context, paths))

    async def remove(
        self,
        connection: Connection,
        tenant: UUID,
        context: UUID,
        gone: Sequence[Gone],
        *,
        archived: Iterable[str] = (),
        keeps_facts: bool = False,
    ) -> None:
        """Delete locked sources, and the locked paths of archived ones, with all their revisions.

        Text, hints, postings and vectors go and, unless kept, the facts they assert. Who does not keep
        the facts has called :meth:`hold` before anything was locked.
        """
        paths = [*(source.path for source in gone), *archived]
        if paths:
            await revisions.delete(connection, tenant, context, paths)
            await self._take_away(connection, tenant, context, gone, paths, keeps_facts=keeps_facts)

    async def archive(self, connection: Connection, tenant: UUID, context: UUID, gone: Sequence[Gone]) -> None:
        """Take locked sources away as :meth:`remove` does, except that their revisions stay, the current one too."""
        if gone:
            await revisions.retire(connection, tenant, context, [one.source_id for one in gone], is_archived=True)
            await self._take_away(connection, tenant, context, gone, [one.path for one in gone])

    async def _take_away(
        self,
        connection: Connection,
        tenant: UUID,
        context: UUID,
        gone: Sequence[Gone],
        paths: Sequence[str],
        *,
        keeps_facts: bool = False,
    ) -> None:
        if gone:
            ids, serials = [source.source_id for source in gone], [source.serial for source in gone]
            await kill_sources(connection, tenant, context, serials)
            await self._hints.remove_for_sources(connection, tenant, context, ids)
            await repository.delete_sources(connection, tenant, context, ids)
            await self._embeddings.remove(connection, tenant, context, serials)
        await self._contexts.bump_passages(connection, tenant, context)
        if not keeps_facts and self._facts is not None:
            await self._facts.forget_sources(connection, tenant, context, paths)

    async def _retire(self, connection: Connection, tenant: UUID, context: UUID, replaced: Sequence[Known]) -> None:
        """Keep the revisions of sources that are about to be replaced, as many as are to be kept."""
        if self._revisions_kept != 0:
            ids = [source.source_id for source in replaced]
            await revisions.retire(connection, tenant, context, ids, is_archived=False)

    async def _count_on(
        self, connection: Connection, tenant: UUID, context: UUID, placed: Sequence[Placed], archived: Iterable[str]
    ) -> dict[UUID, int]:
        """Bring archived sources back, and drop more revisions than are to be kept.

        Returns the revisions of those that were brought back.
        """
        back = list(archived)
        numbers = await revisions.revive(connection, tenant, context, back) if back else {}
        if self._revisions_kept is not None:
            paths = [item.source.path for item in placed]
            await revisions.thin(connection, tenant, context, paths, self._revisions_kept)
        return numbers

    async def replace(
        self, connection: Connection, tenant: UUID, context: UUID, batch: Batch, *, keeps_facts: bool = False
    ) -> Written:
        """Write a batch in the caller's unit of work; what replaced sources asserted goes unless it is kept.

        Locks in one order, the same for every writer: context, facts, paths, rows, segments, spaces, revision.
        """
        paths = [source.path for source in batch.built]
        asserting: Sequence[str] = []
        if keeps_facts:
            await self.lock(connection, tenant, context, paths)
        else:
            asserting = await self._hold_asserting(connection, tenant, context, paths)
        known = await repository.lock_known(connection, tenant, context, paths)
        fresh = [number for number, source in enumerate(batch.built) if not _is_same(source, known.get(source.path))]
        same = [
            Same(source.path, known[source.path], source.origin, source.size)
            for source in batch.built
            if _is_same(source, known.get(source.path))
        ]
        if not fresh:
            return Written(same=same)
        serials = await repository.next_serials(connection, len(fresh))
        ids = {path: old.source_id for path, old in known.items()}
        added = [path for number in fresh if (path := batch.built[number].path) not in known]
        archived = await revisions.lock_archived(connection, tenant, context, added) if added else {}
        ids |= archived
        placed = [
            Placed(source, ids.get(source.path) or new_id(), serial)
            for source, serial in zip((batch.built[number] for number in fresh), serials, strict=True)
        ]
        replaced = [known[item.source.path] for item in placed if item.source.path in known]
        successors = {known[item.source.path].serial: item.serial for item in placed if item.source.path in known}
        remembered = await self._embeddings.remember(connection, tenant, context, list(successors))
        if replaced:
            await self._retire(connection, tenant, context, replaced)
            await repository.clear(connection, tenant, context, [old.source_id for old in replaced])
            await kill_sources(connection, tenant, context, [old.serial for old in replaced])
        numbers = await repository.put_sources(connection, tenant, context, placed)
        numbers |= await self._count_on(connection, tenant, context, placed, archived)
        await repository.insert_content(connection, tenant, context, placed)
        await repository.insert_sections(connection, tenant, context, placed)
        await repository.insert_passages(connection, tenant, context, placed, SERIAL_BITS)
        await repository.insert_questions(connection, tenant, context, placed)
        await repository.insert_relations(connection, tenant, context, placed)
        for segment in numbered(batch.segments, dict(zip(fresh, serials, strict=True))):
            await add_segment(connection, tenant, context, segment)
        await self._hints.replace_for_sources(connection, tenant, context, [_offered(item) for item in placed])
        carried = await self._embeddings.replace(connection, tenant, context, remembered, successors)
        passages = [(item.serial, len(item.source.passages)) for item in placed]
        await self._embeddings.enqueue(connection, tenant, context, passages, carried)
        languages = {item.source.analysed_as for item in placed}
        await self._contexts.bump_passages(connection, tenant, context, sorted(languages))
        changed = {item.source.path for item in placed} & known.keys()
        if self._facts is not None and changed.intersection(asserting):
            await self._facts.forget_sources(connection, tenant, context, sorted(changed.intersection(asserting)))
        return Written([(item, numbers[item.source_id]) for item in placed], same)


async def _retried(attempt: Callable[[], Awaitable[T]], *, is_patient: bool) -> T:
    """Try again after a conflict, and after a database that is away, slow or overloaded when patient."""
    kinds = (CONFLICT, DATABASE_UNAVAILABLE, OVERLOADED, STATEMENT_TIMEOUT) if is_patient else (CONFLICT,)
    # A statement that timed out has used two minutes of these already.
    seconds = _PATIENT_TRIES_SECONDS if is_patient else _TRIES_SECONDS

    def passes(error: Exception) -> bool:
        return isinstance(error, StrataError) and error.kind in kinds

    async for trial in stamina.retry_context(on=passes, attempts=8, timeout=seconds, wait_initial=0.05, wait_max=10):
        with trial:
            return await attempt()
    raise AssertionError("the last trial returns or raises")


def _is_of_a_document(error: Exception) -> bool:
    """Tell whether one document can have caused an error: bad data, or a defect of ours that it brought out."""
    if isinstance(error, asyncpg.PostgresError):
        return isinstance(error, _OF_A_DOCUMENT)
    return not isinstance(error, OSError)


def numbered(segments: Iterable[SegmentData], serials: dict[int, int]) -> Iterator[SegmentData]:
    """Give the passages of a batch's segments their ids; sources without a serial are left out.

    ``serials`` maps a source's place in the batch to its serial; both rise together, so the order
    of the passages stays.
    """
    table = np.full(max(serials) + 1, -1, np.int64)
    table[list(serials)] = list(serials.values())
    for segment in segments:
        places = segment.passage_ids >> SERIAL_BITS
        dead = (places >= len(table)) | (table[np.minimum(places, len(table) - 1)] < 0)
        kept = merge_segments([(segment, dead)]).data if dead.any() else segment
        if not len(kept.passage_ids):
            continue
        ids = (table[kept.passage_ids >> SERIAL_BITS] << SERIAL_BITS) | (kept.passage_ids & ORDINALS)
        yield SegmentData(ids, kept.lengths, kept.terms, kept.starts, kept.locals_, kept.frequencies)


def _part(batch: Batch, start: int, stop: int) -> Batch:
    """Return some of a batch's sources, with their passages numbered from the first of them."""
    places = {place: place - start for place in range(start, stop)}
    return Batch(built=batch.built[start:stop], segments=tuple(numbered(batch.segments, places)))


def _offered(placed: Placed) -> tuple[UUID, SourceHints]:
    source = placed.source
    return placed.source_id, SourceHints(
        path=source.path,
        title=source.title,
        category=source.category,
        sections=[(section.heading, section.anchor, section.breadcrumb) for section in source.sections[1:]],
        front_matter=source.metadata,
    )


def _is_same(source: Built, known: Known | None) -> bool:
    return (
        known is not None and known.content_sha256 == source.content_sha256 and known.fingerprint == source.fingerprint
    )


def _lock_keys(context: UUID, paths: Iterable[str]) -> list[int]:
    """Return the advisory locks of paths, sorted: one for each of 256 classes of them, as locks are few."""
    classes = {hashlib.blake2b(path.encode(), digest_size=1).digest() for path in paths}
    digests = (hashlib.blake2b(context.bytes + part, digest_size=8).digest() for part in classes)
    return sorted(int.from_bytes(digest, "little", signed=True) for digest in digests)


def _refused(source: Built, error: Exception) -> Refused:
    return refusal(source.path, failed(error), "store", pointer=source.pointer, size=source.size)
