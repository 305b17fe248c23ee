"""The tools fetch and explore, through the border, with the official client in the same process."""

import json

import jsonschema_rs
import pytest

from mcp_support import application, compact, connected, failure, in_one_task, last_row, text_of
from scenario_support import doc, prose, put
from strata.mcp.cap import RESULT_TOKENS, tokens
from strata.platform.ids import DEFAULT_TENANT

pytestmark = pytest.mark.database


@pytest.fixture
async def client(settings, services):
    parts = "".join(f"## Part {n}\n\n{prose(f'part{n}', 30)}\n\n" for n in range(60))
    await put(
        services,
        doc("hr/leave.md", "---\nrel-supersedes: old.md\n---\n# Leave\n\n## Vacation\n\nEveryone has 30 days.\n"),
        doc("hr/old.md", "# Old leave\n\nEveryone had 28 days.\n"),
        doc("big.md", f"# Big\n\n{parts}"),
        context="h",
    )
    async with application(settings, services) as http, in_one_task(connected(http)) as opened:
        yield opened


async def test_the_tools_are_taught_and_their_schemas_are_plain(client):
    assert "fetch reads what was left out" in client.instructions
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert "lookup with a budget first" in tools["fetch"].description
    assert "supersession" in tools["explore"].description
    for name, needed in (("fetch", ["context", "source"]), ("explore", ["context", "source"])):
        tool = tools[name]
        assert tool.input_schema["required"] == needed
        assert tool.input_schema["properties"]["source"]["description"]
        for schema in (tool.input_schema, tool.output_schema):
            words = set(json.dumps(schema).replace('"', " ").split())
            assert schema["type"] == "object"
            assert not {"$ref", "anyOf", "oneOf", "allOf", "$defs"} & words
    assert tools["fetch"].input_schema["properties"]["known"]["type"] == ["string", "integer"]


ASKED = [
    ("fetch", {"source": "hr/leave.md/v1#vacation"}),
    ("fetch", {"source": "hr/old.md", "mode": "outline"}),
    ("fetch", {"source": "hr/leave.md", "known": 1}),
    ("fetch", {"source": "hr/leave.md", "known": "1", "section": None}),
    ("fetch", {"source": "big.md"}),
    ("fetch", {"source": "big.md", "mode": "whole", "maxTokens": 20_000}),
    ("fetch", {"source": "big.md", "startByte": 5_000, "maxTokens": 200}),
    ("explore", {"source": "hr/leave.md"}),
    ("explore", {"source": "hr/old.md/v1", "direction": "incoming", "predicates": ["supersedes"], "limit": 1}),
]


@pytest.mark.parametrize(("name", "arguments"), ASKED)
async def test_a_result_has_both_forms_obeys_its_schema_and_leaves_its_row(client, services, name, arguments):
    tool = next(tool for tool in (await client.list_tools()).tools if tool.name == name)
    result = await client.call_tool(name, {"context": "h", **arguments})
    assert not result.is_error, text_of(result)
    value, text = result.structured_content, text_of(result)
    jsonschema_rs.validate(tool.output_schema, value)
    limit = arguments.get("maxTokens", 8_000) if name == "fetch" else RESULT_TOKENS
    assert max(tokens(compact(value)), tokens(text)) <= limit
    if name == "fetch":
        assert value["budget"] == {"limit": limit, "used": max(tokens(compact(value)), tokens(text))}
        assert f"`{value['pin']}" in text
    row = await last_row(services)
    given = {key: item for key, item in arguments.items() if item is not None}
    assert (row["tool_name"], row["surface"], row["status"], row["found"]) == (name, "MCP", "SUCCESS", True)
    assert row["arguments"] == {"context": "h", **given}
    assert row["evidence_count"] == 1


