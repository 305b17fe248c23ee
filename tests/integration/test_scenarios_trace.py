"""The scenarios of openspec/specs/tool-invocation-trace over the real services."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from uuid import UUID

import asyncpg
import msgspec
import pytest

from scenario_support import CALLER, CONTEXT, ask, doc, put, row_of
from strata.errors import StrataError
from strata.lanes.lexical.index import LexicalIndex
from strata.lookup.schemas import Filters
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose

AUDIT = doc("security/audit.md", "# Audit log\n\n## Retention\n\nAudit logs are kept for 400 days, then deleted.\n")
OTHER = doc("ops.md", "# Ops\n\nAudit logs of the cluster are shipped hourly.\n")
LUNCH = doc("lunch.md", "# Lunch\n\nThe canteen opens at noon.\n")
OTHER_TENANT = UUID("0190f000-0000-7000-8000-0000000000aa")


@pytest.fixture
async def owner(dsn):
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def test_an_answered_call_has_its_row_at_once(services, owner):
    await put(services, AUDIT, OTHER)
    result = await ask(services, "audit logs")
    row = await row_of(services, result)
    assert (row.status, row.found, row.evidence_count) == ("SUCCESS", True, len(result.evidence_blocks))
    assert row.relevance_level == result.relevance_level.value
    assert row.completeness_hint == result.completeness_hint.value
    assert await owner.fetchval("SELECT count(*) FROM tool_invocation") == 1


async def test_a_miss_is_no_error_in_its_row(services):
    await put(services, AUDIT)
    row = await row_of(services, await ask(services, "quokka"))
    assert (row.status, row.found, row.evidence_count, row.error_type) == ("NOT_FOUND", False, 0, None)
    assert row.retrieval_details["emptyReason"] == "UNKNOWN_TERMS"


async def test_a_refused_call_leaves_its_error(services):
    for body, code in (
        ({"query": " "}, "invalid_request"),
        ({"query": "audit", "topK": 0}, "invalid_request"),
        ({"query": "audit", "context": "nowhere"}, "context_not_found"),
    ):
        with pytest.raises(StrataError) as error:
            await services.lookup.lookup_json(DEFAULT_TENANT, msgspec.json.encode(body), CALLER)
        (newest, *_) = (await services.invocations.list(DEFAULT_TENANT)).items
        row = await services.invocations.show(DEFAULT_TENANT, newest.id)
        assert (row.status, row.error_type, row.error_message) == ("ERROR", code, error.value.detail)
    assert len((await services.invocations.list(DEFAULT_TENANT)).items) == 3


async def test_a_cancelled_call_leaves_its_row(services, monkeypatch):
    await put(services, AUDIT)
    entered = asyncio.Event()

    async def endless(_self, connection, *_args, **_options):
        entered.set()
        await connection.execute("SELECT pg_sleep(20)")

    monkeypatch.setattr(LexicalIndex, "search", endless)
    running = asyncio.create_task(ask(services, "audit logs"))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (row,) = (await services.invocations.list(DEFAULT_TENANT)).items
    assert (row.status, row.query, row.found) == ("CANCELLED", "audit logs", None)


async def test_an_answer_does_not_need_its_row(services, owner):
    await put(services, AUDIT)
    await owner.execute("DROP TABLE tool_invocation CASCADE")
    result = await ask(services, "audit logs")
    assert result.found
    with pytest.raises(StrataError):
        await row_of(services, result)


async def test_a_row_names_session_agent_request_and_trace(services):
    await put(services, AUDIT)
    result = await ask(services, "audit logs", session_id="s-1", agent_id="a-1")
    row = await row_of(services, result)
    assert (row.tool_name, row.surface, row.session_id, row.agent_id) == ("lookup", "REST", "s-1", "a-1")
    assert row.request_id == CALLER.request_id
    assert row.trace_id == result.trace_id
    assert len(row.trace_id) == 32
    assert len(row.span_id) == 16
    assert row.arguments["query"] == "audit logs"
    assert row.arguments["context"] == CONTEXT


async def test_no_text_of_a_block_is_in_the_row(services, owner):
    await put(services, AUDIT, OTHER)
    result = await ask(services, "audit", content=True)
    stored = await owner.fetchval("SELECT row_to_json(t)::text FROM tool_invocation t")
    details = (await row_of(services, result)).retrieval_details
    assert len(details["evidenceBlocks"]) == len(result.evidence_blocks) > 1
    for block, kept in zip(result.evidence_blocks, details["evidenceBlocks"], strict=True):
        body = block.content.splitlines()[-1]
        assert len(body) > 20
        assert body not in stored
        assert kept["contentSha256"] == block.citation.sha256 == sha256(block.content.encode()).hexdigest()
        assert kept["contentChars"] == len(block.content)


@pytest.mark.parametrize("privacy", ["hash", "none"])
async def test_a_question_that_is_private_is_nowhere_in_the_row(settings, database, owner, privacy):
    composed = compose(msgspec.structs.replace(settings, trace_query=privacy), database)
    await put(composed, AUDIT)
    question = "zanzibar audit secrets"
    for _ in range(2):
        await ask(composed, question)
    rows = await owner.fetch("SELECT row_to_json(t)::text AS stored, arguments::text FROM tool_invocation t")
    assert len(rows) == 2
    assert all("zanzibar" not in row["stored"] for row in rows)
    asked = [msgspec.json.decode(row["arguments"]).get("query") for row in rows]
    digest = {"sha256": sha256(question.encode()).hexdigest(), "chars": len(question)}
    assert asked == ([digest] * 2 if privacy == "hash" else [None] * 2)
    await composed.sources.close()


async def test_why_names_the_stage_of_a_real_lookup(services):
    await put(services, AUDIT, OTHER, LUNCH)
    result = await ask(services, "audit logs kept", top_k=1, filters=Filters(sources=["security/*", "ops.md"]))
    unfiltered = await ask(services, "audit logs kept", top_k=1)

    async def why(call, target):
        report = await services.invocations.why(DEFAULT_TENANT, call.lookup_id, target)
        assert report.sentence.endswith(".")
        return report.stage.value, report.reason

    assert await why(result, "security/audit.md") == ("SELECTED", None)
    assert await why(result, "ops.md") == ("TOP_K", "BELOW_TOP_K")
    assert (await why(result, "lunch.md"))[0] == "FILTER"
    assert await why(unfiltered, "lunch.md") == ("LANE", "NO_QUERY_TERMS")
    assert await why(result, "nowhere.md") == ("INGEST", "NOT_INGESTED")


async def test_views_list_blocks_omissions_and_misses(services, database):
    await put(services, AUDIT, OTHER)
    found = await ask(services, "audit logs kept", top_k=1)
    missed = await ask(services, "quokka")
    async with database.work(DEFAULT_TENANT) as connection:
        blocks = await connection.fetch("SELECT invocation_id, rank, source FROM tool_invocation_evidence")
        omitted = await connection.fetch(
            "SELECT source, stage FROM tool_invocation_omitted WHERE reason = 'BELOW_TOP_K'"
        )
        misses = await connection.fetch("SELECT invocation_id, empty_reason FROM lookup_misses")
    assert [tuple(row) for row in blocks] == [(found.lookup_id, 1, "security/audit.md")]
    assert [tuple(row) for row in omitted] == [("ops.md", "TOP_K")]
    assert [tuple(row) for row in misses] == [(missed.lookup_id, "UNKNOWN_TERMS")]
    async with database.work(OTHER_TENANT) as connection:
        for view in ("tool_invocation_evidence", "tool_invocation_omitted", "lookup_misses", "source_usage"):
            assert await connection.fetchval(f"SELECT count(*) FROM {view}") == 0


async def test_a_tenant_neither_lists_nor_reads_the_calls_of_another(services):
    await put(services, AUDIT)
    result = await ask(services, "audit logs")
    assert (await services.invocations.list(OTHER_TENANT)).items == []
    with pytest.raises(StrataError) as error:
        await services.invocations.show(OTHER_TENANT, result.lookup_id)
    assert error.value.code == "invocation_not_found"
