"""The ASGI border around the application: what every request gets, whatever route it takes.

A server span under the caller's trace, a request id, a problem document for whatever fails, one
line in the access log, and cancellation when the caller leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Mapping
from typing import Any

import structlog
from litestar.types import ASGIApp, Message, Receive, Send

from strata.errors import BODY_TOO_LARGE, INTERNAL, INVALID_REQUEST, NOT_ACCEPTABLE, REQUEST_TIMEOUT, StrataError
from strata.platform.ids import new_id
from strata.platform.limits import BodyLimits, ClientGoneError
from strata.platform.problems import ERROR_WIRE_STATE, ErrorWire, problem_headers, rendered
from strata.platform.telemetry import current_ids, current_traceparent, finish_server_span, record_request, server_span
from strata.settings import Settings

LOOKUP_PATH = "/api/v1/lookup"
_READS = frozenset({LOOKUP_PATH, "/mcp"})
CLIENT_CLOSED_REQUEST = 499
"""Logged, never sent: the caller left before the answer (nginx's number)."""

_NO_METHOD = "NONE"
_DRAIN_SECONDS = 1.0
_DRAIN_BYTES = 16 * 1024 * 1024
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_ACCEPTABLE = ("*/*", "application/*", "application/json", "application/problem+json")
_log = structlog.get_logger("strata.http")


def current_request_id() -> str | None:
    """Return the id of the request being answered: the caller's X-Request-Id, or one we made."""
    value = structlog.contextvars.get_contextvars().get("request_id")
    return str(value) if value is not None else None


def guard(app: ASGIApp, settings: Settings, wires: Mapping[str, ErrorWire] | None = None) -> ASGIApp:
    """Put the whole border around an application.

    ``wires`` says how errors look below a first segment of the path, where that is not a problem document.
    """
    return Border(BodyLimits(Attendance(app), settings), wires or {})


class Border:
    """Outermost ASGI middleware: identity, trace, errors and the access log of a request."""

    def __init__(self, app: ASGIApp, wires: Mapping[str, ErrorWire]) -> None:
        self._app = app
        self._wires = wires

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        wire = self._wires.get(scope["path"][1:].partition("/")[0])
        scope.setdefault("state", {})[ERROR_WIRE_STATE] = wire
        with (
            server_span(scope["method"], headers) as current,
            structlog.contextvars.bound_contextvars(request_id=_request_id(headers)),
        ):
            answer = _Answer(send, method=str(scope["method"]), wire=wire)
            started = time.perf_counter()
            method = str(scope["method"])
            try:
                await self._run(scope, receive, answer, headers)
            finally:
                seconds = time.perf_counter() - started
                route = str(scope.get("path_template") or "")
                status = answer.status or CLIENT_CLOSED_REQUEST
                finish_server_span(current, method, route, status)
                record_request(seconds, method=method, route=route, status=status)
                _access_log(method, scope["path"], route, status, seconds)

    async def _run(self, scope: Any, receive: Receive, answer: _Answer, headers: Mapping[str, str]) -> None:
        path = scope["path"]
        if scope["method"] == "HEAD":
            # Routes answer GET; HEAD is the same answer without its body (RFC 9110, 9.3.2).
            scope["method"] = "GET"
        elif scope["method"] == "OPTIONS":
            # The refusal of a method that no route knows has the whole Allow header, for every path.
            scope["method"] = _NO_METHOD
        try:
            _check_head(scope, headers)
            await self._app(scope, receive, answer.send)
        except StrataError as error:
            await answer.problem(error, path)
            if error.kind in {BODY_TOO_LARGE, REQUEST_TIMEOUT}:
                await _drain(receive)
        except ClientGoneError:
            return
        except Exception as error:  # noqa: BLE001 - the last net: no failure leaves without a problem document
            _log.error("http.unexpected", exc_info=error)
            await answer.problem(StrataError(INTERNAL, "The request failed on our side."), path)


async def _drain(receive: Receive) -> None:
    """Read on for a moment, keeping nothing: closing at once would reset the connection under the answer."""
    read = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while read < _DRAIN_BYTES:
                message: Any = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                read += len(message.get("body", b""))


class _Answer:
    """The sending side of one request: adds headers, notes the status, drops the body of a HEAD."""

    def __init__(self, send: Send, *, method: str, wire: ErrorWire | None) -> None:
        self._send = send
        self._wire = wire
        self._method = method
        self._without_body = method == "HEAD"
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        """Pass one message on."""
        if message["type"] == "http.response.start":
            if self._method == "OPTIONS" and message["status"] == 405:
                self._without_body = True
                allow = [(name, value) for name, value in message.get("headers", []) if name.lower() == b"allow"]
                message = {"type": "http.response.start", "status": 204, "headers": allow}
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), *_identity_headers()]
        elif message["type"] == "http.response.body" and self._without_body:
            message["body"] = b""
        await self._send(message)

    async def problem(self, error: StrataError, path: str) -> None:
        """Send an error, unless an answer has begun already."""
        if self.status is not None:
            return
        status, body, media_type = rendered(error, path, self._wire)
        headers = problem_headers(error.kind, {"content-type": media_type, "content-length": str(len(body))})
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})