async def test_what_a_budgeted_lookup_leaves_out_is_fetched_by_its_next_call(client):
    asked = {"query": "What does part17 entry 9 state?", "context": "h", "budget": 300}
    found = (await client.call_tool("lookup", asked)).structured_content
    left = found["omitted"]["next"]
    assert left["tool"] == "fetch"
    result = await client.call_tool(left["tool"], left["arguments"])
    assert not result.is_error, text_of(result)
    assert result.structured_content["path"] == "big.md"


async def test_a_document_is_read_to_its_end_by_the_calls_that_results_give(client, services):
    following = {
        "tool": "fetch",
        "arguments": {"context": "h", "source": "big.md", "mode": "whole", "maxTokens": 5_000},
    }
    text = ""
    while following is not None:
        result = (await client.call_tool(following["tool"], following["arguments"])).structured_content
        text, following = text + result["text"], result.get("next")
    whole = await services.sources.read_text(DEFAULT_TENANT, "h", "big.md")
    assert text == whole.text


async def test_a_superseded_document_is_flagged_in_the_first_lines(client):
    result = await client.call_tool("fetch", {"context": "h", "source": "hr/old.md"})
    assert result.structured_content["supersededBy"] == ["hr/leave.md"]
    assert "superseded by `hr/leave.md`" in text_of(result).splitlines()[1]
    card = await client.call_tool("explore", {"context": "h", "source": "hr/old.md"})
    assert "superseded by `hr/leave.md`" in text_of(card).splitlines()[1]
    assert "- supersedes `hr/leave.md` (Leave)" in text_of(card)


MISTAKES = [
    ("fetch", {"source": "hr/leave.md", "context": "nowhere"}, "context_not_found", "/context"),
    ("fetch", {"source": "nowhere.md"}, "source_not_found", None),
    ("fetch", {"source": "hr/leave.md#nope"}, "section_not_found", "/section"),
    ("fetch", {"source": "hr/leave.md#vacation", "section": "leave"}, "invalid_request", "/section"),
    ("fetch", {"source": "hr/leave.md", "mode": "all"}, "invalid_request", "/mode"),
    ("fetch", {"source": "hr/leave.md", "maxTokens": 20_001}, "invalid_request", "/maxTokens"),
    ("fetch", {"source": "hr/leave.md", "startByte": 10_000}, "invalid_request", "/startByte"),
    ("fetch", {"source": "hr/leave.md", "known": "x"}, "invalid_request", "/known"),
    ("fetch", {"source": "hr/leave.md", "anchor": "x"}, "invalid_request", "/anchor"),
    ("fetch", {"source": "hr/leave.md\0"}, "invalid_request", "/source"),
    ("fetch", {}, "invalid_request", "/source"),
    ("explore", {"source": "hr/leave.md", "direction": "up"}, "invalid_request", "/direction"),
    ("explore", {"source": "hr/leave.md", "limit": 101}, "invalid_request", "/limit"),
    ("explore", {"source": "hr/leave.md", "cursor": "x"}, "invalid_request", "/cursor"),
    ("explore", {"source": "hr/leave.md", "predicates": "x"}, "invalid_request", "/predicates"),
    ("explore", {"source": "nowhere.md"}, "source_not_found", None),
]


async def test_a_mistake_is_a_result_that_names_the_argument_and_leaves_its_row(client, services):
    for name, arguments, code, pointer in MISTAKES:
        problem = failure(await client.call_tool(name, {"context": "h", **arguments}), code)
        assert problem["pointer"] == pointer, arguments
        row = await last_row(services)
        assert (row["tool_name"], row["status"], row["error_type"]) == (name, "ERROR", code)
    problem = failure(
        await client.call_tool("fetch", {"context": "h", "source": "hr/leave.md#nope"}), "section_not_found"
    )
    assert problem["anchors"] == ["leave", "vacation"]
    await services.sources.revisions.archive(DEFAULT_TENANT, "h", "hr/old.md")
    for name in ("fetch", "explore"):
        problem = failure(await client.call_tool(name, {"context": "h", "source": "hr/old.md"}), "source_archived")
        assert "hr/old.md/v1" in problem["remedy"]
