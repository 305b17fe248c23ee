"""The OpenAPI 3.1 document, its pages, and the page of the error catalogue; all of it offline."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from typing import Any

import msgspec
import yaml
from litestar import Litestar, Response, get
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import License, Server, Tag
from litestar.params import FromPath
from litestar.response import Redirect
from litestar.routes import HTTPRoute

from strata.errors import CATALOGUE, ROUTE_NOT_FOUND, ErrorKind, StrataError
from strata.platform.problems import PROBLEM_JSON, Problem
from strata.platform.telemetry import VERSION

TAGS: Mapping[str, str] = {
    "lookup": "Ask a question, get evidence.",
    "contexts": "Knowledge bases.",
    "sources": "Documents of a context: ingest, list, read, delete.",
    "hints": "Curated entries that answer by name and steer retrieval (L0).",
    "invocations": "The record of every call, and why a source is missing from an answer.",
    "operations": "Health and information, in Spring Boot's shapes.",
}
EVERY_OPERATION = ("invalid_request", "not_acceptable", "internal_error", "overloaded", "database_unavailable")
WITH_BODY = ("malformed_body", "body_too_deep", "request_timeout", "body_too_large", "unsupported_media_type")
_REFERENCE = "#/components/schemas/{name}"
_FILES = {
    "type": "object",
    "properties": {
        "file": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "contentMediaType": "application/octet-stream"},
        },
        "category": {"type": "string"},
        "language": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["file"],
}
_ASSETS: Mapping[str, str] = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "favicon-32x32.png": "image/png",
}
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Strata API</title>
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
<link rel="icon" type="image/png" href="/docs/assets/favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<noscript>This page needs JavaScript; the document itself is at <a href="/v3/api-docs">/v3/api-docs</a>.</noscript>
<script src="/docs/assets/swagger-ui-bundle.js"></script>
<script src="/docs/assets/start.js"></script>
</body>
</html>
"""
_START = """window.ui = SwaggerUIBundle({
  url: "/v3/api-docs",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});
"""


def documented(
    *, request: Any = None, response: Any = None, errors: Sequence[ErrorKind] = (), **more: Any
) -> dict[str, Any]:
    """Return the ``opt`` of a route handler: its examples, as wire values, and the errors of its own."""
    return {"request_example": request, "response_example": response, "errors": tuple(errors), **more}


class ApiDocument:
    """The document of a set of routes, made once, when it is first asked for; best in a thread: it takes a while."""

    def __init__(self, route_handlers: Sequence[Any], dependencies: Mapping[str, Provide]) -> None:
        self._route_handlers = route_handlers
        self._dependencies = dependencies

    @cached_property
    def value(self) -> dict[str, Any]:
        """The document as plain values."""
        config = OpenAPIConfig(
            title="Strata",
            version=VERSION,
            summary="Evidence for agents: one question in, checkable evidence out.",
            description=(
                "Every error is a problem document (RFC 9457) with a stable `code`; `/errors` lists them. "
                "Unknown request fields are ignored, nulls are sent, lists are never null, times are ISO 8601 in UTC."
            ),
            license=License(name="Apache-2.0", identifier="Apache-2.0"),
            servers=[Server(url="/", description="This server")],
            tags=[Tag(name=name, description=description) for name, description in TAGS.items()],
            use_handler_docstrings=True,
        )
        # An application of its own: the served one must not get the framework's schema routes.
        app = Litestar(
            self._route_handlers, dependencies=self._dependencies, openapi_config=config, logging_config=None
        )
        document: dict[str, Any] = app.openapi_schema.to_schema()
        handlers = {
            handler.operation_id: handler
            for route in app.routes
            if isinstance(route, HTTPRoute)
            for handler in route.route_handlers
            if isinstance(handler.operation_id, str)
        }
        return finish(document, handlers)

    @cached_property
    def json(self) -> bytes:
        """The document as JSON."""
        return msgspec.json.encode(self.value, enc_hook=str)

    @cached_property
    def yaml(self) -> bytes:
        """The document as YAML."""
        return yaml.safe_dump(msgspec.json.decode(self.json), sort_keys=False, allow_unicode=True).encode()


