"""The composition root: settings in, a Litestar application out.

The only module that knows every surface of REST; the services under them are wired in
:mod:`strata.services`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide

from strata.contexts_api.envelope import ERRORS as CONTEXTS_API_ERRORS
from strata.contexts_api.envelope import ROOTS as CONTEXTS_API_ROOTS
from strata.contexts_api.paths import SlashesInNames
from strata.contexts_api.routes import CONTEXTS_API
from strata.embeddings.endpoints import EmbeddingController
from strata.hints.endpoints import HintController
from strata.knowledge.endpoints import ContextController
from strata.lookup.endpoints import LookupController
from strata.mcp.http import ERRORS as MCP_ERRORS
from strata.mcp.http import ROOT as MCP_ROOT
from strata.mcp.http import mcp_route
from strata.mcp.wiring import toolbox
from strata.platform.actuator import ActuatorController, Health
from strata.platform.border import guard
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.logging import setup_logging
from strata.platform.openapi import ApiDocument, documentation_routes
from strata.platform.problems import EXCEPTION_HANDLERS
from strata.platform.server import end_with_parent, tune_garbage_collection
from strata.platform.telemetry import setup_telemetry, shutdown_telemetry
from strata.services import Services, open_services
from strata.settings import Settings, load_settings
from strata.sources.document_endpoints import DocumentController
from strata.sources.endpoints import SourceController
from strata.sources.relation_endpoints import RelationController
from strata.sources.revision_endpoints import RevisionController
from strata.traces.endpoints import InvocationController
from strata.traces.retention import keep_partitions

CONTROLLERS = (
    LookupController,
    ContextController,
    SourceController,
    RevisionController,
    RelationController,
    DocumentController,
    HintController,
    EmbeddingController,
    InvocationController,
    ActuatorController,
)


ERROR_WIRES = {MCP_ROOT: MCP_ERRORS, **dict.fromkeys(CONTEXTS_API_ROOTS, CONTEXTS_API_ERRORS)}
"""How errors look below the first segments of paths that do not answer with problem documents."""


def create_app(settings: Settings, *, services: Services | None = None) -> Litestar:
    """Return the REST application.

    It opens its services when it starts and closes them when it stops, unless ``services`` that
    are open already are given; those stay the caller's.
    """

    @asynccontextmanager
    async def opened(app: Litestar) -> AsyncIterator[None]:
        async with open_services(settings) as own:
            _attach(app, own)
            await own.sources.resume(DEFAULT_TENANT)
            own.embeddings.start_background(DEFAULT_TENANT)
            partitions = asyncio.create_task(keep_partitions(own.database))
            try:
                yield
            finally:
                partitions.cancel()

    mcp = mcp_route(lambda: toolbox(app.state.services))
    dependencies = _dependencies()
    document = ApiDocument(CONTROLLERS, dependencies)
    app = Litestar(
        route_handlers=[*CONTROLLERS, *CONTEXTS_API, mcp.handler, *documentation_routes(document)],
        dependencies=dependencies,
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=[*([] if services else [opened]), mcp.lifespan],
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
    )
    if services is not None:
        _attach(app, services)
    # Around the router, not in its middleware: those never see a request that no route matches.
    app.asgi_handler = guard(SlashesInNames(app.asgi_handler), settings, ERROR_WIRES)
    return app


def served_app() -> Litestar:
    """Return the application of a server process: settings, logging and telemetry from the environment."""
    settings = load_settings()
    setup_logging(settings)
    setup_telemetry(settings)
    end_with_parent()
    app = create_app(settings)
    app.on_startup.append(tune_garbage_collection)
    app.on_shutdown.append(shutdown_telemetry)
    return app


def _attach(app: Litestar, services: Services) -> None:
    app.state.services = services
    app.state.health = Health(services.settings, services.database, services.embedders.describe)


def _dependencies() -> dict[str, Provide]:
    """Return what route handlers may ask for by name: each service, health, and the tenant."""

    def service(name: str) -> Provide:
        def provide(state: State) -> Any:
            return getattr(state.services, name)

        return Provide(provide, sync_to_thread=False)

    def health(state: State) -> Health:
        return state.health  # type: ignore[no-any-return]

    def tenant() -> UUID:
        return DEFAULT_TENANT

    return {
        **{name: service(name) for name in ("contexts", "sources", "hints", "embeddings", "lookup", "invocations")},
        "health": Provide(health, sync_to_thread=False),
        "tenant": Provide(tenant, sync_to_thread=False),
    }
