"""The arithmetic of evals: ranks, distributions, ratios, and plain search held to a budget."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.evaluate.allowance import admitted
from strata.evaluate.backend import Budget, Candidate, Cited, Hit
from strata.evaluate.case_lanes import checked, top_tier
from strata.evaluate.case_metrics import (
    CATALOGUE,
    COMPARED,
    distribution,
    figure,
    first_ranks,
    ndcg,
    ratio,
    recall,
    reciprocal_rank,
)
from strata.evaluate.cases import ExpectedCitation, ExpectedSource

HITS = [("a", 0), ("a", 1), ("b", 0), ("c", 5)]


def expected(*sources):
    return [ExpectedSource(source=source, paragraphs=tuple(parts)) for source, *parts in sources]


def test_an_expectation_is_met_by_its_first_hit_within_k():
    wanted = expected(("a",), ("a", 1, 7), ("b", 3), ("c", 5))
    assert first_ranks(wanted, HITS, 4) == (1, 2, None, 4)
    assert first_ranks(wanted, HITS, 3) == (1, 2, None, None)


def test_recall_and_mrr_of_nothing_expected_are_null():
    assert (recall(()), reciprocal_rank(()), ndcg((), ())) == (None, None, None)


def test_recall_is_the_share_and_mrr_the_best_rank():
    assert recall((None, 2, 4)) == 0.666667
    assert reciprocal_rank((None, 4, 2)) == 0.5
    assert reciprocal_rank((None, None)) == 0.0


def test_ndcg_is_one_for_the_ideal_order_and_weighs_relevance_linearly():
    strong, weak = ExpectedSource(source="a", relevance=3), ExpectedSource(source="b", relevance=1)
    assert ndcg((weak, strong), (2, 1)) == 1.0
    found = ndcg((weak, strong), (1, 2))
    assert found == pytest.approx((1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3)), abs=1e-6)
    assert ndcg((weak, strong), (None, None)) == 0.0


def test_ndcg_is_cut_at_one_where_one_hit_meets_two_expectations():
    wanted = expected(("a",), ("a", 0))
    assert ndcg(wanted, first_ranks(wanted, HITS, 10)) == 1.0


def test_a_distribution_of_nothing_keeps_its_keys():
    empty = distribution([])
    assert empty.n == 0
    assert {getattr(empty, name) for name in ("min", "p50", "p90", "p99", "max", "mean", "sum")} == {None}


def test_percentiles_are_nearest_rank():
    ten = distribution([float(value) for value in range(10, 0, -1)])
    assert (ten.min, ten.p50, ten.p90, ten.p99, ten.max, ten.mean, ten.sum) == (1, 5, 9, 10, 10, 5.5, 55)
    two = distribution([3.0, 1.0])
    assert (two.p50, two.p90) == (1, 3)


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=50), st.randoms())
def test_a_distribution_does_not_depend_on_the_order(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    found = distribution(values)
    assert distribution(shuffled) == found
    assert found.min <= found.p50 <= found.p90 <= found.p99 <= found.max


def test_a_ratio_of_nothing_is_null():
    assert ratio(0, 0).value is None
    assert ratio(1, 3).value == 0.333333


def test_a_key_alone_means_the_mean_or_the_value():
    figures = {"recall.mrr": distribution([0.0, 1.0]), "rerank.ran": ratio(1, 2)}
    assert figure("recall.mrr", figures) == 0.5
    assert figure("recall.mrr.max", figures) == 1.0
    assert figure("rerank.ran", figures) == 0.5
    assert figure("rerank.ran.n", figures) == 2


def test_the_catalogue_is_that_of_the_contract():
    assert len(CATALOGUE) == 30
    assert len(COMPARED) == 9
    assert not any(key.startswith("latency") for key in COMPARED)


def hit(source, paragraph, text, **lanes):
    wire = {"source": source, "paragraph": paragraph, "score": 0.5, "text": text, "lanes": lanes}
    return Hit(source, paragraph, wire)


def cost(one, rank, context="c"):
    """Recount an item from its published shape."""
    lanes = sorted(one.wire["lanes"])
    lane = {("bm25",): "passage_bm25", ("vector",): "passage_vector"}.get(tuple(lanes), "passage_fused")
    text = json.dumps(
        {
            "candidate_id": f"passage\0{context}\0{one.source}\0{one.paragraph}",
            "kind": "passage",
            "fused_rank": rank,
            "lane_ranks": [{"lane": lane, "rank": rank}],
            "citation_refs": [],
            "passage": one.wire,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return len(text.encode()), sum(1 if char.isascii() else 4 for char in text)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


@given(st.lists(texts, max_size=8), st.integers(0, 8), st.integers(0, 3000), st.integers(0, 700))
def test_what_is_admitted_is_paid_for_to_the_byte_and_within_every_ceiling(passages, items, size, tokens):
    hits = [hit("s", number, text, bm25={"rank": 1, "score": 0.5}) for number, text in enumerate(passages)]
    kept, spend = admitted(hits, "c", Budget(max_items=items, max_bytes=size, max_tokens=tokens))
    costs = [cost(one, hits.index(one) + 1) for one in kept]
    commas = max(0, len(kept) - 1)
    assert spend.bytes_used == 4 + commas + sum(each for each, _ in costs)
    assert spend.tokens_used == math.ceil((4 + commas + sum(quarters for _, quarters in costs)) / 4)
    assert spend.items_used == len(kept) == len(hits) - spend.omitted
    if kept:
        assert spend.items_used <= items
        assert spend.bytes_used <= size
        assert spend.tokens_used <= tokens
    assert [one for one in hits if one in kept] == kept


def test_an_empty_package_costs_its_brackets():
    _, spend = admitted([hit("s", 0, "x")], "c", Budget(max_items=0))
    assert (spend.items_used, spend.bytes_used, spend.tokens_used, spend.omitted) == (0, 4, 1, 1)


def test_what_does_not_fit_is_skipped_and_the_next_one_tried():
    hits = [hit("a", 0, "short"), hit("b", 0, "long " * 500), hit("c", 0, "short")]
    kept, _ = admitted(hits, "c", Budget(max_bytes=700))
    assert [one.source for one in kept] == ["a", "c"]


def test_a_passage_costs_what_a_recorded_package_charges_for_it():
    text = "青嶺酒造は雲居県霧沢町の蔵元である。杜氏は高瀬である。"
    wire = {
        "lanes": {"bm25": {"rank": 1, "score": 0.86304635}},
        "paragraph": 0,
        "score": 0.86304635,
        "source": "docs/kura.md",
        "text": text,
    }
    _, spend = admitted([Hit("docs/kura.md", 0, wire)], "sake", Budget())
    assert spend.bytes_used - 4 == 367


@pytest.mark.parametrize(
    ("candidates", "names"),
    [
        ([], []),
        ([("A", "lexical", "exact"), ("AB", "lexical", "containment")], ["A"]),
        ([("A", "lexical", "exact"), ("B", "lexical", "alias")], ["A", "B"]),
        ([("A", "lexical", "fuzzy"), ("B", "lexical", "containment"), ("C", "semantic", None)], ["B"]),
        ([("A", "semantic", None), ("B", "semantic", None)], ["A", "B"]),
        ([("A", "lexical", None), ("B", "semantic", None)], ["A"]),
    ],
)
def test_only_the_strongest_kind_of_match_counts(candidates, names):
    assert top_tier([Candidate(*each) for each in candidates]) == names


@pytest.mark.parametrize(
    ("stated", "cited", "section", "quote", "is_valid"),
    [
        ({}, Cited("no_source"), None, None, False),
        ({"section": "S", "quote": "q"}, Cited("no_paragraph"), None, None, False),
        ({}, Cited("resolved", "text", "S"), None, None, True),
        ({"section": "S"}, Cited("resolved", "text", "S"), True, None, True),
        ({"section": None}, Cited("resolved", "text", "S"), False, None, False),
        ({"section": None}, Cited("resolved", "text", None), True, None, True),
        ({"quote": "ＣＡＦÉ ヤマ"}, Cited("resolved", "un café やま.", None), None, True, True),
        ({"quote": "cafe"}, Cited("resolved", "un café", None), None, False, False),
    ],
)
def test_a_citation_is_checked_for_what_the_case_states(stated, cited, section, quote, is_valid):
    found = checked(ExpectedCitation(source="s", paragraph=0, **stated), cited)
    assert (found.section, found.quote, found.is_valid) == (section, quote, is_valid)


def test_every_metric_is_documented_as_it_is():
    page = (Path(__file__).resolve().parents[2] / "docs" / "evaluate.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z]+\.[a-z_]+)` \| [^|]+ \| (.+) \|$", page, re.MULTILINE))
    assert rows == {key: metric.definition for key, metric in CATALOGUE.items()}
