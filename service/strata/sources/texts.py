"""Sources that are stored as they stand: every paragraph is a passage, numbered as it is cited. Pure."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from strata.errors import INVALID_REQUEST, StrataError
from strata.lanes.lexical.segment import build_segments
from strata.platform.ids import ORDINALS, SERIAL_BITS
from strata.sources.build import Batch, passage_analysis, range_sha256
from strata.sources.metadata import guess_language
from strata.sources.model import Built, Locator
from strata.sources.paths import MAX_PATH_BYTES
from strata.text.document import Passage, Section
from strata.text.languages import DEFAULT_LANGUAGE
from strata.text.lines import paragraph_lines
from strata.text.sections import ByteOffsets
from strata.text.tokenise import ANALYSER_VERSION, Analysis, analyse, with_heading

PARAGRAPHS = "paragraphs"
"""The format of a source whose passages are its paragraphs."""

TEXT_VERSION = 1
"""Part of every fingerprint; moves whenever the same text would be cut or indexed otherwise."""

MAX_TEXT_BYTES = 8 * 1024 * 1024
MAX_PARAGRAPHS = ORDINALS
MAX_QUESTIONS = 8
MAX_QUESTION_BYTES = 512
MAX_SECTION_BYTES = 512
MAX_LOCATOR_KIND_BYTES = 64
MAX_LOCATOR_VALUE_BYTES = 512
MAX_TAGS = 32
MAX_TAG_BYTES = 128
# The years 1 to 9999, as a calendar can say them.
MIN_EPOCH, MAX_EPOCH = -62_135_596_800, 253_402_300_799

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PAGE = re.compile(r"[1-9][0-9]{0,8}")
_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class TextSource:
    """A text as it is to be stored, byte for byte, with what is said of its paragraphs (numbered from 0).

    ``questions`` and ``sections`` are (paragraph, text), ``locators`` (paragraph, kind, value). A section
    extends to the next one; of two for one paragraph the last counts, as of locators. ``date`` is that of
    the document, ``stored_at`` the moment it counts as stored, None for now; both in epoch seconds.
    """

    name: str
    text: str
    questions: Sequence[tuple[int, str]] = ()
    sections: Sequence[tuple[int, str]] = ()
    locators: Sequence[tuple[int, str, str]] = ()
    tags: Sequence[str] = ()
    date: int | None = None
    stored_at: int | None = None


@dataclass(frozen=True, slots=True)
class TextStored:
    """What of a text is stored, and what was dropped because the text lacks the paragraph it names."""

    source: str
    paragraphs: int
    questions_stored: int = 0
    questions_dropped: int = 0
    sections_stored: int = 0
    sections_dropped: int = 0
    locators_stored: int = 0
    locators_dropped: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """Texts ready to be written together, and what is to be said of each."""

    batch: Batch
    stored: Sequence[TextStored] = ()


def moment(epoch: int | None) -> dt.datetime | None:
    """Return the time of an epoch second; None for None."""
    return None if epoch is None else EPOCH + dt.timedelta(seconds=epoch)


def epoch(moment: dt.datetime | None) -> int | None:
    """Return the epoch second in which a time lies; None for None."""
    return None if moment is None else (moment - EPOCH) // dt.timedelta(seconds=1)


def prepare_texts(texts: Sequence[TextSource]) -> Prepared:
    """Cut, check and analyse texts; CPU work of about a second for 10 MB.

    Raises ``invalid_request`` with a pointer into ``{passages, questions, sections, locators, tags, dates}``,
    each by source: for a value beyond its limit, an empty one, a NUL character or a lone surrogate
    anywhere, and a name that comes twice.
    """
    names: set[str] = set()
    built: list[Built] = []
    stored: list[TextStored] = []
    analysed: list[tuple[int, Analysis]] = []
    for text in texts:
        check_text(text)
        if text.name in names:
            raise StrataError(INVALID_REQUEST, "The source comes twice.", pointer=_at("passages", text.name))
        names.add(text.name)
        source, outcome, analyses = _build(text)
        serial = len(built) << SERIAL_BITS
        analysed.extend((serial | ordinal, analysis) for ordinal, analysis in enumerate(analyses))
        built.append(source)
        stored.append(outcome)
    return Prepared(Batch(built=built, segments=build_segments(analysed)), stored)


def check_text(text: TextSource) -> None:
    """Raise ``invalid_request`` for a text that cannot be stored; see :func:`prepare_texts`."""
    name = text.name
    check_word(name, MAX_PATH_BYTES, _at("passages", name))
    check_word(text.text, MAX_TEXT_BYTES, _at("passages", name), is_optional=True)
    # A paragraph takes three characters, its break included.
    if len(text.text) > 3 * MAX_PARAGRAPHS and len(paragraph_lines(text.text)) > MAX_PARAGRAPHS:
        detail = f"A text has at most {MAX_PARAGRAPHS} paragraphs."
        raise StrataError(INVALID_REQUEST, detail, pointer=_at("passages", name))
    for kind, pairs, limit in (
        ("questions", text.questions, MAX_QUESTION_BYTES),
        ("sections", text.sections, MAX_SECTION_BYTES),
    ):
        for number, (paragraph, word) in enumerate(pairs):
            _check_paragraph(paragraph, _at(kind, name, number))
            check_word(word, limit, _at(kind, name, number))
    if any(count > MAX_QUESTIONS for count in Counter(at for at, _ in set(text.questions)).values()):
        detail = f"A paragraph has at most {MAX_QUESTIONS} questions."
        raise StrataError(INVALID_REQUEST, detail, pointer=_at("questions", name))
    for number, (paragraph, kind, value) in enumerate(text.locators):
        _check_paragraph(paragraph, _at("locators", name, number))
        check_word(kind, MAX_LOCATOR_KIND_BYTES, _at("locators", name, number))
        check_word(value, MAX_LOCATOR_VALUE_BYTES, _at("locators", name, number))
    if len(text.tags) > MAX_TAGS:
        raise StrataError(INVALID_REQUEST, f"A source has at most {MAX_TAGS} tags.", pointer=_at("tags", name))
    for number, tag in enumerate(text.tags):
        check_word(tag, MAX_TAG_BYTES, _at("tags", name, number))
    for time in (text.date, text.stored_at):
        if time is not None and not MIN_EPOCH <= time <= MAX_EPOCH:
            raise StrataError(
                INVALID_REQUEST, "The time is not within the years 1 to 9999.", pointer=_at("dates", name)
            )


def check_word(word: str, limit: int, pointer: str, *, is_optional: bool = False) -> None:
    """Raise ``invalid_request`` unless a text is of 1 to ``limit`` bytes (0 too where optional) that can be stored."""
    detail = ""
    if not word and not is_optional:
        detail = "The value is empty."
    elif "\x00" in word:
        detail = "The value holds a NUL character, which cannot be stored."
    else:
        try:
            if len(word.encode()) > limit:
                detail = f"The value is longer than {limit} bytes in UTF-8."
        except UnicodeEncodeError:
            detail = "The value holds half of a surrogate pair, which is no character."
    if detail:
        raise StrataError(INVALID_REQUEST, detail, pointer=pointer.encode("utf-8", "replace").decode())


def _check_paragraph(paragraph: int, pointer: str) -> None:
    if paragraph < 0:
        raise StrataError(INVALID_REQUEST, "Paragraphs are numbered from 0.", pointer=pointer)


def _at(kind: str, name: str, number: int | None = None) -> str:
    escaped = name[:MAX_PATH_BYTES].replace("~", "~0").replace("/", "~1")
    return f"/{kind}/{escaped}" if number is None else f"/{kind}/{escaped}/{number}"


def _build(text: TextSource) -> tuple[Built, TextStored, list[Analysis]]:
    spans = paragraph_lines(text.text)
    asked = _questions(text)
    markers, places = dict(text.sections), {at: Locator(kind, value) for at, kind, value in text.locators}
    count = len(spans)
    questions = [pair for pair in asked if pair[0] < count]
    kept_markers = {at: markers[at] for at in sorted(markers) if at < count}
    locators = {at: places[at] for at in sorted(places) if at < count}
    content = text.text.encode()
    ranges = _byte_ranges(text.text, spans)
    sections = _sections(kept_markers, ranges, len(content))
    passages = _passages(text.text, spans, ranges, kept_markers, locators)
    language = guess_language(text.text)
    analysed_as = language or DEFAULT_LANGUAGE
    source = Built(
        path=text.name,
        origin="",
        pointer=None,
        size=len(content),
        title="",
        format=PARAGRAPHS,
        media_type=None,
        category=None,
        language=language,
        analysed_as=analysed_as,
        tags=tuple(dict.fromkeys(text.tags)),
        source_key=None,
        source_key_basis=None,
        occurred_at=moment(text.date),
        metadata={},
        normalisation={},
        warnings=(),
        content_sha256=hashlib.sha256(content).digest(),
        fingerprint=_fingerprint(text, questions, kept_markers, locators),
        content=content,
        sections=sections,
        passages=passages,
        passage_sha256=[range_sha256(content, passage) for passage in passages],
        questions=questions,
        locators=locators,
        stored_at=moment(text.stored_at),
    )
    stored = TextStored(
        source=text.name,
        paragraphs=count,
        questions_stored=len(questions),
        questions_dropped=len(asked) - len(questions),
        sections_stored=len(kept_markers),
        sections_dropped=len(markers) - len(kept_markers),
        locators_stored=len(locators),
        locators_dropped=len(places) - len(locators),
    )
    return source, stored, _analyses(sections, passages, questions, analysed_as)


def _questions(text: TextSource) -> list[tuple[int, str]]:
    """Return each question of a paragraph once, by paragraph, in the order in which they come."""
    return sorted(dict.fromkeys(text.questions), key=lambda pair: pair[0])


def _byte_ranges(text: str, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    offsets = ByteOffsets(text)
    return [(offsets.at(start), offsets.at(end)) for start, end in spans]


def _sections(markers: Mapping[int, str], ranges: Sequence[tuple[int, int]], length: int) -> list[Section]:
    """Return the sections that markers open, each to the next; section 0 is the whole text."""
    starts = [*(ranges[paragraph][0] for paragraph in markers), length]
    return [
        Section(0, 0, "", None, (), 0, length),
        *(
            # The character that joins breadcrumbs in a statement may stand in a marker.
            Section(number, 1, heading, None, (heading.replace(_SEPARATOR, " "),), start, end)
            for number, (heading, (start, end)) in enumerate(zip(markers.values(), pairwise(starts), strict=True), 1)
        ),
    ]


def _passages(
    text: str,
    spans: Sequence[tuple[int, int]],
    ranges: Sequence[tuple[int, int]],
    markers: Mapping[int, str],
    locators: Mapping[int, Locator],
) -> list[Passage]:
    passages = []
    section = 0
    for ordinal, ((start, end), (start_byte, end_byte)) in enumerate(zip(spans, ranges, strict=True)):
        section += ordinal in markers
        page = page_of(locators.get(ordinal))
        passages.append(Passage(ordinal, section, "paragraph", start_byte, end_byte, text[start:end], page))
    return passages


def page_of(locator: Locator | None) -> int | None:
    """Return the page that a locator names; None where it names none."""
    is_page = locator is not None and locator.kind == "page" and _PAGE.fullmatch(locator.value)
    return int(locator.value) if locator is not None and is_page else None


def _analyses(
    sections: Sequence[Section], passages: Sequence[Passage], questions: Sequence[tuple[int, str]], language: str
) -> list[Analysis]:
    """Analyse paragraphs as passages of any source are, with the terms and the length of their questions."""
    analyses = [passage_analysis("", sections, passage, language) for passage in passages]
    for paragraph, question in questions:
        analyses[paragraph] = with_heading(analyses[paragraph], analyse(question, language), 1)
    return analyses


def _fingerprint(
    text: TextSource,
    questions: Sequence[tuple[int, str]],
    markers: Mapping[int, str],
    locators: Mapping[int, Locator],
) -> bytes:
    basis = [
        [TEXT_VERSION, ANALYSER_VERSION, PARAGRAPHS],
        questions,
        list(markers.items()),
        list(locators.items()),
        list(dict.fromkeys(text.tags)),
        text.date,
    ]
    return hashlib.sha256(msgspec.json.encode(basis)).digest()
