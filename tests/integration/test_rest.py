"""The REST API over the real services: routes, shapes, errors."""

import json
from pathlib import Path

import httpx
import jsonschema_rs
import msgspec
import pytest

from embedding_support import WordEmbedders
from strata.app import CONTROLLERS, create_app
from strata.errors import CATALOGUE
from strata.platform.logging import setup_logging
from strata.platform.openapi import error_page
from strata.services import compose
from strata.settings import load_settings

pytestmark = pytest.mark.database
DOCS = Path(__file__).parents[2] / "docs"
LEAVE = "# Leave\n\n## Vacation\n\nEveryone has 30 days of vacation a year.\n\n## Sickness\n\nTell your lead.\n"


@pytest.fixture
async def client(settings, services):
    setup_logging(settings)
    app = create_app(settings, services=services)
    async with connect(app) as opened:
        yield opened


@pytest.fixture
async def bare(home):
    """A client of an application that has no services: enough for what fails before them."""
    settings = load_settings({}, home=str(home))
    setup_logging(settings)
    async with connect(create_app(settings)) as opened:
        yield opened


def connect(app):
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://strata.test")


def problem(response, status, code):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["code"] == code, body
    assert body["status"] == status
    assert body["type"] == f"/errors#{code}"
    assert all(body[member] for member in ("title", "detail", "remedy"))
    assert len(body["traceId"]) == 32
    assert int(body["traceId"], 16)
    assert body["requestId"] == response.headers["x-request-id"]
    assert isinstance(body["errors"], list)
    return body


async def ingest(client, *documents, context="handbook"):
    response = await client.post(f"/api/v1/contexts/{context}/sources", json={"documents": list(documents)})
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_document_goes_in_and_a_question_brings_it_back(client):
    report = await ingest(client, {"path": "hr/leave.md", "content": LEAVE, "category": "hr"})
    assert report["added"] == 1
    answer = await client.post("/api/v1/lookup", json={"query": "how many vacation days?", "context": "handbook"})
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["found"] is True
    block = result["evidenceBlocks"][0]
    assert block["source"] == "hr/leave.md"
    citation = block["citation"]
    text = await client.get(
        "/api/v1/contexts/handbook/text/hr/leave.md",
        params={"startByte": citation["startByte"], "endByte": citation["endByte"]},
    )
    assert text.json()["sha256"] == citation["sha256"]
    row = await client.get(f"/api/v1/invocations/{result['lookupId']}")
    assert row.json()["traceId"] == result["traceId"]
    assert row.json()["requestId"] == answer.headers["x-request-id"]


async def test_the_get_form_of_a_lookup_answers_the_same(client):
    await ingest(client, {"path": "hr/leave.md", "content": LEAVE})
    got = await client.get("/api/v1/lookup", params={"q": "vacation days", "context": "handbook", "topK": 1})
    posted = await client.post("/api/v1/lookup", json={"query": "vacation days", "context": "handbook", "topK": 1})
    assert got.status_code == posted.status_code == 200
    assert got.json()["evidenceBlocks"] == posted.json()["evidenceBlocks"]


async def test_contexts_are_made_read_renamed_and_deleted(client):
    made = await client.post("/api/v1/contexts", json={"name": "handbook", "future": {"field": 1}})
    assert made.status_code == 201
    context = made.json()
    assert context["createdAt"].endswith("Z")
    assert context["description"] == ""
    problem(await client.post("/api/v1/contexts", json={"name": "handbook"}), 409, "context_exists")
    listed = (await client.get("/api/v1/contexts")).json()
    assert [item["id"] for item in listed["items"]] == [context["id"]]
    assert listed["nextCursor"] is None
    changed = await client.patch(f"/api/v1/contexts/{context['id']}", json={"name": "manual"})
    assert changed.json()["name"] == "manual"
    assert (await client.get("/api/v1/contexts/manual")).json()["id"] == context["id"]
    assert (await client.delete("/api/v1/contexts/manual")).status_code == 204
    problem(await client.get("/api/v1/contexts/manual"), 404, "context_not_found")
    problem(await client.delete("/api/v1/contexts/manual"), 404, "context_not_found")


