"""What users of such systems ran into with facts and budgets, as tests: each names the need, and a small input."""

from __future__ import annotations

import json
import random
import re

import asyncpg
import pytest
from taguru import AsyncTaguru

from assembly_support import fact_blocks, header, said, serving, stream, tokens, triples
from strata.platform.ids import DEFAULT_TENANT
from strata.traces.schemas import Stage
from wire.accounting import compact, read
from wire.seeds import fact

pytestmark = pytest.mark.database

QUERIES = 2_000
BUDGET = 4_000
WORDS = ("harbour", "lamp", "keeper", "tide", "ledger", "winter", "pilot", "beacon", "rope", "signal", "灯台", "naïve")
NAMES = ("Harrow Light", "Ida Brandt", "Olaf Lund", "North Quay", "蔵元", "El Niño", "🎉 party")


@pytest.fixture
async def api(settings, services):
    async with serving(settings, services) as opened:
        yield opened


async def lights(api, name="kb"):
    """A light with its keeper, a rival claim, and the paragraphs that say so."""
    path = await api.context(name)
    texts = {
        "a.md": "Ida Brandt is the keeper of Harrow Light.\n\nShe came from the north.",
        "b.md": "Some hold that Olaf Lund is its keeper.",
    }
    await api.send("POST", f"{path}/sources", {"passages": texts})
    facts = [
        fact("Harrow Light", "keeper", "Ida Brandt", source="a.md", paragraph=0),
        fact("Harrow Light", "keeper", "Olaf Lund", source="b.md", paragraph=0),
        fact("Ida Brandt", "came from", "the north", source="a.md", paragraph=1),
    ]
    await api.send("POST", f"{path}/associations", facts)
    return path


async def graph_of(api, path):
    """The names and the triples of a context."""
    matches = (await api.send("POST", f"{path}/query", {"limit": 1000}))["matches"]
    found = {(match["subject"], match["label"], match["object"]) for match in matches}
    return {name for subject, _, object_ in found for name in (subject, object_)}, found


PARTS = [
    ("Ada Lovelace", "wrote", "Note G"),
    ("Ada Lovelace", "worked with", "Charles Babbage"),
    ("Charles Babbage", "designed", "Analytical Engine"),
    ("Note G", "is about", "Analytical Engine"),
    ("Analytical Engine", "successor of", "Difference Engine"),
]


async def test_a_document_in_five_parts_gives_the_entities_and_relations_of_the_whole(api):
    """B-19."""
    spellings = [str.upper, str.lower, str.title, str.swapcase, str]
    one, many = [header("whole", "whole")], []
    for number, (new, spell) in enumerate(zip(PARTS, spellings, strict=True)):
        one.append(line(*new))
        # Each part says again, in spellings of its own, what the parts before it said.
        again = [line(*map(spell, old)) for old in PARTS[:number]]
        many += [header(f"part-{number}", "parts"), line(*new), *again]
    await api.send("POST", "/import", stream(*one))
    await api.send("POST", "/import", stream(*many))
    whole, parts = await graph_of(api, "/contexts/whole"), await graph_of(api, "/contexts/parts")
    assert whole == parts
    assert len(whole[1]) == len(PARTS)


def line(subject, label, object_):
    """A fact as a line of a stream."""
    return {"subject": subject, "label": label, "object": object_, "weight": 1.0}


async def test_an_ordinal_is_never_taken_for_an_item(api, services):
    """B-22."""
    path = await lights(api)
    package = await api.evidence("kb", "Harrow Light", text_fallback_query="keeper of the light")
    result = await api.lookup("Who is the keeper of Harrow Light?")
    ids = [item["candidate_id"] for item in package["items"]]
    ids += [block["sourceKey"] for block in result["evidenceBlocks"]]
    assert len(ids) > 4
    assert not [name for name in ids if re.fullmatch(r"\W*\d{1,4}\W*", name)]
    for at, item in enumerate(package["items"], 1):
        source = item.get("passage", {"source": "a.md"})["source"]
        assert str(at) not in {source, item["candidate_id"]}
        for ordinal in (str(at), f"[{at}]", f"{at}."):
            cite = await api.refused(f"{path}/citations", {"source": ordinal, "paragraph": 0})
            assert cite[:2] == (404, "no_source")
            over_mcp = await api.tool("cite_passage", context="kb", source=ordinal, paragraph=0)
            assert (over_mcp["isError"], over_mcp["structuredContent"]["found"]) == (False, False)
            why = await services.invocations.why(DEFAULT_TENANT, result["lookupId"], ordinal)
            assert (why.is_selected, why.stage) == (False, Stage.INGEST)
    assert (await api.refused(f"{path}/citations", {"source": 1, "paragraph": 0}))[:2] == (422, "malformed_request")


