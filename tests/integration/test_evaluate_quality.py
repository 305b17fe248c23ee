"""The benchmarks put every lane beside bm25s, and measure meetings over all of them and inside one."""

from __future__ import annotations

import json

from evaluate_support import JUDGED, evaluation
from strata.evaluate import coverage
from strata.evaluate.lanes import LANES
from strata.evaluate.quality import quality
from strata.platform.ids import DEFAULT_TENANT


async def test_every_lane_stands_beside_the_rival_and_coverage_where_it_is_asked_for(embedding_services):
    evaluate = evaluation(embedding_services)
    (found,) = await quality(evaluate, DEFAULT_TENANT, JUDGED / "hotpotqa", covered=["hotpotqa"], most=4)
    assert list(found.lanes) == ["bm25s", *LANES]
    assert (found.questions, found.coverage.questions) == (4, 4)
    (other,) = await quality(evaluate, DEFAULT_TENANT, JUDGED / "niilc", covered=["hotpotqa"], most=4)
    assert other.coverage is None


async def test_meetings_are_measured_over_all_and_inside_the_one_asked_about(services, tmp_path):
    corpus = [
        {"_id": "spring:1", "text": "The garden budget was raised."},
        {"_id": "autumn:1", "text": "The garden budget was cut, and the garden budget is gone."},
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "garden budget", "meeting": "spring"}')
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\tspring:1\t1\n")
    everywhere, inside = await quality(evaluation(services), DEFAULT_TENANT, tmp_path)
    assert (everywhere.within, inside.within) == (None, "meeting")
    assert everywhere.lanes["lexical"].ndcg_at_10 < 1
    assert {name: means.ndcg_at_10 for name, means in inside.lanes.items()} == dict.fromkeys(inside.lanes, 1.0)


async def test_coverage_goes_without_the_rival_where_it_is_not_installed(services, monkeypatch):
    monkeypatch.setattr(coverage, "find_spec", lambda name: None)
    found = await evaluation(services).coverage(DEFAULT_TENANT, JUDGED / "niilc", most=2)
    assert "bm25s" not in found.shares
    assert found.left_out["bm25s"] == "the package bm25s is not installed"
