"""Two runs side by side: what changed, and what makes them incomparable."""

from __future__ import annotations

import json

import msgspec
import pytest

from evals_support import EVALS, MemoryServer
from strata.errors import StrataError
from strata.evaluate import artifact
from strata.evaluate.backend import Budget
from strata.evaluate.case_lanes import Mode
from strata.evaluate.case_metrics import COMPARED
from strata.evaluate.cases import load_eval
from strata.evaluate.compare import compare
from strata.evaluate.run import evaluate


@pytest.fixture
async def written():
    """An evaluation.json as plain objects."""
    found = await evaluate(MemoryServer().backend(), load_eval(EVALS / "eval.jsonl"), Mode())
    return json.loads(artifact.document(found))


def stored(document):
    return msgspec.convert(document, artifact.StoredEvaluation)


def copied(document):
    return json.loads(json.dumps(document))


def compared(base, head):
    return compare(stored(base), stored(head))


async def test_a_run_compared_with_itself_has_no_changes(written):
    found = compared(written, written)
    assert found.changes == []
    assert found.header.warnings == []
    assert found.header.counts == {"improved": 0, "regressed": 0, "added": 0, "removed": 0, "unchanged": 32}
    assert tuple(found.header.metrics) == COMPARED
    assert {delta.delta for delta in found.header.metrics.values()} == {0.0, None}


async def test_times_do_not_count(written):
    head = copied(written)
    for case in head["cases"]:
        case["metrics"]["latency"]["passage_ms"] = 1e9
    assert compared(written, head).changes == []


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"mrr": 0.1}, {"mrr": 0.2}, "improved"),
        ({"mrr": 0.2}, {"mrr": 0.1}, "regressed"),
        ({"mrr": 0.1, "ndcg": 0.9}, {"mrr": 0.2, "ndcg": 0.8}, "regressed"),
        ({"mrr": None}, {"mrr": 0.0}, "improved"),
        ({"mrr": 0.0}, {"mrr": None}, "regressed"),
    ],
)
async def test_any_metric_that_is_lower_makes_a_regression(written, before, after, change):
    base, head = copied(written), copied(written)
    base["cases"][3]["metrics"]["recall"] |= before
    head["cases"][3]["metrics"]["recall"] |= after
    [found] = compared(base, head).changes
    assert found.change == change
    assert set(found.metrics) == {f"recall.{name}" for name in after}


async def test_cases_that_only_one_run_has_are_added_or_removed(written):
    base, head = copied(written), copied(written)
    del base["cases"][0]
    del head["cases"][5]
    found = compared(base, head)
    assert [each.change for each in found.changes] == ["added", "removed"]
    assert found.header.counts["unchanged"] == 30


async def test_changes_are_lines_of_json_after_a_header(written):
    head = copied(written)
    head["cases"][0]["metrics"]["diversity"]["sources"] = 99.0
    header, line = map(json.loads, compared(written, head).lines().splitlines())
    assert header["type"] == "evaluation_changes"
    assert set(header) == {"type", "base", "head", "warnings", "counts", "metrics"}
    assert line["change"] == "improved"
    assert set(line["metrics"]) == {"diversity.sources"}
    assert line["metrics"]["diversity.sources"]["head"] == 99.0


def change(path, value):
    def apply(document):
        *way, last = path
        for step in way:
            document = document[step]
        document[last] = value

    return apply


@pytest.mark.parametrize(
    ("apply", "word"),
    [
        (change(("inputs", "eval", "sha256"), "0"), "different evals"),
        (change(("inputs", "contexts"), ["other"]), "different contexts"),
        (change(("corpus", "revision_before"), {}), "changed between"),
        (change(("corpus", "stable"), False), "changed during head"),
        (change(("corpus", "embeddings"), {"multihop": "m"}), "different models"),
        (change(("inputs", "limit"), 3), "different limits"),
        (change(("inputs", "thresholds"), "0"), "different thresholds"),
        (change(("inputs", "budget"), {"max_items": 1, "max_bytes": 2, "max_tokens": 3}), "none; 1 items"),
    ],
)
async def test_what_makes_two_runs_incomparable_is_warned_of(written, apply, word):
    head = copied(written)
    apply(head)
    assert any(word in warning for warning in compared(written, head).header.warnings)


async def test_other_options_of_the_assembly_are_warned_of_where_both_runs_assemble(written):
    word = "different options of the assembly"
    head = copied(written)
    head["inputs"]["assembly_options"] = {"extracts": True}
    head["inputs"]["mode"] = "assembly"
    assert not any(word in warning for warning in compared(written, head).header.warnings)
    base = copied(written)
    base["inputs"]["mode"] = "assembly"
    assert any(word in warning for warning in compared(base, head).header.warnings)
    del base["inputs"]["assembly_options"]
    assert any(word in warning for warning in compared(base, head).header.warnings)


async def test_search_and_assembly_at_one_budget_compare_without_a_warning():
    given = load_eval(EVALS / "eval.jsonl")
    base, head = [
        json.loads(
            artifact.document(
                await evaluate(MemoryServer().backend(), given, Mode(is_assembly=way, budget=Budget(max_tokens=1500)))
            )
        )
        for way in (False, True)
    ]
    found = compared(base, head)
    assert found.header.warnings == []
    assert found.header.counts["improved"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"type":"evaluation"}', b"\xff", b"[" * 100_000])
def test_what_no_run_wrote_is_refused(tmp_path, content):
    path = tmp_path / "evaluation.json"
    path.write_bytes(content)
    with pytest.raises(StrataError) as caught:
        artifact.read_evaluation(path)
    assert caught.value.code == "invalid_request"


async def test_the_artifact_of_something_else_is_refused(tmp_path, written):
    path = tmp_path / "evaluation.json"
    path.write_text(json.dumps(written | {"type": "fit"}), encoding="utf-8")
    with pytest.raises(StrataError, match="not the artifact"):
        artifact.read_evaluation(path)


def test_a_run_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(StrataError, match="cannot be read"):
        artifact.read_evaluation(tmp_path / "evaluation.json")
