"""An OpenAI-compatible endpoint over real sockets: good answers, bad answers, and none at all."""

import asyncio
import base64
import contextlib
import gzip
import json
import logging
import time

import numpy as np
import pytest
import structlog

from strata.errors import StrataError
from strata.providers.breaker import Breaker
from strata.providers.embeddings import endpoint as module
from strata.providers.embeddings.base import EmbeddingSpace
from strata.providers.embeddings.embedders import Embedders
from strata.providers.embeddings.endpoint import Endpoint, EndpointEmbedder, embeddings_url
from strata.providers.http import HttpClient, Limits, ProviderRefusedError, ProviderUnavailableError
from strata.settings import load_settings

KEY = "sk-do-not-show-me"
SECRET = "the secret text of a document"
DIMENSION = 4


def vector_of(text):
    """A vector that tells which text it is for."""
    return [1.0, len(text) / 100, sum(map(ord, text)) % 97 / 97, 0.5]


class Server:
    """A small HTTP/1.1 server: ``script`` holds what becomes of the next requests; after that, good answers."""

    def __init__(self):
        self.script = []
        self.requests = []
        self.arrived = asyncio.Event()
        self.connections = 0
        self.under_way = self.most_under_way = 0
        self.delay = 0.0
        self.dimension = DIMENSION

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

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(headers["content-length"]))
                request = json.loads(body)
                self.requests.append((head.split(" ")[1], headers, request))
                self.arrived.set()
                self.under_way += 1
                self.most_under_way = max(self.most_under_way, self.under_way)
                try:
                    await asyncio.sleep(self.delay)
                    answer = self.script.pop(0) if self.script else self.good
                    stays = await answer(request, writer) if callable(answer) else await send(writer, *answer)
                finally:
                    self.under_way -= 1
                if stays is False:
                    break
        writer.close()

    async def good(self, request, writer):
        return await send(writer, 200, self.answer(request))

    def answer(self, request, change=None):
        dimension = request.get("dimensions", self.dimension)
        rows = [(vector_of(text) * 10)[:dimension] for text in request["input"]]
        data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
        if change:
            data = change(data)
        return {"object": "list", "data": data, "model": request["model"], "usage": {"total_tokens": 1}}

    def changed(self, change):
        """A good answer, changed."""

        async def answer(request, writer):
            return await send(writer, 200, self.answer(request, change))

        return answer


async def send(writer, status, body=b"", headers=""):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n{headers}\r\n".encode() + content)
    await writer.drain()
    return True


async def hang(request, writer):
    await asyncio.sleep(60)


