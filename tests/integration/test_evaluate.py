"""Judged sets are measured through the services that answer, in a context that is kept only where asked."""

from __future__ import annotations

import pytest

from evaluate_support import JUDGED, evaluation, write_set
from strata.errors import StrataError
from strata.evaluate.lanes import LANES, Asker
from strata.platform.ids import DEFAULT_TENANT

WORDS_ONLY = {"lexical", "lookup", "lookup_without_hints"}


MEETINGS = (
    [
        {"_id": "spring#1", "text": "The garden budget was raised to two hundred."},
        {"_id": "spring#2", "text": "We looked at the weather."},
        {"_id": "autumn#1", "text": "The garden budget was cut, the garden budget is gone."},
    ],
    [{"_id": "q1", "text": "What became of the garden budget?", "meeting": "spring"}],
    [("q1", "spring#1")],
)


async def evaluate_contexts(services):
    views = (await services.contexts.list(DEFAULT_TENANT)).contexts
    return {view.name: view for view in views if view.name.startswith("evaluate-")}


async def test_every_lane_is_measured_and_the_context_is_gone(embedding_services):
    scores = await evaluation(embedding_services).beir(DEFAULT_TENANT, JUDGED / "hotpotqa", lanes=LANES)
    assert list(scores) == list(LANES)
    assert all(score.queries == 14 for score in scores.values())
    assert scores["hybrid"].ndcg_at_10 > 0.8
    assert scores["vector"].ndcg_at_10 > 0.4
    assert scores["lookup"].recall_at_100 > 0.9
    assert await evaluate_contexts(embedding_services) == {}


async def test_lanes_that_need_vectors_are_left_out_without_embeddings(services):
    scores = await evaluation(services).beir(DEFAULT_TENANT, JUDGED / "niilc", lanes=LANES)
    assert set(scores) == WORDS_ONLY


async def test_a_lane_that_does_not_exist_is_refused_before_any_work(services):
    with pytest.raises(StrataError, match="no lane 'bogus'"):
        await evaluation(services).beir(DEFAULT_TENANT, JUDGED / "niilc", lanes=["bogus"])
    assert await evaluate_contexts(services) == {}


async def test_a_kept_context_is_found_again_and_nothing_is_taken_in_twice(embedding_services):
    evaluate = evaluation(embedding_services)
    first = await evaluate.beir(DEFAULT_TENANT, JUDGED / "niilc", keep=True)
    kept = await evaluate_contexts(embedding_services)
    stages = {}
    again = await evaluate.beir(
        DEFAULT_TENANT,
        JUDGED / "niilc",
        keep=True,
        progress=lambda stage, done, total: stages.setdefault(stage, []).append((done, total)),
    )
    assert {lane: score.ndcg_at_10 for lane, score in first.items()} == {
        lane: score.ndcg_at_10 for lane, score in again.items()
    }
    assert await evaluate_contexts(embedding_services) == kept
    assert len(kept) == 1
    assert not any(done for done, _ in stages.get("embed", []))


async def test_another_embedder_gets_a_context_of_its_own(embedding_services, services, tmp_path):
    folder = write_set(tmp_path / "set", *MEETINGS)
    for each in (embedding_services, services):
        await evaluation(each).beir(DEFAULT_TENANT, folder, keep=True)
    assert len(await evaluate_contexts(embedding_services)) == 2


async def test_a_run_that_fails_leaves_no_context(services, tmp_path):
    folder = write_set(tmp_path / "set", *MEETINGS)
    with pytest.raises(StrataError, match="no field manual"):
        await evaluation(services).beir(DEFAULT_TENANT, folder, within="manual")
    assert await evaluate_contexts(services) == {}


async def test_within_asks_only_the_sources_of_that_value(embedding_services, tmp_path):
    folder = write_set(tmp_path / "set", *MEETINGS)
    evaluate = evaluation(embedding_services)
    everywhere = await evaluate.beir(DEFAULT_TENANT, folder, lanes=["lexical"])
    inside = await evaluate.beir(DEFAULT_TENANT, folder, lanes=LANES, within="meeting")
    assert everywhere["lexical"].mrr == 0.5
    assert {lane: score.mrr for lane, score in inside.items()} == dict.fromkeys(LANES, 1.0)


