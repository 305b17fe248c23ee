"""Which embedder is configured, and which one serves the vectors that are stored."""

import asyncio

import msgspec
import numpy as np
import pytest

from strata.errors import EMBEDDING_MODEL_MISSING, EMBEDDING_UNAVAILABLE, StrataError
from strata.providers.embeddings import embedders as module
from strata.providers.embeddings.base import EmbeddingSpace
from strata.providers.embeddings.embedders import Embedders
from strata.providers.embeddings.endpoint import EndpointEmbedder, embeddings_url, open_endpoint
from strata.providers.embeddings.local import LOCAL_SPACE
from strata.settings import load_settings

KEY = "sk-very-secret"


class Fake:
    """An embedder without a model."""

    def __init__(self, space=LOCAL_SPACE):
        self.space = space
        self.is_closed = False
        self.questions = 0

    async def embed_query(self, text):
        self.questions += 1
        return np.ones(3, np.float32)

    async def close(self):
        self.is_closed = True


@pytest.fixture
def opened(monkeypatch):
    """The local embedders opened, each a fake; ``fails`` holds the errors of the next openings."""

    class Opened(list):
        def __init__(self):
            super().__init__()
            self.fails = []
            self.gate = None

    opened = Opened()

    async def open_local(settings):
        if opened.gate is not None:
            await opened.gate.wait()
        if opened.fails:
            raise opened.fails.pop(0)
        opened.append(Fake())
        return opened[-1]

    monkeypatch.setattr(module.LocalEmbedder, "open_local", open_local)
    return opened


def settings(tmp_path, **given):
    return load_settings({}, home=str(tmp_path), **given)


def endpoint(tmp_path, **given):
    base = {
        "embeddings_url": "http://127.0.0.1:9",
        "embeddings_model": "m",
        "embeddings_api_key": KEY,
        "embeddings_dimensions": 3,
    }
    return settings(tmp_path, **(base | given))


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, "local"),
        ({"embeddings_url": "http://h"}, "endpoint"),
        ({"embeddings_url": "http://h", "embeddings": "local"}, "local"),
        ({"embeddings_url": "http://h", "embeddings": "none"}, "none"),
        ({"embeddings": "endpoint"}, "endpoint"),
        ({"embeddings": "/models/mine"}, "folder"),
        ({"embeddings": "~/mine"}, "folder"),
        ({"embeddings": "./mine"}, "folder"),
    ],
)
def test_the_setting_names_the_embedder(tmp_path, given, mode):
    assert Embedders(settings(tmp_path, **given)).mode == mode


def test_a_word_that_is_no_embedder_is_an_invalid_setting(tmp_path):
    with pytest.raises(StrataError) as caught:
        Embedders(settings(tmp_path, embeddings="locale"))
    assert (caught.value.code, caught.value.pointer) == ("invalid_setting", "STRATA_EMBEDDINGS")


async def test_none_embeds_nothing_and_serves_no_space(tmp_path, opened):
    embedders = Embedders(settings(tmp_path, embeddings="none", embeddings_url="http://h"))
    assert await embedders.configured() is None
    assert await embedders.for_space(LOCAL_SPACE) is None
    with pytest.raises(StrataError) as caught:
        await embedders.query_vector(LOCAL_SPACE, "q")
    assert caught.value.code == "embedding_unavailable"
    assert embedders.describe().mode == "none"
    await embedders.close()


async def test_the_configured_embedder_is_opened_once_however_many_ask(tmp_path, opened):
    embedders = Embedders(settings(tmp_path))
    found = await asyncio.gather(*(embedders.configured() for _ in range(5)), embedders.for_space(LOCAL_SPACE))
    assert len(opened) == 1
    assert set(found) == {opened[0]}
    assert embedders.describe().is_open
    await embedders.close()
    await embedders.close()
    assert opened[0].is_closed


