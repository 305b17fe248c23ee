"""Spans, metrics, ids and logs, read back."""

import ast
import asyncio
import http.server
import io
import json
import logging
import threading
import time
from pathlib import Path

import httpx
import msgspec
import pytest
import structlog
from litestar import Litestar, get
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from embedding_support import WordEmbedders
from strata.app import create_app
from strata.errors import CONTEXT_NOT_FOUND, DATABASE_UNAVAILABLE, StrataError
from strata.platform import telemetry
from strata.platform.border import guard
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.logging import redact, setup_logging
from strata.platform.problems import EXCEPTION_HANDLERS
from strata.providers.embeddings.local import LOCAL_SPACE
from strata.services import compose
from strata.settings import load_settings
from strata.sources.model import DocumentInput

ROOT = Path(__file__).parents[2]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


@pytest.fixture
def plain(home):
    return load_settings({}, home=str(home))


@pytest.fixture
def exporter(plain):
    exporter = InMemorySpanExporter()
    telemetry.setup_telemetry(plain, environ={}, span_exporter=exporter)
    yield exporter
    telemetry.shutdown_telemetry()


@pytest.fixture
def reader(plain):
    reader = InMemoryMetricReader()
    telemetry.setup_telemetry(plain, environ={}, metric_reader=reader)
    yield reader
    telemetry.shutdown_telemetry()


def points(reader):
    found = {}
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found[metric.name] = {
                    tuple(sorted(point.attributes.items())): point for point in metric.data.data_points
                }
    return found


def test_every_call_has_ids_although_nothing_is_exported(plain):
    telemetry.setup_telemetry(plain, environ={})
    assert telemetry.current_ids() == ("0" * 32, "0" * 16)
    with telemetry.span("outer"):
        outer = telemetry.current_ids()
        with telemetry.span("inner"):
            inner = telemetry.current_ids()
    assert outer[0] == inner[0] != "0" * 32
    assert outer[1] != inner[1]
    assert len(outer[1]) == 16


def test_the_disabled_sdk_still_gives_ids(plain):
    telemetry.setup_telemetry(
        plain, environ={"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    )
    with telemetry.span("call") as span:
        assert not span.is_recording()
        assert telemetry.current_ids()[0] != "0" * 32


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318/v1/metrics"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, False),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "otlp"}, False),
    ],
)
def test_spans_are_sent_only_when_the_standard_variables_say_so(environ, wanted):
    assert telemetry._wants_otlp(environ, "TRACES") is wanted


@pytest.mark.parametrize(
    ("headers", "trace", "sampled"),
    [
        ({"traceparent": f"00-{TRACE}-{PARENT}-01"}, TRACE, True),
        ({"traceparent": f"00-{TRACE}-{PARENT}-00"}, TRACE, False),
        ({"b3": f"{TRACE}-{PARENT}-1"}, TRACE, True),
        ({"b3": f"{TRACE}-{PARENT}"}, TRACE, True),
        ({"b3": f"{TRACE}-{PARENT}-0"}, TRACE, False),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": PARENT}, TRACE, True),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": PARENT, "x-b3-sampled": "0"}, TRACE, False),
        ({"x-b3-traceid": "a3ce929d0e0e4736", "x-b3-spanid": PARENT}, "0" * 16 + "a3ce929d0e0e4736", True),
        ({"traceparent": f"00-{TRACE}-{PARENT}-01", "b3": f"{'a' * 32}-{PARENT}-1"}, TRACE, True),
        ({"traceparent": "garbage", "b3": "more-garbage"}, None, True),
        ({"traceparent": f"00-{'0' * 32}-{PARENT}-01"}, None, True),
        ({"baggage": "\x01;;=,=" * 10_000}, None, True),
    ],
)
def test_the_callers_trace_is_continued(exporter, headers, trace, sampled):
    with telemetry.server_span("GET", headers):
        ids = telemetry.current_ids()
        parent = telemetry.current_traceparent()
    assert ids[0] == trace if trace else ids[0] not in {"0" * 32, TRACE}
    assert parent == f"00-{ids[0]}-{ids[1]}-{'01' if sampled else '00'}"
    spans = exporter.get_finished_spans()
    assert len(spans) == (1 if sampled else 0)
    if sampled and trace:
        assert f"{spans[0].parent.span_id:016x}" == PARENT


def test_only_failures_of_ours_have_the_error_status(exporter):
    cases = {
        "miss": (StrataError(CONTEXT_NOT_FOUND, "canary"), StatusCode.UNSET, "context_not_found"),
        "down": (StrataError(DATABASE_UNAVAILABLE, "canary"), StatusCode.ERROR, "database_unavailable"),
        "gone": (asyncio.CancelledError("canary"), StatusCode.UNSET, "cancelled"),
        "defect": (ValueError("canary"), StatusCode.ERROR, "ValueError"),
    }
    for name, (error, _, _) in cases.items():
        with pytest.raises(type(error)), telemetry.span(name):
            raise error
    for span in exporter.get_finished_spans():
        _, status, kind = cases[span.name]
        assert (span.status.status_code, span.attributes["error.type"]) == (status, kind)
        assert "canary" not in span.to_json()


