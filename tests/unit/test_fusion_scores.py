"""Words and meaning on one scale: what the fused scores keep to, whatever the passages."""

from __future__ import annotations

import math
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.evidence.fusion import HOP_OFFSET, linear_combination, second_hop, with_neighbours
from strata.lookup.pool import HEAD, Pool, Scored

CONTEXT = UUID(int=1)
BM25 = st.floats(0, 60, allow_nan=False)
COSINE = st.floats(-1, 1, allow_nan=False)
PAIRS = st.lists(st.tuples(BM25, COSINE), min_size=1, max_size=30)
WEIGHT = 14.0


def combined(pairs, weight=WEIGHT):
    return linear_combination([b for b, _ in pairs], [c for _, c in pairs], weight, [True] * len(pairs))


def scored(passage, bm25=0.0, cosine=0.5, *, lexical=None, vector=None):
    return Scored(0, CONTEXT, passage, bm25, 50.0, cosine, 0.5, lexical, vector)


def test_the_formula_is_the_documented_one():
    found = combined([(30.0, 0.9), (7.5, 0.8)])
    assert found.fused == pytest.approx([30 / math.sqrt(900) + 14 * 0.9, 7.5 / math.sqrt(900) + 14 * 0.8])
    assert found.of(7.5, 0.8) == pytest.approx(found.fused[1])


@given(PAIRS)
def test_a_passage_that_is_better_in_both_never_comes_after(pairs):
    fused = combined(pairs).fused
    for (bm25, cosine), score in zip(pairs, fused, strict=True):
        for (other_bm25, other_cosine), other in zip(pairs, fused, strict=True):
            if bm25 >= other_bm25 and cosine >= other_cosine:
                assert score >= other


@given(PAIRS)
def test_without_words_the_order_is_that_of_the_cosines(pairs):
    cosines = [cosine for _, cosine in pairs]
    fused = linear_combination([0.0] * len(pairs), cosines, WEIGHT, [True] * len(pairs)).fused
    by_cosine = sorted(range(len(pairs)), key=lambda at: -cosines[at])
    assert [cosines[at] for at in sorted(range(len(pairs)), key=lambda at: -fused[at])] == pytest.approx(
        [cosines[at] for at in by_cosine]
    )


@given(PAIRS)
def test_without_vectors_the_order_is_that_of_the_words(pairs):
    lexical = [bm25 for bm25, _ in pairs]
    fused = linear_combination(lexical, [None] * len(pairs), WEIGHT, [True] * len(pairs)).fused
    ordered = sorted(range(len(pairs)), key=lambda at: -fused[at])
    assert [lexical[at] for at in ordered] == sorted(lexical, reverse=True)


@given(PAIRS, st.tuples(BM25, COSINE))
def test_what_only_a_deeper_search_found_moves_no_score(pairs, extra):
    heads = [True] * len(pairs)
    lexical, cosines = [b for b, _ in pairs], [c for _, c in pairs]
    for weight in (WEIGHT, None):
        alone = linear_combination(lexical, cosines, weight, heads).fused
        deeper = linear_combination([*lexical, extra[0]], [*cosines, extra[1]], weight, [*heads, False]).fused
        if weight is None and extra[0] > max(lexical):
            continue  # no lexical head is below what is no head
        assert deeper[:-1] == pytest.approx(alone)


def test_a_passage_without_a_vector_is_taken_to_mean_what_its_words_say():
    heads = [True, True, True]
    found = linear_combination([20.0, 10.0, 20.0], [0.9, 0.7, None], WEIGHT, heads)
    assert found.fused[2] == pytest.approx(found.fused[0])


def test_an_embedder_without_a_fit_lets_its_cosines_span_what_the_words_do():
    found = linear_combination([30.0, 0.0], [0.71, 0.72], None, [True, True])
    assert found.cosine_weight * 0.01 == pytest.approx(1.0)


def test_one_cosine_alone_decides_nothing_where_nothing_was_fitted():
    assert linear_combination([3.0, 1.0], [0.5, 0.5], None, [True, True]).cosine_weight == 0.0


@given(PAIRS, st.data())
def test_a_second_hop_takes_from_no_passage_and_stays_below_the_first(pairs, data):
    found = combined(pairs)
    first = max(range(len(pairs)), key=lambda at: found.fused[at])
    cosines = data.draw(st.lists(COSINE, min_size=len(pairs), max_size=len(pairs)))
    scores = second_hop(found.fused, found, cosines, first)
    assert scores[first] == found.fused[first]
    for before, after in zip(found.fused, scores, strict=True):
        assert after >= before
        assert after == before or after <= found.fused[first] - HOP_OFFSET + 1e-9


def test_the_best_of_a_second_hop_stands_right_below_the_first():
    found = combined([(30.0, 0.95), (0.0, 0.5), (0.0, 0.4)])
    scores = second_hop(found.fused, found, [0.9, 0.6, 0.9], 0)
    assert scores[2] == pytest.approx(scores[0] - HOP_OFFSET)
    assert scores[0] > scores[2] > scores[1]


def test_a_cue_without_neighbours_keeps_its_score():
    assert with_neighbours(5.0, []) == 5.0


@given(st.floats(-20, 20), st.lists(st.floats(-20, 20), min_size=1, max_size=2))
def test_a_cue_lies_between_its_own_score_and_its_better_neighbours(own, beside):
    low, high = sorted((own, max(beside)))
    assert low - 1e-9 <= with_neighbours(own, beside) <= high + 1e-9


def test_heads_come_before_what_only_a_deeper_search_found():
    pool = Pool(
        [
            scored(1, bm25=20.0, cosine=0.9, lexical=HEAD + 1, vector=HEAD + 1),
            scored(2, bm25=1.0, cosine=0.1, lexical=HEAD),
            scored(3, bm25=2.0, cosine=0.1, vector=1),
        ],
        WEIGHT,
        by_words=True,
    )
    assert [pool.scored[at].passage for at in pool.places()] == [3, 2, 1]


def test_equal_scores_are_ordered_by_passage():
    pool = Pool([scored(9, lexical=1), scored(4, lexical=2), scored(7, vector=1)], WEIGHT, by_words=True)
    assert [pool.scored[at].passage for at in pool.places()] == [4, 7, 9]
