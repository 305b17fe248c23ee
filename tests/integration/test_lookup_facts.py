"""Facts of the graph as evidence of a lookup: found, cited, filtered, budgeted, explained, and gone when deleted."""

from __future__ import annotations

import hashlib
import json
import re
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from assembly_support import fact_blocks, said, serving, tokens
from scenario_support import CALLER, doc, put
from strata.errors import StrataError
from strata.knowledge.graph_service import GraphService
from strata.lookup.schemas import LookupRequest
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose
from strata.traces.schemas import Stage
from wire.accounting import compact, read
from wire.seeds import fact

pytestmark = pytest.mark.database

QUESTION = "Who is the keeper of Harrow Light?"
NOW = "Ida Brandt keeps the light now.\n\nThe keeper of Harrow Light is Ida Brandt."
THEN = "Before her, Olaf Lund was keeper of Harrow Light."
VOLATILE = ("lookupId", "traceId", "tookMs")


@pytest.fixture
async def api(settings, services):
    async with serving(settings, services) as opened:
        yield opened


async def lights(api, name="kb"):
    """A light with rival keepers, each said by a source."""
    path = await api.context(name)
    body = {
        "passages": {"log/now.md": NOW, "log/then.md": THEN, "far.md": "Nothing of note."},
        "tags": {"log/now.md": ["new"], "log/then.md": ["old"]},
        "dates": {"log/now.md": 1_700_000_000, "log/then.md": 1_000_000_000},
    }
    await api.send("POST", f"{path}/sources", body)
    facts = [
        fact("Harrow Light", "keeper", "Ida Brandt", 1.0, source="log/now.md", paragraph=1),
        fact("Harrow Light", "keeper", "Ida Brandt", 3.0, source="far.md"),
        fact("Harrow Light", "keeper", "Olaf Lund", 1.0, source="log/then.md", paragraph=0),
        fact("Olaf Lund", "born in", "Harrow", -1.0, source="log/then.md"),
    ]
    await api.send("POST", f"{path}/associations", facts)
    return path


async def stored(api, path, citation):
    """The bytes that a citation names."""
    texts = (await api.send("POST", f"{path}/sources/lookup", {"sources": [citation["source"]]}))["passages"]
    return texts[citation["source"]].encode()[citation["startByte"] : citation["endByte"]]


def stable(result):
    """A result without what differs from call to call."""
    return {name: value for name, value in result.items() if name not in VOLATILE}


async def test_a_fact_is_a_block_with_its_sources_and_the_bytes_that_state_it(api):
    path = await lights(api)
    result = await api.lookup(QUESTION, content=True)
    by_object = {said(block)[2]: block for block in fact_blocks(result)}
    ida, olaf = by_object["Ida Brandt"], by_object["Olaf Lund"]
    assert said(ida) == ("Harrow Light", "keeper", "Ida Brandt")
    assert (ida["fact"]["weight"], ida["fact"]["count"]) == (2.0, 2)
    assert ida["fact"]["sources"] == ["far.md", "log/now.md"]
    assert ida["fact"]["contradicts"] == [olaf["sourceKey"]]
    assert olaf["fact"]["contradicts"] == [ida["sourceKey"]]
    assert (ida["content"], ida["title"], ida["breadcrumb"]) == (
        "Harrow Light — keeper — Ida Brandt",
        "Harrow Light",
        ["keeper"],
    )
    for block, text in ((ida, NOW.split("\n\n")[1]), (olaf, THEN)):
        (citation,) = block["fact"]["citations"]
        data = await stored(api, path, citation)
        assert data.decode() == text
        assert citation["sha256"] == hashlib.sha256(data).hexdigest()
        assert (block["layer"], block["layers"]) == ("L1", ["L1"])
        assert block["sourceKeyBasis"] == "EXPLICIT"
        assert [item["lane"] for item in block["laneRanks"]] == ["graph"]
        rank = block["laneRanks"][0]["rank"]
        assert block["hitReasons"] == [f"L1_GRAPH:{rank}", "L1_GRAPH_NAMED"]
    assert olaf["citation"] == olaf["fact"]["citations"][0]


