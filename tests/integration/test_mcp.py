"""The tools over streamable HTTP, through the border, with the official client in the same process."""

import asyncio
import contextlib
import json

import jsonschema_rs
import msgspec
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from mcp_support import (
    HEADERS,
    TOOLS,
    URL,
    application,
    call,
    connected,
    failure,
    in_one_task,
    last_row,
    post,
    refused,
    route_over,
    served,
    text_of,
)
from scenario_support import doc, prose, put
from strata.errors import INTERNAL, SOURCE_NOT_FOUND, StrataError
from strata.lookup.schemas import BudgetRequest, LookupRequest
from strata.lookup.service import Caller
from strata.mcp.cap import RESULT_TOKENS, tokens
from strata.mcp.tools import Toolbox
from strata.platform.ids import DEFAULT_TENANT
from strata.traces.schemas import Surface

pytestmark = pytest.mark.database


@pytest.fixture
async def http(settings, services):
    await put(
        services,
        doc("hr/leave.md", "# Leave\n\n## Vacation\n\nEveryone has 30 days of vacation a year.\n"),
        doc("hr/pay.md", "# Pay\n\nSalaries are paid on the 25th of the month.\n"),
        context="h",
    )
    async with application(settings, services) as opened:
        yield opened


@pytest.fixture
async def client(http):
    async with in_one_task(connected(http)) as opened:
        yield opened


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_lists_the_tools_and_calls_lookup(http, mode):
    async with connected(http, mode) as client:
        assert client.server_info.name == "strata"
        assert "lookup" in client.instructions
        assert "assemble_evidence" in client.instructions
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == TOOLS
        assert all(tool.annotations.read_only_hint and tool.annotations.idempotent_hint for tool in tools)
        assert all(tool.title and tool.description for tool in tools)
        result = await client.call_tool("lookup", {"query": "How many days of vacation?", "context": "h", "topK": 2})
        assert not result.is_error
        found = result.structured_content
        assert found["found"] is True
        assert found["evidenceBlocks"][0]["source"] == "hr/leave.md"
        assert found["markdown"] is None
        assert "reduced" not in found
        assert "### 1. Leave" in text_of(result)
        assert "\n> # Leave ## Vacation Everyone has 30 days of vacation a year.\n" in text_of(result)


async def test_schemas_are_plain_objects_and_results_obey_them(client):
    listed = (await client.list_tools()).tools
    tool = listed[0]
    for schema in (schema for each in listed for schema in (each.input_schema, each.output_schema)):
        written = json.dumps(schema)
        assert schema["type"] == "object"
        assert not {"$ref", "anyOf", "oneOf", "allOf", "$defs"} & set(written.replace('"', " ").split())
    for query in ("vacation", "zzzz unheard of"):
        result = await client.call_tool("lookup", {"query": query, "context": "h", "maxTokens": 500})
        jsonschema_rs.validate(tool.output_schema, result.structured_content)


async def test_what_is_not_found_is_an_answer(client):
    result = await client.call_tool("lookup", {"query": "quantum chromodynamics", "context": "h"})
    assert not result.is_error
    assert result.structured_content["found"] is False
    assert result.structured_content["emptyReason"]
    assert text_of(result).startswith("No evidence found.")


async def test_the_text_is_the_structured_result_where_json_is_asked_for(client):
    result = await client.call_tool("lookup", {"query": "vacation", "context": "h", "format": "json"})
    assert json.loads(text_of(result)) == result.structured_content


async def test_both_surfaces_give_the_same_result_for_the_same_budget(client, services):
    await put(services, *(doc(f"many/{n}.md", f"# Part {n}\n\n{prose(f'vacation{n}', 40)}\n") for n in range(20)))
    asked = {"query": "vacation salaries", "context": ["h", "handbook"], "topK": 10, "maxTokens": 900}
    over_mcp = (await client.call_tool("lookup", asked)).structured_content
    request = LookupRequest(
        query=asked["query"], context=asked["context"], top_k=10, budget=BudgetRequest(max_tokens=900)
    )
    over_rest = msgspec.to_builtins(await services.lookup.lookup(DEFAULT_TENANT, request, Caller(Surface.REST)))
    assert over_mcp["budget"]["tokensUsed"] == over_rest["budget"]["tokensUsed"] > 0
    for result in (over_mcp, over_rest):
        for volatile in ("lookupId", "traceId", "tookMs"):
            del result[volatile]
    assert over_mcp == over_rest