async def test_blank_questions_find_nothing_and_fail_nothing(services, tmp_path):
    folder = write_set(
        tmp_path / "set",
        [{"_id": "d", "text": "bees make honey"}],
        [{"_id": "q1", "text": ""}, {"_id": "q2", "text": " \n"}, {"_id": "q3", "text": "honey"}],
        [("q1", "d"), ("q2", "d"), ("q3", "d")],
    )
    evaluate = evaluation(services)
    scores = await evaluate.beir(DEFAULT_TENANT, folder)
    assert scores["lexical"].queries == 3
    assert scores["lexical"].mrr == pytest.approx(1 / 3, abs=1e-3)
    found = await evaluate.coverage(DEFAULT_TENANT, folder)
    assert found.shares["lookup"][4000] == pytest.approx(1 / 3, abs=1e-3)


async def test_coverage_grows_with_the_budget_and_names_what_it_left_out(services):
    found = await evaluation(services).coverage(DEFAULT_TENANT, JUDGED / "musique", budgets=(1, 500, 1000, 1_000_000))
    assert found.questions == 14
    assert set(found.left_out) == {"vector", "hybrid", "hybrid_hop"}
    for shares in found.shares.values():
        assert shares[1] == 0
        assert list(shares.values()) == sorted(shares.values())
    assert found.shares["lookup_text"][1_000_000] >= found.shares["lexical"][1000]
    assert found.shares["bm25s"][1_000_000] > 0.5


async def test_coverage_of_the_call_is_held_to_its_budget_exactly(services, tmp_path):
    corpus = [{"_id": "a", "title": "Bees", "text": "Bees make honey in spring."}]
    folder = write_set(tmp_path / "set", corpus, [{"_id": "q", "text": "honey"}], [("q", "a")])
    evaluate = evaluation(services)
    async with evaluate.scratches.filled(DEFAULT_TENANT, _judged(folder)) as scratch:
        asker = Asker(services.lookup, DEFAULT_TENANT, scratch.name)
        result = await asker.call(_judged(folder).queries[0], "lookup", max_tokens=10_000, content=True)
    used = result.budget.tokens_used
    found = await evaluate.coverage(DEFAULT_TENANT, folder, budgets=(used - 1, used))
    assert found.shares["lookup"] == {used - 1: 0.0, used: 1.0}


def _judged(folder):
    from strata.evaluate.beir import load_judged_set

    return load_judged_set(folder)


async def test_a_sample_asks_the_same_few_questions(services):
    evaluate = evaluation(services)
    first = await evaluate.beir(DEFAULT_TENANT, JUDGED / "niilc", lanes=["lexical"], most=5)
    again = await evaluate.beir(DEFAULT_TENANT, JUDGED / "niilc", lanes=["lexical"], most=5)
    found = await evaluate.coverage(DEFAULT_TENANT, JUDGED / "niilc", most=5)
    assert first["lexical"].queries == found.questions == 5
    assert first["lexical"].ndcg_at_10 == again["lexical"].ndcg_at_10


async def test_a_set_in_several_languages_is_asked_by_language(embedding_services, tmp_path):
    english = "The bees of the garden make the honey that we eat in the morning with the bread."
    german = "Die Bienen im Garten machen den Honig, den wir am Morgen mit dem Brot essen."
    folder = write_set(
        tmp_path / "set",
        [{"_id": "en", "text": english, "lang": "en"}, {"_id": "de", "text": german, "lang": "de"}],
        [{"_id": "q", "text": "honey", "lang": "en"}, {"_id": "r", "text": "Honig", "lang": "de"}],
        [("q", "en"), ("r", "de")],
    )
    everywhere = await evaluation(embedding_services).beir(DEFAULT_TENANT, folder, lanes=["vector"])
    own = await evaluation(embedding_services).beir(DEFAULT_TENANT, folder, lanes=LANES, by_language=True)
    assert everywhere["vector"].queries == 2
    assert {score.mrr for score in own.values()} == {1.0}
    found = await evaluation(embedding_services).coverage(DEFAULT_TENANT, folder, by_language=True)
    assert found.shares["bm25s"][1000] == 1.0
