"""What is recorded fits, is storable, and says no more than privacy allows."""

from __future__ import annotations

import hashlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.traces.bounds import (
    MAX_ARGUMENTS_BYTES,
    MAX_DETAILS_BYTES,
    bounded_arguments,
    bounded_details,
    clean_text,
    hex_id,
    jsonb_size,
)
from strata.traces.schemas import FiltersTrace, LaneTrace, PostprocessTrace
from traces_samples import block, details, omission, ranks

UGLY = "a\x00b\udbffc😀漢字\u202eעברית"
TEXTS = st.text(st.characters(exclude_categories=()), max_size=200)


def test_details_have_exactly_the_names_of_version_1():
    stored = json.loads(
        bounded_details(details([block(1, "docs/a.md")], [omission("docs/b.md", "BELOW_TOP_K", anchor="#x")]))
    )
    assert stored["schemaVersion"] == 1
    assert set(stored) == {
        "schemaVersion", "contexts", "layers", "lanes", "filters", "fallback", "postprocess", "budget",
        "evidenceBlocks", "omitted", "omittedTotal", "emptyReason", "trimmed",
    }  # fmt: skip
    assert set(stored["contexts"][0]) == {"id", "revision"}
    assert set(stored["layers"]["l0"]) == {"matched", "durationMs"}
    assert set(stored["layers"]["l1"]) == {"candidates", "durationMs"}
    assert set(stored["lanes"]["vector"]) == {"ran", "reason", "candidates", "durationMs"}
    assert set(stored["filters"]) == {"category", "relaxed"}
    assert set(stored["postprocess"]) == {
        "raw", "deduplicated", "duplicatesDropped", "nearDuplicatesDropped", "previewsTruncated", "omittedByReason",
    }  # fmt: skip
    assert set(stored["evidenceBlocks"][0]) == {
        "rank", "sourceKey", "sourceKeyBasis", "layers", "title", "breadcrumb", "score", "laneRanks", "hitReasons",
        "contentChars", "contentSha256", "source", "passage",
    }  # fmt: skip
    assert stored["omitted"] == [
        {"sourceKey": "path:docs/b.md#x", "reason": "BELOW_TOP_K", "laneRanks": [{"lane": "lexical", "rank": 9}]}
    ]


def test_two_lanes_of_a_hundred_candidates_are_listed_whole():
    omitted = [
        omission(f"docs/guides/chapter-{n}.md", "BELOW_TOP_K", anchor=f"#part-{n}", passage=str(n << 20),
                 source=f"docs/guides/chapter-{n}.md", lane_ranks=ranks(lexical=n, vector=n))
        for n in range(1, 196)
    ]  # fmt: skip
    stored = json.loads(bounded_details(details([block(n, f"docs/{n}.md") for n in range(1, 6)], omitted)))
    assert len(stored["omitted"]) == 195
    assert stored["trimmed"] == []


def test_a_source_that_the_key_does_not_tell_is_kept():
    items = [
        omission("docs/b.md", "GONE", source="docs/b.md"),
        omission("docs/b.md", "GONE", source_key="faq-7", source="docs/b.md"),
        omission("docs/c#.md", "GONE", source="docs/c#.md"),
    ]
    stored = json.loads(bounded_details(details(omitted=items)))["omitted"]
    assert [item.get("source") for item in stored] == [None, "docs/b.md", "docs/c#.md"]


def test_a_long_omitted_list_loses_its_tail_and_keeps_its_total():
    omitted = [omission(f"docs/{n:04}.md", "BELOW_TOP_K", lane_ranks=ranks(lexical=n)) for n in range(1, 3001)]
    encoded = bounded_details(details([block(1, "docs/a.md")], omitted))
    stored = json.loads(encoded)
    assert jsonb_size(encoded) < MAX_DETAILS_BYTES
    assert stored["omittedTotal"] == 3000
    assert len(stored["omitted"]) > 300
    assert stored["omitted"][59]["laneRanks"] == [{"lane": "lexical", "rank": 60}]
    assert stored["trimmed"] == ["clipped", "omitted"]
    assert stored["evidenceBlocks"][0]["title"] == "a.md"


def test_long_titles_are_clipped_before_candidates_are_lost():
    blocks = [block(n, f"docs/{n}.md", title="t" * 5000, breadcrumb=["c" * 500] * 9) for n in range(1, 21)]
    stored = json.loads(bounded_details(details(blocks, [omission("docs/z.md", "BELOW_FLOOR")])))
    assert stored["trimmed"] == ["clipped"]
    assert len(stored["omitted"]) == 1
    assert {len(item["title"]) for item in stored["evidenceBlocks"]} == {80}


