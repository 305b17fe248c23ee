"""When the index is asked, and how far it may go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.lanes.vector.index import Eligible, SpaceRef, VectorIndex
from strata.lanes.vector.repository import distinct
from strata.lanes.vector.tuning import MAX_SCAN_TUPLES
from strata.settings import load_settings

LIMIT = 10_000


def visits(vectors, eligible=None, *, limit=LIMIT, indexed=True, k=64):
    index = VectorIndex(load_settings({}, home="unused", vector_exact_limit=limit))
    space = SpaceRef(1, 384, vectors, indexed)
    rows = vectors if eligible is None else min(vectors, eligible.passages)
    return index._visits(space, rows, None if eligible is None else distinct(eligible.serials), k)


def every(step, count, per_source=8):
    return Eligible(range(1, step * count, step), count * per_source)


def test_a_space_without_an_index_or_within_the_limit_is_compared_whole():
    assert visits(10**6, indexed=False) == 0
    assert visits(LIMIT) == 0
    assert visits(LIMIT + 1) == MAX_SCAN_TUPLES
    assert visits(10**6, Eligible([], 0)) == 0
    assert visits(10**6, Eligible([], 10**6)) == 0


@pytest.mark.parametrize(
    ("vectors", "eligible", "asks_index"),
    [
        (100_000, every(100, 125), False),  # 1 %
        (100_000, every(20, 625), False),  # 5 %
        (100_000, every(5, 2_500), True),  # 20 %
        (1_000_000, every(100, 1_250), False),  # 1 %
        (1_000_000, every(20, 6_250), True),  # 5 %
        (1_000_000, every(5, 25_000), True),  # 20 %
    ],
)
def test_a_filter_is_compared_where_that_costs_no_more(vectors, eligible, asks_index):
    assert bool(visits(vectors, eligible)) is asks_index


def test_scattered_sources_cost_more_to_compare_than_neighbours():
    together = Eligible(range(1, 15_001), 15_000)
    apart = Eligible(range(1, 60_000, 4), 15_000)
    assert visits(200_000, together) == 0
    assert visits(200_000, apart) > 0


def test_a_limit_of_zero_always_asks_the_index():
    assert visits(5, limit=0) == MAX_SCAN_TUPLES
    assert visits(10**6, every(10_000, 1), limit=0) == MAX_SCAN_TUPLES


@given(st.integers(1, 10**7), st.integers(1, 10**7), st.integers(1, 1_000), st.integers(0, 1_000))
def test_the_index_never_goes_further_than_its_bound(vectors, passages, sources, k):
    assert 0 <= visits(vectors, Eligible(range(sources), passages), k=k) <= MAX_SCAN_TUPLES


@pytest.mark.parametrize(
    ("vectors", "ef_search"), [(0, 200), (100_000, 200), (1_000_000, 400), (10_000_000, 600), (10**30, 1_000)]
)
def test_a_larger_space_is_searched_more_broadly(vectors, ef_search):
    index = VectorIndex(load_settings({}, home="unused", vector_ef_search=200))
    assert index._breadth(vectors) == ef_search
