"""One server process for the public client, and applications in this process for exact answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
import uuid

import asyncpg
import psutil
import pytest

from strata.platform.dsn import with_database

READY_SECONDS = 60
SCRIPT = """
from strata.platform.server import serve
from strata.settings import load_settings

if __name__ == "__main__":
    serve(load_settings(), on_ready=lambda url: print("ready", url, flush=True))
"""


async def _run(server_dsn, statement):
    connection = await asyncpg.connect(with_database(server_dsn, "postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def server_database(server_dsn, template):
    """A migrated database that one server has to itself."""
    name = f"strata_wire_{os.getpid()}"
    asyncio.run(_run(server_dsn, f"CREATE DATABASE {name} TEMPLATE {template}"))
    yield with_database(server_dsn, name)
    asyncio.run(_run(server_dsn, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="session")
def server_url(server_database, home, tmp_path_factory):
    """The address of a real server process without embeddings."""
    folder = tmp_path_factory.mktemp("server")
    script = folder / "served.py"
    script.write_text(SCRIPT)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
    environ |= {
        "STRATA_HOME": str(home),
        "STRATA_DATABASE_URL": server_database,
        "STRATA_PORT": "0",
        "STRATA_EMBEDDINGS": "none",
        "STRATA_MAX_BODY_BYTES": str(8 * 1024 * 1024),
    }
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=log, env=environ)
        try:
            ready, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
            line = process.stdout.readline() if ready else b""
            assert line.startswith(b"ready "), (folder / "server.log").read_text()
            yield line.split()[1].decode()
        finally:
            _stop(process)


def _stop(process):
    workers = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()
    process.stdout.close()


@pytest.fixture
def name():
    """A context name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
