"""Names by meaning: their glosses as vectors, made when asked for, searched where spelling finds little."""

from __future__ import annotations

import pytest

from strata.errors import EMBEDDINGS_UNCONFIGURED, StrataError
from strata.knowledge.graph_meanings import NO_EMBEDDER, NOT_EMBEDDED
from strata.knowledge.graph_model import Assertion, SourcedAssertion
from strata.platform.ids import DEFAULT_TENANT as T

pytestmark = pytest.mark.database
CUE = "who brews cold"


@pytest.fixture
async def graph(embedding_services):
    await embedding_services.contexts.create(T, "kura")
    await add(
        embedding_services.graph,
        ("Takase", "brews", "cold sake"),
        ("Aomine", "toji", "Takase"),
        ("Gull Rock", "seen from", "Harrow"),
    )
    return embedding_services.graph


async def add(graph, *facts):
    await graph.add_associations(T, "kura", [SourcedAssertion(Assertion(*fact, 1.0), "a.md") for fact in facts])


async def names(graph, cue=CUE, **options):
    return [(item.name, item.tier) for item in await graph.resolve(T, "kura", cue, **options)]


async def vectors(services):
    async with services.database.work(T) as connection:
        return await connection.fetchval("SELECT count(*) FROM name_vector")


async def test_a_name_is_found_by_what_its_facts_say_once_it_is_embedded(graph):
    assert await names(graph) == []
    report = await graph.refresh_names(T, "kura")
    assert (report.embedded, report.concepts, report.labels) == (8, 5, 3)
    found = await names(graph, semantic_floor=0.3)
    # Both have the fact in their gloss.
    assert {name for name, _ in found[:2]} == {"Takase", "cold sake"}
    assert len(found) <= 5
    assert {tier for _, tier in found} == {"semantic"}
    labels = await graph.resolve_label(T, "kura", "cold sake", semantic_floor=0.3)
    assert (labels[0].name, labels[0].tier) == ("brews", "semantic")


async def test_a_name_that_is_spelled_out_is_not_looked_for_by_meaning(graph):
    await graph.refresh_names(T, "kura")
    assert await names(graph, "Takase", semantic_floor=0) == [("Takase", "lexical")]


async def test_the_floor_of_the_call_goes_before_that_of_the_context(graph, embedding_services):
    await graph.refresh_names(T, "kura")
    assert await names(graph, semantic_floor=0.999) == []
    assert await names(graph, semantic_floor=0.3)


async def test_only_names_whose_facts_have_changed_are_embedded_again(graph, embedder):
    await graph.refresh_names(T, "kura")
    assert (await graph.refresh_names(T, "kura")).embedded == 0
    await add(graph, ("Takase", "lives in", "Kiriza"))
    before = len(embedder.calls)
    assert (await graph.refresh_names(T, "kura")).embedded == 3
    assert sum(map(len, embedder.calls[before:])) == 3


async def test_a_name_that_is_retracted_takes_its_vector_along(graph, embedding_services):
    await graph.refresh_names(T, "kura")
    assert await vectors(embedding_services) == 8
    await graph.retract_association(T, "kura", "Gull Rock", "seen from", "Harrow")
    assert await vectors(embedding_services) == 5
    await embedding_services.contexts.delete(T, "kura")
    assert await vectors(embedding_services) == 0


async def test_an_explanation_accounts_for_meaning(graph):
    before = await graph.explain_resolve(T, "kura", CUE, "Takase")
    assert (before.verdict, before.semantic.reason) == ("semantic_not_run", NOT_EMBEDDED)
    await graph.refresh_names(T, "kura")
    served = await graph.explain_resolve(T, "kura", CUE, "Takase", semantic_floor=0.3)
    assert (served.verdict, served.semantic.entered, served.semantic.rank) == ("served", True, 2)
    below = await graph.explain_resolve(T, "kura", CUE, "Harrow", semantic_floor=0.9)
    assert below.verdict == "semantic_below_floor"
    unknown = await graph.explain_resolve(T, "kura", CUE, "Nobody")
    assert {near.name for near in unknown.nearest.semantic[:2]} == {"Takase", "cold sake"}


async def test_the_audit_of_the_vocabulary_pairs_names_of_near_meaning(graph):
    before = await graph.vocabulary_audit(T, "kura")
    assert (before.semantic_concepts, before.semantic_note) == ([], NOT_EMBEDDED)
    await add(graph, ("T. Master", "brews", "cold sake"))
    await graph.refresh_names(T, "kura")
    audit = await graph.vocabulary_audit(T, "kura", cosine_floor=0.5)
    assert {"Takase", "T. Master"} & {name for pair in audit.semantic_concepts for name in (pair.a, pair.b)}
    assert all(pair.score >= 0.5 for pair in audit.semantic_concepts)


async def test_an_embedder_that_is_down_leaves_the_spelling(graph, embedding_services):
    await graph.refresh_names(T, "kura")
    embedding_services.embedders.can_open = False
    assert await names(graph) == []
    assert next(item.name for item in await graph.resolve(T, "kura", "Takas")) == "Takase"


async def test_without_an_embedder_nothing_is_embedded_and_the_reason_says_so(services):
    await services.contexts.create(T, "kura")
    await add(services.graph, ("a", "l", "b"))
    with pytest.raises(StrataError) as raised:
        await services.graph.refresh_names(T, "kura")
    assert raised.value.kind is EMBEDDINGS_UNCONFIGURED
    explained = await services.graph.explain_resolve(T, "kura", "zzz", "a")
    assert explained.semantic.reason == NO_EMBEDDER
