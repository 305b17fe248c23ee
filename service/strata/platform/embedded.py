"""The embedded Postgres: started by its first user, shared by all, stopped by the last."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psutil

from strata.errors import EMBEDDED_POSTGRES, StrataError
from strata.platform import embedded_cluster as cluster
from strata.platform import embedded_locks as locks
from strata.platform import embedded_process as process
from strata.platform import embedded_runtime as runtime

DATABASE = "strata"

_GUARD_SECONDS = 180.0
_STATUS_GUARD_SECONDS = 2.0
_LAUNCH_SECONDS = 20.0
_QUERY_SECONDS = 10.0
_ORPHAN_SECONDS = 10.0
_POLL_SECONDS = 0.05
_ATTEMPTS = 3

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server that has just answered a query. ``dsn`` holds no secret: the socket knows its callers."""

    dsn: str
    data_dir: Path
    socket_dir: Path
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """What is there, for ``strata doctor``.

    ``busy`` when a process starts or stops the server just now; ``users``, process ids of the living
    users, is then empty. ``data_version`` is a major version, ``binary_version`` a full one.
    """

    data_dir: Path
    data_state: cluster.DataState
    data_version: str | None
    binary_version: str | None
    running: bool
    pid: int | None
    socket_dir: Path | None
    users: tuple[int, ...]
    busy: bool
    log_file: Path | None


class _UnansweredError(StrataError):
    """The server lives, and has not answered in time."""


