"""Which service answers for which tool."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from strata.assembly.passages import PassageService
from strata.assembly.schemas import EvidenceRequest
from strata.assembly.service import AssemblyCaller, AssemblyService
from strata.knowledge.graph_base import limited, listed
from strata.knowledge.graph_schemas import MatchCursor
from strata.knowledge.graph_service import GraphService
from strata.lookup.search import PassageQuery
from strata.lookup.service import LookupService
from strata.mcp.tools import Call, Toolbox
from strata.sources.service import SourceService
from strata.traces.schemas import Surface
from strata.traces.service import Recorder

_DEFAULT_HITS = 5


class OpenServices(Protocol):
    """What the tools need of the open services of a process."""

    @property
    def lookup(self) -> LookupService:
        """The lookup."""

    @property
    def recorder(self) -> Recorder:
        """Where rows of calls go."""

    @property
    def sources(self) -> SourceService:
        """The documents."""

    @property
    def graph(self) -> GraphService:
        """The graph."""

    @property
    def passages(self) -> PassageService:
        """Search and citation of passages."""

    @property
    def assembly(self) -> AssemblyService:
        """Evidence packages."""


def toolbox(services: OpenServices) -> Toolbox:
    """Return the services behind the tools."""

    async def assemble(call: Call, context: str, arguments: dict[str, Any]) -> Any:
        caller = AssemblyCaller(Surface.MCP, call.request_id, call.session_id, call.agent_id)
        request = msgspec.convert(arguments, EvidenceRequest)
        return await services.assembly.assemble(call.tenant, context, request, caller)

    async def resolve(call: Call, context: str, arguments: dict[str, Any]) -> Any:
        return await services.graph.resolve(call.tenant, context, **arguments)

    async def query(call: Call, context: str, arguments: dict[str, Any]) -> Any:
        if arguments.get("after"):
            arguments = {**arguments, "after": msgspec.convert(arguments["after"], MatchCursor)}
        return await services.graph.query(call.tenant, context, **arguments)

    async def activate(call: Call, context: str, arguments: dict[str, Any]) -> Any:
        return await services.graph.activate(call.tenant, context, **arguments)

    async def search(call: Call, context: str, arguments: dict[str, Any]) -> Any:
        found = PassageQuery(
            text=arguments["query"],
            limit=limited(arguments.get("limit"), _DEFAULT_HITS),
            floor=arguments.get("semantic_floor"),
            tags=listed(arguments.get("tags", ()), "/tags"),
            since=arguments.get("since"),
            until=arguments.get("until"),
        )
        return await services.passages.search(call.tenant, context, found)

    async def cite(call: Call, context: str, arguments: dict[str, Any]) -> Any:
        return await services.passages.cite(call.tenant, context, arguments["source"], arguments["paragraph"])

    return Toolbox(
        lookup=services.lookup,
        recorder=services.recorder,
        documents=services.sources.documents,
        assemble_evidence=assemble,
        resolve=resolve,
        query=query,
        activate=activate,
        search_passages=search,
        cite_passage=cite,
    )