def test_text_is_left_out_of_spans_unless_it_is_allowed(exporter, home):
    with telemetry.span("strata.lookup", query="canary", surface="REST", nothing=None) as span:
        telemetry.set_attributes(span, title="canary", hits=3)
    (span,) = exporter.get_finished_spans()
    assert dict(span.attributes) == {"strata.surface": "REST", "strata.hits": 3}
    allowed = InMemorySpanExporter()
    telemetry.setup_telemetry(
        load_settings({}, home=str(home), trace_span_text=True), environ={}, span_exporter=allowed
    )
    with telemetry.span("strata.lookup", query="asked"):
        pass
    assert allowed.get_finished_spans()[0].attributes["strata.query"] == "asked"


def test_stages_lanes_and_calls_are_measured(reader):
    with telemetry.stage("fusion"), telemetry.lane("lexical"):
        pass
    telemetry.record_lookup(0.004, surface="REST", status="SUCCESS")
    telemetry.count_invocation(tool="lookup", surface="REST", status="SUCCESS")
    found = points(reader)
    assert found["strata.stage.duration"][(("stage", "fusion"),)].count == 1
    assert found["strata.lane.duration"][(("lane", "lexical"),)].count == 1
    key = (("status", "SUCCESS"), ("surface", "REST"))
    assert found["strata.lookup.duration"][key].sum == pytest.approx(0.004)
    assert found["strata.invocations"][(*key, ("tool", "lookup"))].value == 1


async def test_vectors_of_passages_and_of_questions_are_counted(reader, settings, database, embedder):
    services = compose(settings, database, embedders=WordEmbedders(embedder))
    documents = [DocumentInput(content=f"text {n}", path=f"{n}.txt") for n in range(40)]
    await services.sources.ingest(DEFAULT_TENANT, "c", documents)
    await services.embeddings.run(DEFAULT_TENANT)
    await services.close()
    for is_hit in (False, True, True):
        telemetry.count_query_vector(is_hit)
    found = points(reader)
    assert found["strata.embeddings.passages"][()].value == 40
    asked = found["strata.embeddings.queries"]
    assert {cache: point.value for ((_, cache),), point in asked.items()} == {"hit": 2, "miss": 1}


async def test_services_count_the_vectors_of_questions_that_their_embedder_makes(reader, settings, database):
    services = compose(msgspec.structs.replace(settings, embeddings="local"), database)
    space = msgspec.structs.replace(LOCAL_SPACE, model="another")
    with pytest.raises(StrataError):
        await services.embedders.query_vector(space, "asked")
    await services.close()
    assert points(reader)["strata.embeddings.queries"][(("cache", "miss"),)].value == 1


def test_spans_and_metrics_reach_an_otlp_collector(plain, monkeypatch):
    posted = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "strata-under-test")
        telemetry.setup_telemetry(plain)
        with telemetry.lane("lexical"):
            pass
        telemetry.shutdown_telemetry()
        server.shutdown()
        thread.join()
    bodies = dict(posted)
    assert set(bodies) == {"/v1/traces", "/v1/metrics"}
    assert b"strata-under-test" in bodies["/v1/traces"]
    assert b"strata.lane" in bodies["/v1/traces"]


def test_a_span_costs_microseconds(plain):
    telemetry.setup_telemetry(plain, environ={})

    def once():
        started = time.perf_counter()
        for _ in range(500):
            with telemetry.span("call", a=1):
                telemetry.current_ids()
        return (time.perf_counter() - started) / 500

    assert min(once() for _ in range(10)) < 100e-6


