"""Folders and corpora: walked in one order, resumed, pruned, and right after a kill at any point."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from ingest_support import check, make_kit, rows, search, texts
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT as T
from strata.settings import load_settings
from strata.sources import build as build_module
from strata.sources import ingest as ingest_module
from strata.sources import repository as source_repository
from strata.sources import service as service_module
from strata.sources import store as store_module
from strata.sources.ingest import Limits
from strata.sources.model import DocumentInput

pytestmark = pytest.mark.database


@pytest.fixture
async def kit(database, settings):
    made = make_kit(database, settings)
    yield made
    await made.sources.close()


@pytest.fixture
def small_batches(monkeypatch):
    limits = Limits(documents=4, bytes=100_000)
    monkeypatch.setattr(service_module, "BULK", limits)
    monkeypatch.setattr(ingest_module, "BULK", limits)


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def corpus(count: int, word: str = "common") -> str:
    return "".join(
        json.dumps({"_id": f"d{number}", "title": f"Title {number}", "text": f"{word} text {number}"}) + "\n"
        for number in range(count)
    )


async def test_a_folder_is_walked_whole_in_one_order(kit, tmp_path):
    root = write(
        tmp_path,
        {
            "b.md": "# B\n\nbeta",
            "a/deep/x.txt": "deep",
            "a/page.html": "<html><body><main><h1>Page</h1><p>from a page</p></main></body></html>",
            ".git/config.md": "hidden",
            ".hidden.md": "hidden",
            "pic.png": b"\x89PNG",
            "empty.md": "",
        },
    )
    (root / "a" / "loop").symlink_to(root)
    (root / "broken.md").symlink_to(root / "nowhere")
    os.mkfifo(root / "pipe.md")
    seen = []
    report = await kit.sources.ingest_paths(T, "kb", [root], progress=seen.append)
    assert [outcome.path for outcome in report.outcomes] == ["b.md", "a/page.html", "a/deep/x.txt"]
    assert [(refusal.path, refusal.reason) for refusal in report.refusals] == [("empty.md", "empty")]
    assert report.skipped == {".png": 1, "broken link": 1, "link to a folder that was read": 1, "not a file": 1}
    assert (seen[-1].done, seen[-1].total, seen[-1].failed, seen[-1].passages) == (4, 4, 1, 3)
    assert seen[-1].bytes_done == seen[-1].bytes_total > 0
    assert await search(kit, "kb", "page") == ["a/page.html"]
    await check(kit)


async def test_a_second_run_changes_nothing_and_prune_removes_what_vanished(kit, tmp_path):
    one = write(tmp_path / "one", {"a.md": "alpha", "b.md": "beta", "c.md": "gamma"})
    two = write(tmp_path / "two", {"d.md": "delta"})
    await kit.sources.ingest_paths(T, "kb", [one, two])
    assert (await kit.sources.ingest_paths(T, "kb", [one, two], prune=True)).unchanged == 4
    (one / "b.md").unlink()
    (one / "c.md").write_bytes(b"")
    (two / "d.md").unlink()
    report = await kit.sources.ingest_paths(T, "kb", [one], prune=True)
    assert (report.unchanged, report.refused, report.pruned) == (1, 1, 1)
    assert [outcome.path for outcome in report.outcomes if outcome.status == "PRUNED"] == ["b.md"]
    # A file that is there but cannot be read keeps its last revision; another root keeps all.
    assert set(await texts(kit)) == {("kb", "a.md"), ("kb", "c.md"), ("kb", "d.md")}
    assert await search(kit, "kb", "beta") == []
    await check(kit)


async def test_a_root_that_is_missing_is_reported_and_never_pruned(kit, tmp_path):
    root = write(tmp_path / "root", {"a.md": "alpha"})
    await kit.sources.ingest_paths(T, "kb", [root])
    root.rename(tmp_path / "moved")
    report = await kit.sources.ingest_paths(T, "kb", [root], prune=True)
    assert (report.refused, report.pruned, report.refusals[0].reason) == (1, 0, "unreadable")
    assert set(await texts(kit)) == {("kb", "a.md")}
    assert (await kit.sources.ingest_paths(T, "new", [root])).context_id is None
    odd = await kit.sources.ingest_paths(T, "kb", [Path("nul\x00byte")])
    assert odd.refused == 1


async def test_a_named_file_is_tried_whatever_its_name_and_prunes_nothing_beside_it(kit, tmp_path):
    root = write(tmp_path, {"README": "plain words", "other.md": "other", "x.bin": b"\x7fELF" + bytes(range(256))})
    await kit.sources.ingest_paths(T, "kb", [root / "other.md"])
    report = await kit.sources.ingest_paths(T, "kb", [root / "README", root / "x.bin"], prune=True)
    assert (report.added, report.refused, report.pruned) == (1, 1, 0)
    assert report.refusals[0].reason == "binary"


async def test_a_judged_set_gives_its_corpus_alone(kit, tmp_path, small_batches):
    root = write(
        tmp_path,
        {
            "corpus.jsonl": corpus(10),
            "queries.jsonl": '{"_id":"q","text":"what"}\n',
            "README.md": "about",
            "qrels.tsv": "q",
        },
    )
    report = await kit.sources.ingest_paths(T, "kb", [root], prune=True)
    assert (report.added, report.skipped) == (10, {"beside a corpus": 3})
    write(tmp_path, {"corpus.jsonl": corpus(7)})
    report = await kit.sources.ingest_paths(T, "kb", [root], prune=True)
    assert (report.unchanged, report.pruned) == (7, 3)
    write(tmp_path, {"corpus.jsonl": corpus(5) + "no json\n"})
    report = await kit.sources.ingest_paths(T, "kb", [root], prune=True)
    assert (report.unchanged, report.refused, report.pruned) == (5, 1, 0)
    await check(kit)


async def test_a_bad_document_first_of_a_thousand_leaves_999(kit, tmp_path, monkeypatch):
    real = build_module.build_sections

    def fragile(document):
        if "d0" in document.metadata.get("id", ""):
            raise ValueError("defect")
        return real(document)

    monkeypatch.setattr(build_module, "build_sections", fragile)
    lines = corpus(1000).splitlines()
    lines[0] = json.dumps({"_id": "d0", "text": "poison", "metadata": {"id": "d0"}})
    write(tmp_path, {"corpus.jsonl": "\n".join(lines)})
    report = await kit.sources.ingest_paths(T, "kb", [tmp_path / "corpus.jsonl"])
    assert (report.added, report.refused) == (999, 1)
    assert (report.refusals[0].path, report.refusals[0].stage) == ("d0", "build")
    monkeypatch.setattr(build_module, "build_sections", real)
    report = await kit.sources.ingest_paths(T, "kb", [tmp_path / "corpus.jsonl"])
    assert (report.added, report.unchanged) == (1, 999)
    await check(kit)


async def test_two_runs_of_one_corpus_at_once_have_one_effect(kit, tmp_path, small_batches):
    write(tmp_path, {"corpus.jsonl": corpus(40)})
    reports = await asyncio.gather(*(kit.sources.ingest_paths(T, "kb", [tmp_path / "corpus.jsonl"]) for _ in range(3)))
    assert sum(report.added for report in reports) == 40
    assert sum(report.unchanged for report in reports) == 80
    await check(kit)


async def test_processes_build_what_a_thread_builds(kit, tmp_path, monkeypatch, small_batches):
    monkeypatch.setattr(service_module, "PARALLEL_BYTES", 0)
    files = {f"{number:02}.md": f"# Title {number}\n\ncommon text {number}\n" for number in range(10)}
    root = write(tmp_path, files)
    await kit.sources.ingest_paths(T, "beside", [root], workers=2)
    monkeypatch.setattr(service_module, "PARALLEL_BYTES", 1 << 60)
    await kit.sources.ingest_paths(T, "inside", [root])
    found = await texts(kit)
    assert {path: text for (name, path), text in found.items() if name == "beside"} == {
        path: text for (name, path), text in found.items() if name == "inside"
    }
    assert await search(kit, "beside", "title 3 text") == await search(kit, "inside", "title 3 text")
    await check(kit)


_RUN = """
import asyncio, sys
from pathlib import Path
from ingest_support import make_kit
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT
from strata.settings import load_settings
from strata.sources import service
from strata.sources.ingest import Limits