async def fill(api, chance):
    """Texts long enough and facts many enough that the budget binds."""
    path = await api.context("kb")
    texts = {}
    for number in range(40):
        paragraphs = [
            " ".join(f"{word}{'s' * chance.randint(0, 1)}" for word in chance.choices(WORDS, k=chance.randint(20, 160)))
            for _ in range(3)
        ]
        texts[f"doc {number:02}.md"] = "\n\n".join(paragraphs)
    await api.send("POST", f"{path}/sources", {"passages": texts})
    facts = [
        fact(
            *chance.sample(NAMES, 1), f"{chance.choice(WORDS)} of", f"thing {number}", source=f"doc {number % 40:02}.md"
        )
        for number in range(200)
    ]
    await api.send("POST", f"{path}/associations", facts)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_two_thousand_random_questions_never_overflow_the_budget(api):
    """B-29: every other one a package, every other one a lookup, counted again from the JSON."""
    chance = random.Random(29)
    await fill(api, chance)
    most = {"package": 0, "lookup": 0}
    for number in range(QUERIES):
        words = chance.choices([*WORDS, *NAMES], k=chance.randint(1, 6))
        if number % 2:
            options = {"search_limit": chance.choice([5, 40, 120]), "activate_limit": chance.choice([0, 20, 200])}
            fields = {name: True for name in ("extracts", "share_text", "numeric_conflicts") if chance.random() < 0.3}
            package = await api.evidence(
                "kb", words[:2], text_fallback_query=" ".join(words), budget={"max_tokens": BUDGET}, **options, **fields
            )
            used = package["budget"]["tokens_used"]
            kind = "package"
        else:
            body = {"query": " ".join(words), "context": "kb", "topK": chance.choice([5, 50, 200])}
            response = await api.http.post("/api/v1/lookup", json={**body, "budget": {"maxTokens": BUDGET}})
            result = read(response.text)
            used = result["budget"]["tokensUsed"]
            assert used == tokens(compact(result["evidenceBlocks"])), body
            kind = "lookup"
        assert used <= BUDGET, words
        most[kind] = max(most[kind], used)
    assert min(most.values()) > 0.95 * BUDGET, "the budget must have bound"


async def test_room_is_kept_for_the_answer_on_every_turn(api):
    """B-31: a budget of 8,000 with 2,000 reserved leaves 6,000, also for the second turn."""
    await fill(api, random.Random(31))
    asked = {"max_items": 1000, "max_bytes": 1_000_000, "max_tokens": 8_000}
    for turn in ("harbour lamp keeper", "and the winter ledger of the pilot"):
        more = {"search_limit": 200, "activate_limit": 300, "text_fallback_query": turn}
        package = await api.evidence("kb", NAMES, budget={**asked, "reserve_tokens": 2_000}, **more)
        assert package["budget"]["limits"] == {**asked, "max_tokens": 6_000}
        assert 5_500 < package["budget"]["tokens_used"] <= 6_000
        by_hand = await api.evidence("kb", NAMES, budget={**asked, "max_tokens": 6_000}, **more)
        assert by_hand == package
        result = await api.lookup(turn, topK=200, budget={"maxTokens": 8_000, "reserveTokens": 2_000})
        limits = {"maxItems": None, "maxBytes": None, "maxTokens": 6_000}
        assert result["budget"]["limits"] == limits
        assert 5_000 < result["budget"]["tokensUsed"] <= 6_000
        parameters = {"q": turn, "context": "kb", "topK": 200, "maxTokens": 8_000, "reserveTokens": 2_000}
        got = (await api.http.get("/api/v1/lookup", params=parameters)).json()
        assert got["budget"] == result["budget"]
        given = {"topK": 200, "maxTokens": 8_000, "reserveTokens": 2_000}
        tool = await api.tool("lookup", query=turn, context="kb", **given)
        assert tool["structuredContent"]["budget"] == result["budget"]
        given = {"origins": list(NAMES), "budget": {**asked, "reserve_tokens": 2_000}, **more}
        tool = await api.tool("assemble_evidence", context="kb", **given)
        assert tool["structuredContent"]["budget"] == package["budget"]