@pytest.mark.database
async def test_one_lookup_is_one_trace_from_the_request_to_its_row(settings, database, exporter):
    services = compose(settings, database)
    app = create_app(settings, services=services)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://strata.test") as client:
        await client.post("/api/v1/contexts/c/sources", json={"path": "a.md", "content": "# Alpha\n\nBeta gamma.\n"})
        exporter.clear()
        response = await client.post(
            "/api/v1/lookup",
            json={"query": "canary gamma", "context": "c"},
            headers={"traceparent": f"00-{TRACE}-{PARENT}-01"},
        )
        assert response.status_code == 200, response.text
        result = response.json()
        row = (await client.get(f"/api/v1/invocations/{result['lookupId']}")).json()
        missing = await client.post("/api/v1/lookup", json={"query": "x", "context": "none"})
        assert missing.status_code == 404
    await services.sources.close()
    assert result["traceId"] == row["traceId"] == TRACE
    assert response.headers["traceparent"].split("-")[1] == TRACE
    spans = [span for span in exporter.get_finished_spans() if f"{span.context.trace_id:032x}" == TRACE]
    names = {span.name for span in spans}
    assert {"POST /api/v1/lookup", "strata.lookup", "strata.lane"} <= names
    stages = {span.attributes["strata.stage"] for span in spans if span.name == "strata.stage"}
    assert {"confirm", "fusion", "selection", "record"} <= stages
    lanes = {span.attributes["strata.lane"] for span in spans if span.name == "strata.lane"}
    assert {"lexical", "hints"} <= lanes
    server = next(span for span in spans if span.kind is SpanKind.SERVER)
    assert server.attributes["http.response.status_code"] == 200
    assert row["spanId"] in {f"{span.context.span_id:016x}" for span in spans}
    assert all("canary" not in span.to_json() for span in exporter.get_finished_spans())
    assert all(span.status.status_code is StatusCode.UNSET for span in exporter.get_finished_spans())


TEXT = "document canary"
SECRETS = {
    "postgresql://me:hunter2@db/strata": "hunter2",
    "postgresql://me:p@ss:w0rd@db/strata": "p@ss",
    "jdbc:postgresql://db/x?user=me&password=hunter2&ssl=true": "hunter2",
    "Authorization: Bearer abc.def-ghi": "abc.def",
    "authorization=Basic dXNlcjpwYXNz": "dXNlcjpwYXNz",
    '{"api_key": "sk-canary"}': "sk-canary",
    "token=canary123": "canary123",
    "PGPASSWORD='canary'": "canary",
}


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_masked(text):
    assert SECRETS[text] not in redact(text)


@pytest.fixture
def log(plain):
    import msgspec

    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    setup_logging(msgspec.structs.replace(plain, log_format="json"))
    handler = next(item for item in root.handlers if item not in before[0])
    handler.stream = stream
    yield stream
    root.removeHandler(handler)
    root.handlers[:], root.level = before
    structlog.reset_defaults()


def _fail():
    def read():
        raise ValueError(TEXT)

    try:
        read()
    except ValueError as cause:
        raise StrataError(DATABASE_UNAVAILABLE, "The database went away.") from cause


def test_a_log_line_has_ids_and_no_secret_and_no_message_of_a_driver(log):
    logger = structlog.get_logger("test")
    with telemetry.span("call"):
        trace, span = telemetry.current_ids()
        try:
            _fail()
        except StrataError:
            logger.exception("failed", password="canary", dsn="postgresql://a:canary@h/d", text="lone \ud800")
    logging.getLogger("foreign").warning("Bearer %s", "canarycanary")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert len(lines) == 2
    assert (lines[0]["trace_id"], lines[0]["span_id"]) == (trace, span)
    assert lines[0]["password"] == "***"
    assert [key for key, value in lines[0].items() if "canary" in str(value)] == []
    assert "builtins.ValueError" in lines[0]["exception"]
    assert "The database went away." in lines[0]["exception"]
    assert "canary" not in log.getvalue()


async def test_each_request_leaves_one_line_without_its_query_string(log, plain):
    @get("/thing/{name:str}")
    async def thing(name: str) -> dict:
        raise RuntimeError(TEXT)

    with pytest.warns(match="deprecated"):
        app = Litestar([thing], exception_handlers=EXCEPTION_HANDLERS, openapi_config=None, logging_config=None)
    app.asgi_handler = guard(app.asgi_handler, plain)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://strata.test") as client:
        response = await client.get(
            "/thing/x?q=canary", headers={"authorization": "Bearer canary", "x-request-id": "r1"}
        )
    assert response.status_code == 500
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    access = [line for line in lines if line["event"] == "http.request"]
    assert len(access) == 1
    assert (access[0]["status"], access[0]["route"], access[0]["request_id"]) == (500, "/thing/{name}", "r1")
    assert [line["request_id"] for line in lines if line["event"] == "http.unexpected"] == ["r1"]
    ours = "\n".join(json.dumps(line) for line in lines if line["logger"].startswith("strata"))
    assert "canary" not in ours


def _names_in_code():
    spans, metrics = set(), set()
    for path in (ROOT / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in {"span", "_timed"} and isinstance(node.args[0].value, str):
                spans.add(node.args[0].value)
            if (
                name in {"seconds", "create_counter", "create_histogram", "create_gauge"}
                and path.name == "telemetry.py"
            ):
                metrics.add(node.args[0].value)
    return spans, metrics


def test_every_span_and_metric_is_documented_and_none_else():
    headings = {
        line.removeprefix("### ")
        for line in (ROOT / "docs/telemetry.md").read_text().splitlines()
        if line.startswith("### ")
    }
    spans, metrics = _names_in_code()
    assert spans
    assert spans | metrics | {"{method} {route}"} == headings
