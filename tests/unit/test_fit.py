"""What a fit makes of signals: absolute, monotone, and 0 for what does not touch the question."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from strata.errors import StrataError
from strata.lookup.fit import DEFAULT_FIT, LEAST, TAIL, WORDS, Fits, Signals, bundled_fits, features, read_fit
from strata.providers.embeddings.local import LOCAL_SPACE
from strata.settings import load_settings

MEANING = bundled_fits()[LOCAL_SPACE.fingerprint.hex()]
UNRELATED = Signals(0.05, 0.4, 0.77, 0.01)
PARAPHRASE = Signals(0.0, 0.0, 0.9, 0.0)
ANSWER = Signals(0.9, 14.0, 0.92, 0.6)
UNKNOWN_SPACE = replace(LOCAL_SPACE, model="another")

unit = st.floats(0, 1)
signals = st.builds(Signals, unit, st.floats(0, 60), st.none() | unit, unit)
with_cosine = st.builds(Signals, unit, st.floats(0, 60), unit, unit)


def settings(tmp_path, **values):
    return load_settings({}, home=tmp_path, **values)


def test_the_bundled_embedder_and_words_alone_have_fits():
    assert DEFAULT_FIT.space == WORDS
    assert DEFAULT_FIT.meaning is None
    assert MEANING.meaning is not None


@pytest.mark.parametrize("fit", [DEFAULT_FIT, MEANING], ids=["words", "meaning"])
def test_a_bundled_fit_says_that_it_reaches_what_it_was_fitted_to(fit):
    left_out, targets = fit.provenance.left_out, fit.provenance.targets
    assert left_out.high_precision[0] >= targets["precision"] >= 0.9
    assert left_out.medium_precision[1] >= 0.9
    assert all(high <= targets["unanswerable"] <= 0.02 for high, _, _ in left_out.unanswerable.values())
    assert left_out.unanswerable["foreign"][1] <= 0.02
    assert len(fit.provenance.sets) == 11


def test_an_answer_among_unrelated_passages_is_high_and_they_are_not():
    found = MEANING.relevances([ANSWER, *[UNRELATED] * 60])
    assert found[0] >= MEANING.cutoffs.high
    assert max(found[1:]) < MEANING.cutoffs.medium


def test_a_paraphrase_without_a_shared_word_is_evidence_by_its_cosine_alone():
    assert MEANING.relevances([PARAPHRASE, *[UNRELATED] * 60])[0] >= MEANING.cutoffs.medium


def test_what_is_neither_near_nor_shares_words_is_no_evidence():
    assert MEANING.relevances([Signals(0.0, 0.0, 0.72, 0.0)] * 64) == [0.0] * 64
    assert DEFAULT_FIT.relevances([Signals(0.0, 0.0, None, 0.0)]) == [0.0]


def test_the_same_answer_is_worth_less_where_everything_is_as_near():
    alone, crowded = (MEANING.relevances([ANSWER, *[other] * 60])[0] for other in (UNRELATED, ANSWER))
    assert crowded < MEANING.cutoffs.high <= alone


def test_a_context_of_one_passage_is_judged_against_unrelated_ones():
    among = [Signals(0.0, 0.0, MEANING.background, 0.0)] * 60
    assert MEANING.relevances([ANSWER]) == pytest.approx(MEANING.relevances([ANSWER, *among])[:1])


def test_a_lane_that_was_cut_short_is_not_taken_for_an_exhausted_one():
    few = [ANSWER] * 10
    assert MEANING.relevances(few, depth=10)[0] < MEANING.relevances(few, depth=64)[0]


def test_a_passage_without_a_vector_is_judged_by_its_words():
    pool = [Signals(0.9, 14.0, None, 0.6), *[Signals(0.05, 0.4, None, 0.01)] * 60]
    assert MEANING.relevances(pool) == DEFAULT_FIT.relevances(pool)


def test_a_space_that_nothing_was_fitted_to_rules_out_nothing_by_its_words(tmp_path):
    fit = Fits(settings(tmp_path)).of([UNKNOWN_SPACE])
    assert fit.space == WORDS
    assert fit.relevances([PARAPHRASE]) == [LEAST]
    assert fit.cutoffs.level(LEAST).value == "LOW"


def test_nothing_found_gives_nothing():
    assert MEANING.relevances([]) == []


@given(st.lists(signals, max_size=80), st.sampled_from([DEFAULT_FIT, MEANING]))
def test_relevance_is_nothing_or_from_the_least_to_one_and_never_depends_on_the_order(pool, fit):
    found = fit.relevances(pool)
    assert all(value == 0 or LEAST <= value <= 1 for value in found)
    assert fit.relevances(pool[::-1]) == pytest.approx(found[::-1])


@given(st.lists(signals, max_size=60), with_cosine, with_cosine, st.sampled_from([DEFAULT_FIT, MEANING]))
def test_a_passage_that_is_better_by_any_signal_is_never_worth_less(pool, item, gain, fit):
    better = Signals(
        min(1.0, item.coverage + gain.coverage),
        item.bm25 + gain.bm25,
        min(1.0, item.cosine + gain.cosine),
        min(1.0, item.bm25_share + gain.bm25_share),
    )
    # Ten as good stand before the tail, so that the gain itself does not raise what it is measured against.
    pool = [item] * TAIL.start + pool
    assert fit.relevances([better, *pool])[0] >= fit.relevances([item, *pool])[0] - 1e-12


def test_the_tail_is_the_mean_of_ranks_eleven_to_thirty():
    shares = [1 - n / 100 for n in range(64)]
    values = features([Signals(0.0, 0.0, None, share) for share in shares])
    assert values["bm25_lead"][0] == pytest.approx(1 - sum(shares[10:30]) / 20)
    assert values["bm25_lead"][63] == 0


def test_a_lookup_is_judged_in_well_under_a_millisecond():
    pool = [Signals(n / 128, n / 4, n / 128, n / 128) for n in range(128)]
    times = []
    for _ in range(50):
        started = time.perf_counter()
        MEANING.relevances(pool)
        times.append(time.perf_counter() - started)
    assert min(times) < 0.001


def test_a_file_of_ones_own_replaces_the_fit_of_its_space(tmp_path):
    own = replace(MEANING, space=UNKNOWN_SPACE.fingerprint.hex(), background=0.1)
    path = tmp_path / "fit.json"
    path.write_bytes(msgspec.json.encode(own))
    fits = Fits(settings(tmp_path, relevance_fit=path))
    assert fits.of([UNKNOWN_SPACE, LOCAL_SPACE]).background == 0.1
    assert fits.of([LOCAL_SPACE]) == MEANING
    assert fits.of([]) == DEFAULT_FIT


def test_cut_offs_that_are_set_win_over_fitted_ones(tmp_path):
    fit = Fits(settings(tmp_path, relevance_high=0.5, relevance_floor=0.2)).of([])
    assert (fit.cutoffs.high, fit.cutoffs.low) == (0.5, 0.2)
    assert fit.cutoffs.medium == DEFAULT_FIT.cutoffs.medium


def changed(**changes):
    return msgspec.json.encode(replace(MEANING, **changes))


def weighed(**weights):
    return changed(words=replace(MEANING.words, answers=replace(MEANING.words.answers, weights=weights)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"\x00",
        b'{"space": "words"}',
        weighed(rank=1.0),
        weighed(coverage=-1.0),
        changed(cutoffs=type(MEANING.cutoffs)(0.2, 0.5, 0.001)),
        changed(cutoffs=type(MEANING.cutoffs)(0.8, 0.5, 0.0)),
    ],
)
def test_what_is_no_fit_is_refused(data):
    with pytest.raises(StrataError) as caught:
        read_fit(data, "fit.json")
    assert (caught.value.code, caught.value.pointer) == ("invalid_setting", "STRATA_RELEVANCE_FIT")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(StrataError) as caught:
        Fits(settings(tmp_path, relevance_fit=tmp_path / "none.json"))
    assert caught.value.code == "invalid_setting"