async def cut_off(request, writer):
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"data": [')
    await writer.drain()
    return False


async def hang_up(request, writer):
    return False


async def drip(request, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    for _ in range(600):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


async def flood(request, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(4000):
        writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        await writer.drain()


@pytest.fixture
async def server():
    async with Server() as running:
        yield running


@pytest.fixture
async def make(tmp_path):
    """Make embedders of a server, with quick retries; their clients are closed at the end."""
    clients = []

    def make(server, *, dimension=DIMENSION, limits=None, breaker=None, rebuilt=None, **given):
        given = {"embeddings_url": server.url, "embeddings_model": "m", "embeddings_api_key": KEY} | given
        settings = load_settings({}, home=str(tmp_path), embeddings_dimensions=dimension, **given)
        quick = {"timeout_seconds": 2.0, "attempts": 3, "first_wait_seconds": 0.01, "max_wait_seconds": 0.3}
        client = HttpClient(
            headers={"Authorization": f"Bearer {KEY}"},
            limits=Limits(**(quick | (limits or {}))),
            breaker=breaker or Breaker(failures=50),
        )
        clients.append(client)
        endpoint = Endpoint(embeddings_url(settings.embeddings_url), client, asyncio.Semaphore(4))
        space = rebuilt or EmbeddingSpace(provider="endpoint", model="m", revision="", dimension=dimension or 0)
        return EndpointEmbedder(endpoint, space, settings, is_rebuilt=rebuilt is not None)

    yield make
    for client in clients:
        await client.close()


@pytest.fixture
def embedder(server, make):
    return make(server)


async def failure(call, code):
    with pytest.raises(StrataError) as caught:
        await call
    assert caught.value.code == code
    for text in (str(caught.value), repr(caught.value.__cause__), str(caught.value.extra), caught.value.remedy):
        assert KEY not in text
        assert SECRET not in text
    return caught.value


def unit(text):
    row = np.array(vector_of(text))
    return row / np.linalg.norm(row)


async def test_texts_come_back_as_unit_vectors_in_their_order(server, embedder):
    texts = ["a", "bb", "質問", "🙂", "", "\0"]
    vectors = await embedder.embed_passages(texts)
    assert np.allclose(vectors, [unit(text) for text in texts], atol=1e-6)
    path, headers, request = server.requests[0]
    assert path == "/v1/embeddings"
    assert headers["authorization"] == f"Bearer {KEY}".lower()
    assert request == {"model": "m", "input": texts, "encoding_format": "float", "dimensions": DIMENSION}


async def test_prefixes_go_before_the_texts(server, make):
    space = EmbeddingSpace(
        provider="endpoint", model="m", revision="", dimension=DIMENSION, query_prefix="q: ", passage_prefix="p: "
    )
    embedder = make(server, rebuilt=space)
    await embedder.embed_passages(["x"])
    await embedder.embed_query("x")
    assert [request["input"] for _, _, request in server.requests] == [["p: x"], ["q: x"]]


async def test_a_lone_surrogate_is_sent_as_the_replacement_character(server, embedder):
    await embedder.embed_passages(["a\ud800b"])
    assert server.requests[0][2]["input"] == ["a\ufffdb"]


async def test_no_text_is_no_call(server, embedder):
    assert (await embedder.embed_passages([])).shape == (0, DIMENSION)
    assert server.requests == []


async def test_many_texts_go_in_batches_a_few_at_once_over_kept_connections(server, make):
    server.delay = 0.02
    embedder = make(server, embeddings_batch=3)
    texts = [f"text {number}" * number for number in range(40)]
    assert np.allclose(await embedder.embed_passages(texts), [unit(text) for text in texts], atol=1e-6)
    assert sorted(len(request["input"]) for _, _, request in server.requests) == [1] + [3] * 13
    assert server.most_under_way == 4
    assert server.connections <= 4
    await embedder.embed_passages(texts)
    assert server.connections <= 4


async def test_a_question_passes_batches_that_wait(server, make):
    server.delay = 0.2
    embedder = make(server, embeddings_batch=1)
    batches = asyncio.ensure_future(embedder.embed_passages([str(number) for number in range(16)]))
    await asyncio.sleep(0.05)
    await embedder.embed_query("q")
    assert not batches.done()
    await batches


async def test_a_batch_that_fails_ends_the_others(server, make):
    async def refuse(request, writer):
        return await send(writer, 400, {"error": {"code": "bad"}})

    embedder = make(server, embeddings_batch=1)
    server.script = [hang, refuse, hang, hang]
    started = time.monotonic()
    await failure(embedder.embed_passages([SECRET] * 9), "embedding_refused")
    assert time.monotonic() - started < 1.5
    assert len(server.requests) <= 6


def shuffled(data):
    return data[::-1]


def packed(data):
    for item in data:
        item["embedding"] = base64.b64encode(np.array(item["embedding"], "<f4").tobytes()).decode()
    return data


@pytest.mark.parametrize("change", [shuffled, packed])
async def test_answers_out_of_order_and_in_base64_are_put_right(server, embedder, change):
    server.script = [server.changed(change)]
    texts = ["a", "bb", "ccc"]
    assert np.allclose(await embedder.embed_passages(texts), [unit(text) for text in texts], atol=1e-6)


def with_embedding(value):
    return lambda data: [*data[:-1], data[-1] | {"embedding": value}]


def with_index(value):
    return lambda data: [*data[:-1], data[-1] | {"index": value}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-1], "2 vectors for 3 texts"),
        (lambda data: [*data, data[0]], "4 vectors for 3 texts"),
        (lambda data: [], "0 vectors for 3 texts"),
        (with_index(0), "index 0 twice"),
        (with_index(3), "index 3 twice, or beyond the 3"),
        (with_index(-1), "index -1"),
        (with_index(None), "format"),
        (lambda data: [{"embedding": item["embedding"]} for item in data], "format"),
        (with_embedding([1.0, 2.0]), "unlike lengths"),
        (lambda data: [item | {"embedding": [1.0, 2.0]} for item in data], "2 dimensions instead of 4"),
        (with_embedding([0.0] * 4), "zeros"),
        (with_embedding([1.0, None, 1.0, 1.0]), "null"),
        (with_embedding([1.0, float("nan"), 1.0, 1.0]), "NaN"),
        (with_embedding([1.0, float("inf"), 1.0, 1.0]), "NaN"),
        (with_embedding([1.0, 1e300, 1.0, 1.0]), "NaN or infinity"),
        (with_embedding(["1", "2", "3", "4"]), "format"),
        (with_embedding([[1.0], [2.0], [3.0], [4.0]]), "format"),
        (with_embedding({}), "format"),
        (with_embedding("no base64!"), "base64"),
        (with_embedding(base64.b64encode(b"12345").decode()), "base64"),
        (with_embedding(""), "unlike lengths"),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused_whole_and_not_repeated(server, embedder, change, words):
    server.script = [server.changed(change)]
    error = await failure(embedder.embed_passages(["a", "bb", SECRET]), "embedding_refused")
    assert words in error.detail
    assert len(server.requests) == 1


NO_ANSWERS = [b"", b"<html>", b"[]", b"{}", b'{"data": 3}', b'{"data": [' * 5000, b"\xff\xfe", b"null"]


@pytest.mark.parametrize("body", NO_ANSWERS, ids=range(len(NO_ANSWERS)))
async def test_what_is_no_answer_of_embeddings_is_refused(server, embedder, body):
    server.script = [(200, body)]
    await failure(embedder.embed_passages([SECRET]), "embedding_refused")


async def test_the_dimension_is_learnt_by_one_call_and_another_one_is_refused_by_both_numbers(server, make):
    server.dimension = 6
    asked = make(server, dimension=None)
    embedder = await EndpointEmbedder.open(asked._endpoint, asked._settings)
    assert embedder.space.dimension == 6
    assert len(server.requests) == 1
    assert (await embedder.embed_passages(["a"])).shape == (1, 6)
    for dimension in (5, 7):
        server.dimension = dimension
        error = await failure(embedder.embed_query(SECRET), "embedding_refused")
        assert f"{dimension} dimensions instead of 6" in error.detail
    assert all("dimensions" not in request for _, _, request in server.requests)


@pytest.mark.parametrize("dimension", [0, 4001])
async def test_a_dimension_that_cannot_be_stored_is_refused_at_once(server, make, dimension):
    rows = [{"index": 0, "embedding": [1.0] * dimension}]
    server.script = [(200, {"data": rows})]
    asked = make(server, dimension=None)
    error = await failure(EndpointEmbedder.open(asked._endpoint, asked._settings), "embedding_refused")
    assert f"{dimension} dimensions" in error.detail


async def test_a_space_made_with_a_dimension_asked_for_is_served_when_the_settings_name_none(server, make):
    before = EmbeddingSpace(provider="endpoint", model="m", revision="", dimension=3)
    embedder = make(server, dimension=None, rebuilt=before)
    for _ in range(2):
        assert (await embedder.embed_query("q")).shape == (3,)
    assert [request.get("dimensions") for _, _, request in server.requests] == [None, 3, 3]


async def test_a_space_whose_model_now_gives_longer_vectors_is_refused_by_both_numbers(server, make):
    before = EmbeddingSpace(provider="endpoint", model="m", revision="", dimension=3)
    embedder = make(server, dimension=None, rebuilt=before)
    server.script = [server.good, (400, {"error": {"message": "no such parameter"}})]
    error = await failure(embedder.embed_query("q"), "embedding_refused")
    assert "4 dimensions instead of 3" in error.detail


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_again(server, embedder, status):
    server.script = [(status, b"busy"), (status, b"")]
    assert (await embedder.embed_passages(["a"])).shape == (1, DIMENSION)
    assert len(server.requests) == 3


@pytest.mark.parametrize("fails", [hang_up, cut_off])
async def test_a_connection_that_breaks_is_tried_again(server, embedder, fails):
    server.script = [fails, fails]
    assert (await embedder.embed_passages(["a"])).shape == (1, DIMENSION)
    assert len(server.requests) == 3


async def test_tries_come_to_an_end(server, embedder):
    server.script = [(503, b"")] * 10
    error = await failure(embedder.embed_passages([SECRET]), "embedding_unavailable")
    assert error.detail == f"The embedding endpoint 127.0.0.1:{server.port} answered 503."
    assert error.extra == {"providerStatus": 503}
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("0", 0.0, 0.2),
        ("nonsense", 0.0, 0.2),
        ("Wed, 01 Jan 1998 00:00:00 GMT", 0.0, 0.2),
        ("3600", 0.3, 0.4),
        ("Wed, 01 Jan 2098 00:00:00 GMT", 0.3, 0.4),
    ],
)
async def test_retry_after_is_honoured_up_to_the_cap(server, embedder, value, least, most):
    waits = []

    async def busy(request, writer):
        waits.append(time.monotonic())
        return await send(writer, 429, b"", f"Retry-After: {value}\r\n")

    async def good(request, writer):
        waits.append(time.monotonic())
        return await server.good(request, writer)

    server.script = [busy, good]
    await embedder.embed_passages(["a"])
    # Slack for a busy machine above, none below.
    assert least <= waits[1] - waits[0] < most + 1