async def test_a_call_leaves_a_row_with_its_surface_and_ids(http, services):
    message = call({"query": "vacation", "context": "h"}, sessionId="s-1", agentId="a-1")
    trace = "0af7651916cd43dd8448eb211c80319c"
    answer = await post(http, message, traceparent=f"00-{trace}-b7ad6b7169203331-01", **{"x-request-id": "r-1"})
    assert answer.status_code == 200, answer.text
    row = await last_row(services)
    assert dict(row) | {"arguments": None} == {
        "tool_name": "lookup",
        "surface": "MCP",
        "status": "SUCCESS",
        "session_id": "s-1",
        "agent_id": "a-1",
        "request_id": "r-1",
        "trace_id": trace,
        "found": True,
        "evidence_count": 1,
        "error_type": None,
        "arguments": None,
    }
    assert row["arguments"]["query"] == "vacation"


async def test_a_client_that_names_itself_is_the_agent(http, services):
    async with connected(http, "auto") as client:
        await client.call_tool("lookup", {"query": "vacation", "context": "h"})
    assert (await last_row(services))["agent_id"].startswith("mcp/")


MISTAKES = [
    ({}, "invalid_request", "/query"),
    ({"query": 7}, "invalid_request", "/query"),
    ({"query": None}, "invalid_request", "/query"),
    ({"query": ""}, "invalid_request", "/query"),
    ({"query": "x" * 5000}, "invalid_request", "/query"),
    ({"query": "q", "topK": "five"}, "invalid_request", "/topK"),
    ({"query": "q", "top_k": 0}, "invalid_request", "/top_k"),
    ({"query": "q", "topK": 1, "top_k": 2}, "invalid_request", "/top_k"),
    ({"query": "q", "budget": {"maxTokens": -1}}, "invalid_request", "/budget/maxTokens"),
    ({"query": "q", "budget": {"max_token": 1}}, "invalid_request", "/budget/max_token"),
    ({"query": "q", "budget": 3}, "invalid_request", "/budget"),
    ({"query": "q", "filters": {"since": "yesterday"}}, "invalid_request", "/filters/since"),
    ({"query": "q", "since": "yesterday"}, "invalid_request", "/since"),
    ({"query": "q", "language": "Klingonish"}, "invalid_request", "/language"),
    ({"query": "q", "context": ["h", ""]}, "invalid_request", "/context/1"),
    ({"query": "q", "context": ["h", 3]}, "invalid_request", "/context/1"),
    ({"query": "q", "limit": 3}, "invalid_request", "/limit"),
    ({"query": "q", "a/b~c": 3}, "invalid_request", "/a~1b~0c"),
    ({"query": "q", "context": "nowhere"}, "context_not_found", "/context"),
]


async def test_a_callers_mistake_is_a_result_that_names_the_argument(client, services):
    for arguments, code, pointer in MISTAKES:
        problem = failure(await client.call_tool("lookup", arguments), code)
        assert problem["pointer"] == pointer, arguments
        row = await last_row(services)
        assert (row["tool_name"], row["surface"], row["status"], row["error_type"]) == ("lookup", "MCP", "ERROR", code)
    async with services.database.work(DEFAULT_TENANT) as connection:
        assert await connection.fetchval("SELECT count(*) FROM tool_invocation") == len(MISTAKES)


async def test_spellings_of_the_rest_body_are_understood(client):
    result = await client.call_tool(
        "lookup",
        {
            "query": "vacation",
            "context": "h",
            "top_k": 1,
            "budget": {"max_tokens": 800, "maxItems": None},
            "filters": {"sources": ["hr/**"]},
            "category": None,
        },
    )
    assert result.structured_content["budget"]["limits"]["maxTokens"] == 800
    assert len(result.structured_content["evidenceBlocks"]) == 1


async def test_an_unknown_tool_and_bad_params_are_protocol_errors(client, http):
    with pytest.raises(MCPError) as caught:
        await client.call_tool("retract_source", {"context": "h", "source": "hr/leave.md"})
    assert caught.value.error.code == -32602
    answer = (await post(http, call(["not", "an", "object"]))).json()
    assert answer["error"]["code"] == -32602
    answer = (await post(http, {"jsonrpc": "2.0", "id": 1, "method": "tools/unheard"})).json()
    assert answer["error"]["code"] == -32601


