"""Recorded calls of the public MCP server, sent to ours: same tool, same arguments, same package in the text."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from wire.accounting import check, read
from wire.comparing import differences, settled
from wire.seeds import Wire, fact

pytestmark = pytest.mark.database
FOLDER = Path(__file__).parents[1] / "data" / "wire" / "mcp"
FILES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
NOT_SERVED = {"audit_consolidation_tool_schema": "a model is offered few tools; audits are calls of the contexts API"}
HEADERS = {"accept": "application/json, text/event-stream"}


@pytest.fixture
async def http(server_url):
    async with httpx.AsyncClient(base_url=server_url, timeout=60) as client:
        yield client


async def rpc(http, method, params):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = await http.post("/mcp", json=message, headers=HEADERS)
    assert response.status_code == 200, response.text
    return response.json()["result"]


async def call(http, recorded):
    tool = recorded["route"].removeprefix("tools/call ")
    result = await rpc(http, "tools/call", {"name": tool, "arguments": recorded["request"]})
    (block,) = result["content"]
    assert block["type"] == "text"
    return result, block["text"]


def fits(recorded, ours, path=""):
    """Assert that whoever fills in the recorded schema fills in ours."""
    assert ours["type"] == recorded["type"], path
    assert ours.get("minimum") == recorded.get("minimum") or "maximum" in ours, path
    assert ours.get("items") == recorded.get("items"), path
    assert sorted(ours.get("required", ())) == sorted(recorded.get("required", ())), path
    for name, schema in recorded.get("properties", {}).items():
        assert name in ours["properties"], f"{path}/{name}"
        assert ours["properties"][name]["description"], f"{path}/{name}"
        fits(schema, ours["properties"][name], f"{path}/{name}")


async def test_the_tool_takes_the_recorded_arguments(http):
    (recorded,) = FILES["assemble_evidence_tool_schema"]["response"]["tools"]
    tools = {tool["name"]: tool for tool in (await rpc(http, "tools/list", {}))["tools"]}
    assert recorded["name"] in tools
    fits(recorded["inputSchema"], tools[recorded["name"]]["inputSchema"])
    assert tools[recorded["name"]]["description"] != recorded["description"]


async def test_a_recorded_call_is_answered_as_recorded(http):
    recorded = FILES["assemble_evidence_call"]
    await Wire(http).context(recorded["request"]["context"], [fact("a", "rel", "b")])
    result, text = await call(http, recorded)
    (block,) = recorded["response"]["content"]
    ours = read(text)
    check(ours["result"])
    assert differences(settled(json.loads(block["text"])), settled(ours)) == []
    assert not result.get("isError")
    assert result["structuredContent"]["items"] == json.loads(text)["result"]["items"]


async def test_a_missing_argument_is_told_in_the_result(http):
    recorded = FILES["assemble_evidence_tool_error"]
    await Wire(http).context(recorded["request"]["context"], [fact("a", "rel", "b")])
    result, text = await call(http, recorded)
    assert result["isError"] is recorded["response"]["isError"] is True
    assert "origins" in text


def test_every_recording_has_a_test_or_a_reason():
    tested = {"assemble_evidence_call", "assemble_evidence_tool_error", "assemble_evidence_tool_schema"}
    assert tested | set(NOT_SERVED) == set(FILES)
