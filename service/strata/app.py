"""The composition root: settings in, services or a Litestar application out.

The only module that knows every other. Surfaces get a :class:`Services` and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide

from strata.hints.endpoints import HintController
from strata.hints.service import HintService
from strata.knowledge.endpoints import ContextController
from strata.knowledge.service import ContextService
from strata.lookup.endpoints import LookupController
from strata.lookup.service import LookupService
from strata.platform.actuator import ActuatorController, Health
from strata.platform.border import guard
from strata.platform.database import Database
from strata.platform.embedded import EmbeddedPostgres
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.logging import setup_logging
from strata.platform.openapi import ApiDocument, documentation_routes
from strata.platform.problems import EXCEPTION_HANDLERS
from strata.platform.schema import migrate, require_current
from strata.platform.server import end_with_parent
from strata.platform.telemetry import setup_telemetry, shutdown_telemetry
from strata.settings import Settings, load_settings
from strata.sources.endpoints import SourceController
from strata.sources.service import SourceService
from strata.traces.endpoints import InvocationController
from strata.traces.retention import keep_partitions
from strata.traces.service import InvocationService, Recorder


@dataclass(frozen=True, slots=True)
class Services:
    """Every use case, ready to call, over one open database."""

    settings: Settings
    database: Database
    contexts: ContextService
    sources: SourceService
    hints: HintService
    lookup: LookupService
    invocations: InvocationService
    recorder: Recorder

    async def close(self) -> None:
        """Stop background work and write the trace rows that still wait; before the database closes."""
        await self.sources.close()
        await self.recorder.close()


def compose(settings: Settings, database: Database) -> Services:
    """Wire the services over an open database."""
    contexts = ContextService(database)
    hints = HintService(database, contexts)
    sources = SourceService(database, settings, contexts, hints)
    recorder = Recorder(database, settings)
    lookup = LookupService(database, settings, contexts, hints, recorder)
    return Services(
        settings=settings,
        database=database,
        contexts=contexts,
        sources=sources,
        hints=hints,
        lookup=lookup,
        invocations=InvocationService(database, lookup.lexical_order),
        recorder=recorder,
    )


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the configured database, starting the embedded server where no URL is set."""
    if settings.database_url:
        database = Database(settings.database_url, settings)
        try:
            await database.open()
            yield database
        finally:
            await database.close()
        return
    server = EmbeddedPostgres(settings.home)
    info = await asyncio.to_thread(server.acquire)
    database = Database(info.dsn, settings, revive=lambda: server.acquire().dsn)
    try:
        await database.open()
        yield database
    finally:
        await database.close()
        await asyncio.to_thread(server.release)


@asynccontextmanager
async def open_services(settings: Settings, *, migrate_embedded: bool = True) -> AsyncIterator[Services]:
    """Open database and services for one process.

    The embedded database is ours alone, so it is migrated on the way; a database by URL must be
    current already, else ``schema_outdated`` says to run ``strata migrate``.
    """
    async with open_database(settings) as database:
        if migrate_embedded and not settings.database_url:
            await migrate(database.dsn)
        async with database.owner() as connection:
            await require_current(connection, database.dsn)
        services = compose(settings, database)
        try:
            yield services
        finally:
            await services.close()


CONTROLLERS = (
    LookupController,
    ContextController,
    SourceController,
    HintController,
    InvocationController,
    ActuatorController,
)


def create_app(settings: Settings, *, services: Services | None = None) -> Litestar:
    """Return the REST application.

    It opens its services when it starts and closes them when it stops, unless ``services`` that
    are open already are given; those stay the caller's.
    """

    @asynccontextmanager
    async def opened(app: Litestar) -> AsyncIterator[None]:
        async with open_services(settings) as own:
            _attach(app, own)
            yield

    dependencies = _dependencies()
    document = ApiDocument(CONTROLLERS, dependencies)
    app = Litestar(
        route_handlers=[*CONTROLLERS, *documentation_routes(document)],
        dependencies=dependencies,
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=[] if services else [opened],
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
    )
    if services is not None:
        _attach(app, services)
    # Around the router, not in its middleware: those never see a request that no route matches.
    app.asgi_handler = guard(app.asgi_handler, settings)
    return app


def served_app() -> Litestar:
    """Return the application of a server process: settings, logging and telemetry from the environment."""
    settings = load_settings()
    setup_logging(settings)
    setup_telemetry(settings)
    end_with_parent()
    app = create_app(settings)
    app.on_shutdown.append(shutdown_telemetry)
    return app


def _attach(app: Litestar, services: Services) -> None:
    app.state.services = services
    app.state.health = Health(services.settings, services.database)


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
        **{name: service(name) for name in ("contexts", "sources", "hints", "lookup", "invocations")},
        "health": Provide(health, sync_to_thread=False),
        "tenant": Provide(tenant, sync_to_thread=False),
    }