async def test_hostile_arguments_are_refused_and_the_server_goes_on(http):
    for text in ('"a\\u0000b"', '"a\\ud800b"', '"' + "x" * 100_000 + '"', '{"$gt": ""}', "[" * 40 + "]" * 40, "1e400"):
        body = json.dumps(call({"query": "TEXT", "context": "h"})).replace('"TEXT"', text).encode()
        answer = await post(http, body)
        if answer.status_code == 200:
            failure(answer.json()["result"], "invalid_request")
        elif text == "1e400":
            refused(answer, 400, "malformed_body", rpc=-32700)
        else:
            refused(answer, 400, "invalid_request", pointer="/params/arguments/query")
    assert (await post(http, call({"query": "vacation", "context": "h"}))).json()["result"]["isError"] is False


async def test_the_borders_limits_hold(http, settings):
    refused(await post(http, b"{ nonsense"), 400, "malformed_body", rpc=-32700)
    refused(await post(http, b'{"a":' * 100 + b"1" + b"}" * 100), 400, "body_too_deep")
    refused(await post(http, b" " * 2_000_000), 413, "body_too_large")
    refused(await post(http, b"{}", **{"content-type": "text/plain"}), 415, "unsupported_media_type")
    async with connected(http) as client:
        with pytest.raises(MCPError, match="body_too_large"):
            await client.call_tool("lookup", {"query": "x" * 2_000_000})
    good = await post(http, call({"query": "vacation", "context": "h"}))
    assert good.headers["x-request-id"]
    assert good.headers["traceparent"]
    assert good.headers["content-type"].startswith("application/json")
    assert "mcp-session-id" not in good.headers


async def test_only_post_is_served_as_there_are_no_sessions(http):
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH"):
        answer = await http.request(method, "/mcp", headers=HEADERS)
        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"
        if method != "HEAD":
            refused(answer, 405, "method_not_allowed")


ORIGINS = [
    ("http://localhost:6274", 200),
    ("http://127.0.0.1:3000", 200),
    ("http://[::1]:3000", 200),
    ("https://app.localhost", 200),
    ("http://evil.example", 403),
    ("http://localhost.evil.example", 403),
    ("http://127.0.0.1.evil.example", 403),
    ("null", 403),
    ("http://[::1", 403),
    ("", 403),
]


async def test_pages_of_other_machines_are_refused(http):
    for origin, status in ORIGINS:
        answer = await post(http, call({"query": "vacation", "context": "h"}), origin=origin)
        assert answer.status_code == status, origin
        if status == 403:
            refused(answer, 403, "origin_refused")


async def test_a_large_result_is_cut_and_says_by_how_much(client, services):
    body = "\n\n".join(f"## Part {n}\n\n" + prose("turbine", 60, start=1000 * n) for n in range(120))
    await put(
        services,
        *(doc(f"big/{n}.md", f"# Book {n}\n\n{body}\n".replace("turbine", f"turbine{n} turbine")) for n in range(3)),
        context="big",
    )
    asked = {"query": "turbine", "context": "big", "topK": 200, "content": True}
    for form in ("markdown", "json"):
        result = await client.call_tool("lookup", {**asked, "format": form})
        value, text = result.structured_content, text_of(result)
        assert tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":"))) <= RESULT_TOKENS
        assert tokens(text) <= RESULT_TOKENS
        reduced = value["reduced"]
        assert reduced["blocks"] > 0
        assert reduced["maxTokens"] == RESULT_TOKENS
        assert f"{reduced['blocks']} of {reduced['blocks'] + len(value['evidenceBlocks'])}" in reduced["message"]
        assert [block["rank"] for block in value["evidenceBlocks"]] == list(range(1, len(value["evidenceBlocks"]) + 1))
        if form == "markdown":
            assert text.count("\n### ") + text.startswith("### ") == len(value["evidenceBlocks"])
            assert reduced["message"] in text


class Fake:
    """A service of the contexts API: gives what it is told to, and remembers what it was asked."""

    def __init__(self, result):
        self.result = result
        self.asked = None

    async def __call__(self, call, context, arguments):
        self.asked = (context, arguments)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


