"""What a budget is spent on: one order of steps, of which a result takes as many as fit.

The order does not depend on the budget, and each step only adds to what stands before it. So whatever a
smaller budget shows, a larger one shows too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import chain

from strata.evidence.documents import SMALL_BYTES, Direction, Document, Passage, Stretch, Worth
from strata.text.document import Section

MAX_RELATED = 3
EVIDENCE_PREDICATES = ("supersedes", "superseded-by", "depends-on", "implements", "derived-from")
"""Relations whose targets are evidence for what is asked of a document; others come after them."""

NEXT_ROWS, MORE_ROWS = 4, 10
"""Rows up to these ranks come before what the first document names, and before the rest of its section."""

MAX_SECTIONS = 3
"""So many sections of a large document matter at most."""

SECTION_SHARE = 0.5
"""A section matters where its best passage scores at least this share of the document's best."""


SLACK = 800
"""How far beyond its limit, in quarter tokens, a result is followed: joining two runs saves less."""


@dataclass(frozen=True, slots=True)
class Row:
    """A result of the search, at its rank.

    It stands in ``document`` (a key), at the passage ``core``, in the section of ``anchor`` where it has one;
    or it is ``text`` by itself: a fact, or the summary of a hint. ``also_at`` are places of the same text.
    """

    rank: int
    document: str | None = None
    core: int | None = None
    anchor: str | None = None
    text: str = ""
    also_at: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hop:
    """A document that the first one is related to; ``anchor`` is the section that the relation names."""

    document: str
    predicate: str
    direction: Direction
    anchor: str | None = None

    @property
    def is_successor(self) -> bool:
        """Whether it stands in place of the document it is related to."""
        return (self.predicate, self.direction) in {("superseded-by", "outgoing"), ("supersedes", "incoming")}

    @property
    def is_evidence(self) -> bool:
        """Whether its predicate says that it bears on what the other document states."""
        return self.predicate in EVIDENCE_PREDICATES


class Kind(Enum):
    """What a step adds: a part of a text, a row that is text by itself, a further place or row of a text, and so on."""

    TEXT = auto()
    PLAIN = auto()
    ALSO = auto()
    RELATIONS = auto()
    OUTLINE = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """One addition to what ``document`` (a key, empty for a plain row) shows, for a row or for a hop.

    Where a further place of a text is noted, ``copy`` is the passage there: document and ordinal.
    """

    kind: Kind
    document: str
    row: int | None = None
    hop: int | None = None
    stretch: Stretch | None = None
    place: str = ""
    copy: tuple[str, int] | None = None


@dataclass(slots=True)
class Range:
    """A run of text that is shown of a document: for which rows, or for the hop."""

    start: int
    end: int
    rows: tuple[int, ...]
    also_at: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Shown:
    """What is shown of one document, or one plain row (``row``)."""

    key: str
    row: int | None = None
    hop: int | None = None
    ranges: list[Range] = field(default_factory=list)
    has_relations: bool = False
    has_outline: bool = False


