"""What the tests of facts and evidence packages share: the application in this process, and its calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import httpx

from strata.app import create_app
from wire.accounting import check, quarters, read
from wire.seeds import Wire

MCP_HEADERS = {"accept": "application/json, text/event-stream"}
BASE = "http://localhost"


class Api(Wire):
    """Calls of one application over its own wire, each with its checks."""

    async def evidence(self, name: str, origins: Any = (), **body: Any) -> dict[str, Any]:
        """Assemble a package whose every count must be right."""
        return read(await self.evidence_text(name, origins, **body))["result"]

    async def evidence_text(self, name: str, origins: Any = (), **body: Any) -> str:
        """Assemble a package; return the answer as sent."""
        sent = {"origins": origins if isinstance(origins, str) else list(origins), **body}
        response = await self.http.post(f"/contexts/{name}/evidence", json=sent)
        assert response.status_code == 200, response.text
        check(read(response.text)["result"])
        return response.text

    async def lookup(self, query: str, context: Any = "kb", **body: Any) -> dict[str, Any]:
        """Ask one question."""
        response = await self.http.post("/api/v1/lookup", json={"query": query, "context": context, **body})
        assert response.status_code == 200, response.text
        return json.loads(response.text)

    async def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool over MCP; return its result."""
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments},
        }
        response = await self.http.post("/mcp", json=message, headers=MCP_HEADERS)
        assert response.status_code == 200, response.text
        return response.json()["result"]

    async def refused(self, path: str, body: Any) -> tuple[int, str, str]:
        """Send what must be refused; return status, code and sentence."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = await self.http.post(path, content=content, headers={"content-type": "application/json"})
        answer = response.json()
        assert answer["status"] == "error", answer
        return response.status_code, answer["code"], answer["error"]


@contextlib.asynccontextmanager
async def serving(settings, services):
    """The whole application over open services, also its MCP; entered and left in one task of its own."""
    app = create_app(settings, services=services)
    started, ends = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def run():
        async with app.lifespan():
            started.set_result(None)
            await ends.wait()

    task = asyncio.create_task(run())
    try:
        await started
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=BASE, timeout=60) as http:
            yield Api(http)
    finally:
        ends.set()
        await task


def tokens(text: str) -> int:
    """Return the declared estimate of a text."""
    return -(-quarters(text) // 4)


def triples(package: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the facts of a package, in its order."""
    facts = [item["association"] for item in package["items"] if item["kind"] == "association"]
    return [(fact["subject"], fact["label"], fact["object"]) for fact in facts]


def passages(package: dict[str, Any]) -> list[tuple[str, int]]:
    """Return the passages of a package, in its order."""
    found = [item["passage"] for item in package["items"] if item["kind"] == "passage"]
    return [(passage["source"], passage["paragraph"]) for passage in found]


def fact_blocks(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of a lookup that are facts, in rank order."""
    return [block for block in result["evidenceBlocks"] if "fact" in block]


def said(block: dict[str, Any]) -> tuple[str, str, str]:
    """Return what a block of a fact says."""
    return block["fact"]["subject"], block["fact"]["label"], block["fact"]["object"]


def stream(*lines: dict[str, Any]) -> str:
    """Return an import stream."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def header(source: str, context: str = "kb", **more: Any) -> dict[str, Any]:
    """Return the line that begins a source, and makes its context."""
    return {"taguru_batch": 1, "context": context, "source": source, "create": {"description": ""}, **more}
