"""Which embedder a configuration names, and which one can serve the vectors that are stored."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from strata.errors import EMBEDDING_UNAVAILABLE, INVALID_SETTING, StrataError
from strata.providers.embeddings.base import Embedder, EmbeddingSpace, Vectors, is_cancelled
from strata.providers.embeddings.endpoint import Endpoint, EndpointEmbedder, open_endpoint
from strata.providers.embeddings.local import LOCAL_SPACE, LocalEmbedder
from strata.providers.embeddings.queries import QueryVectors
from strata.settings import Settings

Mode: TypeAlias = Literal["none", "local", "folder", "endpoint"]

_PAUSE_SECONDS = 5.0
"""How long the failure of an opening stands before it is tried again."""

_CONFIGURED = b"configured"


class EmbedderDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is configured and what is known of it; nothing is opened to tell.

    ``space`` is None until the embedder is open, unless it is the local one. ``error`` is why the last
    opening failed. ``breaker`` is None where no endpoint was called.
    """

    mode: Mode
    model: str | None
    space: EmbeddingSpace | None
    is_open: bool
    error: str | None
    breaker: str | None
    cache_hits: int
    cache_misses: int
    cache_entries: int


class Embedders:
    """The embedders of one process: the configured one, and those that stored vectors need.

    Opening is lazy, happens once, and goes on when who asked for it gives up; a failure is remembered
    for five seconds. ``observe`` is told of each question whether its vector was cached. For one event loop.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
        observe: Callable[[bool], None] | None = None,
    ) -> None:
        self._settings = settings
        self._mode = _mode(settings)
        self._folder = Path(settings.embeddings).expanduser()
        self._local_key = _CONFIGURED if self._mode == "local" else LOCAL_SPACE.fingerprint
        self._clock = clock
        self._openings: dict[bytes, asyncio.Task[Embedder]] = {}
        self._failed: dict[bytes, tuple[float, StrataError]] = {}
        self._endpoint: Endpoint | None = None
        self._opening_endpoint = threading.Lock()
        self._is_closed = False
        self._queries = QueryVectors(
            settings.embeddings_cache_entries, settings.embeddings_query_timeout_seconds, observe
        )

    @property
    def mode(self) -> Mode:
        """Which kind of embedder is configured."""
        return self._mode

    @property
    def cache_hits(self) -> int:
        """Questions answered from the cache, or by a call that was under way for an equal one."""
        return self._queries.hits

    @property
    def cache_misses(self) -> int:
        """Questions that an embedder was called for."""
        return self._queries.misses

    async def configured(self) -> Embedder | None:
        """Return the configured embedder, opened; None with STRATA_EMBEDDINGS=none.

        Raises ``embedding_model_missing``, ``embedding_unavailable``, ``embedding_refused`` or
        ``invalid_setting`` when it cannot be opened.
        """
        if self._mode == "none":
            return None
        return await self._open(_CONFIGURED, self._open_configured)

    async def for_space(self, space: EmbeddingSpace) -> Embedder | None:
        """Return an embedder whose vectors are of that space, or None where this configuration has none.

        The local model serves its own space whatever is configured beside it. A folder serves the space
        of its files and prefixes. An endpoint serves any model by name, with the dimension and prefixes
        of the space; the configured model only at the configured revision. STRATA_EMBEDDINGS=none
        serves no space. Raises as :meth:`configured`.
        """
        if self._mode == "none":
            return None
        if space.provider == "local":
            is_ours = space.fingerprint == LOCAL_SPACE.fingerprint
            return await self._open(self._local_key, self._local) if is_ours else None
        if space.provider == "folder" and self._mode == "folder":
            configured = await self._open(_CONFIGURED, self._open_configured)
            return configured if configured.space.fingerprint == space.fingerprint else None
        if space.provider == "endpoint" and self._settings.embeddings_url:
            return await self._endpoint_for(space)
        return None

    async def query_vector(self, space: EmbeddingSpace, text: str) -> Vectors:
        """Return the unit vector of a question in a space, shape (dimension,), read-only; cached.

        Equal questions asked at once share one call, which is ended when nobody waits for it any more.
        Raises ``embedding_unavailable`` when no embedder serves the space, or none answers within
        STRATA_EMBEDDINGS_QUERY_TIMEOUT_SECONDS, opening included; else as the embedder does.
        """

        async def embed() -> Vectors:
            embedder = await self.for_space(space)
            if embedder is None:
                raise StrataError(
                    EMBEDDING_UNAVAILABLE,
                    f"No embedder is configured that makes the vectors stored: {space.provider} {space.model}.",
                    remedy="Configure the embedder that made them, or run `strata embeddings rebuild`.",
                )
            return await embedder.embed_query(text)

        if self._is_closed:
            raise _closed()
        return await self._queries.get(space.fingerprint, text, embed)

    def describe(self) -> EmbedderDescription:
        """Say what is configured and what is known of it."""
        embedder = self._configured_now()
        space = embedder.space if embedder is not None else None
        if self._mode == "local":
            space = LOCAL_SPACE
        names = {"none": None, "local": LOCAL_SPACE.model, "endpoint": self._settings.embeddings_model}
        failure = self._failed.get(_CONFIGURED)
        return EmbedderDescription(
            mode=self._mode,
            model=names.get(self._mode, self._folder.name),
            space=space,
            is_open=embedder is not None,
            error=failure[1].detail if failure else None,
            breaker=self._endpoint.client.breaker.state if self._endpoint else None,
            cache_hits=self._queries.hits,
            cache_misses=self._queries.misses,
            cache_entries=len(self._queries),
        )

    async def close(self) -> None:
        """Close every embedder. Calls under way fail as unavailable. Safe to call again."""
        self._is_closed = True
        openings, self._openings = list(self._openings.values()), {}
        await self._queries.close()
        for opening in openings:
            opening.cancel()
        for outcome in await asyncio.gather(*openings, return_exceptions=True):
            if not isinstance(outcome, BaseException):
                await outcome.close()
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.client.close()

    def _configured_now(self) -> Embedder | None:
        """Return the configured embedder if it is open."""
        opening = self._openings.get(_CONFIGURED)
        is_open = opening is not None and opening.done() and not opening.cancelled() and opening.exception() is None
        return opening.result() if opening is not None and is_open else None

    async def _open(self, key: bytes, work: Callable[[], Awaitable[Embedder]]) -> Embedder:
        """Open once, however many ask; who is cancelled leaves the opening to the others."""
        if self._is_closed:
            raise _closed()
        opening = self._openings.get(key)
        if opening is None:
            failure = self._failed.get(key)
            if failure is not None and self._clock() < failure[0] + _PAUSE_SECONDS:
                raise StrataError(failure[1].kind, failure[1].detail, remedy=failure[1].remedy, extra=failure[1].extra)
            opening = self._openings[key] = asyncio.ensure_future(_await(work))
            opening.add_done_callback(lambda done: self._note(key, done))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise _closed() from None

    def _note(self, key: bytes, opening: asyncio.Task[Embedder]) -> None:
        if opening.cancelled():
            self._openings.pop(key, None)
            return
        error = opening.exception()
        if error is None:
            self._failed.pop(key, None)
            return
        self._openings.pop(key, None)
        if isinstance(error, StrataError):
            self._failed[key] = (self._clock(), error)

    async def _endpoint_for(self, space: EmbeddingSpace) -> Embedder | None:
        settings = self._settings
        if space.model == settings.embeddings_model and space.revision != settings.embeddings_revision:
            return None
        opened = self._configured_now()
        if opened is not None and opened.space.fingerprint == space.fingerprint:
            return opened
        return await self._open(space.fingerprint, lambda: self._rebuilt(space))

    async def _open_configured(self) -> Embedder:
        if self._mode == "local":
            return await self._local()
        if self._mode == "folder":
            return await LocalEmbedder.open_folder(self._folder, self._settings)
        return await EndpointEmbedder.open(await asyncio.to_thread(self._open_endpoint), self._settings)

    async def _local(self) -> Embedder:
        return await LocalEmbedder.open_local(self._settings)

    async def _rebuilt(self, space: EmbeddingSpace) -> Embedder:
        endpoint = await asyncio.to_thread(self._open_endpoint)
        return EndpointEmbedder(endpoint, space, self._settings, is_rebuilt=True)

    def _open_endpoint(self) -> Endpoint:
        """Return the one client of the endpoint; for a thread, since the first call reads the certificates."""
        with self._opening_endpoint:
            if self._endpoint is None:
                self._endpoint = open_endpoint(self._settings)
            return self._endpoint


async def _await(work: Callable[[], Awaitable[Embedder]]) -> Embedder:
    return await work()


def _mode(settings: Settings) -> Mode:
    """Read STRATA_EMBEDDINGS; raises ``invalid_setting`` when it is neither a word nor a path."""
    name = settings.embeddings
    if name == "auto":
        return "endpoint" if settings.embeddings_url else "local"
    if name == "none":
        return "none"
    if name == "local":
        return "local"
    if name == "endpoint":
        return "endpoint"
    if "/" in name or name.startswith(("~", ".")) or Path(name).is_dir():
        return "folder"
    setting = "STRATA_EMBEDDINGS"
    raise StrataError(
        INVALID_SETTING, f"{setting} is none of auto, local, endpoint and none, and no folder.", pointer=setting
    )


def _closed() -> StrataError:
    return StrataError(EMBEDDING_UNAVAILABLE, "The embedders are closed.")
