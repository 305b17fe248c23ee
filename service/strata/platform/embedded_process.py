"""The running server: its lock file, its processes, start, stop and a real answer."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

_POLL_SECONDS = 0.05
_QUIT_SECONDS = 5.0
_TAIL_BYTES = 16 * 1024
_TAIL_LINES = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PidFile:
    """What ``postmaster.pid`` says; nothing in it proves that a server lives."""

    pid: int
    socket_dir: Path | None
    ready: bool


def read_pid_file(data: Path) -> PidFile | None:
    """Read ``postmaster.pid``; None when it is absent, empty or garbled."""
    try:
        lines = (data / "postmaster.pid").read_text("utf-8", "surrogateescape").splitlines()
        # A single-user server writes its id negated.
        pid = abs(int(lines[0]))
    except (OSError, ValueError, IndexError):
        return None
    socket_dir = Path(lines[4]) if len(lines) > 4 and lines[4] else None
    return PidFile(pid, socket_dir, len(lines) > 7 and lines[7].strip() == "ready")


def server_process(pid: int, data: Path) -> psutil.Process | None:
    """Return the process ``pid`` if it is a living Postgres that works in ``data``."""
    with suppress(psutil.NoSuchProcess, ValueError, OverflowError):
        process = psutil.Process(pid)
        if _belongs(process, data):
            return process
    return None


def processes_of(data: Path) -> list[psutil.Process]:
    """Return the living Postgres processes that work in ``data``, by id."""
    found = [process for process in psutil.process_iter() if _belongs(process, data)]
    return sorted(found, key=lambda process: process.pid)


def _belongs(process: psutil.Process, data: Path) -> bool:
    # Every server process changes into its data directory; initdb names it on its command line.
    try:
        if process.status() == psutil.STATUS_ZOMBIE or process.name() not in ("postgres", "initdb"):
            return False
        return process.cwd() == str(data) or str(data) in process.cmdline()
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return False


def alive(process: psutil.Process) -> bool:
    """Tell whether the process runs; a zombie that nobody has reaped does not."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def pid_alive(pid: int) -> bool:
    """Tell whether a process of that id runs, whatever it is."""
    with suppress(psutil.NoSuchProcess):
        return alive(psutil.Process(pid))
    return False


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    """Poll ``condition``; False when it stays false for ``timeout_seconds``."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def end_processes(data: Path) -> bool:
    """End every Postgres process that works in ``data``, at once, then by force; True when none is left."""
    for number in (signal.SIGQUIT, signal.SIGKILL):
        left = processes_of(data)
        if not left:
            return True
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        wait_until(partial(_all_gone, left), _QUIT_SECONDS)
    return not processes_of(data)


def _all_gone(processes: Sequence[psutil.Process]) -> bool:
    return not any(map(alive, processes))


def stop(process: psutil.Process, data: Path, timeout_seconds: float) -> bool:
    """Shut the server down: fast, then immediate, then by force; True when all of it is gone."""
    for number, seconds in ((signal.SIGINT, timeout_seconds), (signal.SIGQUIT, _QUIT_SECONDS)):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
        if wait_until(lambda: not alive(process), seconds):
            break
        _log.warning("the embedded server did not stop within %.0f s", seconds)
    return end_processes(data)


def start_command(log: Path, argv: Sequence[str | Path]) -> list[str]:
    """Wrap a server command so that it outlives us as nobody's child, and its process id is printed."""
    script = 'log=$1; shift; "$@" </dev/null >"$log" 2>&1 & echo $!'
    return ["/bin/sh", "-c", script, "sh", *(os.fspath(part) for part in (log, *argv))]


def clear_stale_files(data: Path, socket_dir: Path) -> None:
    """Remove the lock and socket files of a server that is proved dead.

    Postgres itself refuses to start when the process id in one of them now belongs to another program.
    """
    (data / "postmaster.pid").unlink(missing_ok=True)
    for path in sorted(socket_dir.glob(".s.PGSQL.*")):
        path.unlink(missing_ok=True)


def newest_log(logs: Path) -> Path | None:
    """Return the log file written last."""
    with suppress(OSError):
        files = [(path.lstat().st_mtime_ns, path) for path in logs.glob("*.log")]
        return max(files)[1] if files else None
    return None


def tail(logs: Path) -> str:
    """Return the last lines that the server logged, newest file last, on one line."""
    lines: list[str] = []
    with suppress(OSError):
        for path in sorted(logs.glob("*.log"), key=lambda path: (path.lstat().st_mtime_ns, path))[-2:]:
            # The server's account owns the folder and could plant a link.
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(handle, "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines += file.read().decode("utf-8", "replace").splitlines()
    return " / ".join(line.strip() for line in lines[-_TAIL_LINES:])
