"""Operations of the contexts API: a function over a call and its body becomes a route with envelope and trace row."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints
from uuid import UUID

import msgspec
from litestar import Request, Response, route
from litestar.datastructures import State
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream
from msgspec import Struct

from strata.contexts_api.envelope import STARTED, code_of, success
from strata.contexts_api.paths import named
from strata.errors import INTERNAL, INVALID_REQUEST, MALFORMED_REQUEST, OVER_LIMIT, StrataError
from strata.platform import telemetry
from strata.platform.border import current_request_id
from strata.platform.ids import DEFAULT_TENANT, new_id
from strata.platform.problems import JSON_BODY_STATE, struct_errors
from strata.traces.schemas import Invocation, Status, Surface

if TYPE_CHECKING:
    from strata.services import Services

MAX_LIMIT = 1_000
"""The most that any ``limit`` of this wire may ask for."""

MAX_LIST = 1_000
"""The most entries of a list in a request: origins, labels, sources, contexts, groups."""

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """One call: who asks, for which context, with which query parameters.

    A handler may add to ``issues`` what a schema in warn mode objects to. ``found`` says whether a read
    found anything, None for what looks nothing up.
    """

    services: Services
    tenant: UUID
    ref: str
    parameters: Mapping[str, str]
    body: bytes
    id: UUID = field(default_factory=new_id)
    issues: list[Any] = field(default_factory=list)
    schema_violations: int = 0
    found: bool | None = None
    context_id: UUID | None = None
    is_recorded: bool = False

    def whole(self, name: str, default: int | None = None, *, most: int = MAX_LIMIT) -> int | None:
        """Return a query parameter as a whole number of at least 0; raises ``invalid_request``."""
        value = self.parameters.get(name)
        if value is None or value == "":
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            raise StrataError(INVALID_REQUEST, "The value is not a whole number.", pointer=f"?{name}")
        return at_most(int(value), most, f"?{name}")

    def flag(self, name: str) -> bool:
        """Return a query parameter that is true or false; raises ``invalid_request``."""
        value = self.parameters.get(name, "").lower()
        if value in {"", "false", "0"}:
            return False
        if value in {"true", "1"}:
            return True
        raise StrataError(INVALID_REQUEST, "The value is neither true nor false.", pointer=f"?{name}")


@dataclass(frozen=True, slots=True)
class Text:
    """An answer outside the envelope."""

    content: str | bytes | AsyncIterator[bytes]
    media_type: str = "text/plain; charset=utf-8"
    status: int = 200


Handler = Callable[..., Awaitable[Any]]
OPERATIONS: dict[str, tuple[str, str]] = {}
"""Method and path of every operation, by its name."""


def operation(method: str, path: str, *, is_recorded: bool = True) -> Callable[[Handler], HTTPRouteHandler]:
    """Make a route of ``async def name(call, body?)``; the annotation of ``body`` is the Struct it is read as.

    The result goes into the envelope, but for a :class:`Text`. Every call leaves a row under the name of
    the function, unless ``is_recorded`` is False (probes).
    """

    def wrap(handler: Handler) -> HTTPRouteHandler:
        name = handler.__name__
        wanted = get_type_hints(handler, include_extras=True).get("body")
        OPERATIONS[name] = (method, path)

        async def served(request: Request[Any, Any, Any], state: State) -> Response[Any]:
            token = STARTED.set(time.perf_counter())
            try:
                call = await _call(request, state)
                arguments = () if wanted is None else (partial(body_of, request, wanted),)
                if not is_recorded:
                    return _response(call, await _run(handler, call, arguments))
                async with _recorded(call, name, request.scope["state"].get(JSON_BODY_STATE)):
                    return _response(call, await _run(handler, call, arguments))
            finally:
                STARTED.reset(token)

        served.__doc__ = handler.__doc__
        made = route(
            path,
            http_method=HttpMethod(method),
            name=f"contexts_api.{name}",
            status_code=200,
            include_in_schema=False,
        )
        return made(served)

    return wrap


async def _call(request: Request[Any, Any, Any], state: State) -> Call:
    return Call(
        services=state.services,
        tenant=DEFAULT_TENANT,
        ref=named(str(request.path_params.get("ref", ""))),
        parameters=dict(request.query_params.items()),
        body=await request.body(),
    )


async def _run(handler: Handler, call: Call, arguments: Sequence[Callable[[], Any]]) -> Any:
    return await handler(call, *(argument() for argument in arguments))


def _response(call: Call, result: Any) -> Response[Any]:
    if not isinstance(result, Text):
        content = success(result, issues=call.issues, schema_violations=call.schema_violations)
        return Response(content, media_type="application/json", status_code=200)
    if isinstance(result.content, (str, bytes)):
        return Response(result.content, media_type=result.media_type, status_code=result.status)
    return Stream(result.content, media_type=result.media_type, status_code=result.status)


@asynccontextmanager
async def _recorded(call: Call, name: str, arguments: Any) -> AsyncIterator[None]:
    """Leave a row of what runs within, however it ends."""
    started = time.perf_counter()
    status, error = Status.SUCCESS, None
    try:
        yield
    except asyncio.CancelledError:
        status, error = Status.CANCELLED, ("cancelled", "The caller went away.")
        raise
    except StrataError as failure:
        status, error = Status.ERROR, (code_of(failure.kind), failure.detail)
        raise
    except Exception as failure:
        status, error = Status.ERROR, (INTERNAL.code, type(failure).__name__)
        raise
    finally:
        if not call.is_recorded:
            if status is Status.SUCCESS and call.found is False:
                status = Status.NOT_FOUND
            given = arguments if isinstance(arguments, dict) else {}
            await _record(call, name, status, error=error, given=given, milliseconds=_since(started))


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


def body_of(request: Request[Any, Any, Any], wanted: Any) -> Any:
    """Return the JSON body as ``wanted``; raises ``malformed_request`` naming the first field that does not fit."""
    value = request.scope["state"].get(JSON_BODY_STATE)
    if value is None and JSON_BODY_STATE not in request.scope["state"]:
        value = {}
    try:
        return msgspec.convert(value, wanted)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        first = next(iter(struct_errors(value, wanted)), None)
        detail = first.detail if first else f"{error}."
        raise StrataError(MALFORMED_REQUEST, detail, pointer=(first.pointer or None) if first else None) from error


def at_most(value: int, most: int, pointer: str) -> int:
    """Return the value; raises ``over_limit`` above ``most``."""
    if value > most:
        raise StrataError(OVER_LIMIT, f"{value} is above the ceiling of {most}.", pointer=pointer)
    return value


def limit_of(value: int | None, default: int, *, most: int = MAX_LIMIT, pointer: str = "/limit") -> int:
    """Return a limit or its default; raises ``invalid_request`` below 0 and ``over_limit`` above ``most``."""
    if value is None:
        return default
    if value < 0:
        raise StrataError(INVALID_REQUEST, "A limit is not negative.", pointer=pointer)
    return at_most(value, most, pointer)


def strings(value: str | Sequence[str] | None, pointer: str, *, most: int = MAX_LIST) -> list[str]:
    """Return one string or several as a list; raises ``over_limit`` for too many."""
    if value is None:
        return []
    values = [value] if isinstance(value, str) else list(value)
    if len(values) > most:
        detail = f"{pointer.strip('/')} carries {len(values)} items, past the ceiling of {most} for one request."
        raise StrataError(OVER_LIMIT, detail)
    return values


async def _record(
    call: Call,
    name: str,
    status: Status,
    *,
    error: tuple[str, str] | None,
    given: Mapping[str, Any],
    milliseconds: float,
) -> None:
    """Leave the row of a call: what was asked, and how it ended; texts that were sent in are not kept."""
    trace_id, span_id = telemetry.current_ids()
    arguments = {key: value for key, value in given.items() if key not in _CONTENT | _ASKED}
    if asked := [(name, text) for name in sorted(_ASKED) for text in _texts(given.get(name))]:
        # Under this name the setting of what is kept of questions holds for it.
        alone = len({name for name, _ in asked}) == 1
        arguments["query"] = "; ".join(text if alone else f"{name}: {text}" for name, text in asked)
    if call.ref:
        arguments["context"] = call.ref
    if call.parameters:
        arguments["parameters"] = dict(call.parameters)
    await call.services.recorder.record(
        Invocation(
            tenant_id=call.tenant,
            id=call.id,
            tool_name=name,
            surface=Surface.REST,
            status=status,
            duration_ms=milliseconds,
            context_id=call.context_id,
            request_id=current_request_id(),
            trace_id=trace_id,
            span_id=span_id,
            arguments=arguments,
            found=call.found,
            error_type=error[0] if error else None,
            error_message=error[1] if error else None,
        ),
        None,
    )
    telemetry.count_invocation(tool=name, surface=Surface.REST.value, status=status.value)


def _texts(value: Any) -> list[str]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]


_ASKED = frozenset(
    {
        "concept",
        "cue",
        "expected",
        "label",
        "object",
        "object_types",
        "origins",
        "query",
        "subject",
        "subject_types",
        "targets",
        "text_fallback_query",
    }
)
_CONTENT = frozenset(
    {
        "after",
        "concepts",
        "document",
        "labels",
        "locators",
        "passages",
        "questions",
        "relations",
        "sections",
        "types",
    }
)


class Nothing(Struct, frozen=True):
    """A body without fields; what is sent is ignored."""
