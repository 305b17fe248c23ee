"""POST and GET /api/v1/lookup.

Both read the request inside the service: a question that is refused leaves its row too.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Controller, Request, Response, get, post
from litestar.di import NamedDependency

from strata.errors import CONTEXT_NOT_FOUND, STATEMENT_TIMEOUT
from strata.lookup.budget_schemas import BudgetedResult
from strata.lookup.budget_view import markdown
from strata.lookup.schemas import LookupQuery, LookupRequest, LookupResult
from strata.lookup.service import Caller, LookupAnswer, LookupService
from strata.platform.border import current_request_id
from strata.platform.openapi import documented
from strata.traces.schemas import Surface

_REQUEST = {"query": "How long are audit logs kept?", "context": "handbook", "topK": 3}
_RESPONSE: dict[str, Any] = {
    "lookupId": "01981c2b-5c7f-7d3c-9f0a-4b1e2d3c4b5a",
    "found": True,
    "primary": "Audit logs are kept for 400 days, then deleted.",
    "supplement": None,
    "relevanceLevel": "HIGH",
    "completenessHint": "COMPLETE",
    "completenessMessage": None,
    "emptyReason": None,
    "vectorCoverage": 1.0,
    "evidenceBlocks": [
        {
            "rank": 1,
            "sourceKey": "path:security/audit.md#retention",
            "sourceKeyBasis": "PATH",
            "source": "security/audit.md",
            "title": "Audit log",
            "breadcrumb": ["Audit log", "Retention"],
            "anchor": "retention",
            "category": "security",
            "layer": "L1",
            "layers": ["L0", "L1"],
            "score": 1.0,
            "laneRanks": [
                {"lane": "hints", "rank": 1},
                {"lane": "hybrid", "rank": 1},
                {"lane": "lexical", "rank": 1},
                {"lane": "vector", "rank": 2},
            ],
            "hitReasons": ["L1_RANK:1", "L1_LEXICAL:1", "L1_VECTOR:2", "L0_ALIAS", "L0_HINT_BOOST"],
            "contentPreview": "Audit logs are kept for 400 days, then deleted.",
            "content": None,
            "citation": {
                "source": "security/audit.md",
                "sourceVersion": 3,
                "anchor": "retention",
                "startByte": 812,
                "endByte": 859,
                "sha256": "3d0b6f0b1c7c0f8f8c3a7b5a1d0d4f2a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e",
                "page": None,
                "startMs": None,
                "endMs": None,
                "speaker": None,
            },
            "mergedCount": 2,
            "metadata": {"owner": "security"},
        }
    ],
    "omitted": {"total": 0, "byReason": {}, "items": []},
    "budget": None,
    "markdown": None,
    "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
    "tookMs": 4.2,
}


class LookupController(Controller):
    """One question in, evidence out."""

    path = "/api/v1/lookup"
    tags = ("lookup",)

    @post(
        operation_id="lookup",
        summary="Ask a question",
        status_code=200,
        opt=documented(
            request=_REQUEST,
            response=_RESPONSE,
            errors=(CONTEXT_NOT_FOUND, STATEMENT_TIMEOUT),
            request_type=LookupRequest,
        ),
    )
    async def lookup(
        self, request: Request[Any, Any, Any], lookup: NamedDependency[LookupService], tenant: NamedDependency[UUID]
    ) -> Response[LookupResult | BudgetedResult]:
        """Return evidence for a question: what was found, where it stands, why it was chosen, what was left out.

        With a `budget` that is a number the whole answer keeps within so many tokens, and is a
        `BudgetedResult`; with `format` markdown as well it is that text.
        """
        return _response(await lookup.lookup_json(tenant, await request.body(), _caller()))

    @get(
        operation_id="lookupByQuery",
        summary="Ask a question with query parameters",
        opt=documented(response=_RESPONSE, errors=(CONTEXT_NOT_FOUND, STATEMENT_TIMEOUT), query_type=LookupQuery),
    )
    async def lookup_by_query(
        self, request: Request[Any, Any, Any], lookup: NamedDependency[LookupService], tenant: NamedDependency[UUID]
    ) -> Response[LookupResult | BudgetedResult]:
        """Return the same as POST; the question is ``q``, lists repeat their parameter."""
        return _response(await lookup.lookup_query(tenant, request.query_params.dict(), _caller()))


def _response(answer: LookupAnswer) -> Response[Any]:
    """Return the answer in the form that was asked for."""
    if isinstance(answer, LookupResult):
        return Response(answer)
    if answer.wants_markdown:
        return Response(markdown(answer.result), media_type="text/markdown")
    return Response(answer.result)


def _caller() -> Caller:
    return Caller(Surface.REST, current_request_id())
