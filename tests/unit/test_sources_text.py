"""Texts that are stored as they stand: cut, checked, fingerprinted and written out again. Pure."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import INVALID_REQUEST, StrataError
from strata.lanes.lexical.segment import term_hash
from strata.sources.model import Locator
from strata.sources.text_dump import dump, fitted, locator_of
from strata.sources.text_repository import StoredPassage, StoredSection, StoredSource
from strata.sources.texts import EPOCH, MAX_TEXT_BYTES, TextSource, epoch, moment, prepare_texts
from strata.text.document import Passage
from strata.text.tokenise import analyse


def one(text, name="doc.md", **more):
    prepared = prepare_texts([TextSource(name, text, **more)])
    return prepared.batch.built[0], prepared.stored[0], prepared.batch.segments


def test_every_paragraph_is_a_passage_of_its_exact_bytes():
    text = "\ufeffFirst.\r\nStill first.\r\n\r\n  導入。\n\n\n本編 👩‍👩‍👧\u202eabc\n"
    built, stored, _ = one(text)
    assert built.content == text.encode()
    cut = [built.content[passage.start_byte : passage.end_byte].decode() for passage in built.passages]
    assert cut == [passage.text for passage in built.passages]
    assert cut == ["\ufeffFirst.\r\nStill first.", "  導入。", "本編 👩‍👩‍👧\u202eabc"]
    assert stored.paragraphs == 3
    assert built.title == ""


def test_a_text_without_paragraphs_is_stored_all_the_same():
    built, stored, segments = one(" \n\u3000\n")
    assert (built.passages, stored.paragraphs, list(segments)) == ([], 0, [])
    assert [(section.ordinal, section.end_byte) for section in built.sections] == [(0, 6)]


def test_a_section_extends_to_the_next_marker_and_the_last_of_two_counts():
    built, stored, _ = one("a\n\nb\n\nc\n\nd", sections=[(1, "B"), (3, "x"), (3, "D"), (9, "gone")])
    assert [passage.section for passage in built.passages] == [0, 1, 1, 2]
    assert [(section.heading, section.start_byte, section.end_byte) for section in built.sections[1:]] == [
        ("B", 3, 9),
        ("D", 9, 10),
    ]
    assert (stored.sections_stored, stored.sections_dropped) == (2, 1)


def test_a_page_locator_is_also_the_page_of_its_passage():
    places = [(0, "page", "12"), (1, "page", "iv"), (2, "slide", "3"), (3, "page", "0"), (7, "page", "1")]
    built, stored, _ = one("a\n\nb\n\nc\n\nd", locators=places)
    assert [passage.page for passage in built.passages] == [12, None, None, None]
    assert built.locators[1] == Locator("page", "iv")
    assert (stored.locators_stored, stored.locators_dropped) == (4, 1)


def test_questions_add_terms_and_length_to_their_paragraph_and_repeats_fold():
    plain, _, before = one("alpha beta\n\ngamma")
    asked = [(1, "which zebra"), (0, "what delta"), (1, "which zebra"), (5, "lost")]
    built, stored, after = one("alpha beta\n\ngamma", questions=asked)
    assert built.questions == [(0, "what delta"), (1, "which zebra")]
    assert (stored.questions_stored, stored.questions_dropped) == (2, 1)
    lengths = [analyse(text, "en").length for text in ("what delta", "which zebra")]
    assert (after[0].lengths - before[0].lengths).tolist() == lengths
    assert term_hash("zebra") in after[0].terms.tolist()
    assert plain.fingerprint != built.fingerprint


def test_the_fingerprint_moves_with_all_that_is_said_but_not_with_the_stamp():
    base = one("a\n\nb")[0].fingerprint
    others = [
        {"tags": ["x"]},
        {"date": 5},
        {"sections": [(0, "s")]},
        {"locators": [(0, "page", "1")]},
        {"questions": [(0, "q")]},
    ]
    assert len({base, *(one("a\n\nb", **more)[0].fingerprint for more in others)}) == 6
    assert one("a\n\nb", stored_at=77)[0].fingerprint == base


@pytest.mark.parametrize(
    ("source", "pointer"),
    [
        (TextSource("", "x"), "/passages/"),
        (TextSource("a\x00", "x"), "/passages/a\x00"),
        (TextSource("a" * 1025, "x"), "/passages/" + "a" * 1024),
        (TextSource("a/b", "nul \x00"), "/passages/a~1b"),
        (TextSource("a", "half \ud83d"), "/passages/a"),
        (TextSource("a", "é" * (MAX_TEXT_BYTES // 2 + 1)), "/passages/a"),
        (TextSource("a", "x", questions=[(0, "q"), (0, "")]), "/questions/a/1"),
        (TextSource("a", "x", questions=[(0, "é" * 257)]), "/questions/a/0"),
        (TextSource("a", "x", questions=[(0, f"q{n}") for n in range(9)]), "/questions/a"),
        (TextSource("a", "x", questions=[(-1, "q")]), "/questions/a/0"),
        (TextSource("a", "x", sections=[(0, "é" * 257)]), "/sections/a/0"),
        (TextSource("a", "x", locators=[(0, "k" * 65, "v")]), "/locators/a/0"),
        (TextSource("a", "x", locators=[(0, "k", "v" * 513)]), "/locators/a/0"),
        (TextSource("a", "x", tags=[""]), "/tags/a/0"),
        (TextSource("a", "x", tags=["t" * 129]), "/tags/a/0"),
        (TextSource("a", "x", tags=[str(n) for n in range(33)]), "/tags/a"),
        (TextSource("a", "x", date=10**15), "/dates/a"),
        (TextSource("a", "x", stored_at=-(10**15)), "/dates/a"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_a_pointer(source, pointer):
    with pytest.raises(StrataError) as raised:
        prepare_texts([source])
    assert raised.value.kind is INVALID_REQUEST
    assert raised.value.pointer == pointer


def test_a_name_that_comes_twice_is_refused():
    with pytest.raises(StrataError):
        prepare_texts([TextSource("a", "x"), TextSource("a", "y")])


def test_more_paragraphs_than_a_passage_id_can_number_are_refused():
    with pytest.raises(StrataError, match="1048575 paragraphs"):
        prepare_texts([TextSource("a", "x\n\n" * 1_048_576)])


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_epoch_seconds_come_back(second):
    assert epoch(moment(second)) == second


def test_no_time_stays_none_and_fractions_fall():
    assert (epoch(None), moment(None)) == (None, None)
    assert epoch(EPOCH.replace(microsecond=999_999)) == 0


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=120),
    st.lists(st.tuples(st.integers(0, 6), st.text("ab\n", min_size=1, max_size=5)), max_size=6),
)
def test_what_is_dumped_prepares_to_the_same_source(text, pairs):
    built, _, _ = one(text, sections=pairs, questions=pairs, locators=[(at, "slide", word) for at, word in pairs])
    stored = StoredSource(uuid.UUID(int=1), built.path, built.format, list(built.tags), None, EPOCH, built.content)
    dumped = dump(
        stored,
        [StoredSection(s.ordinal, s.heading, s.start_byte, s.end_byte) for s in built.sections],
        [_stored(passage, built.locators.get(passage.ordinal)) for passage in built.passages],
        built.questions,
    )
    again = prepare_texts([dumped.source]).batch.built[0]
    assert again.fingerprint == built.fingerprint
    assert again.content == built.content
    assert dict(dumped.paragraphs) == {number: number for number in range(len(built.passages))}


def _stored(passage: Passage, locator):
    kind, value = (locator.kind, locator.value) if locator else (None, None)
    return StoredPassage(passage.ordinal, passage.section, passage.start_byte, passage.page, None, None, kind, value)


def test_a_read_document_is_dumped_by_the_paragraphs_of_its_text():
    text = "# A\n\none\n\ntwo\n\n## B\n\nthree"
    stored = StoredSource(uuid.UUID(int=1), "a.md", "markdown", ["t", "x" * 200], None, EPOCH, text.encode())
    sections = [
        StoredSection(0, "", 0, 26),
        StoredSection(1, "A", 0, 26),
        StoredSection(2, "B" * 600, 15, 26),
    ]
    passages = [
        StoredPassage(0, 1, 0, 3, None, None, None, None),
        StoredPassage(1, 2, 15, 17, None, None, None, None),
    ]
    dumped = dump(stored, sections, passages, [])
    assert dumped.source.sections == ((0, "A"), (3, "B" * 512))
    assert dumped.source.locators == ((0, "page", "3"), (3, "page", "17"))
    assert dumped.source.tags == ("t",)
    assert dumped.paragraphs == {0: 0, 1: 3}


def test_locators_say_what_is_known():
    assert locator_of("sheet", "A1", 3, None, None) == Locator("sheet", "A1")
    assert locator_of(None, None, 3, 5, 6) == Locator("page", "3")
    assert locator_of(None, None, None, 62_500, 3_665_007) == Locator("time", "00:01:02.500-01:01:05.007")
    assert locator_of(None, None, None, None, None) is None


def test_a_cut_leaves_whole_characters():
    assert fitted("é" * 300, 511) == "é" * 255