INVALID_KEY = {"error": {"message": SECRET, "code": "invalid_api_key"}}
TOO_MANY = {"error": "batch size 64 > maximum allowed batch size 32", "error_type": "Validation"}
REFUSALS = [
    (401, INVALID_KEY, "(invalid_api_key)", "STRATA_EMBEDDINGS_API_KEY"),
    (403, {}, "answered 403.", "STRATA_EMBEDDINGS_API_KEY"),
    (404, {"error": {"message": SECRET, "type": "NotFound"}}, "(NotFound)", "STRATA_EMBEDDINGS_URL"),
    (400, {"error": {"code": SECRET, "type": "invalid_request_error"}}, "(invalid_request_error)", ""),
    (400, {"error": SECRET}, "answered 400.", ""),
    (400, [SECRET], "answered 400.", ""),
    (422, SECRET.encode(), "answered 422.", ""),
    (413, b"", "too long", "STRATA_EMBEDDINGS_BATCH"),
    (413, TOO_MANY, "too long", "STRATA_EMBEDDINGS_BATCH"),
    (400, {"error": {"code": "context_length_exceeded", "message": SECRET}}, "too long", ""),
    (400, {"error": {"message": "This model's maximum context length is 8192 tokens"}}, "too long", ""),
    (400, {"object": "error", "message": f"Input is too long: {SECRET}"}, "too long", ""),
    (301, b"", "redirect", ""),
    (308, b"", "redirect", ""),
]


