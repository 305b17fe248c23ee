"""The scenarios of openspec/specs/lookup over the real services."""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg
import msgspec
import pytest

from scenario_support import CALLER, CONTEXT, ask, doc, pointed, put, row_of, sources
from strata.errors import StrataError
from strata.hints.schemas import HintInput
from strata.hints.service import HintService
from strata.lanes.lexical.index import LexicalIndex
from strata.lookup.schemas import BudgetRequest, Filters, LookupResult
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose

AUDIT = doc("security/audit.md", "# Audit log\n\n## Retention\n\nAudit logs are kept for 400 days, then deleted.\n")
LEAVE = doc("hr/leave.md", "# Leave\n\n## Vacation\n\nEvery employee has thirty vacation days a year.\n", category="hr")
BADGE = doc("hr/badge.md", "# Badge\n\nA lost badge is replaced at the reception.\n", category="hr")
OTHER_TENANT = UUID("0190f000-0000-7000-8000-0000000000aa")


def stable(result: LookupResult) -> dict:
    values = msgspec.to_builtins(result)
    return {name: value for name, value in values.items() if name not in {"lookupId", "traceId", "tookMs"}}


async def sleep_on(connection) -> None:
    await connection.execute("SELECT pg_sleep(20)")


async def test_a_question_is_answered_by_the_passage_that_holds_its_words(services):
    await put(services, AUDIT, LEAVE, BADGE)
    result = await ask(services, "How long are audit logs kept?")
    assert result.found
    block = result.evidence_blocks[0]
    assert block.rank == 1
    assert block.source == "security/audit.md"
    text = await services.sources.read_text(
        DEFAULT_TENANT, CONTEXT, block.source, block.citation.start_byte, block.citation.end_byte
    )
    assert result.primary == text.text
    assert "400 days" in result.primary


async def test_a_result_without_evidence_still_sends_every_field(services):
    await put(services, AUDIT)
    sent = msgspec.json.decode(msgspec.json.encode(await ask(services, "quokka")))
    assert set(sent) == {field.encode_name for field in msgspec.structs.fields(LookupResult)}
    assert sent["found"] is False
    assert sent["primary"] is sent["supplement"] is sent["budget"] is sent["markdown"] is None
    assert sent["evidenceBlocks"] == []
    assert sent["omitted"] == {"total": 0, "byReason": {}, "items": []}


async def test_an_empty_question_is_refused_at_its_field(services):
    await put(services, AUDIT)
    for query in ("", "  \n\t ", "\x00\ufeff"):
        with pytest.raises(StrataError) as error:
            await ask(services, query)
        assert pointed(error.value) == ("invalid_request", "/query")


async def test_a_question_of_4096_characters_is_the_longest(services):
    await put(services, AUDIT)
    longest = ("audit logs " * 400)[:4095] + "x"
    assert (await ask(services, f"  {longest}  ")).found
    with pytest.raises(StrataError) as error:
        await ask(services, longest + "y")
    assert pointed(error.value) == ("invalid_request", "/query")


@pytest.mark.parametrize("top_k", [0, 201, -1])
async def test_a_top_k_out_of_bounds_is_refused_at_its_field(services, top_k):
    body = msgspec.json.encode({"query": "audit", "context": CONTEXT, "topK": top_k})
    with pytest.raises(StrataError) as error:
        await services.lookup.lookup_json(DEFAULT_TENANT, body, CALLER)
    assert pointed(error.value) == ("invalid_request", "/topK")


async def test_an_unknown_field_is_ignored(services):
    await put(services, AUDIT)
    body = msgspec.json.encode({"query": "audit logs", "context": CONTEXT, "colour": "green"})
    assert stable(await services.lookup.lookup_json(DEFAULT_TENANT, body, CALLER)) == stable(
        await ask(services, "audit logs")
    )


async def test_query_parameters_give_the_same_evidence_as_a_body(services):
    await put(services, AUDIT, LEAVE, BADGE)
    filters = {"sources": ["hr/*", "security/*"], "until": "2999-01-01"}
    asked = {"query": "audit logs and badges", "context": [CONTEXT], "topK": 3}
    dated = [doc(f"hr/{n}.md", f"# N\n\nBadges of audit year {n}.\n", occurred_at="2026-01-01") for n in range(3)]
    await put(services, *dated)
    by_body = await services.lookup.lookup_json(
        DEFAULT_TENANT, msgspec.json.encode({**asked, "filters": filters}), CALLER
    )
    by_query = await services.lookup.lookup_query(
        DEFAULT_TENANT,
        {
            "q": [asked["query"]],
            "context": [CONTEXT],
            "topK": ["3"],
            "sources": filters["sources"],
            "until": ["2999-01-01"],
        },
        CALLER,
    )
    assert by_body.evidence_blocks
    assert stable(by_body) == stable(by_query)


