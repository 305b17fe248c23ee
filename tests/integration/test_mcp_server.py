"""Real server processes: any replica answers any message, and both surfaces charge the same."""

import asyncio
import contextlib
import itertools
import json
import os
import sys

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

import mcp_support
from assembly_support import header, stream
from strata.platform.ids import DEFAULT_TENANT

pytestmark = [pytest.mark.database, pytest.mark.slow]

SCRIPT = """
from strata.platform.server import serve
from strata.settings import load_settings

if __name__ == "__main__":
    serve(load_settings(), on_ready=lambda url: print("ready", url, flush=True))
"""
REPLICAS = 3
SESSIONS = 100
AT_ONCE = 4
WORDS = ("leave", "pay", "travel", "hours", "parking")
STREAM = stream(
    *(
        line
        for word in WORDS
        for line in (
            header(f"hr/{word}.md", "h"),
            {"passage": f"Rules on {word} and vacation. " * 30},
            {"subject": "Rules", "label": "are on", "object": word.title(), "weight": 1.0, "paragraph": 0},
        )
    )
)
TOOLS = {
    "lookup": {"query": "rules on vacation"},
    "assemble_evidence": {"origins": ["Rules"], "text_fallback_query": "rules on vacation"},
}


@contextlib.asynccontextmanager
async def replica(dsn, home, folder, number):
    """One server process; gives its port."""
    script = folder / "served.py"
    script.write_text(SCRIPT)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("STRATA_", "OTEL_"))}
    environ |= {
        "STRATA_HOME": str(home),
        "STRATA_DATABASE_URL": dsn,
        "STRATA_PORT": "0",
        "STRATA_EMBEDDINGS": "none",
        "STRATA_DATABASE_POOL_SIZE": "4",
    }
    log = folder / f"server-{number}.log"
    with log.open("w") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), stdout=asyncio.subprocess.PIPE, stderr=errors, env=environ
        )
        try:
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            assert line.startswith(b"ready "), log.read_text()
            yield int(line.split()[1].rpartition(b":")[2])
        finally:
            if process.returncode is None:
                process.terminate()
            assert await asyncio.wait_for(process.wait(), 30) == 0


@contextlib.asynccontextmanager
async def round_robin(ports):
    """A proxy that gives each connection to the next server; yields its port and what each server got."""
    served = dict.fromkeys(ports, 0)
    turns = itertools.cycle(ports)

    async def copy(reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connect(reader, writer):
        port = next(turns)
        served[port] += 1
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], served
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture
async def ports(dsn, home, tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        opened = [stack.enter_async_context(replica(dsn, home, tmp_path, number)) for number in range(REPLICAS)]
        yield [await each for each in opened]


async def session(port, mode, tool, arguments):
    """Run initialize, list_tools, call_tool, each message over a connection of its own."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    async with (
        httpx2.AsyncClient(limits=limits, timeout=30) as http,
        Client(streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http), mode=mode) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert tools == mcp_support.TOOLS
        result = await client.call_tool(tool, {"context": "h", **arguments})
        assert not result.is_error, result
        return result.structured_content


async def test_three_replicas_without_affinity_serve_a_hundred_sessions_without_an_error(ports, services):
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{ports[0]}", timeout=30) as http:
        await mcp_support.load(http, STREAM)
        async with round_robin(ports) as (port, served):
            places = asyncio.Semaphore(AT_ONCE)

            async def one(number):
                tool = list(TOOLS)[number // 2 % 2]
                async with places:
                    return tool, await session(port, "legacy" if number % 2 else "auto", tool, TOOLS[tool])

            results = await asyncio.gather(*(one(number) for number in range(SESSIONS)))
        found = [result for tool, result in results if tool == "lookup"]
        assert all(result["found"] for result in found)
        assert len({result["lookupId"] for result in found}) == len(found) == SESSIONS // 2
        packages = [json.dumps(result) for tool, result in results if tool == "assemble_evidence"]
        assert len(packages) == SESSIONS // 2
        assert len(set(packages)) == 1
        kinds = [item["kind"] for item in json.loads(packages[0])["items"]]
        assert set(kinds) == {"association", "passage"}
        assert min(served.values()) >= SESSIONS
        async with services.database.work(DEFAULT_TENANT) as connection:
            rows = await connection.fetch(
                "SELECT tool_name, status, count(*) FROM tool_invocation WHERE surface = 'MCP' GROUP BY 1, 2 ORDER BY 1"
            )
        assert [tuple(row) for row in rows] == [(tool, "SUCCESS", SESSIONS // 2) for tool in sorted(TOOLS)]

        asked = {"query": "vacation rules", "topK": 5, "maxTokens": 900, "reserveTokens": 100}
        over_mcp = await session(ports[1], "auto", "lookup", asked)
        budget = {"maxTokens": 900, "reserveTokens": 100}
        body = {"query": "vacation rules", "context": "h", "topK": 5, "budget": budget}
        over_rest = (await http.post("/api/v1/lookup", json=body)).json()
        assert over_mcp["budget"] == over_rest["budget"]
        assert over_rest["budget"]["limits"]["maxTokens"] == 800
        assert over_rest["budget"]["tokensUsed"] > 0
        asked = {**TOOLS["assemble_evidence"], "budget": {"max_tokens": 900, "reserve_tokens": 100}}
        over_mcp = await session(ports[2], "auto", "assemble_evidence", asked)
        over_rest = (await http.post("/contexts/h/evidence", json=asked)).json()["result"]
        assert over_mcp == over_rest
