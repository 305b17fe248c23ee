"""The database: one asyncpg pool, and the unit of work that every statement runs in.

A unit of work is one transaction under the application role with the tenant set, so that
row-level security decides what it sees (docs/adr/0002). Opening one is a single round trip.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

import asyncpg
import msgspec
import structlog

from strata.errors import (
    CONFLICT,
    DATABASE_SETUP,
    DATABASE_UNAVAILABLE,
    OVERLOADED,
    SCHEMA_OUTDATED,
    STATEMENT_TIMEOUT,
    ErrorKind,
    StrataError,
)
from strata.platform.dsn import normalise_dsn, redact_dsn
from strata.settings import Settings

APPLICATION_ROLE = "strata_app"
"""Owns nothing and has no login; every unit of work runs as it."""


class Connection(Protocol):
    """What a unit of work gives of an asyncpg connection. SQL on it stands in repositories only."""

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str: ...
    async def executemany(
        self, command: str, args: Iterable[Sequence[Any]], *, timeout: float | None = None
    ) -> None: ...
    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Any]: ...
    async def fetchrow(self, query: str, *args: Any, timeout: float | None = None) -> Any: ...
    async def fetchval(self, query: str, *args: Any, column: int = 0, timeout: float | None = None) -> Any: ...
    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[Sequence[Any]], columns: Sequence[str] | None = None
    ) -> str: ...


_log = structlog.get_logger(__name__)

_SETTING_NAME = re.compile(r"[a-z_]+(\.[a-z_]+)?")
_SETTING_VALUE = re.compile(r"[A-Za-z0-9_.-]+")

# InternalClientError: the next use of a connection that the server ended while it was idle.
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.InternalClientError,
    asyncpg.InterfaceError,
    ConnectionError,
    OSError,
)

# What a failure to connect is when no server is there: the only reason to start one again.
_GONE = (
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.ConnectionFailureError,
    ConnectionError,
    FileNotFoundError,
)

# What a body of a unit of work may raise that is ours to translate: not the caller's own OSError.
_FROM_DATABASE = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError)


class Database:
    """A bounded pool of connections; :meth:`work` is the only way to use one.

    ``revive`` is called (in a thread) when no connection can be made because the server is gone:
    the embedded server is started again there. It returns the address to connect to.
    """

    def __init__(self, dsn: str, settings: Settings, revive: Callable[[], str] | None = None) -> None:
        self.dsn = normalise_dsn(dsn, settings.database_user, settings.database_password)
        self._settings = settings
        self._revive = revive
        self._pool: asyncpg.Pool | None = None
        self._pool_lock = asyncio.Lock()
        self._revivals = 0

    async def open(self) -> None:
        """Connect; raises ``database_unavailable`` with the redacted address when that fails."""
        pool = await self._connected_pool()
        try:
            async with pool.acquire(timeout=self._settings.database_acquire_timeout_seconds):
                pass
        except TimeoutError as error:
            raise StrataError(OVERLOADED, "No database connection came free in time.") from error
        except (*_FROM_DATABASE, OSError) as error:
            raise translate(error, self.dsn) from error

    async def close(self) -> None:
        """Close every connection. Safe to call again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), 10)
            except TimeoutError:
                pool.terminate()

    @contextlib.asynccontextmanager
    async def work(
        self,
        tenant: UUID,
        *,
        snapshot: bool = False,
        sync_commit: bool = True,
        timeout_seconds: float | None = None,
        local: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Connection]:
        """Run one transaction as the application role for ``tenant``; commit at the end.

        ``snapshot`` makes it REPEATABLE READ: all its statements see one state. ``sync_commit``
        False lets a server crash (not a crash of this process) lose the last fraction of a
        second. ``timeout_seconds`` bounds each statement, default STRATA_STATEMENT_TIMEOUT_SECONDS.
        ``local`` holds further server settings for the transaction; they cost no round trip.
        Any exception rolls back. A cancelled unit of work cancels its statement on the server.
        Database failures are raised as StrataError: ``overloaded`` when no connection came free
        in time, ``database_unavailable``, ``statement_timeout``, ``schema_outdated``, ``conflict``.
        """
        timeout = timeout_seconds or self._settings.statement_timeout_seconds
        begin = (
            f"BEGIN{' ISOLATION LEVEL REPEATABLE READ' if snapshot else ''};"
            f"SET LOCAL ROLE {APPLICATION_ROLE};"
            f"SET LOCAL strata.tenant_id = '{UUID(str(tenant))}';"
            f"SET LOCAL statement_timeout = {max(1, int(timeout * 1000))};"
            f"SET LOCAL jit = off"
            f"{'' if sync_commit else ';SET LOCAL synchronous_commit = off'}"
            f"{_set_local(local or {})}"
        )
        pool, connection = await self._begin(begin)
        healthy = False
        try:
            try:
                yield connection
                await connection.execute("COMMIT")
                healthy = True
            except BaseException:
                healthy = await _rolled_back(connection)
                raise
        except _FROM_DATABASE as error:
            raise translate(error, self.dsn) from error
        finally:
            await _give_back(pool, connection, healthy=healthy)

    @contextlib.asynccontextmanager
    async def owner(self) -> AsyncIterator[asyncpg.Connection]:
        """Give a connection of the login role itself, outside pool, transaction and tenant.

        For migrations, ``strata doctor`` and retention, which act on all tenants.
        """
        try:
            connection = await asyncpg.connect(
                self.dsn, timeout=10, command_timeout=None, statement_cache_size=self._statement_cache_size
            )
        except (asyncpg.PostgresError, *_LOST, TimeoutError) as error:
            raise translate(error, self.dsn) from error
        try:
            await _prepare_connection(connection)
            yield connection
        except _FROM_DATABASE as error:
            raise translate(error, self.dsn) from error
        finally:
            await connection.close(timeout=5)

    async def _begin(self, begin: str) -> tuple[asyncpg.Pool, Any]:
        """Acquire a connection and open the transaction on it.

        A pooled connection may have died unseen (server restart): nothing has run on it yet, so
        trying again is safe. After as many dead ones as the pool can hold, the server is down.
        Another failure to connect than a server that is gone is raised at once.
        """
        last: BaseException | None = None
        for _ in range(self._settings.database_pool_size + 2):
            pool, revivals = await self._connected_pool(), self._revivals
            try:
                connection = await pool.acquire(timeout=self._settings.database_acquire_timeout_seconds)
            except TimeoutError as error:
                raise StrataError(OVERLOADED, "No database connection came free in time.") from error
            except (asyncpg.PostgresError, *_LOST) as error:
                last = error
                if self._pool not in {None, pool}:
                    continue
                if self._revive is None or not isinstance(error, _GONE):
                    break
                await self._reconnect(self._revive, revivals)
                continue
            try:
                await connection.execute(begin)
            except BaseException as error:
                await _give_back(pool, connection, healthy=False)
                if not isinstance(error, _LOST):
                    if isinstance(error, asyncpg.PostgresError):
                        raise translate(error, self.dsn) from error
                    raise
                last = error
            else:
                return pool, connection
        raise translate(last or ConnectionError("no connection"), self.dsn) from last

    async def _connected_pool(self) -> asyncpg.Pool:
        if self._pool is not None:
            return self._pool
        async with self._pool_lock:
            if self._pool is None:
                try:
                    self._pool = await self._new_pool()
                except (asyncpg.PostgresError, *_LOST, TimeoutError) as error:
                    raise translate(error, self.dsn) from error
        return self._pool

    @property
    def _statement_cache_size(self) -> int:
        return 200 if self._settings.database_prepared_statements else 0

    async def _new_pool(self) -> asyncpg.Pool:
        return await asyncpg.create_pool(
            self.dsn,
            min_size=0,
            max_size=self._settings.database_pool_size,
            timeout=10,
            max_inactive_connection_lifetime=300,
            statement_cache_size=self._statement_cache_size,
            server_settings={"application_name": "strata"},
            init=_prepare_connection,
            reset=_keep,
        )

    async def _reconnect(self, revive: Callable[[], str], revivals: int) -> None:
        """Start the embedded server again, once for all who saw it gone after as many ``revivals``.

        The pool stays, and with it the work that others do on it, unless it no longer leads there.
        """
        async with self._pool_lock:
            if self._revivals != revivals:
                return
            _log.warning("database.revive", dsn=redact_dsn(self.dsn))
            address = await asyncio.to_thread(revive)
            dsn = normalise_dsn(address, self._settings.database_user, self._settings.database_password)
            self._revivals += 1
            broken = self._pool
            if broken is None or (dsn == self.dsn and await self._can_connect(broken)):
                return
            self.dsn = dsn
            self._pool = await self._new_pool()
            broken.terminate()

    async def _can_connect(self, pool: asyncpg.Pool) -> bool:
        try:
            connection = await pool.acquire(timeout=self._settings.database_acquire_timeout_seconds)
        except TimeoutError:
            return True  # all its connections are in use
        except (asyncpg.PostgresError, *_LOST):
            return False
        await pool.release(connection)
        return True


