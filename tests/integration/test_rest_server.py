"""A real server process: signals, callers that leave, bodies that never end."""

import asyncio
import contextlib
import os
import signal
import sys

import asyncpg
import httpx
import psutil
import pytest

pytestmark = pytest.mark.database

SCRIPT = """
from strata.platform.server import serve
from strata.settings import load_settings

if __name__ == "__main__":
    serve(load_settings(), on_ready=lambda url: print("ready", url, flush=True))
"""
MANY = 50


class Server:
    """A served process under test."""

    def __init__(self, process, url):
        self.process = process
        self.url = url
        self.address = url.removeprefix("http://").split(":")

    @property
    def workers(self):
        return psutil.Process(self.process.pid).children()

    async def stop(self):
        if self.process.returncode is None:
            self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), 40)


@contextlib.asynccontextmanager
async def served(dsn, home, tmp_path, **settings):
    script = tmp_path / "served.py"
    script.write_text(SCRIPT)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
    environ |= {
        "STRATA_HOME": str(home),
        "STRATA_DATABASE_URL": dsn,
        "STRATA_PORT": "0",
        "STRATA_EMBEDDINGS": "none",
        "STRATA_MAX_REQUEST_SECONDS": "1.5",
        **settings,
    }
    log = (tmp_path / "server.log").open("w")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=asyncio.subprocess.PIPE, stderr=log, env=environ
    )
    server = None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line.startswith(b"ready "), (tmp_path / "server.log").read_text()
        server = Server(process, line.split()[1].decode())
        yield server
    finally:
        if process.returncode is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.kill()
            await process.wait()
        log.close()


@pytest.fixture
async def server(dsn, home, tmp_path):
    async with (
        served(dsn, home, tmp_path, STRATA_SHUTDOWN_DELAY_SECONDS="0.5") as running,
        httpx.AsyncClient(base_url=running.url, timeout=30, limits=httpx.Limits(max_connections=200)) as client,
    ):
        running.client = client
        document = {"path": "hr/leave.md", "content": "# Leave\n\nThirty days of vacation.\n"}
        assert (await client.post("/api/v1/contexts/h/sources", json=document)).status_code == 200
        yield running


@contextlib.asynccontextmanager
async def locked(dsn, table):
    """Hold a table, so that whoever reads it waits."""
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


async def statuses(dsn):
    connection = await asyncpg.connect(dsn)
    try:
        return [row["status"] for row in await connection.fetch("SELECT status FROM tool_invocation ORDER BY id")]
    finally:
        await connection.close()


async def until(condition, seconds=10.0):
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline:
        if await condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the condition did not come true in time")


async def waiting(dsn, table):
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE relation = $1::regclass AND NOT granted", table
        )
    finally:
        await connection.close()


async def test_sigterm_lets_calls_in_flight_finish_drops_readiness_and_exits_with_zero(server, dsn):
    question = {"query": "vacation", "context": "h"}
    async with locked(dsn, "passage"):
        calls = [asyncio.create_task(server.client.post("/api/v1/lookup", json=question)) for _ in range(MANY)]

        async def begun():
            return await waiting(dsn, "passage") >= 1

        await until(begun)
        server.process.send_signal(signal.SIGTERM)

        async def dropped():
            response = await server.client.get("/readyz")
            return response.status_code == 503 and response.json()["status"] == "OUT_OF_SERVICE"

        await until(dropped, 0.5)
        assert (await server.client.get("/livez")).status_code == 200
        await asyncio.sleep(1)
    answers = await asyncio.gather(*calls)
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 503)
    assert any(answer.status_code == 200 for answer in answers)
    assert await asyncio.wait_for(server.process.wait(), 30) == 0
    with pytest.raises(httpx.TransportError):
        await server.client.get("/livez")
    assert len(await statuses(dsn)) == MANY
    connection = await asyncpg.connect(dsn)
    left = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'strata'"
    )
    await connection.close()
    assert left == 0


async def test_a_caller_that_leaves_cancels_its_statement_and_leaves_a_row(server, dsn):
    before = len(await statuses(dsn))
    async with locked(dsn, "passage"):
        with pytest.raises(httpx.ReadTimeout):
            await server.client.get("/api/v1/lookup?q=vacation&context=h", timeout=0.5)

        async def cancelled():
            return (await statuses(dsn))[before:] == ["CANCELLED"] and not await waiting(dsn, "passage")

        await until(cancelled)
    assert (await server.client.get("/api/v1/lookup?q=vacation&context=h")).status_code == 200


async def test_a_worker_that_is_killed_is_replaced_and_what_was_stored_is_served(server):
    (worker,) = server.workers
    worker.kill()

    async def back():
        with contextlib.suppress(httpx.TransportError):
            return (await server.client.get("/readyz")).status_code == 200
        return False

    await until(back, 30)
    result = (await server.client.get("/api/v1/lookup?q=vacation&context=h")).json()
    assert result["evidenceBlocks"][0]["source"] == "hr/leave.md"
    assert await server.stop() == 0


