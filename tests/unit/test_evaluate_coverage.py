"""Evidence is covered when all of it stands whole inside the budget, to the token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strata.evaluate.metrics import all_within
from strata.text.estimate import token_quarters, tokens_of_quarters

pieces = st.lists(st.tuples(st.sampled_from("abcd"), st.text(max_size=40)), max_size=8)


def test_a_text_that_fills_the_budget_to_the_token_fits():
    assert all_within([("a", "x" * 40)], {"a"}, 10)
    assert not all_within([("a", "x" * 41)], {"a"}, 10)


def test_quarters_are_rounded_up_once_over_the_sum():
    # Three quarters and five make two tokens; rounded one by one they would make three.
    assert all_within([("a", "xxx"), ("b", "xxxxx")], {"a", "b"}, 2)


def test_each_character_beyond_ascii_is_a_token():
    assert all_within([("a", "蜂" * 10)], {"a"}, 10)
    assert not all_within([("a", "蜂" * 11)], {"a"}, 10)


def test_a_text_that_does_not_fit_ends_the_result():
    assert not all_within([("x", "y" * 400), ("a", "short")], {"a"}, 50)


def test_all_gold_is_wanted_in_whatever_order():
    assert all_within([("b", "bb"), ("x", "xx"), ("a", "aa")], {"a", "b"}, 10)
    assert not all_within([("b", "bb"), ("x", "xx")], {"a", "b"}, 10)


def test_what_follows_the_last_gold_costs_nothing():
    assert all_within([("a", "aa"), ("x", "x" * 4000)], {"a"}, 1)


def test_nothing_is_covered_without_gold_or_without_room():
    assert not all_within([("a", "aa")], set(), 10)
    assert not all_within([], {"a"}, 10)
    assert not all_within([("a", "a")], {"a"}, 0)


def test_an_empty_text_takes_no_room():
    assert all_within([("a", "")], {"a"}, 0)


@given(pieces, st.sets(st.sampled_from("abcd"), max_size=3), st.integers(0, 80))
def test_more_budget_never_covers_less(texts, gold, budget):
    if all_within(texts, gold, budget):
        assert all_within(texts, gold, budget + 1)
    total = tokens_of_quarters(sum(token_quarters(text) for _, text in texts))
    found = {document for document, _ in texts}
    assert all_within(texts, gold, total) is (bool(gold) and gold <= found)
