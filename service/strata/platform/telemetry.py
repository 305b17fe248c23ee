"""OpenTelemetry: spans, metrics and the trace id that every call has.

Nothing is exported unless the standard OTEL_* variables say so. Without an exporter spans are not
recorded, but every call still has a trace id and a span id: the trace table needs them.
docs/telemetry.md lists every span and metric.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import structlog
from opentelemetry import baggage, metrics, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.propagators.b3 import B3MultiFormat
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from strata.errors import StrataError
from strata.settings import Settings

TEXT_ATTRIBUTES = frozenset({"query", "text", "title", "preview"})
"""Attributes that hold what a user wrote; dropped unless STRATA_TRACE_SPAN_TEXT is set."""

VERSION = version("strata")
_SCOPE = "strata"
_SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_BREAKER_STATES = {"closed": 0, "half_open": 1, "open": 2}

_log = structlog.get_logger(__name__)
_b3 = B3MultiFormat()
_w3c = TraceContextTextMapPropagator()
_baggage = W3CBaggagePropagator()
_ids = RandomIdGenerator()
# A malformed baggage header is the caller's business; its text does not belong into our log.
logging.getLogger("opentelemetry.baggage").setLevel(logging.ERROR)


def _quiet_span() -> Span:
    """Return a span with valid ids that records nothing: what runs when nothing is exported."""
    parent = trace.get_current_span().get_span_context()
    known = parent.is_valid
    return NonRecordingSpan(
        SpanContext(
            trace_id=parent.trace_id if known else _ids.generate_trace_id(),
            span_id=_ids.generate_span_id(),
            is_remote=False,
            trace_flags=parent.trace_flags if known else TraceFlags(TraceFlags.DEFAULT),
            trace_state=parent.trace_state if known else None,
        )
    )


@contextmanager
def _started(name: str, attributes: dict[str, Any], kind: SpanKind = SpanKind.INTERNAL) -> Iterator[Span]:
    """Make a new span the current one; end it, marked with its failure, when the body is over."""
    tracer = _state.tracer
    current = _quiet_span() if tracer is None else tracer.start_span(name, kind=kind, attributes=attributes)
    with trace.use_span(current, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield current
        except BaseException as error:
            mark_failure(current, error)
            raise


@dataclass(frozen=True, slots=True)
class _Instruments:
    lookup: metrics.Histogram
    stage: metrics.Histogram
    lane: metrics.Histogram
    request: metrics.Histogram
    invocations: metrics.Counter
    passages_embedded: metrics.Counter
    query_vectors: metrics.Counter
    rerank_requests: metrics.Counter
    rerank: metrics.Histogram
    rerank_breaker: metrics._Gauge


@dataclass(slots=True)
class _State:
    tracer: trace.Tracer | None
    instruments: _Instruments
    with_text: bool = False
    tracer_provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None


def _instruments(provider: metrics.MeterProvider) -> _Instruments:
    meter = provider.get_meter(_SCOPE, VERSION)

    def seconds(name: str, description: str) -> metrics.Histogram:
        return meter.create_histogram(
            name, unit="s", description=description, explicit_bucket_boundaries_advisory=_SECONDS_BUCKETS
        )

    return _Instruments(
        lookup=seconds("strata.lookup.duration", "One whole lookup, trace row included."),
        stage=seconds("strata.stage.duration", "One stage of the evidence pipeline."),
        lane=seconds("strata.lane.duration", "One retrieval lane."),
        request=seconds("http.server.request.duration", "One HTTP request."),
        invocations=meter.create_counter("strata.invocations", unit="{call}", description="Calls of tools, by status."),
        passages_embedded=meter.create_counter(
            "strata.embeddings.passages", unit="{passage}", description="Vectors of passages stored."
        ),
        query_vectors=meter.create_counter(
            "strata.embeddings.queries", unit="{query}", description="Vectors of questions asked for, by cache."
        ),
        rerank_requests=meter.create_counter(
            "strata.rerank.requests", unit="{request}", description="Rerankings asked for, by outcome."
        ),
        rerank=seconds("strata.rerank.duration", "One reranking that called its service, both attempts included."),
        rerank_breaker=meter.create_gauge(
            "strata.rerank.breaker", description="The reranker's breaker: 0 closed, 1 half open, 2 open."
        ),
    )


_state = _State(None, _instruments(metrics.NoOpMeterProvider()))


def setup_telemetry(
    settings: Settings,
    *,
    environ: Mapping[str, str] | None = None,
    span_exporter: SpanExporter | None = None,
    metric_reader: MetricReader | None = None,
) -> None:
    """Read the OTEL_* variables and start what they ask for; calling it again replaces the former.

    ``span_exporter`` and ``metric_reader`` are used as they are, whatever the environment says.
    """
    global _state  # noqa: PLW0603 - telemetry is of the process, as OpenTelemetry's own is
    env = os.environ if environ is None else environ
    shutdown_telemetry()
    resource = Resource.create({"service.name": env.get("OTEL_SERVICE_NAME") or "strata"}).merge(
        Resource({"service.version": VERSION})
    )
    tracer_provider = _tracer_provider(env, resource, span_exporter)
    meter_provider = _meter_provider(env, resource, metric_reader)
    _state = _State(
        tracer_provider.get_tracer(_SCOPE, VERSION) if tracer_provider else None,
        _instruments(meter_provider or metrics.NoOpMeterProvider()),
        settings.trace_span_text,
        tracer_provider,
        meter_provider,
    )


def shutdown_telemetry() -> None:
    """Send what is buffered and stop; safe to call when nothing runs."""
    global _state
    previous, _state = _state, _State(None, _instruments(metrics.NoOpMeterProvider()))
    if previous.tracer_provider is not None:
        previous.tracer_provider.shutdown()
    if previous.meter_provider is not None:
        previous.meter_provider.shutdown(timeout_millis=5_000)


def _tracer_provider(env: Mapping[str, str], resource: Resource, given: SpanExporter | None) -> TracerProvider | None:
    if given is None and not _wants_otlp(env, "TRACES"):
        return None
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if given is not None:
        provider.add_span_processor(SimpleSpanProcessor(given))
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _meter_provider(env: Mapping[str, str], resource: Resource, given: MetricReader | None) -> MeterProvider | None:
    readers = [given] if given else _metric_readers(env)
    return MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False) if readers else None


def _metric_readers(env: Mapping[str, str]) -> list[MetricReader]:
    """Return who reads the metrics: ``GET /metrics`` unless the environment turns metrics off, and OTLP if asked."""
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true" or env.get("OTEL_METRICS_EXPORTER") == "none":
        return []
    readers: list[MetricReader] = [PrometheusMetricReader()]
    if _wants_otlp(env, "METRICS"):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    return readers


def metrics_text() -> tuple[bytes, str]:
    """Return the metrics of this process in Prometheus's text format, and its media type."""
    return generate_latest(), CONTENT_TYPE_LATEST


