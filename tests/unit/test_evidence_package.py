"""The evidence package: its invariants over generated pools of up to a thousand candidates, and its rules."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace as with_values

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence_support import cite_with, cited_text, compact, fact, wire_item, wire_package
from strata.evidence.extracts import extractor
from strata.evidence.fusion import fuse, with_ranks
from strata.evidence.metering import cost_of
from strata.evidence.model import Attribution, Cost, Fact, LaneRank, Limits, Locator
from strata.evidence.nominate import association, community, passage, primary_attribution, primary_source
from strata.evidence.package import omission_reason, omitted_by_reason
from strata.evidence.policy import Contradictions, package_policy
from strata.evidence.selection import INVALID_PERMUTATION, admit, deduplicate, reorder

WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "認証",
    "パスワード",
    "éclair",
    "retention",
    "policy",
    "42",
    "43",
    "\x00",
    "𠮷",
    "archive",
]
LANES = ["passage_bm25", "passage_vector", "passage_fused"]


def pool_of(seed: int, size: int):
    """Nominations of every kind, many of them alike."""
    rng = random.Random(seed)
    wide = max(2, size // 4)
    pool = []
    for n in range(size):
        kind = rng.random()
        source, paragraph, rank = f"doc-{rng.randrange(wide)}.md", rng.randrange(3), rng.randint(1, size)
        if kind < 0.45:
            located = [(f"doc-{rng.randrange(wide)}.md", rng.choice([None, 0, 1, 2])) for _ in range(rng.randrange(3))]
            lane = rng.choice(["graph_query", "graph_activate"])
            triple = (f"s{rng.randrange(wide)}", f"l{rng.randrange(3)}", f"o{rng.randrange(wide)}")
            # What is known of a fact does not depend on the lane that found it.
            known = next((item for item in pool if item.fact == triple), None)
            if known:
                located = [(item.source, item.paragraph) for item in known.attributions]
            pool.append(fact(*triple, *located, rank=rank, lane=lane))
        elif kind < 0.9:
            text = text_of(source, paragraph)
            pool.append(passage("", source, paragraph, text, LaneRank(rng.choice(LANES), rank)))
        else:
            pool.append(community("", f"community:{n % wide}", 0, f"Summary {n % wide}", LaneRank("community", rank)))
    return pool


def text_of(source: str, paragraph: int) -> str:
    rng = random.Random(f"{source} {paragraph}"[-6:])
    return ". ".join(" ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 9))) for _ in range(rng.randint(1, 5)))


pools = st.builds(pool_of, st.integers(0, 2**32), st.one_of(st.integers(0, 60), st.integers(0, 1000)))
limits = st.builds(
    Limits,
    max_items=st.one_of(st.integers(0, 8), st.integers(0, 1000)),
    max_bytes=st.one_of(st.integers(0, 3000), st.integers(0, 200_000)),
    max_tokens=st.one_of(st.integers(0, 800), st.integers(0, 50_000)),
)
policies = st.builds(
    package_policy,
    limits,
    contradictions=st.sampled_from(Contradictions),
    is_functional=st.sampled_from([None, lambda label: label == "l0"]),
    careful_duplicates=st.booleans(),
    shares_text=st.booleans(),
    extract=st.sampled_from([None, extractor({"alpha": 1.0, "retent": 2.0, "polici": 1.0})]),
)
few = settings(max_examples=60, deadline=None)


@few
@given(pools, policies)
def test_kept_and_omitted_together_are_all_that_was_fused(pool, policy):
    package = wire_package(pool, policy)
    fates = [item.candidate_id for item in package.kept] + [item.candidate.candidate_id for item in package.omitted]
    assert sorted(fates) == sorted({item.candidate_id for item in pool})
    assert package.raw == len(fates)
    assert package.dedup_dropped == len(pool) - len(fates)
    assert sum(omitted_by_reason(package.omitted).values()) == len(package.omitted)


@few
@given(pools, policies, st.randoms(use_true_random=False))
def test_the_order_of_nominations_does_not_matter(pool, policy, rng):
    shuffled = list(pool)
    rng.shuffle(shuffled)
    assert wire_package(shuffled, policy) == wire_package(pool, policy)


@few
@given(pools, policies)
def test_the_spend_is_that_of_the_rendered_json_and_no_ceiling_is_crossed(pool, policy):
    package = wire_package(pool, policy)
    items = "[" + ",".join(map(wire_item, package.kept)) + "]"
    citations = "[" + ",".join(map(cite_with({}), package.citations)) + "]"
    whole = cost_of(items + citations)
    assert (package.spend.items, package.spend.bytes, package.spend.tokens) == (
        len(package.kept),
        whole.bytes,
        whole.tokens,
    )
    assert list(package.costs) == [cost_of(wire_item(item)) for item in package.kept]
    if package.kept:
        assert package.spend.items <= policy.limits.max_items
        assert package.spend.bytes <= policy.limits.max_bytes
        assert package.spend.tokens <= policy.limits.max_tokens
    else:
        assert (package.spend.bytes, package.spend.tokens) == (4, 1)


@few
@given(pools, policies)
def test_citations_are_those_of_the_kept_each_once_and_sorted(pool, policy):
    package = wire_package(pool, policy)
    locators = [entry.locator for entry in package.citations]
    assert locators == sorted({locator for item in package.kept for locator in item.citation_refs})


@few
@given(pools, policies)
def test_no_paragraph_is_paid_for_twice_where_text_is_shared(pool, policy):
    policy = with_values(policy, shares_text=True)
    package = wire_package(pool, policy)
    shown = {item.locator: item.candidate_id for item in package.kept if item.locator}
    for entry in package.citations:
        assert entry.held_by == shown.get(entry.locator)


@few
@given(pools, limits)
def test_contradiction_groups_are_never_split(pool, ceilings):
    package = wire_package(pool, package_policy(ceilings))
    kept = {item.candidate_id for item in package.kept}
    for item in package.kept:
        assert kept.issuperset(item.contradicts)
    for item in package.omitted:
        assert kept.isdisjoint(item.candidate.contradicts)
        assert (omission_reason(item) == "contradiction_group_exceeds_budget") == bool(item.candidate.contradicts)


@few
@given(pools, limits)
def test_a_group_admitted_in_part_names_all_its_members_and_why_the_rest_is_out(pool, ceilings):
    package = wire_package(pool, package_policy(ceilings, contradictions=Contradictions.PARTIAL))
    kept = {item.candidate_id for item in package.kept}
    out = {item.candidate.candidate_id: omission_reason(item) for item in package.omitted}
    for item in package.kept:
        for other in item.contradicts:
            assert other in kept or out[other] == "contradiction_group_partial"


@few
@given(pools, policies)
def test_whatever_fits_whole_is_kept_whole(pool, policy):
    free = with_values(policy, limits=Limits(10**6, 10**9, 10**9))
    package = wire_package(pool, free)
    assert {omission_reason(item) for item in package.omitted} <= {"duplicate_passage"}
    exact = with_values(
        free, limits=Limits(package.spend.items, package.spend.bytes, package.spend.tokens), tiers=policy.tiers
    )
    # The same order (the tiers are the same), and a budget that just holds it all.
    same = wire_package(pool, with_values(free, tiers=policy.tiers))
    assert wire_package(pool, exact).kept == same.kept


@few
@given(pools, st.integers(0, 60), st.integers(0, 60))
def test_more_items_allowed_are_never_fewer_items_kept(pool, one, other):
    few_, many = sorted((one, other))
    kept = [
        len(wire_package(pool, package_policy(Limits(n, 10**9, 10**9), contradictions=Contradictions.SHOWN)).kept)
        for n in (few_, many)
    ]
    assert kept[0] <= kept[1]


@few
@given(pools, policies, st.randoms(use_true_random=False))
def test_a_reranker_changes_the_order_and_nothing_else(pool, policy, rng):
    fused = with_ranks(fuse(pool))
    survivors = deduplicate(fused, policy, len(pool))
    permutation = list(range(len(survivors.candidates)))
    rng.shuffle(permutation)
    moved, reason = reorder(survivors, permutation)
    assert reason is None
    assert Counter(map(repr, moved.candidates)) == Counter(map(repr, survivors.candidates))
    package = admit(moved, policy, wire_item, cite_with({}))
    ranks = {item.candidate_id: item.fused_rank for item in fused}
    assert all(item.fused_rank == ranks[item.candidate_id] for item in package.kept)


@pytest.mark.parametrize(
    "permutation", [[0], [0, 1, 1], [0, 1, 3], [0, 1, -1], [0, 1, 2, 2], [], [False, True, 2], [0.0, 1, 2]]
)
def test_what_is_no_permutation_leaves_the_order_as_it_is(permutation):
    pool = [fact("a", f"l{n}", "b", rank=n + 1) for n in range(3)]
    survivors = deduplicate(with_ranks(fuse(pool)), package_policy(), 3)
    assert reorder(survivors, permutation) == (survivors, INVALID_PERMUTATION)


def test_the_reranked_order_decides_what_a_small_budget_holds():
    pool = [fact("a", f"l{n}", "b", rank=n + 1) for n in range(3)]
    policy = package_policy(Limits(1, 65_536, 4_000))
    survivors, reason = reorder(deduplicate(with_ranks(fuse(pool)), policy), [2, 0, 1])
    package = admit(survivors, policy, wire_item, cite_with({}))
    assert reason is None
    assert [(item.fact.label, item.fused_rank) for item in package.kept] == [("l2", 3)]


def test_lanes_are_fused_unweighted_and_ties_go_to_associations_then_communities():
    pool = [
        passage("c", "p.md", 0, "text", LaneRank("passage_bm25", 1)),
        community("c", "community:1", 0, "summary", LaneRank("community", 1)),
        fact("a", "b", "c", rank=1),
        fact("x", "y", "z", rank=2, lane="graph_query"),
        fact("x", "y", "z", rank=5),
        fact("x", "y", "z", rank=9),
    ]
    package = wire_package(pool, package_policy())
    assert [item.candidate_id.replace("\0", " ") for item in package.kept] == [
        "association x y z",
        "association a b c",
        "community c community:1 0",
        "passage c p.md 0",
    ]
    assert package.kept[0].fused_score == 1 / 65 + 1 / 62
    assert [(place.lane, place.rank) for place in package.kept[0].lane_ranks] == [
        ("graph_activate", 5),
        ("graph_query", 2),
    ]
    assert [item.fused_rank for item in package.kept] == [1, 2, 3, 4]
    assert package.dedup_dropped == 2


@pytest.mark.parametrize(
    ("attributions", "expected"),
    [
        ([], None),
        ([Attribution("", None, 9.0)], None),
        ([Attribution("b", 1, 2.0), Attribution("a", 1, -3.0)], Attribution("a", 1, -3.0)),
        ([Attribution("b", 1), Attribution("a", None)], Attribution("a", None)),
        ([Attribution("a", None), Attribution("a", 7), Attribution("a", 3)], Attribution("a", 3)),
    ],
)
def test_the_primary_attribution_says_the_most(attributions, expected):
    assert primary_attribution(attributions) == expected
    assert primary_source(attributions) == (expected.source if expected else "")


def test_a_group_stands_at_the_place_of_its_first_member():
    pool = [
        fact("a", "l", "1", rank=1),
        fact("b", "l", "1", rank=2),
        fact("a", "l", "2", rank=3),
    ]
    package = wire_package(pool, package_policy())
    assert [(item.fact.subject, item.fact.object, item.fused_rank) for item in package.kept] == [
        ("a", "1", 1),
        ("a", "2", 3),
        ("b", "1", 2),
    ]
    assert package.contradiction_groups == 1


def test_a_label_with_many_values_groups_nothing():
    pool = [fact("kura", "uses rice", rice, rank=n + 1) for n, rice in enumerate(["Omachi", "Yamada", "Gohyaku"])]
    ceilings = Limits(2, 65_536, 4_000)
    assert wire_package(pool, package_policy(ceilings)).kept == ()
    policy = package_policy(ceilings, is_functional=lambda label: label != "uses rice")
    package = wire_package(pool, policy)
    assert [item.fact.object for item in package.kept] == ["Omachi", "Yamada"]
    assert package.contradiction_groups == 0
    assert omitted_by_reason(package.omitted) == {"budget_exceeded": 1}
    assert not any(item.contradicts for item in package.kept)


def test_a_group_too_large_is_admitted_in_part_and_says_so():
    pool = [fact("a", "born in", f"{place}", rank=n + 1) for n, place in enumerate(["Rome", "Bern", "Oslo"])]
    policy = package_policy(Limits(2, 65_536, 4_000), contradictions=Contradictions.PARTIAL)
    package = wire_package(pool, policy)
    assert [item.fact.object for item in package.kept] == ["Rome", "Bern"]
    assert [len(item.contradicts) for item in package.kept] == [2, 2]
    assert omitted_by_reason(package.omitted) == {"contradiction_group_partial": 1}
    nothing = wire_package(pool, with_values(policy, limits=Limits(0, 65_536, 4_000)))
    assert omitted_by_reason(nothing.omitted) == {"contradiction_group_exceeds_budget": 3}


def test_the_same_fact_of_two_contexts_is_no_contradiction():
    found = [
        association(Fact("a", "l", said), [], LaneRank("graph_query", 1), context=context, is_qualified=True)
        for context, said in [("one", "x"), ("two", "x"), ("two", "y")]
    ]
    package = wire_package(found, package_policy())
    assert {item.candidate_id.replace("\0", " "): len(item.contradicts) for item in package.kept} == {
        "association one a l x": 1,
        "association two a l x": 1,
        "association two a l y": 2,
    }


def test_sources_not_seen_yet_come_first_in_a_tier_and_nameless_ones_are_always_new():
    pool = [
        fact(f"s{n}", "l", "o", *([(source, 0)] if source else []), rank=n + 1)
        for n, source in enumerate(["a", "a", "", "", "b", "a", "c", "b"])
    ]
    package = wire_package(pool, package_policy(Limits(16, 65_536, 4_000)))
    assert package.tier_width == 4
    assert [item.fact.subject for item in package.kept] == ["s0", "s2", "s3", "s1", "s4", "s6", "s5", "s7"]


def test_a_citation_is_charged_once():
    one = wire_package([fact("a", "l", "x", ("d.md", 0))], package_policy())
    two = wire_package([fact("a", "l", "x", ("d.md", 0)), fact("b", "l", "x", ("d.md", 0), rank=2)], package_policy())
    assert two.spend.bytes - one.spend.bytes == two.costs[1].bytes + len(",")


def test_a_passage_takes_over_the_text_of_its_citation():
    text = cited_text(Locator("d.md", 0)) * 5
    pool = [
        fact("a", "l", "x", ("d.md", 0)),
        passage("", "d.md", 0, text, LaneRank("passage_bm25", 2)),
        fact("b", "l", "x", ("d.md", 0), rank=3),
    ]
    texts = {Locator("d.md", 0): {"text": text}}
    apart, shared = (wire_package(pool, package_policy(shares_text=flag), texts) for flag in (False, True))
    assert [entry.held_by for entry in apart.citations] == [None]
    assert [entry.held_by for entry in shared.citations] == ["passage\0\0d.md\x000"]
    assert [item.kind for item in shared.kept] == ["association", "passage", "association"]
    saved = len(compact({"text": text}).encode()) - len(compact("passage\0\0d.md\x000").encode())
    assert apart.spend.bytes - shared.spend.bytes == saved + len('"citation":') - len('"item":')


def test_a_passage_fits_where_its_citation_paid_for_its_text():
    text = "word " * 400
    texts = {Locator("d.md", 0): {"text": text}}
    pool = [fact("a", "l", "x", ("d.md", 0)), passage("", "d.md", 0, text, LaneRank("passage_bm25", 2))]
    ceilings = Limits(40, 3_000, 4_000)
    assert len(wire_package(pool, package_policy(ceilings), texts).kept) == 1
    assert len(wire_package(pool, package_policy(ceilings, shares_text=True), texts).kept) == 2


PARAGRAPH = (
    "The office opens at nine. Audit logs are kept for ninety days. "
    + "Nothing else of interest is said in this very long sentence about the weather and the sea. " * 8
    + "Retention of backups is one year."
)


def test_a_paragraph_that_does_not_fit_shows_the_sentences_that_matter():
    pool = [passage("", "d.md", 0, PARAGRAPH, LaneRank("passage_bm25", 1))]
    policy = package_policy(Limits(40, 500, 4_000), extract=extractor({"audit": 1.0, "retent": 2.0}, ["en"]))
    (item,) = wire_package(pool, policy).kept
    assert [PARAGRAPH[span.start : span.end] for span in item.excerpts] == [
        "Audit logs are kept for ninety days.",
        "Retention of backups is one year.",
    ]
    assert item.text == PARAGRAPH
    tight = wire_package(pool, with_values(policy, limits=Limits(40, 312, 4_000)))
    assert [PARAGRAPH[span.start : span.end] for span in tight.kept[0].excerpts] == [
        "Retention of backups is one year."
    ]
    none = wire_package(pool, with_values(policy, limits=Limits(40, 200, 4_000)))
    assert omitted_by_reason(none.omitted) == {"budget_exceeded": 1}
    assert wire_package(pool, package_policy(Limits(40, 500, 4_000))).kept == ()


def test_passages_that_differ_in_a_number_are_shown_as_a_conflict_where_asked():
    text = "Audit logs are kept for {} days, after which they are deleted for good."
    pool = [
        passage("", f"{days}.md", 0, text.format(days), LaneRank("passage_bm25", n))
        for n, days in enumerate([30, 90, 30.0], 1)
    ]
    pool.append(passage("", "copy.md", 0, text.format(90).upper(), LaneRank("passage_bm25", 4)))
    plain = wire_package(pool, package_policy())
    assert [item.source for item in plain.kept] == ["30.md"]
    shown = wire_package(pool, package_policy(careful_duplicates=True))
    assert {item.source: len(item.conflicts) for item in shown.kept} == {"30.md": 2, "90.md": 2, "30.0.md": 2}
    assert [item.duplicate_of for item in shown.omitted] == ["passage\0\x0090.md\x000"]


def test_a_cost_rounds_its_tokens_up():
    assert [Cost(0, quarters).tokens for quarters in (0, 1, 4, 5)] == [0, 1, 1, 2]
