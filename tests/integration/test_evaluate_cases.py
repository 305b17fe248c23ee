"""``strata evaluate --eval`` and ``strata evaluate compare`` as scripts use them: exit codes, files, both modes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evals_support import EVALS, MemoryServer

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


def test_search_and_assembly_are_measured_at_one_budget_and_compared(ask, strata, tmp_path):
    ask(*BUDGET, "--out", "baseline.json")
    out, error = ask(*BUDGET, "--assembly", "--out", "assembly.json", "--thresholds", EVALS / "thresholds.json")
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
