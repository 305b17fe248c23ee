"""Operations endpoints in Spring Boot's shapes: /actuator, health with its groups, info, /livez, /readyz."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from strata.errors import ROUTE_NOT_FOUND, StrataError
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.openapi import documented
from strata.platform.schema import HEAD_REVISION, require_current
from strata.platform.telemetry import VERSION
from strata.providers.embeddings.embedders import EmbedderDescription
from strata.settings import Settings

ACTUATOR_JSON = "application/vnd.spring-boot.actuator.v3+json"
DRAIN_VARIABLE = "STRATA_DRAIN_FILE"
"""Names the file whose presence says that this server is shutting down (platform/server.py)."""

MIN_FREE_BYTES = 10 * 1024 * 1024
_PROBE_SECONDS = 3.0
_SCHEMA_SECONDS = 30.0

Component = dict[str, Any]

_FAILING = ("DOWN", "OUT_OF_SERVICE")
_GROUPS = ["liveness", "readiness"]
_UNHEALTHY = {
    "503": {
        "description": "Not healthy: `status` and `components` say why.",
        "content": {ACTUATOR_JSON: {"schema": {"type": "object", "additionalProperties": True}}},
    }
}


def is_draining() -> bool:
    """Return whether the server was told to stop and finishes what is in flight."""
    marker = os.environ.get(DRAIN_VARIABLE)
    return bool(marker) and Path(str(marker)).exists()


@dataclass(slots=True)
class Health:
    """The state of this process and of what it needs.

    ``embedder`` says what is configured, ``revision`` is that of the schema.
    """

    settings: Settings
    database: Database
    embedder: Callable[[], EmbedderDescription]
    _schema_checked_at: float = field(default=float("-inf"))
    revision: str = HEAD_REVISION

    async def db(self) -> Component:
        """Return UP when a unit of work can be opened and committed."""
        try:
            async with asyncio.timeout(_PROBE_SECONDS), self.database.work(DEFAULT_TENANT):
                pass
        except (StrataError, TimeoutError, OSError) as error:
            return _down(error, database="PostgreSQL")
        return _up(database="PostgreSQL", validationQuery="isValid()")

    async def schema(self) -> Component:
        """Return UP when the database is at the revision of this code; a good answer stands for 30 s."""
        if time.monotonic() - self._schema_checked_at > _SCHEMA_SECONDS:
            try:
                async with asyncio.timeout(_PROBE_SECONDS), self.database.owner() as connection:
                    await require_current(connection, self.database.dsn)
            except (StrataError, TimeoutError, OSError) as error:
                return _down(error, needed=self.revision)
            self._schema_checked_at = time.monotonic()
        return _up(revision=self.revision)

    def disk_space(self) -> Component:
        """Return DOWN when the volume of STRATA_HOME has less than 10 MiB left."""
        path = self.settings.home
        while not path.exists() and path != path.parent:
            path = path.parent
        usage = shutil.disk_usage(path)
        details = {"total": usage.total, "free": usage.free, "threshold": MIN_FREE_BYTES, "path": str(path)}
        return _up(**details, exists=True) if usage.free >= MIN_FREE_BYTES else {"status": "DOWN", "details": details}

    def embedder_state(self) -> Component:
        """Return what is known of the embedder; never DOWN: lookups answer by words without it.

        UNKNOWN when it could not be opened, or its endpoint failed so often that it is left alone.
        """
        found = self.embedder()
        is_troubled = found.error is not None or found.breaker == "open"
        details = {"mode": found.mode, "model": found.model, "isOpen": found.is_open, "breaker": found.breaker}
        return {"status": "UNKNOWN" if is_troubled else "UP", "details": details}

    def readiness_state(self) -> Component:
        """Return OUT_OF_SERVICE from the moment the server is told to stop."""
        return {"status": "OUT_OF_SERVICE" if is_draining() else "UP"}

    async def readiness(self) -> dict[str, Component]:
        """Return the components of the readiness group."""
        state = self.readiness_state()
        if state["status"] != "UP":
            return {"readinessState": state}
        db = await self.db()
        if db["status"] != "UP":
            # A database that takes no work says nothing of its schema either.
            return {"readinessState": state, "db": db}
        return {"readinessState": state, "db": db, "schema": await self.schema()}

    async def everything(self) -> dict[str, Component]:
        """Return every component."""
        db, schema = await asyncio.gather(self.db(), self.schema())
        return {
            "db": db,
            "diskSpace": self.disk_space(),
            "embedder": self.embedder_state(),
            "livenessState": {"status": "UP"},
            "ping": {"status": "UP"},
            "readinessState": self.readiness_state(),
            "schema": schema,
        }


def _up(**details: Any) -> Component:
    return {"status": "UP", "details": details}


def _down(error: BaseException, **details: Any) -> Component:
    """Describe a failure by its code alone: the address of a database is nobody's business here."""
    code = error.code if isinstance(error, StrataError) else "timeout"
    return {"status": "DOWN", "details": {**details, "error": code}}


