"""The scenarios of openspec/specs/vector: passages found by meaning, through the services."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest
from scenario_support import CONTEXT, ask, doc, pointed, put, row_of, sources

from strata.errors import EMBEDDING_UNAVAILABLE, StrataError
from strata.lookup.schemas import Filters, Lane
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose

PARAPHRASE = doc("hr/leave.md", "# Leave\n\nStaff may stay at home for thirty days each year.\n")
OTHER = doc("it/printers.md", "# Printers\n\nToner cartridges are replaced by the help desk on the second floor.\n")
QUESTION = "How much holiday do employees get?"


@pytest.fixture
async def meaning(settings, database):
    """The services with the bundled model."""
    composed = compose(msgspec.structs.replace(settings, embeddings="local"), database)
    yield composed
    await composed.close()


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
