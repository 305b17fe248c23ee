"""The envelope of the contexts API: ``{"result", "status", "time"}``, and what stands for our errors in it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from strata.errors import ErrorKind, StrataError
from strata.platform.problems import ErrorWire

STARTED: ContextVar[float | None] = ContextVar("contexts_api_started", default=None)

_CODES: Mapping[str, str] = {
    "invalid_request": "invalid_argument",
    "malformed_body": "malformed_request",
    "body_too_large": "payload_too_large",
    "body_too_deep": "malformed_request",
    "unsupported_media_type": "malformed_request",
    "not_acceptable": "malformed_request",
    "route_not_found": "unknown_path",
    "request_timeout": "timeout",
    "context_not_found": "no_context",
    "source_not_found": "no_source",
    "paragraph_not_found": "no_paragraph",
    "group_not_found": "no_group",
    "schema_not_found": "no_schema",
    "communities_not_found": "no_context",
    "context_exists": "already_exists",
    "group_exists": "already_exists",
    "embedding_model_missing": "embeddings_failed",
    "embedding_refused": "embeddings_failed",
    "embedding_unavailable": "embeddings_failed",
    "database_unavailable": "unhealthy",
    "schema_outdated": "unhealthy",
    "statement_timeout": "timeout",
    "internal_error": "internal",
    "schema_violation": "invalid_argument",
    "origin_refused": "forbidden",
    "server_unavailable": "shard_unreachable",
}
"""Our codes in the words of this wire; a code that is not named is the same in both."""

_STATUS: Mapping[str, int] = {"timeout": 408, "embeddings_failed": 502}
_MEMBERS = ("issues", "issues_total", "integrity", "durable_batches", "retryable_after_correction")


def code_of(kind: ErrorKind) -> str:
    """Return what this wire calls an error of ours."""
    return _CODES.get(kind.code, kind.code)


def status_of(error: StrataError) -> int:
    """Return the HTTP status that goes with the code."""
    return _STATUS.get(code_of(error.kind), error.kind.status)


def _failure(error: StrataError) -> bytes:
    detail = error.detail if error.pointer is None else f"{error.pointer}: {error.detail}"
    body: dict[str, Any] = {
        "code": code_of(error.kind),
        "error": _encodable(f"{detail} {error.remedy}" if error.remedy != error.kind.remedy else detail),
        "status": "error",
        "time": elapsed(),
    }
    body |= {name: error.extra[name] for name in _MEMBERS if name in error.extra}
    return msgspec.json.encode(body)


ERRORS = ErrorWire(status=status_of, body=_failure)
"""How an error looks below every path of the contexts API."""

ROOTS = (
    "contexts",
    "groups",
    "import",
    "recall",
    "query",
    "sources",
    "evidence",
    "version",
    "health",
    "live",
    "metrics",
    "protocol",
    "flush",
    "maintenance",
)
"""The first segments of the paths of the contexts API."""


def success(result: Any, *, issues: Sequence[Any] = (), schema_violations: int = 0) -> bytes:
    """Encode a result; what a schema in warn mode objects to rides beside it."""
    body: dict[str, Any] = {"result": result, "status": "ok", "time": elapsed()}
    if issues:
        body |= {"issues": list(issues), "schema_violations": schema_violations}
    return msgspec.json.encode(body)


def elapsed() -> float:
    """Return the seconds since the call began, 0.0 outside of one."""
    started = STARTED.get()
    return 0.0 if started is None else round(time.perf_counter() - started, 6)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
