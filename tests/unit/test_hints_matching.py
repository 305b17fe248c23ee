"""Which hints a question means, and why."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.hints.fuzzy import FuzzyCache, FuzzyNames
from strata.hints.matching import MAX_MATCHES, guidance, match
from strata.hints.names import bigrams, compact, dice, normalise_name, read_question
from strata.hints.schemas import HintEntry, HintOrigin

CONTEXT = UUID(int=1)
CURATED, FRONTMATTER, DERIVED = HintOrigin.CURATED, HintOrigin.FRONTMATTER, HintOrigin.DERIVED


def hint(number, title, *, origin=CURATED, **fields):
    return HintEntry(hint_id=UUID(int=number), context_id=CONTEXT, origin=origin, title=title, **fields)


def ask(query, *entries):
    return match(read_question(query), entries)


def only(query, *entries):
    found = ask(query, *entries)
    assert len(found) == 1, found
    return found[0]


LEAVE = hint(
    1, "Annual leave policy", aliases=["holiday rules", "有給休暇"], keywords=["days off", "休暇"], category="hr"
)


@pytest.mark.parametrize(
    ("query", "reasons", "is_confident"),
    [
        ("annual LEAVE policy?", ("L0_EXACT",), True),
        ("holiday rules", ("L0_ALIAS",), True),
        ("what do you call the holiday rules here", ("L0_ALIAS",), True),
        ("explain annual leave policy to me", ("L0_ALIAS", "L0_FUZZY:0.74"), True),
        ("ann", ("L0_PREFIX",), False),
        ("an", (), False),
        ("how many days are off", ("L0_KEYWORD",), False),
        ("how many days are offered", (), False),
        ("有給休暇の申請方法", ("L0_ALIAS", "L0_KEYWORD"), True),
        ("夏季休暇はいつ", ("L0_KEYWORD",), False),
        ("ＡＮＮＵＡＬ　ＬＥＡＶＥ　ＰＯＬＩＣＹ", ("L0_EXACT",), True),
        ("anual leave polcy", ("L0_FUZZY:0.87",), False),
        ("unrelated", (), False),
        ("", (), False),
    ],
)
def test_every_reason_that_fires_is_told(query, reasons, is_confident):
    found = ask(query, LEAVE)
    told = found[0].reasons if found else ()
    assert told == reasons
    assert bool(found and found[0].is_confident) == is_confident


def test_fuzzy_is_off_where_a_whole_name_matches():
    other = hint(2, "Annual leave policies")
    assert [m.reasons for m in ask("annual leave policy", LEAVE, other)] == [("L0_EXACT",)]
    assert only("anual leave policies", other).reasons == ("L0_FUZZY:0.97",)


def test_the_longest_name_wins_where_names_overlap():
    tokyo, kyoto = hint(1, "東京都", aliases=[]), hint(2, "京都")
    assert [m.entry.title for m in ask("東京都の人口", tokyo, kyoto)] == ["東京都"]
    assert [m.entry.title for m in ask("京都の人口と東京都の人口", tokyo, kyoto)] == ["東京都", "京都"]


def test_a_keyword_inside_a_longer_name_of_another_hint_does_not_fire():
    policy, leave = hint(1, "annual leave policy"), hint(2, "Absence", keywords=["leave"])
    assert [m.entry.title for m in ask("show the annual leave policy", policy, leave)] == ["annual leave policy"]
    assert {m.entry.title for m in ask("annual leave policy and sick leave", policy, leave)} == {
        "annual leave policy",
        "Absence",
    }


def test_a_derived_name_never_takes_words_from_a_curated_one():
    derived = hint(1, "annual leave policy", origin=DERIVED)
    curated = hint(2, "annual leave")
    assert {m.entry.title for m in ask("the annual leave policy", derived, curated)} == {
        "annual leave policy",
        "annual leave",
    }


@pytest.mark.parametrize(
    ("title", "query", "confident"),
    [
        ("Introduction", "introduction", False),
        ("Paris", "what is near paris today", False),
        ("Paris", "paris", True),
        ("Annual leave", "how is annual leave counted", True),
        ("The leave", "what is the leave", False),
        ("年假", "年假怎么申请", False),
        ("员工手册", "员工手册在哪里", True),
    ],
)
def test_a_derived_name_is_confident_only_where_it_could_hardly_mean_another_thing(title, query, confident):
    assert only(query, hint(1, title, origin=DERIVED)).is_confident is confident


def test_a_generic_heading_inside_a_question_is_no_hit():
    assert ask("give me an introduction to tax", hint(1, "Introduction", origin=DERIVED)) == []


def test_a_name_that_many_documents_share_is_not_confident_unless_curated():
    shared = [hint(number, "Release notes May", origin=DERIVED) for number in range(1, 6)]
    found = ask("release notes may", *shared, hint(9, "Release notes May"))
    assert [m.is_confident for m in found] == [True, False, False, False, False, False]
    assert found[0].entry.origin is CURATED


def test_a_name_of_function_words_matches_only_as_the_whole_question():
    it = hint(1, "IT")
    assert ask("is it raining", it) == []
    assert only("it", it).reasons == ("L0_EXACT",)


def test_equal_hits_are_ordered_by_priority_origin_title_and_id():
    entries = [
        hint(5, "Leave b", aliases=["x y"], origin=DERIVED),
        hint(4, "Leave b", aliases=["x y"], priority=3, origin=DERIVED),
        hint(3, "Leave b", aliases=["x y"]),
        hint(2, "Leave a", aliases=["x y"], origin=FRONTMATTER),
        hint(1, "Leave b", aliases=["x y"], origin=FRONTMATTER),
    ]
    order = [m.entry.hint_id.int for m in ask("tell x y", *entries)]
    assert order[0] == 3
    assert set(order) == {1, 2, 3, 4, 5}


def test_no_more_than_twenty_hits_are_returned():
    assert len(ask("leave", *(hint(n, f"Leave {n}") for n in range(1, 60)))) == MAX_MATCHES


names = st.sampled_from(
    [
        "annual leave",
        "leave",
        "annual leave policy",
        "東京都",
        "京都",
        "C++",
        "introduction",
        "the who",
        "days off",
        "🚀",
    ]
)
queries = st.one_of(
    names,
    st.lists(names, min_size=1, max_size=4).map(" and ".join),
    st.lists(names, min_size=1, max_size=3).map("".join),
    st.text(st.characters(codec=None), max_size=60),
)


@st.composite
def entries_of(draw):
    count = draw(st.integers(0, 8))
    return [
        hint(
            number + 1,
            draw(names),
            origin=draw(st.sampled_from(list(HintOrigin))),
            aliases=draw(st.lists(names, max_size=2)),
            keywords=draw(st.lists(names, max_size=2)),
            priority=draw(st.integers(-2, 2)),
        )
        for number in range(count)
    ]


@given(queries, entries_of(), st.randoms(use_true_random=False))
def test_the_order_of_the_entries_does_not_matter(query, entries, rng: random.Random):
    expected = ask(query, *entries)
    shuffled = list(entries)
    rng.shuffle(shuffled)
    assert ask(query, *shuffled, *shuffled) == expected
    assert all(0 <= m.strength <= 1 and m.reasons for m in expected)


@given(st.text(st.characters(codec=None), max_size=80), st.text(st.characters(codec=None), max_size=80))
def test_no_text_makes_matching_fail(query, name):
    entry = hint(1, name, aliases=[name[::-1]], keywords=[name[:9]])
    found = ask(query, entry)
    guidance(found)
    if normalise_name(query) and normalise_name(query) == normalise_name(name):
        assert "L0_EXACT" in found[0].reasons


@given(st.lists(st.text("abcd 東京", min_size=1, max_size=12), max_size=12), st.text("abcd 東京", max_size=12))
def test_the_index_finds_exactly_the_names_that_resemble(texts, query):
    norms = [(UUID(int=n), normalise_name(text)) for n, text in enumerate(texts)]
    norm = normalise_name(query)
    asked = compact(norm)
    expected = {
        key
        for key, name in norms
        if len(asked) >= 3 and len(compact(name)) >= 3 and dice(bigrams(asked), bigrams(compact(name))) >= 0.6
    }
    assert set(FuzzyNames(norms).search(norm)) == expected


def test_the_cache_forgets_the_contexts_asked_longest_ago(monkeypatch):
    monkeypatch.setattr("strata.hints.fuzzy._MAX_CACHED_NAMES", 3)
    cache, tenant = FuzzyCache(), UUID(int=7)
    for number in range(1, 4):
        cache.put(tenant, UUID(int=number), 5, FuzzyNames([(UUID(int=9), "annual leave"), (UUID(int=8), "sick leave")]))
    assert not cache.is_current(tenant, UUID(int=1), 5)
    assert cache.is_current(tenant, UUID(int=3), 5)
    assert cache.is_current(tenant, UUID(int=3), 4)
    assert not cache.is_current(tenant, UUID(int=3), 6)
    assert cache.search(UUID(int=8), UUID(int=3), "anual leave") == []


def test_guidance_takes_categories_from_confident_hits_only():
    sure = hint(1, "Annual leave", aliases=["holidays"], category="hr", targets=["hr/leave.md#annual", "hr/faq.md"])
    weak = hint(2, "Absence", keywords=["counted"], category="legal", targets=["legal/absence.md", "hr/faq.md"])
    given = guidance(ask("how is annual leave counted", sure, weak))
    assert given.categories == ("hr",)
    assert [(t.path, t.anchor) for t in given.targets] == [
        ("hr/faq.md", None),
        ("hr/leave.md", "annual"),
        ("legal/absence.md", None),
    ]
    assert given.targets[0].weight > given.targets[2].weight > 0
    assert given.extra_terms_text == "Annual leave\nholidays"


def test_guidance_of_nothing_is_empty():
    given = guidance([])
    assert (given.categories, given.targets, given.extra_terms_text) == ((), (), "")
