"""``strata mcp``: tools for an agent over standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.cli import base
from strata.cli.base import examples

if TYPE_CHECKING:
    from strata.services import Services


@examples("strata mcp", "strata mcp 2>> strata-mcp.log")
def mcp() -> None:
    """Serve tools to an agent over standard input and output (MCP).

    A client starts it; it ends when its input closes. Log lines go to standard error.
    `strata serve` offers the same tools over HTTP at /mcp.
    """

    async def serve(services: Services) -> None:
        from strata.mcp.stdio import serve_stdio
        from strata.mcp.wiring import toolbox

        await serve_stdio(toolbox(services))

    base.with_services(serve)
