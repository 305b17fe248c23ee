"""Passages as ranges, and what is embedded of them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from strata.embeddings.carry import Carried, KeyedPassage, matched
from strata.embeddings.model import ITEM_PASSAGES, embed_payloads, packed, passage_ids, ranges_of
from strata.embeddings.status import coverage
from strata.text.contextual import embedded_text

IDS = st.lists(
    st.builds(lambda serial, ordinal: serial << 20 | ordinal, st.integers(1, 2**40), st.integers(0, 2**20 - 1))
    | st.integers(1 << 20, (1 << 20) + 200),
    unique=True,
)


@given(IDS)
def test_ranges_hold_exactly_the_passages_they_were_made_of(ids):
    assert passage_ids(ranges_of(ids)) == sorted(ids)


@given(IDS, st.integers(1, 40))
def test_packing_loses_nothing_and_fills_every_item_but_the_last(ids, limit):
    parts = list(packed(ranges_of(ids), limit))
    sizes = [len(passage_ids(part)) for part in parts]
    assert [one for part in parts for one in passage_ids(part)] == sorted(ids)
    assert all(size == limit for size in sizes[:-1])
    assert all(0 < size <= limit for size in sizes)


def test_sources_of_one_passage_share_items():
    payloads = embed_payloads(7, [(serial, 0, 1) for serial in range(100)])
    assert len(payloads) == -(-100 // ITEM_PASSAGES)
    assert {payload["space"] for payload in payloads} == {7}


def test_a_source_without_passages_makes_no_work():
    assert embed_payloads(1, [(5, 0, 0)]) == []


def test_coverage_of_nothing_is_whole():
    assert (coverage(0, 0), coverage(1, 4), coverage(4, 4)) == (1.0, 0.25, 1.0)


def test_title_and_headings_stand_above_the_text():
    assert embedded_text("Leave", ["HR", "Vacation"], "30 days.") == "Leave — HR — Vacation\n30 days."


def test_a_heading_that_the_text_holds_or_that_came_before_is_left_out():
    assert embedded_text("Leave", ["Leave", "Vacation"], "## Vacation\n\n30 days.") == "Leave\n## Vacation\n\n30 days."


def test_without_headings_the_text_stands_alone():
    assert embedded_text("", ["", ""], "text") == "text"
    assert embedded_text("", [], "") == ""


@given(st.text(), st.lists(st.text()), st.text())
def test_the_text_itself_is_never_changed(title, breadcrumb, text):
    assert embedded_text(title, breadcrumb, text).endswith(text)


KEYS = st.tuples(st.sampled_from([b"1", b"2", b"3"]), st.sampled_from(["", "T"]), st.sampled_from([(), ("A",)]))
REVISION = st.lists(KEYS, max_size=12)


def revision(serial, keys):
    return [KeyedPassage(serial << 20 | ordinal, key) for ordinal, key in enumerate(keys)]


@given(REVISION, REVISION, st.randoms())
def test_vectors_pass_on_between_equal_passages_of_one_source_each_once_as_many_as_there_are(old, new, dice):
    before, after = revision(1, old) + revision(2, new), revision(11, new) + revision(12, old)
    dice.shuffle(before)
    dice.shuffle(after)
    pairs = matched(before, after, {1: 11, 2: 12})
    keys = {passage.passage_id: passage.key for passage in [*before, *after]}
    assert all(keys[first] == keys[second] for first, second in pairs)
    assert all((first >> 20) + 10 == second >> 20 for first, second in pairs)
    assert len({first for first, _ in pairs}) == len({second for _, second in pairs}) == len(pairs)
    assert len(pairs) == 2 * (Counter(old) & Counter(new)).total()


def test_what_is_carried_in_one_space_is_still_wanting_in_another():
    carried = Carried({7: {1 << 20}})
    assert carried.lacking(7, [(1, 0, 2)]) == [1 << 20 | 1]
    assert carried.lacking(8, [(1, 0, 2)]) == [1 << 20, 1 << 20 | 1]
