"""A whole run against a server in memory: lanes, budgets, the artifact and the gate."""

from __future__ import annotations

import json

import httpx2
import msgspec
import pytest

from evals_support import EVALS, MemoryServer
from strata.errors import StrataError
from strata.evaluate import artifact
from strata.evaluate.backend import Budget
from strata.evaluate.case_lanes import Mode
from strata.evaluate.case_metrics import CATALOGUE
from strata.evaluate.cases import load_eval, parse_eval
from strata.evaluate.run import evaluate
from strata.evaluate.thresholds import parse_thresholds
from strata.evaluate.wire import WireBackend, client

CORPUS, FACTS = EVALS / "corpus.jsonl", EVALS / "facts.jsonl"


def an_eval(*cases, **header):
    objects = [{"type": "eval", "name": "n"} | header, *cases]
    return parse_eval("\n".join(map(json.dumps, objects)).encode(), "e.jsonl")


def a_case(case_id="a", query="Who composed Aschenbrödel?", **fields):
    return {"case_id": case_id, "query": query} | fields


async def run(given, mode=None, *, server=None, context="multihop", **options):
    return await evaluate((server or MemoryServer()).backend(), given, mode or Mode(), context=context, **options)


def thresholds(given, **fields):
    content = json.dumps({"type": "evaluate_thresholds"} | fields).encode()
    return parse_thresholds(content, "t", {case.case_id for case in given.cases})


def without_times(document):
    document["metrics"].pop("latency")
    for case in document["cases"]:
        case["metrics"].pop("latency")
    return document


async def test_every_metric_is_in_the_artifact_with_its_shape():
    found = json.loads(artifact.document(await run(an_eval(a_case()))))
    assert {f"{family}.{name}" for family in found["metrics"] for name in found["metrics"][family]} == set(CATALOGUE)
    for key, metric in CATALOGUE.items():
        family, _, name = key.partition(".")
        parts = {"n", "numerator", "value"} if metric.shape == "ratio" else {"n", "min", "max", "mean", "sum"}
        assert parts <= set(found["metrics"][family][name])
    assert set(found["definitions"]) == set(CATALOGUE)
    assert found["metrics"]["recall"]["recall_at_k"]["mean"] is None
    assert found["gate"] is None


async def test_the_same_run_gives_the_same_artifact():
    given = load_eval(EVALS / "eval.jsonl")
    one, other = [json.loads(artifact.document(await run(given))) for _ in range(2)]
    assert without_times(one) == without_times(other)


async def test_the_artifact_holds_no_text_of_the_corpus():
    server = MemoryServer()
    for is_assembly in (False, True):
        mode = Mode(is_assembly=is_assembly, budget=Budget())
        written = artifact.document(await run(load_eval(EVALS / "eval.jsonl"), mode, server=server)).decode()
        for parts in server.sources.values():
            assert not any(part in written for part in parts if len(part) > 20)


async def test_the_gold_paragraphs_of_the_shipped_eval_can_all_be_cited():
    found = await run(load_eval(EVALS / "eval.jsonl"))
    assert found.metrics["citations"]["locator_validity"].mean == 1.0
    assert found.metrics["citations"]["quote_match"].value == 1.0
    assert 0.8 < found.metrics["citations"]["recall"].mean <= found.metrics["recall"]["recall_at_k"].mean


async def test_facts_are_found_through_the_graph():
    found = await run(load_eval(EVALS / "facts_eval.jsonl"), server=MemoryServer(CORPUS, FACTS))
    for name in ("concepts", "labels", "associations"):
        assert found.metrics["coverage"][name].mean == 1.0
    assert found.metrics["lanes"]["structural_hit"].value == 1.0
    assert found.metrics["structural"]["case_rate"].value == 1.0


async def test_without_facts_the_graph_gives_nothing_and_says_why():
    found = await run(load_eval(EVALS / "facts_eval.jsonl"))
    assert found.metrics["coverage"]["associations"].mean == 0.0
    assert found.cases[0].associations["not_found"] == 1
    assert found.metrics["lanes"]["structural_hit"].value == 0.0
    assert found.metrics["lanes"]["passage_hit"].n == 8


async def test_a_fact_whose_name_means_several_is_ambiguous(tmp_path):
    file = tmp_path / "f.jsonl"
    facts = [("old Rome", "in", "Italy"), ("new Rome", "in", "Georgia"), ("Paris", "in", "France")]
    batch = [{"taguru_batch": 1, "context": "multihop", "source": "f"}]
    batch += [{"subject": s, "label": label, "object": o, "weight": 1.0} for s, label, o in facts]
    file.write_text("\n".join(map(json.dumps, batch)), encoding="utf-8")
    wanted = [("Rome", "Italy"), ("Paris", "Italy"), ("Paris", "France")]
    case = a_case(expected_associations=[{"subject": s, "label": "in", "object": o} for s, o in wanted])
    found = await run(an_eval(case), server=MemoryServer(file))
    assert found.cases[0].associations == {"found": 1, "absent": 1, "not_found": 0, "ambiguous": 1}
    assert [missed.reason for missed in found.cases[0].missed] == ["ambiguous", "absent"]


