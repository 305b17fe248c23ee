"""From a cue to names: every rule against a plain version, and the account of a miss."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.graph.model import EdgeRows, Graph
from strata.graph.names import bigrams, fold, key
from strata.graph.resolve import (
    Resolved,
    Sweep,
    explain_resolve,
    gloss,
    lexical_candidates,
    resolve,
    wants_semantic,
)
from strata.graph.vocabulary import Namespace

CONCEPT, LABEL = Namespace.CONCEPT, Namespace.LABEL


def build(names, aliases=(), facts=()):
    ids = {name: number for number, name in enumerate(names, 1)}
    labels = {label: number for number, label in enumerate(sorted({fact[1] for fact in facts}), 1)}
    rows = [(n, ids[s], labels[label], ids[o], w, 1) for n, (s, label, o, w) in enumerate(facts)]
    return Graph.build(
        1,
        [(number, name) for name, number in ids.items()],
        [(number, name) for name, number in labels.items()],
        [(CONCEPT, alias, ids[name]) for alias, name in aliases],
        EdgeRows.of(rows),
    )


def naive(names, aliases, cue, floor):
    folded = fold(cue)
    spellings = [(name, name) for name in names] + list(aliases)
    carried = {}
    for spelling, _ in spellings:
        for pair in bigrams(fold(spelling)):
            carried[pair] = carried.get(pair, 0) + 1
    stop = {pair for pair, count in carried.items() if count > max(64, len(spellings) / 20)}
    found = []
    for spelling, name in spellings:
        text = fold(spelling)
        if text == folded:
            found.append((1.0, 0, name, "exact" if fold(name) == folded else "alias"))
        elif key(spelling) == key(cue):
            found.append((1.0, 1, name, "exact" if key(name) == key(cue) else "alias"))
    is_exact = bool(found)
    for spelling, name in spellings:
        text = fold(spelling)
        if folded and text and (text in folded or folded in text):
            lengths = sorted((len(text), len(folded)))
            found.append((lengths[0] / lengths[1], 2, name, "containment"))
        elif not is_exact:
            left, right = bigrams(text) - stop, bigrams(folded) - stop
            if left & right and 2 * len(left & right) / (len(left) + len(right)) >= floor:
                found.append((2 * len(left & right) / (len(left) + len(right)), 2, name, "fuzzy"))
    order = {"exact": 0, "alias": 1, "containment": 2, "fuzzy": 3}
    best = {}
    for score, tier, name, kind in sorted(found, key=lambda f: (-f[0], f[1], order[f[3]])):
        best.setdefault(name, (score, tier, kind))
    ranked = sorted(best.items(), key=lambda item: (-item[1][0], item[1][1] == 1, item[0]))
    return [Resolved(name, score, "lexical", kind) for name, (score, _, kind) in ranked]


words = st.text(alphabet="abAB 京都東カか-_1", min_size=1, max_size=6)


@given(
    st.lists(words, min_size=1, max_size=12, unique=True),
    st.lists(st.tuples(words, st.integers(0, 11)), max_size=5, unique_by=lambda pair: pair[0]),
    words,
    st.sampled_from([0.0, 0.3, 0.6]),
)
@settings(max_examples=300, deadline=None)
def test_resolving_equals_its_definition(names, aliases, cue, floor):
    aliases = [(alias, names[place % len(names)]) for alias, place in aliases if alias not in names]
    graph = build(names, aliases)
    if not fold(cue):
        return
    assert lexical_candidates(graph, CONCEPT, cue, dice_floor=floor) == naive(names, aliases, cue, floor)


@pytest.mark.parametrize("cue", ["ab", "abcab", "name 07", "x", "name", "7", "NAME-07 name", "東"])
def test_stop_bigrams_say_nothing(cue):
    names = [f"name {number:03}" for number in range(300)] + ["東京", "abc", "x"]
    assert lexical_candidates(build(names), CONCEPT, cue) == naive(names, [], cue, 0.3)


def test_the_four_kinds():
    graph = build(["青嶺酒造", "東京都", "高瀬"], [("Aomine Brewery", "青嶺酒造")])
    assert resolve(graph, CONCEPT, "青嶺酒造")[0] == Resolved("青嶺酒造", 1.0, "lexical", "exact")
    assert resolve(graph, CONCEPT, "aomine brewery")[0] == Resolved("青嶺酒造", 1.0, "lexical", "alias")
    assert resolve(graph, CONCEPT, "京都") == [Resolved("東京都", 2 / 3, "lexical", "containment")]
    assert resolve(graph, CONCEPT, "青嶺酒蔵") == [Resolved("青嶺酒造", 2 / 3, "lexical", "fuzzy")]


def test_spellings_with_one_key_are_exact():
    graph = build(["System Admin", "系统管理员"])
    for cue in ("system admin", "SystemAdmin", "system_admin"):
        assert resolve(graph, CONCEPT, cue)[0] == Resolved("System Admin", 1.0, "lexical", "exact")
    assert resolve(graph, CONCEPT, "系统管理员")[0].name == "系统管理员"


def test_an_equal_fold_goes_before_an_equal_key():
    graph = build(["a-b", "ab"])
    assert [found.name for found in resolve(graph, CONCEPT, "AB")] == ["ab", "a-b"]


@pytest.mark.parametrize("cue", ["", "\x00", "\ud800", "😀", "שלום", "x" * 5000])
def test_odd_cues_find_nothing(cue):
    assert resolve(build(["alpha", "beta"]), CONCEPT, cue) == []


def test_nothing_resolves_in_an_empty_graph():
    graph = Graph.build(0, [], [], [], EdgeRows.of([]))
    assert resolve(graph, CONCEPT, "a") == []
    assert resolve(graph, LABEL, "a") == []


def test_meaning_joins_only_where_no_spelling_is_confident():
    graph = build(["alpha", "beta", "gamma", "alphabet soup"])
    lexical = lexical_candidates(graph, CONCEPT, "alpine")
    assert wants_semantic(lexical)
    joined = resolve(graph, CONCEPT, "alpine", semantic=[("beta", 0.4), ("gamma", 0.9), (lexical[0].name, 0.99)])
    assert joined == [*lexical, Resolved("gamma", 0.9, "semantic"), Resolved("beta", 0.4, "semantic")]
    assert not wants_semantic(lexical_candidates(graph, CONCEPT, "alpha"))
    assert all(found.tier == "lexical" for found in resolve(graph, CONCEPT, "alpha", semantic=[("beta", 0.9)]))


def test_what_goes_over_the_limit_is_cut_from_the_lexical_tail():
    graph = build(["alpha one", "alpha two", "beta"])
    served = resolve(graph, CONCEPT, "alpx", dice_floor=0.1, limit=2, semantic=[("beta", 0.5)])
    assert [found.name for found in served] == ["alpha one", "beta"]
    assert [f.name for f in resolve(graph, CONCEPT, "zzz", limit=1, semantic=[("beta", 0.5)])] == ["beta"]
    assert resolve(graph, CONCEPT, "alpha", limit=0) == []


def test_no_more_than_five_join_by_meaning():
    graph = build([f"n{number}" for number in range(9)])
    served = resolve(graph, CONCEPT, "zz", semantic=[(f"n{number}", 0.5) for number in range(9)])
    assert [found.name for found in served] == [f"n{number}" for number in range(5)]


def test_a_gloss_tells_the_heaviest_facts_and_denials():
    facts = [
        ("Acme", "makes", "Anvils", 1.0),
        ("Bo", "works at", "Acme", 5.0),
        ("Acme", "sells", "Rockets", -3.0),
        ("Acme", "schema:type", "Company", 9.0),
        ("Acme", "is in", "Oslo", 0.0),
    ]
    graph = build(["Acme", "Anvils", "Bo", "Rockets", "Company", "Oslo"], facts=facts)
    assert gloss(graph, CONCEPT, "Acme") == "Acme. Bo works at Acme. Not so: Acme sells Rockets. Acme makes Anvils."
    assert gloss(graph, LABEL, "makes") == "makes. Acme makes Anvils."
    assert gloss(graph, CONCEPT, "Oslo") == "Oslo"
    assert gloss(graph, CONCEPT, "nobody") == "nobody"


def test_a_gloss_has_four_facts_of_a_concept_and_three_of_a_label():
    names = [f"n{number}" for number in range(9)]
    graph = build(names, facts=[("n0", "likes", name, 1.0) for name in names[1:]])
    assert gloss(graph, CONCEPT, "n0").count("likes") == 4
    assert gloss(graph, LABEL, "likes").count("likes") == 4


GRAPH = build(["青嶺酒造", "高瀬", "青嶺の湖"], [("蔵元", "青嶺酒造")])


def explain(cue, expected, **options):
    return explain_resolve(GRAPH, CONCEPT, cue, expected, **options)


def test_a_served_name_says_its_rank():
    found = explain("青嶺酒造", "青嶺酒造")
    assert (found.verdict, found.canonical, found.expected_kind) == ("served", "青嶺酒造", "exact")
    assert (found.ranking.rank, found.ranking.served, found.ranking.limit_to_reach) == (1, True, 1)
    assert (found.lexical.score, found.lexical.kind, found.lexical.confident) == (1.0, "exact", True)
    assert found.semantic.reason == "a lexical candidate is confident"


def test_a_name_not_stored_shows_the_nearest():
    found = explain("酒", "青嶺酒蔵")
    assert (found.verdict, found.in_vocabulary, found.canonical, found.ranking) == (
        "not_in_vocabulary",
        False,
        None,
        None,
    )
    assert [near.name for near in found.nearest.lexical] == ["青嶺酒造", "青嶺の湖"]
    assert found.nearest.semantic_note == "no embedding provider is configured"


def test_an_exact_cue_explains_why_nothing_fuzzy_ran():
    found = explain("青嶺酒造", "青嶺の湖")
    assert found.verdict == "cue_resolved_exactly"


def test_below_the_floor():
    found = explain("青嶺酒蔵", "青嶺酒造", dice_floor=0.9)
    assert (found.verdict, found.lexical.score, found.lexical.kind) == ("below_floor", 2 / 3, "fuzzy")
    assert found.lexical.floor == 0.9


def test_below_the_cutoff_the_limit_that_serves_is_verified():
    found = explain("青嶺", "青嶺酒造", limit=1)
    assert (found.verdict, found.ranking.rank, found.ranking.limit_to_reach) == ("below_cutoff", 2, 2)
    served = resolve(GRAPH, CONCEPT, "青嶺", limit=found.ranking.limit_to_reach)
    assert "青嶺酒造" in [candidate.name for candidate in served]


def test_meaning_not_asked_and_meaning_too_far():
    assert explain("杜氏", "高瀬").verdict == "semantic_not_run"
    far = explain("杜氏", "高瀬", sweep=Sweep([("高瀬", 0.2)], floor=0.35))
    assert (far.verdict, far.semantic.cosine, far.semantic.entered) == ("semantic_below_floor", 0.2, True)
    near = explain("杜氏", "高瀬", sweep=Sweep([("高瀬", 0.5)], floor=0.35))
    assert (near.verdict, near.ranking.tier, near.semantic.rank) == ("served", "semantic", 1)


@given(words, st.sampled_from(["京都", "aB", "か1", "none"]), st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.9]))
@settings(max_examples=150, deadline=None)
def test_an_explanation_agrees_with_the_call_it_explains(cue, expected, limit, floor):
    graph = build(["京都", "aB", "か1", "ab 京", "東京都", "カカ"])
    sweep = Sweep([("京都", 0.9), ("aB", 0.5), ("か1", 0.1)], floor=0.35)
    found = explain_resolve(graph, CONCEPT, cue, expected, dice_floor=floor, limit=limit, sweep=sweep)
    semantic = [pair for pair in sweep.cosines if pair[1] >= 0.35]
    served = resolve(graph, CONCEPT, cue, dice_floor=floor, limit=limit, semantic=semantic)
    assert (found.verdict == "served") == (expected in [candidate.name for candidate in served])
    if found.verdict == "below_cutoff" and found.ranking.limit_to_reach:
        reach = resolve(graph, CONCEPT, cue, dice_floor=floor, limit=found.ranking.limit_to_reach, semantic=semantic)
        assert expected in [candidate.name for candidate in reach]
