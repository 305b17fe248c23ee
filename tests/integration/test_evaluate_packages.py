"""Evidence packages are measured on a judged set: every way at every budget, over one context that is kept."""

from __future__ import annotations

import msgspec

from embedding_support import WordEmbedders
from evaluate_support import JUDGED, write_set
from strata.evaluate.packages import ASSEMBLY, FUSED, GRAPH, GRAPH_HOP, HOP, PLAIN, PackageMeasure
from strata.platform.ids import DEFAULT_TENANT
from strata.services import compose


async def measured(services, directory, words=None, **options):
    measure = PackageMeasure(
        contexts=services.contexts,
        exchange=services.exchange,
        embeddings=services.embeddings,
        embedders=services.embedders,
        passages=services.passages,
        words=(words or services).passages,
        assembly=services.assembly,
    )
    return await measure.run(DEFAULT_TENANT, directory, **options)


async def test_more_room_never_holds_less_of_plain_search_and_what_needs_vectors_is_left_out(services):
    found = await measured(services, JUDGED / "musique", budgets=(300, 1000, 4000), most=6)
    assert (found.name, found.questions) == ("musique", 6)
    assert list(found.shares) == [PLAIN, ASSEMBLY, GRAPH]
    shares = list(found.shares[PLAIN].values())
    assert shares == sorted(shares)
    assert shares[-1] > 0


async def test_a_second_run_takes_in_nothing_and_finds_the_same(services):
    first = await measured(services, JUDGED / "musique", budgets=(1000,), most=3)
    (context,) = (await services.contexts.list(DEFAULT_TENANT)).contexts
    assert await measured(services, JUDGED / "musique", budgets=(1000,), most=3) == first
    (again,) = (await services.contexts.list(DEFAULT_TENANT)).contexts
    assert again.revisions == context.revisions


async def test_the_graph_brings_what_no_word_of_the_question_names(services, tmp_path):
    corpus = [
        {"_id": "play", "title": "Brand", "text": "Brand was written by Henrik Ibsen."},
        {"_id": "author", "title": "Henrik Ibsen", "text": "He is a dramatist of Norway."},
    ]
    folder = write_set(
        tmp_path, corpus, [{"_id": "q", "text": "Which land gave Brand?"}], [("q", "play"), ("q", "author")]
    )
    found = await measured(services, folder, budgets=(1, 1000))
    assert found.shares[PLAIN] == {1: 0.0, 1000: 0.0}
    assert found.shares[ASSEMBLY] == {1: 0.0, 1000: 0.0}
    assert found.shares[GRAPH] == {1: 0.0, 1000: 1.0}


async def test_with_vectors_plain_search_stays_one_of_words(settings, database, embedder):
    services = compose(settings, database, embedders=WordEmbedders(embedder))
    words = compose(msgspec.structs.replace(settings, embeddings="none"), database)
    try:
        found = await measured(services, JUDGED / "hotpotqa", words, budgets=(1000,), most=3)
    finally:
        await words.close()
        await services.close()
    assert list(found.shares) == [PLAIN, FUSED, ASSEMBLY, HOP, GRAPH, GRAPH_HOP]
