"""A budgeted result in its two forms, JSON and Markdown, of one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from strata.evidence.documents import Document
from strata.evidence.expansion import (
    MAX_RELATED,
    Display,
    Range,
    Schedule,
    Shown,
    Step,
    quarters_left,
    ranks_of,
)
from strata.lookup.budget_schemas import (
    BudgetedBlock,
    BudgetedOmissions,
    BudgetedResult,
    LeftOut,
    NextCall,
    ResultBudget,
)
from strata.lookup.relevance import Verdict
from strata.lookup.schemas import Completeness
from strata.text.document import Section
from strata.text.estimate import token_quarters, tokens_of_quarters
from strata.text.quoting import code, inline, quoted

OMITTED = 5
"""So many of what was left out are listed at most; there is always room for one."""

DECLARED, DECLARED_CHARS = 8, 600
"""So many targets of a document's relations are listed at most, in so many characters."""

NAMED, NAMED_CHARS = 3, 200
"""So many of what supersedes a document are named at most, each of so many characters."""

OUTLINE_LINES = 12
_SAID = frozenset({Completeness.COMPLETE, Completeness.PARTIAL})
"""What these mean the blocks and omissions of a budgeted result say themselves."""

FETCH = "fetch"


@dataclass(frozen=True, slots=True)
class Frame:
    """What a result says beside its blocks.

    ``contexts`` are the names of those that were asked, by scope; where it is one alone it is not repeated.
    """

    lookup_id: UUID
    verdict: Verdict
    limit: int
    contexts: Mapping[str, str]
    coverage: float | None = None

    def context(self, scope: str) -> str | None:
        """Return the context to name beside a place, None where only one was asked."""
        return self.contexts.get(scope) if len(self.contexts) > 1 else None


class Plain(NamedTuple):
    """A row that is text by itself: where it is stated (empty for nowhere), its title, and its scope."""

    at: str
    title: str
    scope: str


class _Part(NamedTuple):
    """What may be left out: as it is listed, and the document and section (by its anchor) that it stands in."""

    item: LeftOut
    document: Document | None
    anchor: str | None


class _Made(NamedTuple):
    """A block, and the quarter tokens that it adds to either form."""

    block: BudgetedBlock
    json: int
    markdown: int


