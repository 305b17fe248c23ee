"""What tells a client whom it talks to, and whether it is well: bare answers, outside the envelope."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import msgspec
from msgspec import Struct

from strata.assembly.communities import FORMAT as COMMUNITIES_FORMAT
from strata.contexts_api.operation import Call, Text, operation
from strata.errors import DATABASE_UNAVAILABLE, StrataError
from strata.exchange.records import REVISION
from strata.graph.schema import SCHEMA_VERSION
from strata.platform.schema import require_current
from strata.platform.telemetry import VERSION, metrics_text

HTTP_CONTRACT = 1
MCP_CONTRACT = 1
JSON = "application/json"
MARKDOWN = "text/markdown; charset=utf-8"


class ContractOut(Struct, frozen=True, kw_only=True):
    """The version of a contract that is spoken, and all that are understood."""

    current: int
    supported: list[int]


class ProtocolsOut(Struct, frozen=True, kw_only=True):
    """Revisions of a protocol that are understood."""

    supported: list[str]


class VersionOut(Struct, frozen=True, kw_only=True):
    """Which server this is, and what it speaks."""

    server: str
    http_contract: ContractOut
    mcp_contract: ContractOut
    mcp_protocol: ProtocolsOut
    batch_formats: list[int]
    schema_formats: list[int]
    communities_formats: list[int]
    record_formats: list[str]


@operation("GET", "/version", is_recorded=False)
async def version(_call: Call) -> Text:
    """Return which server this is, and what it speaks."""
    out = VersionOut(
        server=VERSION,
        http_contract=ContractOut(current=HTTP_CONTRACT, supported=[HTTP_CONTRACT]),
        mcp_contract=ContractOut(current=MCP_CONTRACT, supported=[MCP_CONTRACT]),
        mcp_protocol=ProtocolsOut(supported=["2024-11-05", "2025-03-26", "2025-06-18"]),
        batch_formats=[1],
        schema_formats=[SCHEMA_VERSION],
        communities_formats=[COMMUNITIES_FORMAT],
        record_formats=[REVISION],
    )
    return Text(msgspec.json.encode(out), JSON)


@operation("GET", "/health", is_recorded=False)
async def health(call: Call) -> Text:
    """Return 200 where calls can be answered, 503 where the database is away or its schema is not current."""
    try:
        async with call.services.database.owner() as connection:
            await require_current(connection, call.services.database.dsn)
    except StrataError as error:
        raise StrataError(DATABASE_UNAVAILABLE, error.detail) from error
    return Text(msgspec.json.encode({"status": "ok", "version": VERSION}), JSON)


@operation("GET", "/live", is_recorded=False)
async def live(_call: Call) -> Text:
    """Return 200 while the process answers."""
    return Text(msgspec.json.encode({"status": "ok"}), JSON)


@operation("GET", "/metrics", is_recorded=False)
async def metrics(_call: Call) -> Text:
    """Return the metrics of this process for Prometheus."""
    content, media_type = metrics_text()
    return Text(content, media_type)


@operation("GET", "/protocol", is_recorded=False)
async def protocol(_call: Call) -> Text:
    """Return how an agent is to use this API, as Markdown."""
    return Text(files("strata.contexts_api").joinpath("protocol.md").read_text("utf-8"), MARKDOWN)


@operation("POST", "/flush")
async def flush(call: Call) -> Sequence[str]:
    """Write down what is only counted in memory; return the contexts that had any. All else is durable already."""
    return await call.services.contexts.flushed(call.tenant)


ROUTES = (version, health, live, metrics, protocol, flush)
