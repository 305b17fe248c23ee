"""Import, export and promotion: whole sources in and out of contexts, and texts stored by themselves."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain, islice
from typing import IO
from uuid import UUID

from msgspec import UNSET, to_builtins

from strata.errors import INVALID_REQUEST, OVER_LIMIT, SOURCE_NOT_FOUND, StrataError
from strata.exchange import repository
from strata.exchange.dump import SourceState, dump_group
from strata.exchange.exporting import batch_of, export_pieces, source_states
from strata.exchange.importing import SourceApplied, SourceImporter, text_of
from strata.exchange.records import AliasLine, Form, GroupRecord, SchemaRecord, SourceBatch, Stream
from strata.exchange.run import TIMEOUT_SECONDS, Transactions, apply_sources, refused, transactions
from strata.exchange.schemas import (
    MAX_PASSAGES,
    MAX_SOURCES,
    GroupImportOutcome,
    Imported,
    ImportProgress,
    ImportResult,
    Promoted,
    PromoteResult,
    RetractOutcome,
    SchemaImportOutcome,
    StoredPassages,
    StorePassagesIn,
)
from strata.graph.schema import SCHEMA_VERSION
from strata.knowledge.graph_model import MAX_ISSUES
from strata.knowledge.graph_schemas import IssueOut
from strata.knowledge.graph_service import GraphService
from strata.knowledge.groups import GroupRecord as WholeGroup
from strata.knowledge.groups import GroupService
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.platform.database import Connection, Database
from strata.sources.text_service import TextService
from strata.sources.texts import TextSource, check_text
from strata.sources.views import is_storable

_SPOOL_BYTES = 4 * 1024 * 1024
_PIECE_BYTES = 256 * 1024


class ExchangeService:
    """Whole sources, by stream or one by one. A source stands as it was sent last, whole, or not at all."""

    def __init__(
        self,
        database: Database,
        contexts: ContextService,
        texts: TextService,
        graph: GraphService,
        groups: GroupService,
    ) -> None:
        self._database = database
        self._contexts = contexts
        self._texts = texts
        self._graph = graph
        self._groups = groups
        self._importer = SourceImporter(contexts, texts, graph)

    async def import_stream(
        self,
        tenant: UUID,
        stream: Stream,
        *,
        dry_run: bool = False,
        progress: Callable[[ImportProgress], None] | None = None,
    ) -> Imported:
        """Apply a stream: each source whole, in its order, then the schemas one by one, then all groups together.

        ``dry_run`` does all of it in one transaction that is undone. Raises what refuses a part of the
        stream, with ``integrity`` (``nothing_written`` or ``durable_prefix``), ``durable_batches``,
        ``retryable_after_correction`` and, where they are known, ``issues``; what came before stands.
        """
        await asyncio.to_thread(_check, stream)

        async def batch_at(number: int) -> SourceBatch:
            return stream.sources[number]

        total = len(stream.sources)
        async with transactions(self._database, tenant, is_dry=dry_run) as where:
            applied = await apply_sources(self._importer, where, total, batch_at, progress)
            schemas = [await self._schema(where, record, n, total) for n, record in enumerate(stream.schemas)]
            groups = await self._restore(where, stream)
        issues, violations = _warnings(applied)
        return Imported(
            ImportResult(
                batches=[one.outcome for one in applied],
                schemas=schemas or UNSET,
                groups=groups or UNSET,
            ),
            issues,
            violations,
        )

    async def export(self, tenant: UUID, ref: str, *, form: Form = Form.NAME) -> AsyncIterator[bytes]:
        """Return the stream of a context in pieces: its state at one moment, the same bytes for the same state.

        All of it is read before the first piece is given, so that a slow reader holds nothing of the
        database; what is beyond 4 MiB waits in a temporary file. Raises ``context_not_found``.
        """
        spool = tempfile.SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115  closed by who reads it
        try:
            async with self._snapshot(tenant) as connection:
                context = await self._contexts.resolve(connection, tenant, ref)
                async for piece in export_pieces(connection, tenant, context, self._texts, form):
                    await asyncio.to_thread(spool.write, piece)
            spool.seek(0)
        except BaseException:
            spool.close()
            raise
        return _pieces(spool)

    async def export_group(self, tenant: UUID, name: str, *, form: Form = Form.NAME) -> bytes:
        """Return a group as the one line of a stream; raises ``group_not_found``."""
        group = await self._groups.get(tenant, name)
        members: Sequence[str] = group.contexts
        if form is Form.ID:
            async with self._database.work(tenant) as connection:
                members = [str(one) for one, _ in await repository.group_contexts(connection, tenant, group.name)]
        return dump_group(
            GroupRecord(
                form=form,
                name=group.name,
                description=group.description,
                contexts=tuple(sorted(members)),
                groups=tuple(sorted(group.groups)),
            )
        )

    async def store_passages(self, tenant: UUID, ref: str, body: StorePassagesIn) -> StoredPassages:
        """Store texts in one transaction, each replacing the text of its source; what sources assert stays.

        Raises ``over_limit`` for more than 1,000, and ``invalid_request`` with a pointer for what cannot be
        stored or is said of a source without a text here.
        """
        prepared = await self._texts.prepare(_texts(body))

        async def work(connection: Connection) -> UUID:
            context = await self._contexts.resolve(connection, tenant, ref)
            await self._texts.put(connection, tenant, context, prepared)
            for stored in prepared.stored:
                await self._graph.record_change(
                    connection, tenant, context.context_id, "source_stored", {"source": stored.source}
                )
            return context.context_id

        self._texts.wake(tenant, await Transactions(self._database, tenant).within(work))
        counted = prepared.stored
        return StoredPassages(
            stored=len(counted),
            questions_stored=sum(one.questions_stored for one in counted),
            questions_dropped=sum(one.questions_dropped for one in counted),
            sections_stored=sum(one.sections_stored for one in counted),
            sections_dropped=sum(one.sections_dropped for one in counted),
            locators_stored=sum(one.locators_stored for one in counted),
            locators_dropped=sum(one.locators_dropped for one in counted),
        )

    async def retract_source(self, tenant: UUID, ref: str, source: str, *, dry_run: bool = False) -> RetractOutcome:
        """Delete a source with its text and all that it asserts; one that is not there takes nothing away."""

        async def work(connection: Connection) -> tuple[UUID, RetractOutcome]:
            context_id = (await self._contexts.resolve(connection, tenant, ref)).context_id
            if not is_storable(source) or not source:
                return context_id, RetractOutcome(associations_touched=0, passage_removed=False)
            await self._graph.hold(connection, tenant, context_id)
            removed = await self._texts.remove(connection, tenant, context_id, [source])
            gone = await self._graph.retract_source(connection, tenant, context_id, source)
            if removed and not gone.attributions:
                await self._graph.record_change(connection, tenant, context_id, "source_retracted", {"source": source})
            return context_id, RetractOutcome(
                associations_touched=gone.associations_touched, passage_removed=bool(removed)
            )

        async with transactions(self._database, tenant, is_dry=dry_run) as where:
            context_id, outcome = await where.within(work)
        if outcome.passage_removed and not dry_run:
            self._texts.wake(tenant, context_id, purge=True)
        return outcome

    async def promote(
        self, tenant: UUID, ref: str, into: str, sources: Sequence[str], *, dry_run: bool = False
    ) -> Promoted:
        """Carry whole sources into another context, each replacing what it had of that source.

        They stay where they are too, so that doing it again changes nothing. Aliases go along whose names
        the facts carried over use; the others are counted. Raises ``source_not_found`` when any of the
        sources is missing, before anything is written, and what :meth:`import_stream` raises.
        """
        names = list(dict.fromkeys(sources))
        if len(names) > MAX_SOURCES:
            detail = f"At most {MAX_SOURCES:,} sources in one request; this has {len(names):,}."
            raise StrataError(OVER_LIMIT, detail, pointer="/sources")
        context, destination, aliases = await self._promotable(tenant, ref, into, names)
        vocabulary: dict[str, set[str]] = {"concept": set(), "label": set()}
        carried: list[AliasLine] = []

        async def batch_at(number: int) -> SourceBatch:
            name = names[number]
            async with self._snapshot(tenant) as connection:
                states = await source_states(connection, tenant, context.context_id, self._texts, [name])
            state = states[0]
            if state.passage is None and not state.facts:
                raise _missing(name, number)
            await asyncio.to_thread(_note_names, vocabulary, state)
            if number + 1 == len(names):
                carried.extend(line for line in aliases if line.canonical in vocabulary[line.kind])
            return await asyncio.to_thread(batch_of, state, destination.name, carried)

        async with transactions(self._database, tenant, is_dry=dry_run) as where:
            applied = await apply_sources(self._importer, where, len(names), batch_at)
        issues, violations = _warnings(applied)
        return Promoted(
            PromoteResult(batches=[one.outcome for one in applied], aliases_dropped=len(aliases) - len(carried)),
            issues,
            violations,
        )

    async def _promotable(
        self, tenant: UUID, ref: str, into: str, names: Sequence[str]
    ) -> tuple[ContextRow, ContextRow, list[AliasLine]]:
        async with self._snapshot(tenant) as connection:
            context = await self._contexts.resolve(connection, tenant, ref)
            destination = await self._contexts.resolve(connection, tenant, into, pointer="/into")
            if destination.context_id == context.context_id:
                raise StrataError(INVALID_REQUEST, "The sources are in this context already.", pointer="/into")
            if not names:
                raise StrataError(INVALID_REQUEST, "Name at least one source.", pointer="/sources")
            askable = [name for name in names if is_storable(name) and name]
            held = {
                *await self._texts.paragraphs(connection, tenant, context.context_id, askable),
                *await repository.has_facts(connection, tenant, context.context_id, askable),
            }
            for number, name in enumerate(names):
                if name not in held:
                    raise _missing(name, number)
            return context, destination, await repository.aliases(connection, tenant, context.context_id)

    def _snapshot(self, tenant: UUID) -> AbstractAsyncContextManager[Connection]:
        # Planned without its values, a statement does not walk a context that no statistics know yet.
        local = {"plan_cache_mode": "force_generic_plan"}
        return self._database.work(tenant, snapshot=True, timeout_seconds=TIMEOUT_SECONDS, local=local)

    async def _schema(
        self, where: Transactions, record: SchemaRecord, number: int, sources: int
    ) -> SchemaImportOutcome:
        async def work(connection: Connection) -> None:
            row = await self._contexts.resolve(connection, where.tenant, record.context)
            await self._graph.install_schema(connection, where.tenant, row.context_id, _document(record))

        try:
            await where.within(work)
        except StrataError as error:
            durable = 0 if where.is_dry else sources
            what = f"The schema of {record.context!r}"
            raise refused(error, what, durable=durable, is_partial=number > 0 and not where.is_dry) from error
        context = {"context" if record.form is Form.NAME else "context_id": record.context}
        return SchemaImportOutcome(
            **context, mode=record.mode, types=len(record.types), relations=len(record.relations)
        )

    async def _restore(self, where: Transactions, stream: Stream) -> list[GroupImportOutcome]:
        records = [WholeGroup(one.name, one.description, one.contexts, one.groups) for one in stream.groups]
        if not records:
            return []
        try:
            outcomes = await where.within(lambda connection: self._groups.put_all(connection, where.tenant, records))
        except StrataError as error:
            durable = 0 if where.is_dry else len(stream.sources)
            is_partial = bool(stream.schemas) and not where.is_dry
            raise refused(error, "The groups of the stream", durable=durable, is_partial=is_partial) from error
        return [
            GroupImportOutcome(
                name=record.name, outcome=outcome, contexts=len(set(record.contexts)), groups=len(set(record.groups))
            )
            for record, outcome in zip(stream.groups, outcomes, strict=True)
        ]


def _note_names(vocabulary: Mapping[str, set[str]], state: SourceState) -> None:
    for fact in state.facts:
        vocabulary["concept"].update((fact.subject, fact.object))
        vocabulary["label"].add(fact.label)


def _missing(name: str, number: int) -> StrataError:
    shown = name[:200].encode("utf-8", "replace").decode()
    return StrataError(SOURCE_NOT_FOUND, f"There is no source {shown!r} in this context.", pointer=f"/sources/{number}")


def _check(stream: Stream) -> None:
    """Raise ``invalid_request`` for a text that cannot be stored, before anything of the stream is."""
    for number, batch in enumerate(stream.sources):
        text = text_of(batch)
        if text is None:
            continue
        try:
            check_text(text)
        except StrataError as error:
            what = f"Source {number + 1} of {len(stream.sources)}"
            raise refused(error, what, durable=0) from error


def _document(record: SchemaRecord) -> dict[str, object]:
    return {
        "schema": SCHEMA_VERSION,
        "mode": record.mode,
        "closed_labels": record.closed_labels,
        "types": to_builtins(dict(record.types)),
        "relations": to_builtins(dict(record.relations)),
    }


def _warnings(applied: Sequence[SourceApplied]) -> tuple[list[IssueOut], int]:
    """Return the first of what schemas warn of, and how much that is in all."""
    issues = list(islice(chain.from_iterable(one.issues for one in applied), MAX_ISSUES))
    return issues, sum(one.violations for one in applied)


def _texts(body: StorePassagesIn) -> list[TextSource]:
    if len(body.passages) > MAX_PASSAGES:
        detail = f"At most {MAX_PASSAGES:,} passages in one request; this has {len(body.passages):,}."
        raise StrataError(OVER_LIMIT, detail, pointer="/passages")
    parts = ("questions", body.questions), ("sections", body.sections), ("locators", body.locators)
    more: tuple[tuple[str, Mapping[str, object]], ...] = (*parts, ("tags", body.tags), ("dates", body.dates))
    for kind, by_source in more:
        unknown = next((name for name in by_source if name not in body.passages), None)
        if unknown is not None:
            escaped = unknown[:200].encode("utf-8", "replace").decode().replace("~", "~0").replace("/", "~1")
            raise StrataError(
                INVALID_REQUEST, "The request has no passage of this source.", pointer=f"/{kind}/{escaped}"
            )
    return [
        TextSource(
            name=name,
            text=text,
            questions=[(one.paragraph, one.question) for one in body.questions.get(name, ())],
            sections=[(one.paragraph, one.section) for one in body.sections.get(name, ())],
            locators=[(at.paragraph, at.locator.kind, at.locator.value) for at in body.locators.get(name, ())],
            tags=body.tags.get(name, ()),
            date=body.dates.get(name),
        )
        for name, text in body.passages.items()
    ]


async def _pieces(spool: IO[bytes]) -> AsyncIterator[bytes]:
    with spool:
        while piece := await asyncio.to_thread(spool.read, _PIECE_BYTES):
            yield piece