class Schedule:
    """The steps over one call's rows, documents and hops, in the one order."""

    def __init__(
        self, rows: Sequence[Row], documents: Mapping[str, Document], hops: Sequence[Hop], worth: Worth
    ) -> None:
        self.rows = {row.rank: row for row in rows}
        self.documents = documents
        self._first = next((row.document for row in rows if row.document), None)
        self.hops = _chosen(hops, self._first, {row.document for row in rows}, documents)
        self._worth = worth
        self._printed: dict[tuple[str, str], tuple[str, int]] = {}
        self._done: set[tuple[str, int]] = set()
        self._noted: set[tuple[tuple[str, int], int | None]] = set()
        self._seen: list[str] = []

    def steps(self) -> Iterator[Step]:
        """Yield the steps; documents are cut and compared as far as the caller reads.

        The best passage; what stands in place of its document; the next rows; the evidence that the document
        names; more rows, and what is left of the section of the first; what the document and its relatives declare;
        the rest. Measured on a linked corpus (docs/benchmarks.md).
        """
        rows = list(self.rows.values())
        places = range(len(self.hops))
        successors = [at for at in places if self.hops[at].is_successor]
        evidence = [at for at in places if self.hops[at].is_evidence and at not in successors]
        others = [at for at in places if not self.hops[at].is_evidence]
        yield from self._cores(rows[:1])
        yield from self._related(successors)
        yield from self._rests_of_related(successors)
        yield from self._cores(rows[1:NEXT_ROWS])
        yield from self._related(evidence)
        yield from self._rests_of_related(evidence)
        yield from self._cores(rows[NEXT_ROWS:MORE_ROWS])
        yield from self._rests(rows[:1])
        yield from self._relations(is_near=True)
        yield from self._cores(rows[MORE_ROWS:])
        yield from self._related(others)
        yield from self._rests_of_related(others)
        yield from self._rests(rows[1:])
        yield from self._relations(is_near=False)

    def _cores(self, rows: Iterable[Row]) -> Iterator[Step]:
        return chain.from_iterable(map(self._core, rows))

    def _core(self, row: Row) -> Iterator[Step]:
        if row.document is None:
            yield Step(Kind.PLAIN, "", row=row.rank)
            return
        document = self.documents[row.document]
        if row.core is not None and (passage := document.by_ordinal.get(row.core)) is not None:
            yield from self._passage(document, passage, row=row.rank)
            for place in row.also_at:
                yield Step(Kind.ALSO, document.key, row=row.rank, stretch=_whole(passage), place=place)
        else:
            yield from self._opening(document, self._targets(document, row.anchor), row=row.rank)

    def _related(self, hops: Iterable[int]) -> Iterator[Step]:
        """Show the best passage of each; that of its best row where it is one, unless the relation names a section."""
        for at in hops:
            hop = self.hops[at]
            document = self.documents[hop.document]
            row = next((row for row in self.rows.values() if row.document == hop.document), None)
            if row is not None and hop.anchor is None:
                yield from (replace(step, hop=at) for step in self._core(row))
            else:
                yield from self._opening(document, self._targets(document, hop.anchor), hop=at)

    def _opening(
        self, document: Document, targets: Sequence[Passage], *, row: int | None = None, hop: int | None = None
    ) -> Iterator[Step]:
        """Show the passage that says most of the question; an outline and the opening where none says anything."""
        if not targets:
            return
        best = max(targets, key=lambda item: (document.score(item), -item.ordinal))
        if (
            document.score(best) <= 0
            and not document.is_small
            and any(item.level for item in document.sections.values())
        ):
            yield Step(Kind.OUTLINE, document.key, row=row, hop=hop)
        yield from self._passage(document, best, row=row, hop=hop)

    def _rests(self, rows: Iterable[Row]) -> Iterator[Step]:
        """Show the rest of the sections, or small documents, that rows stand in."""
        for row in rows:
            if row.document is not None:
                document = self.documents[row.document]
                for passage in self._targets(document, row.anchor):
                    yield from self._passage(document, passage, row=row.rank)

    def _rests_of_related(self, hops: Iterable[int]) -> Iterator[Step]:
        for at in hops:
            hop = self.hops[at]
            document = self.documents[hop.document]
            for passage in self._targets(document, hop.anchor):
                yield from self._passage(document, passage, hop=at)

    def _targets(self, document: Document, anchor: str | None) -> list[Passage]:
        """Return what a row or a hop is to print of a document, best first."""
        section = document.anchored(anchor) if anchor else None
        found = list(document.passages) if section is None else document.within(section)
        size = document.size if section is None else section.end_byte - section.start_byte
        if size >= SMALL_BYTES:
            found = _that_matter(document, found) or found[:1]
        return sorted(found, key=lambda item: (-document.score(item), item.ordinal))

    def _passage(
        self, document: Document, passage: Passage, *, row: int | None = None, hop: int | None = None
    ) -> Iterator[Step]:
        """Show a passage by its parts; where its text is shown already, only note that it stands here too."""
        at = (document.key, passage.ordinal)
        text = document.text(passage.start, passage.end).strip()
        first = self._printed.setdefault((document.context, text), at)
        if first != at or at in self._done:
            known = self.documents[first[0]].by_ordinal[first[1]]
            # A place could not say that its document is superseded, so such a one is not named.
            is_named = first != at and document.superseded_by is None
            section = document.section_of(passage.start, passage.end)
            place = document.place(section) if is_named else ""
            is_news = at not in self._done or (row is not None and (at, row) not in self._noted)
            self._noted.add((at, row))
            if is_news:
                yield Step(Kind.ALSO, first[0], row=row, hop=hop, stretch=_whole(known), place=place, copy=at)
            self._done.add(at)
            return
        self._done.add(at)
        self._noted.add((at, row))
        if document.key not in self._seen:
            self._seen.append(document.key)
        for stretch in document.stretches(passage, self._worth):
            yield Step(Kind.TEXT, document.key, row=row, hop=hop, stretch=stretch)

    def _relations(self, *, is_near: bool) -> Iterator[Step]:
        """Show what documents declare: the first and its relatives, or the others."""
        near = {self._first, *(hop.document for hop in self.hops)}
        for key in tuple(self._seen):
            if self.documents[key].relations and (key in near) is is_near:
                yield Step(Kind.RELATIONS, key)


