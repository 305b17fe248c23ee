"""Every call leaves its row; nothing about the row reaches the caller."""

from __future__ import annotations

import asyncio
import hashlib
import time
from uuid import uuid4

import asyncpg
import msgspec
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT, new_id
from strata.traces import recorder as recorder_module
from strata.traces import repository
from strata.traces.schemas import Status, Surface
from strata.traces.service import Recorder
from traces_samples import block, details, invocation, omission, ranks

pytestmark = pytest.mark.database


async def _rows(database, tenant=DEFAULT_TENANT):
    async with database.work(tenant) as connection:
        return await connection.fetch("SELECT * FROM tool_invocation ORDER BY created_at, id")


async def test_a_call_is_recorded_whole(database, settings):
    call = invocation(session_id="s-1", agent_id="a-1", request_id="r-1")
    await Recorder(database, settings).record(call)
    (row,) = await _rows(database)
    assert row["id"] == call.id
    assert (row["surface"], row["status"], row["tool_name"]) == ("REST", "SUCCESS", "lookup")
    assert (row["session_id"], row["agent_id"], row["request_id"]) == ("s-1", "a-1", "r-1")
    assert (row["trace_id"], row["span_id"]) == (call.trace_id, call.span_id)
    assert row["arguments"] == {"query": "How do I reset it?", "context": "default", "topK": 5}
    assert (row["found"], row["relevance_level"], row["completeness_hint"]) == (True, "HIGH", "COMPLETE")
    assert (row["evidence_count"], row["duration_ms"]) == (1, 4.25)
    assert row["retrieval_details"]["evidenceBlocks"][0]["sourceKey"] == "path:docs/a.md"


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("surface", list(Surface))
async def test_every_ending_on_every_surface_can_be_recorded(database, settings, status, surface):
    call = invocation(
        status=status,
        surface=surface,
        context_id=None,
        found=None,
        relevance_level=None,
        completeness_hint=None,
        evidence_count=0,
        error_type="statement_timeout",
        error_message="The statement took too long.",
        retrieval_details=None,
        trace_id=None,
        span_id=None,
    )
    await Recorder(database, settings).record(call)
    (row,) = await _rows(database)
    assert (row["status"], row["surface"], row["error_type"]) == (status, surface, "statement_timeout")
    assert row["retrieval_details"] is None


async def test_ugly_values_are_cleaned_and_recorded(database, settings):
    call = invocation(
        tool_name="look\x00up",
        session_id="s" * 1000,
        agent_id="\udbff",
        trace_id="not a trace id",
        arguments={"query": "a\x00\udbff😀", "k\x00": float("inf"), "n": 10**40},
        error_message="e\x00" * 5000,
        duration_ms=-1.0,
        retrieval_details=details([block(1, "docs/\x00a.md", title="\udc00漢字")]),
    )
    await Recorder(database, settings).record(call)
    (row,) = await _rows(database)
    assert row["tool_name"] == "lookup"
    assert (len(row["session_id"]), row["agent_id"], row["trace_id"]) == (128, "", None)
    assert row["arguments"] == {"query": "a😀", "k": None, "n": str(10**40)}
    assert (len(row["error_message"]), row["duration_ms"]) == (2000, 0.0)
    assert row["retrieval_details"]["evidenceBlocks"][0]["title"] == "漢字"


async def test_retrieval_details_stay_under_64_kib_as_postgres_prints_them(database, settings):
    many = [omission(f"docs/{n}.md", "BELOW_TOP_K", lane_ranks=ranks(lexical=n, vector=n)) for n in range(1, 2001)]
    await Recorder(database, settings).record(invocation(retrieval_details=details([block(1, "docs/a.md")], many)))
    async with database.work(DEFAULT_TENANT) as connection:
        size = await connection.fetchval("SELECT octet_length(retrieval_details::text) FROM tool_invocation")
    assert 60_000 < size < 64 * 1024


@pytest.mark.parametrize("privacy", ["text", "hash", "none"])
async def test_the_question_is_stored_as_the_setting_says(database, settings, privacy):
    await Recorder(database, msgspec.structs.replace(settings, trace_query=privacy)).record(invocation())
    (row,) = await _rows(database)
    stored = row["arguments"].get("query")
    digest = hashlib.sha256(b"How do I reset it?").hexdigest()
    assert stored == {"text": "How do I reset it?", "hash": {"sha256": digest, "chars": 18}, "none": None}[privacy]
    if privacy != "text":
        assert "reset" not in str(dict(row))


async def test_a_row_outlives_the_cancellation_of_its_call(database, settings):
    recorder = Recorder(database, settings)
    began = asyncio.Event()

    async def call():
        try:
            began.set()
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await recorder.record(invocation(status=Status.CANCELLED))
            raise

    task = asyncio.create_task(call())
    await began.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await recorder.close()
    assert [row["status"] for row in await _rows(database)] == ["CANCELLED"]