@pytest.mark.parametrize(("status", "body", "words", "remedy"), REFUSALS)
async def test_a_refusal_is_not_repeated_and_says_no_more_than_the_servers_code(
    server, embedder, status, body, words, remedy
):
    async def refuse(request, writer):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await send(writer, status, content, "Location: http://127.0.0.1:9/elsewhere\r\n")

    server.script = [refuse]
    error = await failure(embedder.embed_passages([SECRET]), "embedding_refused")
    assert words in error.detail
    assert remedy in error.remedy
    assert error.extra == {"providerStatus": status}
    assert len(server.requests) == 1


async def test_a_500_that_means_too_long_is_a_refusal(server, embedder):
    server.script = [(500, {"error": {"message": "input (900 tokens) is too large to process"}})] * 3
    assert "too long" in (await failure(embedder.embed_passages([SECRET]), "embedding_refused")).detail


@pytest.mark.parametrize("answer", [hang, drip])
async def test_an_answer_that_does_not_end_is_given_up(server, make, answer):
    embedder = make(server, limits={"timeout_seconds": 0.2, "attempts": 2})
    server.script = [answer, answer]
    started = time.monotonic()
    error = await failure(embedder.embed_passages([SECRET]), "embedding_unavailable")
    assert "no answer within 0.2 s" in error.detail
    assert time.monotonic() - started < 5


