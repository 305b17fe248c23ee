"""Sentences chosen from a paragraph: whole, in their order, within the room, with offsets that hold."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.evidence.extracts import excerpt_text, extract_sentences, sentence_spans
from strata.evidence.metering import cost_in_json
from strata.evidence.model import Cost, Excerpt

ROOM = Cost(10_000, 40_000)
WEIGHTS = {"audit": 1.0, "retent": 2.0, "backup": 1.5, "認証": 1.0}
SENTENCES = [
    "Audit logs are kept.",
    'Retention is "long"!',
    "Backups?",
    "認証は必要です。",
    "Nothing here.",
    "Audit of backups and retention…",
    "No stop at the end",
    "é.",
]
texts = st.lists(st.sampled_from(SENTENCES), max_size=12).map(" ".join)


def shown(text, excerpts):
    return [text[item.start : item.end] for item in excerpts]


@given(st.one_of(texts, st.text()), st.integers(0, 400))
def test_excerpts_are_whole_sentences_in_order_that_fit_and_whose_offsets_hold(text, size):
    room = Cost(size, 4 * size)
    excerpts = extract_sentences(text, room, WEIGHTS, ["en"])
    data = text.encode("utf-8", "surrogatepass")
    starts, ends = zip(*sentence_spans(text), strict=True)
    for item in excerpts:
        assert data[item.start_byte : item.end_byte] == text[item.start : item.end].encode("utf-8", "surrogatepass")
        assert item.start in starts
        assert item.end in ends
    assert all(one.end < other.start for one, other in pairwise(excerpts))
    if excerpts:
        cost = cost_in_json(excerpt_text(text, excerpts))
        assert cost.bytes <= room.bytes
        assert cost.quarters <= room.quarters


@given(texts, st.integers(0, 300), st.integers(0, 300))
def test_more_room_never_shows_a_worse_best_sentence(text, one, other):
    def best(size):
        found = shown(text, extract_sentences(text, Cost(size, 4 * size), {"retent": 1.0}, ["en"]))
        return bool(found)

    assert best(min(one, other)) <= best(max(one, other))


def test_neighbouring_sentences_are_one_excerpt():
    text = "First. Audit one. Retention two. Last."
    excerpts = extract_sentences(text, ROOM, WEIGHTS, ["en"])
    assert shown(text, excerpts) == ["Audit one. Retention two."]
    assert excerpt_text(text, excerpts) == "… Audit one. Retention two. …"


def test_a_sentence_that_says_more_for_its_size_goes_first():
    text = "Audit, audit and again audit of whatever there may be. Retention. Backup."
    excerpts = extract_sentences(text, Cost(35, 200), WEIGHTS, ["en"])
    assert shown(text, excerpts) == ["Retention. Backup."]


def test_one_sentence_that_says_most_beats_many_that_say_little_for_less():
    text = "Backup. The audit and the backup follow the rules of retention here."
    excerpts = extract_sentences(text, Cost(75, 300), WEIGHTS, ["en"])
    assert shown(text, excerpts) == ["The audit and the backup follow the rules of retention here."]


def test_a_term_said_already_is_worth_nothing_more():
    text = "Retention. Unrelated words. Retention."
    assert shown(text, extract_sentences(text, ROOM, WEIGHTS, ["en"])) == ["Retention."]


@pytest.mark.parametrize("text", ["", " ", "Nothing that was asked for. Not here either."])
def test_nothing_worth_showing_gives_nothing(text):
    assert extract_sentences(text, ROOM, WEIGHTS, ["en"]) == ()


def test_no_room_gives_nothing():
    assert extract_sentences("Retention.", Cost(3, 12), WEIGHTS, ["en"]) == ()


def test_wide_sentences_end_without_spaces_and_their_bytes_count():
    text = "天気は良い。認証は必要です。以上。"
    assert extract_sentences(text, ROOM, WEIGHTS, ["ja"]) == (Excerpt(6, 14, 18, 42),)


def test_a_text_without_excerpts_is_shown_whole():
    assert excerpt_text("Whole.", ()) == "Whole."
