"""An importer that is killed at any moment: each source is as it was, or as it was sent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from exchange_support import facts, make_kit
from ingest_support import check, rows
from strata.platform.ids import DEFAULT_TENANT as T

pytestmark = pytest.mark.database

TESTS = Path(__file__).parents[1]

IMPORTER = """
import asyncio, itertools, sys
from exchange_support import make_kit
from strata.platform.database import Database
from strata.settings import load_settings

def variant(word, size):
    yield {"taguru_batch": 1, "context": "kb", "source": "doc", "create": {}}
    yield {"passage": "\\n\\n".join(f"{word} {n}" for n in range(size))}
    for n in range(size):
        yield {"paragraph": n, "question": f"which {word}?"}
        yield {"subject": word, "label": "counts", "object": f"{word}{n}", "weight": 1.0, "paragraph": n}

async def main():
    settings = load_settings({}, home=sys.argv[1], database_url=sys.argv[2], embeddings="none")
    kit = make_kit(Database(sys.argv[2], settings), settings)
    for number in itertools.count():
        await kit.load(*(variant("apple", 300) if number % 2 else variant("banana", 500)))
        print("loaded", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("wait_seconds", [0.0, 0.05, 0.11, 0.17])
async def test_a_killed_importer_leaves_no_source_half_written(database, settings, wait_seconds):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        IMPORTER,
        str(settings.home),
        settings.database_url,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert (await asyncio.wait_for(process.stdout.readline(), 60)).strip() == b"loaded"
    await asyncio.sleep(wait_seconds)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    kit = make_kit(database, settings)
    try:
        await _ended(kit)
        texts, _ = await kit.texts.lookup(T, "kb", ["doc"])
        word, size = ("apple", 300) if texts["doc"].startswith("apple") else ("banana", 500)
        assert texts["doc"] == "\n\n".join(f"{word} {n}" for n in range(size))
        assert await facts(kit, "kb") == {(word, "counts", f"{word}{n}"): {"doc": (1.0, 1, n)} for n in range(size)}
        asked = await rows(kit, "SELECT paragraph, question FROM passage_question ORDER BY paragraph")
        assert [tuple(row) for row in asked] == [(n, f"which {word}?") for n in range(size)]
        assert len(await rows(kit, "SELECT 1 FROM concept")) == size + 1
        await check(kit)
    finally:
        await kit.close()


async def _ended(kit):
    """Wait until the server has ended what the killed process had open."""
    for _ in range(200):
        others = await rows(
            kit,
            "SELECT 1 FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'",
        )
        if not others:
            return
        await asyncio.sleep(0.05)
