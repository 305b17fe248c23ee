"""``strata embeddings`` and the embedding stage of ``strata ingest``, without a database."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from unittest.mock import AsyncMock
from uuid import UUID

import pytest

from strata.cli import base, embeddings
from strata.cli.base import ExitCode
from strata.cli.main import main
from strata.embeddings.schemas import (
    ConfiguredView,
    ContextEmbeddings,
    EmbeddingsStatus,
    FailureView,
    RunProgress,
    RunReport,
    SpaceView,
)
from strata.errors import CONFLICT, DATABASE_UNAVAILABLE, EMBEDDING_UNAVAILABLE, StrataError
from strata.sources.schemas import IngestReport

CONTEXT = UUID(int=7)
CONFIGURED = ConfiguredView(mode="local", model="e5", revision="r", dimension=384, error=None)
SPACE = SpaceView(
    id=3,
    state="active",
    provider="local",
    model="e5",
    revision="r",
    dimension=384,
    vectors=1999,
    coverage=0.9995,
    is_indexed=True,
    removed=0,
    waiting=1,
    running=1,
    failed=1,
    created_at=datetime(2026, 1, 31, tzinfo=UTC),
    activated_at=None,
)
VIEW = ContextEmbeddings(
    context_id=CONTEXT,
    context="hand\x1bbook",
    passages=2000,
    coverage=0.9995,
    configured=CONFIGURED,
    spaces=[SPACE],
    failures=[FailureView(path="a.md", space=3, ordinals=[4, 5], error="embedding_refused: zeros")],
    notes=["1 passage could not be embedded."],
)


class Fake:
    """The embedding service as the commands use it."""

    is_on = True

    def __init__(self):
        self.calls = []
        self.error = None
        self.failed = 0
        self.views = [VIEW]

    async def status(self, _tenant):
        return EmbeddingsStatus(configured=CONFIGURED, contexts=self.views)

    async def context_status(self, _tenant, ref):
        self.calls.append(("status", ref))
        return VIEW

    async def run(self, _tenant, ref, progress, *, retries_failed=False):
        self.calls.append(("run", ref, retries_failed))
        progress(RunProgress(done=1, total=2, failed=0))
        if self.error:
            raise self.error
        return RunReport(embedded=10, failed=self.failed, coverage=0.99999, seconds=2.0)

    async def rebuild(self, _tenant, ref, *, force):
        self.calls.append(("rebuild", ref, force))
        if self.error:
            raise self.error
        return VIEW


@pytest.fixture
def fake(monkeypatch):
    made = Fake()

    async def ingest_paths(*_args, **_options):
        return IngestReport(
            context_id=CONTEXT,
            context="handbook",
            added=1,
            replaced=0,
            unchanged=0,
            refused=0,
            pruned=0,
            passages=1,
            bytes=10,
            seconds=0.1,
            normalisation={},
            skipped={},
            outcomes=[],
            refusals=[],
        )

    async def contexts(_tenant):
        return SimpleNamespace(contexts=[])

    async def refresh_names(_tenant, _ref, _progress):
        return None

    services = SimpleNamespace(
        embeddings=made,
        sources=SimpleNamespace(
            ingest_paths=ingest_paths, relations=SimpleNamespace(count_dangling=AsyncMock(return_value=0))
        ),
        contexts=SimpleNamespace(list=contexts),
        graph=SimpleNamespace(refresh_names=refresh_names),
    )
    monkeypatch.setattr(base, "with_services", lambda use: base.run_async(use(services)))
    return made


def test_status_shows_coverage_failures_and_notes(fake, capsys):
    assert main(["embeddings", "status"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "e5 (384 dimensions)" in shown
    row = next(line for line in shown.splitlines() if "book" in line and "active" in line)
    assert [word in row for word in ("2,000", "1,999", "99.9 %", "hnsw")] == [True] * 4
    assert "failed a.md, passage 4, 5: embedding_refused: zeros" in shown
    assert "1 passage could not be embedded." in shown
    assert "\x1b" not in shown


def test_status_without_contexts_says_how_to_begin(fake, capsys):
    fake.views = []
    assert main(["embeddings", "status"]) == ExitCode.OK
    assert "strata ingest" in capsys.readouterr().err


def test_status_as_json_is_what_rest_gives(fake, capsys):
    assert main(["embeddings", "status", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["contexts"][0]["spaces"][0]["isIndexed"] is True
    assert main(["embeddings", "status", "-c", "handbook", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["contextId"] == str(CONTEXT)
    assert fake.calls == [("status", "handbook")]


def test_a_run_tries_failed_passages_again_and_exits_with_3_when_some_fail(fake, capsys):
    assert main(["embeddings", "run"]) == ExitCode.OK
    assert "embedded 10 passages in 2.0 s (5 a second); vectors cover 99.9 %" in capsys.readouterr().out
    fake.failed = 2
    assert main(["embeddings", "run", "-c", "handbook", "--json"]) == ExitCode.PARTIAL
    assert json.loads(capsys.readouterr().out)["failed"] == 2
    assert fake.calls == [("run", None, True), ("run", "handbook", True)]


def test_a_run_whose_provider_stays_away_fails_with_its_remedy(fake, capsys):
    fake.error = StrataError(EMBEDDING_UNAVAILABLE, "The service is down.")
    assert main(["embeddings", "run"]) == ExitCode.FAILED
    assert "error[embedding_unavailable]: The service is down." in capsys.readouterr().err


def test_a_rebuild_waits_unless_told_not_to(fake, capsys):
    assert main(["embeddings", "rebuild", "handbook"]) == ExitCode.OK
    assert main(["embeddings", "rebuild", "handbook", "--no-wait", "--force", "--json"]) == ExitCode.OK
    assert [call[0] for call in fake.calls] == ["rebuild", "run", "status", "rebuild", "status"]
    assert fake.calls[3] == ("rebuild", "handbook", True)
    fake.error = StrataError(CONFLICT, "Embedded by e5 already.", remedy="Use --force.")
    assert main(["embeddings", "rebuild", "handbook"]) == ExitCode.FAILED
    assert "--force" in capsys.readouterr().err


def test_ingest_embeds_what_it_took(fake, tmp_path, capsys):
    assert main(["ingest", str(tmp_path), "--json"]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert (report["added"], report["embedded"], report["vectorCoverage"]) == (1, 10, 0.9995)
    assert fake.calls[0] == ("run", str(CONTEXT), False)


def test_ingest_can_leave_embedding_to_a_server(fake, tmp_path, capsys):
    assert main(["ingest", str(tmp_path), "--no-embed", "--json"]) == ExitCode.OK
    fake.is_on = False
    assert main(["ingest", str(tmp_path)]) == ExitCode.OK
    assert "run" not in [call[0] for call in fake.calls]
    assert "embedded" not in capsys.readouterr().out.splitlines()[-1]


def test_ingest_succeeds_although_the_embedder_cannot_be_had(fake, tmp_path, capsys):
    fake.error = StrataError(EMBEDDING_UNAVAILABLE, "The service is down.")
    assert main(["ingest", str(tmp_path)]) == ExitCode.OK
    assert "not embedded yet: The service is down. `strata embeddings run`" in capsys.readouterr().err
    fake.error = StrataError(DATABASE_UNAVAILABLE, "Gone.")
    assert main(["ingest", str(tmp_path)]) == ExitCode.FAILED


@pytest.mark.parametrize(("coverage", "shown"), [(1.0, "100 %"), (0.99999, "99.9 %"), (0.5, "50.0 %"), (0.0, "0.0 %")])
def test_only_what_is_whole_is_called_whole(coverage, shown):
    assert embeddings.share(coverage) == shown


@pytest.mark.parametrize("command", ["status", "run", "rebuild"])
def test_help_teaches(command, capsys):
    assert main(["embeddings", command, "--help"]) == ExitCode.OK
    assert "Examples:" in capsys.readouterr().out
