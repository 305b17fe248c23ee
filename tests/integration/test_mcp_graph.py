"""The tools of facts and passages over the services themselves, with the official client."""

import hashlib
import json

import jsonschema_rs
import pytest

from assembly_support import header, stream, triples
from mcp_support import (
    TOOLS,
    application,
    call,
    compact,
    connected,
    failure,
    in_one_task,
    last_row,
    load,
    post,
    text_of,
)
from strata.mcp.cap import RESULT_TOKENS, tokens
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose
from strata.settings import load_settings
from wire.accounting import check, read

pytestmark = pytest.mark.database


@pytest.fixture
async def http(settings, services):
    async with application(settings, services) as opened:
        await load(opened)
        yield opened


@pytest.fixture
async def client(http):
    async with in_one_task(connected(http)) as opened:
        yield opened


async def schemas_of(client):
    return {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}


async def answered(client, name, **arguments):
    """Call a tool that must answer as its schema says, the same in both forms; return the structured result."""
    result = await client.call_tool(name, {"context": "kb", **arguments})
    assert not result.is_error, text_of(result)
    value, body = result.structured_content, json.loads(text_of(result))
    jsonschema_rs.validate((await schemas_of(client))[name], value)
    assert body["status"] == "ok"
    told = {key: entry for key, entry in value.items() if key not in ("found", "reduced")}
    if name == "resolve":
        told = told["candidates"]
    elif "missing" in told:
        told = None
    assert body["result"] == told
    assert body.get("missing") == value.get("missing")
    assert body.get("reduced") == value.get("reduced")
    return value


FACT = ("Harrow Light", "keeper", "Ida Brandt")


