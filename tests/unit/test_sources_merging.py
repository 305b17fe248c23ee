"""When a context is merged, and when that purges."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from strata.lanes.lexical.merge import MergeReport
from strata.sources import merging
from strata.sources.merging import Merger

TENANT, CONTEXT = UUID(int=1), UUID(int=2)


class Merges:
    """Stands in for the merge of a context: notes each call and does as it is told."""

    def __init__(self):
        self.purges = []
        self.outcomes = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, _database, _tenant, _context, *, purge):
        self.purges.append(purge)
        await self.gate.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else MergeReport()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
async def merges(monkeypatch):
    made = Merges()
    monkeypatch.setattr(merging, "merge_context", made)
    monkeypatch.setattr(merging, "_BUSY_SECONDS", 0.001)
    return made


async def merged(merger, **given):
    merger.schedule(TENANT, CONTEXT, **given)
    await merger.settle()


async def test_the_first_merge_of_a_process_purges_and_the_next_ones_do_not(merges):
    merger = Merger(None)
    for _ in range(3):
        await merged(merger)
    await merged(merger, purge=True)
    assert merges.purges == [True, False, False, True]


async def test_a_merge_purges_again_after_a_while(merges, monkeypatch):
    merger = Merger(None)
    await merged(merger)
    with monkeypatch.context() as patch:
        patch.setattr(merging, "PURGE_SECONDS", 0.0)
        await merged(merger)
    await merged(merger)
    assert merges.purges == [True, True, False]


async def test_a_purge_that_fails_is_owed_by_the_next_merge(merges):
    merger = Merger(None)
    await merged(merger)
    merges.outcomes = [OSError("disk on fire")]
    await merged(merger, purge=True)
    await merged(merger)
    await merged(merger)
    assert merges.purges == [True, True, True, False]


async def test_a_purge_that_is_broken_off_is_owed_by_the_next_merge(merges):
    merger = Merger(None)
    await merged(merger)
    merges.gate.clear()
    merger.schedule(TENANT, CONTEXT, purge=True)
    await asyncio.sleep(0.01)
    for task in merger._running.values():
        task.cancel()
    await asyncio.wait(list(merger._running.values()))
    merges.gate.set()
    await merged(merger)
    assert merges.purges == [True, True, True]


async def test_a_purge_that_was_asked_for_waits_for_another_process_and_is_owed_when_that_takes_too_long(merges):
    merger = Merger(None)
    await merged(merger)
    busy = MergeReport(busy=True)
    merges.outcomes = [busy, busy]
    await merged(merger, purge=True)
    assert merges.purges == [True] * 4
    merges.outcomes = [busy] * merging._BUSY_TRIES
    await merged(merger, purge=True)
    merges.purges.clear()
    await merged(merger)
    assert merges.purges == [True]


async def test_a_merge_that_nobody_asked_to_purge_does_not_wait_for_another_process(merges):
    merger = Merger(None)
    merges.outcomes = [MergeReport(busy=True)]
    await merged(merger)
    assert merges.purges == [True]


async def test_a_wish_during_a_merge_is_done_after_it_and_settling_waits_for_it(merges):
    merger = Merger(None)
    await merged(merger)
    merges.gate.clear()
    merger.schedule(TENANT, CONTEXT)
    await asyncio.sleep(0)
    merger.schedule(TENANT, CONTEXT, purge=True)
    merger.schedule(TENANT, CONTEXT)
    settled = asyncio.create_task(merger.settle())
    await asyncio.sleep(0.01)
    assert not settled.done()
    merges.gate.set()
    await settled
    assert merges.purges == [True, False, True]


async def test_no_wish_is_lost_whenever_it_comes(merges):
    """A wish at each turn of the event loop around the end of a merge is carried out before settling ends."""
    for turns in range(12):
        merger = Merger(None)
        merger.schedule(TENANT, CONTEXT)
        for _ in range(turns):
            await asyncio.sleep(0)
        merges.purges.clear()
        merger.schedule(TENANT, CONTEXT, purge=True)
        await merger.settle()
        assert merges.purges[-1:] == [True], turns
        assert not merger._wanted
        assert not merger._running


async def test_closing_twice_and_closing_before_a_merge_began_leave_nothing(merges, monkeypatch):
    merger = Merger(None)
    merges.gate.clear()
    monkeypatch.setattr(merger, "settle", lambda _seconds: asyncio.sleep(0))
    merger.schedule(TENANT, CONTEXT)
    await merger.close()
    await merger.close()
    assert not merger._running
