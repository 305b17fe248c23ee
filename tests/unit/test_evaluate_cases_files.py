"""Eval files and thresholds files: what is read, and what is refused by line and by name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from evals_support import EVALS
from evaluate_support import write_set
from strata.errors import StrataError
from strata.evaluate.case_metrics import BY_CASE, CATALOGUE
from strata.evaluate.cases import load_eval, parse_eval
from strata.evaluate.thresholds import parse_thresholds

TYPED = {"type": "eval", "name": "n"}
NUMBERED = {"taguru_eval": 1, "name": "n"}
CASE = {"case_id": "a", "query": "who?"}


def lines(*objects):
    return "\n".join(json.dumps(each) for each in objects).encode()


def refused(content, *words):
    with pytest.raises(StrataError) as caught:
        parse_eval(content, "e.jsonl")
    assert caught.value.code == "invalid_request"
    for word in words:
        assert word in caught.value.detail
    return caught.value


@pytest.mark.parametrize("header", [TYPED, NUMBERED, TYPED | {"version": "2026-10-01"}])
def test_both_headers_are_read(header):
    assert parse_eval(lines(header, CASE), "e.jsonl").name == "n"


@pytest.mark.parametrize(
    ("target", "reference"), [({"context": "handbook"}, "handbook"), ({"context_id": "0198"}, "0198")]
)
def test_a_header_may_name_the_context_in_both_forms(target, reference):
    for header in (TYPED, NUMBERED):
        assert parse_eval(lines(header | {"default_target": target}, CASE), "e").target == reference


def test_what_a_case_leaves_out_has_its_default():
    source = {"source": "s"}
    case = CASE | {"expected_sources": [source], "expected_citations": [source | {"paragraph": 0}]}
    [found] = parse_eval(lines(TYPED, case), "e").cases
    assert found.asked == ("who?",)
    assert (found.wanted[0].paragraphs, found.wanted[0].relevance) == ((), 1)
    assert found.options.limit is None
    assert (found.expected_citations[0].section, found.expected_citations[0].quote) == (UNSET, UNSET)


def test_a_section_that_is_null_is_told_from_one_that_is_absent():
    case = CASE | {"expected_citations": [{"source": "s", "paragraph": 0, "section": None}]}
    assert parse_eval(lines(TYPED, case), "e").cases[0].expected_citations[0].section is None


def test_relevance_0_does_not_count():
    case = CASE | {"expected_sources": [{"source": "s", "relevance": 0}, {"source": "t", "relevance": 3}]}
    assert [each.source for each in parse_eval(lines(TYPED, case), "e").cases[0].wanted] == ["t"]


def test_blank_lines_carriage_returns_and_a_byte_order_mark_are_skipped_but_counted():
    content = b"\xef\xbb\xbf\r\n" + lines(TYPED) + b"\r\n\n  \n" + lines(CASE, {"case_id": "b"})
    refused(content, "e.jsonl:6:", "query")


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ({"name": "n"}, "type"),
        ({"type": "evaluation", "name": "n"}, "type"),
        (TYPED | {"version": "2020-01-01"}, "version"),
        ({"taguru_eval": 2, "name": "n"}, "taguru_eval"),
        (NUMBERED | {"version": "2026-10-01"}, "version"),
        (TYPED | {"default_target": {}}, "exactly one"),
        (TYPED | {"default_target": {"context": "a", "context_id": "b"}}, "exactly one"),
        (TYPED | {"colour": 1}, "colour"),
    ],
)
def test_a_header_that_is_none_is_refused_with_its_line(header, word):
    refused(lines(header, CASE), "e.jsonl:1:", word)


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"null", b"[]", b"\xff\xfe", b"{", b'{"type":"eval","name":"\\ud800"}', b"[" * 100_000]
)
def test_what_is_no_eval_at_all_is_refused(content):
    refused(content, "e.jsonl:1:")


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        ({"expected": []}, "expected"),
        ({"query": " "}, "query"),
        ({"query": ""}, "query"),
        ({"case_id": ""}, "case_id"),
        ({"cues": [1]}, "cues"),
        ({"cues": ["a", "a"]}, "cues"),
        ({"expected_sources": [{"source": "s", "paragraphs": [-1]}]}, "paragraphs"),
        ({"expected_sources": [{"source": "s", "relevance": 4}]}, "relevance"),
        ({"expected_sources": [{"source": "s", "page": 4}]}, "page"),
        ({"expected_sources": [{"source": "s"}, {"source": "s"}]}, "twice"),
        ({"expected_associations": [{"subject": "s", "label": "l"}]}, "object"),
        ({"expected_citations": [{"source": "s"}]}, "paragraph"),
        ({"expected_citations": [{"source": "s", "paragraph": 0, "quote": ""}]}, "quote"),
        ({"options": {"limit": 0}}, "limit"),
        ({"options": {"limit": 1001}}, "limit"),
        ({"options": {"floor": 2}}, "floor"),
        ({"options": {"since": 2, "until": 2}}, "since"),
        ({"options": {"k": 2}}, "k"),
        ({"target": {"context": ""}}, "context"),
    ],
)
def test_a_case_that_is_malformed_is_refused_with_its_line(extra, word):
    refused(lines(TYPED, CASE | {"case_id": "first"}, CASE | extra), "e.jsonl:3:", word)


def test_every_line_at_fault_is_listed():
    error = refused(lines(TYPED, *[{"case_id": str(number)} for number in range(8)]), "e.jsonl:6:", "3 more")
    assert [issue["line"] for issue in error.extra["issues"]] == list(range(2, 10))


def test_a_case_id_that_stands_twice_names_the_first_line():
    refused(lines(TYPED, CASE, CASE), "e.jsonl:3:", "line 2")


def test_an_eval_without_cases_is_refused():
    refused(lines(TYPED), "no cases")


@pytest.mark.parametrize("text", ["日本語の質問", "سؤال", "👩‍👩‍👧", "a\x00b", "x" * 100_000])
def test_ugly_texts_are_read_as_they_are(text):
    assert parse_eval(lines(TYPED, CASE | {"query": text, "cues": [text]}), "e").cases[0].asked == (text,)


def test_the_digest_is_that_of_the_file():
    one, other = (parse_eval(lines(TYPED, CASE | {"case_id": name}), "e").digest for name in "ab")
    assert len(one) == 64
    assert one != other


def test_a_folder_in_beir_layout_is_an_eval(tmp_path):
    corpus = [{"_id": "d1", "title": "", "text": "x"}, {"_id": "d2", "title": "", "text": "y"}]
    queries = [{"_id": "q1", "text": "what?"}, {"_id": "q2", "text": "unjudged?"}, {"_id": "q3", "text": "  "}]
    folder = write_set(tmp_path / "set", corpus, queries, [("q1", "d1"), ("q3", "d2")])
    found = load_eval(folder)
    assert (found.name, found.target) == ("set", None)
    [case] = found.cases
    assert (case.case_id, case.query) == ("q1", "what?")
    assert [(each.source, each.paragraphs, each.relevance) for each in case.wanted] == [("d1", (), 1)]


def test_grades_of_a_folder_are_at_most_3(tmp_path):
    folder = write_set(tmp_path, [{"_id": "d"}], [{"_id": "q", "text": "?"}], [])
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t9\nq\te\t0\n", encoding="utf-8")
    assert [each.relevance for each in load_eval(folder).cases[0].expected_sources] == [3]


def test_a_file_that_is_missing_is_refused(tmp_path):
    with pytest.raises(StrataError, match="cannot be read"):
        load_eval(tmp_path / "nothing.jsonl")


def test_the_shipped_evals_agree_with_their_corpus():
    sources = {}
    for line in (EVALS / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        if "taguru_batch" in fields:
            source = fields["source"]
        elif "passage" in fields:
            sources[source] = fields["passage"].split("\n\n")
    shipped = load_eval(EVALS / "eval.jsonl")
    assert len(shipped.cases) == 32
    for case in (*shipped.cases, *load_eval(EVALS / "facts_eval.jsonl").cases):
        for expected in case.expected_sources:
            assert max(expected.paragraphs) < len(sources[expected.source])
        for cited in case.expected_citations:
            assert cited.quote in sources[cited.source][cited.paragraph]


def thresholds(**fields):
    return parse_thresholds(json.dumps({"type": "evaluate_thresholds"} | fields).encode(), "t.json", {"a", "b"})


def test_both_forms_of_thresholds_are_read():
    typed = thresholds(aggregate={"recall.mrr": {"min": 0.5}}, allow_unstable_corpus=True)
    numbered = parse_thresholds(b'{"taguru_evaluate_thresholds": 1}', "t.json", set())
    assert (typed.aggregate["recall.mrr"].min, typed.allow_unstable_corpus) == (0.5, True)
    assert (numbered.aggregate, numbered.allow_unstable_corpus) == ({}, False)


def test_every_metric_of_the_catalogue_and_its_statistics_can_be_bounded():
    named = [*CATALOGUE, *(f"{key}.{part}" for key in CATALOGUE for part in CATALOGUE[key].statistics())]
    assert thresholds(aggregate={key: {"min": 0} for key in named}).aggregate
    assert thresholds(cases={"default": {key: {"min": 0} for key in BY_CASE}}).cases.of("a")


def test_the_values_of_cases_are_those_of_the_contract():
    assert BY_CASE == (
        "recall.recall_at_k",
        "recall.mrr",
        "recall.ndcg",
        "coverage.concepts",
        "coverage.labels",
        "coverage.associations",
        "citations.recall",
        "citations.locator_validity",
        "latency.passage_ms",
        "diversity.sources",
    )


def test_an_override_wins_metric_by_metric_in_either_spelling():
    default = {"recall_at_k": {"min": 0.5}, "recall.mrr": {"min": 0.1}}
    given = thresholds(cases={"default": default, "overrides": {"b": {"recall.recall_at_k": {"max": 1}}}})
    assert given.cases.of("a")["recall.recall_at_k"].min == 0.5
    assert given.cases.of("b")["recall.recall_at_k"].min is None
    assert given.cases.of("b")["recall.mrr"].min == 0.1


def test_all_metrics_and_cases_that_do_not_exist_are_listed():
    with pytest.raises(StrataError) as caught:
        thresholds(
            aggregate={"recall.map": {"min": 0}, "budget.omitted_rate.p50": {"min": 0}},
            cases={"default": {"rerank.ran": {"min": 0}}, "overrides": {"c": {"mrr": {"min": 0}}}},
        )
    for word in ("recall.map", "budget.omitted_rate.p50", "rerank.ran", "no case c"):
        assert word in caught.value.detail


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"type":"thresholds"}',
        b'{"taguru_evaluate_thresholds":2}',
        b'{"type":"evaluate_thresholds","metrics":{}}',
        b'{"type":"evaluate_thresholds","aggregate":{"recall.mrr":{}}}',
        b'{"type":"evaluate_thresholds","aggregate":{"recall.mrr":{"min":2,"max":1}}}',
        b'{"type":"evaluate_thresholds","aggregate":{"recall.mrr":{"least":1}}}',
        b'{"type":"evaluate_thresholds","aggregate":{"recall.mrr":{"min":NaN}}}',
    ],
)
def test_malformed_thresholds_are_refused(content):
    with pytest.raises(StrataError) as caught:
        parse_thresholds(content, "t.json", set())
    assert caught.value.code == "invalid_request"
    assert "t.json" in caught.value.detail


@given(st.binary(max_size=200))
def test_no_bytes_break_the_readers(content):
    for read in (lambda: parse_eval(content, "e"), lambda: parse_thresholds(content, "t", set())):
        with pytest.raises(StrataError):
            read()
