"""The metrics that a server gives; and that taking statistics in a migration leaves no row behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re

import asyncpg
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from assembly_support import serving
from strata.platform import telemetry
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose
from wire.seeds import fact

pytestmark = pytest.mark.database

NOBODY = "00000000-0000-0000-0000-0000000000ff"
HIDDEN = ("canary", "Harrow", "Brandt", "keeper", "nest.md", "aviary", "hush")


async def _rerank(reader, writer):
    """Answer one request of a reranker: the documents in the order in which they came."""
    with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            asked = json.loads(await reader.readexactly(int(re.search(r"content-length: (\d+)", head)[1])))
            answer = json.dumps({"results": [{"index": index} for index, _ in enumerate(asked["documents"])]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer)
            await writer.drain()


@pytest.fixture
async def api(settings, database):
    """An application with a reranker, whose metrics are kept for Prometheus."""
    async with await asyncio.start_server(_rerank, "127.0.0.1", 0) as server:
        own = msgspec.structs.replace(
            settings,
            rerank_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/rerank?token=hush",
            rerank_model="canary-model",
            rerank_api_key="canary-key",
        )
        telemetry.setup_telemetry(own, environ={})
        services = compose(own, database)
        async with serving(own, services) as opened:
            yield opened
        await services.close()
        telemetry.shutdown_telemetry()


async def test_metrics_are_prometheus_text_and_hold_neither_texts_nor_names_nor_keys(api):
    path = await api.context("aviary")
    texts = {"nest.md": "The canary keeper of Harrow Light is Ida Brandt.\n\nHarrow Light is open on Sundays."}
    await api.send("POST", f"{path}/sources", {"passages": texts})
    await api.send("POST", f"{path}/associations", [fact("Harrow Light", "keeper", "Ida Brandt", source="nest.md")])
    assert (await api.lookup("canary keeper", "aviary"))["found"]
    package = await api.evidence("aviary", "Harrow Light", text_fallback_query="canary keeper", rerank={})
    assert package["plan"]["reranker"]["ran"]

    response = await api.http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert [word for word in HIDDEN if word in response.text] == []
    samples = [sample for family in text_string_to_metric_families(response.text) for sample in family.samples]

    def value(name, **labels):
        return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())

    assert value("strata_rerank_requests_total", outcome="ran") == 1
    assert value("strata_rerank_requests_total") == 1
    assert value("strata_rerank_duration_seconds_count", outcome="ran") == 1
    assert value("strata_rerank_breaker") == 0
    assert "strata_rerank_breaker" in {one.name for one in samples}
    assert value("strata_lookup_duration_seconds_count", surface="REST", status="SUCCESS") == 1
    assert value("strata_invocations_total", tool="lookup", status="SUCCESS") == 1
    assert value("strata_invocations_total", tool="assemble_evidence", status="SUCCESS") == 1
    assert value("strata_lane_duration_seconds_count", lane="lexical") >= 1
    assert value("http_server_request_duration_seconds_count", http_route="/api/v1/lookup") == 1


async def test_the_tenant_whose_rows_gave_the_statistics_has_none_left(dsn):
    owner = await asyncpg.connect(dsn)
    try:
        # Policies hold the owner of tables too, where it is no superuser.
        await owner.execute("SELECT set_config('strata.tenant_id', $1, false)", NOBODY)
        tables = await owner.fetch(
            "SELECT format('%I', table_name) AS name FROM information_schema.columns "
            "JOIN information_schema.tables USING (table_schema, table_name) "
            "WHERE table_schema = 'public' AND column_name = 'tenant_id' AND table_type = 'BASE TABLE' ORDER BY 1"
        )
        names = [row["name"] for row in tables]
        assert {"tenant", "context", "concept", "label", "alias", "association", "attribution"} <= set(names)
        left = {
            name: await owner.fetchval(f"SELECT count(*) FROM {name} WHERE tenant_id = $1", NOBODY) for name in names
        }
        assert {name: count for name, count in left.items() if count} == {}
        await owner.execute("SELECT set_config('strata.tenant_id', $1, false)", str(DEFAULT_TENANT))
        assert [await owner.fetchval(f"SELECT count(*) FROM {name}") for name in ("context", "concept", "label")] == [
            0
        ] * 3
    finally:
        await owner.close()
