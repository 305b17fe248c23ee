"""What a filter becomes on its way to the server, and what a build asks for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.lanes.vector.index_repository import MAX_BUILD_BYTES, build_bytes, index_name
from strata.lanes.vector.repository import filter_of, indexed_statement, ranges_of

SERIALS = st.lists(st.integers(1, 2**40), max_size=50)
NEAR = st.lists(st.integers(1, 300), min_size=1, max_size=80)


@given(st.one_of(SERIALS, NEAR))
def test_ranges_hold_the_passages_of_the_sources_and_of_no_other(serials):
    firsts, lasts = ranges_of(serials)
    held = [serial for first, last in zip(firsts, lasts, strict=True) for serial in (first >> 20, last >> 20)]
    covered = {
        serial for first, last in zip(firsts, lasts, strict=True) for serial in range(first >> 20, (last >> 20) + 1)
    }
    assert covered == set(serials)
    assert held == sorted(held)
    assert all(first % 2**20 == 0 and last % 2**20 == 2**20 - 1 for first, last in zip(firsts, lasts, strict=True))


@given(NEAR)
def test_neighbouring_sources_become_one_range(serials):
    firsts, lasts = ranges_of(serials)
    assert all(before + 1 < after for before, after in zip(lasts, firsts[1:], strict=False))


@given(NEAR)
def test_the_map_has_a_bit_for_each_source_and_no_other(serials):
    _, (first, last, bits) = filter_of(serials)
    assert (first, last) == (min(serials), max(serials))
    said = {first + at for at in range(last - first + 1) if bits[at // 8] >> at % 8 & 1}
    assert said == set(serials)


def test_sources_far_apart_go_as_an_array_and_many_as_a_map():
    condition, values = filter_of([10**12, 5, 5])
    assert values == ([5, 10**12],)
    assert "unnest" in condition
    condition, values = filter_of(np.arange(1, 2_000_001, 2))
    assert "get_bit" in condition
    assert len(values[2]) == 250_000


def test_no_filter_adds_nothing():
    assert filter_of(None) == ("", ())


def test_only_numbers_come_into_a_statement():
    assert "space_id = 7" in indexed_statement(7, 384)
    assert "@" not in indexed_statement(7, 384, filter_of([1])[0])
    with pytest.raises(ValueError, match="invalid literal"):
        indexed_statement("7; DROP TABLE passage_vector", 384)
    with pytest.raises(ValueError, match="invalid literal"):
        index_name("7; DROP TABLE passage_vector")


def test_a_build_asks_for_what_the_graph_takes_within_bounds():
    assert build_bytes(10, 384) == 64 * 1024**2
    assert 120 * 1024**2 < build_bytes(100_000, 384) < 250 * 1024**2
    assert build_bytes(10**9, 384) == MAX_BUILD_BYTES
