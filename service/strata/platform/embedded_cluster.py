"""The data directory of the embedded server and the configuration it runs with."""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import psutil

from strata.errors import EMBEDDED_POSTGRES, StrataError
from strata.platform.embedded_process import end_processes, wait_until
from strata.platform.embedded_runtime import Account, Runtime, command, reachable

ROLE = "strata"
PORT = 5432
MARKER = "strata.complete"
DataState = Literal["absent", "incomplete", "ready"]

_INITDB_SECONDS = 300.0
# sun_path holds 104 bytes on macOS and 108 on Linux, the final zero included.
_SOCKET_DIR_BYTES = 103 - len(f"/.s.PGSQL.{PORT}")
_REACH_SECONDS = 1.0
_TEMP_ROOT_BYTES = 48
# A comma or a blank would split the path in clients' lists of hosts.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._~+@=-]+")
_LOG_DAYS = 6
_LOG_BYTES = 64 * 1024 * 1024
_MIB = 1024 * 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of one embedded server lies; ``data`` may be a link to another disk."""

    home: Path

    @property
    def data(self) -> Path:
        """The data directory, links resolved."""
        return (self.home / "postgres").resolve()

    @property
    def run(self) -> Path:
        """Locks, sockets and generated configuration; nothing in it outlives its use."""
        return self.home / "run"

    @property
    def guard(self) -> Path:
        """The lock of the one process that starts or stops the server."""
        return self.run / "lock"

    @property
    def alive(self) -> Path:
        """The lock that the server and its children inherit: it is free once the last of them is gone."""
        return self.run / "server.lock"

    @property
    def users(self) -> Path:
        """One locked file for each user."""
        return self.run / "users"

    @property
    def logs(self) -> Path:
        """The server's log files, one for each weekday, and its first words at start."""
        return self.home / "log"


def prepare_home(layout: Layout) -> None:
    """Make the folders that do not depend on the server's account.

    Raises StrataError ``embedded_postgres`` when the home cannot be written.
    """
    if any(ord(char) < 32 for char in str(layout.home)):
        raise StrataError(EMBEDDED_POSTGRES, f"STRATA_HOME holds a control character: {str(layout.home)!r}.")
    try:
        _make_open(layout.home)
        owner = layout.home.stat()
        for folder, mode in ((layout.run, 0o711), (layout.users, 0o700)):
            # Several first users may be here at once: each brings both folders to their final state.
            folder.mkdir(mode=mode, exist_ok=True)
            found = folder.stat()
            if found.st_mode & 0o777 != mode:
                folder.chmod(mode)
            if os.geteuid() == 0 and found.st_uid != owner.st_uid:
                os.chown(folder, owner.st_uid, owner.st_gid)
    except OSError as error:
        raise StrataError(
            EMBEDDED_POSTGRES,
            f"The home {layout.home} cannot be used: {error}.",
            remedy="Make it writable, free space, or choose another STRATA_HOME.",
        ) from error


def _make_open(folder: Path) -> None:
    """Make a folder and its parents; those that root makes can be entered by the server's account."""
    if folder.is_dir():
        return
    if not folder.parent.exists():
        _make_open(folder.parent)
    root = os.geteuid() == 0
    folder.mkdir(mode=0o755 if root else 0o700, exist_ok=True)
    if root:
        folder.chmod(0o755)


def check_reachable(layout: Layout, account: Account) -> None:
    """Raise StrataError ``embedded_postgres`` unless the server's account can enter the home and the data's folder."""
    for folder in (layout.home, layout.data.parent) if account.switch else ():
        # The process that makes the folder opens it a moment later.
        if not wait_until(partial(reachable, folder, account), _REACH_SECONDS):
            raise StrataError(
                EMBEDDED_POSTGRES,
                f"User {account.name}, who runs Postgres for root, cannot reach {folder}.",
                remedy="Choose a STRATA_HOME whose parent folders others may enter, or set STRATA_DATABASE_URL.",
            )