async def test_what_a_source_says_somewhere_is_not_cited_by_a_paragraph_of_another_fact(api):
    """A source asserts one fact in its first paragraph, and another one nowhere in particular."""
    path = await api.context("kb")
    await api.send("POST", f"{path}/sources", {"passages": {"a.md": "Ida keeps the lamp."}})
    facts = [
        fact("Ida", "keeps", "lamp", source="a.md", paragraph=0),
        fact("Ida", "keeps", "bell", source="a.md"),
        fact("Ida", "keeps", "rope"),
    ]
    await api.send("POST", f"{path}/associations", facts)
    blocks = {said(block)[2]: block for block in fact_blocks(await api.lookup("What does Ida keeps?"))}
    assert {name: len(block["fact"]["citations"]) for name, block in blocks.items()} == {
        "lamp": 1,
        "bell": 0,
        "rope": 0,
    }
    assert blocks["bell"]["citation"] is None
    assert blocks["bell"]["fact"]["sources"] == ["a.md"]
    assert (blocks["rope"]["fact"]["sources"], blocks["rope"]["source"]) == ([], "")


async def test_a_fact_that_its_sources_deny_says_so(api):
    await lights(api)
    (block,) = [one for one in fact_blocks(await api.lookup("Olaf Lund Harrow", topK=20)) if said(one)[1] == "born in"]
    assert block["fact"]["weight"] == -1.0
    assert block["contentPreview"] == "Olaf Lund — born in — Harrow (denied)"


async def test_facts_near_what_is_named_are_told_apart_from_those_named(api):
    await api.context("kb", [fact("Ida", "wrote", "ledger"), fact("ledger", "lies in", "archive")])
    blocks = {said(block): block for block in fact_blocks(await api.lookup("What wrote Ida?", topK=20))}
    named, near = blocks["Ida", "wrote", "ledger"], blocks["ledger", "lies in", "archive"]
    assert "L1_GRAPH_NAMED" in named["hitReasons"]
    assert near["hitReasons"] == ["L1_GRAPH:1"]
    assert [item["lane"] for item in near["laneRanks"]] == ["graph_near"]
    assert named["rank"] < near["rank"]


async def test_the_graph_lane_is_in_the_trace_and_can_be_left_out(api, services):
    await lights(api)
    result = await api.lookup(QUESTION)
    row = await services.invocations.show(DEFAULT_TENANT, result["lookupId"])
    lane = row.retrieval_details["lanes"]["graph"]
    assert lane["ran"] is True
    assert lane["candidates"] >= 2
    keys = [block["sourceKey"] for block in row.retrieval_details["evidenceBlocks"]]
    assert keys == [block["sourceKey"] for block in result["evidenceBlocks"]]
    for body in ({"lanes": ["lexical"]}, {"lanes": ["lexical", "hints"]}, {"layers": ["L0"]}):
        without = await api.lookup(QUESTION, **body)
        assert fact_blocks(without) == []
        row = await services.invocations.show(DEFAULT_TENANT, without["lookupId"])
        assert (row.retrieval_details["lanes"]["graph"]["ran"], row.retrieval_details["lanes"]["graph"]["reason"]) == (
            False,
            "not requested",
        )
    alone = await api.lookup(QUESTION, lanes=["graph"])
    assert alone["evidenceBlocks"] == fact_blocks(alone) != []
    assert alone["found"] is True


async def test_without_a_graph_an_answer_is_as_it_was_before(api, services):
    await put(services, doc("a.md", f"# Lights\n\n{NOW}"), doc("b.md", THEN), context="plain")
    for query in (QUESTION, "zzz", "?!"):
        for body in ({}, {"format": "markdown"}, {"budget": {"maxTokens": 700}}):
            whole = await api.lookup(query, "plain", **body)
            expands = "budget" in body
            lanes = ["hints", "lexical", "vector", *(["hop"] if expands else [])]
            without = await api.lookup(query, "plain", **body, lanes=lanes)
            assert json.dumps(stable(whole)) == json.dumps(stable(without))
            row = await services.invocations.show(DEFAULT_TENANT, whole["lookupId"])
            assert "graph" not in row.retrieval_details["lanes"]
            assert '"fact"' not in json.dumps(whole)


