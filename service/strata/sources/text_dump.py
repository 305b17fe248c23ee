"""What is stored of a source, as a text whose paragraphs are numbered: also of documents that were read. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strata.sources.model import Locator
from strata.sources.text_repository import StoredPassage, StoredSection, StoredSource
from strata.sources.texts import MAX_SECTION_BYTES, MAX_TAG_BYTES, MAX_TAGS, PARAGRAPHS, TextSource, epoch
from strata.text.lines import paragraph_lines
from strata.text.sections import ByteOffsets


@dataclass(frozen=True, slots=True)
class TextDump:
    """A source as it can be stored again.

    ``paragraphs`` gives the paragraph in which each passage begins: its own number, for a source
    that was stored as it stands.
    """

    source: TextSource
    paragraphs: Mapping[int, int]


def locator_of(
    kind: str | None, value: str | None, page: int | None, start_ms: int | None, end_ms: int | None
) -> Locator | None:
    """Return where a passage stands in the original: as it was said, else its page, else its interval in time."""
    if kind is not None and value is not None:
        return Locator(kind, value)
    if page is not None:
        return Locator("page", str(page))
    if start_ms is not None:
        return Locator("time", f"{_clock(start_ms)}-{_clock(end_ms if end_ms is not None else start_ms)}")
    return None


def _clock(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{rest:03}"


def dump(
    stored: StoredSource,
    sections: Sequence[StoredSection],
    passages: Sequence[StoredPassage],
    questions: Sequence[tuple[int, str]],
) -> TextDump:
    """Return a source with its sections as markers and its pages and times as locators, by paragraph.

    The passages of a document that was read may be larger or smaller than its paragraphs: what is
    said of one is said of the paragraph in which it begins, once. A heading beyond the limit of a
    section is cut, tags beyond theirs are left out.
    """
    text = stored.content.decode()
    if stored.format == PARAGRAPHS:
        starts = [passage.start_byte for passage in passages]
    else:
        spans, offsets = paragraph_lines(text), ByteOffsets(text)
        starts = [offsets.at(start) for start, _ in spans]
    paragraphs = {passage.ordinal: _at(starts, passage.start_byte) for passage in passages}
    locators: dict[int, Locator] = {}
    for passage in passages:
        locator = locator_of(
            passage.locator_kind, passage.locator_value, passage.page, passage.start_ms, passage.end_ms
        )
        if locator is not None:
            locators.setdefault(paragraphs[passage.ordinal], locator)
    source = TextSource(
        name=stored.name,
        text=text,
        questions=tuple((paragraphs[passage], question) for passage, question in questions if passage in paragraphs),
        sections=tuple(_markers(sections, passages, paragraphs)),
        locators=tuple((at, locators[at].kind, locators[at].value) for at in sorted(locators)),
        tags=tuple(tag for tag in stored.tags if len(tag.encode()) <= MAX_TAG_BYTES)[:MAX_TAGS],
        date=epoch(stored.occurred_at),
        stored_at=epoch(stored.stored_at),
    )
    return TextDump(source, paragraphs)


def fitted(text: str, limit: int) -> str:
    """Return as much of a text as its first ``limit`` bytes in UTF-8 hold."""
    return text.encode()[:limit].decode("utf-8", "ignore")


def _at(starts: Sequence[int], byte: int) -> int:
    return max(0, bisect_right(starts, byte) - 1)


def _markers(
    sections: Sequence[StoredSection],
    passages: Sequence[StoredPassage],
    paragraphs: Mapping[int, int],
) -> list[tuple[int, str]]:
    """Return the paragraphs at which a section begins; of a document that was read, where its passages change it."""
    headings = {section.ordinal: section.heading for section in sections}
    markers: dict[int, str] = {}
    last = 0
    for passage in passages:
        if passage.section != last and headings.get(passage.section):
            # A later passage of the same paragraph stands in it all the same: the first says what it is of.
            markers.setdefault(paragraphs[passage.ordinal], fitted(headings[passage.section], MAX_SECTION_BYTES))
        last = passage.section
    return sorted(markers.items())
