"""The cache of question vectors: bounded, shared calls, no caller hurt by another."""

import asyncio
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import EMBEDDING_REFUSED, StrataError
from strata.providers.embeddings.queries import QueryVectors

SPACE = b"s"


def embed(number=1.0):
    async def work():
        return np.array([number], np.float32)

    return work


class Slow:
    """An embedder whose calls end when they are told to."""

    def __init__(self):
        self.calls = 0
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.error = None

    async def __call__(self):
        self.calls += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error:
            raise self.error
        return np.array([1.0], np.float32)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_second_question_is_a_hit_and_its_vector_cannot_be_written():
    queries = QueryVectors(8, 1)
    first = await queries.get(SPACE, "q", embed())
    assert await queries.get(SPACE, "q", embed(2.0)) is first
    assert (queries.hits, queries.misses, len(queries)) == (1, 1, 1)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 5


async def test_an_observer_is_told_of_each_question():
    told = []
    queries = QueryVectors(8, 1, told.append)
    for text in ("a", "a", "b"):
        await queries.get(SPACE, text, embed())
    assert told == [False, True, False]


async def test_spaces_do_not_share_vectors():
    queries = QueryVectors(8, 1)
    await queries.get(b"a", "q", embed(1.0))
    assert (await queries.get(b"b", "q", embed(2.0)))[0] == 2.0


async def test_without_entries_nothing_is_kept():
    queries = QueryVectors(0, 1)
    for _ in range(2):
        await queries.get(SPACE, "q", embed())
    assert (queries.hits, queries.misses, len(queries)) == (0, 2, 0)


@pytest.mark.parametrize("text", ["", "\0", "\ud800", "🙂", "質問", "x" * 100_000])
async def test_any_text_is_a_key(text):
    queries = QueryVectors(8, 1)
    await queries.get(SPACE, text, embed())
    await queries.get(SPACE, text, embed())
    assert queries.hits == 1


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 4))
def test_it_keeps_the_questions_asked_last(questions, entries):
    async def run():
        queries, model = QueryVectors(entries, 1), OrderedDict()
        for number in questions:
            misses = queries.misses
            vector = await queries.get(SPACE, str(number), embed(float(number)))
            assert vector[0] == number
            assert (queries.misses == misses) == (number in model)
            model[number] = None
            model.move_to_end(number)
            while len(model) > entries:
                model.popitem(last=False)
            assert len(queries) == len(model)

    asyncio.run(run())


async def test_equal_questions_at_once_share_one_call():
    queries, slow = QueryVectors(8, 5), Slow()
    tasks = [asyncio.ensure_future(queries.get(SPACE, "q", slow)) for _ in range(10)]
    await settle()
    slow.gate.set()
    vectors = await asyncio.gather(*tasks)
    assert slow.calls == 1
    assert all(vector is vectors[0] for vector in vectors)
    assert (queries.hits, queries.misses) == (9, 1)


async def test_a_cancelled_caller_leaves_the_call_to_the_others():
    queries, slow = QueryVectors(8, 5), Slow()
    first, second = (asyncio.ensure_future(queries.get(SPACE, "q", slow)) for _ in range(2))
    await settle()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    slow.gate.set()
    assert (await second)[0] == 1.0
    assert (slow.calls, slow.cancelled) == (1, 0)


async def test_the_call_ends_when_nobody_waits_any_more():
    queries, slow = QueryVectors(8, 5), Slow()
    tasks = [asyncio.ensure_future(queries.get(SPACE, "q", slow)) for _ in range(3)]
    await settle()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await settle()
    assert slow.cancelled == 1
    assert (await queries.get(SPACE, "q", embed()))[0] == 1.0


async def test_who_comes_late_has_a_time_limit_of_its_own():
    queries, slow = QueryVectors(8, 0.2), Slow()
    first = asyncio.ensure_future(queries.get(SPACE, "q", slow))
    await asyncio.sleep(0.12)
    second = asyncio.ensure_future(queries.get(SPACE, "q", slow))
    with pytest.raises(StrataError) as caught:
        await first
    assert caught.value.code == "embedding_unavailable"
    assert "0.2 s" in caught.value.detail
    slow.gate.set()
    assert (await second)[0] == 1.0
    assert slow.calls == 1


async def test_a_failure_reaches_every_waiter_and_is_not_kept():
    queries, slow = QueryVectors(8, 5), Slow()
    slow.error = StrataError(EMBEDDING_REFUSED, "no")
    tasks = [asyncio.ensure_future(queries.get(SPACE, "q", slow)) for _ in range(3)]
    await settle()
    slow.gate.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [outcome.code for outcome in outcomes] == ["embedding_refused"] * 3
    assert len(queries) == 0
    assert (await queries.get(SPACE, "q", embed()))[0] == 1.0


async def test_closing_tells_who_waits_that_nothing_will_come():
    queries, slow = QueryVectors(8, 5), Slow()
    task = asyncio.ensure_future(queries.get(SPACE, "q", slow))
    await settle()
    await queries.close()
    with pytest.raises(StrataError) as caught:
        await task
    assert caught.value.code == "embedding_unavailable"
