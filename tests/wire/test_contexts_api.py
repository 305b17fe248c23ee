"""What the contexts API adds to the public wire, and how it refuses."""

from __future__ import annotations

import json

import httpx
import pytest
from taguru import Taguru

from wire.accounting import check, read
from wire.seeds import Wire, fact

pytestmark = pytest.mark.database
JSON = {"content-type": "application/json"}


@pytest.fixture
async def http(server_url):
    async with httpx.AsyncClient(base_url=server_url, timeout=60) as client:
        yield client


@pytest.fixture
def wire(http):
    return Wire(http)


async def evidence(http, name, **body):
    response = await http.post(f"/contexts/{name}/evidence", json=body)
    assert response.status_code == 200, response.text
    package = read(response.text)["result"]
    check(package)
    return package


async def keepers(wire, name):
    """Two keepers of one light, each with a paragraph that says so."""
    path = await wire.context(name)
    keeper = "The keeper of the light is Ida Brandt, who came from the north in a hard winter and stayed for good."
    texts = {"a.md": keeper, "b.md": f"Olaf Lund kept the light before. {'He wrote little. ' * 3}"}
    await wire.send("POST", f"{path}/sources", {"passages": texts, "tags": {"a.md": ["new"]}, "dates": {"b.md": 100}})
    facts = [
        fact("light", "keeper", "Ida Brandt", source="a.md", paragraph=0),
        fact("Olaf Lund", "kept", "light", source="b.md", paragraph=0),
    ]
    await wire.send("POST", f"{path}/associations", facts)


async def test_a_context_is_addressed_by_its_id_too(http, wire, name, server_url):
    row = await wire.send("POST", "/contexts", {"name": name, "description": "by id"})
    assert (row["name"], row["description"]) == (name, "by id")
    with Taguru(server_url, "a key that nobody asks for") as client:
        by_id = client.context(row["id"])
        by_id.add_associations([fact("a", "l", "b")])
        assert by_id.recall("a") == client.context(name).recall("a")
        page = client.recall("a", contexts=[row["id"]])
        assert (page.matches[0].context, page.plan.contexts) == (name, [name])
        assert client.contexts.get(row["id"]).name == name
    across = await http.post("/query", json={"context_ids": [row["id"]], "subject": "a"})
    assert across.json()["result"]["total"] == 1


async def test_a_fact_keeps_the_times_for_which_it_is_asserted_also_through_an_export(wire, name):
    path = await wire.context(name)
    facts = [
        fact("light", "keeper", "Ida", source="a", valid_from=100, valid_until=200),
        fact("light", "keeper", "Ida", 3.0, source="a", valid_from=300),
        fact("light", "keeper", "Olaf", source="a"),
    ]
    await wire.send("POST", f"{path}/associations", facts)
    ida, olaf = (await wire.send("POST", f"{path}/query", {"subject": "light"}))["matches"]
    (told,) = ida["attributions"]
    assert (ida["weight"], ida["count"], told["weight"], told["count"]) == (2.0, 2, 4.0, 2)
    assert told["intervals"] == [
        {"valid_from": 100, "valid_until": 200, "weight": 1.0, "count": 1},
        {"valid_from": 300, "valid_until": None, "weight": 3.0, "count": 1},
    ]
    assert "intervals" not in olaf["attributions"][0]
    exported = (await wire.http.get(f"{path}/export")).text
    await wire.send("POST", "/import", exported.replace(f'"{name}"', f'"{name}-r"'))
    restored = await wire.send("POST", f"{path}-r/query", {"subject": "light"})
    assert restored["matches"] == [ida, olaf]
    refused = await wire.http.post(f"{path}/associations", json=[fact("a", "l", "b", valid_from=2, valid_until=1)])
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_argument")
    assert refused.json()["issues"][0]["path"] == "associations[0].valid_until"


async def test_the_defaults_of_the_added_fields_leave_a_package_as_it_is(http, wire, name):
    await keepers(wire, name)
    body = {"origins": ["light"], "labels": ["keeper"], "text_fallback_query": "keeper of the light"}
    off = dict.fromkeys(("object_facts", "share_text", "numeric_conflicts", "extracts", "revision"), False)
    none = dict.fromkeys(("contexts", "groups", "since", "until", "anchor_floor", "tokenizer"))
    plain = await evidence(http, name, **body)
    assert await evidence(http, name, **body, **off, **none, tags=[], contradictions="atomic") == plain


