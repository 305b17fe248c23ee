"""Listing, showing, and saying why something is not in a result."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

import msgspec
import pytest

from strata.errors import CONTEXT_NOT_FOUND, INVALID_REQUEST, INVOCATION_NOT_FOUND, StrataError
from strata.traces.schemas import FiltersTrace, LaneTrace, Stage, Status, Surface
from strata.traces.service import InvocationService, Recorder
from traces_samples import TENANT, add_context, add_source, asked, block, details, invocation, omission, ranks

pytestmark = pytest.mark.database

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
EARLIEST, LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
EARLY_CURSOR = base64.urlsafe_b64encode(f"0001-01-01T00:00:00+14:00|{uuid4()}".encode()).decode()


@pytest.fixture
def recorder(database, settings):
    return Recorder(database, settings)


@pytest.fixture
def service(database):
    return InvocationService(database)


async def test_the_list_is_newest_first_and_pages_without_gap_or_repeat(recorder, service):
    calls = [invocation() for _ in range(7)]
    for call in calls:
        await recorder.record(call)
    seen, cursor = [], None
    for _ in range(4):
        page = await service.list(TENANT, limit=2, cursor=cursor)
        seen += [item.id for item in page.items]
        cursor = page.next_cursor
    assert seen == [call.id for call in reversed(calls)]
    assert cursor is None


async def test_the_list_takes_every_condition(database, recorder, service):
    context = await add_context(database)
    wanted = asked(
        context,
        status=Status.NOT_FOUND,
        surface=Surface.MCP,
        tool_name="evidence",
        session_id="s-1",
        trace_id="ab" * 16,
        arguments={"query": "100% of O'Neil's_plan"},
    )
    await recorder.record(wanted)
    await recorder.record(invocation())
    now = datetime.now(UTC)
    for condition in (
        {"context": str(context)},
        {"context": "kb"},
        {"status": "not_found"},
        {"status": Status.NOT_FOUND},
        {"tool": "evidence"},
        {"session_id": "s-1"},
        {"trace_id": "AB" * 16},
        {"query": "100% OF o'neil's_"},
        {"context": "kb", "status": "NOT_FOUND", "query": "plan", "since": now - timedelta(hours=1), "until": None},
    ):
        page = await service.list(TENANT, **condition)
        assert [item.id for item in page.items] == [wanted.id], condition
    for condition in ({"query": "1__%"}, {"query": "plan", "tool": "lookup"}, {"session_id": "s\x00"}):
        assert (await service.list(TENANT, **condition)).items == []
    assert (await service.list(TENANT, since=now + timedelta(hours=1))).items == []
    assert (await service.list(TENANT, until=datetime(2020, 1, 1))).items == []  # noqa: DTZ001 - no zone means UTC
    assert len((await service.list(TENANT, until=now + timedelta(hours=1))).items) == 2


@pytest.mark.parametrize(
    ("given", "kind", "pointer"),
    [
        ({"limit": 0}, INVALID_REQUEST, "?limit"),
        ({"limit": 501}, INVALID_REQUEST, "?limit"),
        ({"status": "WRONG"}, INVALID_REQUEST, "?status"),
        ({"cursor": "nonsense"}, INVALID_REQUEST, "?cursor"),
        ({"cursor": "\udbff"}, INVALID_REQUEST, "?cursor"),
        ({"cursor": EARLY_CURSOR}, INVALID_REQUEST, "?cursor"),
        ({"since": EARLIEST.replace(tzinfo=EAST)}, INVALID_REQUEST, "?since"),
        ({"until": LATEST.replace(tzinfo=WEST)}, INVALID_REQUEST, "?until"),
        ({"context": "nowhere"}, CONTEXT_NOT_FOUND, "?context"),
        ({"context": "\x00\udbff"}, CONTEXT_NOT_FOUND, "?context"),
    ],
)
async def test_a_wrong_condition_is_refused_with_its_name(service, given, kind, pointer):
    with pytest.raises(StrataError) as raised:
        await service.list(TENANT, **given)
    assert (raised.value.kind, raised.value.pointer) == (kind, pointer)


async def test_the_list_takes_the_first_and_the_last_time_there_is(recorder, service):
    await recorder.record(invocation())
    assert len((await service.list(TENANT, since=EARLIEST)).items) == 1
    assert len((await service.list(TENANT, until=LATEST)).items) == 1


async def test_the_list_takes_any_spelling_of_a_context(database, recorder, service):
    context = await add_context(database, "caf\u00e9")
    await recorder.record(invocation(context_id=context))
    for spelling in ("caf\u00e9", " cafe\u0301 "):
        assert len((await service.list(TENANT, context=spelling)).items) == 1


async def test_show_gives_the_row_and_only_to_its_tenant(recorder, service):
    call = invocation()
    await recorder.record(call)
    shown = await service.show(TENANT, call.id)
    assert shown.arguments["query"] == "How do I reset it?"
    assert shown.retrieval_details["schemaVersion"] == 1
    assert msgspec.json.decode(msgspec.json.encode(shown))["evidenceCount"] == 1
    for tenant, identifier in ((uuid4(), call.id), (TENANT, uuid4())):
        with pytest.raises(StrataError) as raised:
            await service.show(tenant, identifier)
        assert raised.value.kind is INVOCATION_NOT_FOUND
    with pytest.raises(StrataError) as raised:
        await service.why(uuid4(), call.id, "docs/a.md")
    assert raised.value.kind is INVOCATION_NOT_FOUND


async def test_a_list_shows_a_question_that_is_kept_as_a_hash_as_what_it_is(database, settings, service):
    await Recorder(database, msgspec.structs.replace(settings, trace_query="hash")).record(invocation())
    (item,) = (await service.list(TENANT)).items
    assert '"chars": 18' in item.query


async def test_why_tells_rank_and_reason_of_what_was_recorded(database, recorder, service):
    """B-34 and B-35: ten candidates, three selected, seven with a stage and a reason."""
    reasons = [
        "DUPLICATE_SOURCE",
        "NEAR_DUPLICATE",
        "BELOW_FLOOR",
        "BUDGET_EXCEEDED",
        "BELOW_TOP_K",
        "GONE",
        "BELOW_TOP_K",
    ]
    omitted = [
        omission(f"o{n}.md", reason, lane_ranks=ranks(vector=54 + n), duplicate_of="path:s2.md" if n < 2 else None)
        for n, reason in enumerate(reasons)
    ]
    call = invocation(retrieval_details=details([block(n, f"s{n}.md") for n in (1, 2, 3)], omitted))
    await recorder.record(call)
    selected = await service.why(TENANT, call.id, "s2.md")
    assert (selected.stage, selected.rank, selected.is_selected) == (Stage.SELECTED, 2, True)
    stages = [(await service.why(TENANT, call.id, f"o{n}.md")).stage for n in range(7)]
    assert stages == ["DEDUPLICATION", "DEDUPLICATION", "FLOOR", "BUDGET", "TOP_K", "CONFIRM", "TOP_K"]
    gold = await service.why(TENANT, call.id, "path:o6.md")
    assert (gold.reason, gold.is_selected) == ("BELOW_TOP_K", False)
    assert "vector rank 60" in gold.sentence
    assert gold.notes == ["Lane vector did not run: NO_INDEX."]
    async with database.work(TENANT) as connection:
        rows = await connection.fetch(
            "SELECT stage, reason, lane_ranks FROM tool_invocation_candidates WHERE invocation_id = $1", call.id
        )
    assert len(rows) == 10
    assert sum(row["reason"] is not None for row in rows) == 7
    assert all((row["reason"] is None) == (row["stage"] == "SELECTED") for row in rows)


async def test_why_names_a_source_that_is_nowhere_or_in_another_context(database, recorder, service):
    context, other = await add_context(database), await add_context(database, "archive")
    await add_source(database, other, "docs/moved.md", "Text.")
    call = asked(context)
    await recorder.record(call)
    absent = await service.why(TENANT, call.id, "docs/none.md")
    assert (absent.stage, absent.reason) == (Stage.INGEST, "NOT_INGESTED")
    assert absent.sentence == "No such source is in kb: never ingested, or deleted."
    elsewhere = await service.why(TENANT, call.id, "docs/moved.md")
    assert (elsewhere.reason, elsewhere.sentence) == ("OTHER_CONTEXT", "It is in archive; the call asked kb.")


async def test_why_knows_what_came_after_the_call(database, recorder, service):
    context = await add_context(database)
    call = asked(context)
    await recorder.record(call)
    await add_source(database, context, "new.md", "How to reset it.", at=datetime.now(UTC) + timedelta(seconds=5))
    report = await service.why(TENANT, call.id, "new.md")
    assert (report.stage, report.reason) == (Stage.INGEST, "INGESTED_LATER")
    assert report.live.changed_after_call


async def test_why_names_the_filter_that_kept_it_out(database, recorder, service):
    context = await add_context(database)
    await add_source(
        database,
        context,
        "hr/leave.md",
        "How to reset leave.",
        category="hr",
        tags=["old"],
        occurred_at=datetime(2020, 1, 1, tzinfo=UTC),
    )
    for arguments, reason in (
        ({"category": "it"}, "CATEGORY"),
        ({"category": ["it", "ops"]}, "CATEGORY"),
        ({"filters": {"sources": ["it/*.md"]}}, "SOURCES"),
        ({"filters": {"tags": ["old", "new"]}}, "TAGS"),
        ({"filters": {"since": "2021-01-01"}}, "SINCE"),
        ({"filters": {"until": "2019-12-31"}}, "UNTIL"),
        ({"filters": {"language": "fr"}}, "LANGUAGE"),
    ):
        call = asked(context, arguments={"query": "reset", **arguments})
        await recorder.record(call)
        report = await service.why(TENANT, call.id, "hr/leave.md")
        assert (report.stage, report.reason) == (Stage.FILTER, reason)
        assert report.live.filters_failed == [reason.lower()]
    passing = {"category": "hr", "filters": {"sources": ["hr/*"], "tags": ["old"], "since": "2019-01-01"}}
    call = asked(context, arguments={"query": "reset", **passing})
    await recorder.record(call)
    assert (await service.why(TENANT, call.id, "hr/leave.md")).stage is Stage.LANE


async def test_why_does_not_blame_a_category_that_was_relaxed(database, recorder, service):
    context = await add_context(database)
    await add_source(database, context, "hr/leave.md", "Nothing of it.", category="hr")
    traced = details(filters=FiltersTrace(category="it", relaxed=True))
    call = asked(context, arguments={"query": "zebra", "category": "it"}, retrieval_details=traced)
    await recorder.record(call)
    report = await service.why(TENANT, call.id, "hr/leave.md")
    assert (report.stage, report.reason) == (Stage.LANE, "NO_QUERY_TERMS")
    assert "The category filter was relaxed: it left fewer blocks than wanted." in report.notes


async def test_why_says_which_words_it_holds_and_where_it_would_rank(database, recorder):
    context = await add_context(database)
    first = await add_source(database, context, "guide.md", "Intro 😀.", "Resetting a 密码 password.", "End.")

    async def order(tenant, asked_context, query):
        assert (tenant, asked_context, query) == (TENANT, context, "reset the forgotten password")
        return {"lexical": [*range(239), first + 1], "vector": []}

    call = asked(
        context,
        arguments={"query": "reset the forgotten password"},
        retrieval_details=details(lanes={"lexical": LaneTrace(ran=True, candidates=100)}),
    )
    await recorder.record(call)
    report = await InvocationService(database).why(TENANT, call.id, "guide.md")
    assert (report.stage, report.reason) == (Stage.LANE, "NOT_NOMINATED")
    assert (report.live.terms_held, report.live.terms_missing) == (["reset", "password"], ["forgotten"])
    report = await InvocationService(database, order).why(TENANT, call.id, "guide.md")
    assert (report.reason, report.live.lexical_rank) == ("BEYOND_LANE_LIMIT", 240)
    assert report.sentence.endswith("lexical rank 240; the lane gave 100 candidates.")
    by_passage = await InvocationService(database, order).why(TENANT, call.id, str(first))
    assert (by_passage.reason, by_passage.live.lexical_rank) == ("NO_QUERY_TERMS", None)


async def test_why_finds_a_source_by_anchor_key_or_the_end_of_its_path(database, recorder, service):
    context = await add_context(database)
    first = await add_source(database, context, "docs/guide.md", "Zebra.", source_key="guide-1")
    call = asked(context)
    await recorder.record(call)
    for target in ("docs/guide.md#part", "path:docs/guide.md", "guide-1", "guide.md", str(first)):
        report = await service.why(TENANT, call.id, target)
        assert report.live is not None, target
        assert report.live.path == "docs/guide.md"
    gone = await service.why(TENANT, call.id, str(first + 5))
    assert (gone.stage, gone.reason) == (Stage.INGEST, "NO_SUCH_PASSAGE")
    gone = await service.why(TENANT, call.id, str(first + (99 << 20)))
    assert (gone.stage, gone.reason) == (Stage.INGEST, "NO_SUCH_PASSAGE")


async def test_why_tells_of_the_source_where_no_candidate_is_the_section(recorder, service):
    call = invocation(retrieval_details=details([block(1, "hr/leave.md", source_key="leave")]))
    await recorder.record(call)
    report = await service.why(TENANT, call.id, "hr/leave.md#carry")
    assert (report.stage, report.rank, report.target) == (Stage.SELECTED, 1, "hr/leave.md#carry")
    assert report.notes[0] == "No candidate is hr/leave.md#carry; this is about hr/leave.md as a whole."


async def test_why_admits_what_the_size_limit_cut(database, recorder, service):
    context = await add_context(database)
    await add_source(database, context, "z.md", "Reset it.")
    call = asked(context, retrieval_details=details(omitted=[omission("a.md", "BELOW_TOP_K")], omitted_total=900))
    await recorder.record(call)
    report = await service.why(TENANT, call.id, "z.md")
    assert (report.stage, report.reason) == (Stage.FUSION, "NOT_LISTED")
    assert "899 more" in report.sentence


async def test_why_of_a_call_without_candidates_says_how_it_ended(recorder, service):
    failed = invocation(status=Status.ERROR, error_type="statement_timeout", retrieval_details=None)
    other = invocation(tool_name="sources.list", retrieval_details=None)
    for call in (failed, other):
        await recorder.record(call)
    report = await service.why(TENANT, failed.id, "a.md")
    assert (report.stage, report.reason) == (Stage.CALL, "ERROR")
    assert "statement_timeout" in report.sentence
    assert (await service.why(TENANT, other.id, "a.md")).reason == "NO_DETAILS"


async def test_why_does_without_the_question_when_privacy_left_it_out(database, settings, service):
    context = await add_context(database)
    await add_source(database, context, "a.md", "Reset it.")
    call = asked(context)
    await Recorder(database, msgspec.structs.replace(settings, trace_query="none")).record(call)
    report = await service.why(TENANT, call.id, "a.md")
    assert (report.stage, report.reason, report.live.terms_held) == (Stage.LANE, "NOT_NOMINATED", [])
    assert "The question is not stored, so its terms could not be looked for." in report.notes


async def test_why_survives_deleted_contexts_and_arguments_it_cannot_read(database, recorder, service):
    context = await add_context(database)
    await add_source(database, context, "a.md", "Reset it.")
    call = asked(context, arguments={"query": "reset", "topK": "many"})
    await recorder.record(call)
    report = await service.why(TENANT, call.id, "a.md")
    assert "The filters of the request could not be read back." in report.notes
    async with database.work(TENANT) as connection:
        await connection.execute("DELETE FROM context WHERE context_id = $1", context)
    report = await service.why(TENANT, call.id, "a.md")
    assert (report.reason, str(context) in report.sentence) == ("NOT_INGESTED", True)


@pytest.mark.parametrize("target", ["", "  ", "\x00", "\udbff", "x" * 3000])
async def test_an_empty_or_endless_target_is_refused(recorder, service, target):
    call = invocation()
    await recorder.record(call)
    with pytest.raises(StrataError) as raised:
        await service.why(TENANT, call.id, target)
    assert (raised.value.kind, raised.value.pointer) == (INVALID_REQUEST, "?target")


@pytest.mark.parametrize("target", ["9" * 19, "%", "' OR 1=1 --", "a\\b", "../../x", "漢字.md", "(", "1" * 400])
async def test_a_target_is_data(database, recorder, service, target):
    context = await add_context(database, f"kb{os.getpid()}")
    call = asked(context)
    await recorder.record(call)
    assert (await service.why(TENANT, call.id, target)).stage is Stage.INGEST