async def _prepare_connection(connection: asyncpg.Connection) -> None:
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=_encode_json, decoder=msgspec.json.decode, format="text"
    )


def _set_local(settings: Mapping[str, str]) -> str:
    """Return the statements that set them; ValueError for a name or value that is more than a word or number."""
    for name, value in settings.items():
        if not (_SETTING_NAME.fullmatch(name) and _SETTING_VALUE.fullmatch(value)):
            raise ValueError(f"not a server setting: {name} = {value}")
    return "".join(f";SET LOCAL {name} = '{value}'" for name, value in settings.items())


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


async def _keep(_connection: asyncpg.Connection) -> None:
    """Skip asyncpg's reset: every setting is SET LOCAL, so the end of the transaction resets it."""


async def _give_back(pool: asyncpg.Pool, connection: Any, *, healthy: bool) -> None:
    # A pool that is closing takes its connections back by itself.
    with contextlib.suppress(asyncpg.InterfaceError):
        if not healthy:
            connection.terminate()
        await pool.release(connection)


async def _rolled_back(connection: asyncpg.Connection) -> bool:
    """Roll back, shielded from cancellation; False when the connection cannot be used again.

    A cancellation that arrives meanwhile is raised when the rollback is over.
    """
    if connection.is_closed():
        return False
    rollback = asyncio.ensure_future(connection.execute("ROLLBACK", timeout=5))
    cancellation: asyncio.CancelledError | None = None
    while not rollback.done():
        try:
            await asyncio.wait((rollback,))
        except asyncio.CancelledError as error:
            cancellation = error
    is_over = not rollback.cancelled() and rollback.exception() is None
    if cancellation is not None:
        raise cancellation
    return is_over


