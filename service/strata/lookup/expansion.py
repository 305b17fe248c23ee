"""Spend a budget: read the documents of the rows and of one hop, and take what fits of one order of steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from strata.evidence.documents import Declared, Document, Passage, Worth
from strata.evidence.expansion import Display, Hop, Row, Schedule, Shown, longest, preference
from strata.evidence.model import Candidate, Package, Reason
from strata.lookup import expansion_repository, repository
from strata.lookup.budget_schemas import BudgetedResult
from strata.lookup.budget_view import BudgetView, Frame, Plain
from strata.lookup.candidates import passage_of
from strata.lookup.expansion_repository import SEPARATOR, DocumentRow
from strata.lookup.gather import Gathered, Gatherer, languages_of
from strata.lookup.relevance import Verdict
from strata.lookup.request import Plan
from strata.lookup.view import headed
from strata.platform import telemetry
from strata.platform.ids import ORDINALS, SERIAL_BITS
from strata.sources.paths import pin_of
from strata.text.document import Section
from strata.text.spans import find_terms
from strata.traces.schemas import ExpansionTrace, ShownTrace

FOLLOWED = 8
"""So many of the first document's relations are looked at; the view follows fewer."""


INLINE_TOKENS = 8_000
"""Above it the fit runs in a thread: the event loop must not stand still."""


class Place(NamedTuple):
    """A document within a call: its context and the serial of its revision."""

    context: UUID
    serial: int


@dataclass(frozen=True, slots=True)
class Expanded:
    """What was made of a budget, and what the trace says of it."""

    result: BudgetedResult
    trace: ExpansionTrace


class Expansion:
    """The expansion of one lookup, in the snapshot of its search."""

    def __init__(self, tenant: UUID, plan: Plan, gathered: Gathered, gatherer: Gatherer) -> None:
        self._tenant = tenant
        self._plan = plan
        self._gathered = gathered
        self._gatherer = gatherer
        self._connection = gatherer.connection
        self._scopes: dict[UUID, frozenset[int]] = {}

    async def expand(self, package: Package, verdict: Verdict, lookup_id: UUID, limit: int) -> Expanded:
        """Return the result of a package within ``limit`` tokens."""
        places = [_document_of(candidate) for candidate in package.kept]
        in_rows = [place for place in dict.fromkeys(places) if place is not None]
        with telemetry.stage("relations"):
            hops = await self._hops(in_rows[0]) if in_rows and self._plan.follows_relations else []
            copies = _copies(package)
            of_copies = (_document_of(copy) for found in copies for copy in found)
            documents = await self._documents([*in_rows, *(place for place in of_copies if place)], hops)
        with telemetry.stage("expansion"):
            rows = [
                _row(candidate, rank, place, found, documents)
                for rank, (candidate, place, found) in enumerate(zip(package.kept, places, copies, strict=True), 1)
            ]
            schedule = Schedule(
                rows,
                {document.key: document for document in documents.values()},
                [hop for place, hop in hops if place in documents],
                self._worth(in_rows),
            )
            contexts = {context.context_id.hex: context.name for context in self._gathered.contexts}
            plain = {
                row.rank: _plain(candidate)
                for row, candidate in zip(rows, package.kept, strict=True)
                if row.document is None
            }
            view = BudgetView(Frame(lookup_id, verdict, limit, contexts, self._gathered.coverage), schedule, plain)
            if limit > INLINE_TOKENS:
                return await asyncio.to_thread(_spent, schedule, view, limit)
            return _spent(schedule, view, limit)

    async def _hops(self, first: Place) -> list[tuple[Place, Hop]]:
        """Return what the first document is related to, as far as the filters of the call allow, best first."""
        found = await expansion_repository.related(self._connection, self._tenant, first.context, first.serial)
        allowed = await self._allowed(first.context) if found else None
        hops = []
        for row in found:
            place = Place(first.context, row.serial)
            if allowed is None or row.serial in allowed:
                hops.append((place, Hop(_key(place), row.predicate, row.direction, row.anchor)))
        ranked = sorted(hops, key=lambda item: preference(item[1]))
        distinct: dict[Place, tuple[Place, Hop]] = {}
        for item in ranked:
            distinct.setdefault(item[0], item)
        return list(distinct.values())[:FOLLOWED]

    async def _allowed(self, context: UUID) -> frozenset[int] | None:
        """Return the serials of the sources that pass the filters, None where all do."""
        categories = () if self._gathered.is_relaxed else self._plan.categories
        source_filter = replace(self._plan.source_filter, categories=categories)
        if source_filter.is_empty:
            return None
        if context not in self._scopes:
            found = await repository.eligible(self._connection, self._tenant, context, source_filter)
            self._scopes[context] = frozenset(found.serials)
        return self._scopes[context]

    async def _documents(self, in_rows: Sequence[Place], hops: Sequence[tuple[Place, Hop]]) -> dict[Place, Document]:
        wanted = list(dict.fromkeys([*in_rows, *(place for place, _ in hops)]))
        if not wanted:
            return {}
        serials = {place.serial for place in wanted}
        # The id alone: making thousands of UUIDs takes longer than the statement.
        ids = (int(item.key.rpartition(":")[2]) for item in self._gathered.candidates if item.kind == "passage")
        nominated = [passage for passage in ids if passage >> SERIAL_BITS in serials]
        rows = await expansion_repository.documents(
            self._connection,
            self._tenant,
            [place.context for place in wanted],
            [place.serial for place in wanted],
            nominated,
        )
        allowed = {
            context: await self._allowed(context) for context in {row.context_id for row in rows if row.superseding}
        }
        return {Place(row.context_id, row.serial): self._document(row, allowed.get(row.context_id)) for row in rows}

    def _document(self, row: DocumentRow, allowed: frozenset[int] | None) -> Document:
        ids = [row.serial << SERIAL_BITS | ordinal for ordinal in row.ordinals]
        windows = [(0, row.content)] if row.content is not None else list(zip(row.starts, row.texts or (), strict=True))
        declared: dict[str, list[str]] = {}
        for predicate, target in row.declared:
            declared.setdefault(predicate, []).append(target)
        named = [
            path
            for serial, path in zip(row.superseding, row.superseding_paths, strict=True)
            if allowed is None or serial in allowed
        ]
        return Document(
            key=_key(Place(row.context_id, row.serial)),
            source=row.path,
            pin=pin_of(row.path, row.revision),
            revision=row.revision,
            title=row.title,
            size=row.text_bytes,
            passages=list(map(Passage, row.ordinals, row.passage_sections, row.starts, row.ends)),
            read_sections=partial(_sections, row),
            read_scores=partial(self._gatherer.word_scores, row.context_id, ids),
            windows=windows,
            context=row.context_id.hex,
            language=row.language,
            relations=[Declared(predicate, tuple(targets)) for predicate, targets in declared.items()],
            superseded_by=named if row.superseding else None,
        )

    def _worth(self, in_rows: Sequence[Place]) -> Worth:
        """Return how much of the question a text says: the idf of its terms, each once."""
        tokens = [term.token for term in self._gathered.terms]
        weights = self._gatherer.term_weights(in_rows[0].context) if in_rows else {}
        languages = languages_of(self._gathered.contexts)

        def worth(text: str, language: str | None) -> float:
            present = find_terms(text, tokens, [language] if language else languages)
            return sum(weights.get(term, 0.0) for term in sorted(present))

        return worth