async def test_sources_are_paged_described_and_deleted_by_path_or_id(client):
    report = await ingest(
        client, *({"path": f"docs/part {number}/ä.md", "content": f"# Part {number}\n\nText.\n"} for number in range(5))
    )
    first = (await client.get("/api/v1/contexts/handbook/sources", params={"limit": 3})).json()
    rest = await client.get("/api/v1/contexts/handbook/sources", params={"limit": 3, "cursor": first["nextCursor"]})
    paths = [item["path"] for item in first["items"] + rest.json()["items"]]
    assert paths == [f"docs/part {number}/ä.md" for number in range(5)]
    assert rest.json()["nextCursor"] is None
    plain = await client.get("/api/v1/contexts/handbook/sources/docs/part 0/ä.md")
    escaped = await client.get("/api/v1/contexts/handbook/sources/docs%2Fpart%200%2F%C3%A4.md")
    by_id = await client.get(f"/api/v1/contexts/handbook/sources/{report['outcomes'][0]['id']}")
    assert plain.json() == escaped.json() == by_id.json()
    assert plain.json()["sections"][0]["heading"] == "Part 0"
    gone = await client.delete("/api/v1/contexts/handbook/sources/docs/part 0/ä.md")
    assert gone.json()["sources"] == 1
    problem(await client.get("/api/v1/contexts/handbook/sources/docs/part 0/ä.md"), 404, "source_not_found")
    problem(await client.get("/api/v1/contexts/handbook/sources?cursor=nonsense!"), 400, "invalid_request")


async def test_one_document_may_stand_alone_and_files_come_as_multipart(client):
    alone = await client.post("/api/v1/contexts/handbook/sources", json={"path": "a.md", "content": "# A\n\nAlpha.\n"})
    assert alone.json()["added"] == 1
    files = [
        ("file", ("b.md", b"# B\n\nBeta is here.\n", "text/markdown")),
        ("file", ("c.txt", "Gamma ünd Delta.".encode(), "text/plain")),
    ]
    many = await client.post("/api/v1/contexts/handbook/sources", files=files, data={"category": "greek", "tags": "x"})
    assert many.status_code == 200, many.text
    assert many.json()["added"] == 2
    detail = (await client.get("/api/v1/contexts/handbook/sources/c.txt")).json()
    assert detail["category"] == "greek"
    assert detail["tags"] == ["x"]
    empty = await client.post("/api/v1/contexts/handbook/sources", files=[("note", (None, b"x"))])
    problem(empty, 400, "invalid_request")


async def test_multipart_that_is_broken_or_too_large_is_refused(client):
    path = "/api/v1/contexts/handbook/sources"
    for content_type, body in (
        ("multipart/form-data; boundary=x", b"--x\r\nnonsense"),
        ("multipart/form-data", b"--x\r\n\r\n--x--"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="f"; filename="a.md"\r\n\r\n',
        ),
        ("multipart/form-data; boundary=x", b"\xff\xfe\x00"),
    ):
        refused = await client.post(path, content=body, headers={"content-type": content_type})
        assert refused.status_code == 400, refused.text
        assert refused.headers["content-type"] == "application/problem+json"

    async def endless():
        yield b'--x\r\nContent-Disposition: form-data; name="f"; filename="a.md"\r\n\r\n'
        while True:
            yield b"a" * 1024 * 1024

    large = await client.post(path, content=endless(), headers={"content-type": "multipart/form-data; boundary=x"})
    problem(large, 413, "body_too_large")
    assert (await client.get("/api/v1/contexts")).json()["items"] == []


async def test_a_refused_document_does_not_stop_the_others_and_alone_is_422(client):
    good = {"path": "good.md", "content": "# Good\n\nText.\n"}
    bad = {"path": "bad.md", "content": ""}
    report = await ingest(client, good, bad)
    assert (report["added"], report["refused"]) == (1, 1)
    assert report["refusals"][0]["path"] == "bad.md"
    body = problem(await client.post("/api/v1/contexts/handbook/sources", json=bad), 422, "source_refused")
    assert body["refusals"][0]["reason"] == body["reason"]


@pytest.mark.parametrize("field", ["metadata", "tags"])
async def test_a_lone_surrogate_where_no_text_belongs_is_the_callers_mistake(client, field):
    response = await client.post(
        "/api/v1/contexts/handbook/sources",
        content=f'{{"path": "odd.md", "content": "x", "{field}": "\\ud800"}}',
        headers={"content-type": "application/json"},
    )
    assert problem(response, 400, "invalid_request")["pointer"] == f"/{field}"


