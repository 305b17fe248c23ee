"""What the tests of the tools share: the application behind its border, official clients of it, and checks."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx2
from litestar import Litestar
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from assembly_support import header, stream
from strata.app import create_app
from strata.mcp.http import ERRORS, ROOT, mcp_route
from strata.platform.border import guard
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.problems import EXCEPTION_HANDLERS

URL = "http://localhost/mcp"
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TOOLS = [
    "lookup",
    "fetch",
    "explore",
    "assemble_evidence",
    "resolve",
    "query",
    "activate",
    "search_passages",
    "cite_passage",
]
ROW = (
    "SELECT tool_name, surface, status, session_id, agent_id, request_id, trace_id, found, evidence_count, "
    "error_type, arguments FROM tool_invocation ORDER BY id DESC LIMIT 1"
)


@contextlib.asynccontextmanager
async def in_one_task(manager):
    """Enter and leave a context manager in one task: fixtures are left in another than they were entered in."""
    entered, left = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def run():
        try:
            async with manager as value:
                entered.set_result(value)
                await left.wait()
        except BaseException as error:
            if not entered.done():
                entered.set_exception(error)
            raise

    task = asyncio.create_task(run())
    try:
        yield await entered
    finally:
        left.set()
        await task


@contextlib.asynccontextmanager
async def served(app):
    """A client of an application."""
    async with app.lifespan():
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:
            yield http


def application(settings, services):
    """A client of the whole application."""
    return in_one_task(served(create_app(settings, services=services)))


def route_over(settings, box):
    """The route alone behind the border, over services of the test's own."""
    route = mcp_route(lambda: box)
    app = Litestar(
        [route.handler], exception_handlers=EXCEPTION_HANDLERS, lifespan=[route.lifespan], logging_config=None
    )
    app.asgi_handler = guard(app.asgi_handler, settings, {ROOT: ERRORS})
    return app


def connected(http, mode="auto"):
    """The official client."""
    return Client(streamable_http_client(URL, http_client=http), mode=mode)


async def last_row(services):
    async with services.database.work(DEFAULT_TENANT) as connection:
        return await connection.fetchrow(ROW)


def text_of(result):
    (block,) = result.content
    return block.text


async def post(http, message, **headers):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return await http.post("/mcp", content=body, headers={**HEADERS, **headers})


def call(arguments, name="lookup", **meta):
    params = {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def failure(result, code):
    """Check that a result is a failure that a model can act on; return the problem."""
    problem = result.structured_content if hasattr(result, "structured_content") else result["structuredContent"]
    is_error = result.is_error if hasattr(result, "is_error") else result["isError"]
    assert is_error is True, problem
    assert problem["code"] == code, problem
    assert problem["remedy"]
    text = text_of(result) if hasattr(result, "content") else result["content"][0]["text"]
    assert text.startswith(code)
    assert problem["remedy"] in text
    return problem


def refused(answer, status, code, *, rpc=-32600, pointer=None):
    """Check that an answer is a JSON-RPC error which holds a problem document."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", None, rpc)
    problem = body["error"]["data"]
    assert (problem["code"], problem["status"]) == (code, status)
    assert pointer is None or problem["pointer"] == pointer
    assert body["error"]["message"].startswith(f"{code}: ")


LIGHT = stream(
    header("a.md"),
    {"passage": "Ida Brandt is the keeper of Harrow Light.\n\nShe came from the north."},
    {"subject": "Harrow Light", "label": "keeper", "object": "Ida Brandt", "weight": 1.0, "paragraph": 0},
    {"subject": "Ida Brandt", "label": "came from", "object": "the north", "weight": 1.0, "paragraph": 1},
    header("b.md"),
    {"passage": "Some hold that Olaf Lund is its keeper."},
    {"subject": "Harrow Light", "label": "keeper", "object": "Olaf Lund", "weight": 1.0, "paragraph": 0},
)
"""A light with its keeper, a rival claim, and the paragraphs that say so, in the context kb."""


async def load(http, text=LIGHT):
    """Import a stream over the wire."""
    answer = await http.post("/import", content=text.encode(), headers={"content-type": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text


def compact(value):
    """Return JSON without spaces, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