def data_version(data: Path) -> str | None:
    """Return the major version that made the data directory; None when it does not say."""
    try:
        return (data / "PG_VERSION").read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def data_state(data: Path) -> DataState:
    """Tell whether there is data, and whether its making came to an end."""
    if not data.exists():
        return "absent"
    return "ready" if (data / MARKER).exists() and data_version(data) else "incomplete"


def ensure_data(layout: Layout, account: Account, runtime: Runtime, *, fsync: bool) -> None:
    """Make the data directory when there is none whole; call under the guard with no server running.

    A half-made one is set aside, never deleted: it might be a broken restore of something dear.
    Raises StrataError ``embedded_postgres`` for data of another major version, which stays as it is.
    """
    data = layout.data
    _remove_leftovers(data)
    version = data_version(data)
    if version and version != runtime.major:
        raise StrataError(
            EMBEDDED_POSTGRES,
            f"{data} was made by Postgres {version}; the installed server is Postgres {runtime.major}.",
            remedy=(
                f"Dump it with the embedded-postgres {version} that made it and restore into a new STRATA_HOME, "
                "or install that version again. The data was left untouched."
            ),
        )
    state = data_state(data)
    if state == "incomplete" and any(data.iterdir()):
        aside = data.with_name(f"{data.name}.incomplete-{time.time_ns()}")
        data.rename(aside)
        _log.warning("set aside a half-made data directory: %s", aside)
    if state != "ready":
        _initialise(data, account, runtime, fsync=fsync)
    elif account.switch and data.stat().st_uid == 0:
        _give_tree(data, account)


def _remove_leftovers(data: Path) -> None:
    for leftover in sorted(data.parent.glob(f"{data.name}.init-*")):
        end_processes(leftover / "data")
        shutil.rmtree(leftover, ignore_errors=True)


def _give_tree(root: Path, account: Account) -> None:
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            os.chown(Path(folder, name), account.uid, account.gid, follow_symlinks=False)
    os.chown(root, account.uid, account.gid)


