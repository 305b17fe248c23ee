"""Problem details (RFC 9457): every error over HTTP leaves as one of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints
from urllib.parse import quote

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from msgspec import Struct

from strata.errors import (
    BODY_TOO_DEEP,
    BODY_TOO_LARGE,
    INTERNAL,
    INVALID_REQUEST,
    MALFORMED_BODY,
    METHOD_NOT_ALLOWED,
    NOT_ACCEPTABLE,
    OVERLOADED,
    REQUEST_TIMEOUT,
    ROUTE_NOT_FOUND,
    UNSUPPORTED_MEDIA_TYPE,
    ErrorKind,
    StrataError,
)
from strata.platform.telemetry import current_ids

PROBLEM_JSON = "application/problem+json"
ERROR_WIRE_STATE = "strata_error_wire"
"""Where the border leaves how the errors of a path look, when they are not problem documents."""

JSON_BODY_STATE = "strata_json_body"
"""Where the body border leaves the decoded JSON in the scope's state, for exact pointers."""

_BY_STATUS: Mapping[int, ErrorKind] = {
    400: INVALID_REQUEST,
    404: ROUTE_NOT_FOUND,
    405: METHOD_NOT_ALLOWED,
    406: NOT_ACCEPTABLE,
    408: REQUEST_TIMEOUT,
    413: BODY_TOO_LARGE,
    415: UNSUPPORTED_MEDIA_TYPE,
    503: OVERLOADED,
}
_AT = re.compile(r" - at `(?:key in )?\$(.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_MAX_ERRORS = 20
T = TypeVar("T")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ErrorWire:
    """How errors look on the wire of one surface: status and body of an error."""

    status: Callable[[StrataError], int]
    body: Callable[[StrataError], bytes]


def rendered(error: StrataError, path: str, wire: ErrorWire | None) -> tuple[int, bytes, str]:
    """Return status, body and media type of an error: a problem document, or what the path's own wire makes of it."""
    if wire is None:
        return error.kind.status, problem_body(error, instance=path), PROBLEM_JSON
    return wire.status(error), wire.body(error), "application/json"


class FieldError(Struct, frozen=True, rename="camel", kw_only=True):
    """One field that is wrong: a JSON pointer into the body, or ``?name`` for a query parameter."""

    pointer: str
    detail: str


class Problem(Struct, frozen=True, rename="camel", kw_only=True):
    """A problem document. Members beyond these are particular to the code (docs/errors.md)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    pointer: str | None
    remedy: str
    errors: list[FieldError]
    trace_id: str
    request_id: str | None


def problem_body(error: StrataError, *, instance: str) -> bytes:
    """Encode an error as a problem document; lone surrogates are escaped, never a second failure."""
    kind = error.kind
    named = [] if error.pointer is None else [{"pointer": error.pointer, "detail": error.detail}]
    document = Problem(
        type=f"/errors#{kind.code}",
        title=kind.title,
        status=kind.status,
        detail=error.detail,
        instance=quote(instance, safe="/:@!$&'()*+,;=~", errors="replace"),
        code=kind.code,
        pointer=error.pointer,
        remedy=error.remedy,
        errors=[],
        trace_id=current_ids()[0],
        request_id=structlog.contextvars.get_contextvars().get("request_id"),
    )
    members = {**msgspec.to_builtins(document), "errors": named}
    members |= {key: value for key, value in error.extra.items() if key not in members or key == "errors"}
    return msgspec.json.encode(_encodable(members), enc_hook=str)


def problem_headers(kind: ErrorKind, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the headers that go with an error of this kind."""
    headers = {"cache-control": "no-store", **(extra or {})}
    if kind.retry_after_seconds is not None:
        headers["retry-after"] = str(kind.retry_after_seconds)
    if kind in {REQUEST_TIMEOUT, BODY_TOO_LARGE}:
        # The rest of the body is not read, so the connection cannot carry another request.
        headers["connection"] = "close"
    return headers


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {str(_encodable(str(key))): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_encodable(item) for item in value]
    return value


def _response(
    request: Request[Any, Any, Any],
    error: StrataError,
    headers: Mapping[str, str] | None = None,
) -> Response[bytes]:
    status, body, media_type = rendered(error, request.scope["path"], request.scope["state"].get(ERROR_WIRE_STATE))
    return Response(body, status_code=status, headers=problem_headers(error.kind, headers), media_type=media_type)


def handle_strata_error(request: Request[Any, Any, Any], error: StrataError) -> Response[bytes]:
    """Answer with the problem that the error stands for."""
    if error.kind.status >= 500:
        _log.warning("http.failure", code=error.code, detail=error.detail)
    return _response(request, error)


def handle_validation(request: Request[Any, Any, Any], error: ValidationException) -> Response[bytes]:
    """Answer 400 with a pointer for each field that is wrong."""
    errors = list(_field_errors(error))[:_MAX_ERRORS]
    return _response(request, invalid_fields(errors))


def handle_http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Answer a failure that the framework found: no such route, wrong method, a body it cannot read."""
    if error.status_code >= 500 and error.status_code != 503:
        return handle_unexpected(request, error)
    kind = _BY_STATUS.get(error.status_code, INVALID_REQUEST)
    detail = {
        ROUTE_NOT_FOUND.code: "No route matches the path.",
        METHOD_NOT_ALLOWED.code: f"{request.method} is not supported here.",
    }.get(kind.code, kind.title + ".")
    if error.status_code == 400 and "Host" in str(error.detail):
        detail = "The Host header is not a valid host name."
    elif error.status_code == 400:
        kind, detail = MALFORMED_BODY, "The body cannot be read in the media type it claims."
    allow = {key.lower(): value for key, value in (error.headers or {}).items() if key.lower() == "allow"}
    if "allow" in allow:
        allow["allow"] = allow_header(allow["allow"])
    return _response(request, StrataError(kind, detail), headers=allow)


def handle_unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer 500 and tell nothing of the cause; the log has it under the trace id."""
    if isinstance(error, RecursionError):
        return _response(request, StrataError(BODY_TOO_DEEP, "The body is nested too deeply."))
    _log.error("http.unexpected", exc_info=error)
    return _response(request, StrataError(INTERNAL, "The request failed on our side."))


def allow_header(methods: str) -> str:
    """Return an Allow value in a fixed order; HEAD stands wherever GET does."""
    names = {name.strip().upper() for name in methods.split(",") if name.strip()}
    if "GET" in names:
        names.add("HEAD")
    return ", ".join(sorted(names))


EXCEPTION_HANDLERS: dict[type[Exception] | int, Any] = {
    StrataError: handle_strata_error,
    ValidationException: handle_validation,
    HTTPException: handle_http_exception,
    Exception: handle_unexpected,
}


def _field_errors(error: ValidationException) -> Iterator[FieldError]:
    listed = error.extra if isinstance(error.extra, list) else []
    for item in listed:
        source, key = item.get("source"), str(item.get("key", ""))
        message = _sentence(str(item.get("message", "")))
        if source == "path":
            yield FieldError(pointer=f"{{{key}}}", detail=message)
        elif source in {"header", "cookie"}:
            yield FieldError(pointer=f"{source}:{key}", detail=message)
        else:
            yield FieldError(pointer=f"?{_camel(key)}", detail=message)
    if not listed:
        yield FieldError(pointer="", detail=_sentence(str(error.detail)))


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.title() for part in tail)