async def test_killing_the_server_ends_its_workers_and_leaves_a_database_that_the_next_start_serves(
    dsn, home, tmp_path
):
    async with served(dsn, home, tmp_path) as first, httpx.AsyncClient(base_url=first.url, timeout=10) as client:
        documents = [{"path": f"{n}.md", "content": f"# {n}\n\nvacation part {n}\n" * 50} for n in range(200)]
        ingest = asyncio.create_task(client.post("/api/v1/contexts/h/sources", json={"documents": documents}))
        lookups = [asyncio.create_task(client.get("/api/v1/lookup?q=vacation&context=h")) for _ in range(5)]
        await asyncio.sleep(0.6)
        orphans = first.workers
        first.process.kill()
        await first.process.wait()
        _, alive = await asyncio.to_thread(psutil.wait_procs, orphans, 10)
        assert alive == []
        await asyncio.gather(ingest, *lookups, return_exceptions=True)
    async with served(dsn, home, tmp_path) as second, httpx.AsyncClient(base_url=second.url, timeout=30) as client:
        report = (await client.post("/api/v1/contexts/h/sources", json={"documents": documents})).json()
        assert report["added"] + report["unchanged"] + report["replaced"] == 200
        found = (await client.get("/api/v1/lookup?q=vacation+part&context=h&topK=3")).json()
        assert found["found"] is True
        listed = (await client.get("/api/v1/contexts/h/sources?limit=1000")).json()
        assert len(listed["items"]) == 200
        assert await second.stop() == 0


async def raw(server, payload, seconds=6.0):
    """Send bytes, then read until the server closes or the time is over."""
    reader, writer = await asyncio.open_connection(server.address[0], int(server.address[1]))
    try:
        writer.write(payload)
        await writer.drain()
        return await asyncio.wait_for(reader.read(4096), seconds)
    finally:
        writer.close()


async def test_a_body_that_drips_is_answered_408_and_other_calls_go_on(server):
    head = b"POST /api/v1/lookup HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    slow = asyncio.create_task(raw(server, head))
    assert (await server.client.get("/api/v1/lookup?q=vacation&context=h")).status_code == 200
    assert b" 408 " in (await slow).split(b"\r\n")[0]


async def test_endless_bodies_are_refused_and_take_no_memory(server):
    (worker,) = server.workers
    before = worker.memory_info().rss
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    for path in (b"/api/v1/lookup", b"/api/v1/contexts/h/sources"):
        reader, writer = await asyncio.open_connection(server.address[0], int(server.address[1]))
        writer.write(
            b"POST "
            + path
            + b" HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 200 * 1024 * 1024 and not reader.at_eof():
                writer.write(chunk)
                await writer.drain()
                sent += len(chunk)
                if reader._buffer:
                    break
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(4096), 5)
        writer.close()
        assert b" 413 " in answer.split(b"\r\n")[0]
        assert sent < 64 * 1024 * 1024
    assert worker.memory_info().rss - before < 50 * 1024 * 1024
    refused = await server.client.post(
        "/api/v1/contexts/h/sources",
        content=b"\x1f\x8b" + b"0" * 1000,
        headers={"content-type": "application/json", "content-encoding": "gzip"},
    )
    assert refused.status_code == 415
    assert (await server.client.get("/readyz")).status_code == 200


async def test_odd_requests_are_refused_and_the_server_stays(server):
    for payload in (
        b"GET /api/v1/contexts/\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /api/v1/contexts HTTP/1.1\r\nhost: x\r\nx-odd: a\x00b\r\n\r\n",
        b"POST /api/v1/lookup HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST /api/v1/lookup HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\nhello",
        b"GET /api/v1/contexts/" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01 nonsense\r\n\r\n",
    ):
        answer = await raw(server, payload)
        assert answer == b"" or answer.split(b" ")[1].startswith(b"4"), answer[:200]
    assert (await server.client.get("/livez")).status_code == 200


async def test_questions_full_of_operators_are_just_text(server):
    for question in (
        'AT&T | "R&D" !cost:* (a|b) <-> \'',
        "What's your password policies?",
        "Message: {0}, StackTrace: {1}",
        "%_\\'; DROP TABLE source; --",
        "[1,2",
        "a\u202eb\u0301" * 50,
        "🎉" * 100,
        "x" * 4096,
    ):
        answer = await server.client.post("/api/v1/lookup", json={"query": question, "context": "h"})
        assert answer.status_code == 200, answer.text
        got = await server.client.get("/api/v1/lookup", params={"q": question, "context": "h"})
        assert got.status_code == 200, got.text
