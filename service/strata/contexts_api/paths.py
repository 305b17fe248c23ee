"""Names with a slash in the path of a request: they come encoded, and are one segment."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from litestar.types import ASGIApp, Receive, Send

from strata.contexts_api.envelope import ROOTS

STAND_IN = "\ue000"
"""Stands for a slash inside a segment until the segment is read: no name may hold a private-use character."""


def named(segment: str) -> str:
    """Return a segment of a path as the name that it is."""
    return segment.replace(STAND_IN, "/")


class SlashesInNames:
    """ASGI middleware: lets ``/contexts/a%2Fb`` name the context ``a/b``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request."""
        raw = scope.get("raw_path") or b""
        if scope["type"] == "http" and b"%2f" in raw.lower() and scope["path"][1:].partition("/")[0] in ROOTS:
            segments = raw.partition(b"?")[0].decode("latin-1").split("/")
            scope["path"] = "/".join(unquote(segment).replace("/", STAND_IN) for segment in segments)
        await self._app(scope, receive, send)
