"""Fixtures that every layer of tests shares.

The session has one real Postgres: the embedded one in a temporary STRATA_HOME, or the server that
STRATA_TEST_DATABASE_URL names. Each test that asks for ``database`` gets a database of its own,
cloned from a migrated template. Where workers share a run, each of them is a session.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import tempfile
from pathlib import Path

import asyncpg
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from embedding_support import WordEmbedder, WordEmbedders
from strata.platform.database import Database
from strata.platform.dsn import with_database
from strata.platform.migrations import migrate
from strata.services import compose
from strata.settings import Settings, load_settings

TEMPLATE = "strata_template"

hypothesis_settings.register_profile(
    "strata", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
hypothesis_settings.load_profile("strata")
_numbers = itertools.count(1)


def pytest_configure() -> None:
    """Let SIGINT through: a shell has what it runs in the background ignore it, and tested commands inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def home():
    """A STRATA_HOME that the server's own user can reach also when the tests run as root."""
    path = Path(tempfile.mkdtemp(prefix="strata-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def server_dsn(home):
    """The address of a server on which databases may be made."""
    given = os.environ.get("STRATA_TEST_DATABASE_URL")
    if given:
        yield given
        return
    from strata.platform.embedded import EmbeddedPostgres

    server = EmbeddedPostgres(home, fsync=False)
    try:
        yield server.acquire().dsn
    finally:
        server.release()


async def _execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(with_database(dsn, "postgres"))
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def template(server_dsn):
    """A migrated database to clone from."""
    name = f"{TEMPLATE}_{os.getpid()}"

    async def build():
        await _execute(server_dsn, f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
        await migrate(with_database(server_dsn, name))

    asyncio.run(build())
    yield name
    asyncio.run(_execute(server_dsn, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


@pytest.fixture
async def empty_dsn(server_dsn):
    """The address of a new, empty, unmigrated database."""
    name = f"strata_empty_{os.getpid()}_{next(_numbers)}"
    await _execute(server_dsn, f"CREATE DATABASE {name}")
    yield with_database(server_dsn, name)
    await _execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def dsn(server_dsn, template):
    """The address of a migrated database of the test's own."""
    name = f"strata_{os.getpid()}_{next(_numbers)}"
    await _execute(server_dsn, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield with_database(server_dsn, name)
    await _execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def settings(home, dsn) -> Settings:
    """Settings that point at the test's own database; embeddings are off."""
    return load_settings({}, home=str(home), database_url=dsn, embeddings="none")


@pytest.fixture
async def database(settings):
    """An open Database on a migrated database of the test's own."""
    opened = Database(settings.database_url, settings)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def services(settings, database):
    """Every service over the test's own database."""
    composed = compose(settings, database)
    yield composed
    await composed.close()


@pytest.fixture
def embedder():
    """A small deterministic embedder of its own space."""
    return WordEmbedder()


@pytest.fixture
async def embedding_services(settings, database, embedder):
    """Every service over the test's own database, embedding with ``embedder``; no background worker runs."""
    composed = compose(settings, database, embedders=WordEmbedders(embedder))
    yield composed
    await composed.close()
