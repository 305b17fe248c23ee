"""A reranking service over real sockets: good answers, bad answers, and none at all."""

import asyncio
import contextlib
import gzip
import json
import logging
import time

import pytest
import structlog
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from strata.platform import telemetry
from strata.providers import rerank as module
from strata.providers.breaker import Breaker
from strata.providers.rerank import Reranked, Reranker
from strata.settings import load_settings

KEY = "sk-do-not-show-me"
QUESTION = "the secret question"
SECRET = "the secret text of a document"
TEXTS = [f"{SECRET} a", f"{SECRET} b", f"{SECRET} c"]
GOOD = {"results": [{"index": 2, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.5}, {"index": 1}]}
ORDER = [2, 0, 1]


class Server:
    """A small HTTP/1.1 server: ``script`` holds what becomes of the next requests; after that, good answers."""

    def __init__(self):
        self.script = []
        self.requests = []
        self.times = []
        self.arrived = asyncio.Event()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._tasks = set()
        return self

    async def __aexit__(self, *error):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def reached(self, requests):
        """Wait for so many requests in all."""
        while len(self.requests) < requests:
            self.arrived.clear()
            await self.arrived.wait()

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            stays = True
            while stays is not False:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                request = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.requests.append((head.split(" ")[1], headers, request))
                self.times.append(time.monotonic())
                self.arrived.set()
                answer = self.script.pop(0) if self.script else (200, GOOD)
                stays = await (answer(writer) if callable(answer) else send(writer, *answer))
        writer.close()


async def send(writer, status, body=b"", headers=""):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n{headers}\r\n".encode() + content)
    await writer.drain()


async def hang(writer):
    await asyncio.sleep(60)


async def hang_up(writer):
    return False


async def reset(writer):
    writer.transport.abort()
    return False