async def test_what_is_reserved_beyond_the_budget_leaves_an_empty_package(api):
    """B-31."""
    await lights(api)
    package = await api.evidence("kb", "Harrow Light", budget={"max_tokens": 100, "reserve_tokens": 101})
    assert (package["items"], package["budget"]["limits"]["max_tokens"]) == ([], 0)
    default = await api.evidence("kb", "Harrow Light", budget={"reserve_tokens": 1_000})
    assert default["budget"]["limits"]["max_tokens"] == 3_000
    result = await api.lookup("keeper", budget={"maxTokens": 10, "reserveTokens": 11})
    assert (result["evidenceBlocks"], result["emptyReason"]) == ([], "BUDGET_EXCEEDED")
    body = {"query": "keeper", "context": "kb", "budget": {"reserveTokens": 5}}
    response = await api.http.post("/api/v1/lookup", json=body)
    assert (response.status_code, response.json()["pointer"]) == (400, "/budget/reserveTokens")
    response = await api.http.get("/api/v1/lookup", params={"q": "keeper", "context": "kb", "reserveTokens": 5})
    assert (response.status_code, response.json()["pointer"]) == (400, "?reserveTokens")
    for wrong in (-1, 2**60, "many"):
        refusal = await api.refused("/contexts/kb/evidence", {"origins": [], "budget": {"reserve_tokens": wrong}})
        assert refusal[:2] == (422, "malformed_request")


async def test_a_budget_without_a_reserve_is_the_same_bytes_as_before(api):
    """B-31."""
    await lights(api)
    plain = await api.evidence_text("kb", "Harrow Light", budget={"max_tokens": 900})
    null = await api.evidence_text("kb", "Harrow Light", budget={"max_tokens": 900, "reserve_tokens": None})
    assert without_time(plain) == without_time(null)
    result = await api.lookup("keeper", budget={"maxTokens": 900})
    assert list(result["budget"]["limits"]) == ["maxItems", "maxBytes", "maxTokens"]


def without_time(text):
    """An answer without the seconds it took."""
    return re.sub(r'"time":[0-9.e-]+', "", text)


@pytest.mark.parametrize("limit", [300, 900, 4_000])
async def test_the_same_budget_is_used_alike_on_every_surface(api, limit):
    """B-32."""
    await fill(api, random.Random(32))
    asked = {
        "origins": ["Harrow Light", "蔵元"],
        "labels": ["lamp of"],
        "text_fallback_query": "harbour lamp keeper 灯台",
        "search_limit": 30,
        "budget": {"max_tokens": limit},
    }
    over_rest = await api.evidence("kb", **asked)
    assert over_rest["budget"]["tokens_used"] > 0.5 * limit
    over_mcp = (await api.tool("assemble_evidence", context="kb", **asked))["structuredContent"]
    assert over_mcp["budget"] == over_rest["budget"]
    assert json.dumps(over_mcp["items"]) == json.dumps(json.loads(compact(over_rest["items"])))
    client = AsyncTaguru("http://localhost", http_client=api.http)
    package = await client.context("kb").assemble_evidence(**asked)
    assert package.budget.tokens_used == over_rest["budget"]["tokens_used"]
    assert package.budget.bytes_used == over_rest["budget"]["bytes_used"]
    assert [item.candidate_id for item in package.items] == [item["candidate_id"] for item in over_rest["items"]]


@pytest.mark.parametrize("object_", ["Acme", "acme", "ACME ", "Ac-me", "ＡＣＭＥ", "The Firm"])
async def test_a_relation_of_a_thing_to_itself_is_refused_by_api_and_by_import(api, object_):
    """B-58: also in another spelling, and by an alias."""
    path = await api.context("kb", [fact("Acme", "makes", "rope")])
    await api.send("POST", f"{path}/aliases", {"concepts": {"The Firm": "Acme"}})
    refusal = await api.refused(f"{path}/associations", [fact("Acme", "owns", object_)])
    assert refusal[:2] == (400, "invalid_argument")
    lines = stream(header("doc"), {"subject": "Acme", "label": "owns", "object": object_, "weight": 1.0})
    response = await api.http.post("/import", content=lines, headers={"content-type": "application/x-ndjson"})
    assert response.status_code in {400, 409, 422}, response.text
    assert response.json()["status"] == "error"
    assert (await graph_of(api, path))[1] == {("Acme", "makes", "rope")}
    assert (await api.send("GET", f"{path}/sources"))["total"] == 0


async def test_a_relation_of_a_thing_to_itself_is_refused_by_the_table(api, dsn):
    """B-58: whoever writes."""
    await api.context("kb", [fact("Acme", "makes", "rope")])
    owner = await asyncpg.connect(dsn)
    try:
        with pytest.raises(asyncpg.CheckViolationError):
            await owner.execute("UPDATE association SET object_id = subject_id")
    finally:
        await owner.close()