def _chosen(
    hops: Sequence[Hop], first: str | None, in_rows: Collection[str | None], documents: Mapping[str, Document]
) -> list[Hop]:
    """Return the hops that are followed: those in place of the document first, evidence, then in the order given.

    A document that is a row already is no hop, unless it stands in place of the first or a section of it is named.
    """
    chosen: dict[str, Hop] = {}
    for hop in sorted(hops, key=preference):
        is_new = hop.document in documents and hop.document not in {first, *chosen}
        if is_new and (hop.is_successor or hop.anchor or hop.document not in in_rows):
            chosen[hop.document] = hop
    return list(chosen.values())[:MAX_RELATED]


def preference(hop: Hop) -> tuple[bool, bool]:
    """Return what hops are sorted by: those in place of the document first, then evidence; else as they come."""
    return (not hop.is_successor, not hop.is_evidence)


def _that_matter(document: Document, passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages of the sections that say most of the question; none where nothing says anything.

    A section comes with its subsections where together they are small.
    """
    scores: dict[int, float] = {}
    for passage in passages:
        scores[passage.section] = max(scores.get(passage.section, 0.0), document.score(passage))
    best = max(scores.values(), default=0.0)
    ranked = sorted(
        (ordinal for ordinal, score in scores.items() if score > 0 and score >= SECTION_SHARE * best),
        key=lambda ordinal: (-scores[ordinal], ordinal),
    )
    chosen: dict[Passage, None] = {}
    for ordinal in ranked[:MAX_SECTIONS]:
        section = document.sections.get(ordinal)
        if section is not None and section.end_byte - section.start_byte < SMALL_BYTES:
            chosen |= dict.fromkeys(document.within(section))
        else:
            chosen |= dict.fromkeys(item for item in passages if item.section == ordinal and document.score(item) > 0)
    return list(chosen)


def _whole(passage: Passage) -> Stretch:
    return Stretch(passage.start, passage.end, 0.0)


class Display:
    """What the steps taken so far show, document by document, in the order in which they came in."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self._documents = documents
        self._units: dict[tuple[str, int | None], Shown] = {}
        self._parts: dict[str, dict[tuple[int, int], int | None]] = {}
        self._also: dict[str, list[Step]] = {}

    @property
    def copies(self) -> Collection[tuple[str, int]]:
        """The passages that are shown as copies of others: document and ordinal."""
        return {step.copy for noted in self._also.values() for step in noted if step.copy is not None}

    @property
    def units(self) -> list[Shown]:
        """Everything that is shown."""
        return list(self._units.values())

    def take(self, step: Step) -> Shown:
        """Take a step; return what it changed."""
        is_plain = step.kind is Kind.PLAIN
        key = (step.document, step.row if is_plain else None)
        unit = self._units.setdefault(key, Shown(*key))
        if step.hop is not None and step.kind is not Kind.ALSO and unit.hop is None:
            unit.hop = step.hop
        unit.has_relations |= step.kind is Kind.RELATIONS
        unit.has_outline |= step.kind is Kind.OUTLINE
        if step.kind is Kind.ALSO:
            self._also.setdefault(step.document, []).append(step)
        if step.kind is Kind.TEXT and step.stretch is not None:
            self._parts.setdefault(step.document, {})[step.stretch.start, step.stretch.end] = step.row
        if step.kind in {Kind.TEXT, Kind.ALSO}:
            unit.ranges = _joined(self._documents[step.document], self._parts.get(step.document, {}))
            for noted in self._also.get(step.document, ()):
                _note(unit, noted)
        return unit


def quarters_left(
    document: Document, section: Section | None, unit: Shown | None, copies: Collection[tuple[str, int]] = ()
) -> int:
    """Return the quarter tokens of what a document, or a section of it, has beside what is shown.

    Where not all of the text is at hand, they are estimated by its bytes.
    """
    if not document.is_whole:
        start, end = (0, document.size) if section is None else (section.start_byte, section.end_byte)
        parts = unit.ranges if unit else ()
        return end - start - sum(max(0, min(part.end, end) - max(part.start, start)) for part in parts)
    total = 0
    for passage in document.passages if section is None else document.within(section):
        if (document.key, passage.ordinal) in copies:
            continue
        at = passage.start
        for part in unit.ranges if unit else ():
            if part.end > at and part.start < passage.end:
                total += document.quarters(at, part.start)
                at = part.end
        total += document.quarters(at, passage.end)
    return total


def ranks_of(units: Iterable[Shown]) -> set[int]:
    """Return the ranks of the rows that are shown."""
    plain = {unit.row for unit in units if unit.row is not None}
    return plain | {rank for unit in units for part in unit.ranges for rank in part.rows}


def _joined(document: Document, parts: Mapping[tuple[int, int], int | None]) -> list[Range]:
    """Return the parts in text order, neighbours as one run."""
    ranges: list[Range] = []
    for (start, end), row in sorted(parts.items()):
        rows = () if row is None else (row,)
        if ranges and document.is_gap(ranges[-1].end, start):
            last = ranges[-1]
            last.end, last.rows = end, tuple(sorted({*last.rows, *rows}))
        else:
            ranges.append(Range(start, end, rows))
    return ranges


def _note(unit: Shown, step: Step) -> None:
    """Note a further place of a text at the run of it."""
    for part in unit.ranges:
        if step.stretch is not None and part.start < step.stretch.end and step.stretch.start < part.end:
            if step.place and step.place not in part.also_at:
                part.also_at.append(step.place)
            if step.row is not None:
                part.rows = tuple(sorted({*part.rows, step.row}))
            return


def longest(steps: Iterable[Step], limit: int, size: Callable[[Step], int]) -> tuple[list[Step], Step | None]:
    """Return the most first steps whose result takes at most ``limit`` quarter tokens, and the first of all.

    ``size`` takes a step and returns what all those taken come to. A step can make the result smaller, as it joins
    two runs; so the search goes on a little beyond the limit. Whatever the limit, a larger one gives no fewer.
    """
    taken: list[Step] = []
    fitting = 0
    for step in steps:
        taken.append(step)
        total = size(step)
        if total <= limit:
            fitting = len(taken)
        elif total > limit + SLACK:
            break
    return taken[:fitting], taken[0] if taken else None