_KINDS: Sequence[tuple[tuple[type[BaseException], ...], ErrorKind]] = (
    ((asyncpg.QueryCanceledError,), STATEMENT_TIMEOUT),
    # A lock not had in time contradicts nothing: the same request goes through a little later.
    ((asyncpg.TooManyConnectionsError, asyncpg.LockNotAvailableError), OVERLOADED),
    (
        (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError),
        SCHEMA_OUTDATED,
    ),
    ((asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.UniqueViolationError), CONFLICT),
    (
        (
            asyncpg.InvalidPasswordError,
            asyncpg.InvalidAuthorizationSpecificationError,
            asyncpg.InvalidCatalogNameError,
            asyncpg.InvalidSchemaNameError,
            asyncpg.ClientConfigurationError,
            asyncpg.InsufficientPrivilegeError,
            asyncpg.UndefinedObjectError,
            asyncpg.InvalidParameterValueError,
        ),
        DATABASE_SETUP,
    ),
    (
        (
            *_LOST,
            TimeoutError,
            asyncpg.InsufficientResourcesError,
            asyncpg.ReadOnlySQLTransactionError,
            asyncpg.IdleInTransactionSessionTimeoutError,
        ),
        DATABASE_UNAVAILABLE,
    ),
)


def translate(error: BaseException, dsn: str) -> StrataError:
    """Return the StrataError that stands for a database failure; the address is redacted.

    Anything that is not an operational failure is a defect of ours and is raised as it is.
    """
    for types, kind in _KINDS:
        if isinstance(error, types):
            return StrataError(kind, f"{redact_dsn(dsn)}: {str(error) or type(error).__name__}")
    raise error
