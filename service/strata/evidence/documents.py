"""Documents as an expansion sees them: passages with their scores, sections, relations, and the text at hand."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from strata.text.document import Section
from strata.text.estimate import token_quarters, utf8_bytes
from strata.text.paragraphs import paragraph_spans, split_lines, split_prose, text_weight, trim_span

SMALL_BYTES = 8_192
"""A document below this is printed whole, a larger one by its sections."""

STRETCH_WEIGHT = 400
"""What a passage is shown by at a time, in Latin letters: a paragraph, or some sentences of a long one."""

Direction = Literal["outgoing", "incoming"]
Worth = Callable[[str, str | None], float]
"""How much of the question a text says, 0 or more; its language is None where that is not known."""


class Passage(NamedTuple):
    """A passage of a document: a byte range, and its section's ordinal."""

    ordinal: int
    section: int
    start: int
    end: int


class Stretch(NamedTuple):
    """A part of a passage that is shown or not: a byte range, and how much of the question it says."""

    start: int
    end: int
    worth: float


class Declared(NamedTuple):
    """What a document declares under one predicate: targets as it writes them, in its order."""

    predicate: str
    targets: tuple[str, ...]


class Document:
    """One revision of a document; ``pin`` names it for ever.

    ``passages`` are in text order, those that may be shown. ``windows`` are the parts of the text that are
    at hand: byte offset and bytes, ascending, without overlap. ``superseded_by`` is None where nothing supersedes it,
    else the paths of what does, as far as they may be named. ``key`` identifies it within a call. ``read_sections``
    and ``read_scores`` (what each passage scores by words, in their order) are called once, where they are needed.
    """

    def __init__(
        self,
        *,
        key: str,
        source: str,
        pin: str,
        revision: int,
        title: str,
        size: int,
        passages: Sequence[Passage],
        read_sections: Callable[[], Iterable[Section]],
        read_scores: Callable[[], Sequence[float]],
        windows: Sequence[tuple[int, bytes]],
        context: str = "",
        language: str | None = None,
        relations: Sequence[Declared] = (),
        superseded_by: Sequence[str] | None = None,
    ) -> None:
        self.key = key
        self.source = source
        self.pin = pin
        self.revision = revision
        self.title = title
        self.size = size
        self.context = context
        self.language = language
        self.relations = tuple(relations)
        self.superseded_by = None if superseded_by is None else tuple(superseded_by)
        self._read_sections = read_sections
        self._read_scores = read_scores
        self.passages = tuple(passages)
        self._windows = _joined(windows)
        self._starts = [start for start, _ in self._windows]
        self._quarters: dict[tuple[int, int], int] = {}
        self._within: dict[int, tuple[Passage, ...]] = {}
        self._stretches: dict[int, tuple[Stretch, ...]] = {}

    @cached_property
    def sections(self) -> dict[int, Section]:
        """The sections by ordinal, in text order."""
        return {section.ordinal: section for section in self._read_sections()}

    @cached_property
    def _scores(self) -> dict[int, float]:
        return {item.ordinal: score for item, score in zip(self.passages, self._read_scores(), strict=True)}

    def score(self, passage: Passage) -> float:
        """Return what a passage scores by words, 0 or more."""
        return self._scores[passage.ordinal]

    @cached_property
    def by_ordinal(self) -> dict[int, Passage]:
        """The passages by ordinal."""
        return {passage.ordinal: passage for passage in self.passages}

    @property
    def is_small(self) -> bool:
        """Whether it is printed whole."""
        return self.size < SMALL_BYTES

    @cached_property
    def is_whole(self) -> bool:
        """Whether all of the text is at hand."""
        return sum(len(data) for _, data in self._windows) >= self.size

    def text(self, start: int, end: int) -> str:
        """Return the text of a byte range that lies within one window."""
        at = bisect_right(self._starts, start) - 1
        offset, data = self._windows[at]
        return data[start - offset : end - offset].decode()

    def quarters(self, start: int, end: int) -> int:
        """Return the quarter tokens of a byte range within one window; 0 for an empty one."""
        if start >= end:
            return 0
        known = self._quarters.get((start, end))
        if known is None:
            known = self._quarters[start, end] = token_quarters(self.text(start, end))
        return known

    def is_gap(self, start: int, end: int) -> bool:
        """Tell whether nothing but white space stands between two offsets, and all of it is at hand."""
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return False
        offset, data = self._windows[at]
        return end <= offset + len(data) and not data[start - offset : end - offset].strip()

    def section_of(self, start: int, end: int) -> Section | None:
        """Return the innermost known section that holds a byte range, None where only the document does."""
        starts, sections = self._by_start
        # Sections nest: of those that begin before, the last that reaches far enough is the innermost.
        for at in range(bisect_right(starts, start) - 1, -1, -1):
            if sections[at].end_byte >= end:
                return sections[at]
        return None

    @cached_property
    def _by_start(self) -> tuple[list[int], list[Section]]:
        sections = [item for item in self.sections.values() if item.level]
        return [item.start_byte for item in sections], sections

    def place(self, section: Section | None) -> str:
        """Return where a section stands, as every tool takes it: the pin, and the anchor where there is one."""
        return self.pin if section is None or section.anchor is None else f"{self.pin}#{section.anchor}"

    def anchored(self, anchor: str) -> Section | None:
        """Return the section of an anchor or, failing that, of a heading, compared without regard to case."""
        return self._anchors.get(anchor.casefold())

    @cached_property
    def _anchors(self) -> dict[str, Section]:
        anchors: dict[str, Section] = {}
        for section in self.sections.values():
            if section.anchor:
                anchors.setdefault(section.anchor.casefold(), section)
        for section in self.sections.values():
            if section.level:
                anchors.setdefault(section.heading.casefold(), section)
        return anchors

    def within(self, section: Section) -> Sequence[Passage]:
        """Return the passages that stand in a section, its subsections included; one may open with a heading above."""
        found = self._within.get(section.ordinal)
        if found is None:
            start, end = section.start_byte, section.end_byte
            found = tuple(item for item in self.passages if item.start < end and item.end > start)
            self._within[section.ordinal] = found
        return found

    def stretches(self, passage: Passage, worth: Worth) -> tuple[Stretch, ...]:
        """Return the parts of a passage, in the order in which they are shown: the best, then what stands beside it."""
        known = self._stretches.get(passage.ordinal)
        if known is None:
            known = self._stretches[passage.ordinal] = tuple(_grown(self._parts(passage, worth)))
        return known

    def _parts(self, passage: Passage, worth: Worth) -> list[Stretch]:
        if passage.end - passage.start <= STRETCH_WEIGHT:
            return [Stretch(passage.start, passage.end, 0.0)]
        text = self.text(passage.start, passage.end)
        parts: list[Stretch] = []
        at = at_byte = 0
        cuts = _cuts(text)
        if len(cuts) == 1:
            return [Stretch(passage.start, passage.end, 0.0)]
        for start, end in cuts:
            first = at_byte + utf8_bytes(text[at:start])
            at, at_byte = end, first + utf8_bytes(text[start:end])
            parts.append(Stretch(passage.start + first, passage.start + at_byte, worth(text[start:end], self.language)))
        return parts