async def cut_off(writer):
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"results": [')
    await writer.drain()
    return False


async def drip(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    for _ in range(600):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def flood(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(4000):
        writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        await writer.drain()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
async def server():
    async with Server() as running:
        yield running


@pytest.fixture
async def make(tmp_path):
    """Make rerankers of a server; they are closed at the end. ``seen`` holds what their observers were told."""
    rerankers = []

    def make(server, *, breaker=None, timeout=5.0, **given):
        given = {"rerank_url": server.url, "rerank_model": "m", "rerank_api_key": KEY} | given
        settings = load_settings({}, home=str(tmp_path), rerank_timeout_seconds=timeout, **given)
        seen = []
        reranker = Reranker(settings, observe=lambda *told: seen.append(told), breaker=breaker)
        reranker.seen = seen
        rerankers.append(reranker)
        return reranker

    yield make
    for reranker in rerankers:
        await reranker.close()


@pytest.fixture
def reranker(server, make):
    return make(server, breaker=Breaker(failures=50))


async def reason_of(reranker, **given):
    outcome = await reranker.rerank(QUESTION, TEXTS, **given)
    assert outcome == Reranked(reason=outcome.reason, model="m")
    assert reranker.seen[-1][0] == outcome.reason
    return outcome.reason


async def test_the_order_of_the_answer_comes_back(server, reranker):
    outcome = await reranker.rerank(QUESTION, TEXTS, model="m", deadline_seconds=5.0)
    assert outcome == Reranked(order=ORDER, ran=True, model="m")
    path, headers, request = server.requests[0]
    assert path == "/rerank"
    assert headers["authorization"] == f"Bearer {KEY}".lower()
    assert headers["content-type"] == "application/json"
    assert request == {"model": "m", "query": QUESTION, "documents": TEXTS, "top_n": 3}
    [(told, seconds, state)] = reranker.seen
    assert (told, state) == ("ran", "closed")
    assert 0 < seconds < 5


async def test_without_a_key_no_authorization_is_sent(server, make):
    assert (await make(server, rerank_api_key=None).rerank(QUESTION, TEXTS)).ran
    assert "authorization" not in server.requests[0][1]


async def test_ugly_texts_are_sent_as_they_are_but_for_lone_surrogates(server, reranker):
    texts = ["", "\0", "a\ud800b", "👩\u200d👩\u200d👧", "質問", "שלום", "same", "same", "x" * 1_000_000]
    server.script = [(200, {"results": [{"index": index} for index in reversed(range(9))]})]
    outcome = await reranker.rerank("q\udfff\0", texts)
    assert outcome.order == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    request = server.requests[0][2]
    assert request["documents"] == [*texts[:2], "a\ufffdb", *texts[3:]]
    assert request["query"] == "q\ufffd\0"


@pytest.mark.parametrize("texts", [[], ["a"]])
async def test_fewer_than_two_texts_are_not_sent(server, reranker, texts):
    assert (await reranker.rerank(QUESTION, texts)).reason == "empty_pool"
    assert server.requests == []


async def test_another_model_is_not_asked_for(server, reranker):
    assert await reason_of(reranker, model="other") == "model_mismatch"
    assert server.requests == []


NO_PERMUTATIONS = {
    "none": [],
    "short": [0, 1],
    "long": [0, 1, 2, 3],
    "duplicate": [0, 1, 1],
    "one twice too many": [0, 1, 2, 2],
    "beyond": [0, 1, 3],
    "negative": [0, 1, -1],
    "from one": [1, 2, 3],
    "huge": [0, 1, 10**30],
}


@pytest.mark.parametrize("indices", NO_PERMUTATIONS.values(), ids=NO_PERMUTATIONS)
async def test_an_answer_that_is_no_permutation_is_not_taken_and_not_asked_for_again(server, reranker, indices):
    server.script = [(200, {"results": [{"index": index} for index in indices]})]
    assert await reason_of(reranker) == "invalid_permutation"
    assert len(server.requests) == 1


NO_ANSWERS = {
    "empty": b"",
    "page": b"<html>busy</html>",
    "list": json.dumps(GOOD["results"]).encode(),
    "no results": b"{}",
    "null": b'{"results": null}',
    "no index": b'{"results": [{"relevance_score": 1}, {}, {}]}',
    "index null": b'{"results": [{"index": null}, {"index": 0}, {"index": 1}]}',
    "index text": b'{"results": [{"index": "2"}, {"index": 0}, {"index": 1}]}',
    "index fraction": b'{"results": [{"index": 2.5}, {"index": 0}, {"index": 1}]}',
    "index float": b'{"results": [{"index": 2.0}, {"index": 0}, {"index": 1}]}',
    "index boolean": b'{"results": [{"index": true}, {"index": 0}, {"index": 2}]}',
    "index NaN": b'{"results": [{"index": NaN}, {"index": 0}, {"index": 1}]}',
    "score NaN": b'{"results": [{"index": 2, "relevance_score": NaN}, {"index": 0}, {"index": 1}]}',
    "cut": json.dumps(GOOD).encode()[:-1],
    "deep": b'{"results": ' + b"[" * 100_000,
    "not utf-8": b"\xff\xfe",
}


@pytest.mark.parametrize("body", NO_ANSWERS.values(), ids=NO_ANSWERS)
async def test_what_is_no_answer_of_a_reranker_is_not_taken_and_not_asked_for_again(server, reranker, body):
    server.script = [(200, body)]
    assert await reason_of(reranker) == "provider_error"
    assert len(server.requests) == 1


@pytest.mark.parametrize("failure", [(429,), (500,), (503, b"busy"), reset, hang_up, cut_off])
async def test_what_may_pass_is_tried_once_more_after_a_tenth_of_a_second(server, reranker, failure):
    server.script = [failure]
    assert (await reranker.rerank(QUESTION, TEXTS)).order == ORDER
    first, second = server.times
    assert 0.09 <= second - first < 2
    assert [told for told, _, _ in reranker.seen] == ["ran"]


@pytest.mark.parametrize("failure", [(429, b"", "Retry-After: 3600\r\n"), (502,), reset])
async def test_the_second_failure_is_the_last(server, reranker, failure):
    server.script = [failure] * 3
    assert await reason_of(reranker) == "provider_error"
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_a_refusal_is_not_repeated(server, reranker, status):
    server.script = [(status, {"error": SECRET})]
    assert await reason_of(reranker) == "provider_error"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(server, reranker, status):
    async with Server() as elsewhere:
        server.script = [(status, b"", f"Location: {elsewhere.url}/rerank\r\n")]
        assert await reason_of(reranker) == "provider_error"
        assert (len(server.requests), len(elsewhere.requests)) == (1, 0)


async def test_an_answer_of_four_mebibytes_is_read_and_a_longer_one_is_not(server, reranker):
    limit = 4 * 1024 * 1024
    padded = json.dumps(GOOD).encode().ljust(limit)
    server.script = [(200, padded), (200, padded + b" "), flood]
    assert (await reranker.rerank(QUESTION, TEXTS)).order == ORDER
    assert await reason_of(reranker) == "provider_error"
    assert await reason_of(reranker) == "provider_error"
    assert len(server.requests) == 3


async def test_a_compressed_answer_is_refused_because_none_was_asked_for(server, reranker):
    server.script = [(200, gzip.compress(json.dumps(GOOD).encode()), "Content-Encoding: gzip\r\n")]
    assert await reason_of(reranker) == "provider_error"
    assert server.requests[0][1]["accept-encoding"] == "identity"


async def test_a_refused_connection_is_a_provider_error(make):
    async with Server() as gone:
        pass
    assert await reason_of(make(gone)) == "provider_error"


@pytest.mark.parametrize("slow", [hang, drip])
async def test_attempts_that_take_too_long_are_a_timeout(server, make, slow):
    reranker = make(server, timeout=0.2)
    server.script = [slow, slow]
    started = time.monotonic()
    assert await reason_of(reranker) == "timeout"
    assert 0.5 <= time.monotonic() - started < 5
    assert len(server.requests) == 2


async def test_an_answer_after_a_slow_attempt_counts(server, make):
    server.script = [hang]
    assert (await make(server, timeout=0.3).rerank(QUESTION, TEXTS)).order == ORDER


async def test_the_deadline_ends_everything(server, make):
    reranker = make(server)
    server.script = [hang]
    started = time.monotonic()
    assert await reason_of(reranker, deadline_seconds=0.3) == "timeout"
    assert 0.29 <= time.monotonic() - started < 3
    assert len(server.requests) == 1


async def test_a_deadline_that_runs_out_in_the_second_attempt_is_a_timeout(server, make):
    reranker = make(server)
    server.script = [(500,), hang]
    assert await reason_of(reranker, deadline_seconds=1.0) == "timeout"
    assert len(server.requests) == 2


async def test_no_second_attempt_is_waited_for_beyond_the_deadline(server, make, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 30)
    server.script = [(500,)]
    started = time.monotonic()
    assert await reason_of(make(server), deadline_seconds=20) == "provider_error"
    assert time.monotonic() - started < 10
    assert len(server.requests) == 1


async def test_three_failed_attempts_in_a_row_open_the_breaker_for_thirty_seconds(server, make):
    reranker = make(server)
    server.script = [(500,), reset, (503,)]
    assert await reason_of(reranker) == "provider_error"
    assert await reason_of(reranker) == "provider_error"
    # The breaker opened on the third attempt: there was no fourth.
    assert len(server.requests) == 3
    assert await reason_of(reranker) == "circuit_open"
    assert len(server.requests) == 3
    assert [(told, state) for told, _, state in reranker.seen] == [
        ("provider_error", "closed"),
        ("provider_error", "open"),
        ("circuit_open", "open"),
    ]
    assert reranker.seen[-1][1] is None
    assert 29 < reranker._breaker._rest() <= 30


async def test_a_good_answer_in_between_keeps_the_breaker_closed(server, make):
    reranker = make(server)
    server.script = [(500,), (500,), (200, GOOD), (500,), (500,), (200, GOOD)]
    assert await reason_of(reranker) == "provider_error"
    assert (await reranker.rerank(QUESTION, TEXTS)).ran
    assert await reason_of(reranker) == "provider_error"
    assert (await reranker.rerank(QUESTION, TEXTS)).ran
    assert reranker.seen[-1][2] == "closed"


async def test_slow_attempts_open_the_breaker(server, make):
    reranker = make(server)
    server.script = [hang] * 3
    for _ in range(3):
        assert await reason_of(reranker, deadline_seconds=0.1) == "timeout"
    assert await reason_of(reranker) == "circuit_open"


async def test_refusals_rate_limits_and_bad_answers_do_not_open_the_breaker(server, make):
    reranker = make(server)
    server.script = [(401,), (429,), (429,), (200, b"{}"), (200, {"results": []}), (400,)]
    for _ in range(5):
        await reason_of(reranker)
    assert (await reranker.rerank(QUESTION, TEXTS)).ran


async def test_after_the_pause_one_call_is_the_probe(server, make):
    clock = Clock()
    reranker = make(server, breaker=Breaker(failures=3, cool_down_seconds=30, clock=clock))
    server.script = [(500,)] * 4
    for _ in range(2):
        await reason_of(reranker)
    clock.now = 29.9
    assert await reason_of(reranker) == "circuit_open"
    clock.now = 30.0
    # The probe fails: it is not repeated, and the breaker is open for as long again.
    assert await reason_of(reranker) == "provider_error"
    assert len(server.requests) == 4
    clock.now = 59.9
    assert await reason_of(reranker) == "circuit_open"
    clock.now = 60.0
    server.arrived.clear()
    release = asyncio.Event()

    async def late(writer):
        await release.wait()
        await send(writer, 200, GOOD)

    server.script = [late]
    probe = asyncio.ensure_future(reranker.rerank(QUESTION, TEXTS))
    await server.arrived.wait()
    assert await reason_of(reranker) == "circuit_open"
    release.set()
    assert (await probe).order == ORDER
    assert (await reranker.rerank(QUESTION, TEXTS)).ran
    assert len(server.requests) == 6


@pytest.mark.parametrize("script", [[hang], [(500,), hang]])
async def test_a_cancelled_call_passes_is_not_repeated_and_counts_for_nothing(server, make, script):
    breaker = Breaker(failures=2)
    reranker = make(server, breaker=breaker)
    server.script = list(script)
    task = asyncio.ensure_future(reranker.rerank(QUESTION, TEXTS))
    await server.reached(len(script))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.2)
    assert len(server.requests) == len(script)
    assert (breaker.state, reranker.seen) == ("closed", [])
    assert (await reranker.rerank(QUESTION, TEXTS)).ran


async def test_a_call_cancelled_in_the_pause_is_not_repeated(server, make):
    reranker = make(server)
    server.script = [(429,)]
    task = asyncio.ensure_future(reranker.rerank(QUESTION, TEXTS))
    await server.arrived.wait()
    await asyncio.sleep(0.03)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.2)
    assert len(server.requests) == 1


async def test_closing_under_way_ends_what_waits(server, make):
    reranker = make(server)
    server.script = [hang]
    task = asyncio.ensure_future(reranker.rerank(QUESTION, TEXTS))
    await server.arrived.wait()
    await reranker.close()
    assert (await asyncio.wait_for(task, 5)).reason == "provider_error"
    assert await reason_of(reranker) == "provider_error"
    assert len(server.requests) == 1


async def test_many_calls_at_once_each_get_their_own_order(server, make):
    reranker = make(server)
    outcomes = await asyncio.gather(*(reranker.rerank(f"q{number}", TEXTS) for number in range(50)))
    assert all(outcome.order == ORDER for outcome in outcomes)
    assert {request["query"] for _, _, request in server.requests} == {f"q{number}" for number in range(50)}


def samples(reader):
    data = reader.get_metrics_data()
    found = [one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics]
    return {
        one.name: {tuple(point.attributes.items()): point for point in one.data.data_points}
        for one in found
        if one.name.startswith("strata.rerank.")
    }


@pytest.fixture
def reader(tmp_path):
    reader = InMemoryMetricReader()
    telemetry.setup_telemetry(load_settings({}, home=str(tmp_path)), environ={}, metric_reader=reader)
    yield reader
    telemetry.shutdown_telemetry()


def test_outcomes_durations_and_the_breaker_are_metrics(reader):
    for told in [("ran", 0.2, "closed"), ("ran", 0.1, "closed"), ("empty_pool", None, "closed")]:
        telemetry.record_rerank(*told)
    telemetry.record_rerank("provider_error", 1.0, "open")
    found = samples(reader)
    counted = {outcome: point.value for ((_, outcome),), point in found["strata.rerank.requests"].items()}
    assert counted == {"ran": 2, "empty_pool": 1, "provider_error": 1}
    timed = {outcome: point.count for ((_, outcome),), point in found["strata.rerank.duration"].items()}
    assert timed == {"ran": 2, "provider_error": 1}
    assert found["strata.rerank.breaker"][()].value == 2
    for state, value in (("half_open", 1), ("closed", 0)):
        telemetry.record_rerank("ran", 0.1, state)
        assert samples(reader)["strata.rerank.breaker"][()].value == value


SHAPES = [
    (200, GOOD),
    (401, {"error": f"{KEY} {QUESTION} {SECRET}"}),
    (500, f"{KEY} {SECRET}".encode()),
    reset,
    (200, f"{KEY} {SECRET}".encode()),
    (200, {"results": [], "id": SECRET}),
    (307, b"", "Location: http://127.0.0.1:9/elsewhere\r\n"),
]


async def test_neither_key_nor_question_nor_text_nor_query_string_leaves_by_log_metric_span_or_repr(
    server, tmp_path, caplog
):
    caplog.set_level(logging.DEBUG)
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    given = {"rerank_url": f"{server.url}/rerank?token=hush", "rerank_model": "m", "rerank_api_key": KEY}
    settings = load_settings({}, home=str(tmp_path), **given)
    telemetry.setup_telemetry(settings, environ={}, metric_reader=reader, span_exporter=exporter)
    reranker = Reranker(settings, observe=telemetry.record_rerank)
    kept = []
    with structlog.testing.capture_logs() as logs, telemetry.stage("rerank"):
        for shape in SHAPES:
            server.script = [shape]
            kept.append(repr(await reranker.rerank(QUESTION, TEXTS)))
        kept.append(repr(await reranker.rerank(QUESTION, TEXTS, model=SECRET)))
        server.script = [(500,)] * 4
        kept += [repr(await reranker.rerank(QUESTION, TEXTS)) for _ in range(3)]
    kept += [repr(reranker), str(logs), caplog.text, reader.get_metrics_data().to_json()]
    kept += [span.to_json() for span in exporter.get_finished_spans()]
    telemetry.shutdown_telemetry()
    await reranker.close()
    assert logs
    assert exporter.get_finished_spans()
    assert server.requests[0][0] == "/rerank?token=hush"
    for text in kept:
        for hidden in (KEY, QUESTION, SECRET, "hush"):
            assert hidden not in text