class BudgetView:
    """Makes the result of any first steps of a schedule; ``plain`` are the rows that are text by themselves."""

    def __init__(self, frame: Frame, schedule: Schedule, plain: Mapping[int, Plain]) -> None:
        self._frame = frame
        self._schedule = schedule
        self._documents = schedule.documents
        self._plain = plain
        self._made: dict[tuple[object, ...], _Made] = {}
        self._parts = self._all_parts()

    def sizes(self) -> Callable[[Step], int]:
        """Return the function that takes a step and says what the larger form comes to, in quarter tokens.

        With one omission listed, and a closing line, of the longest that there can be.
        """
        display = Display(self._documents)
        json, text = self._fixed()
        costs: dict[tuple[str, int | None], tuple[int, int]] = {}

        def size(step: Step) -> int:
            nonlocal json, text
            unit = display.take(step)
            key = (unit.key, unit.row)
            before = costs.get(key, (0, 0))
            made = list(self._blocks(unit))
            after = costs[key] = (sum(item.json for item in made), sum(item.markdown for item in made))
            json, text = json + after[0] - before[0], text + after[1] - before[1]
            return max(json, text)

        return size

    def result(self, display: Display, first: Step | None) -> BudgetedResult:
        """Return the result that shows what fits, with as many omissions listed as fit beside it.

        ``first`` is the first step of all: where nothing is shown, the result says what it takes.
        """
        units = display.units
        total, left = self._left_out(display)
        closing = self._closing(units, total, self._needed(first) if first and not units else None)
        blocks = [*(made.block for unit in units for made in self._blocks(unit)), closing]
        for listed in range(len(left), -1, -1):
            made = self._framed(
                blocks, BudgetedOmissions(total=total, items=left[:listed], next=self._next(left[:listed]))
            )
            if larger_form(made) <= 4 * self._frame.limit:
                return _counted(made)
        return _counted(self._framed([closing], BudgetedOmissions(total=total), is_bare=True))

    def _framed(
        self, blocks: list[BudgetedBlock], omitted: BudgetedOmissions, *, is_bare: bool = False
    ) -> BudgetedResult:
        frame, verdict = self._frame, self._frame.verdict
        is_silent = is_bare or verdict.completeness in _SAID
        return BudgetedResult(
            lookup_id=frame.lookup_id,
            found=bool(self._schedule.rows),
            relevance_level=verdict.level,
            completeness_hint=verdict.completeness,
            completeness_message=None if is_silent else verdict.message,
            empty_reason=verdict.empty_reason,
            vector_coverage=frame.coverage if frame.coverage is not None and frame.coverage < 1 else None,
            blocks=blocks,
            omitted=omitted,
            budget=ResultBudget(limit=frame.limit, used=0),
        )

    def _fixed(self) -> tuple[int, int]:
        """Return what both forms take beside their blocks, at most."""
        items = [part.item for part in self._parts]
        rows = len(self._schedule.rows)
        closing = BudgetedBlock(kind="note", text=_shown_of(rows, rows, MAX_RELATED, len(items)))

        def framed(item: LeftOut | None) -> BudgetedResult:
            listed = [] if item is None else [item]
            omitted = BudgetedOmissions(total=len(items), items=listed, next=self._next(listed))
            return self._framed([closing], omitted)

        # The call names the place once more.
        longest = max(items, key=lambda item: token_quarters(_encoded(item) + item.at), default=None)
        widest = max(items, key=lambda item: token_quarters(_listed(item)), default=None)
        digits = len(str(self._frame.limit))
        return token_quarters(as_json(framed(longest))) + digits, token_quarters(markdown(framed(widest))) + digits

    def _needed(self, first: Step) -> int:
        """Return the tokens that the first step takes, under a limit of one digit more."""
        return tokens_of_quarters(self.sizes()(first) + 2)

    def _blocks(self, unit: Shown) -> Iterator[_Made]:
        """Yield the blocks of what is shown of a document; each is made once, as long as it stays the same."""
        if unit.row is not None:
            yield self._once((unit.row,), lambda: self._plain_block(unit.row or 0))
            return
        document = self._documents[unit.key]
        is_head = True
        if unit.has_outline:
            yield self._once((unit.key, unit.hop, unit.has_relations), lambda: self._outline_block(document, unit))
            is_head = False
        for part in sorted(unit.ranges, key=_place_in_rank):
            has_relations = is_head and unit.has_relations
            key = (unit.key, unit.hop, part.start, part.end, part.rows, tuple(part.also_at), is_head, has_relations)
            yield self._once(key, partial(self._text_block, document, unit, part, is_head=is_head))
            # What is said of the document is said once.
            is_head = False

    def _once(self, key: tuple[object, ...], make: Callable[[], BudgetedBlock]) -> _Made:
        known = self._made.get(key)
        if known is None:
            block = make()
            known = self._made[key] = _Made(
                block,
                token_quarters(_encoded(block)) + 1,
                sum(token_quarters(line) + 1 for line in _lines(block)),
            )
        return known

    def _head(self, document: Document, unit: Shown, *, is_head: bool) -> BudgetedBlock:
        """Return a block of a document without its place and text."""
        hop = self._schedule.hops[unit.hop] if unit.hop is not None else None
        return BudgetedBlock(
            kind="row",
            relation=hop.predicate if hop else None,
            direction=hop.direction if hop else None,
            context=self._frame.context(document.context),
            superseded_by=UNSET if document.superseded_by is None or not is_head else _named(document.superseded_by),
            relations=_declared(document) if unit.has_relations and is_head else {},
        )

    def _outline_block(self, document: Document, unit: Shown) -> BudgetedBlock:
        return replace(
            self._head(document, unit, is_head=True),
            kind="outline",
            at=document.pin,
            title=document.title or None,
            text="\n".join(_outline(document)),
        )

    def _text_block(self, document: Document, unit: Shown, part: Range, *, is_head: bool) -> BudgetedBlock:
        text = document.text(part.start, part.end)
        section = document.section_of(part.start, part.end)
        return replace(
            self._head(document, unit, is_head=is_head),
            kind="row" if part.rows else "related",
            rows=list(part.rows),
            at=document.place(section),
            title=_title(document, section, text),
            bytes=[part.start, part.end],
            also_at=list(part.also_at),
            text=text,
        )

    def _plain_block(self, rank: int) -> BudgetedBlock:
        plain, row = self._plain[rank], self._schedule.rows[rank]
        return BudgetedBlock(
            kind="row",
            rows=[rank],
            at=plain.at or None,
            context=self._frame.context(plain.scope),
            title=plain.title or None,
            also_at=list(row.also_at),
            text=row.text,
        )

    def _all_parts(self) -> list[_Part]:
        """Return all that may be left out: rows, then hops, with what they stand in."""
        parts: list[_Part] = []
        for rank, row in self._schedule.rows.items():
            if row.document is None:
                plain = self._plain[rank]
                context = self._frame.context(plain.scope)
                most = token_quarters(row.text)
                parts.append(_Part(LeftOut(at=plain.at, tokens=most, rank=rank, context=context), None, None))
            else:
                parts.append(self._part(row.document, row.anchor, rank=rank))
        return parts + [self._part(hop.document, hop.anchor, relation=hop.predicate) for hop in self._schedule.hops]

    def _part(self, key: str, anchor: str | None, *, rank: int | None = None, relation: str | None = None) -> _Part:
        document = self._documents[key]
        # The anchor of a row is that of its section; one that a relation names may be nowhere, or a heading.
        found = document.anchored(anchor) if anchor and rank is None else None
        named = anchor if rank is not None else found.anchor if found else None
        item = LeftOut(
            at=document.pin if named is None else f"{document.pin}#{named}",
            # At most, so that a count is never longer than this one.
            tokens=document.size,
            rank=rank,
            relation=relation,
            context=self._frame.context(document.context),
        )
        return _Part(item, document, named)

    def _left_out(self, display: Display) -> tuple[int, list[LeftOut]]:
        """Return how many parts a reader may still want, and the first of them.

        Results not shown come first, then related documents not shown, then rests.
        """
        printed = {unit.key: unit for unit in display.units if unit.row is None}
        copies, seen = display.copies, ranks_of(display.units)
        touched = {*printed, *(key for key, _ in copies)}
        in_rows = {row.document for row in self._schedule.rows.values()}
        unseen: list[_Part] = []
        rests: list[_Part] = []

        def left(part: _Part) -> int:
            """Return the quarter tokens of a part that are not shown."""
            document = part.document
            if document is None:
                return token_quarters(self._schedule.rows[part.item.rank or 0].text)
            section = document.anchored(part.anchor) if part.anchor else None
            return quarters_left(document, section, printed.get(document.key), copies)

        for part in self._parts:
            rank, document = part.item.rank, part.document
            if document is None:
                if rank not in seen:
                    unseen.append(part)
            elif rank is None and document.key in in_rows:
                # The row of it tells what is left.
                continue
            # Of a result whose document is not printed at all everything is left.
            elif rank is not None and rank not in seen and document.key not in touched:
                unseen.append(part)
            elif left(part):
                is_seen = document.key in printed if rank is None else rank in seen
                (rests if is_seen else unseen).append(part)
        parts = unseen + rests
        return len(parts), [replace(part.item, tokens=tokens_of_quarters(left(part))) for part in parts[:OMITTED]]

    def _next(self, items: Sequence[LeftOut]) -> NextCall | None:
        first = next((item for item in items if item.at), None)
        if first is None:
            return None
        context = first.context or next(iter(self._frame.contexts.values()))
        return NextCall(tool=FETCH, arguments={"context": context, "source": first.at})

    def _closing(self, units: Sequence[Shown], left: int, needed: int | None) -> BudgetedBlock:
        """Return how many of the results, and related documents, are shown; ``needed`` where the first is too large."""
        total = len(self._schedule.rows)
        if not total:
            told = "Nothing was found."
        elif needed is not None:
            told = (
                f"Found {_number(total, 'result')}; the first takes {needed} tokens. Raise the budget to that, or "
                "fetch what was left out."
            )
        else:
            related = sum(unit.hop is not None and not any(part.rows for part in unit.ranges) for unit in units)
            told = _shown_of(len(ranks_of(units)), total, related, left)
        return BudgetedBlock(kind="note", text=told)


