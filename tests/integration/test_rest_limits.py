"""What a request may be: sizes, depth, time and form, and the border's own behaviour."""

import asyncio
import contextlib
import json
import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import Litestar, get, post
from litestar.params import JSONBody

from strata.errors import StrataError
from strata.platform.border import guard
from strata.platform.limits import json_depth, parse_json
from strata.platform.problems import EXCEPTION_HANDLERS
from strata.settings import load_settings

JSON = {"content-type": "application/json"}


@post("/api/v1/contexts/c/sources", status_code=200)
async def documents(data: JSONBody[dict]) -> dict:
    return {"keys": len(data)}


@post("/api/v1/lookup", status_code=200)
async def lookup(data: JSONBody[dict]) -> dict:
    return data


CANCELLED = []


@get("/api/v1/lookup")
async def slow_lookup() -> dict:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        CANCELLED.append(True)
        raise
    return {}


@pytest.fixture
def settings(home):
    return load_settings({}, home=str(home), max_body_bytes=4 * 1024 * 1024, max_request_seconds=0.4)


@pytest.fixture
def app(settings):
    built = Litestar(
        [documents, lookup, slow_lookup],
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        request_max_body_size=None,
    )
    built.asgi_handler = guard(built.asgi_handler, settings)
    return built


@pytest.fixture
async def client(app):
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://strata.test") as opened:
        yield opened


def code(response):
    assert response.headers["content-type"] == "application/problem+json", response.text
    return response.status_code, response.json()["code"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"[" * 100_000, (400, "body_too_deep")),
        (b'{"a":' * 65 + b"1" + b"}" * 65, (400, "body_too_deep")),
        (b'{"a": 1, "a": 2}', (400, "malformed_body")),
        (b'{"a": {"b": 1, "\\u0062": 2}}', (400, "malformed_body")),
        (b'{"a": NaN}', (400, "malformed_body")),
        (b'{"a": -Infinity}', (400, "malformed_body")),
        (b'{"a": 1e400}', (400, "malformed_body")),
        (b'{"a": ' + b"9" * 5000 + b"}", (400, "malformed_body")),
        (b'{"a": "\xff"}', (400, "malformed_body")),
        (b'{"a": "\xed\xa0\x80"}', (400, "malformed_body")),
        (b'{"a": "x', (400, "malformed_body")),
        (b'{"a": 1} x', (400, "malformed_body")),
        (b"{'a': 1}", (400, "malformed_body")),
        (b'{"a": ["\\ud800"]}', (400, "invalid_request")),
        (b'{"a": ["\\u0000"]}', (400, "invalid_request")),
        (b'{"' + b"k" * 900_000 + b'": {"\\u0000": 1}}', (400, "invalid_request")),
        (b'{"' + b"k" * 10_000_000 + b'": 1}', (413, "body_too_large")),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else value[1],
)
async def test_odd_json_is_refused_quickly(client, body, expected):
    await client.post("/api/v1/lookup", content=b"{}", headers=JSON)
    started = time.perf_counter()
    response = await client.post("/api/v1/lookup", content=body, headers=JSON)
    assert time.perf_counter() - started < 0.5
    assert code(response) == expected


async def test_the_pointer_names_the_unclean_field(client):
    response = await client.post("/api/v1/lookup", content=b'{"q/x": ["ok", {"~": "\\udbff"}]}', headers=JSON)
    assert response.json()["pointer"] == "/q~1x/1/~0"


async def test_what_is_well_formed_passes(client):
    for body in (
        b'\xef\xbb\xbf{"a": 1}',
        b'{"a": "\\ud835\\udc00"}',
        b'{"a":' * 64 + b"1" + b"}" * 64,
        b' {"[[": "]]\\""} ',
    ):
        response = await client.post("/api/v1/lookup", content=body, headers=JSON)
        assert response.status_code == 200, response.text
    assert (await client.post("/api/v1/lookup", content=b'{"a": 1}')).status_code == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/json; charset=latin-1"}, 415),
        ({"content-type": "application/json", "content-encoding": "gzip"}, 415),
        ({"content-type": "application/json; charset=UTF-8"}, 200),
        ({"content-type": "application/problem+json"}, 200),
    ],
)
async def test_only_plain_json_is_read(client, headers, expected):
    response = await client.post("/api/v1/lookup", content=b"{}", headers=headers)
    assert response.status_code == expected


async def test_a_body_over_the_limit_is_refused_by_its_length_before_it_is_read(client):
    taken = 0

    async def endless():
        nonlocal taken
        while True:
            taken += 65536
            yield b" " * 65536

    limit = 4 * 1024 * 1024
    path = "/api/v1/contexts/c/sources"
    announced = await client.post(path, content=endless(), headers={**JSON, "content-length": str(limit + 1)})
    assert code(announced) == (413, "body_too_large")
    assert announced.json()["limitBytes"] == limit
    assert announced.headers["connection"] == "close"
    assert taken < 17 * 1024 * 1024
    taken = 0
    chunked = await client.post(path, content=endless(), headers=JSON)
    assert code(chunked) == (413, "body_too_large")
    assert taken < limit + 17 * 1024 * 1024
    exact = b'{"a":"' + b"x" * (limit - 8) + b'"}'
    assert (await client.post(path, content=exact, headers=JSON)).status_code == 200


async def test_a_body_that_drips_is_timed_out(client):
    async def drip():
        while True:
            yield b" "
            await asyncio.sleep(0.05)

    started = time.perf_counter()
    response = await client.post("/api/v1/lookup", content=drip(), headers=JSON)
    assert code(response) == (408, "request_timeout")
    assert time.perf_counter() - started < 2


async def test_a_caller_that_leaves_cancels_its_lookup(app):
    CANCELLED.clear()
    left = asyncio.Event()
    sent = []

    async def receive():
        if not left.is_set():
            left.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "method": "GET",
        "path": "/api/v1/lookup",
        "raw_path": b"/api/v1/lookup",
        "query_string": b"",
        "headers": [],
        "scheme": "http",
        "server": ("strata.test", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
        "http_version": "1.1",
    }
    await asyncio.wait_for(app(scope, receive, send), 5)
    assert CANCELLED == [True]
    assert sent == []


def _depth(value):
    if isinstance(value, dict):
        return 1 + max((_depth(item) for item in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((_depth(item) for item in value), default=0)
    return 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.booleans())
def test_the_depth_of_any_json_text_is_that_of_its_value(value, ascii_only):
    assert json_depth(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")) == _depth(value)


@given(json_values)
def test_the_strict_parser_gives_what_the_lenient_one_gives(value):
    text = json.dumps(value)
    if "\\ud" not in text and "\\u0000" not in text:
        assert parse_json(text.encode(), max_depth=64, clean_text=True) == value
    assert parse_json(text.encode(), max_depth=64, clean_text=False) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused_as_a_strata_error(body):
    with contextlib.suppress(StrataError):
        parse_json(body, max_depth=8, clean_text=True)


async def test_a_large_body_with_many_objects_does_not_hold_the_loop(client):
    gaps = []

    async def watch():
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            gaps.append(time.perf_counter() - before)

    watcher = asyncio.create_task(watch())
    body = json.dumps({"documents": [{"a": index, "b": "text"} for index in range(60_000)]}).encode()
    response = await client.post("/api/v1/contexts/c/sources", content=body, headers=JSON)
    watcher.cancel()
    assert response.status_code == 200
    assert len(gaps) >= 2
    assert max(gaps) < 0.5