async def test_at_most_three_missed_expectations_are_shown_and_all_counted():
    sources = [{"source": source, "paragraphs": [900]} for source in list(MemoryServer().sources)[:5]]
    cited = [{"source": "nowhere", "paragraph": 0}]
    found = (await run(an_eval(a_case(expected_sources=sources, expected_citations=cited)))).cases[0]
    assert (len(found.missed), found.missed_total) == (3, 6)
    assert found.citations["no_source"] == 1


async def test_plain_search_without_a_budget_has_no_spend():
    found = await run(an_eval(a_case()))
    assert found.inputs.budget is None
    assert found.cases[0].spend is None
    assert found.metrics["budget"]["omitted_rate"].n == 0
    assert found.cases[0].passage.hits == 10


async def test_both_modes_are_held_to_the_same_budget():
    budget = Budget(max_tokens=500)
    given = load_eval(EVALS / "eval.jsonl")
    for is_assembly in (False, True):
        found = await run(given, Mode(is_assembly=is_assembly, budget=budget))
        assert found.inputs.budget == budget
        assert found.metrics["budget"]["tokens_used"].p50 > 300
        assert found.metrics["budget"]["tokens_used"].max <= 500
        assert found.metrics["budget"]["omitted_rate"].value > 0.5


async def test_near_duplicates_do_not_count_as_kept_out_by_the_budget():
    found = await run(an_eval(a_case()), Mode(is_assembly=True, budget=Budget(max_items=10)))
    assert found.metrics["budget"]["omitted_rate"].value == 0.0


async def test_an_assembled_case_asks_with_its_cues_filters_and_budget():
    server = MemoryServer()
    options = {"limit": 500, "floor": 0.2, "tags": ["t"], "since": 1, "until": 2}
    case = a_case(cues=["Aschenbrödel"], options=options)
    mode = Mode(is_assembly=True, budget=Budget(max_items=3), rerank="m")
    found = await run(an_eval(case), mode, server=server)
    [body] = [body for operation, body in server.calls if operation == "/evidence"]
    assert body == {
        "origins": ["Aschenbrödel"],
        "text_fallback_query": "Who composed Aschenbrödel?",
        "search_limit": 200,
        "budget": {"max_items": 3, "max_bytes": 65_536, "max_tokens": 4_000},
        "rerank": {"model": "m"},
        "semantic_floor": 0.2,
        "tags": ["t"],
        "since": 1,
        "until": 2,
    }
    assert len(found.warnings) == 3


async def test_a_plain_case_asks_with_its_filters():
    server = MemoryServer()
    await run(an_eval(a_case(options={"tags": ["t"], "until": 2})), Mode(limit=7), server=server)
    [body] = [body for operation, body in server.calls if operation == "/sources/search"]
    assert body == {"query": "Who composed Aschenbrödel?", "limit": 7, "tags": ["t"], "until": 2}


async def test_the_reranker_is_reported_where_it_was_asked_for():
    server = MemoryServer()
    server.reranker = {"configured": True, "ran": True, "model": "m"}
    found = await run(an_eval(a_case()), Mode(is_assembly=True, rerank="m"), server=server)
    assert found.metrics["rerank"]["ran"].value == 1.0
    assert (await run(an_eval(a_case()), Mode(is_assembly=True), server=server)).metrics["rerank"]["ran"].n == 0


async def test_a_search_that_fails_is_part_of_the_result():
    server = MemoryServer()
    server.failing["/sources/search", "boom"] = ("timeout", 408)
    source = next(iter(server.sources))
    expected = [{"source": source}]
    found = await run(
        an_eval(a_case(expected_sources=expected), a_case("b", "boom", expected_sources=expected)), server=server
    )
    assert found.metrics["passage"]["failure_rate"].value == 0.5
    assert found.metrics["recall"]["recall_at_k"].n == 1
    assert (found.cases[1].passage.error, found.cases[1].passage.completed) == ("timeout", False)
    assert found.cases[1].metrics["recall"]["recall_at_k"] is None
    assert any("1 of 2 cases" in warning for warning in found.warnings)


async def test_a_run_whose_every_search_fails_could_not_be_completed():
    server = MemoryServer()
    server.failing["/sources/search", "boom"] = ("internal", 500)
    with pytest.raises(StrataError) as caught:
        await run(an_eval(a_case(query="boom")), server=server)
    assert (caught.value.code, "internal" in caught.value.detail) == ("server_unavailable", True)


async def test_a_context_that_does_not_exist_stops_the_run():
    with pytest.raises(StrataError) as caught:
        await run(an_eval(a_case()), context="nowhere/日本")
    assert caught.value.code == "context_not_found"


async def test_expected_sources_that_the_context_lacks_are_listed():
    cases = [a_case(str(number), expected_sources=[{"source": f"s{number}"}]) for number in range(150)]
    with pytest.raises(StrataError) as caught:
        await run(an_eval(*cases))
    assert caught.value.code == "invalid_request"
    assert "'s0' (case 0)" in caught.value.detail
    assert "145 more" in caught.value.detail