def finish(document: dict[str, Any], handlers: Mapping[str, HTTPRouteHandler]) -> dict[str, Any]:
    """Add what the framework cannot know: problem responses, examples, Retry-After."""
    components = document.setdefault("components", {})
    _, definitions = msgspec.json.schema_components([Problem], ref_template=_REFERENCE)
    schemas = components.setdefault("schemas", {})
    schemas.update(definitions)
    schemas["Problem"]["additionalProperties"] = True
    for handler in handlers.values():
        _add_schemas(schemas, [*_request_types(handler.opt), *_query_types(handler.opt)])
    schemas["Problem"]["properties"]["code"]["enum"] = sorted(CATALOGUE)
    components["responses"] = {str(status): _problem_response(kinds) for status, kinds in _by_status(CATALOGUE).items()}
    components["responses"]["default"] = _problem_response([CATALOGUE["internal_error"]])
    for methods in document["paths"].values():
        for method, operation in methods.items():
            if isinstance(operation, dict) and "responses" in operation:
                described = handlers.get(operation.get("operationId", ""))
                _finish_operation(method, operation, {} if described is None else described.opt)
    return document


def _request_types(opt: Mapping[str, Any]) -> Sequence[Any]:
    found = opt.get("request_type", ())
    return found if isinstance(found, tuple) else (found,)


def _query_types(opt: Mapping[str, Any]) -> Sequence[Any]:
    return (opt["query_type"],) if "query_type" in opt else ()


def _add_schemas(schemas: dict[str, Any], types: Sequence[Any]) -> None:
    """Add the schemas of types that a handler reads by itself, and of what they hold."""
    _, definitions = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    for name, schema in definitions.items():
        schemas.setdefault(name, schema)


def _add_input(operation: dict[str, Any], opt: Mapping[str, Any]) -> None:
    """Describe the body or the query parameters of a handler that reads its request by itself."""
    if types := _request_types(opt):
        found, _ = msgspec.json.schema_components(types, ref_template=_REFERENCE)
        schema = found[0] if len(found) == 1 else {"anyOf": list(found)}
        content: dict[str, Any] = {"application/json": {"schema": schema}}
        if opt.get("accepts_files"):
            content["multipart/form-data"] = {"schema": _FILES}
        operation["requestBody"] = {"content": content, "required": True}
    for query_type in _query_types(opt):
        _, definitions = msgspec.json.schema_components([query_type], ref_template=_REFERENCE)
        schema = definitions[query_type.__name__]
        required = schema.get("required", [])
        operation["parameters"] = [
            *operation.get("parameters", []),
            *(
                {"name": name, "in": "query", "required": name in required, "schema": member}
                for name, member in schema["properties"].items()
            ),
        ]


def _finish_operation(method: str, operation: dict[str, Any], opt: Mapping[str, Any]) -> None:
    _add_input(operation, opt)
    codes = [*EVERY_OPERATION, *(kind.code for kind in opt.get("errors", ()))]
    if "requestBody" in operation:
        codes += WITH_BODY
    responses = {status: found for status, found in operation["responses"].items() if not status.startswith(("4", "5"))}
    for status in sorted({CATALOGUE[code].status for code in codes}):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    responses["default"] = {"$ref": "#/components/responses/default"}
    # What answers with a status of its own (health: 503 with a health document) keeps it.
    responses.update(opt.get("responses", {}))
    operation["responses"] = responses
    _add_example(operation.get("requestBody", {}).get("content", {}), opt.get("request_example"))
    for status, response in responses.items():
        if status.startswith("2"):
            _add_example(response.get("content", {}), opt.get("response_example"))
    operation.pop("deprecated", None)
    if method == "get":
        operation.pop("requestBody", None)


def _add_example(content: dict[str, Any], example: Any) -> None:
    if example is None:
        return
    for media, body in content.items():
        if "json" in media:
            body["examples"] = {"example": {"value": msgspec.to_builtins(example, enc_hook=str)}}


