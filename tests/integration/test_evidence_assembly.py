"""Evidence packages over the wire: every addition of ours, the row that each call leaves, and the reranker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from assembly_support import passages, serving, triples
from strata.assembly.schemas import EvidenceRequest
from strata.assembly.service import AssemblyCaller
from strata.errors import StrataError
from strata.lanes.lexical.index import LexicalIndex
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose
from strata.text.counting import counter_for
from strata.traces.schemas import Surface
from wire.accounting import compact, size
from wire.seeds import fact

pytestmark = pytest.mark.database

IDA = "The keeper of Harrow Light is Ida Brandt, who came from the north in a hard winter and stayed."
OLAF = "Before her the keeper of Harrow Light was Olaf Lund. He wrote little of the weather."
VISITS = "Visitors may climb the tower of Harrow Light on Sundays."
ASKED = {"labels": ["keeper"], "text_fallback_query": "keeper of Harrow Light"}
KEYS = ["items", "citations", "budget", "omitted", "omitted_total", "omitted_by_reason", "plan"]
ROW = "SELECT * FROM tool_invocation WHERE tool_name = 'assemble_evidence' ORDER BY id DESC LIMIT 1"


@pytest.fixture
async def api(settings, services):
    async with serving(settings, services) as opened:
        yield opened


async def lights(api, name="kb"):
    """A light with its keepers, and the paragraphs that say so, of two dates and under two tags."""
    path = await api.context(name)
    body = {
        "passages": {"now.md": f"{IDA}\n\n{VISITS}", "then.md": OLAF},
        "tags": {"now.md": ["new"], "then.md": ["old", "log"]},
        "dates": {"now.md": 2_000, "then.md": 1_000},
        "sections": {"now.md": [{"paragraph": 0, "section": "People"}]},
        "locators": {"then.md": [{"paragraph": 0, "locator": {"kind": "page", "value": "7"}}]},
    }
    await api.send("POST", f"{path}/sources", body)
    facts = [
        fact("Harrow Light", "keeper", "Ida Brandt", source="now.md", paragraph=0),
        fact("Harrow Light", "keeper", "Olaf Lund", source="then.md", paragraph=0),
        fact("Ida Brandt", "lives in", "Harrow", source="now.md"),
        fact("Gull Rock", "seen from", "Harrow Light", source="then.md"),
    ]
    await api.send("POST", f"{path}/associations", facts)
    return path


async def last_row(dsn, query=ROW):
    owner = await asyncpg.connect(dsn)
    try:
        return await owner.fetchrow(query)
    finally:
        await owner.close()


async def test_without_the_added_fields_a_package_has_the_public_form(api):
    await lights(api)
    package = await api.evidence("kb", "Harrow Light", **ASKED)
    assert list(package) == KEYS
    assert list(package["budget"]) == ["items_used", "bytes_used", "tokens_used", "limits"]
    wanted = ["candidate_id", "kind", "fused_rank", "lane_ranks", "citation_refs", "corroboration", "contradicts"]
    for item in package["items"]:
        assert set(item) <= {*wanted, "bytes", "estimated_tokens", item["kind"]}
    assert all(set(plan) <= {"ran", "reason", "floor"} for plan in package["plan"]["lanes"].values())
    assert all(list(entry) == ["source", "paragraph", "citation"] for entry in package["citations"])
    assert {entry["source"]: entry["citation"]["locator"] for entry in package["citations"]} == {
        "now.md": None,
        "then.md": {"kind": "page", "value": "7"},
    }


async def test_several_contexts_and_groups_name_the_context_of_everything(api):
    await lights(api, "east")
    await lights(api, "west")
    await api.send("PUT", "/groups/coast", {"contexts": ["west", "east"]})
    alone = await api.evidence("east", "Harrow Light", **ASKED)
    for more in ({"contexts": ["west"]}, {"groups": ["coast"]}, {"contexts": ["west", "east"], "groups": ["coast"]}):
        package = await api.evidence("east", "Harrow Light", **ASKED, **more)
        assert {item["context"] for item in package["items"]} == {"east", "west"}
        assert {entry["context"] for entry in package["citations"]} == {"east", "west"}
        ids = [item["candidate_id"] for item in package["items"]]
        assert len(set(ids)) == len(ids)
        assert all(item["context"] in item["candidate_id"].split("\0") for item in package["items"])
        for item in package["items"]:
            assert {ref["context"] for ref in item["citation_refs"]} <= {item["context"]}
            # Contexts may contradict each other, and agree where they say the same.
            others = {other.split("\0")[-1] for other in item.get("contradicts", ())}
            assert item["kind"] == "passage" or item["association"]["object"] not in others
            assert item.get("passage", {"context": item["context"]})["context"] == item["context"]
        # The same text in both contexts is shown once, and what repeats it is told.
        assert package["omitted_by_reason"] == {"duplicate_passage": 3}
        assert sorted(triples(package)) == sorted(triples(alone) * 2)
    response = await api.http.post("/evidence", json={"origins": ["Harrow Light"], "groups": ["coast"], **ASKED})
    named = response.json()["result"]
    assert {item["context"] for item in named["items"]} == {"east", "west"}
    assert (await api.refused("/evidence", {"origins": []}))[:2] == (400, "invalid_argument")
    assert (await api.refused("/contexts/east/evidence", {"origins": [], "groups": ["no"]}))[:2] == (404, "no_group")
    assert (await api.refused("/contexts/east/evidence", {"origins": [], "contexts": ["no"]}))[:2] == (
        404,
        "no_context",
    )


@pytest.mark.parametrize(
    ("narrowed", "keepers", "sources"),
    [
        ({"tags": ["new"]}, {"Ida Brandt", "Harrow"}, {"now.md"}),
        ({"tags": ["log", "none"]}, {"Olaf Lund", "Harrow Light"}, {"then.md"}),
        ({"tags": ["none"]}, set(), set()),
        ({"since": 1_001}, {"Ida Brandt", "Harrow"}, {"now.md"}),
        ({"until": 1_001}, {"Olaf Lund", "Harrow Light"}, {"then.md"}),
        ({"since": 1_000, "until": 2_000}, {"Olaf Lund", "Harrow Light"}, {"then.md"}),
        ({"since": 2_000, "tags": ["old"]}, set(), set()),
    ],
)
async def test_tags_and_dates_hold_for_facts_as_for_passages(api, narrowed, keepers, sources):
    await lights(api)
    package = await api.evidence("kb", "Harrow Light", **ASKED, **narrowed)
    assert {object_ for _, _, object_ in triples(package)} == keepers
    assert {source for source, _ in passages(package)} == sources
    assert {entry["source"] for entry in package["citations"]} <= sources
    for item in package["items"]:
        assert set(item.get("corroboration", {"sources": []})["sources"]) <= sources


async def test_every_anchor_above_a_floor_is_reported_and_a_lookalike_is_told(api):
    facts = [fact("京都市", "has", "金閣寺"), fact("東京都", "has", "皇居"), fact("京都府", "borders", "奈良県")]
    await api.context("kb", facts)
    package = await api.evidence("kb", "京都", anchor_floor=0.5)
    anchors = package["anchors"]
    assert [(one["cue"], one["kind"], one["ambiguous"]) for one in anchors] == [("京都", "containment", True)] * 3
    assert {one["name"] for one in anchors} == {"京都市", "東京都", "京都府"}
    assert {round(one["score"], 2) for one in anchors} == {0.67}
    assert len(triples(package)) == 3
    strict = await api.evidence("kb", "京都", anchor_floor=0.7)
    assert (strict["anchors"], triples(strict)) == ([], [])
    assert strict["plan"]["lanes"]["activate"]["reason"]
    sure = await api.evidence("kb", ["東京都", "nobody"], anchor_floor=0.5)
    first = sure["anchors"][0]
    assert first == {"cue": "東京都", "name": "東京都", "kind": "exact", "score": 1.0, "ambiguous": False}
    # A narrow limit hides no rival.
    narrow = await api.evidence("kb", "京都", anchor_floor=0.5, resolve_limit=1)
    assert [one["ambiguous"] for one in narrow["anchors"]] == [True]
    silent = await api.evidence("kb", "京都")
    assert "anchors" not in silent
    assert len(triples(silent)) == 1


async def test_facts_that_end_at_an_anchor_are_taken_where_they_are_asked_for(api):
    await lights(api)
    asked = {"labels": ["seen from"], "activate_limit": 0, "search_limit": 0}
    assert triples(await api.evidence("kb", "Harrow Light", **asked)) == []
    package = await api.evidence("kb", "Harrow Light", **asked, object_facts=True)
    assert triples(package) == [("Gull Rock", "seen from", "Harrow Light")]
    assert package["items"][0]["lane_ranks"] == [{"lane": "graph_query", "rank": 1}]


async def test_a_paragraph_that_is_found_and_cited_is_paid_for_once(api):
    await lights(api)
    plain = await api.evidence("kb", "Harrow Light", **ASKED)
    shared = await api.evidence("kb", "Harrow Light", **ASKED, share_text=True)
    assert [item["candidate_id"] for item in shared["items"]] == [item["candidate_id"] for item in plain["items"]]
    by_id = {item["candidate_id"]: item for item in shared["items"]}
    assert len(shared["citations"]) == 2
    saved = 0
    for whole, entry in zip(plain["citations"], shared["citations"], strict=True):
        holder = by_id[entry["citation"]["text_in"]]["passage"]
        assert (holder["source"], holder["paragraph"]) == (entry["source"], entry["paragraph"])
        assert holder["text"] == whole["citation"]["text"]
        assert {"section", "locator", "source"} <= set(entry["citation"])
        saved += size(compact(whole)) - size(compact(entry))
    assert plain["budget"]["bytes_used"] - shared["budget"]["bytes_used"] == saved > 0
    # Found alone, or cited alone, a paragraph is as it was.
    alone = await api.evidence("kb", "Harrow Light", share_text=True, search_limit=0)
    assert alone == await api.evidence("kb", "Harrow Light", search_limit=0)


async def test_rivals_are_admitted_in_part_where_the_relation_takes_one_object(api):
    """``keeper`` has one object for most subjects, ``visited`` has many: only the first makes rivals."""
    facts = [fact(f"Light {number}", "keeper", f"Keeper {number}") for number in range(3)]
    facts += [fact("Light 0", "keeper", f"Rival {number}") for number in range(3)]
    facts += [fact("Ida", "visited", f"Light {number}") for number in range(3)]
    facts += [fact("Olaf", "visited", f"Light {number}") for number in range(2)]
    await api.context("kb", facts)
    asked = {"search_limit": 0, "activate_decay": 0.0, "labels": ["keeper", "visited"]}
    whole = await api.evidence("kb", ["Light 0", "Ida"], **asked)
    assert whole["plan"]["selection"]["contradiction_groups"] == 2
    partial = await api.evidence("kb", ["Light 0", "Ida"], **asked, contradictions="partial")
    assert partial["plan"]["selection"]["contradiction_groups"] == 1
    rivals = [item for item in partial["items"] if "contradicts" in item]
    assert {item["association"]["label"] for item in rivals} == {"keeper"}
    assert [len(item["contradicts"]) for item in rivals] == [3] * 4
    tight = {**asked, "labels": ["keeper"], "activate_limit": 0, "budget": {"max_items": 2}}
    nothing = await api.evidence("kb", "Light 0", **tight)
    assert (nothing["items"], nothing["omitted_by_reason"]) == ([], {"contradiction_group_exceeds_budget": 4})
    some = await api.evidence("kb", "Light 0", **tight, contradictions="partial")
    assert len(some["items"]) == 2
    assert some["omitted_by_reason"] == {"contradiction_group_partial": 2}
    # Those that found no room are named by those that did.
    left_out = {entry["candidate_id"] for entry in some["omitted"]}
    assert all(left_out < set(item["contradicts"]) for item in some["items"])


async def test_near_duplicates_that_differ_in_a_number_are_kept_as_a_conflict(api):
    path = await api.context("kb")
    text = "The lamp of Harrow Light turns every {} seconds and is seen from twenty miles away in clear weather."
    texts = {"a.md": text.format(30), "b.md": text.format(45), "c.md": f"{text.format(30)} "}
    await api.send("POST", f"{path}/sources", {"passages": texts})
    asked = {"text_fallback_query": "lamp of Harrow Light turns"}
    plain = await api.evidence("kb", **asked)
    assert (len(plain["items"]), plain["omitted_by_reason"]) == (1, {"duplicate_passage": 2})
    package = await api.evidence("kb", **asked, numeric_conflicts=True)
    first, second = package["items"]
    assert {first["passage"]["source"], second["passage"]["source"]} in ({"a.md", "b.md"}, {"b.md", "c.md"})
    assert first["conflicts_with"] == [second["candidate_id"]]
    assert second["conflicts_with"] == [first["candidate_id"]]
    assert package["omitted_by_reason"] == {"duplicate_passage": 1}


SENTENCES = [
    "Das Leuchtfeuer wurde 1871 gebaut.",
    "Der Wärter heißt Jürgen Größer.",
    "灯台の番人は高瀬である。",
    "Niemand zählte die Möwen 🐦.",
    "Im Winter kam Öl mit dem Boot.",
]


async def test_an_extract_is_exactly_the_bytes_that_its_offsets_name(api):
    path = await api.context("kb")
    filler = [f"Eintrag {number} über Wind, Wellen und Wolken am Abend." for number in range(80)]
    text = " ".join(part for at, one in enumerate(SENTENCES) for part in (*filler[16 * at : 16 * at + 16], one))
    await api.send("POST", f"{path}/sources", {"passages": {"log.md": text}})
    (stored,) = (await api.send("POST", f"{path}/sources/lookup", {"sources": ["log.md"]}))["passages"].values()
    asked = {"text_fallback_query": "Wärter Jürgen Öl Boot 高瀬"}
    for limit in (150, 250, 400, 700):
        package = await api.evidence("kb", **asked, extracts=True, budget={"max_tokens": limit})
        plain = await api.evidence("kb", **asked, budget={"max_tokens": limit})
        assert (plain["items"], plain["omitted_by_reason"]) == ([], {"budget_exceeded": 1})
        (item,) = package["items"]
        assert item["extract"]["of_bytes"] == size(stored)
        spans = [stored.encode()[start:end].decode() for start, end in item["extract"]["spans"]]
        assert spans == [part for part in re.split(" ?… ?", item["passage"]["text"]) if part]
        assert package["omitted_total"] == 0
        assert "Jürgen Größer" in item["passage"]["text"]
    whole = await api.evidence("kb", **asked, extracts=True)
    assert "extract" not in whole["items"][0]
    assert whole["items"][0]["passage"]["text"] == stored
    # Nothing of it says a word of the question that fits: nothing is shown.
    none = await api.evidence("kb", **asked, extracts=True, budget={"max_tokens": 90})
    assert (none["items"], none["omitted_by_reason"]) == ([], {"budget_exceeded": 1})


async def test_a_real_tokenizer_counts_the_package_as_it_is_sent(api):
    await lights(api)
    text = await api.evidence_text("kb", "Harrow Light", **ASKED, tokenizer="gpt-4o")
    package = json.loads(text)["result"]
    counted = package["budget"]["counted"]
    arrays = [text[text.index('"items":') + 8 : text.index(',"citations":')]]
    arrays.append(text[text.index('"citations":') + 12 : text.index(',"budget":')])
    assert json.loads(arrays[0]) == package["items"]
    assert counted == {"model": "gpt-4o", "tokens": counter_for("gpt-4o").count(arrays)}
    plain = await api.evidence("kb", "Harrow Light", **ASKED)
    assert plain["budget"] == {name: value for name, value in package["budget"].items() if name != "counted"}
    for name in ("claude-opus", "", "gpt-40", "\N{GRINNING FACE}"):
        status, code, error = await api.refused("/contexts/kb/evidence", {"origins": [], "tokenizer": name})
        assert (status, code) == (400, "invalid_argument")
        assert "gpt-4o" in error
        assert "/tokenizer" in error


async def test_the_revision_tells_which_state_answered(api):
    path = await lights(api)
    asked = {**ASKED, "revision": True}
    first = await api.evidence("kb", "Harrow Light", **asked)
    assert [one["context"] for one in first["revision"]] == ["kb"]
    lanes = first["plan"]["lanes"]
    assert lanes["resolve"]["candidates"] == 1
    assert lanes["query"]["candidates"] == 2
    assert lanes["passages"]["candidates"] == 3
    assert "candidates" not in lanes["communities"]
    assert (await api.evidence("kb", "Harrow Light", **asked))["revision"] == first["revision"]
    await api.send("POST", f"{path}/associations", [fact("a", "l", "b")])
    second = await api.evidence("kb", "Harrow Light", **asked)
    moved = {key for key, value in second["revision"][0].items() if value != first["revision"][0][key]}
    assert moved == {"graph"}
    await api.send("POST", f"{path}/sources", {"passages": {"more.md": "More."}})
    third = await api.evidence("kb", "Harrow Light", **asked)
    assert third["revision"][0]["passages"] > second["revision"][0]["passages"]


async def test_communities_answer_once_they_are_built(api, services):
    await lights(api)
    missing = await api.evidence("kb", "Harrow Light", include_communities=True)
    lane = missing["plan"]["lanes"]["communities"]
    assert lane["ran"] is False
    assert "strata communities build kb" in lane["reason"]
    built = await services.community_builder.build(DEFAULT_TENANT, "kb")
    assert (built.derived, built.communities >= 1) == ("kb::communities", True)
    asked = {"text_fallback_query": "Harrow Light keeper", "include_communities": True}
    package = await api.evidence("kb", "Harrow Light", **asked)
    assert package["plan"]["lanes"]["communities"] == {"ran": True}
    found = [item for item in package["items"] if item["kind"] == "community"]
    assert found
    for item in found:
        members = {member["name"] for member in item["community"]["members"]}
        assert members & {"Harrow Light", "Ida Brandt"}
        assert all(name in item["community"]["text"] for name in members)
        assert item["lane_ranks"][0]["lane"] == "community"
        assert item["citation_refs"] == []
    again = await services.community_builder.build(DEFAULT_TENANT, "kb")
    assert msgspec.structs.asdict(again) == msgspec.structs.asdict(built)
    assert await api.evidence("kb", "Harrow Light", **asked) == package


async def test_many_long_cues_are_a_legal_request(api):
    """A thousand cues are longer than a search reads: it reads their beginning."""
    await lights(api)
    cues = [f"{number} {'long name ' * 20}" for number in range(999)]
    package = await api.evidence("kb", ["Harrow Light", *cues], labels=[f"label {number}" for number in range(1_000)])
    assert ("Harrow Light", "keeper", "Ida Brandt") in triples(package)
    assert package["plan"]["lanes"]["passages"]["ran"] is True
    too_long = await api.refused("/contexts/kb/evidence", {"origins": [], "text_fallback_query": "x" * 4_097})
    assert too_long[:2] == (400, "invalid_argument")
    assert too_long[2].startswith("/text_fallback_query")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ('{"origins": ["🎉 مرحبا e\u0301"]}'.encode(), 200, None),
        (b'{"origins": "", "labels": ""}', 200, None),
        (b'{"origins": [], "text_fallback_query": ""}', 200, None),
        (b'{"origins": ["x"], "activate_decay": 7.5}', 200, None),
        (b'{"origins": ["x"], "activate_decay": -1, "dice_floor": 0, "resolve_limit": 0}', 200, None),
        (b"{}", 422, "malformed_request"),
        (b'{"origins": null}', 422, "malformed_request"),
        (b'{"origins": [7]}', 422, "malformed_request"),
        (b'{"origins": [], "anchor_floor": 1.5}', 422, "malformed_request"),
        (b'{"origins": [], "contradictions": "some"}', 422, "malformed_request"),
        (b'{"origins": [], "search_limit": 201}', 400, "over_limit"),
        (b'{"origins": [], "since": 999999999999999}', 400, "invalid_argument"),
        (b'{"origins": [], "budget": {"max_bytes": 1048577}}', 400, "over_limit"),
        (b"[]", 422, "malformed_request"),
    ],
)
async def test_odd_requests_are_answered_or_refused_and_each_leaves_its_row(api, dsn, body, status, code):
    await lights(api)
    response = await api.http.post("/contexts/kb/evidence", content=body, headers={"content-type": "application/json"})
    answer = response.json()
    assert (response.status_code, answer.get("code")) == (status, code), answer
    last = await last_row(dsn, "SELECT * FROM tool_invocation ORDER BY id DESC LIMIT 1")
    assert last["tool_name"] == "assemble_evidence"
    assert last["status"] in ({"ERROR"} if code else {"SUCCESS", "NOT_FOUND"})
    assert bool(last["error_type"]) == bool(code)


@pytest.mark.parametrize("value", ["\\ud800", "a\\u0000b"])
@pytest.mark.parametrize("field", ["origins", "labels", "tags", "contexts", "text_fallback_query", "tokenizer"])
async def test_half_a_character_and_nul_are_refused_wherever_they_stand(api, field, value):
    await api.context("kb")
    body = json.dumps({"origins": [], field: ["?"] if field in {"labels", "tags", "contexts"} else "?"})
    status, code, error = await api.refused("/contexts/kb/evidence", body.replace("?", value).encode())
    assert (status, code) == (400, "invalid_argument")
    assert field in error


async def test_a_name_that_is_too_long_is_pointed_at(api):
    await api.context("kb")
    status, code, error = await api.refused("/contexts/kb/evidence", {"origins": ["ok", "é" * 513]})
    assert (status, code, error.partition(":")[0]) == (400, "invalid_argument", "/origins/1")
    assert (await api.evidence("kb", ["é" * 512]))["items"] == []


async def test_the_row_of_a_package_says_what_became_of_every_candidate(api, dsn):
    await lights(api)
    package = await api.evidence("kb", ["Harrow Light", "Ida Brandt"], **ASKED, search_limit=0, budget={"max_items": 3})
    row = await last_row(
        dsn,
        """
        SELECT status, found, evidence_count, surface, arguments, retrieval_details AS details,
          (SELECT count(*) FROM jsonb_array_elements(retrieval_details->'evidenceBlocks')) AS kept,
          (SELECT array_agg(o->>'reason' ORDER BY o->>'sourceKey')
           FROM jsonb_array_elements(retrieval_details->'omitted') AS o) AS reasons,
          (retrieval_details->'postprocess'->>'raw')::int AS raw
        FROM tool_invocation WHERE tool_name = 'assemble_evidence'
        """,
    )
    assert (row["status"], row["found"], row["surface"]) == ("SUCCESS", True, "REST")
    assert row["kept"] == row["evidence_count"] == len(package["items"])
    assert row["kept"] + len(row["reasons"]) == row["raw"]
    assert package["omitted_total"] == len(row["reasons"]) > 0
    assert set(row["reasons"]) <= {"BUDGET_EXCEEDED", "CONTRADICTION_GROUP_EXCEEDS_BUDGET"}
    arguments, details = json.loads(row["arguments"]), json.loads(row["details"])
    # A limit of zero is a wish, not an absence.
    assert arguments["search_limit"] == 0
    asked = f"{ASKED['text_fallback_query']}; labels: {', '.join(ASKED['labels'])}"
    assert (arguments["context"], arguments["query"]) == ("kb", asked)
    assert details["budget"]["tokensUsed"] == package["budget"]["tokens_used"]
    assert details["lanes"]["passages"]["reason"] == package["plan"]["lanes"]["passages"]["reason"]
    keys = [block["sourceKey"] for block in details["evidenceBlocks"]]
    assert keys == [item["candidate_id"].replace("\0", "|") for item in package["items"]]
    assert IDA not in row["details"]


async def test_a_call_that_fails_or_is_cancelled_leaves_its_row(services, api, dsn, monkeypatch):
    await lights(api)
    request = EvidenceRequest(origins=["Harrow Light"], text_fallback_query="keeper")
    caller = AssemblyCaller(Surface.REST)
    entered = asyncio.Event()

    async def held(*_args, **_options):
        entered.set()
        await asyncio.Event().wait()

    async def broken(*_args, **_options):
        raise ZeroDivisionError("secret text")

    async def failed(expected, ref="kb"):
        with pytest.raises(expected):
            await services.assembly.assemble(DEFAULT_TENANT, ref, request, caller)
        row = await last_row(dsn)
        assert row["retrieval_details"] is None
        return row["status"], row["error_type"], row["error_message"]

    assert (await failed(Exception, "nowhere"))[:2] == ("ERROR", "context_not_found")
    monkeypatch.setattr(LexicalIndex, "search", broken)
    assert await failed(ZeroDivisionError) == ("ERROR", "internal_error", "ZeroDivisionError")
    monkeypatch.setattr(LexicalIndex, "search", held)
    running = asyncio.create_task(services.assembly.assemble(DEFAULT_TENANT, "kb", request, caller))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    row = await last_row(dsn)
    assert (row["status"], row["error_type"]) == ("CANCELLED", "cancelled")


async def test_the_same_request_gives_the_same_bytes(api):
    await lights(api)
    await lights(api, "west")
    everything = {
        **ASKED,
        "contexts": ["west"],
        "anchor_floor": 0.2,
        "object_facts": True,
        "share_text": True,
        "contradictions": "partial",
        "numeric_conflicts": True,
        "extracts": True,
        "tokenizer": "gpt-4o",
        "revision": True,
        "budget": {"max_tokens": 900},
    }
    for body in ({}, ASKED, everything):
        answers = {
            re.sub(r'"time":[^,}]+', "", await api.evidence_text("kb", "Harrow Light", **body)) for _ in range(3)
        }
        assert len(answers) == 1


class RerankServer:
    """A reranking service on a socket: ``answer`` makes of the documents what is sent back."""

    def __init__(self):
        self.requests = []
        self.answer = reversed_order

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._tasks = set()
        return self

    async def __aexit__(self, *error):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(re.search(r"content-length: (\d+)", head)[1])
                request = json.loads(await reader.readexactly(length))
                self.requests.append((head, request))
                status, body = self.answer(request["documents"])
                if status is None:
                    await asyncio.sleep(30)
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(content)}\r\n\r\n".encode() + content)
                await writer.drain()


def results(*indexes):
    return {"results": [{"index": index} for index in indexes]}


def reversed_order(documents):
    return 200, results(*reversed(range(len(documents))))


@pytest.fixture
async def reranked(settings, database):
    """An application with a reranker, and that reranker."""
    async with RerankServer() as server:
        own = msgspec.structs.replace(
            settings,
            rerank_url=f"{server.url}/rerank",
            rerank_model="m",
            rerank_api_key="k",
            rerank_timeout_seconds=0.3,
        )
        services = compose(own, database)
        async with serving(own, services) as api:
            await lights(api)
            yield api, server
        await services.close()


async def test_a_reranker_gives_the_order_in_which_candidates_are_admitted(reranked):
    api, server = reranked
    asked = {"labels": [], "activate_limit": 0, "text_fallback_query": "keeper of Harrow Light"}
    plain = await api.evidence("kb", "Harrow Light", **asked)
    assert plain["plan"]["reranker"] == {"configured": True, "ran": False}
    assert server.requests == []
    package = await api.evidence("kb", "Harrow Light", **asked, rerank={})
    assert package["plan"]["reranker"] == {"configured": True, "ran": True, "model": "m"}
    ((head, request),) = server.requests
    assert "authorization: bearer k" in head
    assert (request["query"], request["top_n"]) == (asked["text_fallback_query"], 3)
    assert request["documents"] == [item["passage"]["text"] for item in plain["items"]]
    ids = [item["candidate_id"] for item in plain["items"]]
    # Its order is kept, but for the diversity of sources within a tier; the fused rank is what it was.
    ranks = {item["candidate_id"]: item["fused_rank"] for item in package["items"]}
    assert ranks == {name: rank for rank, name in enumerate(ids, 1)}
    assert [item["candidate_id"] for item in package["items"]] != ids
    first = await api.evidence("kb", "Harrow Light", **asked, rerank={"model": "m"}, budget={"max_items": 1})
    assert [item["candidate_id"] for item in first["items"]] == [ids[-1]]


async def test_facts_are_reranked_by_their_words_with_passages(reranked):
    api, server = reranked
    await api.evidence("kb", "Harrow Light", **ASKED, rerank={})
    documents = server.requests[0][1]["documents"]
    assert {"Harrow Light keeper Ida Brandt", IDA} <= set(documents)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda texts: (200, results(*range(len(texts) - 1))), "invalid_permutation"),
        (lambda texts: (200, results(*range(1, len(texts) + 1))), "invalid_permutation"),
        (lambda texts: (200, results(*([0] * len(texts)))), "invalid_permutation"),
        (lambda _: (200, b"not json"), "provider_error"),
        (lambda _: (400, {"message": "no"}), "provider_error"),
        (lambda _: (503, {}), "provider_error"),
        (lambda _: (None, {}), "timeout"),
    ],
)
async def test_a_reranker_that_fails_leaves_the_order_and_says_why(reranked, dsn, answer, reason):
    api, server = reranked
    plain = await api.evidence("kb", "Harrow Light", **ASKED)
    server.answer = answer
    package = await api.evidence("kb", "Harrow Light", **ASKED, rerank={})
    assert package["plan"]["reranker"] == {"configured": True, "ran": False, "reason": reason}
    assert package["items"] == plain["items"]
    row = await last_row(dsn)
    assert row["status"] == "SUCCESS"
    assert IDA not in str(dict(row))


async def test_a_reranker_is_not_called_where_it_has_nothing_to_say(reranked):
    api, server = reranked
    other = await api.evidence("kb", "Harrow Light", **ASKED, rerank={"model": "another"})
    assert other["plan"]["reranker"] == {"configured": True, "ran": False, "reason": "model_mismatch"}
    one = await api.evidence("kb", [], text_fallback_query="Sundays", search_limit=1, rerank={})
    assert (len(one["items"]), one["plan"]["reranker"]["reason"]) == (1, "empty_pool")
    assert server.requests == []


async def test_a_reranker_that_keeps_failing_is_left_alone_for_a_while(reranked):
    api, server = reranked
    server.answer = lambda _: (503, {})
    reasons = []
    for _ in range(4):
        package = await api.evidence("kb", "Harrow Light", **ASKED, rerank={})
        reasons.append(package["plan"]["reranker"]["reason"])
    assert reasons[0] == "provider_error"
    assert reasons[-1] == "circuit_open"
    assert len(server.requests) == 3


async def test_without_a_reranker_the_wish_for_one_is_answered_too(api):
    await lights(api)
    package = await api.evidence("kb", "Harrow Light", rerank={"model": "m"})
    assert package["plan"]["reranker"] == {"configured": False, "ran": False, "reason": "not_configured"}


async def test_the_lane_of_a_passage_says_by_what_it_was_found(settings, embedding_services):
    async with serving(settings, embedding_services) as api:
        await lights(api)
        await embedding_services.embeddings.run(DEFAULT_TENANT)
        asked = {"text_fallback_query": "keeper of Harrow Light in winter", "semantic_floor": 0.01}
        package = await api.evidence("kb", "Harrow Light", **asked)
        lanes = {item["lane_ranks"][0]["lane"] for item in package["items"] if item["kind"] == "passage"}
        assert lanes <= {"passage_fused", "passage_vector", "passage_bm25"}
        assert "passage_fused" in lanes
        assert package["plan"]["lanes"]["passages"] == {"ran": True, "floor": 0.01}
        for item in package["items"]:
            if item["lane_ranks"][0]["lane"] == "passage_fused":
                assert set(item["passage"]["lanes"]) == {"bm25", "vector"}


async def test_the_context_of_another_tenant_is_not_there(services, api):
    await lights(api)
    row = await services.contexts.get(DEFAULT_TENANT, "kb")
    for ref in ("kb", str(row.id)):
        with pytest.raises(StrataError) as error:
            await services.assembly.assemble(uuid4(), ref, EvidenceRequest(origins="x"), AssemblyCaller(Surface.REST))
        assert error.value.code == "context_not_found"


async def test_a_deleted_source_is_in_no_package_a_moment_later(api):
    path = await lights(api)
    for source, left in (("then.md", {"Ida Brandt", "Harrow"}), ("now.md", set())):
        await api.send("POST", f"{path}/sources/retract", {"source": source})
        package = await api.evidence("kb", "Harrow Light", **ASKED)
        assert {object_ for _, _, object_ in triples(package)} == left
        assert source not in {name for name, _ in passages(package)}
        assert source not in {entry["source"] for entry in package["citations"]}


async def test_what_a_schema_says_of_a_label_counts_more_than_how_it_is_used(api):
    path = await api.context("many")
    facts = [fact("shop", label, value) for label in ("sells", "owner") for value in ("ada", "bob")]
    await api.send("POST", f"{path}/associations", facts)

    async def disagreeing():
        package = await api.evidence("many", "shop", contradictions="partial")
        return {item["association"]["label"] for item in package["items"] if item.get("contradicts")}

    # Every subject has two objects under both labels: by use, neither takes one.
    assert await disagreeing() == set()
    relations = {"owner": {"domain": [], "range": [], "cardinality": "one"}}
    document = {"schema": 1, "mode": "warn", "closed_labels": False, "types": {}, "relations": relations}
    installed = await api.send("PUT", f"{path}/schema", document)
    assert installed["relations"] == relations
    assert await disagreeing() == {"owner"}
    exported = (await api.http.get(f"{path}/export")).text
    assert '"cardinality":"one"' in exported