def _answer(components: dict[str, Component], *, details: bool, groups: bool = False) -> Response[dict[str, Any]]:
    statuses = {component["status"] for component in components.values()}
    status = next((name for name in _FAILING if name in statuses), "UP")
    body: dict[str, Any] = {"status": status}
    if details:
        body["components"] = components
    if groups:
        body["groups"] = _GROUPS
    return _json(body, 200 if status == "UP" else 503)


def _json(body: dict[str, Any], status: int = 200) -> Response[dict[str, Any]]:
    return Response(body, status_code=status, media_type=ACTUATOR_JSON, headers={"cache-control": "no-store"})


class ActuatorController(Controller):
    """Health, information and their index."""

    path = "/"
    tags = ("operations",)

    @get(
        "/actuator",
        media_type=ACTUATOR_JSON,
        operation_id="actuatorIndex",
        summary="List the operations endpoints",
        sync_to_thread=False,
        opt=documented(response={"_links": {"health": {"href": "/actuator/health", "templated": False}}}),
    )
    def index(self) -> Response[dict[str, Any]]:
        """Return links to every operations endpoint."""
        links = {
            "self": "/actuator",
            "health": "/actuator/health",
            "health-path": "/actuator/health/{path}",
            "info": "/actuator/info",
        }
        return _json({"_links": {name: {"href": href, "templated": "{" in href} for name, href in links.items()}})

    @get(
        "/actuator/health",
        media_type=ACTUATOR_JSON,
        operation_id="health",
        summary="Health of the service and what it needs",
        opt=documented(
            response={"status": "UP", "components": {"ping": {"status": "UP"}}, "groups": _GROUPS}, responses=_UNHEALTHY
        ),
    )
    async def health(self, health: NamedDependency[Health]) -> Response[dict[str, Any]]:
        """Return UP with 200, or DOWN with 503; ``components`` say which part."""
        return _answer(await health.everything(), details=True, groups=True)

    @get(
        "/actuator/health/liveness",
        media_type=ACTUATOR_JSON,
        operation_id="liveness",
        summary="Is the process alive",
        opt=documented(response={"status": "UP"}),
    )
    async def liveness(self) -> Response[dict[str, Any]]:
        """Return UP while the process answers; looks at nothing outside it."""
        return _answer({"livenessState": {"status": "UP"}}, details=False)

    @get(
        "/actuator/health/readiness",
        media_type=ACTUATOR_JSON,
        operation_id="readiness",
        summary="Can it take requests",
        opt=documented(
            response={"status": "UP", "components": {"readinessState": {"status": "UP"}}}, responses=_UNHEALTHY
        ),
    )
    async def readiness(self, health: NamedDependency[Health]) -> Response[dict[str, Any]]:
        """Return UP when database and schema are usable and the server is not stopping, else 503."""
        return _answer(await health.readiness(), details=True)

    @get(
        "/livez",
        media_type=ACTUATOR_JSON,
        operation_id="livez",
        summary="Is the process alive",
        opt=documented(response={"status": "UP"}),
    )
    async def livez(self) -> Response[dict[str, Any]]:
        """Return the same as /actuator/health/liveness."""
        return _answer({"livenessState": {"status": "UP"}}, details=False)

    @get(
        "/readyz",
        media_type=ACTUATOR_JSON,
        operation_id="readyz",
        summary="Can it take requests",
        opt=documented(response={"status": "UP"}, responses=_UNHEALTHY),
    )
    async def readyz(self, health: NamedDependency[Health]) -> Response[dict[str, Any]]:
        """Return the same as /actuator/health/readiness."""
        return _answer(await health.readiness(), details=True)

    @get(
        "/actuator/health/{component:str}",
        media_type=ACTUATOR_JSON,
        operation_id="healthComponent",
        summary="Health of one component",
        opt=documented(response={"status": "UP"}, errors=(ROUTE_NOT_FOUND,), responses=_UNHEALTHY),
    )
    async def component(self, component: FromPath[str], health: NamedDependency[Health]) -> Response[dict[str, Any]]:
        """Return one component of the health document."""
        found = (await health.everything()).get(component)
        if found is None:
            raise StrataError(ROUTE_NOT_FOUND, "There is no such health component.")
        return _json(found, 503 if found["status"] in _FAILING else 200)

    @get(
        "/actuator/info",
        media_type=ACTUATOR_JSON,
        operation_id="info",
        summary="Name, version and revision",
        sync_to_thread=False,
        opt=documented(response={"app": {"name": "strata", "version": VERSION, "schemaRevision": "0001"}}),
    )
    def info(self, health: NamedDependency[Health]) -> Response[dict[str, Any]]:
        """Return what is running."""
        return _json(
            {
                "app": {"name": "strata", "version": VERSION, "schemaRevision": health.revision},
                "build": {"group": "strata", "artifact": "strata", "name": "strata", "version": VERSION},
                "python": {"version": platform.python_version()},
            }
        )
