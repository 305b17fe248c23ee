"""One source of a stream into one context: text, facts and aliases in one transaction, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from msgspec.structs import replace

from strata.errors import CONTEXT_EXISTS, CONTEXT_NOT_FOUND, StrataError
from strata.exchange import repository
from strata.exchange.records import AssociationLine, Form, SourceBatch
from strata.exchange.schemas import ImportOutcome
from strata.knowledge.graph_model import AliasRow, Applied, Assertion
from strata.knowledge.graph_schemas import IssueOut
from strata.knowledge.graph_service import GraphService
from strata.knowledge.model import ContextOptions, ContextRow
from strata.knowledge.service import ContextService, valid_description, valid_name, valid_options
from strata.platform.database import Connection
from strata.platform.ids import new_id
from strata.sources.text_service import TextService
from strata.sources.texts import Prepared, TextSource, TextStored, prepare_texts

_NOTHING_STORED = TextStored("", 0)


@dataclass(frozen=True, slots=True)
class Applying:
    """A source ready to be applied; ``text`` is None where it has none.

    ``dropped`` counts the facts that lost the paragraph they name because the text lacks it. ``path`` goes
    before the path of each issue.
    """

    batch: SourceBatch
    text: Prepared | None
    assertions: Sequence[Assertion]
    dropped: int
    path: str


@dataclass(frozen=True, slots=True)
class SourceApplied:
    """What became of a source."""

    outcome: ImportOutcome
    context_id: UUID
    issues: Sequence[IssueOut]
    violations: int


def text_of(batch: SourceBatch) -> TextSource | None:
    """Return the text of a source with what is said of its paragraphs; None where it has none."""
    passage = batch.passage
    if passage is None:
        return None
    return TextSource(
        name=batch.source,
        text=passage.text,
        questions=[(line.paragraph, line.question) for line in batch.questions],
        sections=[(line.paragraph, line.section) for line in batch.sections],
        locators=[(line.paragraph, line.kind, line.value) for line in batch.locators],
        tags=passage.tags,
        date=passage.date,
        stored_at=passage.stored_at,
    )


class SourceImporter:
    """Applies sources whole: what a source said before is replaced by what it says now."""

    def __init__(self, contexts: ContextService, texts: TextService, graph: GraphService) -> None:
        self._contexts = contexts
        self._texts = texts
        self._graph = graph

    async def prepare(self, batch: SourceBatch, path: str) -> Applying:
        """Cut and analyse the text of a source, before any transaction; raises ``invalid_request``."""
        return await asyncio.to_thread(_prepared, batch, path)

    def wake(self, tenant: UUID, applied: SourceApplied) -> None:
        """After the commit: let the index and the vectors follow."""
        self._texts.wake(tenant, applied.context_id, purge=applied.outcome.passage_dropped)

    async def apply(self, connection: Connection, tenant: UUID, applying: Applying) -> SourceApplied:
        """Apply one source in the caller's unit of work; two at once of one source follow one another.

        Raises ``context_not_found`` for a context that is neither there nor to be made, ``conflict`` for
        an alias that cannot be, and ``schema_violation`` where the schema of the context is strict.
        """
        batch = applying.batch
        context, is_created = await self._context(connection, tenant, batch)
        context_id = context.context_id
        await self._graph.hold(connection, tenant, context_id)
        await self._texts.lock(connection, tenant, context_id, [batch.source])
        aliases = [AliasRow(line.alias, line.canonical, line.kind) for line in batch.aliases]
        stored, is_dropped = _NOTHING_STORED, False
        if applying.text is not None:
            (stored,) = await self._texts.put(connection, tenant, context, applying.text)
        else:
            is_dropped = await self._texts.remove(connection, tenant, context_id, [batch.source]) > 0
        applied = await self._graph.apply(
            connection,
            tenant,
            context_id,
            batch.source,
            applying.assertions,
            aliases,
            replace=True,
            path=applying.path,
        )
        if applying.text is not None:
            await self._graph.record_change(connection, tenant, context_id, "source_stored", {"source": batch.source})
        elif is_dropped and not applied.retracted.attributions:
            await self._graph.record_change(
                connection, tenant, context_id, "source_retracted", {"source": batch.source}
            )
        outcome = _outcome(applying, stored, applied, is_created=is_created, is_dropped=is_dropped)
        return SourceApplied(outcome, context_id, applied.issues, applied.violations)

    async def _context(self, connection: Connection, tenant: UUID, batch: SourceBatch) -> tuple[ContextRow, bool]:
        """Return the context of a source, made where there is none and its header says how."""
        # A second round finds what another transaction committed between the two statements.
        for _ in range(3):
            try:
                return await self._contexts.resolve(connection, tenant, batch.context), False
            except StrataError as error:
                if error.kind is not CONTEXT_NOT_FOUND or batch.create is None:
                    raise
            if await self._create(connection, tenant, batch):
                return await self._contexts.resolve(connection, tenant, batch.context), True
        raise StrataError(CONTEXT_EXISTS, "The name of the context to be made is that of another one.")

    async def _create(self, connection: Connection, tenant: UUID, batch: SourceBatch) -> bool:
        create = batch.create
        if create is None:
            return False
        is_named = batch.form is Form.NAME
        name = valid_name(batch.context if is_named else create.name or "", "/create/name")
        description = valid_description(create.description, "/create/description")
        options = ContextOptions(create.pinned, create.dice_floor, create.semantic_floor)
        valid_options(options)
        identifier = new_id() if is_named else UUID(batch.context)
        return await repository.insert_context(
            connection, tenant, identifier, name=name, description=description, options=options
        )


def _prepared(batch: SourceBatch, path: str) -> Applying:
    text = text_of(batch)
    prepared = None if text is None else prepare_texts([text])
    paragraphs = prepared.stored[0].paragraphs if prepared else 0
    assertions, dropped = _assertions(batch.associations, paragraphs)
    return Applying(batch, prepared, assertions, dropped, path)


def _assertions(lines: Sequence[AssociationLine], paragraphs: int) -> tuple[list[Assertion], int]:
    """Return the assertions of a source, and how many lost the paragraph they name as the text lacks it."""
    found = [
        Assertion(line.subject, line.label, line.object, line.weight, line.paragraph, line.valid_from, line.valid_until)
        for line in lines
    ]
    dropped = 0
    for number, item in enumerate(found):
        if item.paragraph is not None and item.paragraph >= paragraphs:
            found[number] = replace(item, paragraph=None)
            dropped += 1
    return found, dropped


def _outcome(
    applying: Applying, stored: TextStored, applied: Applied, *, is_created: bool, is_dropped: bool
) -> ImportOutcome:
    batch = applying.batch
    return ImportOutcome(
        **{"context" if batch.form is Form.NAME else "context_id": batch.context},
        source=batch.source,
        created=is_created,
        retracted=applied.retracted.associations_touched,
        associations=applied.associations,
        aliases=applied.aliases,
        passage_stored=batch.passage is not None,
        passage_dropped=is_dropped,
        questions_stored=stored.questions_stored,
        questions_dropped=stored.questions_dropped,
        sections_stored=stored.sections_stored,
        sections_dropped=stored.sections_dropped,
        locators_stored=stored.locators_stored,
        locators_dropped=stored.locators_dropped,
        association_paragraphs_dropped=applying.dropped,
        schema_violations=applied.violations,
    )
