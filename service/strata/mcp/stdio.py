"""MCP over standard input and output: one process, one client, until its input closes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncIterator
from typing import Any, cast

from mcp.server.stdio import stdio_server

from strata.errors import BODY_TOO_LARGE, StrataError
from strata.mcp.server import ToolServer
from strata.mcp.tools import Toolbox
from strata.platform.ids import new_id
from strata.platform.limits import SMALL_BODY_BYTES

_CHUNK_BYTES = 64 * 1024
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


async def serve_stdio(box: Toolbox) -> None:
    """Serve until standard input closes; calls in flight are cancelled then.

    Raises ``body_too_large`` for a message over 1 MiB: what follows it cannot be trusted.
    """
    server = ToolServer(box, session_id=f"stdio-{new_id()}").protocol()
    lines = _Lines(_own_input())
    async with stdio_server(stdin=cast("Any", lines)) as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())
    if lines.is_too_long:
        raise StrataError(
            BODY_TOO_LARGE,
            f"A message is larger than {SMALL_BODY_BYTES} bytes.",
            remedy="Send smaller messages, one a line.",
        )


def _own_input() -> int:
    """Take standard input for ourselves: child processes read nothing, and nobody closes it under us."""
    own = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return own


class _Lines:
    """The lines of a descriptor.

    They are read in a thread that the process does not wait for: a read of standard input cannot be
    cancelled, and Ctrl-C must end the process while one waits.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.is_too_long = False

    async def __aiter__(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=16)

        def read() -> None:
            chunk = b"start"
            while chunk:
                try:
                    chunk = os.read(self._descriptor, _CHUNK_BYTES)
                    asyncio.run_coroutine_threadsafe(queue.put(chunk), loop).result()
                except (OSError, RuntimeError, asyncio.CancelledError):
                    return

        threading.Thread(target=read, name="strata-mcp-stdin", daemon=True).start()
        waiting = b""
        while chunk := await queue.get():
            *lines, waiting = (waiting + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    yield _decoded(line)
            if len(waiting) > SMALL_BODY_BYTES:
                self.is_too_long = True
                return
        if waiting.strip():
            yield _decoded(waiting)


def _decoded(line: bytes) -> str:
    """Return a line as the SDK's parser takes it: bytes and escapes that are no character become U+FFFD."""
    text = line.decode("utf-8", "replace")
    if not _SURROGATE_ESCAPE.search(line):
        return text
    try:
        repaired = json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    return repaired.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