async def test_a_bad_parameter_is_named(services):
    with pytest.raises(StrataError) as error:
        await services.lookup.lookup_query(DEFAULT_TENANT, {"q": ["audit"], "topK": ["many"]}, CALLER)
    assert pointed(error.value) == ("invalid_request", "?topK")


async def test_two_contexts_answer_in_one_package(services):
    await put(services, AUDIT)
    await put(services, doc("ops.md", "# Ops\n\nAudit logs of the cluster are shipped hourly.\n"), context="operations")
    result = await ask(services, "audit logs", context=[CONTEXT, "operations"])
    assert set(sources(result)) == {"security/audit.md", "ops.md"}


async def test_the_context_that_is_missing_is_pointed_at(services):
    await put(services, AUDIT)
    with pytest.raises(StrataError) as error:
        await ask(services, "audit logs", context=[CONTEXT, "nowhere"])
    assert pointed(error.value) == ("context_not_found", "/context/1")


async def test_a_glob_keeps_better_passages_of_other_paths_out(services):
    await put(
        services,
        AUDIT,
        doc("notes/a.md", "# A\n\nSomeone mentioned audit logs at the very end of a long meeting on other things.\n"),
        doc("notes/deep/b.md", "# B\n\nAudit logs came up here as well, among many other things that day.\n"),
    )
    unfiltered = await ask(services, "audit logs retention")
    assert sources(unfiltered)[0] == "security/audit.md"
    one = await ask(services, "audit logs retention", filters=Filters(sources=["notes/*"]))
    assert sources(one) == ["notes/a.md"]
    both = await ask(services, "audit logs retention", filters=Filters(sources=["notes/**"]))
    assert set(sources(both)) == {"notes/a.md", "notes/deep/b.md"}


async def test_until_includes_the_day_it_names(services):
    await put(
        services,
        doc("last.md", "# Last\n\nThe audit of the evening.\n", occurred_at="2026-01-31T23:30:00Z"),
        doc("next.md", "# Next\n\nThe audit of the night.\n", occurred_at="2026-02-01T00:00:00Z"),
    )
    result = await ask(services, "audit", filters=Filters(since="2026-01-31", until="2026-01-31"))
    assert sources(result) == ["last.md"]


async def test_a_category_that_holds_enough_is_not_left(services):
    await put(services, LEAVE, BADGE, doc("it.md", "# IT\n\nAn employee with a lost badge.\n", category="it"))
    result = await ask(services, "employee badge", category="hr", top_k=2)
    assert {block.category for block in result.evidence_blocks} == {"hr"}
    assert all("CATEGORY_FILTER:hr" in block.hit_reasons for block in result.evidence_blocks)
    assert result.completeness_hint != "FALLBACK"


async def test_a_category_that_holds_too_little_is_relaxed_and_says_so(services):
    await put(services, BADGE, doc("it.md", "# IT\n\nThe badge, a badge of badges.\n", category="it"))
    result = await ask(services, "badge", category="hr", top_k=2)
    assert sources(result) == ["hr/badge.md", "it.md"]
    inside, outside = result.evidence_blocks
    assert "CATEGORY_FILTER_RELAXED" not in inside.hit_reasons
    assert "CATEGORY_FILTER_RELAXED" in outside.hit_reasons
    assert result.completeness_hint == "FALLBACK"
    assert result.completeness_message


async def test_a_hint_that_points_elsewhere_does_not_cost_the_first_passage(services):
    await put(services, doc("form.md", "# Form\n\nParental leave, the parental leave form.\n"), LEAVE, BADGE)
    hint = HintInput(title="Parental leave", aliases=["parental leave form"], targets=["hr/badge.md"], category="hr")
    await services.hints.put(DEFAULT_TENANT, CONTEXT, [hint])
    alone = await ask(services, "parental leave form", top_k=1, layers=["L1"])
    assert sources(alone) == ["form.md"]
    together = await ask(services, "parental leave form", top_k=1)
    assert sources(together) == ["form.md"]
    budgeted = await ask(services, "parental leave form", budget=BudgetRequest(max_items=1))
    assert sources(budgeted) == ["form.md"]


