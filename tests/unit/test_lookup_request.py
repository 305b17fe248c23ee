"""A request is checked whole: every refusal names its field, and what passes cannot fail later."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import StrataError
from strata.lookup.request import as_parameter, decode_query, decode_request, glob_to_regex, plan_lookup
from strata.lookup.schemas import BudgetRequest, Filters, LookupRequest


def refusal(call, *args):
    with pytest.raises(StrataError) as raised:
        call(*args)
    return raised.value.code, raised.value.pointer


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", ("malformed_body", None)),
        (b"{", ("malformed_body", None)),
        (b"[]", ("invalid_request", "/")),
        (b"{}", ("invalid_request", "/query")),
        (b'{"query": 1}', ("invalid_request", "/query")),
        (b'{"query": "x", "topK": 0}', ("invalid_request", "/topK")),
        (b'{"query": "x", "topK": 201}', ("invalid_request", "/topK")),
        (b'{"query": "x", "budget": {"maxItems": -1}}', ("invalid_request", "/budget/maxItems")),
        (b'{"query": "x", "layers": ["L2"]}', ("invalid_request", "/layers/0")),
        (b'{"query": "x", "format": "xml"}', ("invalid_request", "/format")),
        (b'{"query": "x", "sessionId": "' + b"s" * 129 + b'"}', ("invalid_request", "/sessionId")),
        (b'{"query": "x", "filters": {"tags": "a"}}', ("invalid_request", "/filters/tags")),
    ],
)
def test_a_body_that_cannot_be_read_names_the_field(body, expected):
    code, pointer = refusal(decode_request, body)
    assert (code, pointer and re.sub(r"/\.\.\.$", "/0", pointer)) == expected


@pytest.mark.parametrize(
    ("request_", "pointer"),
    [
        (LookupRequest(query="  \n\t "), "/query"),
        (LookupRequest(query="\x00"), "/query"),
        (LookupRequest(query="x" * 4097), "/query"),
        (LookupRequest(query="x", context=[]), "/context"),
        (LookupRequest(query="x", context=["a", " "]), "/context/1"),
        (LookupRequest(query="x", context=[str(n) for n in range(33)]), "/context"),
        (LookupRequest(query="x", category=""), None),
        (LookupRequest(query="x", category=["hr", ""]), "/category/1"),
        (LookupRequest(query="x", filters=Filters(since="soon")), "/filters/since"),
        (LookupRequest(query="x", filters=Filters(until="9999-12-31")), "/filters/until"),
        (LookupRequest(query="x", filters=Filters(language="klingon!")), "/filters/language"),
        (LookupRequest(query="x", filters=Filters(sources=["g" * 1025])), "/filters/sources/0"),
    ],
)
def test_a_request_that_makes_no_sense_names_the_field(request_, pointer):
    if pointer is None:
        plan_lookup(request_)
    else:
        assert refusal(plan_lookup, request_) == ("invalid_request", pointer)


def test_unknown_fields_are_ignored_and_values_cleaned():
    request = decode_request(b'{"query": " a\\u0000b ", "nonsense": 1, "category": ["hr", "hr"], "topK": 7}')
    plan = plan_lookup(request)
    assert plan.query == "ab"
    assert plan.categories == ("hr",)
    assert plan.top_k == 7
    assert plan.contexts == ("default",)


def test_null_is_the_default():
    sent = decode_request(
        b'{"query":"x","context":null,"category":null,"topK":null,"format":null,"budget":null,"layers":null,'
        b'"filters":{"sources":null,"tags":null,"since":null}}'
    )
    assert plan_lookup(sent) == plan_lookup(LookupRequest(query="x"))


def test_a_budget_asks_for_content_unless_the_request_says_otherwise():
    budget = BudgetRequest(max_tokens=100)
    assert plan_lookup(LookupRequest(query="x", budget=budget)).wants_content
    assert not plan_lookup(LookupRequest(query="x", budget=budget, content=False)).wants_content
    assert not plan_lookup(LookupRequest(query="x")).wants_content


def test_an_end_date_includes_its_day_and_times_are_utc():
    filters = Filters(since="2026-01-31", until="2026-01-31")
    found = plan_lookup(LookupRequest(query="x", filters=filters)).source_filter
    assert found.since == datetime(2026, 1, 31, tzinfo=UTC)
    assert found.until == datetime(2026, 2, 1, tzinfo=UTC)
    exact = plan_lookup(LookupRequest(query="x", filters=Filters(until="2026-01-31T12:00:00+09:00"))).source_filter
    assert exact.until == datetime(2026, 1, 31, 3, tzinfo=UTC)


def test_query_parameters_give_the_same_request_as_the_body():
    by_query = decode_query(
        {"q": ["x"], "topK": ["3"], "tags": ["a", "b"], "maxItems": ["2"], "content": ["true"], "layers": ["L1"]}
    )
    by_body = decode_request(
        b'{"query":"x","context":["default"],"topK":3,"filters":{"tags":["a","b"]},"budget":{"maxItems":2},'
        b'"content":true,"layers":["L1"]}'
    )
    assert plan_lookup(by_query) == plan_lookup(by_body)


@pytest.mark.parametrize(
    ("parameters", "pointer"),
    [({}, "/q"), ({"q": ["x"], "topK": ["many"]}, "/topK"), ({"q": ["x"], "content": ["perhaps"]}, "/content")],
)
def test_a_query_parameter_that_is_wrong_is_named(parameters, pointer):
    assert refusal(decode_query, parameters) == ("invalid_request", pointer)


@pytest.mark.parametrize(
    ("pointer", "parameter"),
    [
        ("/query", "?q"),
        ("/q", "?q"),
        ("/topK", "?topK"),
        ("/context/1", "?context"),
        ("/filters/since", "?since"),
        ("/filters/tags/0", "?tags"),
        ("/budget/maxItems", "?maxItems"),
        ("?q", "?q"),
        (None, None),
    ],
)
def test_a_field_of_the_body_has_its_query_parameter(pointer, parameter):
    assert as_parameter(pointer) == parameter


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("docs/*.md", "docs/a.md", True),
        ("docs/*.md", "docs/x/a.md", False),
        ("docs/**/*.md", "docs/a.md", True),
        ("docs/**/*.md", "docs/x/y/a.md", True),
        ("**", "any/thing", True),
        ("a?.md", "ab.md", True),
        ("a?.md", "a/.md", False),
        ("a+b(c).md", "a+b(c).md", True),
        ("a.md", "axmd", False),
        ("日本/*.md", "日本/語.md", True),
    ],
)
def test_globs_are_literal_but_for_their_wildcards(glob, path, matches):
    assert bool(re.search(glob_to_regex(glob), path)) is matches


@given(st.text(alphabet=st.characters(exclude_characters="*?\n", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_a_path_without_wildcards_matches_itself_only(path):
    pattern = glob_to_regex(path)
    assert re.fullmatch(pattern.removeprefix("^").removesuffix("$"), path)
    assert not re.fullmatch(pattern.removeprefix("^").removesuffix("$"), path + "x")


@given(st.binary(max_size=200))
def test_no_bytes_make_decoding_fail_otherwise(body):
    with contextlib.suppress(StrataError):
        decode_request(body)
