"""The scale benchmark gives every passage its vector, builds the index where it pays, and cleans up."""

from __future__ import annotations

import pytest

from evaluate_support import JUDGED
from strata.evaluate.remix import Corpus
from strata.evaluate.scale import CONTEXT, Rounds, Scale, Statements, Subject, memory_of
from strata.lanes.vector.index_repository import index_name
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose

SHORT = Rounds(warm=1, timed=3, bare=2, seconds=0.01)


@pytest.fixture
async def statements(settings, database):
    return Statements(database.dsn, settings)


@pytest.fixture
async def asking(settings, statements, embedder):
    from embedding_support import WordEmbedders

    composed = compose(settings, statements, embedders=WordEmbedders(embedder))
    yield composed
    await composed.close()
    await statements.close()


def subject(filling, asking, statements, folder):
    return Subject(
        database=statements,
        sources=filling.sources,
        lookup=asking.lookup,
        embedders=asking.embedders,
        embed=lambda context: asking.embeddings.run(DEFAULT_TENANT, context),
        exact_limit=40,
        folder=folder,
    )


async def spaces(services):
    (view,) = (await services.embeddings.context_status(DEFAULT_TENANT, CONTEXT)).spaces
    return view


async def indexes(database):
    async with database.owner() as connection:
        rows = await connection.fetch("SELECT indexname FROM pg_indexes WHERE indexname LIKE 'passage_vector_hnsw%'")
    return {row["indexname"] for row in rows}


async def test_synthetic_vectors_cover_every_passage_and_are_indexed_above_the_limit(
    services, asking, statements, tmp_path
):
    rows = []
    scale = Scale(subject(services, asking, statements, tmp_path), Corpus([JUDGED / "hotpotqa"]), "synthetic", SHORT)
    await scale.run([30, 60], rows.append)
    assert [(row.passages, row.vectors) for row in rows] == [(30, 30), (60, 60)]
    assert {"lexical", "vector", "embed_query", "record"} <= rows[0].parts_p50_ms.keys()
    assert all(row.p50_ms > 0 and row.trace_share > 0 for row in rows)
    view = await spaces(asking)
    assert (view.vectors, view.is_indexed, view.coverage) == (60, True, 1.0)
    assert await indexes(statements) == {index_name(view.id)}
    await asking.contexts.delete(DEFAULT_TENANT, CONTEXT)
    await scale.close()
    assert await indexes(statements) == set()


async def test_real_vectors_are_those_of_the_embedder(asking, statements, tmp_path, embedder):
    corpus = Corpus([JUDGED / "hotpotqa"])
    (row,) = await Scale(subject(asking, asking, statements, tmp_path), corpus, "real", SHORT).run([20], print)
    assert row.vectors == 20
    assert (await spaces(asking)).vectors == 20
    assert sum(map(len, embedder.calls)) == 20


async def test_without_vectors_words_answer_alone(services, statements, tmp_path):
    corpus = Corpus([JUDGED / "niilc"])
    (row,) = await Scale(subject(services, services, statements, tmp_path), corpus, "none", SHORT).run([10], print)
    assert (row.vectors, row.embed_p50_ms) == (0, 0.0)
    assert row.parts_p50_ms.get("vector", 0.0) == 0.0
    await statements.close()


async def test_memory_is_told_before_and_after_the_first_question(asking):
    memory = await memory_of(asking.embedders)
    assert 0 < memory.without_model_mib <= memory.with_model_mib + 1