async def test_a_category_that_a_hint_suggests_removes_nothing(services):
    await put(services, LEAVE, doc("it.md", "# Laptop\n\nOn vacation the laptop stays in the safe.\n", category="it"))
    await services.hints.put(DEFAULT_TENANT, CONTEXT, [HintInput(title="Vacation", category="hr")])
    assert sources(await ask(services, "vacation laptop safe", top_k=1)) == ["it.md"]
    result = await ask(services, "vacation laptop safe")
    assert set(sources(result)) == {"it.md", "hr/leave.md"}
    boosted = next(block for block in result.evidence_blocks if block.source == "hr/leave.md")
    assert "L0_HINT_BOOST" in boosted.hit_reasons


async def test_l1_alone_brings_no_evidence_of_hints(services):
    await put(services, AUDIT, LEAVE)
    await services.hints.put(DEFAULT_TENANT, CONTEXT, [HintInput(title="Audit logs", targets=["hr/leave.md"])])
    result = await ask(services, "audit logs", layers=["L1"])
    assert sources(result) == ["security/audit.md"]
    assert all(block.layers == ["L1"] for block in result.evidence_blocks)
    lane = (await row_of(services, result)).retrieval_details["lanes"]["hints"]
    assert (lane["ran"], lane["reason"]) == (False, "not requested")


async def test_l0_alone_answers_by_hints_only(services):
    await put(services, AUDIT, LEAVE)
    await services.hints.put(DEFAULT_TENANT, CONTEXT, [HintInput(title="Audit logs", targets=["security/audit.md"])])
    result = await ask(services, "audit logs", layers=["L0"])
    assert sources(result) == ["security/audit.md"]
    assert result.evidence_blocks[0].layers == ["L0"]
    assert result.completeness_hint == "HINT_ONLY"


async def test_a_passage_with_every_term_is_high(services):
    await put(services, AUDIT, LEAVE, BADGE)
    assert (await ask(services, "audit logs kept 400 days")).relevance_level == "HIGH"


async def test_half_of_the_question_is_not_high_though_it_ranks_first(services):
    await put(
        services,
        doc("a.md", "# A\n\nThe zebrafish swims in the tank.\n"),
        doc("b.md", "# B\n\nThe quokka sleeps under the bush.\n"),
    )
    result = await ask(services, "zebrafish quokka")
    assert result.found
    assert result.evidence_blocks[0].score == 1
    assert result.relevance_level in {"LOW", "MEDIUM"}


async def test_a_covered_question_with_nothing_cut_is_complete(services):
    await put(services, AUDIT, BADGE)
    result = await ask(services, "audit logs", top_k=1)
    assert (result.completeness_hint, result.completeness_message) == ("COMPLETE", None)


async def test_a_cut_that_matters_makes_the_result_partial(settings, database):
    generous = compose(msgspec.structs.replace(settings, relevance_high=0.01, relevance_medium=0.005), database)
    await put(generous, AUDIT, doc("other.md", "# Other\n\nHere audit logs are rotated every night.\n"))
    result = await ask(generous, "audit logs", top_k=1)
    assert result.completeness_hint == "PARTIAL"
    assert "topK" in result.completeness_message


async def test_a_question_of_punctuation_has_no_searchable_terms(services):
    await put(services, AUDIT)
    result = await ask(services, "?! ...")
    assert (result.found, result.empty_reason) == (False, "NO_SEARCHABLE_TERMS")
    assert (result.relevance_level, result.completeness_hint) == ("NONE", "EMPTY")
    assert result.completeness_message


async def test_a_question_of_unknown_words_says_so(services):
    await put(services, AUDIT)
    result = await ask(services, "quokka zebrafish")
    assert (result.found, result.empty_reason) == (False, "UNKNOWN_TERMS")


async def test_matches_outside_the_filters_are_told(services):
    await put(services, AUDIT, LEAVE)
    result = await ask(services, "audit logs", filters=Filters(sources=["hr/**"]))
    assert (result.found, result.empty_reason) == (False, "FILTERED_OUT")


async def test_weak_matches_are_below_the_floor_and_among_the_omissions(settings, database):
    strict = compose(msgspec.structs.replace(settings, relevance_floor=0.9, relevance_high=0.95), database)
    await put(strict, doc("a.md", "# A\n\nThe zebrafish swims.\n"), doc("b.md", "# B\n\nThe quokka sleeps.\n"))
    result = await ask(strict, "zebrafish quokka", layers=["L1"])
    assert (result.found, result.empty_reason) == (False, "BELOW_FLOOR")
    assert result.omitted.by_reason == {"BELOW_FLOOR": 2}
    await strict.sources.close()


async def test_a_context_without_passages_is_told(services):
    await services.contexts.create(DEFAULT_TENANT, "bare")
    result = await ask(services, "audit logs", context="bare")
    assert (result.found, result.empty_reason) == (False, "EMPTY_CONTEXT")


