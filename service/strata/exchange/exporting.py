"""What a context holds, as the records of a stream; read in one snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, cast
from uuid import UUID

from msgspec import structs

from strata.errors import OVER_LIMIT, StrataError
from strata.exchange import repository
from strata.exchange.dump import ContextDump, Fact, SourceState, assertion_weights
from strata.exchange.records import (
    MAX_PASSAGE_BYTES,
    AliasLine,
    AssociationLine,
    Create,
    Form,
    LocatorLine,
    PassageLine,
    QuestionLine,
    RelationRule,
    SchemaMode,
    SchemaRecord,
    SectionLine,
    SourceBatch,
    TypeRule,
)
from strata.knowledge.model import ContextRow
from strata.platform.database import Connection
from strata.sources.text_dump import TextDump
from strata.sources.text_service import TextService

_NAMES_PER_READ = 16
_UNSOURCED = ""


async def export_pieces(
    connection: Connection, tenant: UUID, context: ContextRow, texts: TextService, form: Form
) -> AsyncIterator[bytes]:
    """Yield the stream of a context in pieces of whole lines, in a unit of work that is a snapshot.

    A document that was read goes as its text, and the facts that name one of its passages name the
    paragraph in which it begins. Raises ``over_limit`` for a text that no stream can hold.
    """
    context_id = context.context_id
    schema = await repository.schema(connection, tenant, context_id)
    unsourced = await repository.facts(connection, tenant, context_id, [_UNSOURCED])
    dump = ContextDump(
        context.name if form is Form.NAME else str(context_id),
        Create(
            name=None if form is Form.NAME else context.name,
            description=context.description,
            pinned=context.is_pinned,
            dice_floor=context.dice_floor,
            semantic_floor=context.semantic_floor,
        ),
        form=form,
        schema=None if schema is None else _schema_record(*schema, context, form),
        aliases=await repository.aliases(connection, tenant, context_id),
        unsourced=[_pointing(fact, {}) for fact in unsourced.get(_UNSOURCED, ())],
    )
    yield _joined(dump.start())
    after = ""
    while True:
        page = await texts.page(connection, tenant, context_id, after=after, limit=_NAMES_PER_READ)
        names = [entry.name for entry in page.entries]
        if not names:
            break
        states = await source_states(connection, tenant, context_id, texts, names)
        yield await asyncio.to_thread(_joined, chain.from_iterable(map(dump.source, states)))
        after = names[-1]
    yield await asyncio.to_thread(_joined, dump.finish())


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(lines)


async def source_states(
    connection: Connection, tenant: UUID, context_id: UUID, texts: TextService, names: Sequence[str]
) -> list[SourceState]:
    """Return sources with their texts and what they state, in the order of the names."""
    dumped = await texts.dump(connection, tenant, context_id, names)
    facts = await repository.facts(connection, tenant, context_id, names)
    return await asyncio.to_thread(_states, names, dumped, facts)


def _states(
    names: Sequence[str], dumped: Mapping[str, TextDump], facts: Mapping[str, Sequence[Fact]]
) -> list[SourceState]:
    return [_state(name, dumped.get(name), facts.get(name, ())) for name in names]


def _state(name: str, dumped: TextDump | None, facts: Sequence[Fact]) -> SourceState:
    if dumped is None:
        return SourceState(source=name, facts=[_pointing(fact, {}) for fact in facts])
    text = dumped.source
    size = len(text.text.encode())
    if size > MAX_PASSAGE_BYTES:
        raise StrataError(
            OVER_LIMIT,
            f"The source {name!r} has a text of {size:,} bytes; a stream holds texts of {MAX_PASSAGE_BYTES:,} at most.",
            remedy="Split the document, or delete it, and export again.",
        )
    return SourceState(
        source=name,
        passage=PassageLine(text.text, text.stored_at, text.date, tuple(text.tags)),
        facts=[_pointing(fact, dumped.paragraphs) for fact in facts],
        questions=[QuestionLine(at, question) for at, question in text.questions],
        sections=[SectionLine(at, section) for at, section in text.sections],
        locators=[LocatorLine(at, kind, value) for at, kind, value in text.locators],
    )


def batch_of(state: SourceState, context: str, aliases: Sequence[AliasLine] = ()) -> SourceBatch:
    """Return a source as it is imported into a context that is named."""
    return SourceBatch(
        form=Form.NAME,
        context=context,
        source=state.source,
        passage=state.passage,
        associations=tuple(
            AssociationLine(
                fact.subject, fact.label, fact.object, weight, fact.paragraph, fact.valid_from, fact.valid_until
            )
            for fact in state.facts
            for weight in assertion_weights(fact.weight, fact.count)
        ),
        aliases=tuple(aliases),
        questions=tuple(state.questions),
        sections=tuple(state.sections),
        locators=tuple(state.locators),
    )


def _pointing(fact: Fact, paragraphs: Mapping[int, int]) -> Fact:
    """Return a fact with the paragraph of the text that goes with it; none where the text has no such passage."""
    if fact.paragraph is None:
        return fact
    return structs.replace(fact, paragraph=paragraphs.get(fact.paragraph))


def _schema_record(mode: str, document: Mapping[str, Any], context: ContextRow, form: Form) -> SchemaRecord:
    return SchemaRecord(
        form=form,
        context=context.name if form is Form.NAME else str(context.context_id),
        mode=cast("SchemaMode", mode),
        closed_labels=bool(document.get("closed_labels", False)),
        types={name: TypeRule(tuple(rule["is_a"])) for name, rule in document.get("types", {}).items()},
        relations={
            name: RelationRule(tuple(rule["domain"]), tuple(rule["range"]), rule.get("cardinality"))
            for name, rule in document.get("relations", {}).items()
        },
    )
