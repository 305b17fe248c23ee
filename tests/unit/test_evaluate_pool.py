"""The time of one assembly: the pool is the same each time, and the filters find what the definition finds."""

from __future__ import annotations

import pytest

from strata.evaluate import pool
from strata.evidence.fusion import fuse
from strata.evidence.model import Limits


def test_a_pool_has_facts_passages_and_near_duplicates():
    candidates, _ = pool.generated(200)
    again, _ = pool.generated(200)
    assert candidates == again
    assert sum(item.fact is not None for item in candidates) == 60
    assert len(fuse(candidates)) == 200
    assert pool.naive_duplicates([item for item in candidates if item.fact is None])


def test_the_parts_add_up_and_the_definition_agrees():
    found = pool.measure_pool(120, rounds=2)
    assert found.candidates == 120
    assert 0 < found.kept <= 40
    assert found.duplicates > 0
    assert found.whole_ms >= found.selection_ms
    assert pool.measure_pool(120, rounds=1, limits=Limits(1000, 2**20, 10**9)).kept == 120 - found.duplicates


def test_a_difference_from_the_definition_is_an_error(monkeypatch):
    monkeypatch.setattr(pool, "naive_duplicates", lambda _passages: {"x"})
    with pytest.raises(AssertionError, match="different duplicates"):
        pool.measure_pool(20, rounds=1)
