"""``strata evaluate --eval`` and ``strata evaluate compare``: exit codes, files, both modes, and the gate.

The gate asks Strata itself about the corpus of tests/data/evals, by words alone: within the same budget, assembled
evidence must hold more of what the questions need, of more sources, than plain search. The rest asks a small server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from evals_support import EVALS, MemoryServer
from strata.app import create_app
from strata.evaluate.backend import Budget
from strata.evaluate.case_lanes import Mode
from strata.evaluate.cases import load_eval
from strata.evaluate.run import evaluate
from strata.evaluate.wire import WireBackend
from strata.exchange.parse import parse_streams
from strata.platform.ids import DEFAULT_TENANT

STRATA = Path(sys.executable).with_name("strata")
BUDGET = ("--max-tokens", "1500")


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        status, answer = self.server.memory.handle(self.command, self.path, body)
        content = json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        self.do_GET()

    def log_message(self, *_args):
        pass


@pytest.fixture
def server():
    """A server of the contexts API's wire, on a port of its own."""
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    listening.memory = MemoryServer(EVALS / "corpus.jsonl", EVALS / "facts.jsonl")
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield listening
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.fixture
def strata(tmp_path, home):
    """Run a command in a folder of the test's own."""

    def run(*words, code=0, **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STRATA_", "OTEL_"))}
        done = subprocess.run(
            [STRATA, "evaluate", *map(str, words)],
            env=kept | {"STRATA_HOME": str(home), "STRATA_EMBEDDINGS": "none"} | variables,
            cwd=tmp_path,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stderr.decode()
        return done.stdout.decode(), done.stderr.decode()

    return run


@pytest.fixture
def ask(strata, server):
    """Run an eval against the server."""

    def run(*words, code=0, file="eval.jsonl"):
        url = f"http://127.0.0.1:{server.server_port}"
        return strata("--eval", EVALS / file, "--url", url, *words, code=code)

    return run


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


async def filled(services, *files):
    """Import files, each source of which goes into the context that it names."""
    streams = [(name, (EVALS / name).read_bytes()) for name in files]
    await services.exchange.import_stream(DEFAULT_TENANT, parse_streams(streams))


async def asked(services, file="eval.jsonl", **mode):
    """Run an eval against Strata itself, through its API."""
    app = create_app(services.settings, services=services)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://strata/") as client:
        return await evaluate(WireBackend(client), load_eval(EVALS / file), Mode(**mode))


@pytest.mark.parametrize("tokens", [1500, 2000, 2500])
async def test_assembly_beats_plain_search_within_the_same_budget(services, tokens):
    await filled(services, "corpus.jsonl")
    budget = Budget(max_tokens=tokens)
    plain = await asked(services, budget=budget)
    assembly = await asked(services, budget=budget, is_assembly=True)
    assert plain.warnings == assembly.warnings == []
    for run in (plain, assembly):
        assert run.metrics["budget"]["tokens_used"].max <= tokens
        assert run.metrics["citations"]["locator_validity"].mean == 1.0
    for family, name in (("recall", "recall_at_k"), ("diversity", "sources")):
        assert assembly.metrics[family][name].mean > plain.metrics[family][name].mean


async def test_the_facts_of_the_graph_are_found_by_cues(services):
    await filled(services, "corpus.jsonl", "facts.jsonl")
    found = await asked(services, "facts_eval.jsonl", is_assembly=True, budget=Budget())
    for name in ("concepts", "labels", "associations"):
        assert found.metrics["coverage"][name].mean == 1.0
    assert found.metrics["lanes"]["structural_hit"].value == 1.0


async def test_the_command_holds_assembly_to_thresholds(services, strata, dsn, tmp_path):
    await filled(services, "corpus.jsonl")
    words = ("--eval", EVALS / "eval.jsonl", "--context", "multihop", *BUDGET, "--assembly")
    kept, tight = EVALS / "thresholds.json", tmp_path / "tight.json"
    tight.write_text('{"type": "evaluate_thresholds", "aggregate": {"recall.recall_at_k": {"min": 0.99}}}')
    strata(*words, "--thresholds", kept, STRATA_DATABASE_URL=dsn)
    assert read(tmp_path / "evaluation.json")["gate"]["passed"]
    _, error = strata(*words, "--thresholds", tight, code=3, STRATA_DATABASE_URL=dsn)
    assert "recall.recall_at_k is 0.7" in error
    _, error = strata(*words[:2], "--context", "nowhere", code=2, STRATA_DATABASE_URL=dsn)
    assert "nowhere" in error
    strata(
        "--eval",
        EVALS / "eval.jsonl",
        "--context",
        "multihop",
        code=1,
        STRATA_DATABASE_URL="postgresql://s@127.0.0.1:9/s",
    )


async def test_the_command_asks_the_assembly_for_more_than_its_default(services, strata, dsn, tmp_path):
    await filled(services, "corpus.jsonl")
    words = ("--eval", EVALS / "eval.jsonl", "--context", "multihop", *BUDGET)
    given = '{"extracts": true, "share_text": true}'
    strata(*words, "--assembly", "--assembly-options", given, STRATA_DATABASE_URL=dsn)
    found = read(tmp_path / "evaluation.json")
    assert found["inputs"]["assembly_options"] == {"extracts": True, "share_text": True}
    assert found["metrics"]["passage"]["failure_rate"]["value"] == 0.0
    for options, named in (('{"budget": {}}', "'budget' is no option"), ('{"extracts": 1}', "bool"), ("[", "JSON")):
        _, error = strata(*words, "--assembly", "--assembly-options", options, code=2, STRATA_DATABASE_URL=dsn)
        assert named in error
    _, error = strata(*words, "--assembly-options", given, code=2, STRATA_DATABASE_URL=dsn)
    assert "--assembly" in error


def test_search_and_assembly_are_measured_at_one_budget_and_compared(ask, strata, tmp_path):
    bounds = {"recall.recall_at_k": {"min": 0.6}, "diversity.sources": {"min": 7.5}, "passage.failure_rate": {"max": 0}}
    (tmp_path / "bounds.json").write_text(json.dumps({"type": "evaluate_thresholds", "aggregate": bounds}))
    ask(*BUDGET, "--out", "baseline.json")
    out, error = ask(*BUDGET, "--assembly", "--out", "assembly.json", "--thresholds", "bounds.json")
    assert "recall.recall_at_k" in out
    assert "Wrote assembly.json" in error
    base, head = read(tmp_path / "baseline.json"), read(tmp_path / "assembly.json")
    assert (base["inputs"]["mode"], head["inputs"]["mode"]) == ("search", "assembly")
    assert base["inputs"]["budget"] == {"max_items": 40, "max_bytes": 65_536, "max_tokens": 1500}
    assert head["gate"]["passed"]
    out, error = strata("compare", "baseline.json", "assembly.json")
    assert "diversity.sources" in out
    assert "different thresholds" in error
    header, *changes = map(json.loads, (tmp_path / "changes.jsonl").read_text().splitlines())
    assert sum(header["counts"].values()) == 32
    assert len(changes) == 32 - header["counts"]["unchanged"]


def test_without_out_the_result_is_evaluation_json_in_the_current_folder(ask, tmp_path):
    ask(file="facts_eval.jsonl")
    found = read(tmp_path / "evaluation.json")
    assert found["metrics"]["coverage"]["associations"]["mean"] == 1.0
    assert found["inputs"]["budget"] is None


def test_the_result_can_go_to_standard_output(ask, strata, tmp_path):
    out, _ = ask("--out", "-")
    assert json.loads(out)["type"] == "evaluation"
    (tmp_path / "run.json").write_text(out, encoding="utf-8")
    out, _ = strata("compare", "run.json", "run.json", "--out", "-")
    assert json.loads(out)["counts"]["unchanged"] == 32


def test_a_threshold_that_is_not_kept_exits_with_3_after_writing_the_result(ask, tmp_path):
    bounds = tmp_path / "t.json"
    bounds.write_text('{"taguru_evaluate_thresholds": 1, "aggregate": {"recall.mrr": {"min": 1}}}', encoding="utf-8")
    _, error = ask("--thresholds", bounds, code=3)
    assert "recall.mrr is 0." in error
    assert "at least 1" in error
    assert read(tmp_path / "evaluation.json")["gate"]["passed"] is False


def test_an_assembly_without_ceilings_is_held_to_those_of_the_endpoint(ask, tmp_path):
    ask("--assembly")
    budget = {"max_items": 40, "max_bytes": 65_536, "max_tokens": 4_000}
    assert read(tmp_path / "evaluation.json")["inputs"]["budget"] == budget


def test_a_server_that_does_not_answer_exits_with_1(strata):
    _, error = strata("--eval", EVALS / "eval.jsonl", "--url", "http://127.0.0.1:9", code=1)
    assert "server_unavailable" in error


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--context", "nowhere"], "no context 'nowhere'"),
        (["--rerank", "m"], "--assembly"),
        (["--max-items", "-1"], "--max-items"),
        (["--max-items", "1001"], "--max-items"),
        (["--max-bytes", "1048577"], "--max-bytes"),
        (["--limit", "0"], "--limit"),
        (["--limit", "1001"], "--limit"),
        (["--thresholds", "nowhere.json"], "cannot be read"),
        (["--out", "nowhere/evaluation.json"], "no folder"),
        (["--url", "nowhere"], "no http address"),
    ],
)
def test_usage_and_bad_input_exit_with_2(ask, words, named):
    _, error = ask(*words, code=2)
    assert named in error


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--context", "c"], "No eval is given"),
        (["--eval", "nowhere.jsonl"], "cannot be read"),
        (["--eval", "nowhere.jsonl", "beir", "folder"], "--eval does not stand before beir"),
        (["compare", "nowhere.json", "nowhere.json"], "cannot be read"),
        (["compare", "nowhere.json"], "FILE"),
    ],
)
def test_commands_that_make_no_sense_exit_with_2(strata, words, named):
    _, error = strata(*words, code=2)
    assert named in error


def test_the_group_alone_shows_its_help(strata):
    _, error = strata(code=2)
    for word in ("--eval", "--assembly", "compare", "beir", "coverage", "fit"):
        assert word in error
