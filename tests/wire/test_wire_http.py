"""Recorded requests of the public wire, sent to ours: the answers are equal but for what is named here."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import httpx
import pytest

from strata.app import create_app
from wire.accounting import check, read
from wire.comparing import check_scores, differences, of_scores, settled
from wire.seeds import SEEDS, Wire

pytestmark = pytest.mark.database
FOLDER = Path(__file__).parents[1] / "data" / "wire"
FILES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((FOLDER / "http").glob("*.json"))}
SHAPES = json.loads((FOLDER / "shapes.json").read_text(encoding="utf-8"))

WORDS = "a sentence of our own; code, shape and members are equal"
NOT_SERVED = {"error_forbidden": "there are no keys, so no key whose scope ends"}
OUR_SCORES = {"communities_search", "evidence_duplicate_passage", "evidence_mixed_lanes", "sources_search"}
"""Recordings with scores of a search; ours rank alike with numbers of their own."""

FIELDS: dict[str, dict[str, str]] = {}
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
    if "budget" in recorded["response"].get("result", ()):
        check(ours["result"])
    paths = differences(recorded["response"], settled(ours))
    if of_scores(paths):
        check_scores(ours["result"])
        return [], "our scores"
    return paths, "whole" if not paths else "but for fields"


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


def test_every_recording_has_a_seed_or_a_reason():
    assert set(SEEDS) | set(NOT_SERVED) == set(FILES)
    assert set(SEEDS).isdisjoint(NOT_SERVED)
    assert {*FIELDS, *OUR_SCORES} <= set(SEEDS)
    assert all(reason for fields in FIELDS.values() for reason in fields.values())


def test_how_many_recordings_are_answered_in_which_way():
    tally = Counter(expected(name) for name in SEEDS) + Counter({"not served": len(NOT_SERVED)})
    assert tally == {"whole": 31, "our scores": 4, "not served": 1}, tally


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
