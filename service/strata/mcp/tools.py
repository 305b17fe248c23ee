"""A tool as the server runs it, and the services behind the tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from strata.lookup.service import LookupService
from strata.sources.document_service import DocumentService
from strata.traces.service import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Who calls; what goes into the row beside the arguments."""

    tenant: UUID
    request_id: str | None
    session_id: str | None
    agent_id: str | None


class ToolService(Protocol):
    """What a tool over one context calls.

    ``arguments`` are those of the call that were given, checked against the tool's schema, without
    ``context``. Returns what the contexts API would answer as ``result``; raises StrataError.
    """

    async def __call__(self, call: Call, context: str, arguments: dict[str, Any], /) -> Any:
        """Answer one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The services that tools need. A tool whose service is None is not offered.

    ``lookup`` and ``assemble_evidence`` write the rows of their calls; those of the others are written
    here, with ``recorder``.
    """

    lookup: LookupService
    recorder: Recorder
    documents: DocumentService | None = None
    assemble_evidence: ToolService | None = None
    resolve: ToolService | None = None
    query: ToolService | None = None
    activate: ToolService | None = None
    search_passages: ToolService | None = None
    cite_passage: ToolService | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a tool answers: the same result for machines and for the model."""

    structured: dict[str, Any]
    text: str
    found: bool = True
    evidence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool.

    ``read`` turns what was sent into checked arguments, ``run`` answers with them; both raise
    StrataError. ``recorded`` gives the arguments for the row of the call; None where the service behind
    ``run`` writes the row.
    """

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    read: Callable[[Mapping[str, Any]], Any]
    run: Callable[[Call, Any], Awaitable[Answer]]
    recorded: Callable[[Any], dict[str, Any]] | None
