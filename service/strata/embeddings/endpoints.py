"""Embeddings over REST."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Controller, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from strata.embeddings.schemas import ContextEmbeddings
from strata.embeddings.service import EmbeddingService
from strata.errors import CONTEXT_NOT_FOUND
from strata.platform.openapi import documented

_EXAMPLE: dict[str, Any] = {
    "contextId": "01981c2b-5c7f-7d3c-9f0a-4b1e2d3c4b5a",
    "context": "handbook",
    "passages": 2204,
    "coverage": 0.975,
    "configured": {
        "mode": "local",
        "model": "intfloat/multilingual-e5-small",
        "revision": "1571fc982750",
        "dimension": 384,
        "error": None,
    },
    "spaces": [
        {
            "id": 7,
            "state": "active",
            "provider": "local",
            "model": "intfloat/multilingual-e5-small",
            "revision": "1571fc982750",
            "dimension": 384,
            "vectors": 2149,
            "coverage": 0.975,
            "isIndexed": False,
            "removed": 12,
            "waiting": 1,
            "running": 1,
            "failed": 0,
            "createdAt": "2026-01-31T09:30:00.000000Z",
            "activatedAt": "2026-01-31T09:30:00.000000Z",
        }
    ],
    "failures": [],
    "notes": [],
}


class EmbeddingController(Controller):
    """How a context is embedded: read-only, the work is done by workers."""

    path = "/api/v1/contexts"
    tags = ("embeddings",)

    @get(
        "/{context:str}/embeddings",
        operation_id="getContextEmbeddings",
        summary="Say how a context is embedded",
        opt=documented(response=_EXAMPLE, errors=(CONTEXT_NOT_FOUND,)),
    )
    async def get_context_embeddings(
        self, context: FromPath[str], embeddings: NamedDependency[EmbeddingService], tenant: NamedDependency[UUID]
    ) -> ContextEmbeddings:
        """Return the spaces of a context, how much each covers, the work that waits, and what failed."""
        return await embeddings.context_status(tenant, context)
