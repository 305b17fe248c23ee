"""What a request may be: size, depth, form and time of its body."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Send

from strata.errors import (
    BODY_TOO_DEEP,
    BODY_TOO_LARGE,
    INVALID_REQUEST,
    MALFORMED_BODY,
    REQUEST_TIMEOUT,
    UNSUPPORTED_MEDIA_TYPE,
    StrataError,
)
from strata.platform.problems import JSON_BODY_STATE
from strata.settings import Settings

SMALL_BODY_BYTES = 1024 * 1024
"""The ceiling of every body that carries no documents."""

UNSIZED_BODY_BYTES = 16 * 1024 * 1024
"""The ceiling of a body that does not state its Content-Length."""

STREAM_PATHS = frozenset({"/import"})
"""Where a body is a stream of JSON lines; its reader checks it."""

_LARGE_ROOTS = frozenset({"contexts", "import"})
_TOOLS = "mcp"
_IN_THREAD_BYTES = 256 * 1024
_BRACKETS = bytes(sorted(b"[]{}"))
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_BOM = b"\xef\xbb\xbf"


class ClientGoneError(Exception):
    """The caller closed the connection before its body was complete."""


def json_depth(body: bytes) -> int:
    """Return how deeply the arrays and objects of a JSON text are nested, in linear time.

    Works on bytes that need not be valid JSON; what it returns for them does not matter, since
    the parser refuses them. Escapes are dropped first, then strings, then all but the brackets.
    """
    if not body.count(b"[") + body.count(b"{"):
        return 0
    text = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    outside = b"".join(text.split(b'"')[0::2]).translate(None, _NOT_BRACKETS)
    codes = np.frombuffer(outside, dtype=np.uint8)
    opening = (codes == ord("[")) | (codes == ord("{"))
    return int(np.cumsum(np.where(opening, 1, -1), dtype=np.int64).max(initial=0))


def parse_json(body: bytes, *, max_depth: int, clean_text: bool) -> Any:
    """Parse one JSON document strictly; return plain Python values.

    Refuses what lenient parsers disagree on: duplicate keys, NaN and infinities, numbers out of
    range, bytes that are not UTF-8. With ``clean_text`` also NUL and lone surrogates in strings,
    naming the field; without it they are left for the normaliser of documents. Raises StrataError
    ``malformed_body``, ``body_too_deep`` or ``invalid_request``.
    """
    depth = json_depth(body)
    if depth > max_depth:
        raise StrataError(BODY_TOO_DEEP, f"The body is nested {depth} levels deep; {max_depth} are allowed.")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StrataError(MALFORMED_BODY, f"Byte {error.start} is not valid UTF-8.") from error
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        detail = f"{error.msg} at line {error.lineno}, column {error.colno}."
        raise StrataError(MALFORMED_BODY, detail) from error
    except ValueError as error:
        raise StrataError(MALFORMED_BODY, "A number has too many digits.") from error
    if clean_text and b"\\u" in body:
        for pointer, problem in _unclean(value, ""):
            raise StrataError(INVALID_REQUEST, f"The text holds {problem}.", pointer=pointer)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise StrataError(MALFORMED_BODY, f"The key {key[:80]!r} stands twice in one object.")
            seen.add(key)
    return members


def _refuse_constant(name: str) -> Any:
    raise StrataError(MALFORMED_BODY, f"{name} is not a JSON number.")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise StrataError(MALFORMED_BODY, f"The number {digits[:40]} is out of range.")
    return number


def _unclean(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if "\0" in value:
            yield pointer, "a NUL character"
        elif not value.isascii() and any(0xD800 <= ord(character) <= 0xDFFF for character in value):
            yield pointer, "a lone surrogate"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unclean(item, f"{pointer}/{index}")
    elif isinstance(value, dict):
        for key, item in value.items():
            for _, problem in _unclean(key, pointer):
                yield pointer, f"{problem} in a key"
            yield from _unclean(item, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")


class BodyLimits:
    """ASGI middleware: check a body before anything else sees it.

    It is read whole, within its size and time, and handed on as one message; JSON is checked on
    the way. Raises StrataError to the border.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] not in {"POST", "PUT", "PATCH", "DELETE"}:
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        path = scope["path"].rstrip("/")
        carries_documents = path.endswith(("/sources", "/hints"))
        root = path[1:].partition("/")[0]
        limit = self._limit(headers, is_large=carries_documents or root in _LARGE_ROOTS)
        if not _has_body(headers):
            await self._app(scope, receive, send)
            return
        if path in STREAM_PATHS:
            _check_encoding(headers)
            body = await _read(receive, limit, self._settings.max_request_seconds)
            await self._app(scope, _replay(body, receive), send)
            return
        is_multipart = _is_multipart(headers, carries_documents=carries_documents)
        body = await _read(receive, limit, self._settings.max_request_seconds)
        if not is_multipart:
            body = body.removeprefix(_BOM)
        if body.strip() and not is_multipart:
            parse = partial(
                parse_json, max_depth=self._settings.max_body_depth, clean_text=not carries_documents and root != _TOOLS
            )
            value = parse(body) if len(body) <= _IN_THREAD_BYTES else await asyncio.to_thread(parse, body)
            scope["state"][JSON_BODY_STATE] = value
        await self._app(scope, _replay(body, receive), send)

    def _limit(self, headers: dict[bytes, bytes], *, is_large: bool) -> int:
        limit = self._settings.max_body_bytes if is_large else SMALL_BODY_BYTES
        limit = min(limit, self._settings.max_body_bytes)
        length = headers.get(b"content-length")
        if length is None:
            return min(limit, UNSIZED_BODY_BYTES)
        if not length.isdigit():
            raise StrataError(INVALID_REQUEST, "Content-Length is not a number.", pointer="header:Content-Length")
        if int(length) > limit:
            raise _too_large(limit)
        return limit