FACT = {"subject": "a", "label": "rel", "object": "b", "weight": 1.0, "count": 1, "attributions": []}
ITEM = {"candidate_id": "association\0a\0rel\0b", "kind": "association", "citation_refs": [], "association": FACT}
PACKAGE = {
    "items": [ITEM],
    "citations": [],
    "budget": {"items_used": 1},
    "omitted": [],
    "omitted_total": 0,
    "omitted_by_reason": {},
    "plan": {},
}
CITED = {"text": "Thirty days.", "source": "s", "section": None, "locator": None}
SAMPLES = {
    "assemble_evidence": ({"origins": ["a"], "budget": {"max_items": 3}}, PACKAGE),
    "resolve": ({"cue": "a"}, [{"name": "a", "score": 1.0, "tier": "lexical"}]),
    "query": ({"subject": ["a"], "limit": 5}, {"total": 1, "matches": [FACT]}),
    "activate": ({"origins": "a"}, {"total": 1, "matches": [{"strength": 0.5, "path": ["a"], "association": FACT}]}),
    "search_passages": ({"query": "days"}, {"plan": {}, "hits": [{"source": "s", "paragraph": 0, "text": "Days."}]}),
    "cite_passage": ({"source": "s", "paragraph": 0}, CITED),
}
RECORDED = {
    "resolve": {"query": "a"},
    "query": {"query": "a", "limit": 5},
    "activate": {"query": "a"},
    "search_passages": {"query": "days"},
    "cite_passage": {"source": "s", "paragraph": 0},
}
"""What of the arguments is in the row: what the caller wrote is its query, under the privacy setting.

The service behind assemble_evidence writes the row itself."""

EMPTY = {
    "assemble_evidence": {**PACKAGE, "items": []},
    "resolve": [],
    "query": {"total": 0, "matches": []},
    "activate": {"total": 0, "matches": []},
    "search_passages": {"plan": {}, "hits": []},
    "cite_passage": StrataError(SOURCE_NOT_FOUND, "There is no such source."),
}


@contextlib.asynccontextmanager
async def offering(settings, services, **tools):
    box = Toolbox(lookup=services.lookup, recorder=services.recorder, **tools)
    async with served(route_over(settings, box)) as http, connected(http) as client:
        yield client


