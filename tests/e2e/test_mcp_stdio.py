"""The installed ``strata mcp`` as an MCP client starts it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema_rs
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

import mcp_support
from scenario_support import doc, put
from strata.cli.base import ExitCode
from strata.exchange.parse import parse_stream
from strata.platform.ids import DEFAULT_TENANT

pytestmark = pytest.mark.database
STRATA = str(Path(sys.executable).with_name("strata"))
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture
def environ(dsn, home):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STRATA_", "OTEL_"))}
    return kept | {
        "STRATA_HOME": str(home),
        "STRATA_DATABASE_URL": dsn,
        "STRATA_EMBEDDINGS": "none",
        "STRATA_LOG_LEVEL": "debug",
    }


@pytest.fixture
async def stored(services):
    await put(services, doc("hr/leave.md", "# Leave\n\nEveryone has 30 days of vacation a year.\n"), context="h")
    return services


@contextlib.contextmanager
def started(environ):
    """The bare process, to be talked to by hand."""
    process = subprocess.Popen(
        [STRATA, "mcp"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def say(process, *messages):
    for message in messages:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        process.stdin.write(data + b"\n")
    process.stdin.flush()


def hear(process):
    return json.loads(process.stdout.readline())


def call(number, arguments):
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": "lookup", "arguments": arguments},
    }


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_starts_it_lists_the_tools_and_calls_lookup(stored, environ, mode, tmp_path):
    with (tmp_path / "errors").open("w") as errors:
        transport = stdio_client(StdioServerParameters(command=STRATA, args=["mcp"], env=environ), errlog=errors)
        async with Client(transport, mode=mode) as client:
            assert client.server_info.name == "strata"
            assert [tool.name for tool in (await client.list_tools()).tools] == mcp_support.TOOLS
            for _ in range(2):
                result = await client.call_tool("lookup", {"query": "vacation", "context": "h"})
                assert result.structured_content["evidenceBlocks"][0]["source"] == "hr/leave.md"
            failed = await client.call_tool("lookup", {"query": "a\0b", "context": "h"})
            assert failed.is_error
            assert failed.structured_content["pointer"] == "/query"
    assert "Traceback" not in (tmp_path / "errors").read_text()
    async with stored.database.work(DEFAULT_TENANT) as connection:
        rows = await connection.fetch(
            "SELECT surface, status, session_id, agent_id, trace_id FROM tool_invocation ORDER BY id"
        )
    assert [(row["surface"], row["status"]) for row in rows] == [("MCP", "SUCCESS")] * 2 + [("MCP", "ERROR")]
    (session,) = {row["session_id"] for row in rows}
    assert session.startswith("stdio-")
    assert {row["agent_id"] for row in rows} == {"mcp/0.1.0"}
    assert len({row["trace_id"] for row in rows}) == 3


FACTS = (
    ("resolve", {"cue": "harow light"}, "candidates", 1),
    ("query", {"subject": "Harrow Light", "label": "keeper"}, "matches", 2),
    ("activate", {"origins": ["Harrow Light"]}, "matches", 3),
    ("search_passages", {"query": "keeper of Harrow Light"}, "hits", 2),
)
MISTAKES = (
    ("resolve", {"cue": 7}, "invalid_request", "/cue"),
    ("activate", {"origins": "a", "limit": 1001}, "over_limit", "/limit"),
    ("query", {"subject": "a\0b"}, "invalid_request", "/subject"),
    ("assemble_evidence", {"origins": "a", "budget": {"max_item": 3}}, "invalid_request", "/budget/max_item"),
    ("cite_passage", {"source": "a.md", "paragraph": 10**30}, "invalid_request", "/paragraph"),
)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_tools_of_facts_and_passages_answer_the_official_client(services, environ, mode, tmp_path):
    await services.exchange.import_stream(DEFAULT_TENANT, parse_stream(mcp_support.LIGHT.encode()))
    with (tmp_path / "errors").open("w") as errors:
        transport = stdio_client(StdioServerParameters(command=STRATA, args=["mcp"], env=environ), errlog=errors)
        async with Client(transport, mode=mode) as client:
            schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}

            async def answer(name, **arguments):
                result = await client.call_tool(name, {"context": "kb", **arguments})
                assert not result.is_error, result
                jsonschema_rs.validate(schemas[name], result.structured_content)
                assert json.loads(mcp_support.text_of(result))["status"] == "ok"
                return result.structured_content

            for name, arguments, key, count in FACTS:
                assert len((await answer(name, **arguments))[key]) == count, name
            assert (await answer("cite_passage", source="a.md", paragraph=1))["text"] == "She came from the north."
            missing = await answer("cite_passage", source="a.md", paragraph=2)
            assert missing == {"found": False, "text": None, "missing": "paragraph"}
            asked = {"origins": ["Harrow Light"], "budget": {"max_items": 2, "max_tokens": 500}}
            package, again = [await answer("assemble_evidence", **asked) for _ in range(2)]
            assert json.dumps(package) == json.dumps(again)
            assert package["budget"]["items_used"] == len(package["items"]) == 2
            assert package["budget"]["tokens_used"] <= 500
            for name, arguments, code, pointer in MISTAKES:
                failed = await client.call_tool(name, {"context": "kb", **arguments})
                mcp_support.failure(failed, code)
                assert failed.structured_content["pointer"] == pointer, name
    assert "Traceback" not in (tmp_path / "errors").read_text()
    async with services.database.work(DEFAULT_TENANT) as connection:
        rows = await connection.fetch("SELECT tool_name, surface, status FROM tool_invocation ORDER BY id")
    expected = [*((name, "SUCCESS") for name, *_ in FACTS), ("cite_passage", "SUCCESS"), ("cite_passage", "NOT_FOUND")]
    expected += [("assemble_evidence", "SUCCESS")] * 2 + [(name, "ERROR") for name, *_ in MISTAKES]
    assert [tuple(row) for row in rows] == [(name, "MCP", status) for name, status in expected]


def test_it_ends_cleanly_when_its_input_closes(environ):
    with started(environ) as process:
        say(process, HELLO)
        assert hear(process)["result"]["serverInfo"]["name"] == "strata"
        out, errors = process.communicate(timeout=20)
    assert process.returncode == ExitCode.OK, errors
    assert out == b""
    assert b"Traceback" not in errors


def test_a_call_in_flight_does_not_keep_it_alive(stored, environ):
    with started(environ) as process:
        say(process, HELLO)
        hear(process)
        say(process, {"jsonrpc": "2.0", "method": "notifications/initialized"}, call(2, {"query": "vacation"}))
        _, errors = process.communicate(timeout=20)
    assert process.returncode == ExitCode.OK, errors
    assert b"Traceback" not in errors


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)]
)
def test_a_signal_ends_it_while_it_waits_for_input(environ, number, code):
    with started(environ) as process:
        say(process, HELLO)
        hear(process)
        begun = time.monotonic()
        process.send_signal(number)
        assert process.wait(20) == code
        assert time.monotonic() - begun < 10
        errors = process.stderr.read()
    assert b"Traceback" not in errors
    assert b"Fatal" not in errors


def test_hostile_lines_neither_end_it_nor_reach_standard_output(stored, environ):
    hostile = [
        b"nonsense",
        b"\xff\xfe\x00",
        b"[" * 5000,
        b"{}",
        b"",
        b'{"jsonrpc":"2.0","id":9}',
        b'{"jsonrpc":"2.0","method":"notifications/unheard"}',
    ]
    with started(environ) as process:
        say(process, HELLO)
        hear(process)
        say(process, {"jsonrpc": "2.0", "method": "notifications/initialized"}, *hostile)
        say(
            process, json.dumps(call(5, {"query": "TEXT", "context": "h"})).replace("TEXT", "vacation \\ud800").encode()
        )
        answer = hear(process)
        assert answer["id"] == 5
        assert answer["result"]["structuredContent"]["found"] is True
        say(process, call(6, {"query": "x" * 900_000, "context": "h"}))
        answer = hear(process)
        assert answer["result"]["isError"] is True
        assert answer["result"]["structuredContent"]["code"] == "invalid_request"


def test_a_message_that_never_ends_ends_it_with_the_reason(environ):
    with started(environ) as process:
        say(process, HELLO)
        hear(process)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"x" * 3_000_000)
            process.stdin.flush()
        assert process.wait(20) == ExitCode.USAGE
        errors = process.stderr.read()
    assert b"error[body_too_large]" in errors
