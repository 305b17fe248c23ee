"""Fitting relevance: deterministic, and held to what it promises on sets it was not fitted to."""

from __future__ import annotations

import random

import numpy as np
import pytest

from strata.errors import StrataError
from strata.evaluate.fitting import ANSWERABLE, FOREIGN, GOLD_REMOVED, Question, Targets, fit_meaning, fit_words
from strata.evaluate.logistic import logistic
from strata.lookup.fit import LEAST, Signals

SPACE = "ab" * 32


def seen(chance, strength):
    """One passage: ``strength`` 0..1 shows in every signal, with noise."""
    words, meaning = (min(1.0, max(0.0, strength + chance.gauss(0, 0.08))) for _ in range(2))
    return Signals(words, 20 * words, 0.7 + 0.25 * meaning, 0.8 * words)


def question(chance, name, kind, number):
    best = {ANSWERABLE: 0.9, FOREIGN: 0.2}.get(kind, 0.45)
    pool = [(seen(chance, best), kind == ANSWERABLE)]
    pool += [(seen(chance, 0.15 + 0.1 * chance.random()), False) for _ in range(40)]
    pool.sort(key=lambda pair: -pair[0].bm25)
    return Question(name, kind, f"{kind} {number}", [pair[0] for pair in pool], [pair[1] for pair in pool])


def judged(sets=4, each=30, kinds=(ANSWERABLE, FOREIGN, "removed")):
    chance = random.Random(5)
    return [
        question(chance, f"set{at}", kind, number) for at in range(sets) for kind in kinds for number in range(each)
    ]


QUESTIONS = judged()
FITTED = fit_words(QUESTIONS, command="strata evaluate fit")


def meaning(questions, **values):
    return fit_meaning(
        questions, space=SPACE, words=FITTED.fit.words, cosine_weight=None, command="strata evaluate fit", **values
    )


def test_what_can_be_told_apart_is_told_apart():
    reached = meaning(QUESTIONS).fit.provenance.left_out
    assert reached.high > 0.9
    assert reached.high_precision[0] >= 0.9
    assert all(high <= 0.02 for high, _, _ in reached.unanswerable.values())
    assert reached.unanswerable[FOREIGN][1] <= 0.02


def test_the_same_questions_in_any_order_give_the_same_fit():
    shuffled = QUESTIONS[:]
    random.Random(1).shuffle(shuffled)
    assert meaning(shuffled).fit == meaning(QUESTIONS).fit


def test_a_fit_says_what_it_was_made_from():
    provenance = FITTED.fit.provenance
    assert provenance.command == "strata evaluate fit"
    assert [used.name for used in provenance.sets] == ["set0", "set1", "set2", "set3"]
    assert provenance.sets[0].questions == {"answerable": 30, "foreign": 30, "removed": 30}
    assert len({used.digest for used in provenance.sets}) == 1
    assert [row.name for row in FITTED.report] == ["set0", "set1", "set2", "set3"]


def test_words_alone_know_no_vectors_and_meaning_keeps_the_words():
    assert FITTED.fit.meaning is None
    assert FITTED.fit.space == "words"
    fit = meaning(QUESTIONS).fit
    assert (fit.space, fit.words) == (SPACE, FITTED.fit.words)
    assert 0.7 < fit.background < 0.8
    assert fit.cutoffs.low == LEAST


def test_sets_weigh_the_same_whatever_their_size():
    grown = QUESTIONS + [
        Question(item.judged_set, item.kind, f"{item.text} again {n}", item.signals, item.gold)
        for item in QUESTIONS
        for n in range(4)
        if item.judged_set == "set0"
    ]
    assert meaning(grown).fit.cutoffs == meaning(QUESTIONS).fit.cutoffs


def test_no_weight_is_negative():
    fit = meaning(QUESTIONS).fit
    for line in (fit.words.answers, fit.words.touches, fit.meaning.answers, fit.meaning.touches):
        assert min(line.weights.values()) >= 0