def said(association):
    return association["subject"], association["label"], association["object"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_name_is_resolved_followed_and_cited_by_one_client(http, mode):
    async with connected(http, mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        resolved = await answered(client, "resolve", cue="harow light")
        assert resolved["found"] is True
        assert resolved["candidates"][0]["name"] == "Harrow Light"
        name = resolved["candidates"][0]["name"]

        facts = await answered(client, "query", subject=[name], label="keeper")
        assert facts["total"] == 2
        assert [said(match) for match in facts["matches"]] == [FACT, ("Harrow Light", "keeper", "Olaf Lund")]
        (stated,) = facts["matches"][0]["attributions"]
        assert (stated["source"], stated["paragraph"]) == ("a.md", 0)

        near = await answered(client, "activate", origins=name)
        assert ("Ida Brandt", "came from", "the north") in [said(match["association"]) for match in near["matches"]]
        assert near["matches"][0]["path"][0] == name

        hits = await answered(client, "search_passages", query="keeper of Harrow Light", limit=1)
        (hit,) = hits["hits"]
        assert (hit["source"], hit["paragraph"]) == ("a.md", 0)
        assert hits["plan"]["contexts"][0]["lanes"]["bm25"] == {"ran": True}

        cited = await answered(client, "cite_passage", source=hit["source"], paragraph=hit["paragraph"])
        assert cited["found"] is True
        assert cited["text"] == hit["text"] == "Ida Brandt is the keeper of Harrow Light."


async def test_a_page_of_facts_goes_on_from_the_last_one(client, services):
    first = await answered(client, "query", limit=2)
    last = first["matches"][-1]
    after = {"weight": last["weight"], **dict(zip(("subject", "label", "object"), said(last), strict=True))}
    second = await answered(client, "query", limit=2, after=after)
    assert (await last_row(services))["arguments"]["after"] == {"weight": 1.0}
    seen = [said(match) for page in (first, second) for match in page["matches"]]
    assert len(seen) == len(set(seen)) == first["total"] == 3
    counted = await answered(client, "query", limit=0)
    assert (counted["found"], counted["total"], counted["matches"]) == (True, 3, [])


async def test_what_is_not_there_is_an_answer_of_every_tool(client, services):
    for name, arguments in (
        ("resolve", {"cue": "Zanzibar"}),
        ("query", {"subject": "Zanzibar"}),
        ("activate", {"origins": ["Zanzibar"]}),
        ("search_passages", {"query": "zanzibar"}),
        ("search_passages", {"query": ""}),
        ("cite_passage", {"source": "zanzibar.md", "paragraph": 0}),
        ("cite_passage", {"source": "a.md", "paragraph": 2}),
        ("cite_passage", {"source": "", "paragraph": 2**53}),
        ("assemble_evidence", {"origins": "Zanzibar", "text_fallback_query": "zanzibar"}),
        ("assemble_evidence", {"origins": []}),
    ):
        value = await answered(client, name, **arguments)
        assert not value.get("found"), (name, arguments)
        assert not value.get("items"), (name, arguments)
        row = await last_row(services)
        assert (row["tool_name"], row["surface"], row["status"]) == (name, "MCP", "NOT_FOUND"), (name, arguments)


@pytest.mark.parametrize(
    ("source", "paragraph", "missing"), [("c.md", 0, "source"), ("a.md", 2, "paragraph"), ("é\n\t🎉", 0, "source")]
)
async def test_a_citation_that_is_not_there_says_what_is_missing(client, source, paragraph, missing):
    assert await answered(client, "cite_passage", source=source, paragraph=paragraph) == {
        "found": False,
        "text": None,
        "missing": missing,
    }


async def test_a_package_keeps_its_budget_and_is_the_same_each_time(client, http):
    asked = {"origins": ["Harrow Light"], "labels": "keeper", "text_fallback_query": "Who keeps Harrow Light?"}
    whole = await answered(client, "assemble_evidence", **asked)
    assert FACT in triples(whole)
    assert {entry["source"] for entry in whole["citations"]} >= {"a.md", "b.md"}
    assert whole["omitted_total"] == 0
    asked["budget"] = {"max_items": 3, "max_tokens": 400, "reserve_tokens": 50}
    message = call({"context": "kb", **asked}, "assemble_evidence")
    texts = [(await post(http, message)).json()["result"]["content"][0]["text"] for _ in range(2)]
    packages = [compact(json.loads(text)["result"]) for text in texts]
    assert packages[0] == packages[1]
    package = read(texts[0])["result"]
    check(package)
    assert package["budget"]["limits"] == {"max_items": 3, "max_bytes": 65536, "max_tokens": 350}
    assert package["omitted_total"] > 0
    over_rest = await http.post("/contexts/kb/evidence", json=asked)
    assert read(over_rest.text)["result"] == package
    value = await answered(client, "assemble_evidence", **asked)
    assert compact(value) == packages[0]


async def test_additions_to_a_package_are_told_in_it(client):
    value = await answered(
        client,
        "assemble_evidence",
        origins="Harow Light",
        anchor_floor=0.3,
        revision=True,
        contradictions="partial",
        contexts=["kb"],
        object_facts=True,
        share_text=True,
        extracts=True,
        numeric_conflicts=True,
        rerank={"model": None},
        include_communities=True,
        since=0,
        until=4_000_000_000,
    )
    assert value["anchors"][0]["name"] == "Harrow Light"
    assert value["revision"][0]["context"] == "kb"
    assert value["items"]


HUGE = 10**30
LONG = "x" * 5000
BAD = {
    "assemble_evidence": [
        ({"origins": "a" * 1025}, "invalid_request", "/origins/0"),
        ({"origins": ["a"] * 1001}, "over_limit", None),
        ({"origins": "a", "labels": [7]}, "invalid_request", "/labels/0"),
        ({"origins": "a", "budget": {"max_items": 1001}}, "over_limit", "/budget/max_items"),
        ({"origins": "a", "budget": {"max_items": 2**53}}, "over_limit", "/budget/max_items"),
        ({"origins": "a", "budget": {"max_bytes": HUGE}}, "invalid_request", "/budget/max_bytes"),
        ({"origins": "a", "budget": "all"}, "invalid_request", "/budget"),
        ({"origins": "a", "since": HUGE}, "invalid_request", "/since"),
        ({"origins": "a", "until": -HUGE}, "invalid_request", "/until"),
        ({"origins": "a", "search_limit": 201}, "over_limit", "/search_limit"),
        ({"origins": "a", "activate_limit": 1001}, "over_limit", "/activate_limit"),
        ({"origins": "a", "resolve_limit": -1}, "invalid_request", "/resolve_limit"),
        ({"origins": "a", "dice_floor": 1.5}, "invalid_request", "/dice_floor"),
        ({"origins": "a", "contradictions": "all"}, "invalid_request", "/contradictions"),
        ({"origins": "a", "tokenizer": "no-such-model"}, "invalid_request", "/tokenizer"),
        ({"origins": "a", "groups": ["nowhere"]}, "group_not_found", "/groups/0"),
        ({"origins": "a", "text_fallback_query": LONG}, "invalid_request", "/text_fallback_query"),
        ({"origins": "a", "text_fallback_query": "b\0"}, "invalid_request", "/text_fallback_query"),
    ],
    "resolve": [
        ({}, "invalid_request", "/cue"),
        ({"cue": ""}, "invalid_request", "/cue"),
        ({"cue": "é" * 600}, "invalid_request", "/cue"),
        ({"cue": ["a"]}, "invalid_request", "/cue"),
        ({"cue": "a", "limit": 1001}, "over_limit", "/limit"),
        ({"cue": "a", "limit": HUGE}, "invalid_request", "/limit"),
        ({"cue": "a", "semantic_floor": -0.1}, "invalid_request", "/semantic_floor"),
    ],
    "query": [
        ({"subject": {"name": "a"}}, "invalid_request", "/subject"),
        ({"subject": ["a"] * 1001}, "over_limit", "/subject"),
        ({"object": ["a", None]}, "invalid_request", "/object/1"),
        ({"limit": 1.5}, "invalid_request", "/limit"),
        ({"limit": 1001}, "over_limit", "/limit"),
        ({"after": {"weight": 1.0}}, "invalid_request", "/after"),
        ({"after": {"weight": "1", "subject": "a", "label": "b", "object": "c"}}, "invalid_request", "/after/weight"),
        ({"since": HUGE}, "invalid_request", "/since"),
        ({"subjects": "a"}, "invalid_request", "/subjects"),
    ],
    "activate": [
        ({}, "invalid_request", "/origins"),
        ({"origins": ["a"] * 1001}, "over_limit", "/origins"),
        ({"origins": "a", "decay": "slow"}, "invalid_request", "/decay"),
        ({"origins": "a", "limit": 1001}, "over_limit", "/limit"),
        ({"origins": "a", "until": HUGE}, "invalid_request", "/until"),
    ],
    "search_passages": [
        ({"query": LONG}, "invalid_request", "/query"),
        ({"query": 7}, "invalid_request", "/query"),
        ({"query": "a", "limit": 1001}, "over_limit", "/limit"),
        ({"query": "a", "tags": "hr"}, "invalid_request", "/tags"),
        ({"query": "a", "tags": ["t"] * 1001}, "over_limit", "/tags"),
        ({"query": "a", "since": 2**53}, "invalid_request", "/since"),
        ({"query": "a", "semantic_floor": 2}, "invalid_request", "/semantic_floor"),
    ],
    "cite_passage": [
        ({"source": "a.md"}, "invalid_request", "/paragraph"),
        ({"source": "a.md", "paragraph": -1}, "invalid_request", "/paragraph"),
        ({"source": "a.md", "paragraph": HUGE}, "invalid_request", "/paragraph"),
        ({"source": "a.md", "paragraph": True}, "invalid_request", "/paragraph"),
        ({"source": 3, "paragraph": 0}, "invalid_request", "/source"),
        ({"source": "a\0.md", "paragraph": 0}, "invalid_request", "/source"),
    ],
}
GOOD = {
    "assemble_evidence": {"origins": "Harrow Light"},
    "resolve": {"cue": "Harrow Light"},
    "query": {"subject": "Harrow Light"},
    "activate": {"origins": "Harrow Light"},
    "search_passages": {"query": "keeper"},
    "cite_passage": {"source": "a.md", "paragraph": 0},
}


@pytest.mark.parametrize("name", BAD)
async def test_hostile_arguments_of_a_tool_are_refused_by_name_and_leave_a_row(client, services, name):
    for arguments, code, pointer in BAD[name]:
        problem = failure(await client.call_tool(name, {"context": "kb", **arguments}), code)
        assert problem["pointer"] == pointer, (arguments, problem)
        row = await last_row(services)
        assert (row["tool_name"], row["surface"], row["status"], row["error_type"]) == (name, "MCP", "ERROR", code)
    for reference, code in (("nowhere", "context_not_found"), ("", None), ("🎉" * 400, None), (7, "invalid_request")):
        problem = failure(
            await client.call_tool(name, {**GOOD[name], "context": reference}), code or "context_not_found"
        )
        assert problem["pointer"] == "/context", (reference, problem)
    async with services.database.work(DEFAULT_TENANT) as connection:
        assert await connection.fetchval("SELECT count(*) FROM tool_invocation WHERE surface = 'MCP'") == 4 + len(
            BAD[name]
        )
    assert (await answered(client, name, **GOOD[name]))["items" if name == "assemble_evidence" else "found"]


@pytest.mark.parametrize("name", GOOD)
async def test_texts_of_every_script_are_answered(client, name):
    for text in (
        "é" * 500,
        "語" * 300,
        "🎉👩‍👩‍👧",
        "שלום عالم",
        "a\r\n\tb",
        "'; DROP TABLE concept; --",
        "%_\\",
        "\u202eevil",
        "{}",
    ):
        arguments = {key: text if isinstance(value, str) else value for key, value in GOOD[name].items()}
        result = await client.call_tool(name, {"context": "kb", **arguments})
        assert not result.is_error, (text, text_of(result))


async def test_a_large_package_is_cut_with_its_losses_counted(http, client):
    lines = []
    for number in range(60):
        text = " ".join(f"entry{number} beacon {word} stood on the quay" for word in range(60))
        fact = {"subject": "Beacon", "label": f"rel{number}", "object": f"thing {number}", "weight": 1.0}
        lines += [header(f"big/{number}.md"), {"passage": text}, {**fact, "paragraph": 0}]
    await load(http, stream(*lines))
    asked = {
        "origins": "Beacon",
        "text_fallback_query": "beacon stood on the quay",
        "budget": {"max_items": 1000, "max_bytes": 1_048_576, "max_tokens": 1_000_000},
        "search_limit": 200,
        "activate_limit": 200,
        "revision": True,
    }
    result = await client.call_tool("assemble_evidence", {"context": "kb", **asked})
    value, text = result.structured_content, text_of(result)
    jsonschema_rs.validate((await schemas_of(client))["assemble_evidence"], value)
    assert tokens(compact(value)) <= RESULT_TOKENS
    assert tokens(text) <= RESULT_TOKENS
    whole = (await http.post("/contexts/kb/evidence", json=asked)).json()["result"]
    assert tokens(compact(whole)) > 2 * RESULT_TOKENS
    lost = value["reduced"]["omitted"]
    for part in ("items", "citations"):
        assert lost[part] == len(whole[part]) - len(value[part]) > 0
        assert [entry for entry in whole[part] if entry in value[part]] == value[part]
    cited = {(ref["source"], ref["paragraph"]) for item in value["items"] for ref in item["citation_refs"]}
    assert {(entry["source"], entry["paragraph"]) for entry in value["citations"]} == cited
    assert value["budget"] == whole["budget"]
    assert value["revision"] == whole["revision"]
    assert tokens(compact(value)) > RESULT_TOKENS // 2
    for name, count in lost.items():
        assert f"{name}: {count}" in value["reduced"]["message"]
    assert json.loads(text)["reduced"] == value["reduced"]


async def test_large_answers_of_the_other_tools_fit_with_their_losses_counted(http, client):
    lines = [header("long.md"), {"passage": "harbour " * 30_000}]
    lines += [
        {"subject": f"harbour {number:04} {'é' * 200}", "label": "near", "object": "the sea", "weight": 1.0}
        for number in range(600)
    ]
    for number in range(40):
        lines += [header(f"many/{number}.md"), {"subject": "Quay", "label": "near", "object": "town", "weight": 1.0}]
    await load(http, stream(*lines))
    for name, arguments, part, whole in (
        ("query", {"limit": 1000, "object": "the sea"}, "matches", 600),
        ("activate", {"origins": "the sea", "limit": 600}, "matches", 600),
        ("resolve", {"cue": "harbour", "dice_floor": 0, "limit": 1000}, "candidates", None),
        ("search_passages", {"query": "harbour", "limit": 5}, "texts", None),
        ("cite_passage", {"source": "long.md", "paragraph": 0}, "texts", None),
    ):
        value = await answered(client, name, **arguments)
        assert tokens(compact(value)) <= RESULT_TOKENS, name
        assert "reduced" in value, name
        lost = value["reduced"]["omitted"]
        assert lost[part] > 0, name
        if whole:
            assert len(value[part]) + lost[part] == whole, name
            assert value["total"] == whole
        if name == "cite_passage":
            assert value["text"].startswith("harbour harbour")
            assert len(value["text"]) > 70_000
    assert "reduced" not in await answered(client, "query", subject="Quay")


async def test_every_call_leaves_one_row_with_the_tool_and_its_ids(http, services):
    for name, arguments in GOOD.items():
        message = call({"context": "kb", **arguments}, name, sessionId="s-1", agentId="a-1")
        answer = await post(http, message, **{"x-request-id": f"r-{name}"})
        assert answer.json()["result"]["isError"] is False
        row = await last_row(services)
        assert (row["tool_name"], row["surface"], row["status"], row["found"]) == (name, "MCP", "SUCCESS", True)
        assert (row["session_id"], row["agent_id"], row["request_id"]) == ("s-1", "a-1", f"r-{name}")
        assert row["trace_id"].strip("0")
        assert row["evidence_count"] > 0
        assert row["arguments"]["context"] == "kb"
        if name != "cite_passage":
            assert row["arguments"]["query"] == next(iter(arguments.values()))
    async with services.database.work(DEFAULT_TENANT) as connection:
        count = await connection.fetchval("SELECT count(*) FROM tool_invocation WHERE surface = 'MCP'")
    assert count == len(GOOD)


SECRET = "Harrow Light zebrafish"
ASKED = {
    "lookup": {"query": SECRET},
    "assemble_evidence": {"origins": [SECRET], "text_fallback_query": SECRET},
    "resolve": {"cue": SECRET},
    "query": {"subject": SECRET, "after": {"weight": 1.0, "subject": SECRET, "label": SECRET, "object": SECRET}},
    "activate": {"origins": SECRET},
    "search_passages": {"query": SECRET},
}


@pytest.mark.parametrize("kept", ["text", "hash", "none"])
async def test_a_row_keeps_of_a_question_what_the_setting_allows(home, dsn, database, kept):
    settings = load_settings({}, home=str(home), database_url=dsn, embeddings="none", trace_query=kept)
    services = compose(settings, database)
    async with application(settings, services) as http:
        await load(http)
        for name, arguments in ASKED.items():
            for extra, outcome in (({}, False), ({"misspelt": 1}, True)):
                answer = await post(http, call({"context": "kb", **arguments, **extra}, name))
                assert answer.json()["result"]["isError"] is outcome, answer.text
                async with database.work(DEFAULT_TENANT) as connection:
                    whole = await connection.fetchval(
                        "SELECT row_to_json(row)::text FROM tool_invocation row ORDER BY id DESC LIMIT 1"
                    )
                row = json.loads(whole)
                assert row["tool_name"] == name
                asked = row["arguments"].get("query")
                if kept == "text":
                    assert outcome or asked == SECRET
                else:
                    assert "zebrafish" not in whole, (name, extra)
                    digest = {"sha256": hashlib.sha256(SECRET.encode()).hexdigest(), "chars": len(SECRET)}
                    assert asked in (
                        [digest, None] if kept == "hash" and outcome else [digest if kept == "hash" else None]
                    )
    await services.close()