async def test_nul_and_surrogates_in_a_document_are_cleaned_and_counted(client):
    raw = (
        '{"path": "odd.md", "content": "# Odd\\n\\nspeci\\u0000fic \\udbff and \\ud835\\udc00 stay.\\n",'
        ' "metadata": {"ke\\u0000y": "va\\udbfflue"}}'
    )
    response = await client.post(
        "/api/v1/contexts/handbook/sources", content=raw, headers={"content-type": "application/json"}
    )
    assert response.status_code == 200, response.text
    detail = (await client.get("/api/v1/contexts/handbook/sources/odd.md")).json()
    assert detail["normalisation"]
    text = (await client.get("/api/v1/contexts/handbook/text/odd.md")).json()["text"]
    assert "specific" in text
    assert "𝐀" in text


async def test_hints_are_stored_listed_read_and_deleted(client):
    hint = {"title": "Vacation policy", "aliases": ["PTO"], "targets": ["hr/leave.md"]}
    stored = await client.post("/api/v1/contexts/handbook/hints", json={"hints": [hint]})
    assert stored.status_code == 200, stored.text
    hint_id = stored.json()["ids"][0]
    listed = (await client.get("/api/v1/contexts/handbook/hints", params={"origin": "curated"})).json()
    assert [item["id"] for item in listed["items"]] == [hint_id]
    renamed = await client.put(f"/api/v1/contexts/handbook/hints/{hint_id}", json={**hint, "title": "Leave policy"})
    assert renamed.json()["updated"] == 1
    assert (await client.get(f"/api/v1/contexts/handbook/hints/{hint_id}")).json()["title"] == "Leave policy"
    assert (await client.delete(f"/api/v1/contexts/handbook/hints/{hint_id}")).status_code == 204
    problem(await client.get(f"/api/v1/contexts/handbook/hints/{hint_id}"), 404, "hint_not_found")


async def test_a_call_is_listed_and_explains_what_is_missing(client):
    await ingest(client, *({"path": f"{n}.md", "content": f"# {n}\n\nvacation days number {n}\n"} for n in range(4)))
    result = (
        await client.post("/api/v1/lookup", json={"query": "vacation days", "context": "handbook", "topK": 1})
    ).json()
    page = (await client.get("/api/v1/invocations", params={"context": "handbook", "status": "SUCCESS"})).json()
    assert page["items"][0]["id"] == result["lookupId"]
    shown = {block["source"] for block in result["evidenceBlocks"]}
    missing = next(f"{n}.md" for n in range(4) if f"{n}.md" not in shown)
    why = await client.get(f"/api/v1/invocations/{result['lookupId']}/why", params={"target": missing})
    assert why.status_code == 200, why.text
    assert why.json()["isSelected"] is False
    assert why.json()["stage"]
    problem(await client.get(f"/api/v1/invocations/{result['lookupId']}/why"), 400, "invalid_request")
    problem(await client.get("/api/v1/invocations?status=GREAT"), 400, "invalid_request")


async def test_every_wrong_field_is_named_by_its_pointer(client):
    body = problem(
        await client.post("/api/v1/contexts", json={"name": 7, "description": ["x"]}), 400, "invalid_request"
    )
    assert [error["pointer"] for error in body["errors"]] == ["/name", "/description"]
    assert body["pointer"] == "/name"
    body = problem(
        await client.post("/api/v1/contexts/h/hints", json={"hints": [{"title": "a", "aliases": ["b", 3]}]}),
        400,
        "invalid_request",
    )
    assert body["pointer"] == "/hints/0/aliases/1"
    body = problem(await client.get("/api/v1/invocations?limit=0&status=GREAT"), 400, "invalid_request")
    assert {error["pointer"] for error in body["errors"]} == {"?limit", "?status"}
    for moment in ("0.5", "0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-12:00"):
        body = problem(await client.get(f"/api/v1/invocations?since={moment}"), 400, "invalid_request")
        assert body["pointer"] == "?since"
    body = problem(await client.post("/api/v1/contexts", json={}), 400, "invalid_request")
    assert body["pointer"] == "/name"
    problem(await client.post("/api/v1/contexts"), 400, "invalid_request")
    body = problem(await client.post("/api/v1/contexts/h/hints", json={"hints": []}), 400, "invalid_request")
    assert body["pointer"] == "/hints"


