"""A budget for the whole result over REST, MCP and the command line."""

from __future__ import annotations

import httpx
import jsonschema_rs
import msgspec
import pytest

from expansion_support import tokens
from mcp_support import application, connected, in_one_task, text_of
from scenario_support import doc, prose, put
from strata.app import create_app
from strata.mcp.cap import RESULT_TOKENS
from strata.platform.logging import setup_logging

pytestmark = pytest.mark.database
OLD = doc(
    "audit.md", "---\nrel-depends-on: vault.md\n---\n# Audit\n\n## Retention\n\nAudit logs are kept for 400 days.\n"
)
NEW = doc("audit-2.md", "---\nrel-supersedes: audit.md\n---\n# Longer\n\nEntries now stay seven years.\n")
VAULT = doc("vault.md", "# Vault\n\nTapes rest in the north tower.\n")
QUESTION = "How long are audit logs kept?"


@pytest.fixture
async def linked(services):
    await put(services, OLD, NEW, VAULT, context="h")
    return services


@pytest.fixture
async def rest(settings, linked):
    setup_logging(settings)
    transport = httpx.ASGITransport(create_app(settings, services=linked), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://strata.test") as opened:
        yield opened


@pytest.fixture
async def client(settings, linked):
    async with application(settings, linked) as http, in_one_task(connected(http)) as opened:
        yield opened


def same(one, other):
    return {**one, "lookupId": None} == {**other, "lookupId": None}


async def test_a_body_and_query_parameters_give_the_same_bytes_within_the_budget(rest):
    posted = await rest.post("/api/v1/lookup", json={"query": QUESTION, "context": "h", "budget": 900})
    got = await rest.get("/api/v1/lookup", params={"q": QUESTION, "context": "h", "budget": 900})
    assert posted.status_code == got.status_code == 200, posted.text
    assert posted.headers["content-type"] == "application/json"
    for answer in (posted, got):
        assert tokens(answer.text) == answer.json()["budget"]["used"] <= 900
    assert same(posted.json(), got.json())
    blocks = posted.json()["blocks"]
    assert [block["kind"] for block in blocks] == ["row", "related", "related", "note"]
    assert blocks[0]["supersededBy"] == ["audit-2.md"]


async def test_markdown_is_sent_as_such(rest):
    answer = await rest.get(
        "/api/v1/lookup", params={"q": QUESTION, "context": "h", "budget": 900, "format": "markdown"}
    )
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert answer.text.startswith("### 1.")
    assert "superseded by `audit-2.md`" in answer.text
    assert tokens(answer.text) <= 900


@pytest.mark.parametrize(
    ("parameters", "pointer"),
    [({"budget": "100"}, "?budget"), ({"budget": "x"}, "?budget"), ({"budget": "500", "maxBytes": "9"}, "?budget")],
)
async def test_a_bad_budget_is_refused_at_its_parameter(rest, parameters, pointer):
    answer = await rest.get("/api/v1/lookup", params={"q": QUESTION, "context": "h", **parameters})
    assert answer.status_code == 400
    assert answer.json()["pointer"] == pointer


async def test_the_document_describes_both_results(rest):
    described = (await rest.get("/v3/api-docs")).json()
    assert "BudgetedResult" in described["components"]["schemas"]
    schema = described["paths"]["/api/v1/lookup"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert "BudgetedResult" in msgspec.json.encode(schema).decode()


async def test_an_agent_gets_both_forms_within_its_budget(client, rest):
    tool = (await client.list_tools()).tools[0]
    result = await client.call_tool("lookup", {"query": QUESTION, "context": "h", "budget": 900})
    assert not result.is_error, text_of(result)
    found = result.structured_content
    jsonschema_rs.validate(tool.output_schema, found)
    assert tokens(msgspec.json.encode(found).decode()) == found["budget"]["used"] <= 900
    assert tokens(text_of(result)) <= 900
    assert "> ## Retention" in text_of(result)
    over_rest = await rest.post("/api/v1/lookup", json={"query": QUESTION, "context": "h", "budget": 900})
    assert same(found, over_rest.json())


async def test_an_agent_that_asks_for_json_gets_it_as_text_too(client):
    result = await client.call_tool("lookup", {"query": QUESTION, "context": "h", "budget": 900, "format": "json"})
    assert msgspec.json.decode(text_of(result)) == result.structured_content


async def test_a_larger_budget_is_what_clients_take(client, linked):
    await put(linked, *(doc(f"many/{n}.md", f"# Part {n}\n\n{prose(f'vacation{n}', 300)}\n") for n in range(20)))
    result = await client.call_tool(
        "lookup", {"query": "vacation entry states what the clerk wrote", "context": "handbook", "budget": 90_000}
    )
    assert result.structured_content["budget"]["limit"] == RESULT_TOKENS
    assert tokens(text_of(result)) <= RESULT_TOKENS


@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [({"budget": 10}, "/budget"), ({"budget": 900, "max_tokens": 5}, "/budget"), ({"budget": "900"}, "/budget")],
)
async def test_an_agent_is_told_which_argument_is_wrong(client, arguments, pointer):
    result = await client.call_tool("lookup", {"query": QUESTION, "context": "h", **arguments})
    assert result.is_error
    assert result.structured_content["pointer"] == pointer


async def test_a_fetch_of_what_was_left_out_brings_it(client, linked):
    await put(linked, doc("long.md", f"# Long\n\n## Part\n\n{prose('walrus', 20)}\n"), context="w")
    result = (
        await client.call_tool("lookup", {"query": "What did the walrus entry state?", "context": "w", "budget": 400})
    ).structured_content
    call = result["omitted"]["next"]
    assert call["tool"] == "fetch"
    fetched = await client.call_tool(call["tool"], call["arguments"])
    assert not fetched.is_error, text_of(fetched)
    assert "walrus entry 20" in fetched.structured_content["text"]