def _by_status(catalogue: Mapping[str, ErrorKind]) -> dict[int, list[ErrorKind]]:
    grouped: dict[int, list[ErrorKind]] = {}
    for kind in catalogue.values():
        grouped.setdefault(kind.status, []).append(kind)
    return grouped


def _problem_response(kinds: Sequence[ErrorKind]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": "; ".join(f"`{kind.code}`: {kind.title}" for kind in kinds),
        "content": {
            PROBLEM_JSON: {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "examples": {kind.code: {"value": _problem_example(kind)} for kind in kinds},
            }
        },
    }
    if any(kind.retry_after_seconds for kind in kinds):
        response["headers"] = {
            "Retry-After": {"description": "Seconds to wait before the next try.", "schema": {"type": "string"}}
        }
    return response


def _problem_example(kind: ErrorKind) -> dict[str, Any]:
    return {
        "type": f"/errors#{kind.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": f"{kind.title}.",
        "instance": "/api/v1/lookup",
        "code": kind.code,
        "pointer": None,
        "remedy": kind.remedy,
        "errors": [],
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
        "requestId": "01981c2b5c7f7d3c9f0a4b1e2d3c4b5a",
    }


def error_page() -> str:
    """Return the error catalogue as a page, one anchor a code: what ``type`` of a problem points to."""
    rows = "\n".join(
        f'<h2 id="{kind.code}"><code>{kind.code}</code></h2>\n'
        f"<p>{kind.status}. {html.escape(kind.title)}.</p>\n<p>{html.escape(kind.remedy)}</p>"
        for kind in sorted(CATALOGUE.values(), key=lambda kind: (kind.status, kind.code))
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Strata errors</title>'
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}"
        "h2{margin-top:2rem;font-size:1.1rem}</style></head>"
        f"<body><h1>Errors</h1>\n{rows}\n</body></html>\n"
    )


def documentation_routes(document: ApiDocument) -> list[HTTPRouteHandler]:
    """Return the routes that serve the document and its pages; they are not part of the API."""

    @get("/v3/api-docs", include_in_schema=False, sync_to_thread=True)
    def as_json() -> Response[bytes]:
        return Response(document.json, media_type="application/json")

    @get("/v3/api-docs.yaml", include_in_schema=False, sync_to_thread=True)
    def as_yaml() -> Response[bytes]:
        return Response(document.yaml, media_type="application/yaml")

    @get("/docs", include_in_schema=False, sync_to_thread=False)
    def page() -> Response[str]:
        return _html(_PAGE)

    @get("/docs/assets/start.js", include_in_schema=False, sync_to_thread=False)
    def start() -> Response[str]:
        return Response(_START, media_type="text/javascript; charset=utf-8")

    @get("/docs/assets/{name:str}", include_in_schema=False, sync_to_thread=True)
    def asset(name: FromPath[str]) -> Response[bytes]:
        if name not in _ASSETS:
            raise StrataError(ROUTE_NOT_FOUND, "No route matches the path.")
        return Response(_asset(name), media_type=_ASSETS[name], headers={"cache-control": "public, max-age=86400"})

    @get("/errors", include_in_schema=False, sync_to_thread=False)
    def errors() -> Response[str]:
        return _html(error_page())

    @get(["/", "/swagger-ui.html", "/swagger-ui", "/swagger-ui/index.html"], include_in_schema=False)
    async def to_page() -> Redirect:
        return Redirect("/docs", status_code=302)

    return [as_json, as_yaml, page, start, asset, errors, to_page]


def _html(text: str) -> Response[str]:
    return Response(text, media_type="text/html; charset=utf-8", headers={"content-security-policy": _PAGE_POLICY})


def _asset(name: str) -> bytes:
    import swagger_ui_bundle

    path = files(swagger_ui_bundle).joinpath("vendor", swagger_ui_bundle.swagger_ui_path.name, name)
    return path.read_bytes()
