"""Passages: byte ranges of the text that follow paragraphs and sections and are packed to one size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from strata.text.document import Block, Document, Passage, Section
from strata.text.paragraphs import split_lines, split_prose, text_weight
from strata.text.sections import ByteOffsets

# Sizes are weights: Latin letters, a wide CJK character counting three, so that a passage is about
# as many model tokens in every script. 1,400 is about 350 tokens, which leaves room in the 512 of
# the common embedders and holds one thought.
TARGET_WEIGHT = 1_400
# Up to here a section stays whole: an abstract of 1,800 letters loses by being cut in two.
MAX_WEIGHT = 2_400
# A rest below this joins the passage before it where both fit the maximum.
SMALL_WEIGHT = 350

_BY_LINE = frozenset({"table", "code", "list", "cue"})


@dataclass(slots=True)
class _Unit:
    """A block, or a piece of one that is too large, on its way into a passage."""

    block: Block
    start: int
    end: int
    weight: int


@dataclass(slots=True)
class _Pack:
    """Units that become one passage, and the section their body stands in."""

    section: int
    units: list[_Unit]
    weight: int = 0


def build_passages(
    document: Document,
    sections: Sequence[Section],
    *,
    target_weight: int = TARGET_WEIGHT,
    max_weight: int = MAX_WEIGHT,
) -> list[Passage]:
    """Cut a document into passages, in text order and without overlap; every block is covered.

    ``sections`` are those of ``build_sections``. A passage holds blocks of one section and one page.
    A run of at most ``max_weight`` stays whole, as do tables and code of that size; larger ones are
    packed toward ``target_weight`` and cut at line ends (tables, code, lists) or sentence ends. A
    heading goes with the text under it. One with no text of its own before a deeper heading opens
    the first passage below, which then starts before its own section.
    """
    if len(sections) != 1 + sum(1 for block in document.blocks if block.kind == "heading"):
        raise ValueError("the sections are not those of this document")
    text, packs = document.text, []
    for section, units in _runs(document):
        packs.extend(_pack_run(text, section, units, target_weight, max_weight))
    offsets = ByteOffsets(text)
    return [_passage(text, ordinal, pack, offsets) for ordinal, pack in enumerate(_with_bare_headings(packs, sections))]


def _runs(document: Document) -> Iterator[tuple[int, list[_Unit]]]:
    """Yield the blocks that stand in one section and on one page, in order."""
    section, page, run = 0, None, list[_Unit]()
    for block in document.blocks:
        opens_section = block.kind == "heading"
        if run and (opens_section or block.page != page):
            yield section, run
            run = []
        section += opens_section
        page = block.page
        weight = text_weight(document.text[block.start : block.end])
        if weight:
            run.append(_Unit(block, block.start, block.end, weight))
    if run:
        yield section, run


def _pack_run(text: str, section: int, run: list[_Unit], target: int, maximum: int) -> list[_Pack]:
    """Pack one run: whole where it fits, else greedily toward the target."""
    total = sum(unit.weight for unit in run)
    if total <= maximum:
        return [_Pack(section, run, total)]
    packs: list[_Pack] = []
    current = _Pack(section, [])
    for unit in _pieces(text, run, target, maximum):
        # A heading never closes a passage, so what follows it joins it up to the maximum.
        bare = len(current.units) == 1 and current.units[0].block.kind == "heading"
        room = maximum if bare else target
        if current.units and current.weight + unit.weight > room:
            packs.append(current)
            current = _Pack(section, [])
        current.units.append(unit)
        current.weight += unit.weight
    if packs and current.weight < SMALL_WEIGHT and packs[-1].weight + current.weight <= maximum:
        packs[-1].units.extend(current.units)
        packs[-1].weight += current.weight
    else:
        packs.append(current)
    return packs


def _pieces(text: str, run: Iterable[_Unit], target: int, maximum: int) -> Iterator[_Unit]:
    for unit in run:
        if unit.weight <= maximum:
            yield unit
            continue
        split = split_lines if unit.block.kind in _BY_LINE else split_prose
        for start, end in split(text, unit.start, unit.end, target):
            yield _Unit(unit.block, start, end, text_weight(text[start:end]))


def _with_bare_headings(packs: Sequence[_Pack], sections: Sequence[Section]) -> Iterator[_Pack]:
    """Let a heading alone on its page, or without text of its own, open the passage that follows below it."""
    waiting: list[_Unit] = []
    for index, pack in enumerate(packs):
        pack.units[:0] = waiting
        waiting = []
        follower = packs[index + 1] if index + 1 < len(packs) else None
        only_headings = all(unit.block.kind == "heading" for unit in pack.units)
        if only_headings and follower and _is_below(sections, pack.section, follower):
            waiting = pack.units
            continue
        yield pack


def _is_below(sections: Sequence[Section], upper: int, follower: _Pack) -> bool:
    if follower.section == upper:
        return True
    return follower.section == upper + 1 and sections[follower.section].level > sections[upper].level


def _passage(text: str, ordinal: int, pack: _Pack, offsets: ByteOffsets) -> Passage:
    start, end = pack.units[0].start, pack.units[-1].end
    blocks = [unit.block for unit in pack.units]
    kinds: set[str] = {block.kind for block in blocks if block.kind != "heading"} or {"heading"}
    start_byte = offsets.at(start)
    passage = Passage(
        ordinal=ordinal,
        section=pack.section,
        kind=kinds.pop() if len(kinds) == 1 else "mixed",
        start_byte=start_byte,
        end_byte=offsets.at(end),
        text=text[start:end],
        page=blocks[0].page,
    )
    stamps = [block for block in blocks if block.start_ms is not None]
    if not stamps:
        return passage
    speakers = {block.speaker for block in stamps}
    return replace(
        passage,
        start_ms=stamps[0].start_ms,
        end_ms=max(block.end_ms or 0 for block in stamps),
        speaker=speakers.pop() if len(speakers) == 1 else None,
    )
