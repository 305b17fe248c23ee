"""What a fit is made from: questions with an answer, and such as have none for two reasons."""

from __future__ import annotations

from collections import Counter

import pytest

from evaluate_support import JUDGED, evaluation, write_set
from strata.errors import StrataError
from strata.evaluate.samples import Kind, collect
from strata.platform.ids import DEFAULT_TENANT


def counted(samples):
    return Counter((sample.corpus, str(sample.kind)) for sample in samples)


async def test_sets_in_one_language_ask_each_other_and_others_do_not(embedding_services):
    folders = [JUDGED / name for name in ("hotpotqa", "musique", "niilc")]
    samples = (await collect(evaluation(embedding_services), DEFAULT_TENANT, folders)).samples
    counts = counted(samples)
    assert counts["hotpotqa", "answerable"] == counts["hotpotqa", "removed"] == 14
    assert counts["hotpotqa", "foreign"] == counts["musique", "foreign"] == 14
    assert counts["niilc", "answerable"] == 16
    assert counts["niilc", "foreign"] == 0


async def test_sets_without_a_common_language_have_only_removed_answers(services):
    folders = [JUDGED / name for name in ("hotpotqa", "niilc")]
    samples = (await collect(evaluation(services), DEFAULT_TENANT, folders, most=5)).samples
    assert counted(samples) == {
        ("hotpotqa", "answerable"): 5,
        ("hotpotqa", "gold_removed"): 5,
        ("hotpotqa", "removed"): 5,
        ("niilc", "answerable"): 5,
        ("niilc", "gold_removed"): 5,
        ("niilc", "removed"): 5,
    }


async def test_removed_answers_are_gone_with_all_of_their_title(services, tmp_path):
    folder = write_set(
        tmp_path / "one",
        [
            {"_id": "a", "title": "Bees", "text": "Bees make honey."},
            {"_id": "b", "title": "Bees", "text": "Honey keeps for years."},
            {"_id": "c", "title": "Tea", "text": "Tea with honey is sweet."},
        ],
        [{"_id": "q", "text": "Who makes honey?"}],
        [("q", "a")],
    )
    answerable, bare, removed = (await collect(evaluation(services), DEFAULT_TENANT, [folder])).samples
    assert answerable.gold == {"a"}
    assert {candidate.source for candidate in answerable.candidates} == {"a", "b", "c"}
    assert (bare.kind, removed.kind) == (Kind.GOLD_REMOVED, Kind.REMOVED)
    assert {candidate.source for candidate in bare.candidates} == {"b", "c"}
    assert removed.gold == frozenset()
    assert {candidate.source for candidate in removed.candidates} == {"c"}


async def test_a_question_that_another_set_may_answer_is_not_foreign_to_it(services, tmp_path):
    shared = {"_id": "a", "title": "Bees", "text": "The bees of the village make the honey."}
    one = write_set(
        tmp_path / "one",
        [shared, {"_id": "x", "title": "Tea", "text": "The tea of the village is sweet."}],
        [{"_id": "q", "text": "Who makes the honey of the village?"}, {"_id": "r", "text": "What is the sweet tea?"}],
        [("q", "a"), ("r", "x")],
    )
    two = write_set(tmp_path / "two", [shared], [{"_id": "s", "text": "What do the bees make?"}], [("s", "a")])
    samples = (await collect(evaluation(services), DEFAULT_TENANT, [one, two])).samples
    foreign = [(sample.corpus, sample.query.id) for sample in samples if sample.kind is Kind.FOREIGN]
    assert foreign == [("two", "r")]


async def test_the_same_questions_are_taken_each_time(services):
    folders = [JUDGED / name for name in ("hotpotqa", "musique")]
    runs = [(await collect(evaluation(services), DEFAULT_TENANT, folders, most=4)).samples for _ in range(2)]
    first, second = ([(s.corpus, s.kind, s.query.id) for s in run] for run in runs)
    assert first == second
    assert len(first) == 2 * 4 * 4


async def test_blank_questions_are_not_asked(services, tmp_path):
    corpus = [{"_id": "a", "title": "Bees", "text": "Bees make honey."}]
    queries = [{"_id": "q", "text": " "}, {"_id": "r", "text": "honey"}]
    folder = write_set(tmp_path / "one", corpus, queries, [("q", "a"), ("r", "a")])
    samples = (await collect(evaluation(services), DEFAULT_TENANT, [folder])).samples
    assert {sample.query.id for sample in samples} == {"r"}


async def test_two_sets_of_one_name_are_refused(services, tmp_path):
    for parent in ("one", "two"):
        (tmp_path / parent).mkdir()
        write_set(tmp_path / parent / "set", [{"_id": "a", "text": "x"}], [{"_id": "q", "text": "x"}], [("q", "a")])
    with pytest.raises(StrataError, match="same name"):
        await collect(evaluation(services), DEFAULT_TENANT, [tmp_path / "one" / "set", tmp_path / "two" / "set"])