async def main(dsn, home, root):
    service.BULK = Limits(documents=10, bytes=100_000)
    settings = load_settings({}, home=home, database_url=dsn)
    database = Database(dsn, settings)
    kit = make_kit(database, settings)
    tell = lambda progress: print(progress.done - progress.unchanged, flush=True)
    await kit.sources.ingest_paths(DEFAULT_TENANT, "kb", [Path(root)], progress=tell)
    await kit.sources.close()
    await database.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_run_killed_at_any_point_is_right_and_resumes_to_what_an_undisturbed_one_gives(
    kit, settings, home, tmp_path
):
    root = write(tmp_path / "root", {"corpus.jsonl": corpus(300, "old")})
    await kit.sources.ingest_paths(T, "kb", [root / "corpus.jsonl"])
    write(root, {"corpus.jsonl": corpus(300, "new")})
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    chance = random.Random(7)
    old, new = ({f"d{n}": f"Title {n}\n\n{word} text {n}".encode() for n in range(300)} for word in ("old", "new"))
    kills = 0
    for _ in range(8):
        process = subprocess.Popen(  # noqa: ASYNC220  what is killed must be a process of its own
            [sys.executable, "-c", _RUN, settings.database_url, str(home), str(root / "corpus.jsonl")],
            env=environment,
            stdout=subprocess.PIPE,
        )
        await asyncio.to_thread(_read_until, process.stdout, chance.randrange(10, 50))
        await asyncio.sleep(chance.uniform(0, 0.05))
        kills += process.poll() is None
        process.kill()
        await asyncio.to_thread(process.wait)
        process.stdout.close()
        await _server_is_done(kit)
        await check(kit)
        for (_, path), text in (await texts(kit)).items():
            assert text in {old[path], new[path]}
    assert kills
    changed = sum(text == new[path] for (_, path), text in (await texts(kit)).items())
    report = await kit.sources.ingest_paths(T, "kb", [root / "corpus.jsonl"])
    assert (report.replaced, report.unchanged) == (300 - changed, changed)
    assert {path: text for (_, path), text in (await texts(kit)).items()} == new
    await kit.sources.ingest_paths(T, "undisturbed", [root / "corpus.jsonl"])
    counts = await rows(kit, "SELECT context_id, count(*), sum(passage_count) FROM source GROUP BY 1")
    assert len({tuple(row)[1:] for row in counts}) == 1
    assert await search(kit, "kb", "old") == []
    assert len(await search(kit, "kb", "new")) == 100
    await check(kit)


