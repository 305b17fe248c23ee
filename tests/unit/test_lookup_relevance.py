"""What a result is worth: levels and completeness from absolute signals."""

from __future__ import annotations

import pytest

from evidence_support import candidate, package_of, render
from strata.evidence.model import Layer, Limits
from strata.evidence.selection import Policy
from strata.lookup.relevance import Cutoffs, judge
from strata.lookup.schemas import Completeness, EmptyReason, RelevanceLevel

CUTOFFS = Cutoffs(high=0.8, medium=0.5, low=0.05)


def package(*relevances, top_k=5, **values):
    pool = [
        candidate(f"{n}", relevance=value, text=f"unlike {n} " * (n + 1), layers=(Layer.L1,), **values)
        for n, value in enumerate(relevances)
    ]
    return package_of(pool, Policy(top_k=top_k, floor=0.05), render)


@pytest.mark.parametrize(
    ("relevance", "level"),
    [(1.0, "HIGH"), (0.8, "HIGH"), (0.79, "MEDIUM"), (0.5, "MEDIUM"), (0.2, "LOW"), (0.05, "LOW"), (0.04, "NONE")],
)
def test_the_level_is_that_of_the_cut_offs(relevance, level):
    assert CUTOFFS.level(relevance) is RelevanceLevel(level)


def test_high_with_nothing_relevant_cut_is_complete():
    verdict = judge(package(0.9, 0.2), CUTOFFS)
    assert (verdict.level, verdict.completeness, verdict.message) == (
        RelevanceLevel.HIGH,
        Completeness.COMPLETE,
        None,
    )


def test_a_relevant_candidate_that_was_cut_makes_it_partial_and_says_how_many():
    verdict = judge(package(0.9, 0.9, 0.9, top_k=1), CUTOFFS)
    assert verdict.completeness is Completeness.PARTIAL
    assert verdict.message.startswith("2 more relevant candidates were cut")


def test_an_irrelevant_candidate_that_was_cut_does_not():
    assert judge(package(0.9, 0.3, top_k=1), CUTOFFS).completeness is Completeness.COMPLETE


def test_medium_evidence_is_partial():
    assert judge(package(0.6), CUTOFFS).completeness is Completeness.PARTIAL


def test_degraded_beats_fallback_beats_partial():
    found = package(0.6)
    assert judge(found, CUTOFFS, degraded=["hints"], relaxed=True).completeness is Completeness.DEGRADED
    assert judge(found, CUTOFFS, relaxed=True).completeness is Completeness.FALLBACK


def test_hints_alone_are_named_as_such():
    hint = candidate("h", kind="hint", layer=Layer.L0, layers=(Layer.L0,), relevance=1.0)
    only = package_of([hint], Policy(top_k=5), render)
    assert judge(only, CUTOFFS).completeness is Completeness.HINT_ONLY
    assert (
        judge(package(0.9), CUTOFFS, degraded=["lexical"], l1_unavailable=True).completeness is Completeness.HINT_ONLY
    )


@pytest.mark.parametrize("reason", list(EmptyReason))
def test_every_empty_answer_tells_the_agent_what_to_do(reason):
    verdict = judge(package(), CUTOFFS, empty_reason=reason)
    assert verdict.level is RelevanceLevel.NONE
    assert verdict.completeness is Completeness.EMPTY
    assert verdict.empty_reason is reason
    assert verdict.message


def test_a_package_emptied_by_its_budget_is_not_below_the_floor():
    pool = [candidate(relevance=0.9)]
    cut = package_of(pool, Policy(top_k=5, limits=Limits(max_items=0)), render)
    assert cut.kept == ()
    assert judge(cut, CUTOFFS, empty_reason=EmptyReason.BUDGET_EXCEEDED).empty_reason is EmptyReason.BUDGET_EXCEEDED