def test_blocks_go_last_and_from_the_tail():
    blocks = [block(n, f"docs/{n}.md", hit_reasons=["r" * 1000]) for n in range(1, 201)]
    encoded = bounded_details(details(blocks, [omission("docs/z.md", "BELOW_FLOOR")]))
    stored = json.loads(encoded)
    assert jsonb_size(encoded) < MAX_DETAILS_BYTES
    assert stored["trimmed"] == ["clipped", "omitted", "titles", "evidence_blocks"]
    kept = [item["rank"] for item in stored["evidenceBlocks"]]
    assert kept == list(range(1, len(kept) + 1))
    assert len(kept) > 30


def test_what_cannot_fit_at_all_leaves_the_counts():
    huge = details(filters=FiltersTrace(category=["x" * 1000] * 100), postprocess=PostprocessTrace(raw=12))
    stored = json.loads(bounded_details(huge))
    assert stored["trimmed"] == ["all"]
    assert stored["postprocess"]["raw"] == 12


def test_ugly_titles_are_stored_cleaned():
    encoded = bounded_details(details([block(1, "docs/a.md", title=UGLY)], [omission(UGLY, "GONE")] * 900))
    stored = json.loads(encoded)
    assert b"\\u0000" not in encoded
    assert stored["evidenceBlocks"][0]["title"] == "abc😀漢字\u202eעברית"
    assert stored["omittedTotal"] == 900


@given(
    titles=st.lists(TEXTS, max_size=30),
    keys=st.lists(TEXTS, max_size=60),
    lanes=st.dictionaries(TEXTS, st.just(LaneTrace(ran=True)), max_size=8),
    limit=st.integers(700, 70_000),
)
def test_any_details_fit_and_can_be_stored(titles, keys, lanes, limit):
    blocks = [block(n, f"docs/{n}.md", title=title) for n, title in enumerate(titles, 1)]
    given_details = details(blocks, [omission(key, "BELOW_FLOOR") for key in keys], lanes=lanes)
    encoded = bounded_details(given_details, limit)
    stored = json.loads(encoded)
    assert jsonb_size(encoded) < limit
    assert b"\\u0000" not in encoded
    assert stored["omittedTotal"] == len(keys)
    assert encoded == bounded_details(given_details, limit)


def test_the_query_is_kept_as_text_as_hash_or_not_at_all():
    arguments = {"query": "café?", "topK": 5}
    digest = hashlib.sha256("café?".encode()).hexdigest()
    assert json.loads(bounded_arguments(arguments, "text")) == {"query": "café?", "topK": 5}
    assert json.loads(bounded_arguments(arguments, "hash")) == {"query": {"sha256": digest, "chars": 5}, "topK": 5}
    assert json.loads(bounded_arguments(arguments, "none")) == {"topK": 5}


@pytest.mark.parametrize("privacy", ["text", "hash", "none"])
def test_ugly_and_huge_arguments_are_made_to_fit(privacy):
    deep: dict = {}
    for _ in range(100):
        deep = {"k": deep}
    arguments = {"query": UGLY * 10_000, UGLY: UGLY, "list": ["x" * 900] * 5000, "deep": deep, "nan": float("nan")}
    encoded = bounded_arguments(arguments, privacy)
    assert jsonb_size(encoded) <= MAX_ARGUMENTS_BYTES
    assert b"\\u0000" not in encoded
    json.loads(encoded)


@given(st.dictionaries(TEXTS, st.recursive(TEXTS | st.integers(), st.lists, max_leaves=40), max_size=40))
def test_any_arguments_fit(arguments):
    encoded = bounded_arguments(arguments, "text")
    assert jsonb_size(encoded) <= MAX_ARGUMENTS_BYTES
    assert isinstance(json.loads(encoded), dict)


def test_a_query_of_several_kilobytes_of_wide_characters_still_fits():
    encoded = bounded_arguments({"query": "漢" * 4096, "filters": {"tags": ["x" * 100] * 500}}, "text")
    assert jsonb_size(encoded) <= MAX_ARGUMENTS_BYTES
    assert json.loads(encoded)["query"].startswith("漢漢")


def test_identifiers_are_cleaned_or_left_out():
    assert clean_text("s\x00\udc00" + "x" * 300, 10) == "sxxxxxxxxx"
    assert clean_text(None, 10) is None
    assert hex_id("AB" * 8, 16) == "ab" * 8
    assert [hex_id(value, 16) for value in (None, "", "ab", "zz" * 8, "ab" * 8 + "\n")] == [None] * 5


def test_encoding_is_msgspec_of_the_struct_when_nothing_is_wrong():
    plain = details([block(1, "docs/a.md")])
    assert bounded_details(plain) == msgspec.json.encode(plain)
