"""The record of calls over REST."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from litestar import Controller, get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from strata.errors import CONTEXT_NOT_FOUND, INVALID_REQUEST, INVOCATION_NOT_FOUND, StrataError
from strata.platform.openapi import documented
from strata.traces.schemas import InvocationPage, InvocationView, Status, WhyReport
from strata.traces.service import MAX_PAGE, MAX_TARGET_CHARS, InvocationService

_SUMMARY = {
    "id": "01981c2c-0f3e-7a5b-b1c4-9d8e7f6a5b4c",
    "createdAt": "2026-01-31T09:31:00.000000Z",
    "toolName": "lookup",
    "surface": "REST",
    "status": "SUCCESS",
    "contextId": "01981c2b-5c7f-7d3c-9f0a-4b1e2d3c4b5a",
    "sessionId": None,
    "agentId": None,
    "requestId": "01981c2c0f3d7a5bb1c49d8e7f6a5b4c",
    "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
    "query": "how many vacation days do I get?",
    "found": True,
    "relevanceLevel": "HIGH",
    "completenessHint": "COMPLETE",
    "evidenceCount": 3,
    "durationMs": 4.2,
    "errorType": None,
}
_VIEW = {
    **{key: value for key, value in _SUMMARY.items() if key != "query"},
    "spanId": "00f067aa0ba902b7",
    "arguments": {"query": "how many vacation days do I get?", "context": "handbook"},
    "errorMessage": None,
    "retrievalDetails": {"schemaVersion": 1, "evidenceBlocks": [], "omitted": []},
}
_WHY: dict[str, Any] = {
    "invocationId": _SUMMARY["id"],
    "target": "hr/old-leave.md",
    "stage": "TOP_K",
    "reason": "BELOW_TOP_K",
    "isSelected": False,
    "rank": None,
    "sentence": "hr/old-leave.md is not in the result: the wanted number of blocks was reached before its turn.",
    "candidates": [],
    "live": None,
    "notes": [],
}


class InvocationController(Controller):
    """One row for every call of any tool, newest first."""

    path = "/api/v1/invocations"
    tags = ("invocations",)

    @get(
        operation_id="listInvocations",
        summary="List recorded calls",
        opt=documented(response={"items": [_SUMMARY], "nextCursor": None}, errors=(CONTEXT_NOT_FOUND,)),
    )
    async def list_invocations(
        self,
        *,
        invocations: NamedDependency[InvocationService],
        tenant: NamedDependency[UUID],
        context: Annotated[str | None, QueryParameter(description="Calls of this context, by id or name.")] = None,
        status: Annotated[Status | None, QueryParameter(description="Calls that ended so.")] = None,
        tool: Annotated[str | None, QueryParameter(description="Calls of this tool.")] = None,
        session_id: Annotated[str | None, QueryParameter(name="sessionId", description="Calls of a session.")] = None,
        trace_id: Annotated[str | None, QueryParameter(name="traceId", description="Calls of a trace.")] = None,
        query_text: Annotated[
            str | None, QueryParameter(name="query", description="Calls whose question holds this text.")
        ] = None,
        since: Annotated[str | None, QueryParameter(description="Calls at or after this ISO 8601 time.")] = None,
        until: Annotated[str | None, QueryParameter(description="Calls before this ISO 8601 time.")] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE, description="Calls a page.")] = 50,
        cursor: Annotated[str | None, QueryParameter(description="`nextCursor` of the page before.")] = None,
    ) -> InvocationPage:
        """Return one page of calls, newest first."""
        return await invocations.list(
            tenant,
            context=context,
            status=status,
            tool=tool,
            session_id=session_id,
            trace_id=trace_id,
            query=query_text,
            since=_moment(since, "?since"),
            until=_moment(until, "?until"),
            limit=limit,
            cursor=cursor,
        )

    @get(
        "/{invocation_id:uuid}",
        operation_id="getInvocation",
        summary="Read a recorded call",
        opt=documented(response=_VIEW, errors=(INVOCATION_NOT_FOUND,)),
    )
    async def get_invocation(
        self,
        invocation_id: FromPath[UUID],
        invocations: NamedDependency[InvocationService],
        tenant: NamedDependency[UUID],
    ) -> InvocationView:
        """Return the whole row of one call."""
        return await invocations.show(tenant, invocation_id)

    @get(
        "/{invocation_id:uuid}/why",
        operation_id="whyInvocation",
        summary="Why is this source not in the answer",
        opt=documented(response=_WHY, errors=(INVOCATION_NOT_FOUND,)),
    )
    async def why(
        self,
        invocation_id: FromPath[UUID],
        target: Annotated[
            str,
            QueryParameter(
                min_length=1, max_length=MAX_TARGET_CHARS, description="A source path, a source key or a passage key."
            ),
        ],
        invocations: NamedDependency[InvocationService],
        tenant: NamedDependency[UUID],
    ) -> WhyReport:
        """Say at which stage, and for which reason, a source or passage is or is not in the result."""
        return await invocations.why(tenant, invocation_id, target)


def _moment(value: str | None, pointer: str) -> datetime | None:
    """Read an ISO 8601 date or time as UTC, which it is where no zone is given. A plain number is no time."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError as error:
        raise StrataError(INVALID_REQUEST, "The value is not an ISO 8601 time.", pointer=pointer) from error
    except OverflowError as error:
        raise StrataError(
            INVALID_REQUEST, "The time is outside the years 1 to 9999 in UTC.", pointer=pointer
        ) from error