async def test_a_question_has_a_shorter_limit_than_a_batch(server, make):
    embedder = make(server, limits={"timeout_seconds": 20}, embeddings_query_timeout_seconds=0.3)
    server.script = [hang]
    started = time.monotonic()
    error = await failure(embedder.embed_query(SECRET), "embedding_unavailable")
    assert "0.27 s" in error.detail
    assert time.monotonic() - started < 5


async def test_a_flood_is_refused_before_it_fills_the_memory(server, embedder):
    server.script = [flood]
    error = await failure(embedder.embed_passages([SECRET]), "embedding_refused")
    assert "sent more than" in error.detail
    assert len(server.requests) == 1


async def test_a_compressed_answer_is_refused_because_none_was_asked_for(server, embedder):
    async def compressed(request, writer):
        return await send(writer, 200, gzip.compress(b" " * 1_000_000), "Content-Encoding: gzip\r\n")

    server.script = [compressed]
    assert "compressed" in (await failure(embedder.embed_passages(["a"]), "embedding_refused")).detail
    assert server.requests[0][1]["accept-encoding"] == "identity"


async def test_a_refused_connection_is_unavailable(make):
    async with Server() as gone:
        pass
    error = await failure(make(gone).embed_passages([SECRET]), "embedding_unavailable")
    assert error.detail == f"The embedding endpoint 127.0.0.1:{gone.port} cannot be reached."


async def test_a_name_that_does_not_resolve_is_unavailable(server, make):
    server.url = "http://nowhere.invalid"
    error = await failure(make(server).embed_passages([SECRET]), "embedding_unavailable")
    assert "cannot be reached" in error.detail


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


async def test_the_breaker_opens_after_failures_and_closes_after_one_good_answer(server, make):
    clock = Clock()
    embedder = make(
        server,
        limits={"attempts": 1},
        breaker=Breaker(failures=4, cool_down_seconds=10, clock=clock),
        embeddings_query_timeout_seconds=30,
    )
    # A question is tried twice.
    server.script = [(500, b""), hang_up, (500, b""), (503, b"")]
    for _ in range(2):
        await failure(embedder.embed_query("q"), "embedding_unavailable")
    error = await failure(embedder.embed_query("q"), "embedding_unavailable")
    assert "left alone for another 10.0 s" in error.detail
    assert len(server.requests) == 4
    clock.now = 10.0
    server.script = [(503, b"")]
    await failure(embedder.embed_passages(["p"]), "embedding_unavailable")
    await failure(embedder.embed_query("q"), "embedding_unavailable")
    assert len(server.requests) == 5
    clock.now = 20.0
    assert (await embedder.embed_query("q")).shape == (DIMENSION,)
    assert (await embedder.embed_query("q")).shape == (DIMENSION,)


async def test_a_service_that_hangs_on_questions_opens_the_breaker(server, make):
    breaker = Breaker(failures=2)
    embedder = make(server, breaker=breaker, embeddings_query_timeout_seconds=0.2)
    server.script = [hang, hang]
    for _ in range(2):
        await failure(embedder.embed_query("q"), "embedding_unavailable")
    assert breaker.state == "open"


async def test_refusals_and_rate_limits_do_not_open_the_breaker(server, make):
    breaker = Breaker(failures=2)
    embedder = make(server, limits={"attempts": 1}, breaker=breaker)
    server.script = [(400, b""), (429, b""), (401, b""), (429, b"")]
    for code in ("refused", "unavailable", "refused", "unavailable"):
        await failure(embedder.embed_passages(["p"]), f"embedding_{code}")
    assert breaker.state == "closed"


async def test_a_cancelled_call_is_not_repeated_and_counts_for_nothing(server, make):
    breaker = Breaker(failures=1)
    embedder = make(server, limits={"timeout_seconds": 20}, breaker=breaker)
    server.script = [hang]
    task = asyncio.ensure_future(embedder.embed_passages(["a"]))
    await server.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.05)
    assert len(server.requests) == 1
    assert breaker.state == "closed"