@pytest.mark.parametrize(
    ("filters", "weights"),
    [
        ({"tags": ["new"]}, {"Ida Brandt": (1.0, ["log/now.md"])}),
        ({"tags": ["old"]}, {"Olaf Lund": (1.0, ["log/then.md"])}),
        ({"sources": ["far.md"]}, {"Ida Brandt": (3.0, ["far.md"])}),
        ({"sources": ["log/*"]}, {"Ida Brandt": (1.0, ["log/now.md"]), "Olaf Lund": (1.0, ["log/then.md"])}),
        ({"sources": ["none"]}, {}),
        ({"since": "2020-01-01"}, {"Ida Brandt": (1.0, ["log/now.md"])}),
        ({"until": "2010-01-01"}, {"Olaf Lund": (1.0, ["log/then.md"])}),
        ({"tags": ["new", "old"]}, {}),
    ],
)
async def test_filters_leave_of_a_fact_what_the_sources_that_pass_say(api, filters, weights):
    await lights(api)
    result = await api.lookup(QUESTION, filters=filters, topK=20)
    keepers = [block for block in fact_blocks(result) if said(block)[1] == "keeper"]
    assert {said(one)[2]: (one["fact"]["weight"], one["fact"]["sources"]) for one in keepers} == weights
    allowed = {source for _, sources in weights.values() for source in sources}
    for block in fact_blocks(result):
        assert {block["source"], *block["fact"]["sources"]} <= allowed
        assert {citation["source"] for citation in block["fact"]["citations"]} <= allowed


async def test_a_category_holds_for_facts(api, services, dsn):
    path = await lights(api)
    await put(services, doc("hr.md", "Ida Brandt has a badge.", category="hr"), context="kb")
    await api.send("POST", f"{path}/associations", [fact("Ida Brandt", "has", "badge", source="hr.md", paragraph=0)])
    result = await api.lookup("Does Ida Brandt has a badge?", category="hr", topK=1)
    (block,) = result["evidenceBlocks"]
    assert block["source"] == "hr.md"
    alone = await api.lookup("Does Ida Brandt has a badge?", category="hr", lanes=["graph"], topK=20)
    assert [said(block) for block in fact_blocks(alone)] == [("Ida Brandt", "has", "badge")]
    assert fact_blocks(await api.lookup(QUESTION, category="it", lanes=["graph"])) == []


async def test_a_filter_that_keeps_one_fact_of_a_thousand_finds_it(api):
    path = await api.context("kb")
    texts = {"common.md": "All.", "rare.md": "One."}
    await api.send("POST", f"{path}/sources", {"passages": texts, "tags": {"rare.md": ["rare"]}})
    facts = [fact("Hub", "holds", f"thing {number:03}", 5.0, source="common.md") for number in range(900)]
    await api.send("POST", f"{path}/associations", [*facts, fact("Hub", "holds", "pearl", 0.1, source="rare.md")])
    blocks = fact_blocks(await api.lookup("What holds the Hub?", filters={"tags": ["rare"]}))
    assert [said(block) for block in blocks] == [("Hub", "holds", "pearl")]


async def test_facts_of_several_contexts_take_turns(api):
    for name in ("one", "two"):
        facts = [fact("Hub", "holds", f"{name} {number:02}") for number in range(30)]
        await api.context(name, facts)
    blocks = fact_blocks(await api.lookup("What holds the Hub?", ["one", "two"], topK=6))
    assert [said(block)[2].split()[0] for block in blocks] == ["one", "two"] * 3


async def test_a_budget_counts_facts_as_they_are_sent(api):
    path = await lights(api)
    more = [fact("Harrow Light", "visited by", f"guest 客 {number}", source="log/now.md") for number in range(60)]
    await api.send("POST", f"{path}/associations", more)
    kept = []
    for limit in (0, 1, 150, 400, 800, 2_000, 9_000):
        body = {"query": QUESTION, "context": "kb", "topK": 60, "budget": {"maxTokens": limit}}
        result = read((await api.http.post("/api/v1/lookup", json=body)).text)
        blocks = compact(result["evidenceBlocks"])
        assert result["budget"]["tokensUsed"] == tokens(blocks)
        assert result["budget"]["tokensUsed"] <= max(limit, 1)
        assert result["budget"]["bytesUsed"] == len(blocks.encode())
        assert set(result["omitted"]["byReason"]) <= {"BUDGET_EXCEEDED", "BELOW_TOP_K", "DUPLICATE_SOURCE"}
        kept.append(len(fact_blocks(result)))
    assert kept == sorted(kept)
    assert kept[0] == 0
    assert kept[-1] > 15