def _read_until(stream, written):
    """Read what the run says of itself until it has written so many sources, or ends."""
    for line in stream:
        if int(line) >= written:
            return


async def _server_is_done(kit):
    """Wait until the server has noticed that the killed client's connections are gone."""
    for _ in range(400):
        if not await rows(
            kit,
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend' AND state <> 'idle'",
        ):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("a transaction of the killed client is still open")


async def test_a_cancelled_run_keeps_whole_batches_and_goes_on(database, home, tmp_path, small_batches):
    settings = load_settings({}, home=str(home), database_url=database.dsn)
    other = Database(database.dsn, settings)
    kit = make_kit(other, settings)
    write(tmp_path, {"corpus.jsonl": corpus(80)})
    under_way = asyncio.Event()

    def notice(progress):
        if progress.done >= 8:
            under_way.set()

    task = asyncio.create_task(kit.sources.ingest_paths(T, "kb", [tmp_path / "corpus.jsonl"], progress=notice))
    await under_way.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held = len(await texts(kit))
    assert 8 <= held < 80
    report = await kit.sources.ingest_paths(T, "kb", [tmp_path / "corpus.jsonl"])
    assert (report.added, report.unchanged) == (80 - held, held)
    await check(kit)
    await kit.sources.close()
    await other.close()


async def test_what_a_link_led_to_is_kept_while_the_link_leads_nowhere(kit, tmp_path):
    root, mounted = write(tmp_path / "root", {"a.md": "alpha"}), write(tmp_path / "mounted", {"b.md": "beta"})
    (root / "share").symlink_to(mounted)
    await kit.sources.ingest_paths(T, "kb", [root])
    mounted.rename(tmp_path / "elsewhere")
    report = await kit.sources.ingest_paths(T, "kb", [root], prune=True)
    assert (report.unchanged, report.pruned, report.skipped) == (1, 0, {"broken link": 1})
    (root / "share").unlink()
    report = await kit.sources.ingest_paths(T, "kb", [root], prune=True)
    assert report.pruned == 1
    assert set(await texts(kit)) == {("kb", "a.md")}


async def test_prune_leaves_what_another_writer_replaced_or_found_elsewhere_meanwhile(kit, tmp_path, monkeypatch):
    files = {"kept.md": "kept", "gone.md": "gone", "replaced.md": "before", "moved.md": "moved"}
    root, other = write(tmp_path / "root", files), write(tmp_path / "other", {"moved.md": "moved"})
    await kit.sources.ingest_paths(T, "kb", [root])
    for name in ("gone.md", "replaced.md", "moved.md"):
        (root / name).unlink()
    real = source_repository.of_origin

    async def overtaken(*args, **given):
        page = await real(*args, **given)
        if page:
            await kit.sources.ingest(T, "kb", [DocumentInput(path="replaced.md", content="after")], origin=str(root))
            await kit.sources.ingest_paths(T, "kb", [other])
        return page

    monkeypatch.setattr(source_repository, "of_origin", overtaken)
    report = await kit.sources.ingest_paths(T, "kb", [root], prune=True)
    assert [outcome.path for outcome in report.outcomes if outcome.status == "PRUNED"] == ["gone.md"]
    assert set(await texts(kit)) == {("kb", "kept.md"), ("kb", "replaced.md"), ("kb", "moved.md")}
    await check(kit)


async def test_a_statement_that_times_out_is_tried_again_in_a_run_over_files(kit, tmp_path, monkeypatch):
    real, tries = store_module.add_segment, []

    async def slow_once(*args, **given):
        tries.append(1)
        if len(tries) == 1:
            raise asyncpg.QueryCanceledError("canceling statement due to statement timeout")
        return await real(*args, **given)

    monkeypatch.setattr(store_module, "add_segment", slow_once)
    report = await kit.sources.ingest_paths(T, "kb", [write(tmp_path, {"a.md": "alpha"})])
    assert (report.added, report.refused, len(tries)) == (1, 0, 2)
    await check(kit)
