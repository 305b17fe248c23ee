"""The reranker without a service: what is configured, where it posts to, and what it takes as an order."""

import json

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import StrataError
from strata.providers.rerank import Reranked, Reranker, _order, rerank_url
from strata.settings import load_settings

URL = "http://rerank.invalid/v1/rerank"
KEY = "sk-do-not-show-me"


def settings(**given):
    return load_settings({f"STRATA_RERANK_{name.upper()}": value for name, value in given.items()}, home="/nowhere")


def seen_by(settings, **given):
    """A reranker, and what it tells its observer."""
    seen = []
    return Reranker(settings, observe=lambda *told: seen.append(told), **given), seen


def test_the_default_is_no_reranker_and_no_warning():
    with structlog.testing.capture_logs() as logs:
        reranker = Reranker(settings())
    assert (reranker.is_configured, reranker.model, logs) == (False, None, [])


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"url": URL}, ["STRATA_RERANK_MODEL"]),
        ({"model": "m"}, ["STRATA_RERANK_URL"]),
        ({"url": URL, "model": "  "}, ["STRATA_RERANK_MODEL"]),
        ({"url": " ", "model": "m", "api_key": KEY}, ["STRATA_RERANK_URL"]),
        ({"api_key": KEY}, ["STRATA_RERANK_URL", "STRATA_RERANK_MODEL"]),
    ],
)
def test_a_part_of_the_configuration_is_off_with_one_warning(given, missing):
    with structlog.testing.capture_logs() as logs:
        reranker = Reranker(settings(**given))
    assert (reranker.is_configured, reranker.model) == (False, None)
    assert logs == [{"event": "rerank_off", "missing": missing, "log_level": "warning"}]


async def test_url_and_model_are_a_configuration_and_the_key_is_optional():
    for key in ("", KEY):
        with structlog.testing.capture_logs() as logs:
            reranker = Reranker(settings(url=URL, model=" m ", api_key=key))
        assert (reranker.is_configured, reranker.model, logs) == (True, "m", [])
        assert KEY not in repr(reranker)
        await reranker.close()
        await reranker.close()


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("http://h", "http://h/rerank"),
        ("http://h/", "http://h/rerank"),
        ("http://h:8000/v1", "http://h:8000/v1/rerank"),
        ("https://api.jina.ai/v1/rerank", "https://api.jina.ai/v1/rerank"),
        ("https://api.cohere.com/v2/rerank/", "https://api.cohere.com/v2/rerank"),
        ("https://h/a/b?version=1#x", "https://h/a/b/rerank?version=1"),
        ("https://h/reranker", "https://h/reranker/rerank"),
    ],
)
def test_the_address_ends_in_rerank(base, address):
    assert rerank_url(base) == address


@pytest.mark.parametrize("base", ["h", "ftp://h/rerank", "http://", "http://h:port", "/rerank", "質問", "http://\0"])
def test_an_address_that_cannot_be_called_ends_the_start(base):
    with pytest.raises(StrataError) as caught:
        Reranker(settings(url=base, model="m"))
    assert (caught.value.code, caught.value.pointer) == ("invalid_setting", "STRATA_RERANK_URL")


def test_an_address_with_a_password_is_refused_without_repeating_it():
    with pytest.raises(StrataError, match="STRATA_RERANK_API_KEY") as caught:
        Reranker(settings(url=f"http://user:{KEY}@h/rerank", model="m"))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("end", ["é", "\n1", "\0", "\x7f"])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(end):
    with pytest.raises(StrataError, match="STRATA_RERANK_API_KEY") as caught:
        Reranker(settings(url=URL, model="m", api_key=KEY + end))
    assert KEY not in str(caught.value)


async def test_without_a_configuration_nothing_is_asked():
    reranker, seen = seen_by(settings())
    for texts in ([], ["a"], ["a", "b"]):
        for model in (None, "m"):
            assert await reranker.rerank("q", texts, model=model) == Reranked(reason="not_configured")
    assert set(seen) == {("not_configured", None, "closed")}
    await reranker.close()


@pytest.mark.parametrize(
    ("texts", "model", "deadline", "reason"),
    [
        (["a", "b"], "other", None, "model_mismatch"),
        (["a", "b"], "M", None, "model_mismatch"),
        (["a", "b"], "", 0.0, "model_mismatch"),
        ([], "other", None, "model_mismatch"),
        ([], None, None, "empty_pool"),
        (["a"], "m", 0.0, "empty_pool"),
        (["a", "b"], "m", 0.0, "timeout"),
        (["a", "b"], None, -1.0, "timeout"),
    ],
)
async def test_what_needs_no_call_makes_none(texts, model, deadline, reason):
    # The host does not resolve: a call would end as provider_error.
    reranker, seen = seen_by(settings(url=URL, model="m"))
    outcome = await reranker.rerank("q", texts, model=model, deadline_seconds=deadline)
    assert outcome == Reranked(reason=reason, model="m")
    assert seen == [(reason, None, "closed")]
    await reranker.close()


def answer(indices):
    return json.dumps({"results": [{"index": index, "relevance_score": 0.5} for index in indices]}).encode()


@given(st.integers(2, 30).flatmap(lambda count: st.permutations(range(count))))
def test_every_permutation_is_taken_as_it_is(order):
    assert _order(answer(order), len(order)) == list(order)


@given(st.lists(st.integers(-2, 7), max_size=8), st.integers(2, 6))
def test_what_is_no_permutation_of_all_texts_is_never_taken(indices, count):
    is_permutation = sorted(indices) == list(range(count))
    assert _order(answer(indices), count) == (indices if is_permutation else "invalid_permutation")


@given(st.binary(max_size=100))
def test_no_bytes_are_an_order_by_accident(content):
    assert _order(content, 2) == "provider_error"