async def test_the_markdown_of_a_fact_is_a_quoted_line_with_where_it_stands(api):
    await lights(api)
    result = await api.lookup(QUESTION, lanes=["graph"], format="markdown", topK=1)
    (block,) = result["evidenceBlocks"]
    citation = block["citation"]
    place = f"{block['source']} r{citation['sourceVersion']} bytes {citation['startByte']}-{citation['endByte']}"
    head, _, where, _, quote = result["markdown"].splitlines()[:5]
    assert head == "### 1. Harrow Light › keeper"
    assert where == f"`{place}`"
    assert quote == f"> {block['content'] or block['contentPreview']}"


async def test_the_markdown_of_a_fact_without_a_source_names_no_place(api):
    await api.context("kb", [fact("Ida", "keeps", "lamp")])
    result = await api.lookup("Ida keeps what?", format="markdown")
    assert result["markdown"].startswith("### 1. Ida › keeps\n\n> Ida — keeps — lamp\n")


async def test_why_answers_for_a_fact_and_for_its_source(api, services):
    await lights(api)
    result = await api.lookup(QUESTION, lanes=["graph"])
    for block in fact_blocks(result):
        for target in (block["sourceKey"], block["source"]):
            why = await services.invocations.why(DEFAULT_TENANT, result["lookupId"], target)
            assert why.is_selected is True
            assert why.stage is Stage.SELECTED
    cut = await api.lookup(QUESTION, lanes=["graph"], topK=1)
    (kept,) = fact_blocks(cut)
    (lost,) = [block for block in fact_blocks(result) if said(block) != said(kept) and said(block)[1] == "keeper"]
    why = await services.invocations.why(DEFAULT_TENANT, cut["lookupId"], lost["sourceKey"])
    assert (why.is_selected, why.stage, why.reason) == (False, Stage.TOP_K, "BELOW_TOP_K")
    nothing = await services.invocations.why(DEFAULT_TENANT, cut["lookupId"], "fact:a | b | c")
    assert nothing.is_selected is False


async def test_the_facts_of_a_deleted_source_are_gone_the_next_moment(api):
    path = await lights(api)
    assert {said(block)[2] for block in fact_blocks(await api.lookup(QUESTION, topK=20))} > {"Ida Brandt", "Olaf Lund"}
    await api.send("POST", f"{path}/sources/retract", {"source": "log/then.md"})
    result = await api.lookup(QUESTION, topK=20)
    assert {said(block)[2] for block in fact_blocks(result)} == {"Ida Brandt"}
    assert "Olaf" not in json.dumps(result["evidenceBlocks"])
    response = await api.http.delete("/api/v1/contexts/kb/sources/log%2Fnow.md")
    assert response.status_code < 300, response.text
    (block,) = fact_blocks(await api.lookup(QUESTION, topK=20))
    assert (block["fact"]["sources"], block["fact"]["citations"], block["fact"]["weight"]) == (["far.md"], [], 3.0)


async def test_a_fact_is_answered_the_moment_it_is_stored_or_taken_back(api):
    path = await api.context("kb", [fact("Ida", "keeps", "lamp")])
    triple = {"subject": "Ida", "label": "keeps", "object": "bell"}
    for _ in range(2):
        await api.send("POST", f"{path}/associations", [{**triple, "weight": 1.0}])
        assert {said(block)[2] for block in fact_blocks(await api.lookup("Ida keeps what?"))} == {"lamp", "bell"}
        await api.send("POST", f"{path}/associations/retract", triple)
        assert {said(block)[2] for block in fact_blocks(await api.lookup("Ida keeps what?"))} == {"lamp"}


@pytest.fixture
async def impatient(settings, services):
    """Services whose statements may take 0.3 seconds."""
    opened = Database(settings.database_url, msgspec.structs.replace(settings, statement_timeout_seconds=0.3))
    await opened.open()
    composed = compose(settings, opened)
    yield composed
    await composed.close()
    await opened.close()


async def test_passages_answer_where_the_graph_takes_too_long(api, impatient, monkeypatch):
    await lights(api)

    async def slow(_self, connection, *_args, **_options):
        await connection.execute("SELECT pg_sleep(5)")

    monkeypatch.setattr(GraphService, "reading", slow)
    result = await impatient.lookup.lookup(DEFAULT_TENANT, LookupRequest(query=QUESTION, context="kb"), CALLER)
    assert {block.source for block in result.evidence_blocks} == {"log/now.md", "log/then.md"}
    assert result.completeness_hint == "DEGRADED"
    row = await impatient.invocations.show(DEFAULT_TENANT, result.lookup_id)
    lane = row.retrieval_details["lanes"]["graph"]
    assert (row.status, lane["ran"], lane["reason"]) == ("DEGRADED", False, "statement_timeout")