class EmbeddedPostgres:
    """One user of the embedded server in ``home`` (STRATA_HOME); its data is in ``home/postgres``.

    Any number of processes and instances may use it at once. ``fsync=False`` is for tests: an
    operating system crash may then destroy the data. Recovery after a crash may take up to
    ``start_timeout_seconds``. A forked child is no user: it must acquire for itself.
    """

    def __init__(self, home: Path, *, fsync: bool = True, start_timeout_seconds: float = 60.0) -> None:
        self._layout = cluster.Layout(home.expanduser().absolute())
        self._fsync = fsync
        self._start_timeout = start_timeout_seconds
        self._mutex = threading.Lock()
        self._user: locks.FileLock | None = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self) -> ServerInfo:
        """Make the data and start the server where needed, and become one of its users.

        A second call keeps the one registration, and starts a server that has died since.
        Raises StrataError ``embedded_postgres``.
        """
        with self._mutex, self._explained():
            cluster.prepare_home(self._layout)
            with locks.guarded(self._layout.guard, _GUARD_SECONDS):
                return self._register_and_serve()

    def release(self) -> None:
        """Stop being a user; the last one stops the server. Safe to repeat, and never raises StrataError."""
        with self._mutex:
            user, self._user = self._user, None
            atexit.unregister(self.release)
            if user is None or user.pid != os.getpid():
                return
            try:
                with locks.guarded(self._layout.guard, _GUARD_SECONDS):
                    locks.deregister_user(user)
                    if not locks.live_users(self._layout.users, sweep=True):
                        self._stop()
            except (StrataError, OSError, psutil.Error) as error:
                _log.warning("could not leave the embedded server: %s", error)
            finally:
                user.close()

    def status(self) -> EmbeddedStatus:
        """Look without starting, making or mending anything.

        Raises StrataError ``embedded_postgres`` when the home cannot even be looked at.
        """
        with self._explained():
            return self._look()

    def _look(self) -> EmbeddedStatus:
        data = self._layout.data
        users: tuple[int, ...] = ()
        busy = False
        if self._layout.guard.exists():
            try:
                with locks.guarded(self._layout.guard, _STATUS_GUARD_SECONDS):
                    users = locks.live_users(self._layout.users, sweep=False)
            except StrataError:
                busy = True
        binary = None
        with suppress(StrataError):
            binary = runtime.binary_version(runtime.packaged_bin(), None)
        found = process.read_pid_file(data)
        running = found is not None and self._answers(found)
        return EmbeddedStatus(
            data_dir=data,
            data_state=cluster.data_state(data),
            data_version=cluster.data_version(data),
            binary_version=binary,
            running=running,
            pid=found.pid if found and running else None,
            socket_dir=found.socket_dir if found and running else None,
            users=users,
            busy=busy,
            log_file=process.newest_log(self._layout.logs),
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, subprocess.SubprocessError, psutil.Error) as error:
            raise StrataError(
                EMBEDDED_POSTGRES, f"The embedded server in {self._layout.home} cannot be used: {error}."
            ) from error

    def _register_and_serve(self) -> ServerInfo:
        locks.live_users(self._layout.users, sweep=True)
        known = self._user is not None and self._user.pid == os.getpid()
        user = self._user if self._user is not None and known else locks.register_user(self._layout.users)
        try:
            info = self._serve(runtime.server_account(self._layout.home, self._layout.data))
        except BaseException as error:
            if not known:
                locks.deregister_user(user)
                # One that is still recovering is left to it; another try then finds it further on.
                if not isinstance(error, _UnansweredError) and not locks.live_users(self._layout.users, sweep=True):
                    self._stop()
            raise
        if not known:
            self._user = user
            atexit.register(self.release)
        return info

    def _serve(self, account: runtime.Account) -> ServerInfo:
        attempts = itertools.count(1)
        while True:
            if not self._settle():
                self._start(account)
            try:
                return self._describe()
            except StrataError:
                # Someone may have killed the server since it answered.
                if self._server() is not None or next(attempts) == _ATTEMPTS:
                    raise

    def _server(self) -> psutil.Process | None:
        found = process.read_pid_file(self._layout.data)
        return process.server_process(found.pid, self._layout.data) if found else None

    def _settle(self) -> bool:
        """Wait for a server that runs or is starting; clear away what a dead one left. True when one answers."""
        data = self._layout.data
        found = process.read_pid_file(data)
        server = process.server_process(found.pid, data) if found else None
        if server is not None:
            if self._await_answer(lambda: process.alive(server)):
                return True
            if process.alive(server):
                if self._has_socket():
                    raise self._timeout(server.pid)
                _log.warning("the embedded server has lost its socket; it is started again")
                process.stop(server, data, self._start_timeout)
        elif found is not None and locks.is_held(self._layout.alive) and self._answers(found):
            # It runs in another container that shares this home.
            return True
        gone = process.end_processes(data)
        if not gone or not process.wait_until(lambda: not locks.is_held(self._layout.alive), _ORPHAN_SECONDS):
            raise StrataError(
                EMBEDDED_POSTGRES,
                f"Processes of a server that died still work in {data} or hold {self._layout.alive}.",
                remedy="End them (lsof names them), or the container that shares this STRATA_HOME, and try again.",
            )
        return False

    def _start(self, account: runtime.Account) -> None:
        """Start the server on whole data; call under the guard with no server process left."""
        layout = self._layout
        cluster.check_reachable(layout, account)
        binaries = runtime.find_runtime(layout.home, account)
        cluster.ensure_data(layout, account, binaries, fsync=self._fsync)
        socket_dir = cluster.socket_directory(layout, account)
        cluster.prepare_logs(layout, account)
        process.clear_stale_files(layout.data, socket_dir)
        config = cluster.write_configuration(layout, account, socket_dir, fsync=self._fsync)
        argv: list[str | Path] = [
            *(binaries.bin / "postgres", "-D", layout.data, "-c", f"config_file={config}"),
            *("-c", "listen_addresses=", "-c", f"unix_socket_directories={socket_dir}", "-p", str(cluster.PORT)),
        ]
        pid = self._launch(process.start_command(layout.logs / "start.log", argv), account)
        if not self._await_answer(lambda: process.pid_alive(pid)):
            if process.pid_alive(pid):
                raise self._timeout(pid)
            raise StrataError(
                EMBEDDED_POSTGRES,
                f"The server ended while it started. Its log is in {layout.logs}: {process.tail(layout.logs)}",
                remedy="Mend what the log names, such as a full disk; then try again.",
            )

    def _launch(self, argv: list[str], account: runtime.Account) -> int:
        lock = locks.FileLock(self._layout.alive)
        try:
            if not lock.acquire(_ORPHAN_SECONDS):
                raise StrataError(EMBEDDED_POSTGRES, f"Another server holds {lock.path}.")
            result = runtime.command(argv, account, timeout_seconds=_LAUNCH_SECONDS, pass_fds=[lock.fd])
        finally:
            # The server inherited the lock, and holds it for as long as one of its processes lives.
            lock.close(unlock=False)
        if result.returncode != 0 or not result.stdout.strip().isdigit():
            raise StrataError(EMBEDDED_POSTGRES, f"The server could not be launched: {result.stderr.strip()}")
        return int(result.stdout)

    def _await_answer(self, lives: Callable[[], bool]) -> bool:
        """Wait until the server answers a query; False when it dies, loses its socket or takes too long."""
        deadline = time.monotonic() + self._start_timeout
        while True:
            living = lives()
            found = process.read_pid_file(self._layout.data)
            if found and found.ready:
                if not self._has_socket():
                    return False
                if self._answers(found):
                    return True
            if not living or time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)

    def _has_socket(self) -> bool:
        found = process.read_pid_file(self._layout.data)
        if not found or not found.ready or not found.socket_dir:
            return True
        return (found.socket_dir / f".s.PGSQL.{cluster.PORT}").exists()

    def _timeout(self, pid: int) -> StrataError:
        logs = self._layout.logs
        return _UnansweredError(
            EMBEDDED_POSTGRES,
            f"The server (process {pid}) did not answer within {self._start_timeout:.0f} s; it may still be recovering "
            f"from a crash. Its log is in {logs}: {process.tail(logs)}",
            remedy="Watch the log, and try again when recovery has ended.",
        )

    def _answers(self, found: process.PidFile) -> bool:
        try:
            return found.socket_dir is not None and self._query(found.socket_dir, "SELECT 1") == "1"
        except (StrataError, subprocess.TimeoutExpired):
            return False

    def _describe(self) -> ServerInfo:
        found = process.read_pid_file(self._layout.data)
        if found is None or found.socket_dir is None:
            raise StrataError(EMBEDDED_POSTGRES, "The server ended as soon as it had started.")
        sql = f"SELECT count(*) FROM pg_database WHERE datname = '{DATABASE}'"  # noqa: S608 - a constant
        if self._query(found.socket_dir, sql) == "0":
            self._query(found.socket_dir, f"CREATE DATABASE {DATABASE}")
        version = self._query(found.socket_dir, "SHOW server_version", DATABASE)
        host = quote(str(found.socket_dir), safe="/")
        # The port is spelled out: drivers would take another from PGPORT.
        dsn = f"postgresql://{cluster.ROLE}@/{DATABASE}?host={host}&port={cluster.PORT}"
        return ServerInfo(dsn, self._layout.data, found.socket_dir, found.pid, version.partition(" ")[0])

    def _query(self, socket_dir: Path, sql: str, database: str = "postgres") -> str:
        argv: list[str | Path] = [runtime.packaged_bin() / "psql", "-XAtqw", "-h", socket_dir]
        argv += ["-p", str(cluster.PORT), "-U", cluster.ROLE, "-d", database, "-c", sql]
        result = runtime.command(argv, None, timeout_seconds=_QUERY_SECONDS)
        if result.returncode != 0:
            raise StrataError(EMBEDDED_POSTGRES, f"The server refused a query: {result.stderr.strip()}")
        return result.stdout.strip()

    def _stop(self) -> None:
        found, server = process.read_pid_file(self._layout.data), self._server()
        if server is None or found is None:
            return
        if not process.stop(server, self._layout.data, self._start_timeout):
            _log.warning("the embedded server (process %d) did not stop", server.pid)
        if found.socket_dir is not None and found.socket_dir.parent != self._layout.run:
            with suppress(OSError):
                found.socket_dir.rmdir()