def _initialise(data: Path, account: Account, runtime: Runtime, *, fsync: bool) -> None:
    """Run initdb beside ``data`` and rename the result into place, so that ``data`` is whole or absent."""
    work = Path(tempfile.mkdtemp(prefix=f"{data.name}.init-", dir=data.parent))
    fresh = work / "data"
    argv = [
        *(runtime.bin / "initdb", "--pgdata", fresh, "--username", ROLE, "--encoding", "UTF8"),
        *("--locale", "C", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
        # Only the hba file of the configuration counts; this one locks everyone out.
        *("--auth", "reject", "--no-instructions", *(() if fsync else ("--no-sync",))),
    ]
    try:
        os.chown(work, account.uid, account.gid)
        result = command(argv, account, timeout_seconds=_INITDB_SECONDS)
        if result.returncode != 0:
            raise StrataError(
                EMBEDDED_POSTGRES,
                f"initdb failed in {data.parent}: {' / '.join(result.stderr.strip().splitlines()[-5:])}",
                remedy="Check that the disk has 100 MB free and that STRATA_HOME can be written.",
            )
        _finish(fresh, data, account)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StrataError(
            EMBEDDED_POSTGRES,
            f"The data directory {data} could not be made: {error}.",
            remedy="Check the disk, or choose another STRATA_HOME.",
        ) from error
    finally:
        end_processes(fresh)
        shutil.rmtree(work, ignore_errors=True)


def _finish(fresh: Path, data: Path, account: Account) -> None:
    marker = os.open(fresh / MARKER, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.fchown(marker, account.uid, account.gid)
        os.fsync(marker)
    finally:
        os.close(marker)
    fresh.rename(data)
    for folder in (data, data.parent):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def socket_directory(layout: Layout, account: Account) -> Path:
    """Make the private folder of the socket: below the home, or where that is too long or odd, in the temp folder.

    Raises StrataError ``embedded_postgres`` when someone else owns it or others may enter it.
    """
    folder = layout.run / "socket"
    if len(str(folder)) > _SOCKET_DIR_BYTES or not _PLAIN_PATH.fullmatch(str(folder)):
        digest = hashlib.sha256(os.fsencode(layout.home.resolve())).hexdigest()[:16]
        folder = _temp_root(account) / f"strata-{account.uid}-{digest}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if account.switch and folder.lstat().st_uid == 0:
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)
    found = folder.lstat()
    private = found.st_uid == account.uid and found.st_mode & 0o170077 == 0o040000
    if not private:
        raise StrataError(
            EMBEDDED_POSTGRES,
            f"The socket folder {folder} is not a private folder of {account.name}.",
            remedy="Remove it, or choose another STRATA_HOME.",
        )
    return folder


def _temp_root(account: Account) -> Path:
    temp = tempfile.gettempdir()
    if len(temp) <= _TEMP_ROOT_BYTES and _PLAIN_PATH.fullmatch(temp) and reachable(Path(temp), account):
        return Path(temp)
    return Path("/tmp")  # noqa: S108 - the owner of the folder made in it is checked


def write_configuration(layout: Layout, account: Account, socket_dir: Path, *, fsync: bool) -> Path:
    """Write the configuration for the next start and return its main file.

    It lies outside the data directory: root must not write where the server's account can plant links.
    ALTER SYSTEM still overrides it, save for what the command line fixes.
    """
    memory = psutil.virtual_memory().total // _MIB
    settings = {
        "hba_file": str(layout.run / "pg_hba.conf"),
        "ident_file": str(layout.run / "pg_ident.conf"),
        "unix_socket_directories": str(socket_dir),
        "unix_socket_permissions": "0700",
        "max_connections": "100",
        "shared_buffers": f"{max(32, min(1024, memory // 8))}MB",
        "maintenance_work_mem": f"{max(32, min(256, memory // 16))}MB",
        "effective_cache_size": f"{max(256, memory // 2)}MB",
        # Containers give /dev/shm 64 MB, and a logout may remove a user's shared memory.
        "dynamic_shared_memory_type": "mmap",
        "jit": "off",
        "fsync": "on" if fsync else "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        **dict.fromkeys(("lc_messages", "lc_monetary", "lc_numeric", "lc_time"), "C"),
        "default_text_search_config": "pg_catalog.simple",
        "logging_collector": "on",
        "log_directory": str(layout.logs),
        "log_filename": "postgres-%a.log",
        "log_rotation_age": "1d",
        "log_rotation_size": "0",
        "log_truncate_on_rotation": "on",
        "log_line_prefix": "%m [%p] ",
        # DETAIL and CONTEXT lines quote rows, that is, users' text.
        "log_error_verbosity": "terse",
    }
    names = dict.fromkeys((pwd.getpwuid(os.geteuid()).pw_name, account.name, "root"))
    quoted = ('"' + name.replace('"', '""') + '"' for name in names)
    _replace(layout.run / "pg_hba.conf", "local all,replication all peer map=strata\n")
    _replace(layout.run / "pg_ident.conf", "".join(f"strata {name} all\n" for name in quoted))
    lines = (f"{name} = {_quote(value)}\n" for name, value in settings.items())
    main = layout.run / "postgresql.conf"
    _replace(main, "".join(lines))
    return main


def _quote(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(os.fsencode(text))
        os.fchmod(handle, 0o644)
    Path(name).replace(path)


def prepare_logs(layout: Layout, account: Account) -> None:
    """Make the log folder and drop logs of the week before, which the server would append to."""
    layout.logs.mkdir(mode=0o700, exist_ok=True)
    if account.switch and layout.logs.stat().st_uid == 0:
        _give_tree(layout.logs, account)
    oldest = time.time() - _LOG_DAYS * 86400
    for path in sorted(layout.logs.glob("postgres-*.log")):
        found = path.lstat()
        if found.st_mtime < oldest or found.st_size > _LOG_BYTES:
            path.unlink(missing_ok=True)