def struct_errors(value: Any, wanted: Any) -> Iterator[FieldError]:
    """Yield every field of a decoded JSON value that does not fit a msgspec type, in field order.

    msgspec stops at the first error of a struct; here each field is tried by itself, one level
    deep, and below that the first error of each field is given.
    """
    if isinstance(wanted, type) and issubclass(wanted, Struct) and isinstance(value, dict):
        found = False
        hints = get_type_hints(wanted, include_extras=True)
        for field in msgspec.structs.fields(wanted):
            if field.encode_name in value:
                for error in _convert_error(value[field.encode_name], hints[field.name]):
                    found = True
                    yield FieldError(pointer=f"/{_escape(field.encode_name)}{error.pointer}", detail=error.detail)
            elif field.required:
                found = True
                yield FieldError(pointer=f"/{_escape(field.encode_name)}", detail="The field is required.")
        if found:
            return
    yield from _convert_error(value, wanted)


def _convert_error(value: Any, wanted: Any) -> Iterator[FieldError]:
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        message = str(error)
        match = _AT.search(message)
        yield FieldError(
            pointer=_pointer(match.group(1)) if match else "",
            detail=_sentence(message[: match.start()] if match else message),
        )
    except UnicodeEncodeError:
        # What msgspec itself says of such a text where something else than a text is wanted.
        yield FieldError(pointer="", detail="Expected another value than a text with a lone surrogate.")
    except RecursionError:
        yield FieldError(pointer="", detail="The value is nested too deeply.")


def _pointer(path: str) -> str:
    """Turn msgspec's ``.filters.tags[0]`` into the JSON pointer ``/filters/tags/0``."""
    return "".join(f"/{_escape(name or index)}" for name, index in _STEP.findall(path))


def _escape(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _sentence(message: str) -> str:
    text = message.strip() or "The value is not valid"
    return text if text.endswith(".") else text + "."


def read_body(request: Request[Any, Any, Any], wanted: type[T]) -> T:
    """Return the JSON body that the border decoded, as ``wanted``.

    Documents may hold strings that JSON decoders refuse (lone surrogates); their normaliser counts
    them and takes them out. Raises ``invalid_request`` with every wrong field.
    """
    state = request.scope["state"]
    if JSON_BODY_STATE not in state:
        raise StrataError(INVALID_REQUEST, "A JSON body is required.", pointer="")
    try:
        return msgspec.convert(state[JSON_BODY_STATE], wanted)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        errors = list(struct_errors(state[JSON_BODY_STATE], wanted))[:_MAX_ERRORS]
        raise invalid_fields(errors) from error


def invalid_fields(errors: list[FieldError]) -> StrataError:
    """Return ``invalid_request`` for fields that are wrong; the first of them gives detail and pointer."""
    first = errors[0] if errors else FieldError(pointer="", detail="The request does not fit the schema.")
    detail = first.detail if len(errors) < 2 else f"{len(errors)} fields are wrong; the first: {first.detail}"
    return StrataError(INVALID_REQUEST, detail, pointer=first.pointer, extra={"errors": msgspec.to_builtins(errors)})
