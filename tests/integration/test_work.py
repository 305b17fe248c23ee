"""The queue: each item by one worker at a time, whatever happens to the worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import uuid4

import pytest

from strata.platform import work_repository
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.work import WorkPolicy, WorkQueue

pytestmark = pytest.mark.database

KIND = "test"


@pytest.fixture
async def context(services):
    return (await services.contexts.create(DEFAULT_TENANT, "work")).id


async def add(database, context, number, kind=KIND, tenant=DEFAULT_TENANT):
    async with database.work(tenant) as connection:
        await work_repository.add(connection, tenant, context, kind, [{"n": n} for n in range(number)])


async def rows(database, tenant=DEFAULT_TENANT):
    async with database.work(tenant) as connection:
        return await connection.fetch("SELECT * FROM work ORDER BY work_id")


async def finish(database, items, tenant=DEFAULT_TENANT):
    async with database.work(tenant) as connection:
        return await work_repository.finish(connection, tenant, items)


async def test_many_workers_do_every_item_once(database, context):
    await add(database, context, 200)
    done = Counter()

    async def work():
        queue = WorkQueue(database, KIND)
        while items := await queue.claim(DEFAULT_TENANT, 7):
            done.update(item.payload["n"] for item in items)
            await asyncio.sleep(0)
            assert await finish(database, items) == len(items)

    await asyncio.gather(*(work() for _ in range(6)))
    assert done == Counter(range(200))
    assert await rows(database) == []


async def test_items_are_taken_in_the_order_they_were_added(database, context):
    await add(database, context, 5)
    queue = WorkQueue(database, KIND)
    taken = [item.payload["n"] for _ in range(3) for item in await queue.claim(DEFAULT_TENANT, 2)]
    assert taken == [0, 1, 2, 3, 4]


async def test_kinds_contexts_and_tenants_are_apart(database, services, context, dsn):
    other = (await services.contexts.create(DEFAULT_TENANT, "other")).id
    await add(database, context, 1)
    queue = WorkQueue(database, KIND)
    assert await WorkQueue(database, "another").claim(DEFAULT_TENANT, 9) == []
    assert await queue.claim(DEFAULT_TENANT, 9, other) == []
    assert await queue.claim(uuid4(), 9) == []
    assert len(await queue.claim(DEFAULT_TENANT, 9, context)) == 1


async def test_what_a_dead_worker_held_comes_back_when_its_lease_ends_and_the_dead_one_is_fenced(database, context):
    await add(database, context, 1)
    dead = WorkQueue(database, KIND, WorkPolicy(lease_seconds=0.3))
    held = await dead.claim(DEFAULT_TENANT, 1)
    heir = WorkQueue(database, KIND)
    assert await heir.claim(DEFAULT_TENANT, 1) == []
    await asyncio.sleep(0.4)
    taken = await heir.claim(DEFAULT_TENANT, 1)
    assert (taken[0].work_id, taken[0].attempts) == (held[0].work_id, 2)
    assert await finish(database, held) == 0
    await dead.put_back(DEFAULT_TENANT, held)
    await dead.retry(DEFAULT_TENANT, held, "late")
    await dead.fail(DEFAULT_TENANT, held[0], "late")
    row = (await rows(database))[0]
    assert (row["worker"], row["is_failed"], row["error"]) == (heir.worker, False, None)
    assert await finish(database, taken) == 1


async def test_a_worker_that_lives_keeps_its_lease(database, context):
    await add(database, context, 1)
    queue = WorkQueue(database, KIND, WorkPolicy(lease_seconds=0.6))
    items = await queue.claim(DEFAULT_TENANT, 1)
    async with queue.kept(DEFAULT_TENANT, items):
        await asyncio.sleep(1.2)
        assert await WorkQueue(database, KIND).claim(DEFAULT_TENANT, 1) == []
    assert await finish(database, items) == 1


async def test_a_cancelled_worker_puts_back_what_it_holds_uncounted(database, context):
    await add(database, context, 3)
    queue = WorkQueue(database, KIND)
    holds = asyncio.Event()

    async def work():
        items = await queue.claim(DEFAULT_TENANT, 3)
        async with queue.kept(DEFAULT_TENANT, items):
            holds.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await holds.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(row["attempts"], row["worker"]) for row in await rows(database)] == [(0, None)] * 3
    assert len(await WorkQueue(database, KIND).claim(DEFAULT_TENANT, 9)) == 3


async def test_a_retry_waits_and_the_last_one_fails_for_good(database, context):
    await add(database, context, 1)
    queue = WorkQueue(database, KIND, WorkPolicy(max_attempts=2, first_wait_seconds=0.2))
    await queue.retry(DEFAULT_TENANT, await queue.claim(DEFAULT_TENANT, 1), "first")
    assert await queue.claim(DEFAULT_TENANT, 1) == []
    await asyncio.sleep(0.25)
    await queue.retry(DEFAULT_TENANT, await queue.claim(DEFAULT_TENANT, 1), "second")
    row = (await rows(database))[0]
    assert (row["is_failed"], row["error"], row["attempts"]) == (True, "second", 2)
    await asyncio.sleep(0.3)
    assert await queue.claim(DEFAULT_TENANT, 1) == []
    async with database.work(DEFAULT_TENANT) as connection:
        assert await work_repository.revive(connection, DEFAULT_TENANT, KIND) == 1
    assert (await queue.claim(DEFAULT_TENANT, 1))[0].attempts == 1


async def test_work_added_by_a_transaction_that_rolls_back_never_was(database, context):
    async def fails():
        async with database.work(DEFAULT_TENANT) as connection:
            await work_repository.add(connection, DEFAULT_TENANT, context, KIND, [{"n": 1}])
            raise LookupError

    with pytest.raises(LookupError):
        await fails()
    assert await rows(database) == []


async def test_work_goes_with_its_context(database, services, context):
    await add(database, context, 3)
    held = await WorkQueue(database, KIND).claim(DEFAULT_TENANT, 1)
    await services.contexts.delete(DEFAULT_TENANT, "work")
    assert await rows(database) == []
    assert await finish(database, held) == 0


async def test_an_empty_list_adds_and_finishes_nothing(database, context):
    await add(database, context, 0)
    assert await finish(database, []) == 0
    assert await rows(database) == []
