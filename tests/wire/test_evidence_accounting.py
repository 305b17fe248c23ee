"""Evidence packages over random graphs, passages and requests: every count is what the answer holds."""

from __future__ import annotations

import json
import random
from pathlib import Path

import httpx
import pytest

from strata.app import create_app
from wire.accounting import check, read
from wire.seeds import Wire, fact

RECORDED = Path(__file__).parents[1] / "data" / "wire" / "http"
NAMES = (
    *("Ada", "Bo", "Çelik", "Δelta", "蔵", "青嶺酒造", "🎉 party", "El Niño"),
    *("x" * 40, 'a "quoted" \\ name', "tab\tname"),
)
LABELS = ("keeps", "near", "杜氏", "is_a")
WORDS = (
    *("light", "keeper", "weather", "harbour", "seven", "42", "of", "the", "Ada", "Bo"),
    *("酒造", "蔵元である", "naïve", "🎉"),
)
PACKAGES = 1_000


def paragraph(chance):
    return " ".join(chance.choices(WORDS, k=chance.randint(1, 40))) + "."


def graph(chance, sources):
    facts = []
    for _ in range(chance.randint(5, 40)):
        subject, object_ = chance.sample(NAMES, 2)
        more = {}
        if chance.random() < 0.8:
            more["source"] = chance.choice([*sources, "elsewhere"])
            if chance.random() < 0.7:
                more["paragraph"] = chance.randint(0, 4)
        facts.append(fact(subject, chance.choice(LABELS), object_, chance.choice([1.0, -1.0, 0.5, 3.25, 1e-7]), **more))
    return facts


async def fill(wire, name, chance):
    path = await wire.context(name)
    sources = [f"{name}/doc {number}.md" for number in range(chance.randint(1, 8))]
    texts = {source: "\n\n".join(paragraph(chance) for _ in range(chance.randint(1, 5))) for source in sources}
    if chance.random() < 0.7:
        texts[f"{name}/copy"] = texts[sources[0]]
    marks = {source: [{"paragraph": 0, "section": "Begin «1»"}] for source in sources if chance.random() < 0.5}
    pages = {source: [{"paragraph": 0, "locator": {"kind": "page", "value": "1"}}] for source in sources[:2]}
    body = {
        "passages": texts,
        "sections": marks,
        "locators": pages,
        "tags": {sources[0]: ["red"]},
        "dates": {sources[0]: 9},
    }
    await wire.send("POST", f"{path}/sources", body)
    await wire.send("POST", f"{path}/associations", graph(chance, sources))


def request(chance, contexts):
    body = {"origins": chance.choices([*NAMES, "nobody"], k=chance.randint(0, 3))}
    optional = {
        "labels": lambda: chance.sample(LABELS, 2),
        "text_fallback_query": lambda: " ".join(chance.choices(WORDS, k=chance.randint(0, 6))),
        "search_limit": lambda: chance.randint(0, 30),
        "activate_limit": lambda: chance.randint(0, 60),
        "activate_decay": chance.random,
        "dice_floor": chance.random,
        "include_communities": lambda: True,
        "budget": lambda: budget(chance),
        "rerank": dict,
        "contexts": lambda: chance.sample(contexts, 2),
        "tags": lambda: ["red"],
        "since": lambda: chance.randint(0, 20),
        "anchor_floor": chance.random,
        "object_facts": lambda: True,
        "share_text": lambda: True,
        "contradictions": lambda: "partial",
        "numeric_conflicts": lambda: True,
        "extracts": lambda: True,
        "revision": lambda: True,
    }
    return body | {name: make() for name, make in optional.items() if chance.random() < 0.3}


def budget(chance):
    ceilings = {
        "max_items": chance.choice([0, 1, 3, 10, 1000]),
        "max_bytes": chance.choice([0, 3, 4, 300, 900, 2_000, 10_000, 1_048_576]),
        "max_tokens": chance.choice([0, 1, 70, 250, 600, 3_000, 1_000_000]),
    }
    return {name: value for name, value in ceilings.items() if chance.random() < 0.6}


@pytest.mark.database
@pytest.mark.slow
async def test_a_thousand_random_packages_count_right(settings, services):
    chance = random.Random(20)
    transport = httpx.ASGITransport(create_app(settings, services=services), raise_app_exceptions=False)
    contexts = [f"random-{number}" for number in range(4)]
    kinds, reasons, kept = set(), set(), 0
    async with httpx.AsyncClient(transport=transport, base_url="http://strata.test") as client:
        for name in contexts:
            await fill(Wire(client), name, chance)
        for _ in range(PACKAGES):
            body = request(chance, contexts)
            response = await client.post(f"/contexts/{chance.choice(contexts)}/evidence", json=body)
            assert response.status_code == 200, (body, response.text)
            package = read(response.text)["result"]
            check(package)
            asked = body.get("budget", {})
            defaults = {"max_items": 40, "max_bytes": 65_536, "max_tokens": 4_000}
            assert package["budget"]["limits"] == defaults | asked
            kinds |= {item["kind"] for item in package["items"]}
            reasons |= set(package["omitted_by_reason"])
            kept += len(package["items"])
    assert kinds >= {"association", "passage"}
    assert reasons >= {"budget_exceeded", "duplicate_passage", "contradiction_group_exceeds_budget"}
    assert kept > PACKAGES


@pytest.mark.parametrize("path", sorted(RECORDED.glob("evidence_*.json")), ids=lambda path: path.stem)
def test_the_count_agrees_with_the_recorded_packages(path):
    check(read(path.read_text(encoding="utf-8"))["response"]["result"])


def test_the_count_of_a_package_that_is_wrong_by_one_is_found():
    recorded = json.loads((RECORDED / "evidence_mixed_lanes.json").read_text(encoding="utf-8"))["response"]["result"]
    for key in ("items_used", "bytes_used", "tokens_used"):
        wrong = recorded | {"budget": recorded["budget"] | {key: recorded["budget"][key] + 1}}
        with pytest.raises(AssertionError):
            check(wrong)
