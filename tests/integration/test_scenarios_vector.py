"""The scenarios of openspec/specs/vector: passages found by meaning, through the services.

Where it matters what a text means, the bundled model embeds; elsewhere words hashed into vectors do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import UUID

import asyncpg
import msgspec
import pytest

from embedding_support import WordEmbedder, WordEmbedders, bag_of_words
from scenario_support import CONTEXT, ask, doc, pointed, put, row_of, sources
from strata.errors import EMBEDDING_UNAVAILABLE, StrataError
from strata.lanes.lexical.index import LexicalIndex
from strata.lookup.fit import DEFAULT_FIT
from strata.lookup.relevance import Cutoffs
from strata.lookup.schemas import Filters, Lane
from strata.platform.database import Database
from strata.platform.dsn import with_database
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose, open_services
from strata.settings import load_settings
from strata.traces.schemas import Stage

pytestmark = pytest.mark.database

STRATA = Path(sys.executable).with_name("strata")
PARAPHRASE = doc("hr/leave.md", "# Leave\n\nStaff may stay at home for thirty days each year.\n")
OTHER = doc("it/printers.md", "# Printers\n\nToner cartridges are replaced by the help desk on the second floor.\n")
AUDIT = doc("security/audit.md", "# Audit logs\n\nAudit logs are kept for 400 days in the archive, then deleted.\n")
QUESTION = "How much holiday do employees get?"


@pytest.fixture(scope="module")
async def library(server_dsn, template, home):
    """The services with the bundled model, over one database for all of this file: opening both takes seconds."""
    name = f"strata_vector_{os.getpid()}"
    admin = await asyncpg.connect(with_database(server_dsn, "postgres"))
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    dsn = with_database(server_dsn, name)
    settings = load_settings({}, home=str(home), database_url=dsn, embeddings="local")
    database = Database(dsn, settings)
    await database.open()
    composed = compose(settings, database)
    yield composed
    await composed.close()
    await database.close()
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


@pytest.fixture
def embedder():
    """Of so many dimensions that unequal words hardly meet."""
    return WordEmbedder(dimension=1024)


@pytest.fixture
async def meaning(library):
    """The services with the bundled model; what a test made is deleted."""
    yield library
    for context in (await library.contexts.list(DEFAULT_TENANT)).contexts:
        await library.contexts.delete(DEFAULT_TENANT, context.name)


async def embed(services, context: str = CONTEXT) -> None:
    """Make every vector that is owed."""
    await services.embeddings.run(DEFAULT_TENANT, context)


async def test_a_paraphrase_without_a_shared_word_is_found_by_meaning(meaning):
    await put(meaning, PARAPHRASE, OTHER)
    await embed(meaning)
    result = await ask(meaning, QUESTION, lanes=[Lane.VECTOR, Lane.LEXICAL])
    assert sources(result)[0] == "hr/leave.md"
    assert "L1_VECTOR:1" in result.evidence_blocks[0].hit_reasons
    assert result.vector_coverage == 1.0


async def test_without_embeddings_words_answer_and_nothing_is_degraded(services):
    await put(services, PARAPHRASE)
    result = await ask(services, "thirty days at home")
    row = await row_of(services, result)
    assert (result.found, result.vector_coverage, row.status) == (True, None, "SUCCESS")
    assert row.retrieval_details["lanes"]["vector"] == {
        "ran": False,
        "reason": "embeddings are off",
        "candidates": 0,
        "durationMs": 0.0,
    }


async def test_a_source_is_found_by_words_before_its_vectors_are_made(meaning):
    await put(meaning, PARAPHRASE, OTHER)
    result = await ask(meaning, "thirty days at home")
    assert sources(result)[0] == "hr/leave.md"
    assert result.vector_coverage == 0
    assert result.completeness_hint == "PARTIAL"
    assert "0 % of the passages have a vector" in result.completeness_message


async def test_half_the_vectors_are_told_as_half(meaning):
    await put(meaning, PARAPHRASE)
    await embed(meaning)
    await put(meaning, OTHER)
    result = await ask(meaning, "thirty days at home each year")
    assert result.vector_coverage == 0.5
    assert result.completeness_hint == "PARTIAL"


async def test_a_passage_of_both_lanes_has_its_rank_in_each_and_in_their_fusion(meaning):
    await put(meaning, PARAPHRASE, OTHER)
    await embed(meaning)
    result = await ask(meaning, "how many days may staff stay at home?", lanes=[Lane.LEXICAL, Lane.VECTOR])
    block = result.evidence_blocks[0]
    assert [(place.lane, place.rank) for place in block.lane_ranks] == [("hybrid", 1), ("lexical", 1), ("vector", 1)]
    assert block.hit_reasons[:3] == ["L1_RANK:1", "L1_LEXICAL:1", "L1_VECTOR:1"]


async def test_the_first_five_are_the_same_whether_5_or_50_are_asked_for(meaning):
    by_words = [doc(f"w/{n}.md", f"# Zebra {n}\n\nZebra stock list number {n}, shelf {n * 7}.\n") for n in range(60)]
    by_meaning = [
        doc(f"m/{n}.md", f"# Horse {n}\n\nStriped African horses seen grazing at place {n}, herd {n}.\n")
        for n in range(60)
    ]
    await put(meaning, *by_words, *by_meaning)
    await embed(meaning)
    few, many = [await ask(meaning, "where do zebra live?", top_k=k, layers=["L1"]) for k in (5, 50)]
    assert sources(few) == sources(many)[:5]
    assert len(many.evidence_blocks) == 50


async def test_the_vector_lane_alone_nominates_every_block(meaning):
    await put(meaning, PARAPHRASE, OTHER)
    await embed(meaning)
    result = await ask(meaning, QUESTION, lanes=[Lane.VECTOR])
    assert result.found
    assert all([place.lane for place in block.lane_ranks] == ["vector"] for block in result.evidence_blocks)
    lanes = (await row_of(meaning, result)).retrieval_details["lanes"]
    assert lanes["lexical"]["reason"] == lanes["hints"]["reason"] == "not requested"


async def test_an_embedder_that_is_away_degrades_the_answer(meaning, monkeypatch):
    await put(meaning, PARAPHRASE, OTHER)
    await embed(meaning)

    async def away(*_args):
        raise StrataError(EMBEDDING_UNAVAILABLE, "The endpoint refuses connections.")

    monkeypatch.setattr(meaning.embedders, "query_vector", away)
    result = await ask(meaning, "thirty days at home")
    row = await row_of(meaning, result)
    assert sources(result)[0] == "hr/leave.md"
    assert (result.completeness_hint, row.status) == ("DEGRADED", "DEGRADED")
    assert "vector" in result.completeness_message
    assert row.retrieval_details["lanes"]["vector"]["reason"] == "The endpoint refuses connections."


async def test_a_question_from_elsewhere_is_never_high(meaning):
    await put(meaning, PARAPHRASE, OTHER)
    await embed(meaning)
    for question in (
        "Who composed the opera Tosca?",
        "What is the boiling point of mercury?",
        "Which river flows through Cologne?",
    ):
        assert (await ask(meaning, question)).relevance_level in {"NONE", "LOW"}


async def test_a_deleted_source_is_no_longer_near(meaning):
    await put(meaning, PARAPHRASE, OTHER)
    await embed(meaning)
    await meaning.sources.delete(DEFAULT_TENANT, CONTEXT, "hr/leave.md")
    result = await ask(meaning, QUESTION, lanes=[Lane.VECTOR], top_k=50)
    assert "hr/leave.md" not in sources(result)
    assert result.vector_coverage == 1.0


async def test_a_filter_holds_for_the_vector_lane(meaning):
    await put(meaning, PARAPHRASE, OTHER, doc("de/urlaub.md", "# Urlaub\n\nUrlaub gibt es dreissig Tage im Jahr.\n"))
    await embed(meaning)
    result = await ask(meaning, QUESTION, filters=Filters(sources=["it/*", "de/*"]), top_k=50)
    assert set(sources(result)) <= {"it/printers.md", "de/urlaub.md"}


async def test_a_question_of_no_searchable_term_is_asked_by_meaning(meaning):
    await put(meaning, PARAPHRASE, OTHER)
    await embed(meaning)
    result = await ask(meaning, "?!…")
    lanes = (await row_of(meaning, result)).retrieval_details["lanes"]
    assert lanes["lexical"]["reason"] == "the query has no searchable terms"
    assert lanes["vector"]["ran"]
    assert result.empty_reason in {None, "BELOW_FLOOR"}


async def test_a_repeated_question_with_vectors_gets_the_same_bytes(meaning):
    await put(meaning, PARAPHRASE, OTHER)
    await embed(meaning)
    first, second = [await ask(meaning, QUESTION) for _ in range(2)]
    blank = {"lookup_id": UUID(int=0), "trace_id": "", "took_ms": 0.0}
    assert msgspec.json.encode(msgspec.structs.replace(first, **blank)) == msgspec.json.encode(
        msgspec.structs.replace(second, **blank)
    )


async def test_a_context_that_is_not_there_is_refused_with_vectors_too(meaning):
    await put(meaning, PARAPHRASE)
    with pytest.raises(StrataError) as error:
        await ask(meaning, QUESTION, context="someone-elses")
    assert pointed(error.value) == ("context_not_found", "/context")


async def count(services, table: str, tenant: UUID = DEFAULT_TENANT) -> int:
    async with services.database.work(tenant) as connection:
        return await connection.fetchval(f"SELECT count(*) FROM {table}")


@contextmanager
def endpoint():
    """An embedding endpoint of its own port; ``asked`` holds the texts of each call."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            server.asked.append(texts)
            rows = [{"index": at, "embedding": bag_of_words(text).tolist()} for at, text in enumerate(texts)]
            body = json.dumps({"data": rows}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def remote(settings, database):
    """Compose services that embed by an endpoint."""

    def made(server):
        url = f"http://127.0.0.1:{server.server_port}"
        return compose(
            msgspec.structs.replace(
                settings, embeddings="endpoint", embeddings_url=url, embeddings_model="m", embeddings_dimensions=64
            ),
            database,
        )

    return made


async def test_an_endpoint_that_refuses_connections_degrades_the_answer(remote):
    with endpoint() as server:
        services = remote(server)
        await put(services, PARAPHRASE, OTHER)
        await embed(services)
        first = await ask(services, "thirty days at home")
        assert "L1_VECTOR:1" in first.evidence_blocks[0].hit_reasons
    result = await ask(services, "thirty days at home each year")
    row = await row_of(services, result)
    await services.close()
    assert sources(result)[0] == "hr/leave.md"
    assert (result.completeness_hint, row.status) == ("DEGRADED", "DEGRADED")
    assert "without vector" in result.completeness_message
    assert row.retrieval_details["lanes"]["vector"]["reason"].endswith("cannot be reached.")


async def test_an_endpoint_is_not_asked_for_a_second_hop(remote):
    with endpoint() as server:
        services = remote(server)
        await put(services, PARAPHRASE, OTHER)
        await embed(services)
        result = await ask(services, "thirty days at home")
        row = await row_of(services, result)
        await services.close()
    assert [texts for texts in server.asked if any("thirty days at home" in text for text in texts)] == [
        ["thirty days at home"]
    ]
    assert not any(place.lane == "hop" for block in result.evidence_blocks for place in block.lane_ranks)
    assert not row.retrieval_details["lanes"].get("hop", {"ran": False})["ran"]


async def test_a_question_asked_twice_is_embedded_once_and_known_when_the_endpoint_is_away(remote):
    with endpoint() as server:
        services = remote(server)
        await put(services, PARAPHRASE, OTHER)
        await embed(services)
        results = [await ask(services, QUESTION) for _ in range(2)]
        assert [texts for texts in server.asked if QUESTION in texts] == [[QUESTION]]
    results.append(await ask(services, QUESTION))
    await services.close()
    assert {result.completeness_hint for result in results} == {results[0].completeness_hint} != {"DEGRADED"}
    assert all(result.vector_coverage == 1.0 for result in results)


async def test_words_answer_first_and_meaning_when_the_work_is_done(meaning):
    await put(meaning, PARAPHRASE, OTHER)
    before = await ask(meaning, QUESTION)
    assert "hr/leave.md" not in sources(before)
    assert (before.vector_coverage, before.empty_reason) == (0, "UNKNOWN_TERMS")
    await embed(meaning)
    after = await ask(meaning, QUESTION)
    assert sources(after)[0] == "hr/leave.md"
    assert after.vector_coverage == 1.0


async def test_meaning_answers_where_words_take_too_long(settings, database, embedder, monkeypatch):
    async def slow(_self, connection, *_args, **_options):
        await connection.execute("SELECT pg_sleep(60)")

    impatient = Database(settings.database_url, msgspec.structs.replace(settings, statement_timeout_seconds=0.3))
    await impatient.open()
    services = compose(settings, database, embedders=WordEmbedders(embedder))
    await put(services, PARAPHRASE, OTHER)
    await embed(services)
    hurried = compose(settings, impatient, embedders=WordEmbedders(embedder))
    monkeypatch.setattr(LexicalIndex, "search", slow)
    result = await ask(hurried, "thirty days at home", layers=["L1"])
    row = await row_of(hurried, result)
    await hurried.close()
    await services.close()
    await impatient.close()
    assert sources(result)[0] == "hr/leave.md"
    assert (result.completeness_hint, row.status) == ("DEGRADED", "DEGRADED")
    assert row.retrieval_details["lanes"]["lexical"]["reason"] == "statement_timeout"


async def test_a_fit_of_ones_own_decides_the_level(settings, database, embedder, tmp_path):
    path = tmp_path / "fit.json"
    own = msgspec.structs.replace(
        DEFAULT_FIT, space=embedder.space.fingerprint.hex(), cutoffs=Cutoffs(high=1.0, medium=1.0, low=0.001)
    )
    path.write_bytes(msgspec.json.encode(own))
    levels = []
    for fit in (None, path):
        services = compose(
            msgspec.structs.replace(settings, relevance_fit=fit), database, embedders=WordEmbedders(embedder)
        )
        await put(services, AUDIT, OTHER)
        await embed(services)
        levels.append((await ask(services, "audit logs kept 400 days", layers=["L1"])).relevance_level)
        await services.close()
    assert levels == ["HIGH", "LOW"]


async def test_a_deleted_context_leaves_no_vector_space_and_work(embedding_services):
    await put(embedding_services, PARAPHRASE, OTHER)
    await embed(embedding_services)
    await put(embedding_services, doc("late.md", "A text that waits for its vector."))
    tables = ("passage_vector", "embedding_space", "work")
    assert [await count(embedding_services, table) for table in tables] == [2, 1, 1]
    await embedding_services.contexts.delete(DEFAULT_TENANT, CONTEXT)
    assert [await count(embedding_services, table) for table in tables] == [0, 0, 0]


async def test_questions_are_answered_from_the_stored_space_while_another_model_is_configured(
    embedding_services, embedder
):
    await put(embedding_services, PARAPHRASE, OTHER)
    await embed(embedding_services)
    embedders = embedding_services.embedders
    embedders.current, embedders.others = WordEmbedder("better", 48), [embedder]
    answered = await ask(embedding_services, "thirty days at home")
    assert (answered.vector_coverage, answered.completeness_hint != "DEGRADED") == (1.0, True)
    assert "L1_VECTOR:1" in answered.evidence_blocks[0].hit_reasons
    # Where nothing makes such vectors any more, words answer, and the trace says what to do.
    embedders.others = []
    result = await ask(embedding_services, "thirty days at home")
    assert sources(result)[0] == "hr/leave.md"
    assert result.completeness_hint == "DEGRADED"


async def test_why_names_the_place_by_meaning(settings, database, embedder):
    """Of what was nominated, and of what the lane was too short for."""
    few = msgspec.structs.replace(settings, candidates_per_lane=10)
    services = compose(few, database, embedders=WordEmbedders(embedder))
    near = [doc(f"n/{n}.md", f"The harbour crane lifts {n + 100} crates.") for n in range(30)]
    await put(services, *near, doc("far.md", "The harbour has a café of which every seat is taken by noon."))
    await embed(services)
    result = await ask(services, "harbour crane crates", layers=["L1"])
    omitted = next(item for item in result.omitted.items if any(place.lane == "vector" for place in item.lane_ranks))
    known = await services.invocations.why(DEFAULT_TENANT, result.lookup_id, omitted.source_key)
    missing = await services.invocations.why(DEFAULT_TENANT, result.lookup_id, "far.md")
    await services.close()
    assert "vector rank" in known.sentence
    assert (missing.stage, missing.reason) == (Stage.LANE, "BEYOND_LANE_LIMIT")
    assert missing.live.vector_rank > 10
    assert f"vector rank {missing.live.vector_rank}" in missing.sentence
    assert "vector gave 10 candidates" in missing.sentence


async def test_a_server_that_does_not_take_a_search_setting_is_not_served(settings):
    beyond = msgspec.structs.replace(settings, embeddings="local", vector_ef_search=5_000)
    with pytest.raises(StrataError) as refused:
        async with open_services(beyond):
            pass
    assert refused.value.code == "database_setup"
    assert "hnsw.ef_search = 5000" in refused.value.detail


async def test_the_command_line_asks_one_lane(meaning):
    await put(meaning, PARAPHRASE, OTHER)
    await embed(meaning)

    def strata(lane):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STRATA_", "OTEL_"))}
        own = {"STRATA_HOME": str(meaning.settings.home), "STRATA_DATABASE_URL": meaning.settings.database_url}
        return subprocess.run(
            [STRATA, "lookup", QUESTION, "--context", CONTEXT, "--lane", lane, "--json"],
            env=kept | own | {"STRATA_EMBEDDINGS": "local"},
            capture_output=True,
            timeout=120,
            check=False,
        )

    found = strata("vector")
    assert found.returncode == 0, found.stderr.decode()
    blocks = json.loads(found.stdout)["evidenceBlocks"]
    assert blocks[0]["source"] == "hr/leave.md"
    assert {place["lane"] for block in blocks for place in block["laneRanks"]} == {"vector"}
    wrong = strata("smell")
    assert wrong.returncode == 2
    assert b"--lane" in wrong.stderr


async def test_what_a_dropped_category_adds_ranks_after_what_it_holds(meaning):
    await put(
        meaning,
        doc("a.md", "# Leave\n\nStaff may stay at home for thirty days each year.\n", category="hr"),
        doc("b.md", "# Holiday\n\nEmployees get thirty days of holiday each year.\n", category="news"),
    )
    await embed(meaning)
    result = await ask(meaning, "how many days of holiday do employees get?", category="hr", top_k=2, layers=["L1"])
    assert sources(result) == ["a.md", "b.md"]
    ranks = [{place.lane: place.rank for place in block.lane_ranks} for block in result.evidence_blocks]
    assert [rank["hybrid"] for rank in ranks] == [1, 2]
    assert "CATEGORY_FILTER_RELAXED" in result.evidence_blocks[1].hit_reasons


async def test_a_call_that_leaves_meaning_out_is_not_told_of_its_coverage(meaning):
    await put(meaning, PARAPHRASE)
    result = await ask(meaning, "thirty days at home each year", lanes=[Lane.LEXICAL])
    assert result.vector_coverage is None
