"""The weight of cosines is the best over sets that each weigh the same, and levels are told as a lookup tells them."""

from __future__ import annotations

from uuid import UUID

from strata.evaluate.beir import Query
from strata.evaluate.fit import levels_by_set, word_questions
from strata.evaluate.fitting import Question
from strata.evaluate.samples import Kind, Sample
from strata.evaluate.weights import GRID, fit_weight, ranked, ranked_by_words
from strata.lookup.fit import Signals
from strata.lookup.pool import CandidateSignals, Scored
from strata.lookup.relevance import Cutoffs

CONTEXT = UUID(int=1)


def candidate(source, bm25, cosine, lexical_rank=None, vector_rank=None, passage=None):
    number = passage if passage is not None else ord(source[0])
    scored = Scored(0, CONTEXT, number, bm25, 40.0, cosine, bm25 / 40, lexical_rank, vector_rank)
    return CandidateSignals(source, scored)


def sample(corpus, gold, candidates, kind=Kind.ANSWERABLE):
    query = Query(id=f"{corpus}-{gold}", text="question")
    return Sample(corpus, kind, query, {gold: 1} if gold else {}, candidates)


WORDS_RIGHT = [candidate("a", 30, 0.80, 1, 2), candidate("b", 10, 0.85, 2, 1)]
MEANING_RIGHT = [candidate("a", 20, 0.80, 1, 2), candidate("b", 14, 0.90, 2, 1)]


def test_a_set_that_words_answer_gets_a_small_weight_and_one_that_meaning_answers_a_large_one():
    words = fit_weight([sample("one", "a", WORDS_RIGHT)])
    meaning = fit_weight([sample("one", "b", MEANING_RIGHT)])
    assert words.weight == GRID[0]
    assert meaning.weight > words.weight
    assert meaning.sets[0].fitted == 1.0
    assert meaning.sets[0].lexical < 1.0
    assert meaning.sets[0].vector == 1.0


def test_each_set_weighs_the_same_whatever_its_size():
    many = [sample("large", "a", WORDS_RIGHT)] * 50
    result = fit_weight([*many, sample("small", "b", MEANING_RIGHT)])
    assert [item.name for item in result.sets] == ["large", "small"]
    by_name = {item.name: item for item in result.sets}
    # What was fitted to the other set only is what is told of a set that was left out.
    assert by_name["small"].left_out_weight == fit_weight(many).weight
    assert set(result.tried) == set(GRID)


def test_only_answerable_questions_are_fitted_to():
    kept = [sample("one", "b", MEANING_RIGHT)]
    others = [sample("one", None, WORDS_RIGHT, kind) for kind in Kind if kind is not Kind.ANSWERABLE]
    assert fit_weight([*kept, *others]) == fit_weight(kept)


def test_a_larger_weight_lets_meaning_win():
    assert [item.source for item in ranked(MEANING_RIGHT, 0.5)] == ["a", "b"]
    assert [item.source for item in ranked(MEANING_RIGHT, 30)] == ["b", "a"]


def test_words_alone_leave_out_what_only_meaning_found():
    found = [candidate("c", 1, 0.9, None, 1), candidate("b", 2, 0.8, 2, None), candidate("a", 3, 0.7, 1, 2)]
    assert [item.source for item in ranked_by_words(found)] == ["a", "b"]
    (question,) = word_questions([sample("one", "a", found)])
    assert question.gold == [True, False]
    assert [signals.cosine for signals in question.signals] == [None, None]
    assert question.signals[0].bm25_share == 3 / 40


class _Fit:
    """Relevance is the coverage."""

    cutoffs = Cutoffs(0.8, 0.5, 0.1)

    def relevances(self, signals, depth):
        return [item.coverage for item in signals]


def question(kind, *blocks):
    signals = [Signals(relevance, 0.0, None, 0.0) for relevance, _ in blocks]
    return Question("one", kind, "text", signals, [gold for _, gold in blocks])


def test_levels_are_those_of_the_best_block_shown_and_what_is_no_evidence_moves_up_the_rest():
    asked = [
        question("answerable", (0.05, False), (0.9, True)),
        question("answerable", (0.9, False), (0.2, True)),
        question("answerable", (0.6, True)),
        question("answerable", (0.2, True)),
        question("answerable", *[(0.2, False)] * 5, (0.9, True)),
        question("foreign", (0.05, False)),
        question("foreign", (0.8, False)),
        question("foreign"),
    ]
    (found,) = levels_by_set(asked, _Fit(), 64)
    answerable, foreign = found.kinds["answerable"], found.kinds["foreign"]
    assert (answerable.high, answerable.medium, answerable.low, answerable.none) == (0.4, 0.2, 0.4, 0.0)
    assert (answerable.high_precision, answerable.high_precision_shown) == (0.5, 1.0)
    assert (foreign.high, foreign.low, foreign.none) == (0.3333, 0.0, 0.6667)
    assert foreign.high_precision is None
