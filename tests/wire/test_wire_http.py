"""Recorded requests of the public wire, sent to ours: the answers are equal but for what is named here."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import httpx
import pytest

from strata.app import create_app
from wire.accounting import check, read
from wire.comparing import check_scores, differences, is_of_scores, settled
from wire.seeds import SEEDS, Wire

pytestmark = pytest.mark.database
FOLDER = Path(__file__).parents[1] / "data" / "wire"
FILES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((FOLDER / "http").glob("*.json"))}
SHAPES = json.loads((FOLDER / "shapes.json").read_text(encoding="utf-8"))

WORDS = "a sentence of our own; code, shape and members are equal"
NOT_SERVED = {"error_forbidden": "there are no keys, so no key whose scope ends"}
OUR_SCORES = {"evidence_duplicate_passage", "evidence_mixed_lanes", "sources_search"}
"""Recordings with scores of a search; ours rank alike with numbers of their own."""

ONE_CHARACTER = "a word of one character finds the paragraphs that hold it, so passages come beside the facts"
FINGERPRINT = "a hash of the same evidence, by a function of our own"
FIELDS: dict[str, dict[str, str]] = {
    "changes_stale_cursor": {"error": WORDS},
    "communities_search": {"result.derived_id": "an addition: contexts have ids"},
    "consolidation_audit": {
        "result.contradiction.candidates[].fingerprint": FINGERPRINT,
        "result.merge.candidates[].fingerprint": FINGERPRINT,
        "result.merge.semantic_note": WORDS,
        "result.staleness.candidates[].fingerprint": FINGERPRINT,
    },
    "contexts_list": {
        "result.contexts[].id": "an addition: contexts have ids",
        "result.contexts[].stats.footprint_bytes": "rows of a database, not an image",
    },
    "drift_audit": {"result.twins.semantic_note": WORDS},
    "error_malformed_request": {"error": WORDS},
    "error_no_context": {"error": WORDS},
    "error_over_limit": {"error": WORDS},
    "evidence_communities_degrade_and_rerank_reason": {"result.plan.lanes.communities.reason": WORDS},
    "evidence_contradiction_group": dict.fromkeys(("result.budget.items_used", "result.items[]"), ONE_CHARACTER),
    "import_refusal_durable_prefix": {"error": WORDS},
    "promote": {"result.audit.merge.semantic_note": WORDS},
    "version": {
        "image_formats": "there are no image files",
        "record_formats": "an addition: dated records are read too",
    },
    "vocabulary_audit": {"result.semantic_note": WORDS},
}
"""Recordings that are equal but for some fields, each with the reason."""


@pytest.fixture
async def http(settings, services):
    transport = httpx.ASGITransport(create_app(settings, services=services), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://strata.test") as client:
        yield client


async def answer(http, recorded, place):
    path, _, query = recorded["route"].partition("?")
    path = path.replace("{name}", place.context) + place.query + (f"?{query}" if query else "")
    request = recorded["request"]
    if isinstance(request, str):
        content, kind = request.encode(), "application/x-ndjson"
    else:
        content = None if request is None else json.dumps(request, ensure_ascii=False).encode()
        kind = "application/json"
    headers = {} if content is None else {"content-type": kind}
    return await http.request(recorded["method"], path, content=content, headers=headers)


def verdict(recorded, response):
    """The paths that differ, and which kind of pass that is."""
    ours = read(response.text)
    if recorded["operation"].startswith("evidence_"):
        check(ours["result"])
    paths = differences(recorded["response"], settled(ours))
    scores = [path for path in paths if is_of_scores(path)]
    if scores:
        check_scores(ours["result"])
    named = [path for path in paths if path not in scores]
    return named, "but for fields" if named else "our scores" if scores else "whole"


def expected(operation):
    if operation in FIELDS:
        return "but for fields"
    return "our scores" if operation in OUR_SCORES else "whole"


@pytest.mark.parametrize("operation", [name for name in FILES if name not in NOT_SERVED])
async def test_a_recorded_request_is_answered_as_recorded(http, operation):
    recorded = FILES[operation]
    place = await SEEDS[operation](Wire(http))
    response = await answer(http, recorded, place)
    assert response.status_code == recorded["status"], response.text
    paths, kind = verdict(recorded, response)
    assert paths == sorted(FIELDS.get(operation, {})), response.text
    assert kind == expected(operation)


async def test_where_passages_come_beside_recorded_facts_the_facts_are_as_recorded(http):
    recorded = FILES["evidence_contradiction_group"]
    ours = (await answer(http, recorded, await SEEDS["evidence_contradiction_group"](Wire(http)))).json()["result"]
    kinds = [item["kind"] for item in ours["items"]]
    assert kinds == ["association", "association", "passage", "passage"]
    assert differences(recorded["response"]["result"]["items"], ours["items"][:2]) == ["[].fused_rank"]


def test_every_recording_has_a_seed_or_a_reason():
    assert set(SEEDS) | set(NOT_SERVED) == set(FILES)
    assert set(SEEDS).isdisjoint(NOT_SERVED)
    assert {*FIELDS, *OUR_SCORES} <= set(SEEDS)
    assert all(reason for fields in FIELDS.values() for reason in fields.values())


def test_how_many_recordings_are_answered_in_which_way():
    tally = Counter(expected(name) for name in SEEDS) + Counter({"not served": len(NOT_SERVED)})
    assert tally == {"whole": 19, "our scores": 3, "but for fields": 14, "not served": 1}, tally


@pytest.mark.parametrize("route", sorted(SHAPES["required_request_fields"]))
async def test_a_field_that_the_wire_requires_is_required(http, route):
    await Wire(http).context("shapes")
    fields = SHAPES["required_request_fields"][route]
    whole = dict.fromkeys(fields, "x")
    for field in fields:
        body = {key: value for key, value in whole.items() if key != field}
        response = await http.post(route.replace("{name}", "shapes"), json=body)
        assert (response.status_code, response.json()["code"]) == (422, "malformed_request")
    if route != "/contexts/{name}/communities/search":
        assert (await http.post(route.replace("{name}", "shapes"), json=whole)).status_code == 200
