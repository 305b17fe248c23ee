"""schemathesis over the OpenAPI document: whatever it sends, the answer is one that the document states.

One check is left out: that every request that fits the schema is accepted. A cursor that no page gave
or a document that is empty fits its schema and is refused all the same.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.database, pytest.mark.slow]

EXAMPLES = os.environ.get("STRATA_FUZZ_EXAMPLES", "8")
SCRIPT = """
from strata.platform.server import serve
from strata.settings import load_settings

if __name__ == "__main__":
    serve(load_settings(), on_ready=lambda url: print("ready", url, flush=True))
"""


@pytest.fixture
async def url(dsn, home, tmp_path):
    script = tmp_path / "served.py"
    script.write_text(SCRIPT)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
    environ |= {"STRATA_HOME": str(home), "STRATA_DATABASE_URL": dsn, "STRATA_PORT": "0", "STRATA_EMBEDDINGS": "none"}
    with (tmp_path / "server.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), stdout=asyncio.subprocess.PIPE, stderr=log, env=environ
        )
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line.startswith(b"ready "), (tmp_path / "server.log").read_text()
        yield line.split()[1].decode()
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 40) == 0
    assert "http.unexpected" not in (tmp_path / "server.log").read_text()


async def test_schemathesis_finds_nothing(url, tmp_path):
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{url}/v3/api-docs",
        *("--phases", "examples,coverage,fuzzing,stateful"),
        *("--exclude-checks", "positive_data_acceptance"),
        *("--max-examples", EXAMPLES),
        *("--seed", "20260131"),
        *("--request-timeout", "20"),
        *("--warnings", "off"),
        "--continue-on-failure",
        "--no-color",
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 180)
    assert process.returncode == 0, output.decode()[-12_000:]
