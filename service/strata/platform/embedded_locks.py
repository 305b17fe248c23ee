"""File locks of the embedded server: who starts or stops it, who uses it, whether it lives.

All are flock locks, which the kernel drops when their holder dies, so no lock is ever stale.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from strata.errors import EMBEDDED_POSTGRES, StrataError

_POLL_SECONDS = 0.02
_open: set[FileLock] = set()


def _forget_in_child() -> None:
    # A forked child shares its parent's locks and would keep them after the parent's death.
    for lock in _open:
        with suppress(OSError):
            os.close(lock.fd)
    _open.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class FileLock:
    """An exclusive flock on ``path``, for the process ``pid``; the file is made when ``create`` and stays empty."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
        self.pid = os.getpid()
        if create and os.geteuid() == 0:
            # Root may share a home with the user who owns it, and that user must be able to open the file.
            folder = path.parent.stat()
            os.fchown(self.fd, folder.st_uid, folder.st_gid)
        _open.add(self)

    def acquire(self, timeout_seconds: float = 0.0) -> bool:
        """Take the lock; False when another holds it for all of ``timeout_seconds``."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_POLL_SECONDS)
            else:
                return True

    def close(self, *, unlock: bool = True) -> None:
        """Close the file; ``unlock=False`` leaves the lock to the processes that inherited it."""
        if self not in _open:
            return
        _open.discard(self)
        if unlock:
            # Closing alone would not free a lock that a child still shares.
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)


@contextmanager
def guarded(path: Path, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock at ``path``: one process at a time starts or stops the server.

    Raises StrataError ``embedded_postgres`` when another holds it for all of ``timeout_seconds``.
    """
    lock = FileLock(path)
    try:
        if not lock.acquire(timeout_seconds):
            raise StrataError(
                EMBEDDED_POSTGRES,
                f"Another process has been starting or stopping the server for {timeout_seconds:.0f} s ({path}).",
                remedy="Wait for the other process, or end it, and try again.",
            )
        yield
    finally:
        lock.close()


def is_held(path: Path) -> bool:
    """Tell whether a living process holds the lock at ``path``."""
    try:
        lock = FileLock(path, create=False)
    except FileNotFoundError:
        return False
    try:
        return not lock.acquire()
    finally:
        lock.close()


def register_user(directory: Path) -> FileLock:
    """Enter this process as a user: a locked file named after it. Call under the guard."""
    lock = FileLock(directory / f"{os.getpid()}-{secrets.token_hex(4)}.lock")
    lock.acquire(timeout_seconds=5.0)
    return lock


def deregister_user(lock: FileLock) -> None:
    """Take the user's file away and free its lock."""
    lock.path.unlink(missing_ok=True)
    lock.close()


def live_users(directory: Path, *, sweep: bool) -> tuple[int, ...]:
    """Return the process ids of the living users, ascending; ``sweep`` removes the files of dead ones.

    Call under the guard: a probe holds each free lock for a moment.
    """
    alive: list[int] = []
    for path in sorted(directory.glob("*.lock")):
        if is_held(path):
            alive.append(int(path.name.partition("-")[0]))
        elif sweep:
            path.unlink(missing_ok=True)
    return tuple(sorted(alive))