@pytest.mark.parametrize("way", ["rest", "import"])
async def test_spellings_of_one_name_are_one_entity_and_a_translation_is_one_by_its_alias(api, way):
    """B-59."""
    names = ["System Admin", "system admin", "SystemAdmin", "系统管理员"]
    tasks = ["backups", "accounts", "updates", "备份"]
    path = await api.context("kb", [fact(names[0], "does", "support")])
    if way == "rest":
        await api.send("POST", f"{path}/aliases", {"concepts": {names[3]: names[0]}})
        facts = [fact(name, "does", task) for name, task in zip(names, tasks, strict=True)]
        await api.send("POST", f"{path}/associations", facts)
    else:
        lines = [header("names"), {"alias": names[3], "canonical": names[0], "kind": "concept"}, header("doc")]
        lines += [line(name, "does", task) for name, task in zip(names, tasks, strict=True)]
        await api.send("POST", "/import", stream(*lines))
    for name in (names[0], names[3]):
        recalled = await api.send("POST", f"{path}/query", {"subject": name})
        assert {match["subject"] for match in recalled["matches"]} == {"System Admin"}
        assert {match["object"] for match in recalled["matches"]} == {*tasks, "support"}
    for name in names:
        (first, *_) = await api.send("POST", f"{path}/resolve", {"cue": name})
        assert (first["name"], first["score"]) == ("System Admin", 1.0)
        package = await api.evidence("kb", name)
        assert {subject for subject, _, _ in triples(package)} == {"System Admin"}
    assert (await graph_of(api, path))[0] == {"System Admin", *tasks, "support"}
    result = await api.lookup("系统管理员 does what?")
    assert {said(block)[0] for block in fact_blocks(result)} == {"System Admin"}


async def test_a_translation_without_an_alias_is_another_entity(api):
    """B-59: nothing is merged that nobody said is one."""
    path = await api.context("kb", [fact("System Admin", "does", "backups"), fact("系统管理员", "does", "备份")])
    assert {"System Admin", "系统管理员"} <= (await graph_of(api, path))[0]


async def test_facts_of_different_relations_never_retire_each_other(api):
    """B-61."""
    first = stream(header("2019.md"), line("Xenia", "works at", "Acme"))
    second = stream(header("2021.md"), line("Xenia", "administers", "Acme's org"))
    for lines in (first, second):
        await api.send("POST", "/import", lines)
    both = {("Xenia", "works at", "Acme"), ("Xenia", "administers", "Acme's org")}
    assert (await graph_of(api, "/contexts/kb"))[1] == both
    package = await api.evidence("kb", "Xenia")
    assert set(triples(package)) == both
    assert not [item for item in package["items"] if "contradicts" in item]
    assert package["plan"]["selection"]["contradiction_groups"] == 0
    blocks = fact_blocks(await api.lookup("What does Xenia do at Acme?"))
    assert {said(block) for block in blocks} == both
    assert not [block for block in blocks if block["fact"]["contradicts"]]


async def test_a_contradicting_fact_is_shown_beside_the_other_and_retires_nothing(api):
    """B-61: of one relation too, both stay, each naming the other."""
    await lights(api)
    package = await api.evidence("kb", "Harrow Light", labels="keeper", search_limit=0)
    rivals = {item["candidate_id"]: item["contradicts"] for item in package["items"] if "contradicts" in item}
    first, second = rivals
    assert rivals == {first: [second], second: [first]}


@pytest.mark.parametrize("way", ["rest", "import"])
async def test_disjoint_intervals_of_one_fact_stay_two(api, way):
    """B-62: January to February, and May to June."""
    winter, summer = (1_704_067_200, 1_709_251_200), (1_714_521_600, 1_719_792_000)
    facts = [
        fact("Ida", "keeps", "Harrow Light", source="log.md", valid_from=start, valid_until=end)
        for start, end in (winter, summer)
    ]
    if way == "rest":
        path = await api.context("kb", facts)
    else:
        path = "/contexts/kb"
        await api.send("POST", "/import", stream(header("log.md"), *(without(one, "source") for one in facts)))
    (match,) = (await api.send("POST", f"{path}/query", {"subject": "Ida"}))["matches"]
    assert match["count"] == 2
    (told,) = match["attributions"]
    assert [(one["valid_from"], one["valid_until"]) for one in told["intervals"]] == [winter, summer]
    package = await api.evidence("kb", "Ida")
    (item,) = package["items"]
    assert item["association"]["attributions"][0]["intervals"] == told["intervals"]
    exported = (await api.http.get(f"{path}/export")).text
    await api.send("DELETE", path)
    await api.send("POST", "/import", exported)
    (again,) = (await api.send("POST", f"{path}/query", {"subject": "Ida"}))["matches"]
    assert again == match


def without(values, name):
    return {key: value for key, value in values.items() if key != name}
