"""What the scenario tests share: documents, questions, and the row that a question leaves."""

from __future__ import annotations

from typing import Any

from strata.errors import StrataError
from strata.lookup.schemas import LookupRequest, LookupResult
from strata.lookup.service import Caller
from strata.platform.ids import DEFAULT_TENANT
from strata.services import Services
from strata.sources.model import DocumentInput
from strata.sources.schemas import IngestReport
from strata.traces.schemas import InvocationView, Surface

CALLER = Caller(Surface.REST, "request-1")
CONTEXT = "handbook"


def doc(path: str | None, content: str | bytes, **fields: Any) -> DocumentInput:
    """A Markdown document."""
    return DocumentInput(content=content, path=path, **{"media_type": "text/markdown", **fields})


async def put(services: Services, *documents: DocumentInput, context: str = CONTEXT) -> IngestReport:
    """Ingest documents of which none may be refused."""
    report = await services.sources.ingest(DEFAULT_TENANT, context, documents)
    assert report.refused == 0, report.refusals
    return report


async def ask(services: Services, query: str, *, context: Any = CONTEXT, **fields: Any) -> LookupResult:
    """Ask one question."""
    request = LookupRequest(query=query, context=context, **fields)
    return await services.lookup.lookup(DEFAULT_TENANT, request, CALLER)


async def row_of(services: Services, result: LookupResult) -> InvocationView:
    """The row that a result left."""
    return await services.invocations.show(DEFAULT_TENANT, result.lookup_id)


def sources(result: LookupResult) -> list[str]:
    """The sources of the blocks, in rank order."""
    return [block.source for block in result.evidence_blocks]


def pointed(error: StrataError) -> tuple[str, str | None]:
    """The code of an error and the field it points to."""
    return error.code, error.pointer


def prose(word: str, count: int, start: int = 1) -> str:
    """Sentences that hold ``word``, no two alike, about 75 characters each."""
    return " ".join(
        f"The {word} entry {number} states what the clerk wrote on that day." for number in range(start, start + count)
    )