async def _read(receive: Receive, limit: int, seconds: float) -> bytes:
    """Read a whole body; raises ``body_too_large``, ``request_timeout`` or ClientGoneError."""
    chunks: list[bytes] = []
    size = 0
    is_complete = False
    try:
        async with asyncio.timeout(seconds):
            while not is_complete:
                message: Any = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                is_complete = not message.get("more_body", False)
                if size > limit:
                    raise _too_large(limit)
    except TimeoutError as error:
        raise StrataError(REQUEST_TIMEOUT, f"The body was not complete after {seconds:g} s.") from error
    return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replayed() -> HTTPReceiveMessage:
        nonlocal sent
        if sent:
            return await receive()  # type: ignore[return-value]
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _too_large(limit: int) -> StrataError:
    return StrataError(BODY_TOO_LARGE, f"The body is larger than {limit} bytes.", extra={"limitBytes": limit})


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def _check_encoding(headers: dict[bytes, bytes]) -> None:
    if headers.get(b"content-encoding", b"identity").strip().lower() not in {b"identity", b""}:
        raise StrataError(
            UNSUPPORTED_MEDIA_TYPE,
            "Compressed bodies are not taken.",
            pointer="header:Content-Encoding",
            remedy="Send the body without Content-Encoding.",
        )


def _is_multipart(headers: dict[bytes, bytes], *, carries_documents: bool) -> bool:
    """Return whether the body is multipart; raise ``unsupported_media_type`` when it is neither that nor JSON.

    A body without a Content-Type is taken for JSON.
    """
    _check_encoding(headers)
    media, _, parameters = headers.get(b"content-type", b"").decode("latin-1").lower().partition(";")
    media = media.strip()
    if media == "multipart/form-data" and carries_documents:
        return True
    is_json = media in {"", "application/json"} or (media.startswith("application/") and media.endswith("+json"))
    charset = next(
        (item.partition("=")[2].strip(" \"'") for item in parameters.split(";") if item.strip().startswith("charset")),
        "utf-8",
    )
    if not is_json:
        allowed = "application/json or multipart/form-data" if carries_documents else "application/json"
        raise StrataError(
            UNSUPPORTED_MEDIA_TYPE,
            f"The body has a Content-Type that is not {allowed}.",
            pointer="header:Content-Type",
            remedy=f"Send {allowed}.",
        )
    if charset not in {"utf-8", "utf8"}:
        raise StrataError(
            UNSUPPORTED_MEDIA_TYPE, "JSON is sent in UTF-8.", pointer="header:Content-Type", remedy="Send UTF-8."
        )
    return False
