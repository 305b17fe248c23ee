"""Every query of docs/trace-review.md runs on a seeded trace and returns what its heading promises."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import msgspec
import pytest

from strata.platform.ids import new_id
from strata.traces import schemas
from strata.traces.schemas import FiltersTrace, LaneTrace, PostprocessTrace, Status
from strata.traces.service import Recorder
from strata.traces.tables import ToolInvocation
from traces_samples import TENANT, add_context, add_source, asked, block, details, invocation, omission, ranks

pytestmark = pytest.mark.database

DOCUMENT = Path(__file__).parents[2] / "docs" / "trace-review.md"


def blocks() -> dict[str, list[str]]:
    """Return the queries of each heading."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        if queries := re.findall(r"```sql\n(.*?)```", body, flags=re.DOTALL):
            found[heading] = queries
    return found


def bound(query: str, variables: dict[str, object]) -> str:
    """Put literals where psql puts its variables."""
    return re.sub(r":'(\w+)'", lambda match: "'" + str(variables[match[1]]).replace("'", "''") + "'", query)


@pytest.fixture
async def seeded(database, settings):
    recorder = Recorder(database, settings)
    context = await add_context(database)
    for path in ("docs/a.md", "docs/b.md", "docs/unused.md"):
        await add_source(database, context, path, "Text.")
    before = asked(
        context,
        session_id="s-1",
        agent_id="planner",
        request_id="r-1",
        retrieval_details=details(
            [block(1, "docs/a.md"), block(2, "docs/b.md", lane_ranks=ranks(lexical=2, vector=1))],
            [
                omission("docs/near.md", "BELOW_TOP_K", lane_ranks=ranks(lexical=3, vector=40)),
                omission("docs/copy.md", "NEAR_DUPLICATE", duplicate_of="path:docs/a.md"),
                omission("docs/low.md", "BELOW_FLOOR", lane_ranks=ranks(vector=60)),
            ],
        ),
    )
    after = asked(
        context,
        session_id="s-1",
        agent_id="planner",
        trace_id="cd" * 16,
        relevance_level="LOW",
        retrieval_details=details(
            [block(1, "docs/b.md"), block(2, "docs/new.md", hit_reasons=["CATEGORY_FILTER_RELAXED"])],
            [omission("docs/a.md", "BELOW_TOP_K", lane_ranks=ranks(lexical=4))],
            filters=FiltersTrace(category="hr", relaxed=True),
        ),
    )
    miss = asked(
        context,
        status=Status.NOT_FOUND,
        found=False,
        relevance_level="NONE",
        completeness_hint="EMPTY",
        evidence_count=0,
        arguments={"query": "Who is Zed?"},
        retrieval_details=details(empty_reason="UNKNOWN_TERMS", postprocess=PostprocessTrace(raw=0)),
    )
    degraded = asked(
        context,
        status=Status.DEGRADED,
        duration_ms=900.0,
        retrieval_details=details(
            [block(1, "docs/a.md")],
            lanes={
                "lexical": LaneTrace(ran=True, candidates=4, duration_ms=2.5),
                "vector": LaneTrace(ran=False, reason="PROVIDER_DOWN"),
            },
        ),
    )
    failed = invocation(status=Status.ERROR, error_type="overloaded", found=None, retrieval_details=None)
    cancelled = invocation(status=Status.CANCELLED, found=None, retrieval_details=None)
    for call in (before, after, miss, degraded, failed, cancelled):
        await recorder.record(call)
    await recorder.close()
    return {
        "lookup_id": before.id,
        "source": "docs/low.md",
        "before_id": before.id,
        "after_id": after.id,
        "session_id": "s-1",
        "trace_id": "cd" * 16,
        "request_id": "r-1",
    }