class Attendance:
    """ASGI middleware: cancel what nobody waits for.

    A lookup or a read whose caller has gone is cancelled, and with it its statement. A write runs
    to its end: what it did is either whole or not there.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and (scope["method"] == "GET" or scope["path"].rstrip("/") in _READS):
            await _attended(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def _attended(app: ASGIApp, scope: Any, receive: Receive, send: Send) -> None:
    """Run the application; cancel it when the caller disconnects.

    The body is complete here (or there is none), so it is handed over first; whatever comes after
    it is the disconnection.
    """
    messages: asyncio.Queue[Any] = asyncio.Queue()

    async def watch() -> None:
        while True:
            message = await receive()
            messages.put_nowait(message)
            if message["type"] == "http.disconnect":
                return

    watcher = asyncio.ensure_future(watch())
    running: asyncio.Future[None] = asyncio.ensure_future(app(scope, messages.get, send))
    try:
        await asyncio.wait({watcher, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
            return
        running.cancel()
        await asyncio.wait({running})
        if not running.cancelled() and running.exception() is not None:
            running.result()
    finally:
        watcher.cancel()
        if not running.done():
            # We are being cancelled ourselves (shutdown): pass it on and let the handler clean up.
            running.cancel()
            await asyncio.wait({running})


def _check_head(scope: Any, headers: Mapping[str, str]) -> None:
    if "\0" in scope["path"]:
        raise StrataError(INVALID_REQUEST, "The path holds a NUL character.", pointer="path")
    if b"%00" in scope.get("query_string", b""):
        raise StrataError(INVALID_REQUEST, "The query string holds a NUL character.", pointer="?")
    accept = headers.get("accept")
    if accept and scope["path"].startswith("/api/") and not _accepts_json(accept):
        raise StrataError(NOT_ACCEPTABLE, "Answers are application/json.", pointer="header:Accept")


def _accepts_json(accept: str) -> bool:
    for item in accept.lower().split(","):
        media, _, parameters = item.partition(";")
        if media.strip() in _ACCEPTABLE and parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}:
            return True
    return False


def _request_id(headers: Mapping[str, str]) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else new_id().hex


def _identity_headers() -> list[tuple[bytes, bytes]]:
    headers = [(b"x-content-type-options", b"nosniff")]
    request_id, traceparent = current_request_id(), current_traceparent()
    if request_id:
        headers.append((b"x-request-id", request_id.encode()))
    if traceparent:
        headers.append((b"traceparent", traceparent.encode()))
    return headers


def _access_log(method: str, path: str, route: str, status: int, seconds: float) -> None:
    """Write the access log line. The query string is left out: it may hold the question."""
    quiet = route.startswith(("/actuator", "/livez", "/readyz")) and status < 400
    _log.log(
        10 if quiet else 20,
        "http.request",
        method=method,
        path=path[:512],
        route=route,
        status=status,
        duration_ms=round(seconds * 1000, 3),
        trace_id=current_ids()[0],
    )
