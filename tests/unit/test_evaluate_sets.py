"""Samples are the same each time, and a question can be held to the sources it is about."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import StrataError
from strata.evaluate.beir import Query, is_within, load_judged_set, sampled, sources_within
from strata.evaluate.rival import rival_for
from strata.evaluate.scratch import kept_name, passing_name
from strata.lookup.request import glob_to_regex
from strata.providers.embeddings.base import EmbeddingSpace


def write_set(folder, corpus, queries, judged):
    folder.mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)), encoding="utf-8")
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    rows = [f"{query}\t{document}\t1" for query, document in judged]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]), encoding="utf-8")
    return folder


@given(st.lists(st.text(max_size=6), unique=True, max_size=30), st.integers(0, 40))
def test_a_sample_keeps_the_order_and_never_changes(ids, most):
    queries = [Query(id=name.encode("utf-8", "replace").decode(), text="?") for name in ids]
    queries = list({query.id: query for query in queries}.values())
    chosen = sampled(queries, most)
    assert chosen == sampled(queries, most)
    assert len(chosen) == min(most, len(queries))
    assert [query for query in queries if query in chosen] == chosen


def test_a_smaller_sample_is_part_of_a_larger_one():
    queries = [Query(id=str(number), text="?") for number in range(50)]
    assert {query.id for query in sampled(queries, 5)} < {query.id for query in sampled(queries, 20)}


@pytest.mark.parametrize(
    ("source", "belongs"),
    [
        ("call-1", True),
        ("call-1#42", True),
        ("call-1:0-3", True),
        ("call-1/a/b.md", True),
        ("call-10#1", False),
        ("a/call-1#1", False),
        ("call-1x", False),
    ],
)
def test_sources_within_share_the_value_up_to_a_separator(source, belongs):
    import re

    query = Query(id="q", text="?", fields={"meeting": "call-1"})
    globs = sources_within(query, "meeting")
    assert any(re.search(glob_to_regex(glob), source) for glob in globs) is belongs
    assert is_within(source, "call-1") is belongs


def test_a_question_without_the_field_is_refused():
    with pytest.raises(StrataError, match="no field meeting"):
        sources_within(Query(id="q", text="?"), "meeting")


def test_fields_that_are_strings_are_kept_and_others_ignored(tmp_path):
    folder = write_set(
        tmp_path / "set",
        [{"_id": "d", "text": "bees"}],
        [{"_id": "q", "text": "bees?", "meeting": "m", "hops": 2, "answer": ["a"], "lang": "en"}],
        [("q", "d")],
    )
    (query,) = load_judged_set(folder).queries
    assert query.fields["meeting"] == "m"
    assert "hops" not in query.fields
    assert query.lang == "en"


def test_a_question_of_another_type_is_refused_with_its_line(tmp_path):
    folder = write_set(tmp_path / "set", [{"_id": "d", "text": "x"}], [{"_id": "q", "text": 5}], [("q", "d")])
    with pytest.raises(StrataError, match=r"queries\.jsonl:1"):
        load_judged_set(folder)


SPACE = EmbeddingSpace(provider="test", model="m", revision="1", dimension=4)


def test_the_name_of_a_kept_context_follows_corpus_and_space(tmp_path):
    judged = load_judged_set(write_set(tmp_path / "set", [{"_id": "d", "text": "x"}], [], []))
    first = kept_name(judged, None)
    assert first == kept_name(judged, None)
    assert first != kept_name(judged, SPACE)
    judged.corpus.write_text('{"_id": "d", "text": "y"}', encoding="utf-8")
    assert first != kept_name(judged, None)
    assert passing_name(judged) != passing_name(judged)


def test_the_rival_ranks_only_inside_the_value_of_a_field(tmp_path):
    folder = write_set(
        tmp_path / "set",
        [
            {"_id": "m1:1", "text": "budget talk"},
            {"_id": "m2:1", "text": "budget budget"},
            {"_id": "m1:2", "text": "tea"},
        ],
        [{"_id": "q", "text": "budget", "meeting": "m1"}],
        [("q", "m1:1")],
    )
    judged = load_judged_set(folder)
    rival = rival_for(judged)
    assert rival.ranking(judged.queries[0], 10) == ["m2:1", "m1:1"]
    assert rival.ranking(judged.queries[0], 10, "meeting") == ["m1:1"]
    assert rival.ranking(judged.queries[0], 1) == ["m2:1"]