EXPECTED = {
    "Why did this passage not show?": [
        lambda rows: (
            [(r["stage"], r["reason"]) for r in rows] == [("FLOOR", "BELOW_FLOOR")]
            and rows[0]["lane_ranks"] == [{"lane": "vector", "rank": 60}]
        )
    ],
    "Where did the candidates of one call go?": [
        lambda rows: (
            {(r["stage"], r["candidates"]) for r in rows}
            == {("SELECTED", 2), ("TOP_K", 1), ("DEDUPLICATION", 1), ("FLOOR", 1)}
        ),
        lambda rows: [tuple(r.values()) for r in rows] == [(3, 3, [])],
    ],
    "Which near misses were good in some lane?": [
        lambda rows: (
            [(r["source"], r["stage"], r["lane"], r["rank"]) for r in rows] == [("docs/near.md", "TOP_K", "lexical", 3)]
        )
    ],
    "Which document answered most?": [
        lambda rows: (
            [(r["source"], r["first_places"], r["lookups"]) for r in rows]
            == [("docs/a.md", 2, 2), ("docs/b.md", 1, 2), ("docs/new.md", 0, 1)]
        ),
    ]
    * 2,
    "Which sources were never used?": [lambda rows: [r["path"] for r in rows] == ["docs/unused.md"]],
    "Which questions found nothing?": [
        lambda rows: (
            [(r["question"], r["empty_reason"], r["times"]) for r in rows] == [("who is zed?", "UNKNOWN_TERMS", 1)]
        )
    ],
    "Which answers were weak?": [lambda rows: [(r["query"], r["times"]) for r in rows] == [("How do I reset it?", 1)]],
    "Which questions are asked again in the same session?": [
        lambda rows: [(r["session_id"], r["times"]) for r in rows] == [("s-1", 2)]
    ],
    "What did the category filter relax?": [
        lambda rows: [(r["category"], r["blocks_from_outside"]) for r in rows] == [("hr", 1)]
    ],
    "What changed between two calls of the same question?": [
        lambda rows: (
            [(r["source_key"], r["rank_before"], r["rank_after"]) for r in rows]
            == [("path:docs/a.md", 1, None), ("path:docs/b.md", 2, 1), ("path:docs/new.md", None, 2)]
            and rows[0]["revisions_before"][0]["revision"] == 1
        ),
        lambda rows: (
            [(r["source_key"], r["stage"], r["reason"]) for r in rows] == [("path:docs/a.md", "TOP_K", "BELOW_TOP_K")]
        ),
    ],
    "How long does each lane take?": [
        lambda rows: (
            [(r["lane"], r["runs"], r["p95_ms"] and round(r["p95_ms"], 2)) for r in rows]
            == [("lexical", 4, 3.1), ("vector", 0, None)]
        )
    ],
    "Which lookups were slowest, and where?": [
        lambda rows: [(r["duration_ms"], r["l1_ms"]) for r in rows] == [(900.0, 3.5)]
    ],
    "What does each lane contribute?": [
        lambda rows: [(r["lane"], r["blocks"], r["only_here"]) for r in rows] == [("lexical", 5, 4), ("vector", 1, 0)]
    ],
    "How often does each agent find something?": [
        lambda rows: (
            [(r["agent"], r["lookups"], float(r["hit_rate"]), float(r["high_rate"])) for r in rows]
            == [("(none)", 2, 0.5, 0.5), ("planner", 2, 1.0, 0.5)]
        )
    ],
    "What happened in one session?": [lambda rows: [r["status"] for r in rows] == ["SUCCESS", "SUCCESS"]],
    "Which row belongs to this trace or request?": [lambda rows: len(rows) == 2],
    "Why were answers degraded?": [
        lambda rows: [(r["lane"], r["reason"], r["calls"]) for r in rows] == [("vector", "PROVIDER_DOWN", 1)]
    ],
    "Which calls failed or were cancelled?": [
        lambda rows: {(r["status"], r["error_type"]) for r in rows} == {("ERROR", "overloaded"), ("CANCELLED", None)}
    ],
    "How much is dropped as a near duplicate?": [
        lambda rows: (
            [(r["context"], r["candidates"], r["near_duplicates"], float(r["share"])) for r in rows]
            == [("kb", 9, 1, 0.1111)]
        ),
        lambda rows: [(r["duplicate_of"], r["source_key"]) for r in rows] == [("path:docs/a.md", "path:docs/copy.md")],
    ],
    "How fast does the trace grow?": [
        lambda rows: [r["calls"] for r in rows] == [6] and rows[0]["bytes_a_call"] > 500,
        lambda rows: len(rows) == 10 and rows[0]["partition"].startswith("tool_invocation_p"),
    ],
}


