"""Evidence packages cost to the byte what packages on the wire of the public contract cost."""

from __future__ import annotations

import pytest

from evidence_support import compact, fact, wire_item, wire_package
from strata.evidence.metering import Bill, Meter, cost_of
from strata.evidence.model import Cost, LaneRank, Limits, Locator, Spend
from strata.evidence.nominate import passage
from strata.evidence.package import omission_reason, omitted_by_reason
from strata.evidence.policy import package_policy

KURA = "青嶺酒造は雲居県霧沢町の蔵元である。杜氏は高瀬である。"
PAGE = {"kind": "page", "value": "1"}


def payload(subject, label, object_, *attributions):
    return {
        "subject": subject,
        "label": label,
        "object": object_,
        "weight": 1.0,
        "count": 1,
        "attributions": [
            {"source": source, "weight": 1.0, "count": 1, "paragraph": 0, "section": None, "locator": locator}
            for source, locator in attributions
        ],
    }


def stated(subject, label, object_, *attributions, rank=1):
    return fact(
        subject,
        label,
        object_,
        *((source, 0) for source, _ in attributions),
        rank=rank,
        payload=payload(subject, label, object_, *attributions),
    )


def found(context, source, text, score, rank=1):
    return passage(
        context,
        source,
        0,
        text,
        LaneRank("passage_bm25", rank),
        payload={
            "source": source,
            "paragraph": 0,
            "score": score,
            "text": text,
            "lanes": {"bm25": {"rank": 1, "score": score}},
        },
    )


def citation(source, text, locator):
    return {Locator(source, 0): {"text": text, "source": source, "section": None, "locator": locator}}


def sizes(package):
    return [(cost.bytes, cost.tokens) for cost in package.costs]


def test_a_fact_and_the_passage_it_stands_in():
    pool = [
        stated("青嶺酒造", "杜氏", "高瀬", ("docs/kura.md", PAGE)),
        found("sake", "docs/kura.md", KURA, 0.86304635),
    ]
    package = wire_package(pool, package_policy(), citation("docs/kura.md", KURA, PAGE))
    assert sizes(package) == [(550, 142), (367, 99)]
    assert package.spend == Spend(items=2, bytes=1142, tokens=303)
    assert [item.locator for item in package.citations] == [Locator("docs/kura.md", 0)]
    assert package.tier_width == 10


def test_a_contradiction_group():
    pool = [
        stated("猫", "is_a", "哺乳類", ("s1.md", PAGE)),
        stated("猫", "is_a", "爬虫類", ("s2.md", None), rank=2),
    ]
    texts = citation("s1.md", "猫は哺乳類である。", PAGE)
    texts |= citation("s2.md", "猫は爬虫類だと主張する文献もある。", None)
    package = wire_package(pool, package_policy(), texts)
    assert sizes(package) == [(570, 146), (547, 140)]
    assert package.spend == Spend(items=2, bytes=1428, tokens=370)
    assert package.contradiction_groups == 1
    assert [item.contradicts for item in package.kept] == [
        ("association\0猫\0is_a\0爬虫類",),
        ("association\0猫\0is_a\0哺乳類",),
    ]


def test_a_budget_for_two_of_five():
    pool = [stated(f"s{n}", "rel", f"o{n}", rank=n + 1) for n in range(5)]
    package = wire_package(pool, package_policy(Limits(2, 65_536, 4_000)))
    assert sizes(package) == [(260, 65), (260, 65)]
    assert package.spend == Spend(items=2, bytes=525, tokens=132)
    assert omitted_by_reason(package.omitted) == {"budget_exceeded": 3}
    assert package.tier_width == 1


def test_one_fact_alone():
    package = wire_package([stated("alpha", "rel", "beta")], package_policy())
    assert sizes(package) == [(270, 68)]
    assert package.spend == Spend(items=1, bytes=274, tokens=69)


def test_a_duplicate_passage():
    text = "the quick brown fox jumps over the lazy dog"
    pool = [found("dup-corpus", "a.md", text, 0.54696476), found("dup-corpus", "b.md", text, 0.54696476, rank=2)]
    package = wire_package(pool, package_policy())
    assert sizes(package) == [(319, 80)]
    assert package.spend == Spend(items=1, bytes=323, tokens=81)
    (omission,) = package.omitted
    assert omission_reason(omission) == "duplicate_passage"
    assert omission.duplicate_of == "passage\0dup-corpus\0a.md\x000"


@pytest.mark.parametrize("limits", [Limits(0, 65_536, 4_000), Limits(40, 0, 4_000), Limits(40, 65_536, 0)])
def test_an_empty_package_costs_its_two_pairs_of_brackets(limits):
    package = wire_package([stated("a", "b", "c"), stated("a", "b", "d", rank=2)], package_policy(limits))
    assert package.spend == Spend(items=0, bytes=4, tokens=1)
    assert omitted_by_reason(package.omitted) == {"contradiction_group_exceeds_budget": 2}


def test_the_meter_counts_commas_and_rounds_tokens_once():
    meter = Meter(Limits(), has_citations=True)
    texts = [compact({"text": text}) for text in ("a", "é", "𠮷\0", "")]
    for text in texts:
        cost = cost_of(text)
        meter.take(Bill(items=1, bytes=cost.bytes, quarters=cost.quarters))
    whole = cost_of("[" + ",".join(texts) + "][]")
    assert meter.spend() == Spend(items=4, bytes=whole.bytes, tokens=whole.tokens)


def test_a_lone_surrogate_has_a_size():
    assert cost_of("\ud800") == Cost(3, 4)


def test_the_id_of_a_candidate_is_its_kind_and_key_joined_by_nul():
    assert '"candidate_id":"association\\u0000猫\\u0000is_a\\u0000哺乳類"' in wire_item(stated("猫", "is_a", "哺乳類"))