def larger_form(result: BudgetedResult) -> int:
    """Return the quarter tokens of the larger of a result's two forms, with any number of tokens used."""
    return max(token_quarters(as_json(result)), token_quarters(markdown(result))) + len(str(result.budget.limit))


def as_json(result: BudgetedResult) -> str:
    """Return the compact JSON of a result: what is sent, and counted."""
    return _encoded(result)


def _encoded(value: Struct) -> str:
    return msgspec.json.encode(value).decode()


def markdown(result: BudgetedResult) -> str:
    """Return the text that agents read.

    Text of documents is quoted line by line, and what else comes from them stands inside a line of ours, so
    that nothing in a document can pass for a heading, a place or a note.
    """
    lines = [line for block in result.blocks for line in _lines(block)]
    if result.omitted.items:
        lines += [f"Left out: {_number(result.omitted.total, 'part')}. Fetch by reference:"]
        lines += [_listed(item) for item in result.omitted.items] + [""]
    if result.completeness_message:
        lines += [result.completeness_message, ""]
    text = "\n".join(lines)
    return f"{text}{_spent(result.budget.limit, token_quarters(text))}\n"


def _lines(block: BudgetedBlock) -> list[str]:
    """Return the lines of a block, a blank one at the end."""
    if block.kind == "note":
        return [inline(block.text or ""), ""]
    return [*_heading(block), quoted(block.text or ""), ""]


