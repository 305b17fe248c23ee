"""Write the import stream of a context: the same bytes for the same state, line by line.

What is written reads back to the same state: every assertion count and every sum is restored
exactly, and a stream that was read and is written again is the same stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from strata.exchange.records import (
    EMPTY_SOURCE,
    MAX_WEIGHT,
    REVISION,
    UNSOURCED_SOURCE,
    AliasLine,
    AssociationLine,
    Create,
    Form,
    GroupRecord,
    LocatorLine,
    PassageLine,
    QuestionLine,
    SchemaRecord,
    SectionLine,
    SourceBatch,
    Stream,
)

_encoder = msgspec.json.Encoder()


class Fact(Struct, frozen=True, gc=False):
    """What one source says of one association in one interval: the raw sum of its assertions and their count."""

    subject: str
    label: str
    object: str
    weight: float
    count: int
    paragraph: int | None = None
    valid_from: int | None = None
    valid_until: int | None = None


class SourceState(Struct, frozen=True, kw_only=True):
    """One source as it is stored; questions stand as they are numbered within their paragraph."""

    source: str
    passage: PassageLine | None = None
    facts: Sequence[Fact] = ()
    questions: Sequence[QuestionLine] = ()
    sections: Sequence[SectionLine] = ()
    locators: Sequence[LocatorLine] = ()


def dump_stream(stream: Stream) -> Iterator[bytes]:
    """Yield the lines of a stream, each record in its own form: schemas, sources, groups, in their order."""
    for schema in stream.schemas:
        yield dump_schema(schema)
    for batch in stream.sources:
        yield from dump_source(batch)
    for group in stream.groups:
        yield dump_group(group)


def dump_source(batch: SourceBatch) -> Iterator[bytes]:
    """Yield the header of a source and its lines."""
    yield _line(_header(batch.form, batch.context, batch.source, batch.create))
    yield from _text_lines(batch.passage, batch.questions, batch.sections, batch.locators)
    for association in batch.associations:
        yield _association(association)
    for alias in batch.aliases:
        yield _alias(alias)


def dump_schema(record: SchemaRecord) -> bytes:
    """Return the line of a schema, types and relations in code point order."""
    return _line(
        {
            **_opening("schema", record.form),
            **_context(record.form, record.context),
            "mode": record.mode,
            "closed_labels": record.closed_labels,
            "types": dict(sorted(record.types.items())),
            "relations": dict(sorted(record.relations.items())),
        }
    )


def dump_group(record: GroupRecord) -> bytes:
    """Return the line of a group; what is empty is left out."""
    is_named = record.form is Form.NAME
    optional = {
        "description": record.description,
        "contexts" if is_named else "context_ids": record.contexts,
        "groups": record.groups,
    }
    return _line(
        {
            **_opening("group", record.form),
            "name" if is_named else "id": record.name,
            **{key: value for key, value in optional.items() if value},
        }
    )


class ContextDump:
    """The stream of one context, written while its sources are read.

    Call :meth:`start`, then :meth:`source` for each source by ascending id (code points), then
    :meth:`finish`; what they yield, in this order, is the stream. The first source carries how to
    make the context; the last one the aliases. What no source says stands under ``export:unsourced``,
    in its place among the ids. A context without sources has one empty record, ``export:empty``.

    Facts are written by subject, label, object and interval, not in the order they were made, so
    that a stream read back and written again has the same bytes. A fact asserted n times has n
    lines; one never asserted has none. An alias is left out, and counted in ``aliases_dropped``,
    where no line before it brings its canonical name: it could not be read back.

    ``context`` is the name or the id, as ``form`` says; in the id form ``create`` names the context.
    """

    def __init__(
        self,
        context: str,
        create: Create,
        *,
        form: Form = Form.NAME,
        schema: SchemaRecord | None = None,
        aliases: Iterable[AliasLine] = (),
        unsourced: Sequence[Fact] = (),
    ) -> None:
        self.aliases_dropped = 0
        self._form = form
        self._context = context
        self._create: Create | None = create
        self._schema = schema
        self._aliases = sorted(aliases, key=lambda line: (line.kind, line.alias))
        self._unsourced = unsourced
        self._last = ""
        self._names: dict[str, set[str]] = {"concept": set(), "label": set()}

    def start(self) -> Iterator[bytes]:
        """Yield the schema, unless there is none or its mode is off."""
        if self._schema is not None and self._schema.mode != "off":
            yield dump_schema(self._schema)

    def source(self, state: SourceState) -> Iterator[bytes]:
        """Yield the record of a source. Raises ValueError when it does not come after the one before."""
        if state.source <= self._last:
            raise ValueError("sources are written by ascending id")
        self._last = state.source
        extra: Sequence[Fact] = ()
        if state.source == UNSOURCED_SOURCE:
            extra, self._unsourced = self._unsourced, ()
        elif state.source > UNSOURCED_SOURCE:
            yield from self._unsourced_record()
        yield from self._record(state, extra)

    def finish(self) -> Iterator[bytes]:
        """Yield what is left: the unsourced facts, the empty record where there was nothing, the aliases."""
        yield from self._unsourced_record()
        if self._create is not None:
            yield self._header(EMPTY_SOURCE)
        for line in self._aliases:
            if line.canonical in self._names[line.kind]:
                yield _alias(line)
            else:
                self.aliases_dropped += 1

    def _unsourced_record(self) -> Iterator[bytes]:
        facts, self._unsourced = self._unsourced, ()
        if any(fact.count > 0 for fact in facts):
            yield from self._record(SourceState(source=UNSOURCED_SOURCE), facts)

    def _record(self, state: SourceState, extra: Sequence[Fact]) -> Iterator[bytes]:
        yield self._header(state.source)
        yield from _text_lines(
            state.passage,
            sorted(state.questions, key=lambda line: line.paragraph),
            sorted(state.sections, key=lambda line: line.paragraph),
            sorted(state.locators, key=lambda line: line.paragraph),
        )
        for fact in sorted((*state.facts, *extra), key=_fact_order):
            if fact.count > 0:
                self._names["concept"].update((fact.subject, fact.object))
                self._names["label"].add(fact.label)
            yield from _fact_lines(fact)

    def _header(self, source: str) -> bytes:
        create, self._create = self._create, None
        return _line(_header(self._form, self._context, source, create))


def assertion_weights(total: float, count: int) -> Iterator[float]:
    """Yield ``count`` weights that, added one after the other, give exactly ``total``.

    They are the average each time, where adding it up gives the total. Else the last one is what the
    averages leave: nothing is lost, since the difference of two floats within a factor of two is
    exact (Sterbenz, Floating-Point Computation, 1974). Where that would pass the largest weight
    allowed, all but the last are the largest, whose sums are whole and so exact too.
    """
    if count < 1:
        return
    each = total / count
    before = 0.0
    for _ in range(count - 1):
        before += each
    last = each if before + each == total else total - before
    if abs(last) > MAX_WEIGHT:
        each = math.copysign(MAX_WEIGHT, total)
        last = total - each * (count - 1)
    for _ in range(count - 1):
        yield each
    yield last


def _fact_lines(fact: Fact) -> Iterator[bytes]:
    for weight in assertion_weights(fact.weight + 0.0, fact.count):
        yield _association(
            AssociationLine(
                fact.subject, fact.label, fact.object, weight, fact.paragraph, fact.valid_from, fact.valid_until
            )
        )


def _fact_order(fact: Fact) -> tuple[Any, ...]:
    optional = (fact.valid_from, fact.valid_until, fact.paragraph)
    return (
        fact.subject,
        fact.label,
        fact.object,
        *((value is not None, value or 0) for value in optional),
        fact.weight,
        fact.count,
    )


def _text_lines(
    passage: PassageLine | None,
    questions: Iterable[QuestionLine],
    sections: Iterable[SectionLine],
    locators: Iterable[LocatorLine],
) -> Iterator[bytes]:
    if passage is not None:
        optional = {"stored_at": passage.stored_at, "date": passage.date, "tags": passage.tags or None}
        yield _line({"passage": passage.text, **_present(optional)})
    for question in questions:
        yield _line({"paragraph": question.paragraph, "question": question.question})
    for section in sections:
        yield _line({"paragraph": section.paragraph, "section": section.section})
    for locator in locators:
        yield _line({"paragraph": locator.paragraph, "locator": {"kind": locator.kind, "value": locator.value}})


def _association(line: AssociationLine) -> bytes:
    fields: dict[str, object] = {
        "subject": line.subject,
        "label": line.label,
        "object": line.object,
        "weight": line.weight,
    }
    if line.paragraph is not None:
        fields["paragraph"] = line.paragraph
    if line.valid_from is not None:
        fields["valid_from"] = line.valid_from
    if line.valid_until is not None:
        fields["valid_until"] = line.valid_until
    return _line(fields)


def _alias(line: AliasLine) -> bytes:
    return _line({"alias": line.alias, "canonical": line.canonical, "kind": line.kind})


def _header(form: Form, context: str, source: str, create: Create | None) -> dict[str, Any]:
    fields: dict[str, Any] = _opening("source", form)
    if form is Form.NAME:
        fields |= {**_context(form, context), "source": source}
    else:
        fields |= {"id": source, **_context(form, context)}
    if create is not None:
        fields["create"] = {
            **({"name": create.name} if form is Form.ID else {}),
            "description": create.description,
            **({"pinned": True} if create.pinned else {}),
            **_present({"dice_floor": create.dice_floor, "semantic_floor": create.semantic_floor}),
        }
    return fields


def _opening(kind: str, form: Form) -> dict[str, Any]:
    if form is Form.NAME:
        return {"taguru_batch" if kind == "source" else f"taguru_{kind}": 1}
    return {"type": kind, "version": REVISION}


def _context(form: Form, context: str) -> dict[str, str]:
    return {"context" if form is Form.NAME else "context_id": context}


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _line(fields: dict[str, Any]) -> bytes:
    return _encoder.encode(fields) + b"\n"
