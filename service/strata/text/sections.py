"""The tree of headings: sections with anchors, breadcrumbs and byte ranges."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from strata.text.document import Block, Document, Section

FALLBACK_ANCHOR = "section"
MAX_ANCHOR_CHARS = 200


class ByteOffsets:
    """Turn rising character offsets of one text into UTF-8 byte offsets, in one pass over the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ascii = text.isascii()
        self._char = 0
        self._byte = 0

    def at(self, offset: int) -> int:
        """Return the byte offset of a character offset; offsets must not fall from call to call."""
        if self._ascii:
            return offset
        if offset < self._char:
            raise ValueError("offsets must be asked for in rising order")
        self._byte += len(self._text[self._char : offset].encode())
        self._char = offset
        return self._byte


def slugify(heading: str) -> str:
    """Return the anchor a heading gets on GitHub: lower case, spaces to hyphens, letters, digits, ``_`` and ``-`` kept.

    A heading of nothing else gives ``section``. Cut at 200 characters.
    """
    kept = [("-" if char == " " else char) for char in heading.strip().lower() if _stays(char)]
    return "".join(kept)[:MAX_ANCHOR_CHARS] or FALLBACK_ANCHOR


def _stays(char: str) -> bool:
    if char.isascii():
        return char.isalnum() or char in " _-"
    category = unicodedata.category(char)
    return category[0] in "LM" or category in {"Nd", "Pc"}


def build_sections(document: Document) -> list[Section]:
    """Return the sections in text order; section 0 is the whole document.

    A heading's anchor is the one the document declares, else its slug; what is taken already gets
    ``-1``, ``-2`` and so on, and the names made that way are taken too. Declared anchors are given
    out first, wherever they stand. Levels may skip: a level-3 heading under a level-1 one is its child.
    """
    headings = [block for block in document.blocks if block.kind == "heading"]
    anchors = assign_anchors(headings)
    offsets = ByteOffsets(document.text)
    starts = [offsets.at(block.start) for block in headings]
    length = offsets.at(len(document.text))
    ends = _subtree_ends([block.level for block in headings], starts, length)
    sections = [Section(0, 0, "", None, (), 0, length)]
    path: list[Block] = []
    for number, (block, anchor) in enumerate(zip(headings, anchors, strict=True)):
        while path and path[-1].level >= block.level:
            path.pop()
        path.append(block)
        breadcrumb = tuple(ancestor.heading for ancestor in path)
        sections.append(
            Section(number + 1, block.level, block.heading, anchor, breadcrumb, starts[number], ends[number])
        )
    return sections


def assign_anchors(headings: Sequence[Block]) -> list[str]:
    """Return one anchor a heading, all different."""
    taken: set[str] = set()
    anchors: list[str | None] = []
    for block in headings:
        declared = block.anchor if block.anchor and block.anchor not in taken else None
        anchors.append(declared)
        if declared:
            taken.add(declared)
    counters: dict[str, int] = {}
    result: list[str] = []
    for block, anchor in zip(headings, anchors, strict=True):
        name = anchor or _free_name(block.anchor or slugify(block.heading), taken, counters)
        taken.add(name)
        result.append(name)
    return result


def _free_name(base: str, taken: set[str], counters: dict[str, int]) -> str:
    name = base
    while name in taken:
        counters[base] = counters.get(base, 0) + 1
        name = f"{base}-{counters[base]}"
    return name


def _subtree_ends(levels: Sequence[int], starts: Sequence[int], length: int) -> list[int]:
    """Return for each heading where the next one of its level or above starts."""
    ends = [length] * len(levels)
    open_headings: list[int] = []
    for number, level in enumerate(levels):
        while open_headings and levels[open_headings[-1]] >= level:
            ends[open_headings.pop()] = starts[number]
        open_headings.append(number)
    return ends
