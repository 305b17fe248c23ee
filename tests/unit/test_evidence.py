"""The evidence pipeline: its invariants over generated pools, and its rules one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evidence_support import candidate, package_of, render
from strata.evidence.duplicates import Fingerprint, are_near_duplicates, dice, drop_near_duplicates, merge_by_source_key
from strata.evidence.fusion import RRF_K, best_ranks, fuse, reciprocal_rank_fusion
from strata.evidence.model import KeyBasis, LaneRank, Layer, Limits, Reason
from strata.evidence.selection import Policy, diversify, wants_more
from strata.text.estimate import token_quarters, tokens_of_quarters

WORDS = ["alpha", "beta", "gamma", "delta", "認証", "éclair", "42", "43", "retention", "policy"]


candidates = st.builds(
    candidate,
    key=st.integers(0, 30).map(str),
    kind=st.sampled_from(["passage", "hint"]),
    layer=st.sampled_from(list(Layer)),
    source_key=st.integers(0, 12).map(lambda n: f"path:doc-{n}"),
    source_key_basis=st.sampled_from([KeyBasis.PATH, KeyBasis.RANK]),
    source=st.integers(0, 6).map(lambda n: f"doc-{n}"),
    lane_ranks=st.lists(
        st.builds(LaneRank, st.sampled_from(["lexical", "hints", "vector"]), st.integers(1, 60)), min_size=1, max_size=3
    ).map(tuple),
    relevance=st.floats(0, 1),
    text=st.one_of(st.none(), st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)),
)


def unique(pool):
    """A pool as lanes give it: one text and source a candidate identity."""
    return list({item.identity: item for item in pool}.values())


pools = st.lists(candidates, max_size=60).map(unique)
policies = st.builds(
    Policy,
    top_k=st.integers(1, 12),
    limits=st.builds(
        Limits,
        max_items=st.one_of(st.none(), st.integers(0, 10)),
        max_bytes=st.one_of(st.none(), st.integers(0, 1500)),
        max_tokens=st.one_of(st.none(), st.integers(0, 500)),
    ),
    floor=st.sampled_from([0.0, 0.3]),
)


@given(pools, policies)
def test_every_candidate_has_exactly_one_fate(pool, policy):
    package = package_of(pool, policy, render)
    fates = [item.identity for item in package.kept] + [item.candidate.identity for item in package.omitted]
    assert sorted(fates) == sorted(item.identity for item in pool)
    assert package.raw == len(pool)


@given(pools, policies, st.randoms(use_true_random=False))
def test_shuffled_input_gives_the_same_package(pool, policy, rng):
    shuffled = list(pool)
    rng.shuffle(shuffled)
    first, second = package_of(pool, policy, render), package_of(shuffled, policy, render)
    assert first.kept == second.kept
    assert first.spend == second.spend
    assert set(map(repr, first.omitted)) == set(map(repr, second.omitted))


@given(pools, policies)
def test_no_ceiling_is_ever_crossed_and_the_spend_is_that_of_the_json(pool, policy):
    package = package_of(pool, policy, render)
    text = "[" + ",".join(render(item, rank) for rank, item in enumerate(package.kept, 1)) + "]"
    assert package.spend.items == len(package.kept) <= policy.top_k
    if policy.limits == Limits():
        return
    assert package.spend.bytes == len(text.encode())
    assert package.spend.tokens == tokens_of_quarters(token_quarters(text))
    limits = policy.limits
    if package.kept:
        assert limits.max_items is None or package.spend.items <= limits.max_items
        assert limits.max_bytes is None or package.spend.bytes <= limits.max_bytes
        assert limits.max_tokens is None or package.spend.tokens <= limits.max_tokens


@given(pools, policies)
def test_nothing_without_text_or_below_the_floor_is_kept(pool, policy):
    for item in package_of(pool, policy, render).kept:
        assert item.text is not None
        assert item.relevance >= policy.floor


@given(pools, policies)
def test_merged_counts_add_up_to_what_was_merged(pool, policy):
    package = package_of(pool, policy, render)
    for item in package.omitted:
        if item.reason in (Reason.DUPLICATE_SOURCE, Reason.NEAR_DUPLICATE):
            assert item.duplicate_of is not None
    assert sum(item.merged_count for item in package.kept) <= len(pool)


@given(pools, st.integers(1, 8))
def test_a_protected_candidate_is_in_the_package_whatever_hints_add(pool, top_k):
    protected = candidate(
        "protected", is_protected=True, lane_ranks=(LaneRank("lexical", 50),), text="unlike any other"
    )
    package = package_of([*pool, protected], Policy(top_k=top_k), render)
    assert protected.identity in {item.identity for item in package.kept}


@given(pools, policies)
def test_wants_more_only_while_unloaded_candidates_could_be_kept(pool, policy):
    loaded = [replace(item, text=item.text or f"loaded {item.key} {item.kind}") for item in pool]
    assert not wants_more(package_of(loaded, policy, render), policy)


def test_rrf_is_the_sum_of_reciprocal_ranks():
    ranks = (LaneRank("a", 1), LaneRank("b", 3))
    assert reciprocal_rank_fusion(ranks) == pytest.approx(1 / (RRF_K + 1) + 1 / (RRF_K + 3))
    assert reciprocal_rank_fusion(ranks, {"b": 0.5}) == pytest.approx(1 / (RRF_K + 1) + 0.5 / (RRF_K + 3))


def test_the_same_passage_from_two_lanes_is_one_candidate_with_two_ranks():
    first = candidate(lane_ranks=(LaneRank("lexical", 2),), hit_reasons=("L1_LEXICAL:2",))
    second = candidate(lane_ranks=(LaneRank("vector", 7),), hit_reasons=("L1_VECTOR:7",))
    (fused,) = fuse([first, second])
    assert [(item.lane, item.rank) for item in fused.lane_ranks] == [("lexical", 2), ("vector", 7)]
    assert set(fused.hit_reasons) == {"L1_LEXICAL:2", "L1_VECTOR:7"}


def test_the_best_rank_of_a_lane_counts():
    assert best_ranks([LaneRank("a", 4), LaneRank("a", 2)]) == (LaneRank("a", 2),)


def test_one_source_key_gives_one_block_with_the_title_of_the_hint():
    passage = candidate("p", source_key="path:a.md#x", lane_ranks=(LaneRank("lexical", 1),))
    hint = candidate(
        "h", kind="hint", layer=Layer.L0, source_key="path:a.md#x", title="Curated", lane_ranks=(LaneRank("hints", 3),)
    )
    merged, omitted = merge_by_source_key(fuse([passage, hint]))
    assert [(item.title, item.merged_count, item.layers) for item in merged] == [("Curated", 2, (Layer.L0, Layer.L1))]
    assert merged[0].text == passage.text
    assert [item.reason for item in omitted] == [Reason.DUPLICATE_SOURCE]


def test_a_rank_key_never_merges_across_layers():
    pair = [
        candidate("1", source_key="rank:1", source_key_basis=KeyBasis.RANK),
        candidate("2", source_key="rank:1", source_key_basis=KeyBasis.RANK, layer=Layer.L0),
    ]
    assert len(merge_by_source_key(fuse(pair))[0]) == 2


def test_texts_that_differ_in_a_number_are_not_duplicates():
    base = "The retention period for audit logs is {} days, after which they are deleted for good."
    assert not are_near_duplicates(Fingerprint(base.format(30)), Fingerprint(base.format(90)))
    assert are_near_duplicates(Fingerprint(base.format(30)), Fingerprint(base.format(30).upper() + " "))


def test_twenty_versions_of_a_paragraph_leave_room_for_the_different_answer():
    stem = "To reset your password open the account page, choose security and follow the link that we send by mail"
    versions = [candidate(f"v{n:02}", lane_ranks=(LaneRank("lexical", n + 1),), text=stem + "." * n) for n in range(20)]
    other = candidate(
        "other", lane_ranks=(LaneRank("lexical", 21),), text="An administrator resets a locked account in the console."
    )
    package = package_of([*versions, other], Policy(top_k=5), render)
    assert "other" in {item.key for item in package.kept}
    assert sum(item.reason is Reason.NEAR_DUPLICATE for item in package.omitted) == 19


def test_long_texts_on_one_subject_are_not_duplicates():
    rng = random.Random(7)
    vocabulary = [f"{a}{b}" for a in ("retent", "polic", "secur", "delet", "arch") for b in ("ion", "y", "ity", "ed")]
    first, second = (" ".join(rng.choice(vocabulary) for _ in range(300)) for _ in range(2))
    assert dice(Fingerprint(first).bigrams, Fingerprint(second).bigrams) > 0.9
    assert not are_near_duplicates(Fingerprint(first), Fingerprint(second))


def test_candidates_without_text_are_not_compared():
    pool = [candidate("1", text=None), candidate("2", text=None)]
    assert drop_near_duplicates(pool, 5) == (pool, [])


def test_new_sources_come_first_inside_a_tier_only():
    pool = [candidate(str(n), source=source) for n, source in enumerate(["a", "a", "b", "a", "c", "a", "a", "d"])]
    assert [item.key for item in diversify(pool, 16)] == ["0", "2", "1", "3", "4", "7", "5", "6"]
    assert diversify(pool, 4) == pool


def test_ten_candidates_and_a_budget_for_three_give_seven_reasons():
    pool = [candidate(f"{n:02}", lane_ranks=(LaneRank("lexical", n + 1),), text=f"word{n} " * 5) for n in range(10)]
    package = package_of(pool, Policy(top_k=3), render)
    assert len(package.kept) == 3
    assert [item.reason for item in package.omitted] == [Reason.BELOW_TOP_K] * 7


def test_a_zero_budget_gives_an_empty_package():
    package = package_of([candidate()], Policy(top_k=5, limits=Limits(max_bytes=0)), render)
    assert package.kept == ()
    assert package.omitted[0].reason is Reason.BUDGET_EXCEEDED


def test_one_that_does_not_fit_is_skipped_and_the_next_is_tried():
    pool = [
        candidate("1", lane_ranks=(LaneRank("lexical", 1),), text="x" * 500),
        candidate("2", lane_ranks=(LaneRank("lexical", 2),), text="short"),
    ]
    package = package_of(pool, Policy(top_k=5, limits=Limits(max_bytes=200)), render)
    assert [item.key for item in package.kept] == ["2"]


def test_what_has_no_live_row_is_gone():
    package = package_of([candidate("1", is_gone=True, text=None), candidate("2")], Policy(top_k=5), render)
    assert [item.key for item in package.kept] == ["2"]
    assert [item.reason for item in package.omitted] == [Reason.GONE]


def test_a_protected_passage_stands_for_its_source_key_whatever_other_lanes_rank_first():
    weights = {"lexical_expanded": 0.5}
    first = candidate("a", source_key="k", is_protected=True, lane_ranks=(LaneRank("lexical", 1),), text="first")
    other = candidate(
        "b", source_key="k", lane_ranks=(LaneRank("lexical", 2), LaneRank("lexical_expanded", 1)), text="other"
    )
    (kept,) = package_of([first, other], Policy(top_k=5, weights=weights), render).kept
    assert kept.text == "first"
    assert kept.merged_count == 2


def test_a_candidate_that_another_lane_lifted_is_loaded_before_it_is_cut():
    pool = [
        candidate(
            f"{n:03}",
            lane_ranks=(LaneRank("lexical", n), *((LaneRank("lexical_expanded", n - 21),) if n > 21 else ())),
            text=f"text {n} unlike the others {n}" if n <= 21 else None,
        )
        for n in range(1, 101)
    ]
    policy = Policy(top_k=5, weights={"lexical_expanded": 0.5})
    assert wants_more(package_of(pool, policy, render), policy)
    whole = [replace(item, text=f"text {item.key} unlike {item.key}") for item in pool]
    package = package_of(whole, policy, render)
    assert "022" in {item.key for item in package.kept}
    assert not wants_more(package, policy)


def test_what_a_full_budget_leaves_no_room_for_is_not_read():
    pool = [candidate(f"{n:02}", lane_ranks=(LaneRank("lexical", n + 1),), text=None) for n in range(20)]
    pool[0] = replace(pool[0], text="first")
    policy = Policy(top_k=5, limits=Limits(max_items=1))
    package = package_of(pool, policy, render)
    assert [item.key for item in package.kept] == ["00"]
    assert {item.reason for item in package.omitted} == {Reason.BUDGET_EXCEEDED}
    assert not wants_more(package, policy)


@given(st.lists(st.lists(st.sampled_from(WORDS[:8]), min_size=3, max_size=9).map(" ".join), max_size=40))
def test_looking_up_shingles_drops_the_same_as_comparing_with_each(texts):
    pool = [candidate(f"{n:02}", text=text) for n, text in enumerate(texts)]
    kept: list[Fingerprint] = []
    dropped = 0
    for text in texts:
        print_ = Fingerprint(text)
        if any(are_near_duplicates(print_, other) for other in kept):
            dropped += 1
        else:
            kept.append(print_)
    distinct, omitted = drop_near_duplicates(pool, len(pool))
    assert (len(distinct), len(omitted)) == (len(kept), dropped)


def test_the_title_of_a_hint_is_kept_for_the_very_passage_that_words_find_too():
    words = candidate("1", title="Document", breadcrumb=("Document", "Part"))
    hint = candidate("1", layer=Layer.L0, title="Curated", breadcrumb=("Company",), lane_ranks=(LaneRank("hints", 2),))
    (fused,) = fuse([words, hint])
    assert (fused.title, fused.breadcrumb) == ("Curated", ("Company",))


def test_a_block_is_as_relevant_as_the_text_it_shows():
    shown = candidate("1", source_key="k", relevance=0.5, lane_ranks=(LaneRank("lexical", 1),))
    beside = candidate("2", source_key="k", relevance=0.9, lane_ranks=(LaneRank("lexical", 2),), text="beside")
    (kept,) = package_of([shown, beside], Policy(top_k=5), render).kept
    assert kept.relevance == 0.5