async def test_closing_under_way_fails_what_waits(server, make):
    embedder = make(server, limits={"timeout_seconds": 20})
    server.script = [hang]
    task = asyncio.ensure_future(embedder.embed_passages(["a"]))
    await server.arrived.wait()
    await embedder._endpoint.client.close()
    await failure(asyncio.wait_for(task, 5), "embedding_unavailable")
    await embedder._endpoint.client.close()
    error = await failure(embedder.embed_query("q"), "embedding_unavailable")
    assert "closed" in error.detail


async def test_neither_key_nor_text_nor_query_string_is_logged(server, make, caplog):
    caplog.set_level(logging.INFO)
    embedder = make(server, embeddings_url=f"{server.url}/v1/embeddings?token=hush")
    server.script = [(500, SECRET.encode()), (400, SECRET.encode())]
    with structlog.testing.capture_logs() as logs:
        await failure(embedder.embed_passages([SECRET]), "embedding_refused")
    for text in (str(logs), caplog.text):
        assert KEY not in text
        assert SECRET not in text
        assert "hush" not in text
    assert server.requests[0][0] == "/v1/embeddings?token=hush"


async def test_a_large_answer_is_decoded_in_a_thread(embedder, monkeypatch):
    monkeypatch.setattr(module, "_THREAD_BYTES", 10)
    assert np.allclose(await embedder.embed_passages(["a", "b"]), [unit("a"), unit("b")], atol=1e-6)


async def test_the_configured_endpoint_is_probed_once_and_its_vectors_are_cached(server, tmp_path):
    given = {"embeddings_url": server.url + "/v1", "embeddings_model": "m", "embeddings_query_prefix": "q: "}
    embedders = Embedders(load_settings({}, home=str(tmp_path), **given))
    embedder = await embedders.configured()
    vectors = await asyncio.gather(*(embedders.query_vector(embedder.space, "x") for _ in range(5)))
    assert all(np.array_equal(vector, vectors[0]) for vector in vectors)
    assert [request["input"] for _, _, request in server.requests] == [["dimension"], ["q: x"]]
    assert (embedders.cache_hits, embedders.cache_misses) == (4, 1)
    await embedders.close()
    with pytest.raises(StrataError):
        await embedders.query_vector(embedder.space, "y")


async def test_an_endpoint_that_is_down_at_the_first_opening_is_unavailable(tmp_path):
    async with Server() as gone:
        pass
    given = {"embeddings_url": gone.url, "embeddings_model": "m"}
    embedders = Embedders(load_settings({}, home=str(tmp_path), **given))
    await failure(embedders.configured(), "embedding_unavailable")
    assert "cannot be reached" in embedders.describe().error
    await embedders.close()


async def test_the_client_bounds_its_concurrency_and_names_what_failed(server):
    server.delay = 0.02
    client = HttpClient(limits=Limits(concurrency=2, attempts=1))
    url = f"{server.url}/x"
    body = json.dumps({"model": "m", "input": ["a"]}).encode()
    await asyncio.gather(*(client.post(url, body) for _ in range(8)))
    assert server.most_under_way == 2
    server.script = [(418, b"short and stout"), (500, b"out")]
    with pytest.raises(ProviderRefusedError, match="answered 418") as refused:
        await client.post(url, body)
    assert (refused.value.status, refused.value.body) == (418, b"short and stout")
    with pytest.raises(ProviderUnavailableError, match="answered 500"):
        await client.post(url, body)
    with pytest.raises(ProviderRefusedError, match="sent more than 5 bytes"):
        await client.post(url, body, max_response_bytes=5)
    for address, words in [("ftp://h/x", "neither http nor https"), ("http://h:x", "not valid")]:
        with pytest.raises((ProviderRefusedError, ProviderUnavailableError), match=words):
            await client.post(address, body)
    await client.close()


async def test_an_error_answer_is_read_up_to_a_limit(server):
    client = HttpClient(limits=Limits(attempts=1))
    server.script = [(400, b"x" * 1_000_000)]
    with pytest.raises(ProviderRefusedError) as caught:
        await client.post(f"{server.url}/x", b'{"input": []}')
    assert len(caught.value.body) == 64 * 1024
    await client.close()
