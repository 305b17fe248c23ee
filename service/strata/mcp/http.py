"""MCP over streamable HTTP at ``/mcp``: stateless, JSON answers, any replica answers any call."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
from litestar import Litestar, asgi
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR

from strata.errors import BODY_TOO_LARGE, MALFORMED_BODY, ORIGIN_REFUSED, OVERLOADED, StrataError
from strata.mcp.arguments import refuse_unclean
from strata.mcp.server import PATH, ToolServer
from strata.mcp.tools import Toolbox
from strata.platform.limits import SMALL_BODY_BYTES
from strata.platform.problems import JSON_BODY_STATE, ErrorWire, problem_body

ROOT = PATH.removeprefix("/")
"""The first segment of the path, by which the border knows the wire of its errors."""


@dataclass(frozen=True, slots=True)
class McpRoute:
    """What an application adds: the handler, and a lifespan to enter after its services are open."""

    handler: ASGIRouteHandler
    lifespan: Callable[[Litestar], AbstractAsyncContextManager[None]]


def mcp_route(toolbox: Callable[[], Toolbox]) -> McpRoute:
    """Return the route; ``toolbox`` is called once at each start, when the services are open."""
    running: list[StreamableHTTPSessionManager] = []

    @asynccontextmanager
    async def lifespan(_app: Litestar) -> AsyncIterator[None]:
        manager = StreamableHTTPSessionManager(
            ToolServer(toolbox()).protocol(),
            json_response=True,
            stateless=True,
            max_request_body_size=SMALL_BODY_BYTES,
        )
        async with manager.run():
            running.append(manager)
            try:
                yield
            finally:
                running.remove(manager)

    @asgi(PATH, copy_scope=False)
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        request: Any = scope
        if request["method"] != "POST":
            # Without sessions there is no stream to listen to and nothing to end.
            raise MethodNotAllowedException(headers={"allow": "POST"})
        _check_head(request["headers"])
        # Half of a character is no JSON to the SDK; its error would not say where it stands.
        refuse_unclean(request["state"].get(JSON_BODY_STATE), takes_nul=True)
        if not running:
            raise StrataError(OVERLOADED, "The server is starting or stopping.")
        await running[-1].handle_request(request, receive, send)  # type: ignore[arg-type]

    return McpRoute(handler, lifespan)


def _failure(error: StrataError) -> bytes:
    """Return a JSON-RPC error that holds the problem document; the request's id is not known here."""
    document = msgspec.json.decode(problem_body(error, instance=PATH))
    message = f"{document['code']}: {document['detail']} {document['remedy']}"
    code = (
        PARSE_ERROR if error.kind is MALFORMED_BODY else INVALID_REQUEST if error.kind.status < 500 else INTERNAL_ERROR
    )
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": document}}
    )


ERRORS = ErrorWire(status=lambda error: error.kind.status, body=_failure)
"""How what is refused before any tool looks: clients read a JSON-RPC error also from a status of 4xx."""


def _check_head(headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse a body over 1 MiB, and a web page of another machine; programs that are no browser send no Origin.

    A page can reach a server on the reader's machine when its host name is made to resolve there
    (DNS rebinding), but it cannot change the Origin that the browser sends.
    """
    for name, value in headers:
        if name.lower() == b"origin" and not _is_local(value.decode("latin-1")):
            raise StrataError(ORIGIN_REFUSED, "The request comes from a web page.", pointer="header:Origin")
        if name.lower() == b"content-length" and int(value) > SMALL_BODY_BYTES:
            raise StrataError(
                BODY_TOO_LARGE,
                f"The body is larger than {SMALL_BODY_BYTES} bytes.",
                remedy="Send a smaller body.",
                extra={"limitBytes": SMALL_BODY_BYTES},
            )


def _is_local(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