def _wants_otlp(env: Mapping[str, str], signal: str) -> bool:
    """Return whether OTEL_* ask for an OTLP exporter; only OTLP over HTTP is built in."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = env.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    endpoint = env.get("OTEL_EXPORTER_OTLP_ENDPOINT") or env.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    protocol = env.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL") or ""
    if exporter in {"", "otlp"} and protocol not in {"", "http/protobuf"}:
        _log.warning("telemetry.protocol_unsupported", protocol=protocol, used="http/protobuf")
    if exporter not in {"", "otlp", "none"}:
        _log.warning("telemetry.exporter_unsupported", signal=signal.lower(), exporter=exporter)
        return False
    return exporter == "otlp" or (exporter == "" and bool(endpoint))


def attribute(name: str, value: Any) -> dict[str, Any]:
    """Return the span attribute ``strata.<name>``; empty for None and for text that must not be traced."""
    if value is None or (name in TEXT_ATTRIBUTES and not _state.with_text):
        return {}
    return {name if "." in name else f"strata.{name}": value}


def set_attributes(target: Span, **attributes: Any) -> None:
    """Set ``strata.<name>`` attributes on a span under the same rules as :func:`span`."""
    if target.is_recording():
        for name, value in attributes.items():
            target.set_attributes(attribute(name, value))


@contextmanager
def span(name: str, **attributes: Any) -> Iterator[Span]:
    """Run the body in a span; each attribute is named ``strata.<name>``, None is left out.

    Works in async code. A server-side failure sets the error status with its code and never its
    message, which may quote text; a refusal of the request, a miss and a cancellation do not.
    """
    started: dict[str, Any] = {}
    for key, value in attributes.items():
        started |= attribute(key, value)
    with _started(name, started) as current:
        yield current


def mark_failure(target: Span, error: BaseException) -> None:
    """Record on a span how its body failed, without any text of the failure."""
    if not target.is_recording():
        return
    if isinstance(error, StrataError):
        target.set_attribute("error.type", error.code)
        if error.kind.status >= 500:
            target.set_status(Status(StatusCode.ERROR, error.code))
    elif isinstance(error, (asyncio.CancelledError, GeneratorExit)):
        target.set_attribute("error.type", "cancelled")
    else:
        target.set_attribute("error.type", type(error).__qualname__)
        target.set_status(Status(StatusCode.ERROR, type(error).__qualname__))


@contextmanager
def stage(name: str, **attributes: Any) -> Iterator[Span]:
    """Run one stage of the pipeline: a span ``strata.stage`` and a sample of its duration."""
    with _timed("strata.stage", "stage", name, _state.instruments.stage, attributes) as current:
        yield current


@contextmanager
def lane(name: str, **attributes: Any) -> Iterator[Span]:
    """Run one retrieval lane: a span ``strata.lane`` and a sample of its duration."""
    with _timed("strata.lane", "lane", name, _state.instruments.lane, attributes) as current:
        yield current


@contextmanager
def _timed(
    span_name: str, label: str, name: str, histogram: metrics.Histogram, attributes: dict[str, Any]
) -> Iterator[Span]:
    started = time.perf_counter()
    try:
        with span(span_name, **{label: name}, **attributes) as current:
            yield current
    finally:
        histogram.record(time.perf_counter() - started, {label: name})


def record_lookup(seconds: float, *, surface: str, status: str) -> None:
    """Add one whole lookup to ``strata.lookup.duration``."""
    _state.instruments.lookup.record(seconds, {"surface": surface, "status": status})


def record_request(seconds: float, *, method: str, route: str, status: int) -> None:
    """Add one HTTP request to ``http.server.request.duration``."""
    _state.instruments.request.record(
        seconds, {"http.request.method": method, "http.route": route, "http.response.status_code": status}
    )


def count_invocation(*, tool: str, surface: str, status: str) -> None:
    """Count one call of a tool in ``strata.invocations``."""
    _state.instruments.invocations.add(1, {"tool": tool, "surface": surface, "status": status})


def count_embedded(passages: int) -> None:
    """Count vectors that were stored in ``strata.embeddings.passages``."""
    if passages:
        _state.instruments.passages_embedded.add(passages)


def count_query_vector(is_hit: bool) -> None:  # noqa: FBT001 - a callback of one argument
    """Count one vector of a question in ``strata.embeddings.queries``."""
    _state.instruments.query_vectors.add(1, {"cache": "hit" if is_hit else "miss"})


def record_rerank(outcome: str, seconds: float | None, breaker: str) -> None:
    """Count one reranking and set the state of its breaker; ``seconds`` is None where no service was called."""
    instruments = _state.instruments
    instruments.rerank_requests.add(1, {"outcome": outcome})
    if seconds is not None:
        instruments.rerank.record(seconds, {"outcome": outcome})
    instruments.rerank_breaker.set(_BREAKER_STATES[breaker])


def current_ids() -> tuple[str, str]:
    """Return the current trace id (32 hex digits) and span id (16 hex digits).

    Outside any span they are zeros, as W3C trace context has it.
    """
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def current_traceparent() -> str | None:
    """Return the W3C ``traceparent`` of the current span, None outside any span."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    # Only the sampled bit: further bits are of level 2 of the standard and break strict readers.
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