async def test_a_cancelled_caller_leaves_the_opening_to_the_others(tmp_path, opened):
    opened.gate = asyncio.Event()
    embedders = Embedders(settings(tmp_path))
    first, second = (asyncio.ensure_future(embedders.configured()) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    opened.gate.set()
    assert await second is opened[0]
    await embedders.close()


async def test_a_question_does_not_wait_for_a_slow_opening_which_goes_on(tmp_path, opened):
    opened.gate = asyncio.Event()
    embedders = Embedders(settings(tmp_path, embeddings_query_timeout_seconds=0.05))
    with pytest.raises(StrataError) as caught:
        await embedders.query_vector(LOCAL_SPACE, "q")
    assert caught.value.code == "embedding_unavailable"
    opened.gate.set()
    assert (await embedders.query_vector(LOCAL_SPACE, "q")).shape == (3,)
    assert len(opened) == 1
    await embedders.close()


async def test_a_failed_opening_is_tried_again_after_a_pause(tmp_path, opened):
    now = [0.0]
    opened.fails = [StrataError(EMBEDDING_MODEL_MISSING, "first"), StrataError(EMBEDDING_MODEL_MISSING, "second")]
    embedders = Embedders(settings(tmp_path), clock=lambda: now[0])
    for moment, words in [(0, "first"), (4.9, "first"), (5, "second"), (5.1, "second")]:
        now[0] = moment
        with pytest.raises(StrataError, match=words) as caught:
            await embedders.configured()
        assert caught.value.code == "embedding_model_missing"
    assert embedders.describe().error == "second"
    now[0] = 10.1
    assert await embedders.configured() is opened[0]
    assert embedders.describe().error is None
    await embedders.close()


async def test_closing_while_it_opens_fails_who_waits_as_unavailable(tmp_path, opened):
    opened.gate = asyncio.Event()
    embedders = Embedders(settings(tmp_path))
    task = asyncio.ensure_future(embedders.configured())
    await asyncio.sleep(0.01)
    await embedders.close()
    with pytest.raises(StrataError) as caught:
        await task
    assert caught.value.kind is EMBEDDING_UNAVAILABLE
    with pytest.raises(StrataError):
        await embedders.configured()
    with pytest.raises(StrataError):
        await embedders.query_vector(LOCAL_SPACE, "q")


async def test_questions_are_counted(tmp_path, opened):
    embedders = Embedders(settings(tmp_path))
    for text in ("a", "a", "b"):
        await embedders.query_vector(LOCAL_SPACE, text)
    assert (embedders.cache_hits, embedders.cache_misses) == (1, 2)
    assert opened[0].questions == 2
    described = embedders.describe()
    assert (described.cache_hits, described.cache_misses, described.cache_entries) == (1, 2, 2)
    await embedders.close()


async def test_the_local_space_is_served_whatever_is_configured_beside_it(tmp_path, opened):
    embedders = Embedders(endpoint(tmp_path))
    assert await embedders.for_space(LOCAL_SPACE) is opened[0]
    await embedders.close()
    assert opened[0].is_closed


@pytest.mark.parametrize("change", [{"revision": "other"}, {"dimension": 7}, {"quantiser": "none"}])
async def test_a_local_space_of_another_make_is_not_served(tmp_path, opened, change):
    embedders = Embedders(settings(tmp_path))
    assert await embedders.for_space(msgspec.structs.replace(LOCAL_SPACE, **change)) is None
    assert not opened
    await embedders.close()


async def test_a_folder_space_is_not_served_by_another_embedder(tmp_path, opened):
    embedders = Embedders(settings(tmp_path))
    assert await embedders.for_space(msgspec.structs.replace(LOCAL_SPACE, provider="folder")) is None
    assert await embedders.for_space(msgspec.structs.replace(LOCAL_SPACE, provider="unheard-of")) is None
    await embedders.close()


async def test_an_endpoint_with_a_dimension_opens_without_a_call(tmp_path):
    embedders = Embedders(endpoint(tmp_path, embeddings_query_prefix="q: ", embeddings_revision="7"))
    embedder = await embedders.configured()
    assert embedder.space == EmbeddingSpace(
        provider="endpoint", model="m", revision="7", dimension=3, query_prefix="q: ", pooling="provider"
    )
    assert await embedders.for_space(embedder.space) is embedder
    assert embedders.describe().breaker == "closed"
    await embedders.close()


async def test_an_endpoint_serves_the_space_of_an_earlier_model_dimension_and_prefix(tmp_path):
    before = EmbeddingSpace(provider="endpoint", model="old", revision="1", dimension=7, passage_prefix="p: ")
    embedders = Embedders(endpoint(tmp_path))
    embedder = await embedders.for_space(before)
    assert isinstance(embedder, EndpointEmbedder)
    assert embedder.space == before
    assert await embedders.for_space(before) is embedder
    await embedders.close()


async def test_the_url_and_the_key_are_no_part_of_the_space(tmp_path):
    spaces = []
    for url, key in [("http://a", "x"), ("http://b:1/v1", None)]:
        embedders = Embedders(endpoint(tmp_path, embeddings_url=url, embeddings_api_key=key))
        spaces.append((await embedders.configured()).space.fingerprint)
        await embedders.close()
    assert spaces[0] == spaces[1]


async def test_the_configured_model_at_another_revision_serves_no_older_vectors(tmp_path):
    embedders = Embedders(endpoint(tmp_path, embeddings_revision="2"))
    before = msgspec.structs.replace((await embedders.configured()).space, revision="1")
    assert await embedders.for_space(before) is None
    await embedders.close()


async def test_an_endpoint_space_is_not_served_without_an_endpoint(tmp_path, opened):
    embedders = Embedders(settings(tmp_path))
    assert await embedders.for_space(EmbeddingSpace(provider="endpoint", model="m", revision="", dimension=3)) is None
    await embedders.close()


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h", "http://h/v1/embeddings"),
        ("http://h/", "http://h/v1/embeddings"),
        ("http://h/v1", "http://h/v1/embeddings"),
        ("http://h/v1/", "http://h/v1/embeddings"),
        ("http://h/v1/embeddings", "http://h/v1/embeddings"),
        ("http://h/v1/embeddings/", "http://h/v1/embeddings"),
        (" https://h:8443/api ", "https://h:8443/api/v1/embeddings"),
        ("https://h/v1beta", "https://h/v1beta/embeddings"),
        ("https://h/x/embeddings?api-version=1", "https://h/x/embeddings?api-version=1"),
        ("http://[::1]:9", "http://[::1]:9/v1/embeddings"),
    ],
)
def test_the_base_may_stop_before_or_after_the_version(base, url):
    assert embeddings_url(base) == url