FAILURES = (
    ("GET", "/nowhere", 404, "route_not_found"),
    ("GET", "/api/v1/invocations/not-a-uuid", 404, "route_not_found"),
    ("DELETE", "/api/v1/contexts", 405, "method_not_allowed"),
    ("BREW", "/api/v1/contexts", 405, "method_not_allowed"),
    ("GET", "/api/v1/contexts/none", 404, "context_not_found"),
    ("GET", "/api/v1/contexts/none/sources", 404, "context_not_found"),
    ("GET", "/api/v1/invocations/00000000-0000-0000-0000-000000000000", 404, "invocation_not_found"),
    ("GET", "/api/v1/contexts/a%00b", 400, "invalid_request"),
    ("GET", "/api/v1/lookup?q=a%00b", 400, "invalid_request"),
    ("GET", "/actuator/health/nothing", 404, "route_not_found"),
    ("GET", "/docs/assets/..%2f..%2fpackage.json", 404, "route_not_found"),
)


async def test_failures_are_problem_documents(client):
    for method, path, status, code in FAILURES:
        body = problem(await client.request(method, path), status, code)
        assert body["instance"].startswith("/")


async def test_405_names_the_methods_and_head_and_options_work(bare):
    refused = await bare.delete("/api/v1/contexts")
    assert refused.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    head = await bare.head("/actuator")
    assert head.status_code == 200
    assert head.content == b""
    assert int(head.headers["content-length"]) > 0
    options = await bare.options("/api/v1/contexts")
    assert options.status_code == 204
    assert options.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    problem(await bare.options("/nowhere"), 404, "route_not_found")


async def test_an_accept_header_that_rules_json_out_is_406(bare):
    problem(await bare.get("/api/v1/contexts", headers={"accept": "text/csv"}), 406, "not_acceptable")
    problem(await bare.get("/api/v1/contexts", headers={"accept": "application/json;q=0"}), 406, "not_acceptable")
    for accept in ("*/*", "application/*", "text/html, application/json;q=0.5"):
        assert (await bare.get("/api/v1/nowhere", headers={"accept": accept})).status_code == 404


async def test_the_request_id_of_the_caller_is_kept_unless_it_is_odd(bare):
    assert (await bare.get("/livez", headers={"x-request-id": "req-42"})).headers["x-request-id"] == "req-42"
    odd = (await bare.get("/livez", headers={"x-request-id": "a b<script>"})).headers["x-request-id"]
    assert len(odd) == 32


async def test_a_defect_answers_500_and_tells_nothing(client, services, monkeypatch):
    async def broken(*_args, **_kwargs):
        raise RuntimeError("secret canary 4711")

    monkeypatch.setattr(type(services.contexts), "list", broken)
    response = await client.get("/api/v1/contexts")
    problem(response, 500, "internal_error")
    assert "canary" not in response.text


async def test_an_overloaded_pool_answers_503_with_retry_after_and_liveness_stays(client, services, database):
    import contextlib

    from strata.platform.ids import DEFAULT_TENANT

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(services.settings.database_pool_size):
            await stack.enter_async_context(database.work(DEFAULT_TENANT))
        refused = await client.get("/api/v1/contexts")
        problem(refused, 503, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await client.get("/actuator/health/liveness")).status_code == 200
        assert (await client.get("/actuator/health/readiness")).status_code == 503
    assert (await client.get("/api/v1/contexts")).status_code == 200
    assert (await client.get("/readyz")).status_code == 200


async def test_health_has_springs_shape(client):
    response = await client.get("/actuator/health")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("application/vnd.spring-boot.actuator.v3+json")
    body = response.json()
    assert body["status"] == "UP"
    names = {"db", "diskSpace", "embedder", "livenessState", "ping", "readinessState", "schema"}
    assert set(body["components"]) == names
    assert body["groups"] == ["liveness", "readiness"]
    assert (await client.get("/actuator/health/db")).json()["status"] == "UP"
    assert (await client.get("/actuator/info")).json()["app"]["name"] == "strata"
    assert "health" in (await client.get("/actuator")).json()["_links"]