async def test_only_tools_with_a_service_are_offered(settings, services):
    async with offering(settings, services, resolve=Fake([]), cite_passage=Fake(CITED)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == ["lookup", "resolve", "cite_passage"]


@pytest.mark.parametrize("name", SAMPLES)
async def test_a_tool_of_the_graph_answers_in_both_forms(settings, services, name):
    arguments, result = SAMPLES[name]
    service = Fake(result)
    async with offering(settings, services, **{name: service}) as client:
        tool = (await client.list_tools()).tools[1]
        answer = await client.call_tool(
            name,
            {"context": "c", "tags": None, **arguments} if name == "search_passages" else {"context": "c", **arguments},
        )
    assert not answer.is_error, text_of(answer)
    assert service.asked == ("c", arguments)
    body = json.loads(text_of(answer))
    assert list(body) == ["result", "status", "time"]
    assert body["status"] == "ok"
    assert body["result"] == result
    jsonschema_rs.validate(tool.output_schema, answer.structured_content)
    assert "$ref" not in json.dumps([tool.input_schema, tool.output_schema])
    row = await last_row(services)
    if name not in RECORDED:
        assert row is None
        return
    assert (row["tool_name"], row["surface"], row["status"], row["found"]) == (name, "MCP", "SUCCESS", True)
    assert row["evidence_count"] == 1
    assert row["arguments"] == {"context": "c", **RECORDED[name]}
    assert row["trace_id"].strip("0")


@pytest.mark.parametrize("name", SAMPLES)
async def test_a_tool_of_the_graph_that_finds_nothing_has_not_failed(settings, services, name):
    async with offering(settings, services, **{name: Fake(EMPTY[name])}) as client:
        answer = await client.call_tool(name, {"context": "c", **SAMPLES[name][0]})
    assert not answer.is_error
    assert answer.structured_content.get("found", False) is False
    if name in RECORDED:
        row = await last_row(services)
        assert (row["status"], row["found"]) == ("NOT_FOUND", False)


async def test_arguments_of_the_graph_tools_are_checked_before_the_service_is_asked(settings, services):
    service = Fake(PACKAGE)
    async with offering(settings, services, assemble_evidence=service) as client:
        for arguments, pointer in (
            ({"context": "c"}, "/origins"),
            ({"origins": []}, "/context"),
            ({"context": "c", "origins": [1]}, "/origins/0"),
            ({"context": "c", "origins": "a", "budget": {"max_items": -1}}, "/budget/max_items"),
            ({"context": "c", "origins": "a", "budget": {"items": 1}}, "/budget/items"),
            ({"context": "c", "origins": "a", "origin": 1}, "/origin"),
            ({"context": "c", "origins": "a\0"}, "/origins"),
        ):
            problem = failure(await client.call_tool("assemble_evidence", arguments), "invalid_request")
            assert problem["pointer"] == pointer
    assert service.asked is None


async def test_a_defect_of_ours_tells_nothing_and_stays_a_result(settings, services):
    async with offering(settings, services, resolve=Fake(RuntimeError("secret text"))) as client:
        answer = await client.call_tool("resolve", {"context": "c", "cue": "x"})
    problem = failure(answer, INTERNAL.code)
    assert "secret" not in json.dumps(problem) + text_of(answer)
    assert (await last_row(services))["error_type"] == INTERNAL.code


@pytest.mark.parametrize(
    ("name", "result", "lost"),
    [
        ("query", {"total": 5000, "matches": [{**FACT, "object": f"o{n}"} for n in range(5000)]}, "matches"),
        ("resolve", [{"name": f"京都{n}", "score": 1.0} for n in range(5000)], "candidates"),
        (
            "search_passages",
            {"plan": {}, "hits": [{"source": "s", "paragraph": n, "text": "語" * 9000} for n in range(9)]},
            "texts",
        ),
        ("cite_passage", {**CITED, "text": "x" * 8_000_000}, "texts"),
        (
            "assemble_evidence",
            {
                **PACKAGE,
                "items": [
                    {**ITEM, "candidate_id": str(n), "citation_refs": [{"source": "s", "paragraph": n}]}
                    for n in range(900)
                ],
                "citations": [{"source": "s", "paragraph": n, "citation": {"text": "t" * 100}} for n in range(900)],
            },
            "items",
        ),
    ],
)
async def test_a_large_result_of_a_graph_tool_is_cut_with_its_losses_counted(settings, services, name, result, lost):
    async with offering(settings, services, **{name: Fake(result)}) as client:
        answer = await client.call_tool(name, {"context": "c", **SAMPLES[name][0]})
    value, text = answer.structured_content, text_of(answer)
    assert tokens(json.dumps(value, ensure_ascii=False, separators=(",", ":"))) <= RESULT_TOKENS
    assert tokens(text) <= RESULT_TOKENS
    assert value["reduced"]["omitted"][lost] > 0
    assert json.loads(text)["reduced"] == value["reduced"]
    key = {"query": "matches", "resolve": "candidates", "assemble_evidence": "items"}.get(name)
    if key:
        whole = result if isinstance(result, list) else result[key]
        assert len(value[key]) + value["reduced"]["omitted"][lost] == len(whole)
        assert value[key] == whole[: len(value[key])]
    if name == "assemble_evidence":
        assert len(value["items"]) > 100
        assert [entry["paragraph"] for entry in value["citations"]] == list(range(len(value["items"])))


async def test_a_plain_session_needs_no_handshake_state(http):
    async with streamable_http_client(URL, http_client=http) as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        assert [tool.name for tool in (await session.list_tools()).tools] == TOOLS
    answer = await post(http, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert answer.json()["result"]["tools"][0]["name"] == "lookup"


async def test_a_caller_that_leaves_cancels_its_call_and_leaves_a_row(settings, services):
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def slow(_call, _context, _arguments):
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            cancelled.set()

    body = json.dumps(call({"context": "c", "cue": "x"}, "resolve")).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "root_path": "",
        "http_version": "1.1",
        "scheme": "http",
        "client": None,
        "server": ("localhost", 80),
        "headers": [
            (name.encode(), value.encode()) for name, value in {**HEADERS, "content-length": str(len(body))}.items()
        ],
    }

    async def receive():
        if messages:
            return messages.pop()
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(_message):
        pass

    box = Toolbox(lookup=services.lookup, recorder=services.recorder, resolve=slow)
    app = route_over(settings, box)
    async with app.lifespan(), asyncio.timeout(10):
        await app(scope, receive, send)
        await cancelled.wait()
    assert (await last_row(services))["status"] == "CANCELLED"
