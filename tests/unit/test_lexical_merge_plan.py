"""Which segments are merged next, and what the cache keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strata.lanes.lexical.cache import ByteCache
from strata.lanes.lexical.merge import FAN_IN, plan_merges
from strata.lanes.lexical.repository import SegmentInfo
from strata.lanes.lexical.segment import SEGMENT_PASSAGES
from strata.text.tokenise import ANALYSER_VERSION


def info(segment_id, passages, dead=0, analyser=ANALYSER_VERSION):
    return SegmentInfo(segment_id, 0, analyser, passages, dead)


def test_seven_small_segments_are_left_and_the_eighth_merges_all():
    assert plan_merges([info(at, 10) for at in range(7)]) == []
    assert plan_merges([info(at, 10) for at in range(8)]) == [list(range(8))]


def test_segments_of_unlike_size_are_not_merged():
    assert plan_merges([info(at, 10) for at in range(7)] + [info(9, 5000)]) == []


def test_a_segment_with_over_a_fifth_dead_is_written_anew():
    assert plan_merges([info(1, 100, 20), info(2, 100, 21)]) == [[2]]


def test_a_purge_rewrites_every_segment_with_a_dead_passage():
    assert plan_merges([info(1, 100, 1), info(2, 100)], purge=True) == [[1]]


def test_segments_of_another_analyser_are_left_alone():
    assert plan_merges([info(at, 10, 9, analyser=ANALYSER_VERSION + 1) for at in range(20)]) == []


def test_a_segment_of_another_analyser_with_nothing_live_is_dropped():
    segments = [info(1, 10, 10, analyser=ANALYSER_VERSION - 1), info(2, 10, 9, analyser=ANALYSER_VERSION - 1)]
    assert plan_merges(segments) == [[1]]


def test_a_purge_rewrites_segments_of_another_analyser_each_alone():
    old = [info(at, 10, 1, analyser=ANALYSER_VERSION - 1) for at in range(8)]
    kept = info(8, 10, analyser=ANALYSER_VERSION - 1)
    current = [info(at, 10) for at in range(9, 17)]
    assert plan_merges([*old, kept, *current], purge=True) == [list(range(9, 17)), *([at] for at in range(8))]


sizes = st.lists(
    st.integers(1, SEGMENT_PASSAGES).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), max_size=80
)


@given(sizes, st.booleans())
def test_merging_ends_with_few_segments_and_never_overfills_one(sizes, purge):
    segments = [info(at, passages, dead) for at, (passages, dead) in enumerate(sizes)]
    live = sum(segment.live for segment in segments)
    for number in range(1000, 1200):
        groups = plan_merges(segments, purge=purge)
        if not groups:
            break
        flat = [segment_id for group in groups for segment_id in group]
        assert len(flat) == len(set(flat))
        group = set(groups[0])
        total = sum(segment.live for segment in segments if segment.segment_id in group)
        assert total <= SEGMENT_PASSAGES
        segments = [segment for segment in segments if segment.segment_id not in group]
        if total:
            segments.append(info(number, total))
    else:
        raise AssertionError("merging does not end")
    assert sum(segment.live for segment in segments) == live
    if purge:
        assert not any(segment.dead_count for segment in segments)
    small = [segment for segment in segments if segment.live < SEGMENT_PASSAGES // FAN_IN]
    assert len(small) <= 4 * (FAN_IN - 1)


def test_the_cache_drops_what_was_unused_longest_and_stays_in_its_bound():
    cache = ByteCache(10_000)
    for key in range(5):
        cache.put(key, str(key), 1_500)
    assert cache.get(0) == "0"
    cache.put(5, "5", 1_500)
    assert cache.get(1) is None
    assert cache.get(0) == "0"
    assert cache.used_bytes <= 10_000


def test_the_cache_counts_a_replaced_entry_once_and_skips_what_is_too_large():
    cache = ByteCache(10_000)
    cache.put("a", 1, 4_000)
    used = cache.used_bytes
    cache.put("a", 2, 4_000)
    assert (cache.get("a"), cache.used_bytes) == (2, used)
    cache.put("b", 3, 20_000)
    assert (cache.get("b"), len(cache)) == (None, 1)
    assert ByteCache(0).get("a", "none") == "none"
