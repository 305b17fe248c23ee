"""``strata evaluate`` as scripts use it: the shape of its JSON, its files, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluate_support import JUDGED
from strata.lookup.fit import read_fit

STRATA = Path(sys.executable).with_name("strata")

pytestmark = pytest.mark.database


@pytest.fixture
def run(dsn, home):
    """Run a command against the test's own database, with embeddings off."""

    def strata(*words, code=0):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STRATA_", "OTEL_"))}
        done = subprocess.run(
            [STRATA, "evaluate", *map(str, words)],
            env=kept | {"STRATA_HOME": str(home), "STRATA_DATABASE_URL": dsn, "STRATA_EMBEDDINGS": "none"},
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stderr.decode()
        return done.stdout.decode(), done.stderr.decode()

    return strata


def test_lanes_are_keys_and_those_left_out_are_named_on_standard_error(run):
    out, error = run("beir", JUDGED / "niilc", "--lanes", "all", "--json")
    scores = json.loads(out)
    assert list(scores) == ["lexical", "lookup", "lookup_without_hints"]
    assert set(scores["lexical"]) == {"ndcg@10", "recall@10", "recall@100", "mrr", "queries", "p50Ms", "p95Ms"}
    assert "embeddings are off: vector, hybrid, hybrid_hop, lookup_lexical" in error


def test_coverage_is_by_way_and_budget(run):
    out, _ = run("coverage", JUDGED / "hotpotqa", "--budgets", "2000,500", "--json")
    found = json.loads(out)
    assert found["questions"] == 14
    assert set(found["shares"]) == {"bm25s", "lexical", "lookup_text", "lookup"}
    assert list(found["shares"]["lexical"]) == ["500", "2000"]
    assert found["leftOut"]["vector"] == "embeddings are off"


def test_a_fit_is_written_and_can_be_read_back(run, tmp_path):
    path = tmp_path / "fit.json"
    out, error = run("fit", JUDGED / "hotpotqa", JUDGED / "musique", "--out", path, "--sample", "10", "--json")
    result = json.loads(out)
    assert set(result) == {"fit", "weight", "sets"}
    assert "STRATA_RELEVANCE_FIT" in error
    fit = read_fit(path.read_bytes(), "fit.json")
    assert fit.provenance.command == "strata evaluate fit hotpotqa musique --sample 10"
    assert json.loads(path.read_text()) == result["fit"]
    assert str(JUDGED) not in path.read_text()


def test_a_fit_without_json_is_a_table(run):
    out, _ = run("fit", JUDGED / "hotpotqa", JUDGED / "musique", "--lexical")
    assert "EACH SET LEFT OUT" in out
    assert "mean" in out
    assert "HIGH from" in out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["beir", JUDGED / "niilc", "--lanes", "bogus"], "no lane 'bogus'"),
        (["beir", JUDGED / "nowhere"], "corpus.jsonl is missing"),
        (["beir", JUDGED / "niilc", "--within", "meeting"], "no field meeting"),
        (["coverage", JUDGED / "niilc", "--budgets", "many"], "whole numbers"),
        (["coverage", JUDGED / "niilc", "--budgets", "0"], "at least 1 token"),
        (["fit", JUDGED / "niilc"], "two sets"),
        (["fit", JUDGED / "niilc", JUDGED / "hotpotqa", "--out", JUDGED / "nowhere" / "fit.json"], "no folder"),
        (["fit", JUDGED / "niilc", JUDGED / "hotpotqa", "--sample", "0"], "--sample"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(run, words, named):
    _, error = run(*words, code=2)
    assert named in error
