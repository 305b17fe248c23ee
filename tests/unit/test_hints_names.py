"""The normal form of names, and the parts of a question that could be one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.hints.names import (
    MAX_KEY_CHARS,
    bigrams,
    dice,
    is_whole_key,
    keyword_key,
    name_key,
    normalise_name,
    read_question,
)

anything = st.text(st.characters(codec=None), max_size=80)


@pytest.mark.parametrize(
    ("text", "norm"),
    [
        ("  Annual   LEAVE\tpolicy ", "annual leave policy"),
        ("annual-leave_policy!", "annual leave policy"),
        ("ＡＢＣ１２３", "abc123"),
        ("ﾃﾞｰﾀﾍﾞｰｽ", "でーたべーす"),
        ("データ・ベース", "でーたべーす"),
        ("デ一タ", "で一た"),
        ("持股比\n例", "持股比例"),
        ("휴가 정책", "휴가정책"),
        ("Python入門", "python 入門"),
        ("Straße", "strasse"),
        ("Café", "café"),
        ("Cafe\u0301", "café"),
        ("C++", "c++"),
        ("C#", "c#"),
        ("a\x00b", "ab"),
        ("soft\u00adhyphen", "softhyphen"),
        ("🚀 launch", "🚀 launch"),
        ("\ud83d\ude80", "🚀"),
        ("מדיניות חופשה", "מדיניות חופשה"),
        ("...", ""),
        ("", ""),
        ("\udcff", ""),
    ],
)
def test_names_are_compared_without_case_width_kana_and_punctuation(text, norm):
    assert normalise_name(text) == norm


@given(anything)
def test_normalising_a_name_twice_changes_nothing(text):
    norm = normalise_name(text)
    assert normalise_name(norm) == norm
    norm.encode()


@given(st.text(st.characters(max_codepoint=127), max_size=60))
def test_the_short_way_for_ascii_gives_what_the_long_way_gives(text):
    assert normalise_name(f"{text} 年") == f"{normalise_name(text)} 年".strip()


@given(anything, anything)
def test_dice_is_symmetric_and_within_bounds(left, right):
    a, b = bigrams(normalise_name(left)), bigrams(normalise_name(right))
    assert dice(a, b) == dice(b, a)
    assert 0 <= dice(a, b) <= 1
    assert dice(a, a) in (0, 1)


@given(anything)
def test_no_question_makes_the_reader_fail_and_its_probes_are_bounded(text):
    question = read_question(text)
    assert len(question.name_probes) <= 96 * 16
    assert all(len(key) <= MAX_KEY_CHARS for key in [*question.name_probes, *question.keyword_probes])


@pytest.mark.parametrize("text", ["word " * 2000, "有給休暇の申請" * 700, "a" * 5000, "🚀" * 4096, "\n" * 9999])
def test_a_huge_question_costs_a_bounded_number_of_probes(text):
    question = read_question(text)
    assert len(question.name_probes) <= 96 * 16


def test_the_end_of_a_long_question_is_read_too():
    question = read_question("padding " * 400 + "annual leave")
    assert "annual leave" in question.parts


def test_parts_of_a_question_stop_at_words_in_spaced_scripts_and_at_characters_in_others():
    parts = read_question("leaves 有給休暇").parts
    assert "leaves" in parts
    assert "leave" not in parts
    assert {"有給", "給休", "休暇", "有給休暇"} <= set(parts)
    assert "leaves 有給" in parts


def test_a_long_name_is_kept_by_a_digest_of_all_of_it():
    long, other = "word " * 100 + "one", "word " * 100 + "two"
    assert name_key(long) != name_key(other)
    assert len(name_key(long)) <= MAX_KEY_CHARS
    assert not is_whole_key(name_key(long))
    assert is_whole_key(name_key("short"))


def test_a_keyword_is_probed_by_its_longest_word():
    assert keyword_key("right to disconnect") == "disconnect"
    assert keyword_key("...") is None
