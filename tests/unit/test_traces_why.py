"""The stage and the reason of one candidate, in words and for machines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from strata.evidence.model import Reason
from strata.lookup.schemas import Completeness, RelevanceLevel
from strata.text.tokenise import analyse_query
from strata.traces.bounds import bounded_details
from strata.traces.schemas import LaneTrace, Stage
from strata.traces.tables import ToolInvocation
from strata.traces.why import (
    STAGE_OF_REASON,
    Target,
    fate_sentence,
    fates,
    ingest_absence,
    lane_absence,
    lane_notes,
    match_terms,
    nearest_fates,
    read_details,
    unlisted,
)
from traces_samples import block, details, omission, ranks

NOW = datetime(2026, 3, 2, tzinfo=UTC)


def test_every_reason_of_the_pipeline_has_a_stage():
    assert set(STAGE_OF_REASON) == {reason.value for reason in Reason}


def test_the_closed_sets_of_the_table_are_those_of_the_wire():
    checks = {
        check.name: str(check.sqltext) for check in ToolInvocation.__table__.constraints if hasattr(check, "sqltext")
    }
    for name, values in (("relevance", RelevanceLevel), ("completeness", Completeness)):
        sql = checks[f"tool_invocation_{name}_check"]
        assert sql.count("'") == 2 * len(values)
        assert all(f"'{value}'" in sql for value in values)


@pytest.mark.parametrize(
    "target",
    ["docs/a.md", "docs/a.md#part", "path:docs/a.md#part", "7340033"],
    ids=["path", "anchor", "key", "passage"],
)
def test_a_target_is_a_path_a_path_with_anchor_a_source_key_or_a_passage_key(target):
    traced = details([block(1, "docs/a.md", anchor="#part", passage="7340033"), block(2, "docs/b.md")])
    found = fates(traced, Target.parse(target))
    assert [(fate.stage, fate.rank) for fate in found] == [(Stage.SELECTED, 1)]
    assert fate_sentence(found[0], traced) == "It was selected at rank 1 (lexical rank 1)."


def test_a_stored_omission_without_source_is_found_by_its_path():
    stored = msgspec.json.decode(bounded_details(details(omitted=[omission("docs/z.md", "GONE", anchor="#x")])))
    traced = read_details(stored)
    assert [fate.stage for fate in fates(traced, Target.parse("docs/z.md"))] == [Stage.CONFIRM]


@pytest.mark.parametrize("target", ["docs/a.md#part", "path:docs/a.md#part", "path:docs/a.md#part@120"])
def test_a_section_is_found_where_keys_name_its_passages(target):
    traced = details(
        [block(1, "docs/a.md", anchor="#part@120"), block(2, "docs/a.md", anchor="#part-two@400")],
        [omission("docs/a.md", "BELOW_TOP_K", anchor="#parts@500")],
    )
    assert [fate.rank for fate in fates(traced, Target.parse(target))] == [1]


@pytest.mark.parametrize("path", ["docs/z.md", "docs/z@2024", "docs/z@2024@7"])
def test_a_stored_passage_without_source_is_found_by_its_path(path):
    traced = details(omitted=[omission(path, "GONE", anchor="@7"), omission("docs/y.md", "GONE", anchor="@7")])
    assert [fate.stage for fate in fates(traced, Target.parse(path))] == [Stage.CONFIRM]


def test_a_section_that_no_candidate_is_of_gives_its_source_and_a_note():
    traced = details([block(1, "docs/a.md", source_key="guide-1")])
    found, notes = nearest_fates(traced, Target.parse("docs/a.md#carry"))
    assert [(fate.stage, fate.rank) for fate in found] == [(Stage.SELECTED, 1)]
    assert notes == ["No candidate is docs/a.md#carry; this is about docs/a.md as a whole."]
    assert nearest_fates(traced, Target.parse("docs/b.md#carry")) == ([], [])
    assert nearest_fates(traced, Target.parse("#carry")) == ([], [])
    assert nearest_fates(traced, Target.parse("guide-1"))[1] == []


def test_the_selected_candidate_of_a_source_comes_before_its_omitted_ones():
    traced = details([block(3, "docs/a.md")], [omission("docs/a.md", "DUPLICATE_SOURCE")])
    assert [fate.stage for fate in fates(traced, Target.parse("docs/a.md"))] == [Stage.SELECTED, Stage.DEDUPLICATION]


def test_a_gold_passage_at_lane_rank_60_is_told_with_rank_and_reason():
    traced = details(omitted=[omission("gold.md", "BELOW_TOP_K", lane_ranks=ranks(vector=60))])
    (fate,) = fates(traced, Target.parse("gold.md"))
    assert (fate.stage, fate.reason) == (Stage.TOP_K, "BELOW_TOP_K")
    assert fate_sentence(fate, traced) == (
        "It was nominated (vector rank 60), but the wanted number of blocks was reached before its turn."
    )


def test_a_merged_candidate_names_the_one_that_stands_for_it():
    traced = details([block(2, "docs/a.md")], [omission("copy.md", "NEAR_DUPLICATE", duplicate_of="path:docs/a.md")])
    (fate,) = fates(traced, Target.parse("copy.md"))
    assert fate_sentence(fate, traced).endswith("stands for it: path:docs/a.md, selected at rank 2.")


def test_a_reason_of_a_later_version_is_told_as_it_is():
    traced = details(omitted=[omission("a.md", "SOMETHING_NEW", lane_ranks=[])])
    (fate,) = fates(traced, Target.parse("a.md"))
    assert fate.stage is Stage.FUSION
    assert fate_sentence(fate, traced) == "It was a candidate, but it was dropped as SOMETHING_NEW."


def test_a_digit_string_beyond_bigint_is_no_passage():
    assert Target.parse("9999999999999999999").passage is None
    assert Target.parse("2024").passage is None


def test_unlisted_candidates_are_counted():
    assert unlisted(details(omitted=[omission("a.md", "GONE")], omitted_total=5)) == 4


def test_lanes_that_did_not_run_are_noted_with_their_reason():
    assert lane_notes(details().lanes) == ["Lane vector did not run: NO_INDEX."]


def test_details_of_counts_only_are_read_as_none():
    assert read_details({"schemaVersion": 1, "trimmed": ["all"]}) is None
    assert read_details(None) is None


def test_the_passage_that_holds_most_words_wins():
    terms = analyse_query("reset forgotten password", ["en"])
    match = match_terms(terms, [(1, "A password."), (2, "Reset your passwords here."), (3, "Other.")], "en")
    assert (match.passage, match.held, match.missing) == (2, ["reset", "password"], ["forgotten"])


def test_no_word_held_is_a_stage_of_the_lane():
    match = match_terms(analyse_query("zebra", ["en"]), [(1, "Nothing.")], "en")
    absence = lane_absence(match, {}, {})
    assert (match.passage, absence.stage, absence.reason) == (None, Stage.LANE, "NO_QUERY_TERMS")


def test_a_rank_beyond_the_lane_is_told():
    match = match_terms(analyse_query("password", ["en"]), [(1, "A password.")], "en")
    absence = lane_absence(match, {"lexical": 240}, {"lexical": LaneTrace(ran=True, candidates=100)})
    assert absence.reason == "BEYOND_LANE_LIMIT"
    assert absence.sentence == (
        "No lane nominated it: it would now stand at lexical rank 240; the lane gave 100 candidates."
    )
    assert lane_absence(None, {}, {}).reason == "NOT_NOMINATED"


def test_what_came_later_or_has_no_text_was_not_there():
    later = ingest_absence(called_at=NOW, ingested_at=NOW + timedelta(seconds=1), passages=3, context="kb")
    assert later.reason == "INGESTED_LATER"
    assert "2026-03-02T00:00:01Z" in later.sentence
    empty = ingest_absence(called_at=NOW, ingested_at=NOW, passages=0, context="kb")
    assert empty.reason == "NO_PASSAGES"
    assert ingest_absence(called_at=NOW, ingested_at=NOW, passages=1, context="kb") is None
