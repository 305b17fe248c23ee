import asyncio
import os
import time
from pathlib import Path

import pytest

from strata.errors import StrataError
from strata.sources.readers import sandbox
from strata.sources.readers.sandbox import ReaderPool, read_in_sandbox

MEMORY = 1024 * 1024 * 1024
SLOW = b"<div>" * 300_000 + b"x"


def new_pool(size=1, timeout_seconds=60.0, memory_bytes=MEMORY):
    return ReaderPool(size, timeout_seconds=timeout_seconds, memory_bytes=memory_bytes)


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  a process dies without telling an event
            await asyncio.sleep(0.01)


async def reason_of(pool, name, data):
    with pytest.raises(StrataError) as caught:
        await pool.read(name, data)
    return caught.value.extra["reason"]


def pids(pool):
    return [worker._process.pid for worker in pool._idle]


async def test_a_document_comes_back_whole_from_its_process():
    async with new_pool() as pool:
        document = await pool.read("a.md", "---\ntags: [ä]\n---\n# Größe\n\n東京 \x00".encode())
        assert document.text == "# Größe\n\n東京 "
        assert document.metadata == {"tags": ["ä"]}
        assert document.changes == {"nul": 1}
        assert document.blocks[0].heading == "Größe"


async def test_processes_are_used_again_and_a_refusal_keeps_them():
    async with new_pool() as pool:
        await pool.read("a.md", b"x")
        first = pids(pool)
        assert await reason_of(pool, "a.md", b"") == "empty"
        await pool.read("a.md", b"y")
        assert pids(pool) == first


async def test_many_readings_share_few_processes():
    async with new_pool(2) as pool:
        documents = await asyncio.gather(*(pool.read("a.txt", b"text %d" % number) for number in range(12)))
        assert [document.text for document in documents] == [f"text {number}" for number in range(12)]
        assert len(pids(pool)) <= 2


async def test_a_reading_that_takes_too_long_ends_and_the_next_one_works():
    async with new_pool(timeout_seconds=1.5) as pool:
        started = time.monotonic()
        assert await reason_of(pool, "a.html", SLOW) == "timeout"
        assert time.monotonic() - started < 10
        assert pids(pool) == []


async def test_a_killed_process_is_a_refusal_and_is_replaced():
    async with new_pool() as pool:
        await pool.read("a.md", b"x")
        (pid,) = pids(pool)
        os.kill(pid, 11)
        await until(lambda: not pool._idle[0].alive)
        assert (await pool.read("a.md", b"y")).text == "y"
        assert pids(pool) != [pid]


async def test_a_crash_in_the_middle_of_a_reading_is_named():
    async with new_pool() as pool:
        reading = asyncio.create_task(reason_of(pool, "a.html", SLOW))
        await until(lambda: any(job._worker for job in pool._jobs))
        await asyncio.sleep(0.2)
        (job,) = pool._jobs
        os.kill(job._worker._process.pid, 11)
        assert await reading == "crashed"


async def test_a_cancelled_reading_kills_its_process():
    async with new_pool() as pool:
        reading = asyncio.create_task(pool.read("a.html", SLOW))
        await until(lambda: any(job._worker for job in pool._jobs))
        process = next(iter(pool._jobs))._worker._process
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await until(lambda: process.returncode is not None)
        assert process.returncode == -9
        assert (await pool.read("a.md", b"next")).text == "next"


async def test_a_reading_over_its_memory_is_refused_and_the_next_one_works():
    async with new_pool(memory_bytes=300 * 1024 * 1024) as pool:
        assert await reason_of(pool, "a.txt", b"a few words " * 15_000_000) == "memory"
        assert (await pool.read("a.md", b"next")).text == "next"
        # This one does not even fit in to be read.
        assert await reason_of(pool, "a.txt", bytes(400 * 1024 * 1024)) == "memory"
        assert (await pool.read("a.md", b"next")).text == "next"


async def test_a_closed_pool_reads_no_more():
    pool = new_pool()
    await pool.read("a.md", b"x")
    (worker,) = pool._idle
    pool.close()
    pool.close()
    assert not worker.alive
    with pytest.raises(RuntimeError):
        await pool.read("a.md", b"x")


async def test_a_process_is_replaced_after_many_readings(monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_READS_PER_WORKER", 2)
    async with new_pool() as pool:
        await pool.read("a.md", b"x")
        first = pids(pool)
        await pool.read("a.md", b"x")
        await pool.read("a.md", b"x")
        assert pids(pool) != first


def test_secrets_of_the_environment_do_not_reach_the_process(monkeypatch):
    monkeypatch.setenv("STRATA_DATABASE_PASSWORD", "hidden")
    worker = sandbox._Worker(MEMORY)
    try:
        assert b"hidden" not in Path(f"/proc/{worker._process.pid}/environ").read_bytes()
    except FileNotFoundError:
        pytest.skip("this system has no /proc")
    finally:
        worker.close()


def test_one_file_can_be_read_in_a_process_of_its_own():
    document = read_in_sandbox("a.md", b"# A", timeout_seconds=60, memory_bytes=MEMORY)
    assert document.title == "A"
    with pytest.raises(StrataError):
        read_in_sandbox("a.md", b"", timeout_seconds=60, memory_bytes=MEMORY)