async def test_the_added_fields_of_an_evidence_request_do_what_they_say(http, wire, name):
    await keepers(wire, name)
    other = f"{name}-b"
    await wire.context(other, [fact("light", "keeper", "Nobody")])
    body = {"origins": ["light"], "text_fallback_query": "keeper of the light"}
    anchored = await evidence(http, name, **body, anchor_floor=0.5)
    (anchor,) = anchored["anchors"]
    assert (anchor["cue"], anchor["name"], anchor["kind"], anchor["score"]) == ("light", "light", "exact", 1.0)
    asked = {"origins": ["light"], "labels": ["kept"], "activate_limit": 0, "search_limit": 0}
    assert (await evidence(http, name, **asked))["items"] == []
    (found,) = (await evidence(http, name, **asked, object_facts=True))["items"]
    assert found["association"]["subject"] == "Olaf Lund"
    tagged = await evidence(http, name, **body, tags=["new"])
    assert {item["passage"]["source"] for item in tagged["items"] if item["kind"] == "passage"} == {"a.md"}
    dated = await evidence(http, name, **body, until=101)
    assert {item["passage"]["source"] for item in dated["items"] if item["kind"] == "passage"} == {"b.md"}
    shared = await evidence(http, name, **body, share_text=True)
    ids = {item["candidate_id"] for item in shared["items"]}
    assert any(entry["citation"].get("text_in") in ids for entry in shared["citations"])
    assert shared["budget"]["bytes_used"] < (await evidence(http, name, **body))["budget"]["bytes_used"]
    across = await evidence(http, name, **body, contexts=[other])
    assert {item["context"] for item in across["items"]} == {name, other}
    revised = await evidence(http, name, **body, revision=True)
    assert [entry["context"] for entry in revised["revision"]] == [name]
    assert revised["plan"]["lanes"]["activate"]["candidates"] == 2
    counted = await http.post(f"/contexts/{name}/evidence", json={**body, "tokenizer": "no such"})
    assert (counted.status_code, counted.json()["code"]) == (400, "invalid_argument")


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "code"),
    [
        ("GET", "/contexts/{name}/nothing", None, 404, "unknown_path"),
        ("GET", "/contexts/{name}/query", None, 405, "method_not_allowed"),
        ("POST", "/contexts/{name}/query", b"{", 400, "malformed_request"),
        ("POST", "/contexts/{name}/query", b'{"subject": "a", "subject": "b"}', 400, "malformed_request"),
        ("POST", "/contexts/{name}/query", b'{"subject": 7}', 422, "malformed_request"),
        ("POST", "/contexts/{name}/query", b"[]", 422, "malformed_request"),
        ("POST", "/contexts/{name}/query", b"[" * 100 + b"]" * 100, 400, "malformed_request"),
        ("POST", "/contexts/{name}/recall", b'{"cue": "\\ud800"}', 400, "invalid_argument"),
        ("POST", "/contexts/{name}/sources", b'{"passages": {}, "dates": "\\ud800"}', 422, "malformed_request"),
        ("POST", "/contexts/{name}/recall", b'{"cue": "a", "limit": -1}', 400, "invalid_argument"),
        ("POST", "/contexts/{name}/recall", b'{"cue": "a", "limit": 1001}', 400, "over_limit"),
        ("POST", "/contexts/{name}/paths", b'{"origins": "a", "targets": "b", "limit": 101}', 400, "over_limit"),
        ("POST", "/contexts/{name}/associations", b'{"subject": "a"}', 422, "malformed_request"),
        ("POST", "/query", b'{"contexts": ["{name}"], "since": 1}', 400, "invalid_argument"),
        ("GET", "/contexts?limit=many", None, 400, "invalid_argument"),
        ("GET", "/contexts/{name}/changes?since=nowhere", None, 400, "invalid_argument"),
        ("GET", "/groups/none", None, 404, "no_group"),
        ("GET", "/contexts/{name}/schema", None, 404, "no_schema"),
        ("GET", "/contexts/none", None, 404, "no_context"),
    ],
)
async def test_a_refusal_has_the_envelope_and_a_code(http, wire, name, method, path, content, status, code):
    await wire.context(name)
    content = None if content is None else content.replace(b"{name}", name.encode())
    response = await http.request(method, path.replace("{name}", name), content=content, headers=JSON)
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code), body
    assert body["status"] == "error"
    assert body["error"]
    assert isinstance(body["time"], float)
    assert response.headers["content-type"].startswith("application/json")


async def test_text_that_is_no_json_is_refused_by_its_type(http, wire, name):
    await wire.context(name)
    response = await http.post(f"/contexts/{name}/query", content=b"subject=a", headers={"content-type": "text/plain"})
    assert (response.status_code, response.json()["code"]) == (415, "malformed_request")


async def test_an_export_by_id_is_read_back_by_id(http, wire, name):
    path = await wire.context(name, [fact("a", "l", "b", source="s")])
    row = await wire.send("GET", path)
    lines = [json.loads(line) for line in (await http.get(f"{path}/export?form=id")).text.splitlines()]
    assert (lines[0]["type"], lines[0]["id"], lines[0]["context_id"]) == ("source", "s", row["id"])
    result = await wire.send("POST", "/import", "\n".join(map(json.dumps, lines)))
    assert result["batches"][0]["retracted"] == 1
    assert (await wire.send("POST", f"{path}/recall", {"cue": "a"}))["matches"][0]["count"] == 1