async def test_an_embedder_that_fails_makes_no_server_unhealthy(database, settings, embedder):
    embedders = WordEmbedders(embedder)
    services = compose(settings, database, embedders=embedders)
    async with connect(create_app(settings, services=services)) as client:
        known = (await client.get("/actuator/health/embedder")).json()
        assert known == {
            "status": "UP",
            "details": {"mode": "folder", "model": "words", "isOpen": True, "breaker": None},
        }
        embedders.can_open = False
        alone = await client.get("/actuator/health/embedder")
        assert (alone.status_code, alone.json()["status"]) == (200, "UNKNOWN")
        whole = await client.get("/actuator/health")
        assert (whole.status_code, whole.json()["status"]) == (200, "UP")
    await services.close()


async def test_readiness_drops_while_the_server_drains(client, tmp_path, monkeypatch):
    marker = tmp_path / "draining"
    monkeypatch.setenv("STRATA_DRAIN_FILE", str(marker))
    assert (await client.get("/readyz")).status_code == 200
    marker.touch()
    response = await client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["status"] == "OUT_OF_SERVICE"
    assert (await client.get("/livez")).status_code == 200


async def test_the_openapi_document_describes_every_route_with_examples_and_problems(bare):
    document = (await bare.get("/v3/api-docs")).json()
    assert document["openapi"].startswith("3.1")
    missing = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{method} {path}"
            assert operation["summary"], name
            assert operation["description"], name
            assert operation["tags"], name
            assert operation["responses"]["default"]["$ref"], name
            bodies = [operation.get("requestBody")] + [
                found for status, found in operation["responses"].items() if status.startswith("2")
            ]
            missing += [
                name
                for body in bodies
                if body
                for media, content in body.get("content", {}).items()
                if "json" in media and not content.get("examples")
            ]
    assert missing == []
    handlers = {f"/api/v1/contexts/{{context}}{suffix}" for suffix in ("/sources", "/hints", "/text/{source}")}
    assert handlers <= set(document["paths"])


async def test_the_openapi_examples_fit_their_own_schemas(bare):
    document = (await bare.get("/v3/api-docs")).json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            bodies = [operation.get("requestBody"), *operation["responses"].values()]
            for body in bodies:
                for content in (body or {}).get("content", {}).values():
                    for example in content.get("examples", {}).values():
                        schema = {**content["schema"], "components": document["components"]}
                        errors = [
                            error.message for error in jsonschema_rs.validator_for(schema).iter_errors(example["value"])
                        ]
                        assert errors == [], f"{method} {path}"


async def test_the_documentation_page_names_no_other_host(bare):
    page = await bare.get("/docs")
    assert page.status_code == 200
    assert "://" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png", "start.js"):
        assert (await bare.get(f"/docs/assets/{asset}")).status_code == 200
        assert asset in page.text
    assert "://" not in (await bare.get("/docs/assets/start.js")).text
    redirect = await bare.get("/swagger-ui.html", follow_redirects=False)
    assert redirect.status_code == 302
    assert redirect.headers["location"] == "/docs"
    assert "openapi: 3.1" in (await bare.get("/v3/api-docs.yaml")).text


def test_the_error_catalogue_and_its_document_name_the_same_codes():
    headings = {
        line.removeprefix("## ") for line in (DOCS / "errors.md").read_text().splitlines() if line.startswith("## ")
    }
    assert headings == set(CATALOGUE)
    page = error_page()
    assert all(f'id="{code}"' in page for code in CATALOGUE)


async def test_every_route_is_in_the_rest_document(bare):
    text = (DOCS / "rest.md").read_text()
    document = (await bare.get("/v3/api-docs")).json()
    assert CONTROLLERS
    missing = [
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
        if f"{method.upper()} {path}" not in text
    ]
    assert missing == []


async def test_answers_of_the_api_are_plain_json(client):
    await ingest(client, {"path": "a.md", "content": "# A\n\nText.\n"})
    response = await client.get("/api/v1/contexts/handbook/sources/a.md")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert msgspec.json.decode(response.content) == json.loads(response.text)
    assert response.json()["category"] is None
