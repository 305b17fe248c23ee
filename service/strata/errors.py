"""The one error model: every failure a caller can see is a StrataError of a known kind.

A kind has a stable code, an HTTP status and a default remedy. Surfaces render it (problem
details over REST, one line on the command line); nothing else decides a status or an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CATALOGUE: dict[str, ErrorKind] = {}


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the error catalogue (docs/errors.md).

    ``code`` is stable for ever, ``status`` is the HTTP status, ``title`` names the kind in a few
    words, ``remedy`` says what the caller can do. ``retry_after_seconds`` is sent as Retry-After.
    """

    code: str
    status: int
    title: str
    remedy: str
    retry_after_seconds: int | None = None


def _kind(code: str, status: int, title: str, remedy: str, retry_after_seconds: int | None = None) -> ErrorKind:
    kind = ErrorKind(code, status, title, remedy, retry_after_seconds)
    if code in CATALOGUE:
        raise AssertionError(f"error code declared twice: {code}")
    CATALOGUE[code] = kind
    return kind


INVALID_REQUEST = _kind("invalid_request", 400, "Invalid request", "Correct the field named by the pointer.")
MALFORMED_BODY = _kind("malformed_body", 400, "Malformed body", "Send one well-formed JSON document in UTF-8.")
MALFORMED_REQUEST = _kind(
    "malformed_request", 422, "Malformed request", "Send the fields of the operation in their types."
)
BODY_TOO_LARGE = _kind("body_too_large", 413, "Body too large", "Send a smaller body, or raise STRATA_MAX_BODY_BYTES.")
BODY_TOO_DEEP = _kind("body_too_deep", 400, "Body nested too deeply", "Flatten the JSON document.")
UNSUPPORTED_MEDIA_TYPE = _kind(
    "unsupported_media_type", 415, "Unsupported media type", "Send application/json or multipart/form-data."
)
METHOD_NOT_ALLOWED = _kind("method_not_allowed", 405, "Method not allowed", "Use a method listed in the Allow header.")
NOT_ACCEPTABLE = _kind("not_acceptable", 406, "Not acceptable", "Ask for application/json.")
ORIGIN_REFUSED = _kind(
    "origin_refused", 403, "Origin refused", "Call from a program, or from a page served on this machine."
)
ROUTE_NOT_FOUND = _kind("route_not_found", 404, "No such route", "See /v3/api-docs for the routes.")
REQUEST_TIMEOUT = _kind("request_timeout", 408, "Request arrived too slowly", "Send the whole request at once.")
CONTEXT_NOT_FOUND = _kind(
    "context_not_found", 404, "No such context", "List the contexts, or ingest a source to create one."
)
SOURCE_NOT_FOUND = _kind("source_not_found", 404, "No such source", "List the sources of the context.")
SOURCE_ARCHIVED = _kind(
    "source_archived", 410, "Source is archived", "Read it by its pin, or ingest it again to bring it back."
)
SECTION_NOT_FOUND = _kind(
    "section_not_found", 404, "No such section", "Take an anchor of the document, or read it without one."
)
HINT_NOT_FOUND = _kind("hint_not_found", 404, "No such hint", "List the hints of the context.")
INVOCATION_NOT_FOUND = _kind("invocation_not_found", 404, "No such invocation", "List the invocations.")
PARAGRAPH_NOT_FOUND = _kind("paragraph_not_found", 404, "No such paragraph", "Count the paragraphs from 0.")
COMMUNITIES_NOT_FOUND = _kind(
    "communities_not_found", 404, "No communities", "Build them with `strata communities build`."
)
GROUP_NOT_FOUND = _kind("group_not_found", 404, "No such group", "List the groups.")
SCHEMA_NOT_FOUND = _kind("schema_not_found", 404, "No schema document", "Install a schema document in the context.")
CONTEXT_EXISTS = _kind("context_exists", 409, "Context exists", "Choose another name, or use the existing context.")
GROUP_EXISTS = _kind("group_exists", 409, "Group exists", "Choose another name, or use the existing group.")
CONFLICT = _kind("conflict", 409, "Conflicting change", "Read the current state and send the change again.")
STALE_CURSOR = _kind(
    "stale_cursor", 410, "Position no longer held", "Read the whole state, then follow the changes from a new position."
)
OVER_LIMIT = _kind("over_limit", 400, "Over a limit", "Send less in one request.")
SCHEMA_VIOLATION = _kind(
    "schema_violation", 400, "Against the schema document", "Mend what the issues name, or change the schema document."
)
SOURCE_REFUSED = _kind("source_refused", 422, "Source refused", "Mend the document as the reason says.")
OVERLOADED = _kind("overloaded", 503, "Overloaded", "Wait for Retry-After seconds and send the request again.", 1)
EMBEDDING_MODEL_MISSING = _kind(
    "embedding_model_missing",
    500,
    "Embedding model missing",
    "Install Strata again, name a folder with model.onnx and tokenizer.json, or set STRATA_EMBEDDINGS=none.",
)
EMBEDDINGS_UNCONFIGURED = _kind(
    "embeddings_unconfigured", 501, "No embedder", "Set STRATA_EMBEDDINGS, or search by words."
)
EMBEDDING_REFUSED = _kind(
    "embedding_refused",
    502,
    "Embedding refused",
    "Check that STRATA_EMBEDDINGS_URL and STRATA_EMBEDDINGS_MODEL name a model that embeds text.",
)
EMBEDDING_UNAVAILABLE = _kind(
    "embedding_unavailable", 503, "Embedder unavailable", "Check the embedding service; what waits is tried again.", 5
)
SERVER_UNAVAILABLE = _kind(
    "server_unavailable", 502, "Server unavailable", "Check the address of the server and its state; try again later."
)
DATABASE_UNAVAILABLE = _kind(
    "database_unavailable", 503, "Database unavailable", "Check the database with `strata doctor`; retry later.", 2
)
STATEMENT_TIMEOUT = _kind(
    "statement_timeout", 503, "Statement timed out", "Narrow the request, or raise STRATA_STATEMENT_TIMEOUT_SECONDS.", 1
)
SCHEMA_OUTDATED = _kind("schema_outdated", 503, "Schema is not current", "Run `strata migrate`.", 5)
DATABASE_SETUP = _kind(
    "database_setup", 500, "Database cannot be used", "Follow the detail; `strata doctor` checks every part."
)
EMBEDDED_POSTGRES = _kind(
    "embedded_postgres", 500, "Embedded Postgres failed", "Run `strata doctor`, or set STRATA_DATABASE_URL."
)
INVALID_SETTING = _kind("invalid_setting", 500, "Invalid setting", "Correct the environment variable named.")
INTERNAL = _kind("internal_error", 500, "Internal error", "Report it with the trace id; the cause is in the log.")


class StrataError(Exception):
    """A failure with a stable code.

    ``detail`` is one sentence about this occurrence; it never holds document text or secrets.
    ``pointer`` names the field: a JSON pointer into the body (``/query``), a query parameter
    (``?topK``), or a command-line option (``--context``). ``remedy`` overrides the kind's own.
    ``extra`` holds further machine-readable members for the problem document.
    """

    def __init__(
        self,
        kind: ErrorKind,
        detail: str,
        *,
        pointer: str | None = None,
        remedy: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.pointer = pointer
        self.remedy = remedy or kind.remedy
        self.extra = extra or {}

    @property
    def code(self) -> str:
        """The stable code of the kind, such as ``context_not_found``."""
        return self.kind.code