@pytest.fixture
async def short_database(settings):
    opened = Database(settings.database_url, msgspec.structs.replace(settings, statement_timeout_seconds=0.3))
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def impatient_services(settings, services, short_database):
    """Services whose statements may take 0.3 seconds, over two documents and a hint."""
    await put(services, AUDIT, LEAVE)
    await services.hints.put(DEFAULT_TENANT, CONTEXT, [HintInput(title="Audit logs", targets=["security/audit.md"])])
    composed = compose(settings, short_database)
    yield composed
    await composed.sources.close()


async def slow_hints(_self, connection, *_args):
    await sleep_on(connection)


async def slow_lexical(_self, connection, *_args, **_options):
    await sleep_on(connection)


async def test_passages_answer_without_the_hint_lane(impatient_services, monkeypatch):
    monkeypatch.setattr(HintService, "match", slow_hints)
    result = await ask(impatient_services, "audit logs")
    assert sources(result) == ["security/audit.md"]
    assert "FALLBACK_L1_ONLY" in result.evidence_blocks[0].hit_reasons
    assert result.completeness_hint == "DEGRADED"
    row = await row_of(impatient_services, result)
    assert row.status == "DEGRADED"
    assert row.retrieval_details["lanes"]["hints"]["reason"] == "statement_timeout"


async def test_hints_answer_without_the_lexical_lane(impatient_services, monkeypatch):
    monkeypatch.setattr(LexicalIndex, "search", slow_lexical)
    result = await ask(impatient_services, "audit logs")
    assert sources(result) == ["security/audit.md"]
    assert result.completeness_hint == "HINT_ONLY"
    row = await row_of(impatient_services, result)
    assert row.retrieval_details["lanes"]["lexical"]["reason"] == "statement_timeout"


async def test_a_miss_without_the_lexical_lane_is_no_fact_about_the_world(impatient_services, monkeypatch):
    monkeypatch.setattr(LexicalIndex, "search", slow_lexical)
    result = await ask(impatient_services, "thirty days a year")
    assert (result.found, result.empty_reason) == (False, "LAYER_UNAVAILABLE")


async def test_a_database_that_is_down_is_an_error(settings):
    away = Database("postgresql://strata@127.0.0.1:1/strata", settings)
    composed = compose(settings, away)
    with pytest.raises(StrataError) as error:
        await ask(composed, "audit logs")
    assert error.value.code in {"database_unavailable", "overloaded"}
    await composed.sources.close()


async def test_a_repeated_question_gets_the_same_answer(services):
    await put(services, AUDIT, LEAVE, *(doc(f"n/{n}.md", f"# N\n\nAudit note of day {n}.\n") for n in range(12)))
    first, second = [await ask(services, "audit note", top_k=4) for _ in range(2)]
    assert first.omitted.total
    assert stable(first) == stable(second)
    assert first.lookup_id != second.lookup_id


async def test_a_source_replaced_during_a_lookup_is_seen_as_it_was(services, monkeypatch):
    await put(services, AUDIT)
    search = LexicalIndex.search
    replaced = []

    async def search_then_replace(self, *args, **options):
        hits = await search(self, *args, **options)
        if not replaced:
            replaced.append(await put(services, doc("security/audit.md", "# New\n\nAudit logs are kept for ever.\n")))
        return hits

    monkeypatch.setattr(LexicalIndex, "search", search_then_replace)
    before = await ask(services, "audit logs")
    assert replaced[0].replaced == 1
    assert before.evidence_blocks[0].citation.source_version == 1
    assert "400 days" in before.primary
    after = await ask(services, "audit logs")
    assert after.evidence_blocks[0].citation.source_version == 2
    assert "for ever" in after.primary


async def test_one_lookup_too_many_is_refused_at_once(settings, database, monkeypatch):
    narrow = compose(msgspec.structs.replace(settings, max_concurrent_lookups=1), database)
    await put(narrow, AUDIT)
    entered, go_on = asyncio.Event(), asyncio.Event()
    search = LexicalIndex.search

    async def held(self, *args, **options):
        entered.set()
        await go_on.wait()
        return await search(self, *args, **options)

    monkeypatch.setattr(LexicalIndex, "search", held)
    running = asyncio.create_task(ask(narrow, "audit logs"))
    await entered.wait()
    waiting = asyncio.create_task(ask(narrow, "audit logs"))
    await asyncio.sleep(0.05)
    with pytest.raises(StrataError) as error:
        await asyncio.wait_for(ask(narrow, "audit logs"), 5)
    assert error.value.code == "overloaded"
    assert error.value.kind.retry_after_seconds
    go_on.set()
    assert (await running).found
    assert (await waiting).found
    await narrow.sources.close()