def inject(headers: dict[str, str]) -> None:
    """Add the W3C headers of the current trace to the headers of an outgoing request."""
    _w3c.inject(headers)
    if baggage.get_all():
        _baggage.inject(headers)


@contextmanager
def remote_parent(headers: Mapping[str, str]) -> Iterator[None]:
    """Run the body under the trace that the caller's headers name.

    ``headers`` has lower-case names. W3C ``traceparent`` wins over B3 (``b3``, then
    ``x-b3-traceid``); what is malformed is taken as absent.
    """
    carrier = dict(headers)
    if "x-b3-traceid" in carrier and "x-b3-flags" not in carrier:
        # B3 leaves the decision to the receiver when the caller states none.
        carrier.setdefault("x-b3-sampled", "1")
    context = _b3.extract(carrier, Context())
    context = _w3c.extract(carrier, context)
    token = attach(_baggage.extract(carrier, context))
    try:
        yield
    finally:
        detach(token)


@contextmanager
def server_span(method: str, headers: Mapping[str, str]) -> Iterator[Span]:
    """Run one HTTP request in a server span under the caller's trace; the route names it later."""
    with remote_parent(headers), _started(method, {"http.request.method": method}, SpanKind.SERVER) as current:
        yield current


def finish_server_span(target: Span, method: str, route: str, status: int) -> None:
    """Name a server span after its route and set the status code; only 5xx is an error."""
    if not target.is_recording():
        return
    target.update_name(f"{method} {route}" if route else method)
    target.set_attributes({"http.route": route, "http.response.status_code": status})
    if status >= 500:
        target.set_status(Status(StatusCode.ERROR))