def _joined(windows: Sequence[tuple[int, bytes]]) -> tuple[tuple[int, bytes], ...]:
    """Return windows of which none begins where another ends."""
    joined: list[tuple[int, list[bytes]]] = []
    end = -1
    for start, data in windows:
        if start == end:
            joined[-1][1].append(data)
        else:
            joined.append((start, [data]))
        end = start + len(data)
    return tuple((start, b"".join(parts)) for start, parts in joined)


def _cuts(text: str) -> list[tuple[int, int]]:
    """Cut a passage at blank lines, long paragraphs further; a heading stays with what follows it."""
    cuts: list[tuple[int, int]] = []
    waiting: int | None = None
    for start, end in paragraph_spans(text):
        for first, last in _shorter(text, start, end):
            begin = first if waiting is None else waiting
            waiting = None
            if _is_heading(text[first:last]):
                waiting = begin
            else:
                cuts.append((begin, last))
    if waiting is not None:
        start, end = trim_span(text, waiting, len(text))
        cuts.append((start, end))
    return cuts


def _shorter(text: str, start: int, end: int) -> list[tuple[int, int]]:
    if text_weight(text[start:end]) <= STRETCH_WEIGHT:
        return [(start, end)]
    split = split_lines if "\n" in text[start:end] else split_prose
    return list(split(text, start, end, STRETCH_WEIGHT))


def _is_heading(text: str) -> bool:
    return text.startswith("#") and "\n" not in text


def _grown(parts: Sequence[Stretch]) -> list[Stretch]:
    """Order parts from the best one outwards, the better neighbour first, so that what is shown stays in one piece."""
    if not parts:
        return []
    first = max(range(len(parts)), key=lambda at: (parts[at].worth, -at))
    low = high = first
    order = [parts[first]]
    while low > 0 or high < len(parts) - 1:
        goes_left = high == len(parts) - 1 or (low > 0 and parts[low - 1].worth > parts[high + 1].worth)
        if goes_left:
            low -= 1
            order.append(parts[low])
        else:
            high += 1
            order.append(parts[high])
    return order