@pytest.mark.parametrize("base", ["h/v1", "ftp://h", "http://", "", "https://user:hush@h", "http://h:x"])
def test_what_is_no_http_address_is_an_invalid_setting_that_does_not_repeat_it(base):
    with pytest.raises(StrataError) as caught:
        embeddings_url(base)
    assert (caught.value.code, caught.value.pointer) == ("invalid_setting", "STRATA_EMBEDDINGS_URL")
    assert "hush" not in caught.value.detail


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel", "a\0b"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(tmp_path, key):
    with pytest.raises(StrataError) as caught:
        open_endpoint(endpoint(tmp_path, embeddings_api_key=key))
    assert caught.value.pointer == "STRATA_EMBEDDINGS_API_KEY"
    assert key not in str(caught.value)


@pytest.mark.parametrize("missing", ["embeddings_url", "embeddings_model"])
async def test_an_endpoint_needs_an_address_and_a_model(tmp_path, missing):
    given = {"embeddings_url": "http://h", "embeddings_model": "m", "embeddings": "endpoint"} | {missing: ""}
    embedders = Embedders(settings(tmp_path, **given))
    with pytest.raises(StrataError) as caught:
        await embedders.configured()
    assert (caught.value.code, caught.value.pointer) == ("invalid_setting", f"STRATA_{missing.upper()}")
    await embedders.close()
