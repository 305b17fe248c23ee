"""The server process: prepare the database, run granian's workers, stop without losing a call."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import structlog
from granian.constants import Interfaces
from granian.log import LogLevels
from granian.server import Server

from strata.errors import INVALID_SETTING, StrataError
from strata.platform.actuator import DRAIN_VARIABLE
from strata.platform.database import Database
from strata.platform.embedded import EmbeddedPostgres
from strata.platform.logging import setup_logging
from strata.platform.migrations import migrate
from strata.platform.schema import require_current
from strata.settings import Settings

TARGET = "strata.app:served_app"
GRACE_SECONDS = 30
"""How long calls in flight may take to finish after SIGTERM."""

_READY_SECONDS = 120
_PARENT_VARIABLE = "STRATA_SERVER_PID"
_PARENT_POLL_SECONDS = 0.5
_log = structlog.get_logger(__name__)


def serve(settings: Settings, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; blocks, and must run in the main thread.

    The embedded database is started and migrated first and kept until the last worker has left; a
    database by URL must be current. ``on_ready`` is called once, in a thread, with the address,
    when the server can take requests. On SIGTERM readiness drops, calls in flight finish within
    30 s, then the workers end; a second signal ends the wait. A worker that dies is replaced.
    Raises StrataError when the database cannot be used or the port is taken.
    """
    setup_logging(settings)
    settings = msgspec.structs.replace(settings, port=_free_port(settings))
    with _prepared_database(settings), _drain_file() as drain:
        _export(settings)
        os.environ[_PARENT_VARIABLE] = str(os.getpid())
        if on_ready is not None:
            waiter = threading.Thread(target=_announce, args=(settings, on_ready), name="strata-ready", daemon=True)
            waiter.start()
        server = _GracefulServer(
            TARGET,
            factory=True,
            address=settings.host,
            port=settings.port,
            interface=Interfaces.ASGI,
            workers=settings.workers,
            websockets=False,
            respawn_failed_workers=True,
            workers_kill_timeout=GRACE_SECONDS,
            log_level=LogLevels(settings.log_level),
            log_dictconfig=_granian_logging(),
        )
        server.drain_file = drain
        server.drain_seconds = settings.shutdown_delay_seconds
        server.serve()


def tune_garbage_collection() -> None:
    """Keep what a started process holds out of later collections, and make full ones rare.

    Caches hold many small objects for long: full collections at the default thresholds were most
    of the slowest percent of lookups (60 ms each at 100,000 passages).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 1_000)


def end_with_parent() -> None:
    """Make this worker stop, as on SIGTERM, when the process that started it is gone.

    A killed server would otherwise leave workers that hold its port. Does nothing elsewhere.
    """
    parent = os.environ.get(_PARENT_VARIABLE)
    if parent is None or os.getppid() != int(parent):
        return

    def watch() -> None:
        while os.getppid() == int(parent):
            time.sleep(_PARENT_POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="strata-parent", daemon=True).start()


class _GracefulServer(Server):  # type: ignore[misc, valid-type]  # granian chooses the class at import
    """Granian's server, which tells readiness before it tells its workers."""

    drain_file: Path
    drain_seconds: float = 0.0

    def signal_handler_interrupt(self, *args: Any, **kwargs: Any) -> None:
        """Drop readiness at once; stop after the drain time, or at once on a second signal."""
        first = not self.drain_file.exists()
        self.drain_file.touch()
        if first and self.drain_seconds:
            timer = threading.Timer(self.drain_seconds, super().signal_handler_interrupt)
            timer.daemon = True
            timer.start()
        else:
            super().signal_handler_interrupt(*args, **kwargs)


@contextlib.contextmanager
def _prepared_database(settings: Settings) -> Iterator[None]:
    if settings.database_url:
        asyncio.run(_check(settings))
        yield
        return
    server = EmbeddedPostgres(settings.home)
    info = server.acquire()
    try:
        asyncio.run(migrate(info.dsn))
        yield
    finally:
        server.release()


async def _check(settings: Settings) -> None:
    database = Database(settings.database_url or "", settings)
    async with database.owner() as connection:
        await require_current(connection, database.dsn)


@contextlib.contextmanager
def _drain_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="strata-serve-") as directory:
        path = Path(directory) / "draining"
        os.environ[DRAIN_VARIABLE] = str(path)
        try:
            yield path
        finally:
            os.environ.pop(DRAIN_VARIABLE, None)


def _export(settings: Settings) -> None:
    """Give the settings to the workers, which are new processes and read the environment."""
    for name in Settings.__struct_fields__:
        value = getattr(settings, name)
        variable = f"STRATA_{name.upper()}"
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = str(value).lower() if isinstance(value, bool) else str(value)


def _free_port(settings: Settings) -> int:
    """Return the port, or a free one for port 0; raises ``invalid_setting`` when it cannot be listened on."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise StrataError(
                INVALID_SETTING,
                f"STRATA_PORT: cannot listen on {where}: {error.strerror or error}.",
                pointer="STRATA_PORT",
                remedy="Stop what listens there, or choose another port (STRATA_PORT, --port).",
            ) from error
        port: int = probe.getsockname()[1]
        return port


def base_url(settings: Settings) -> str:
    """Return an address at which this machine reaches the server."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - read, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _announce(settings: Settings, on_ready: Callable[[str], None]) -> None:
    url = base_url(settings)
    host = url.removeprefix("http://").rpartition(":")[0].strip("[]")
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(host, settings.port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                on_ready(url)
                return
        time.sleep(0.05)
    _log.warning("server.not_ready", seconds=_READY_SECONDS)


def _granian_logging() -> dict[str, Any]:
    """Let granian's own lines go through ours."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {},
        "loggers": {"_granian": {"handlers": [], "propagate": True}},
    }