async def test_a_target_of_a_case_wins_over_the_option_and_that_over_the_header():
    target = {"default_target": {"context": "elsewhere"}}
    assert (await run(an_eval(a_case(), **target))).inputs.contexts == ["multihop"]
    own = a_case(target={"context_id": "multihop"})
    assert (await run(an_eval(own, **target), context="elsewhere")).cases[0].context == "multihop"
    assert (await run(an_eval(a_case(), default_target={"context": "multihop"}), context=None)).cases


async def test_an_eval_that_names_no_context_is_refused():
    with pytest.raises(StrataError) as caught:
        await run(an_eval(a_case()), context=None)
    assert caught.value.pointer == "--context"


async def test_a_corpus_that_changes_during_the_run_fails_the_gate_unless_allowed():
    given = an_eval(a_case())
    for allowed in (False, True):
        server = MemoryServer()

        def bump(_stage, _done, _total, server=server):
            server.revision = server.revision | {"passages": 2}

        bounds = thresholds(given, allow_unstable_corpus=allowed)
        found = await run(given, server=server, thresholds=bounds, progress=bump)
        assert not found.corpus.stable
        assert found.gate.passed is allowed
        assert any("changed during" in warning for warning in found.warnings)


async def test_thresholds_are_judged_for_the_run_and_for_each_case():
    source = next(iter(MemoryServer().sources))
    given = an_eval(a_case(expected_sources=[{"source": source, "paragraphs": [900]}]), a_case("b"))
    bounds = thresholds(
        given,
        aggregate={"recall.mrr": {"min": 0.5}, "coverage.labels": {"min": 1}, "passage.failure_rate": {"max": 0}},
        cases={"default": {"recall_at_k": {"min": 0.1}, "diversity.sources": {"max": 3}}},
    )
    gate = (await run(given, thresholds=bounds)).gate
    assert not gate.passed
    assert [(each.metric, each.case_id) for each in gate.violations] == [
        ("recall.mrr", None),
        ("recall.recall_at_k", "a"),
        ("diversity.sources", "a"),
        ("diversity.sources", "b"),
    ]
    assert gate.skipped == ["coverage.labels", "recall.recall_at_k of b"]


def package(**parts):
    used = {"items_used": 1, "bytes_used": 9, "tokens_used": 3}
    return {"items": [], "citations": [], "budget": used, "omitted_by_reason": {}, "plan": {}} | parts


async def answered(body, status=200):
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(status, content=content))
    backend = WireBackend(httpx2.AsyncClient(transport=transport, base_url="http://memory/"))
    case = an_eval(a_case()).cases[0]
    return await backend.assemble(
        "c", ["o"], case.query, limit=5, options=case.options, budget=Budget(), rerank=None, extra={}
    )


async def test_the_paragraphs_of_a_package_are_its_passages_and_what_its_associations_cite():
    items = [
        {"kind": "association", "citation_refs": [{"source": "a", "paragraph": 1}, {"source": "gone", "paragraph": 0}]},
        {"kind": "passage", "citation_refs": [], "passage": {"source": "b", "paragraph": 0, "text": "x"}},
        {"kind": "passage", "passage": {"source": "a", "paragraph": 1}},
        {"kind": "community", "community": {"community": "L0-1"}},
    ]
    citations = [{"source": "a", "paragraph": 1, "citation": {"text": "x"}}]
    found = await answered({"result": package(items=items, citations=citations)})
    assert found.places == (("a", 1), ("b", 0))


async def test_a_paragraph_of_which_only_sentences_are_shown_is_no_hit():
    place = {"source": "a", "paragraph": 0, "text": "x"}
    items = [{"kind": "passage", "passage": place, "extract": {"spans": [[0, 1]], "of_bytes": 9}}]
    assert (await answered({"result": package(items=items)})).places == ()


async def test_only_what_the_budget_kept_out_is_counted():
    reasons = {"budget_exceeded": 2, "duplicate_passage": 4, "contradiction_group_exceeds_budget": 3}
    assert (await answered({"result": package(omitted_by_reason=reasons)})).spend.omitted == 5


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", {"status": "ok"}, {"result": {"items": 1}}])
async def test_an_answer_of_another_api_stops_the_run(body):
    with pytest.raises(StrataError) as caught:
        await answered(body)
    assert caught.value.code == "server_unavailable"


@pytest.mark.parametrize(
    ("status", "code"), [(401, "invalid_request"), (408, "server_unavailable"), (500, "server_unavailable")]
)
async def test_an_error_in_answer_has_an_exit_code_by_its_status(status, code):
    with pytest.raises(StrataError) as caught:
        await answered({"code": "some_code"}, status)
    assert caught.value.code == code
    assert "some_code" in caught.value.detail


@pytest.mark.parametrize("url", ["", "handbook", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(StrataError) as caught:
        client(url)
    assert caught.value.pointer == "--url"
