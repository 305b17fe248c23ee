"""Metrics are those of trec_eval, and a folder that is no judged set is refused by name."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import StrataError
from strata.evaluate.beir import load_judged_set
from strata.evaluate.metrics import ndcg_at, percentile, recall_at, reciprocal_rank

documents = st.lists(st.sampled_from("abcdefgh"), max_size=12)
judgments = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3), max_size=8)


def test_ndcg_of_a_known_ranking():
    ideal = 2 / math.log2(2) + 1 / math.log2(3)
    assert ndcg_at(["x", "a", "b"], {"a": 2, "b": 1}, 10) == pytest.approx(
        (2 / math.log2(3) + 1 / math.log2(4)) / ideal
    )


def test_recall_and_reciprocal_rank_of_a_known_ranking():
    judged = {"a": 1, "b": 1, "c": 0}
    assert recall_at(["c", "b", "x", "a"], judged, 2) == 0.5
    assert reciprocal_rank(["c", "b", "a"], judged) == 0.5
    assert reciprocal_rank(["x"], judged) == 0.0


@given(documents, judgments, st.integers(1, 10))
def test_metrics_stay_between_nought_and_one(ranking, judged, k):
    for value in (ndcg_at(ranking, judged, k), recall_at(ranking, judged, k), reciprocal_rank(ranking, judged)):
        assert 0.0 <= value <= 1.0 + 1e-9


@given(judgments)
def test_the_ideal_order_is_worth_one(judged):
    order = sorted(judged, key=lambda doc: -judged[doc])
    expected = 1.0 if any(judged.values()) else 0.0
    assert ndcg_at(order, judged, 10) == pytest.approx(expected)


@given(documents, judgments)
def test_a_document_listed_twice_counts_once(ranking, judged):
    once = list(dict.fromkeys(ranking))
    assert ndcg_at(ranking, judged, 10) == ndcg_at(once, judged, 10)
    assert recall_at(ranking, judged, 100) == recall_at(once, judged, 100)


def test_percentiles_are_by_nearest_rank():
    assert percentile([1, 2, 3, 4], 50) == 2
    assert percentile([1, 2, 3, 4], 95) == 4
    assert percentile([], 95) == 0.0


def write(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")


def test_a_judged_set_keeps_the_questions_that_have_an_answer(tmp_path):
    write(tmp_path, "corpus.jsonl", '{"_id":"d","text":"t"}\n')
    write(tmp_path, "queries.jsonl", '{"_id":"q1","text":"one"}\n{"_id":"q2","text":"two","extra":1}\n')
    write(tmp_path, "qrels.tsv", "query-id\tcorpus-id\tscore\nq1\td\t2\nq2\td\t0\n")
    judged = load_judged_set(tmp_path)
    assert [query.id for query in judged.queries] == ["q1"]
    assert judged.judgments["q1"] == {"d": 2}


def test_judgments_of_the_original_layout_are_found(tmp_path):
    write(tmp_path, "corpus.jsonl", "")
    write(tmp_path, "queries.jsonl", '{"_id":"q1","text":"one"}\n')
    (tmp_path / "qrels").mkdir()
    write(tmp_path, "qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td\t1\n")
    assert len(load_judged_set(tmp_path).queries) == 1


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({}, "corpus.jsonl"),
        ({"corpus.jsonl": ""}, "queries.jsonl"),
        ({"corpus.jsonl": "", "queries.jsonl": ""}, "qrels.tsv"),
        ({"corpus.jsonl": "", "queries.jsonl": "{}\n", "qrels.tsv": ""}, "queries.jsonl:1"),
        ({"corpus.jsonl": "", "queries.jsonl": "", "qrels.tsv": "a\tb\tc\n"}, "qrels.tsv:1"),
    ],
)
def test_an_unfit_folder_is_refused_with_the_file_and_line(tmp_path, files, named):
    for name, text in files.items():
        write(tmp_path, name, text)
    with pytest.raises(StrataError) as raised:
        load_judged_set(tmp_path)
    assert named in raised.value.detail
