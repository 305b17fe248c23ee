"""How long failed work waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strata.platform.work import DEFAULT_POLICY, WorkPolicy, new_worker


@given(st.integers(-3, 10_000))
def test_a_wait_doubles_up_to_the_longest_and_is_cut_by_a_quarter_at_most(tries):
    full = min(2.0 ** min(max(tries, 1) - 1, 30), 300.0)
    assert full * 0.75 <= DEFAULT_POLICY.wait_seconds(tries) <= full


def test_waits_differ_so_that_what_failed_together_does_not_come_back_together():
    policy = WorkPolicy(first_wait_seconds=10)
    assert len({policy.wait_seconds(1) for _ in range(20)}) > 1


def test_no_two_workers_have_one_name():
    assert len({new_worker() for _ in range(1000)}) == 1000