async def test_another_tenant_sees_nothing(api, services, dsn):
    await lights(api)
    other = uuid4()
    owner = await asyncpg.connect(dsn)
    await owner.execute("INSERT INTO tenant (tenant_id, name) VALUES ($1, $2)", other, str(other))
    await owner.close()
    request = LookupRequest(query=QUESTION, context="kb")
    with pytest.raises(StrataError) as missing:
        await services.lookup.lookup(other, request, CALLER)
    assert missing.value.code == "context_not_found"
    await services.contexts.create(other, "kb")
    result = await services.lookup.lookup(other, request, CALLER)
    assert (result.found, result.evidence_blocks) == (False, [])
    assert "Ida" not in msgspec.json.encode(result).decode()


HOSTILE = [
    "🎉 party 🐦",
    "مرحبا بالعالم",
    "\u202eevil\u202c name",
    "e\u0301\u0301 accents",
    "`code` **bold** [link](http://x) <b>tag</b>",
    "line\nbreak\n### 9. Forged",
    "a | b | c",
    "fact:x | y | z",
    "x" * 1_024,
    "語" * 341,
    '"quoted" \\ {json} \t tab',
    "'; DROP TABLE concept; --",
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
async def test_a_hostile_name_goes_through_every_surface_as_it_is(api, name):
    path = await api.context("kb", [fact(name, "is near", "the quay"), fact("the quay", "holds", name)])
    (first, _) = (await api.send("POST", f"{path}/query", {}))["matches"]
    assert name in {first["subject"], first["object"]}
    question = f"What is near {name}?" if len(name) < 500 else "What holds the quay?"
    result = await api.lookup(question, format="markdown", topK=20)
    found = {said(block) for block in fact_blocks(result)}
    assert ("the quay", "holds", name) in found
    lines = result["markdown"].splitlines()
    headings = [line for line in lines if line.startswith("#")]
    assert [line.split(" ")[1] for line in headings] == [f"{at}." for at in range(1, len(headings) + 1)]
    assert len(headings) == len(result["evidenceBlocks"])
    over_mcp = await api.tool("lookup", query=question, context="kb", topK=20)
    assert {said(block) for block in fact_blocks(over_mcp["structuredContent"])} == found
    package = await api.evidence("kb", name)
    assert ("the quay", "holds", name) in {
        (item["association"]["subject"], item["association"]["label"], item["association"]["object"])
        for item in package["items"]
    }
    tool = await api.tool("assemble_evidence", context="kb", origins=[name])
    assert tool["isError"] is False
    assert tool["structuredContent"]["budget"] == package["budget"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("a\\u0000b", "invalid_argument"), ("\\ud800", "invalid_argument"), ("x" * 1_025, "invalid_argument")],
)
async def test_a_name_that_cannot_be_kept_is_refused(api, name, code):
    path = await api.context("kb", [fact("Ida", "keeps", "lamp")])
    for field in ("subject", "label", "object"):
        names = {"subject": "s", "label": "l", "object": "o", field: name}
        body = ", ".join(f'"{key}": "{value}"' for key, value in names.items())
        refusal = await api.refused(f"{path}/associations", f'[{{{body}, "weight": 1}}]'.encode())
        assert refusal[:2] == (400, code)
    assert len(fact_blocks(await api.lookup("Ida keeps what?", topK=20))) == 1


@pytest.mark.parametrize(
    "query", ["\u202eIda\u202c keeps", "IDA　KEEPS what", "ＩＤＡ keeps?", "ida-keeps", "🎉 ida keeps"]
)
async def test_names_are_found_in_odd_questions(api, query):
    await api.context("kb", [fact("Ida", "keeps", "lamp")])
    assert [said(block) for block in fact_blocks(await api.lookup(query))] == [("Ida", "keeps", "lamp")]


async def test_a_part_of_a_word_is_no_name(api):
    await api.context("kb", [fact("Ida", "keeps", "lamp"), fact("art", "near", "craft")])
    assert fact_blocks(await api.lookup("Cheap vidalia party lamps")) == []


async def test_the_same_question_gets_the_same_bytes(api):
    await lights(api)
    first, second = [json.dumps(stable(await api.lookup(QUESTION, format="markdown", topK=20))) for _ in range(2)]
    assert re.sub(r"[0-9a-f-]{36}", "", first) == re.sub(r"[0-9a-f-]{36}", "", second)
