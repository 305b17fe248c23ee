"""The circuit breaker: closed, open, half open; one probe; late ends of old calls count for nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.providers.breaker import Breaker, BreakerOpenError

COOL_DOWN = 10.0


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def breaker(clock):
    return Breaker(failures=3, cool_down_seconds=COOL_DOWN, clock=clock)


def call(breaker, is_healthy):
    breaker.leave(breaker.enter(), is_healthy=is_healthy)


def opened(breaker):
    for _ in range(3):
        call(breaker, is_healthy=False)
    return breaker


def test_failures_in_a_row_open_it(breaker):
    call(breaker, is_healthy=False)
    call(breaker, is_healthy=False)
    assert breaker.state == "closed"
    call(breaker, is_healthy=False)
    assert breaker.state == "open"
    with pytest.raises(BreakerOpenError, match=r"10\.0 s"):
        breaker.enter()


def test_a_success_between_starts_the_count_anew(breaker):
    for _ in range(5):
        call(breaker, is_healthy=False)
        call(breaker, is_healthy=False)
        call(breaker, is_healthy=True)
    assert breaker.state == "closed"


def test_a_call_without_verdict_counts_neither_way(breaker):
    call(breaker, is_healthy=False)
    call(breaker, is_healthy=False)
    call(breaker, is_healthy=None)
    assert breaker.state == "closed"
    call(breaker, is_healthy=False)
    assert breaker.state == "open"


def test_after_the_cool_down_one_probe_passes_and_closes_it(breaker, clock):
    opened(breaker)
    clock.now += COOL_DOWN
    assert breaker.state == "half_open"
    ticket = breaker.enter()
    with pytest.raises(BreakerOpenError):
        breaker.enter()
    breaker.leave(ticket, is_healthy=True)
    assert breaker.state == "closed"
    call(breaker, is_healthy=True)


def test_a_failed_probe_opens_it_for_another_cool_down(breaker, clock):
    opened(breaker)
    clock.now += COOL_DOWN
    call(breaker, is_healthy=False)
    assert breaker.state == "open"
    clock.now += COOL_DOWN - 0.1
    with pytest.raises(BreakerOpenError):
        breaker.enter()
    clock.now += 0.1
    call(breaker, is_healthy=True)
    assert breaker.state == "closed"


def test_a_cancelled_probe_leaves_the_next_call_to_probe(breaker, clock):
    opened(breaker)
    clock.now += COOL_DOWN
    call(breaker, is_healthy=None)
    assert breaker.state == "half_open"
    call(breaker, is_healthy=True)
    assert breaker.state == "closed"


def test_calls_from_before_the_opening_count_for_nothing_after_it(breaker, clock):
    old = [breaker.enter() for _ in range(2)]
    opened(breaker)
    clock.now += COOL_DOWN - 1
    breaker.leave(old[0], is_healthy=False)
    clock.now += 1
    probe = breaker.enter()
    breaker.leave(old[1], is_healthy=True)
    assert breaker.state == "half_open"
    breaker.leave(probe, is_healthy=True)
    assert breaker.state == "closed"


def test_no_failure_at_all_is_no_threshold():
    with pytest.raises(ValueError, match="one failure at least"):
        Breaker(failures=0)


@given(
    st.lists(st.tuples(st.sampled_from(["enter", "ok", "fail", "cancel", "wait"]), st.integers(0, 20)), max_size=120),
    st.integers(1, 4),
)
def test_it_never_lets_more_than_one_probe_through_nor_anything_while_it_cools(steps, failures):
    clock = Clock()
    breaker = Breaker(failures=failures, cool_down_seconds=COOL_DOWN, clock=clock)
    under_way, last_open = [], None
    for step, number in steps:
        if step == "wait":
            clock.now += number
        elif step == "enter":
            state = breaker.state
            try:
                ticket = breaker.enter()
            except BreakerOpenError:
                assert state != "closed"
            else:
                assert state != "open"
                assert last_open is None or state == "closed" or clock.now >= last_open + COOL_DOWN
                if state == "half_open":
                    with pytest.raises(BreakerOpenError):
                        breaker.enter()
                under_way.append(ticket)
        elif under_way:
            ticket = under_way.pop(number % len(under_way))
            before = breaker.state
            breaker.leave(ticket, is_healthy={"ok": True, "fail": False, "cancel": None}[step])
            if before != "open" and breaker.state == "open":
                last_open = clock.now
    for ticket in under_way:
        breaker.leave(ticket, is_healthy=None)
    clock.now += COOL_DOWN
    call(breaker, is_healthy=True)
    assert breaker.state == "closed"