def _heading(block: BudgetedBlock) -> list[str]:
    name = ", ".join(map(str, block.rows)) or {"outline": "Outline"}.get(block.kind, "Related")
    title = f". {inline(block.title)}" if block.title else "."
    notes = [code(block.at)] if block.at else []
    if block.context:
        notes[:0] = [f"{code(block.context)}:"]
    notes = [" ".join(notes)] if notes else []
    if block.bytes is not None:
        notes = [f"{' '.join(notes)} bytes {block.bytes[0]}-{block.bytes[1]}"]
    if block.relation:
        is_named = block.direction == "outgoing"
        notes.append(f"{'named by' if is_named else 'names'} the first document as {inline(block.relation)}")
    if block.superseded_by is not UNSET:
        named = ", ".join(map(code, block.superseded_by))
        notes.append(f"superseded by {named}" if named else "superseded")
    if block.also_at:
        notes.append(f"the same text at {', '.join(map(code, block.also_at))}")
    lines = [f"### {name}{title}"]
    if notes:
        lines.append("; ".join(notes))
    if block.relations:
        told = (f"{inline(name)} {', '.join(map(code, targets))}" for name, targets in block.relations.items())
        lines.append(f"Relations: {'; '.join(told)}")
    return lines


def _listed(item: LeftOut) -> str:
    name = f"{item.rank}. " if item.rank is not None else f"{inline(item.relation or '')} "
    place = code(item.at) if item.at else "a fact"
    return f"- {name}{place}, {item.tokens} tokens"


def _spent(limit: int, quarters: int) -> str:
    """Return the line that says what the Markdown takes, itself counted; ``quarters`` are those above it."""
    line = ""
    for _ in range(3):
        used = tokens_of_quarters(quarters + len(line) + 1)
        line = f"{used} of {limit} tokens."
    return line


def _counted(result: BudgetedResult) -> BudgetedResult:
    """Return the result with the tokens that its JSON takes, their own digits counted."""
    base = token_quarters(as_json(result)) - 1
    used = next(used for digits in range(1, 20) if len(str(used := tokens_of_quarters(base + digits))) <= digits)
    return replace(result, budget=ResultBudget(limit=result.budget.limit, used=used))


def _place_in_rank(part: Range) -> tuple[bool, int, int]:
    """Return what the runs of a document are ordered by: the best row first, what belongs to none in text order."""
    return (not part.rows, min(part.rows, default=0), part.start)


def _shown_of(shown: int, total: int, related: int, left: int) -> str:
    beside = f" and {_number(related, 'related document')}" if related else ""
    rest = f"; {_number(left, 'part')} left out" if left else ""
    return f"{shown} of {_number(total, 'result')}{beside} shown{rest}."


def _declared(document: Document) -> dict[str, list[str]]:
    """Return the first targets that a document declares, by predicate."""
    listed: dict[str, list[str]] = {}
    chars = DECLARED_CHARS
    named = ((predicate, target) for predicate, targets in document.relations for target in targets)
    for predicate, target in islice(named, DECLARED):
        chars -= len(target)
        if chars < 0:
            break
        listed.setdefault(predicate, []).append(target)
    return listed


def _named(paths: Sequence[str]) -> list[str]:
    """Return the first paths, as far as they are short: a flag must not take the room of what it flags."""
    short = [path for path in paths if len(path) <= NAMED_CHARS]
    return short[:NAMED]


def _title(document: Document, section: Section | None, text: str) -> str | None:
    """Return title and headings above a text, without those that its first line says."""
    first = text.partition("\n")[0].lstrip("# ").rstrip()
    names = dict.fromkeys(name for name in (document.title, *(section.breadcrumb if section else ())) if name)
    names.pop(first, None)
    return " › ".join(names) or None


def _outline(document: Document) -> Iterator[str]:
    """Yield the first headings of a document, with their anchors and sizes."""
    heads = [section for section in document.sections.values() if section.level and section.heading]
    for section in heads[:OUTLINE_LINES]:
        tokens = tokens_of_quarters(section.end_byte - section.start_byte)
        anchor = f" #{section.anchor}" if section.anchor else ""
        yield f"{'  ' * (section.level - 1)}- {section.heading}{anchor} ({tokens} tokens)"
    if len(heads) > OUTLINE_LINES:
        yield f"- and {len(heads) - OUTLINE_LINES} more"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
