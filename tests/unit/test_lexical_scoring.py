"""Segments and scoring: equal to BM25 written down plainly, whatever the layout."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.lanes.lexical import scoring
from strata.lanes.lexical.scoring import Layout, Scorer, SegmentArrays, WeightedTerm
from strata.lanes.lexical.segment import (
    SEGMENT_PASSAGES,
    build_segments,
    merge_segments,
    pack_dead,
    segment_from_rows,
    term_hash,
    unpack_dead,
)
from strata.platform.ids import SERIAL_BITS
from strata.text.tokenise import Analysis

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]


def analysis(words):
    return Analysis(Counter(words), len(words))


def segments_of(*groups):
    """One segment for each group of (passage id, words)."""
    return [build_segments([(pid, analysis(words)) for pid, words in group])[0] for group in groups]


def scorer_of(parts, terms):
    """A scorer over (segment, dead mask) pairs."""
    arrays = [SegmentArrays(at, 0, data.passage_ids, data.lengths, dead) for at, (data, dead) in enumerate(parts)]
    postings = {}
    for at, (data, _) in enumerate(parts):
        for term, places, frequencies in data.rows():
            postings.setdefault(term, {})[at] = np.frombuffer(places, "<u2"), np.frombuffer(frequencies, np.uint8)
    return Scorer(Layout(arrays), [WeightedTerm(term_hash(word), weight) for word, weight in terms], postings)


def naive_bm25(live, terms, k1=1.2, b=0.75):
    """Passages and their scores by the textbook, best first; ``live`` maps ids to words."""
    count = len(live)
    average = sum(map(len, live.values())) / count if count else 0
    scores = {}
    for passage, words in live.items():
        score = 0.0
        for word, weight in terms:
            frequency = words.count(word)
            df = sum(word in other for other in live.values())
            idf = math.log(1 + (count - df + 0.5) / (df + 0.5))
            if frequency:
                score += weight * idf * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * len(words) / average))
        if score > 0:
            scores[passage] = score
    return scores


passage_texts = st.lists(st.sampled_from(WORDS), min_size=0, max_size=12)
histories = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(1, 6), st.lists(passage_texts, min_size=1, max_size=4)),
        st.tuples(st.just("delete"), st.integers(1, 6), st.just([])),
        st.tuples(st.just("merge"), st.integers(0, 5), st.just([])),
    ),
    min_size=1,
    max_size=14,
)
queries = st.lists(
    st.tuples(st.sampled_from([*WORDS, "unknown"]), st.sampled_from([1.0, 0.3, 2.0])),
    min_size=1,
    max_size=4,
    unique_by=lambda term: term[0],
)


def replay(history):
    """Run inserts, deletions and merges; return the segments with their dead masks, and the live passages."""
    parts, live = [], {}
    serials = {}

    def kill(name):
        serial = serials.pop(name, None)
        for at, (data, dead) in enumerate(parts):
            mask = np.zeros(len(data.passage_ids), bool) if dead is None else dead.copy()
            mask |= (data.passage_ids >> SERIAL_BITS) == (-1 if serial is None else serial)
            parts[at] = data, mask if mask.any() else None
        for pid in [pid for pid in live if pid >> SERIAL_BITS == serial]:
            del live[pid]

    for number, (action, name, texts) in enumerate(history, 1):
        if action == "merge":
            chosen = parts[: name + 2]
            if chosen:
                merged = merge_segments(chosen)
                parts[: name + 2] = [(merged.data, None)] if len(merged.data.passage_ids) else []
            continue
        kill(name)
        if action == "insert":
            serials[name] = number
            group = [((number << SERIAL_BITS) | ordinal, words) for ordinal, words in enumerate(texts)]
            parts.append((segments_of(group)[0], None))
            live.update(dict(group))
    return parts, live


@given(histories, queries, st.integers(1, 8), st.sets(st.integers(1, 14)) | st.none())
def test_scores_are_those_of_plain_bm25_after_any_history(history, terms, k, eligible):
    parts, live = replay(history)
    scorer = scorer_of(parts, terms)
    expected = naive_bm25(live, terms)
    if eligible is not None:
        expected = {pid: score for pid, score in expected.items() if pid >> SERIAL_BITS in eligible}
    allowed = None if eligible is None else np.array(sorted(eligible), np.int64)
    top = scorer.top(k, allowed)
    assert scorer.layout.passages == len(live)
    assert [scorer.document_frequencies[at] for at in range(len(terms))] == [
        sum(word in words for words in live.values()) for word, _ in terms
    ]
    assert len(top.passage_ids) == min(k, len(expected))
    got = list(zip(top.passage_ids.tolist(), top.scores.tolist(), strict=True))
    assert got == sorted(got, key=lambda hit: (-hit[1], hit[0]))
    for (pid, score), wanted in zip(got, sorted(expected.values(), reverse=True), strict=False):
        assert score == pytest.approx(wanted, rel=1e-5)
        assert score == pytest.approx(expected[pid], rel=1e-5)
    for pid, row in zip(top.passage_ids.tolist(), top.matched.tolist(), strict=True):
        assert row == [word in live[pid] for word, _ in terms]


@given(histories, queries)
def test_the_result_does_not_depend_on_the_layout(history, terms):
    parts, live = replay(history)
    fresh = [(data, None) for data in build_segments([(pid, analysis(words)) for pid, words in live.items()])]
    one, other = scorer_of(parts, terms).top(5), scorer_of(fresh, terms).top(5)
    assert one.passage_ids.tolist() == other.passage_ids.tolist()
    assert one.scores.tobytes() == other.scores.tobytes()


@given(histories, queries)
def test_any_passage_can_be_asked_for_its_score(history, terms):
    parts, live = replay(history)
    scorer = scorer_of(parts, terms)
    everything = scorer.top(1000)
    again = scorer.of([*everything.passage_ids.tolist(), 5, 99 << SERIAL_BITS])
    assert again.scores[:-2].tobytes() == everything.scores.tobytes()
    assert again.matched[:-2].tolist() == everything.matched.tolist()
    assert again.scores[-2:].tolist() == [0, 0]
    dead = [pid for data, _ in parts for pid in data.passage_ids.tolist() if pid not in live]
    assert not scorer.of(dead).scores.any()


@given(histories)
def test_merging_gives_the_segment_of_a_fresh_build(history):
    parts, live = replay(history)
    if not live:
        return
    merged = merge_segments(parts).data
    fresh = build_segments([(pid, analysis(words)) for pid, words in live.items()])[0]
    for name in ("passage_ids", "lengths", "terms", "starts", "locals_", "frequencies"):
        assert getattr(merged, name).tolist() == getattr(fresh, name).tolist(), name


def test_stored_rows_give_back_the_segment():
    data = segments_of([(1, ["alpha", "beta", "alpha"]), (2, ["beta"]), (9, [])])[0]
    again = segment_from_rows(data.passage_ids, data.lengths, list(data.rows()))
    assert list(again.rows()) == list(data.rows())
    assert again.starts.tolist() == data.starts.tolist()


def test_a_passage_id_given_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        build_segments([(1, analysis(["alpha"])), (1, analysis(["beta"]))])


def test_no_passages_make_no_segment():
    assert build_segments([]) == []


def test_over_65536_passages_make_a_second_segment_and_are_not_merged_back():
    one = analysis(["alpha"])
    parts = build_segments([(pid, one) for pid in range(SEGMENT_PASSAGES + 1)])
    assert [len(part.passage_ids) for part in parts] == [SEGMENT_PASSAGES, 1]
    top = scorer_of([(part, None) for part in parts], [("alpha", 1.0)]).top(3)
    assert top.passage_ids.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="do not fit"):
        merge_segments([(part, None) for part in parts])


def test_counts_beyond_the_columns_are_capped_not_wrapped():
    data = build_segments([(1, Analysis({"alpha": 1000}, 70_000))])[0]
    assert data.frequencies.tolist() == [255]
    assert data.lengths.tolist() == [65_535]


def test_equal_scores_are_ordered_by_passage_id_across_segments():
    parts = segments_of([(7, ["alpha"]), (9, ["alpha"])], [(3, ["alpha"]), (8, ["alpha"])])
    top = scorer_of([(part, None) for part in parts], [("alpha", 1.0)]).top(3)
    assert top.passage_ids.tolist() == [3, 7, 8]


def test_an_exact_form_counts_in_full_where_its_stem_occurs_nowhere():
    part = segments_of([(1, ["alpha", "beta"]), (2, ["gamma"])])[0]
    plain = scorer_of([(part, None)], [("alpha", 1.0)]).top(1).scores
    for stem, expected in (("unknown", plain), ("beta", plain * np.float32(0.1))):
        scorer = scorer_of([(part, None)], [(stem, 0.0), ("alpha", 0.1)])
        terms = [WeightedTerm(term_hash(stem), 1.0), WeightedTerm(term_hash("alpha"), 0.1, instead_of=0)]
        again = Scorer(scorer.layout, terms, scorer.postings)
        extra = scorer_of([(part, None)], [("beta", 1.0)]).top(1).scores if stem == "beta" else 0
        assert again.top(1).scores.tolist() == pytest.approx((expected + extra).tolist())


def test_an_empty_context_finds_nothing_and_still_weighs_terms():
    scorer = scorer_of([], [("alpha", 1.0)])
    assert scorer.top(10).passage_ids.tolist() == []
    assert scorer.of([1, 2]).scores.tolist() == [0, 0]
    assert scorer.idfs == [pytest.approx(math.log(2))]


def test_nothing_eligible_finds_nothing_but_keeps_the_statistics():
    part = segments_of([(1 << SERIAL_BITS, ["alpha"]), (2 << SERIAL_BITS, ["beta"])])[0]
    scorer = scorer_of([(part, None)], [("alpha", 1.0)])
    assert scorer.top(5, np.empty(0, np.int64)).passage_ids.tolist() == []
    assert scorer.document_frequencies == [1]


def test_blocks_that_did_not_change_are_used_again():
    arrays = [
        SegmentArrays(at, 0, np.arange(40_000) + at * 40_000, np.ones(40_000, np.uint16), None) for at in range(2)
    ]
    small = SegmentArrays(7, 0, np.arange(5), np.ones(5, np.uint16), None)
    before = Layout(arrays)
    after = Layout([*arrays, small], before)
    assert after.blocks[:2] == before.blocks
    assert after.passages == 80_005


def test_small_segments_share_blocks_of_bounded_size():
    arrays = [SegmentArrays(at, 0, np.arange(30_000), np.ones(30_000, np.uint16), None) for at in range(5)]
    assert [len(block.segments) for block in Layout(arrays).blocks] == [2, 2, 1]


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_dead_masks_survive_storage(mask):
    stored = pack_dead(np.array(mask))
    again = unpack_dead(stored, len(mask))
    assert (again is None and not any(mask)) or again.tolist() == mask


def test_idf_is_never_negative():
    assert scoring.idf(10, 10) > 0
    assert scoring.idf(1, 1) > 0


@given(st.text(alphabet=st.characters()))
def test_any_token_has_a_stable_signed_64_bit_term(token):
    assert -(2**63) <= term_hash(token) < 2**63


def test_the_term_of_a_token_never_changes():
    assert term_hash("alpha") == -7347401884156426669