@pytest.fixture
def failures(monkeypatch):
    """Give what the counter of lost rows stands at."""
    reader = InMemoryMetricReader()
    counter = MeterProvider([reader]).get_meter("test").create_counter("strata.invocation.record.failures")
    monkeypatch.setattr(recorder_module, "_failures", counter)

    def read() -> int:
        data = reader.get_metrics_data()
        return data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points[0].value if data else 0

    return read


async def test_a_row_that_can_never_be_written_is_counted_and_not_raised(database, settings, failures):
    recorder = Recorder(database, settings)
    await recorder.record(invocation(arguments=None))
    await recorder.record(invocation(relevance_level="SOMEWHAT"))
    await recorder.close()
    assert failures() == 2


async def test_a_database_that_stays_away_costs_the_rows_and_nothing_else(settings, failures, monkeypatch):
    monkeypatch.setattr(recorder_module, "PAUSES", (0.01, 0.01))
    gone = Database("postgresql://strata@127.0.0.1:1/none", settings)
    recorder = Recorder(gone, settings)
    for _ in range(3):
        await recorder.record(invocation())
    await recorder.close()
    assert failures() == 3


async def test_a_row_refused_by_an_overloaded_database_is_written_later_once(
    dsn, database, settings, failures, monkeypatch
):
    monkeypatch.setattr(recorder_module, "WRITE_SECONDS", 0.2)
    monkeypatch.setattr(recorder_module, "GROUP_SECONDS", 0.2)
    monkeypatch.setattr(recorder_module, "PAUSES", (0.05,) * 40)
    blocker = await asyncpg.connect(dsn)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("LOCK TABLE tool_invocation IN ACCESS EXCLUSIVE MODE")
    recorder = Recorder(database, settings)
    started = time.perf_counter()
    await recorder.record(call := invocation())
    assert 0.15 < time.perf_counter() - started < 1.5
    await asyncio.sleep(0.5)
    await transaction.rollback()
    await blocker.close()
    await recorder.close()
    assert [row["id"] for row in await _rows(database)] == [call.id]
    assert failures() == 0


async def test_a_row_that_was_written_after_all_is_not_written_twice(database, settings, monkeypatch):
    recorder = Recorder(database, settings)
    real = repository.insert

    async def insert_and_time_out(connection, row):
        async with database.work(row[0]) as other:
            await real(other, row)
        raise TimeoutError

    monkeypatch.setattr(repository, "insert", insert_and_time_out)
    await recorder.record(call := invocation())
    await recorder.close()
    assert [row["id"] for row in await _rows(database)] == [call.id]


async def test_grouped_rows_are_written_together_and_on_close(database, settings):
    recorder = Recorder(database, msgspec.structs.replace(settings, trace_grouped=True))
    other = uuid4()
    for number in range(450):
        await recorder.record(invocation(tenant_id=other if number % 3 == 0 else DEFAULT_TENANT))
    await recorder.close()
    assert (len(await _rows(database)), len(await _rows(database, other))) == (300, 150)
    await recorder.record(invocation())
    await asyncio.sleep(0.5)
    assert len(await _rows(database)) == 301
    await recorder.close()
    await recorder.close()


async def test_one_bad_row_does_not_take_its_group_along(database, settings, failures):
    recorder = Recorder(database, msgspec.structs.replace(settings, trace_grouped=True))
    for level in ("HIGH", "SOMEWHAT", "LOW"):
        await recorder.record(invocation(relevance_level=level))
    await recorder.close()
    assert [row["relevance_level"] for row in await _rows(database)] == ["HIGH", "LOW"]
    assert failures() == 1


async def test_the_answer_of_an_overloaded_service_does_not_wait_for_its_row(database, settings, monkeypatch):
    async def never(*_):
        raise AssertionError

    monkeypatch.setattr(repository, "insert", never)
    recorder = Recorder(database, settings)
    await recorder.record(invocation(status=Status.ERROR, error_type="overloaded", retrieval_details=None))
    assert await _rows(database) == []
    await recorder.close()
    assert [row["error_type"] for row in await _rows(database)] == ["overloaded"]


async def test_a_full_group_buffer_drops_rows_instead_of_growing(database, settings, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_WAITING", 3)
    recorder = Recorder(database, msgspec.structs.replace(settings, trace_grouped=True))
    for _ in range(5):
        await recorder.record(invocation())
    await recorder.close()
    assert len(await _rows(database)) == 3


async def test_recorded_rows_of_one_tenant_are_hidden_from_another(database, settings):
    await Recorder(database, settings).record(invocation())
    assert await _rows(database, new_id()) == []


async def test_a_durable_commit_can_be_asked_for(database, settings):
    await Recorder(database, msgspec.structs.replace(settings, trace_commit="sync")).record(invocation())
    assert len(await _rows(database)) == 1