def test_what_cannot_be_told_apart_is_never_high():
    same = [Signals(0.5, 5.0, 0.8, 0.4)] * 40
    alike = [
        Question(item.judged_set, item.kind, item.text, same, [item.kind == ANSWERABLE, *[False] * 39])
        for item in QUESTIONS
    ]
    fit = meaning(alike).fit
    assert (fit.cutoffs.high, fit.cutoffs.medium) == (1.0, 1.0)
    assert fit.provenance.left_out.high == 0
    assert fit.provenance.left_out.high_precision is None


def test_nothing_is_learnt_from_questions_whose_answers_may_have_stayed():
    chance = random.Random(6)
    answered = [question(chance, f"set{at}", ANSWERABLE, number) for at in range(4) for number in range(30)]
    doubtful = [Question(item.judged_set, GOLD_REMOVED, item.text, item.signals, [False] * 41) for item in answered]
    with_them, without = meaning(QUESTIONS + doubtful).fit, meaning(QUESTIONS).fit
    assert with_them.meaning.answers == without.meaning.answers
    # They look like answers, and the cut-off of HIGH is held to them all the same.
    assert with_them.cutoffs.high > without.cutoffs.high


def test_stricter_targets_give_cut_offs_that_are_no_lower():
    loose, strict = (meaning(QUESTIONS, targets=Targets(unanswerable=share)).fit.cutoffs for share in (0.2, 0.0))
    assert loose.high <= strict.high
    assert loose.medium <= strict.medium


def test_the_floor_keeps_the_answers_it_must_keep():
    fit = meaning(QUESTIONS, targets=Targets(kept=0.9)).fit
    kept = [
        relevance > 0
        for item in QUESTIONS
        for relevance, is_gold in zip(fit.relevances(item.signals), item.gold, strict=True)
        if is_gold
    ]
    assert sum(kept) / len(kept) >= 0.85
    assert fit.provenance.left_out.unanswerable[FOREIGN][2] > 0.9


def test_questions_that_found_nothing_count_as_without_evidence():
    silent = [Question(f"set{at}", ANSWERABLE, "silence", [], []) for at in range(4)]
    reached = meaning(QUESTIONS + silent).fit.provenance.left_out
    assert reached.none == pytest.approx(1 / 31, abs=0.01)


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ([], "two sets"),
        (judged(sets=1), "two sets"),
        (judged(kinds=(FOREIGN,)), "set0 has no question whose answer"),
        (judged(kinds=(ANSWERABLE, GOLD_REMOVED)), "set0 has no unanswerable questions"),
    ],
)
def test_what_cannot_be_fitted_is_refused(questions, said):
    with pytest.raises(StrataError) as caught:
        meaning(questions)
    assert caught.value.code == "invalid_request"
    assert said in caught.value.detail


def test_the_regression_finds_the_line_that_made_the_data():
    chance = np.random.default_rng(3)
    rows = chance.normal(size=(40_000, 2)) * [1.0, 10.0]
    odds = -1 + 2 * rows[:, 0] + 0.1 * rows[:, 1]
    truth = (chance.random(len(rows)) < 1 / (1 + np.exp(-odds))).astype(float)
    intercept, weights = logistic(rows, truth, np.ones(len(rows)))
    assert intercept == pytest.approx(-1, abs=0.06)
    assert weights == pytest.approx([2, 0.1], rel=0.06)


def test_a_feature_that_speaks_against_is_dropped_and_a_constant_one_does_no_harm():
    chance = np.random.default_rng(4)
    rows = np.column_stack([chance.normal(size=(5_000, 2)), np.ones(5_000)])
    truth = (rows[:, 0] - rows[:, 1] + chance.normal(size=5_000) > 0).astype(float)
    _, weights = logistic(rows, truth, np.ones(len(rows)))
    assert weights[0] > 0
    assert weights[1] == 0
    assert np.isfinite(weights).all()
