"""A fit is made from judged sets end to end, says where it comes from, and is the same each time."""

from __future__ import annotations

import msgspec
import pytest

from evaluate_support import JUDGED, evaluation
from strata.errors import StrataError
from strata.evaluate.fit import fit, judge_fits
from strata.evaluate.report import relevance_tables
from strata.lookup.fit import WORDS, read_fit
from strata.platform.ids import DEFAULT_TENANT

ENGLISH = [JUDGED / "hotpotqa", JUDGED / "musique"]


async def test_words_and_meaning_are_fitted_to_two_sets(embedding_services, embedder):
    result = await fit(evaluation(embedding_services), DEFAULT_TENANT, ENGLISH, command="strata evaluate fit a b")
    assert result.fit.space == embedder.space.fingerprint.hex()
    assert result.fit.meaning is not None
    assert result.fit.cosine_weight == result.weight.weight
    assert [item.name for item in result.sets] == [item.name for item in result.weight.sets] == ["hotpotqa", "musique"]
    cutoffs = result.fit.cutoffs
    assert 0 < cutoffs.low <= cutoffs.medium <= cutoffs.high <= 1
    used = result.fit.provenance.sets[0]
    assert used.questions == {"answerable": 14, "foreign": 14, "gold_removed": 14, "removed": 14}
    assert result.fit.provenance.command == "strata evaluate fit a b"
    encoded = msgspec.json.encode(result.fit)
    assert read_fit(encoded, "fit.json") == result.fit
    assert str(JUDGED).encode() not in encoded


async def test_the_same_sets_give_the_same_fit(services):
    results = [
        await fit(evaluation(services), DEFAULT_TENANT, folders, command="c") for folders in (ENGLISH, ENGLISH[::-1])
    ]
    assert msgspec.json.encode(results[0]) == msgspec.json.encode(results[1])


async def test_words_alone_are_fitted_without_embeddings_and_where_asked(services, embedding_services):
    without = await fit(evaluation(services), DEFAULT_TENANT, ENGLISH, command="c")
    asked = await fit(evaluation(embedding_services), DEFAULT_TENANT, ENGLISH, command="c", words_only=True)
    for result in (without, asked):
        assert result.fit.space == WORDS
        assert result.fit.meaning is None
        assert result.weight is None
    assert without.fit.words == asked.fit.words


async def test_sets_without_a_common_language_are_fitted_by_what_was_removed(embedding_services):
    folders = [JUDGED / "hotpotqa", JUDGED / "niilc"]
    result = await fit(evaluation(embedding_services), DEFAULT_TENANT, folders, command="c")
    assert set(result.fit.provenance.left_out.unanswerable) == {"gold_removed", "removed"}


async def test_one_set_is_not_enough_and_nothing_is_taken_in(services):
    with pytest.raises(StrataError, match="two sets"):
        await fit(evaluation(services), DEFAULT_TENANT, ENGLISH[:1], command="c")
    assert not (await services.contexts.list(DEFAULT_TENANT)).contexts


async def test_the_levels_in_use_are_judged_for_words_and_for_meaning(embedding_services, settings):
    report = await judge_fits(evaluation(embedding_services), DEFAULT_TENANT, ENGLISH, settings, most=8, keep=False)
    for sets in (report.words, report.meaning):
        assert [item.name for item in sets] == ["hotpotqa", "musique"]
        for item in sets:
            for levels in item.kinds.values():
                assert levels.questions == 8
                assert levels.high + levels.medium + levels.low + levels.none == pytest.approx(1, abs=1e-3)
    text = relevance_tables(report)
    assert "| hotpotqa |" in text
    assert text.count("| mean |") == 2


async def test_without_embeddings_only_words_are_judged(services, settings):
    report = await judge_fits(evaluation(services), DEFAULT_TENANT, ENGLISH, settings, most=4, keep=False)
    assert report.meaning is None