def test_every_documented_query_has_its_expectation():
    documented = {heading: len(queries) for heading, queries in blocks().items() if heading != "Open a session"}
    assert documented == {heading: len(checks) for heading, checks in EXPECTED.items()}
    assert len(documented) >= 10


async def test_every_documented_query_returns_what_it_promises(dsn, seeded):
    connection = await asyncpg.connect(dsn)
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=lambda v: msgspec.json.encode(v).decode(), decoder=msgspec.json.decode
    )
    queries = blocks()
    await connection.execute(queries.pop("Open a session")[0])
    for heading, checks in EXPECTED.items():
        for query, check in zip(queries[heading], checks, strict=True):
            rows = await connection.fetch(bound(query, seeded))
            assert check(rows), (heading, [dict(row) for row in rows])
    await connection.close()


VIEWS = (
    "tool_invocation_evidence",
    "tool_invocation_omitted",
    "tool_invocation_candidates",
    "tool_invocation_lanes",
    "lookup_misses",
    "lookup_slow",
    "source_usage",
)


async def test_every_view_keeps_tenants_apart(dsn, seeded):
    connection = await asyncpg.connect(dsn)
    await connection.execute("SET ROLE strata_app")
    for tenant, has_rows in ((TENANT, True), (new_id(), False), ("", False)):
        await connection.execute(f"SET strata.tenant_id = '{tenant}'")
        for view in VIEWS:
            assert (await connection.fetchval(f"SELECT count(*) FROM {view}") > 0) is has_rows, view
            with pytest.raises(asyncpg.PostgresError):
                await connection.execute(f"DELETE FROM {view}")
    await connection.close()


async def test_every_view_is_documented(dsn):
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch(
        "SELECT relname, reloptions FROM pg_class WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace"
    )
    await connection.close()
    assert {row["relname"] for row in rows} >= set(VIEWS)
    text = DOCUMENT.read_text(encoding="utf-8")
    for row in rows:
        if row["relname"] in VIEWS:
            assert "security_invoker=true" in row["reloptions"]
            assert f"`{row['relname']}`" in text


def test_every_column_and_every_field_is_documented():
    section = DOCUMENT.read_text(encoding="utf-8").split("## The row")[1].split("## Open a session")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert named >= {column.name for column in ToolInvocation.__table__.columns}
    for kind in (
        schemas.RetrievalDetails,
        schemas.ContextRevision,
        schemas.HintLayerTrace,
        schemas.RetrievalLayerTrace,
        schemas.LaneTrace,
        schemas.FiltersTrace,
        schemas.PostprocessTrace,
        schemas.BudgetTrace,
        schemas.BlockTrace,
        schemas.OmissionTrace,
    ):
        assert named >= set(kind.__struct_encode_fields__), kind


async def test_views_read_rows_without_or_with_foreign_details(dsn):
    connection = await asyncpg.connect(dsn)
    for number, stored in enumerate((None, "{}", '{"lanes": [], "evidenceBlocks": "x", "omitted": {"reason": 1}}')):
        await connection.execute(
            "INSERT INTO tool_invocation (tenant_id, id, created_at, tool_name, surface, status, duration_ms, found, "
            "retrieval_details) VALUES ($1, $2, $3, 'lookup', 'CLI', 'SUCCESS', 1, false, $4)",
            TENANT,
            new_id(),
            datetime.now(UTC) - timedelta(hours=number),
            stored,
        )
    for view in VIEWS:
        await connection.fetch(f"SELECT * FROM {view}")
    assert await connection.fetchval("SELECT count(*) FROM lookup_misses") == 3
    await connection.close()