async def test_the_context_of_another_tenant_does_not_exist(services):
    report = await put(services, AUDIT)
    for ref in (CONTEXT, str(report.context_id)):
        with pytest.raises(StrataError) as error:
            await services.lookup.lookup_json(
                OTHER_TENANT, msgspec.json.encode({"query": "audit logs", "context": ref}), CALLER
            )
        assert pointed(error.value) == ("context_not_found", "/context")


async def test_a_passage_cannot_pass_for_the_rendering_around_it(services):
    await put(
        services, doc("trick.txt", "Audit first.\n\n### 2. Forged\n\n`forged`\n\n> quoted\n", media_type="text/plain")
    )
    result = await ask(services, "audit forged", format="markdown", content=True)
    lines = result.markdown.splitlines()
    assert [line for line in lines if line.startswith("#")] == [f"### 1. {lines[0].removeprefix('### 1. ')}"]
    passage = result.evidence_blocks[0].content.splitlines()
    assert "### 2. Forged" in passage
    assert [line for line in lines if line.startswith(">")] == [f"> {line}" for line in passage]


@pytest.mark.parametrize("body", [b"", b"{", b'{"query": "x"'])
async def test_a_body_that_is_no_json_is_malformed_and_leaves_its_row(services, body):
    with pytest.raises(StrataError) as raised:
        await services.lookup.lookup_json(DEFAULT_TENANT, body, CALLER)
    assert raised.value.code == "malformed_body"
    (row,) = (await services.invocations.list(DEFAULT_TENANT)).items
    assert (row.status, row.error_type) == ("ERROR", "malformed_body")


async def test_evidence_that_does_not_fit_the_budget_is_told_as_such(services):
    await put(services, AUDIT)
    result = await ask(services, "audit logs", budget=BudgetRequest(max_items=0))
    assert (result.found, result.empty_reason) == (False, "BUDGET_EXCEEDED")
    assert result.omitted.by_reason == {"BUDGET_EXCEEDED": result.omitted.total}


async def test_a_layer_that_was_not_asked_is_told_as_such(services):
    await put(services, AUDIT)
    result = await ask(services, "audit kept", layers=["L0"])
    assert (result.found, result.empty_reason) == (False, "LAYER_UNAVAILABLE")


async def test_a_passage_whose_row_is_missing_is_gone_and_the_next_takes_its_place(services, dsn):
    await put(services, doc("a.md", "Zebrafish swim, zebrafish."), doc("b.md", "One zebrafish among others."))
    best = (await ask(services, "zebrafish")).evidence_blocks[0].source
    owner = await asyncpg.connect(dsn)
    await owner.execute("DELETE FROM passage WHERE source_id = (SELECT source_id FROM source WHERE path = $1)", best)
    await owner.close()
    result = await ask(services, "zebrafish", top_k=1)
    assert sources(result) == [({"a.md", "b.md"} - {best}).pop()]
    assert result.omitted.by_reason == {"GONE": 1}


async def test_a_category_whose_hits_come_to_too_few_blocks_is_relaxed(services):
    long = "# Leave\n\n" + "\n\n".join(f"Vacation rule {n}: " + f"clause{n} " * 150 for n in range(6))
    await put(
        services,
        doc("hr/leave.md", long, category="hr"),
        doc("it/vacation.md", "# Mail\n\nA vacation reply is set in the mail program.\n", category="it"),
    )
    result = await ask(services, "vacation", category="hr", top_k=2)
    assert sources(result) == ["hr/leave.md", "it/vacation.md"]
    assert result.completeness_hint == "FALLBACK"


async def test_the_supplement_has_each_text_under_its_title_line(services):
    await put(
        services,
        doc("a.md", "Auditors audit.", title="Audit"),
        doc("b.md", "Auditors must sign an audit.", title="Audit"),
    )
    result = await ask(services, "auditors audit")
    assert result.supplement.startswith("Audit\nAuditors")


async def test_a_curated_hint_gives_its_title_and_breadcrumb(services):
    await put(services, LEAVE)
    hint = HintInput(title="Vacation days", breadcrumb=["Company", "Leave"], targets=["hr/leave.md"])
    await services.hints.put(DEFAULT_TENANT, CONTEXT, [hint])
    block = (await ask(services, "vacation days")).evidence_blocks[0]
    assert (block.title, block.breadcrumb) == ("Vacation days", ["Company", "Leave"])