def _sections(row: DocumentRow) -> Iterator[Section]:
    """Yield the sections of a document as it was read."""
    for ordinal, level, heading, anchor, breadcrumb, start, end in zip(
        row.section_ordinals,
        row.levels,
        row.headings,
        row.anchors,
        row.breadcrumbs,
        row.section_starts,
        row.section_ends,
        strict=True,
    ):
        yield Section(ordinal, level, heading, anchor, tuple(breadcrumb.split(SEPARATOR)), start, end)


def _spent(schedule: Schedule, view: BudgetView, limit: int) -> Expanded:
    """Take what fits, and say what was taken; CPU work that grows with the limit."""
    steps, first = longest(schedule.steps(), 4 * limit, view.sizes())
    display = Display(schedule.documents)
    for step in steps:
        display.take(step)
    result = view.result(display, first)
    trace = ExpansionTrace(
        limit=limit,
        used=result.budget.used,
        taken=len(steps),
        documents=len(schedule.documents),
        omitted=result.omitted.total,
        shown=[item for unit in display.units for item in _traced(unit, schedule)],
    )
    return Expanded(result, trace)


def _document_of(candidate: Candidate) -> Place | None:
    """Return the document in which a candidate stands, None for what is text by itself."""
    if candidate.kind != "passage":
        return None
    context, passage = passage_of(candidate)
    return Place(context, passage >> SERIAL_BITS)


def _key(place: Place) -> str:
    return f"{place.context.hex}:{place.serial}"


def _row(
    candidate: Candidate,
    rank: int,
    place: Place | None,
    copies: Sequence[Candidate],
    documents: Mapping[Place, Document],
) -> Row:
    """Return a candidate as a row; a superseded copy of its text is not named, as its place could not say so."""
    also = {
        _pin(copy)
        for copy in copies
        if (at := _document_of(copy)) is not None and at in documents and documents[at].superseded_by is None
    }
    if place is None or place not in documents:
        return Row(rank, text=candidate.text or "", also_at=tuple(sorted(also)))
    ordinal = passage_of(candidate)[1] & ORDINALS
    return Row(rank, _key(place), ordinal, candidate.anchor, also_at=tuple(sorted(also)))


def _copies(package: Package) -> list[list[Candidate]]:
    """Return for each kept candidate those of its context that were left out as the same text, to the letter."""
    near = [item for item in package.omitted if item.reason is Reason.NEAR_DUPLICATE and item.candidate.citation]
    return [
        [
            item.candidate
            for item in near
            if item.duplicate_of == kept.source_key
            and item.candidate.scope == kept.scope
            and (item.candidate.text or "").strip() == (kept.text or "").strip()
        ]
        for kept in package.kept
    ]


def _traced(unit: Shown, schedule: Schedule) -> Iterator[ShownTrace]:
    """Yield the runs of text that a document shows, without the text."""
    for part in unit.ranges:
        document = schedule.documents[unit.key]
        yield ShownTrace(
            source=document.source,
            revision=document.revision,
            start_byte=part.start,
            end_byte=part.end,
            sha256=sha256(document.text(part.start, part.end).encode()).hexdigest(),
            rows=list(part.rows),
            relation=schedule.hops[unit.hop].predicate if unit.hop is not None else None,
        )


def _plain(candidate: Candidate) -> Plain:
    return Plain(_pin(candidate) if candidate.citation else "", headed(candidate), candidate.scope)


def _pin(candidate: Candidate) -> str:
    citation = candidate.citation
    assert citation is not None  # noqa: S101 - callers ask for one that cites
    pin = pin_of(citation.source, citation.source_version)
    return pin if citation.anchor is None else f"{pin}#{citation.anchor}"
