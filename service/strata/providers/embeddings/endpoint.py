"""An embedding service that speaks OpenAI's ``POST /v1/embeddings``."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec
import numpy as np

from strata.errors import EMBEDDING_REFUSED, EMBEDDING_UNAVAILABLE, INVALID_SETTING, StrataError
from strata.providers.embeddings.base import MAX_DIMENSION, EmbeddingSpace, Vectors, checked, refused, well_formed
from strata.providers.http import HttpClient, Limits, ProviderError, ProviderRefusedError
from strata.settings import Settings

QUESTIONS = 8
"""Connections kept for questions, so that they do not wait behind batches of passages."""

_PROBE = "dimension"
_QUESTION_ATTEMPTS = 2
_BYTES_A_VECTOR = MAX_DIMENSION * 40
"""The longest text of a vector: a number takes up to 25 characters, and a line of its own in pretty JSON."""

_THREAD_BYTES = 1024 * 1024
"""Answers longer than this are decoded in a thread."""

_TOO_LONG = re.compile(
    r"context[_ ]length|maximum context|max(imum)?[_ ](input|sequence|model)[_ ](len|length|tokens)|too (long|large)"
    r"|too many (input )?tokens|token limit|less than \d+ tokens",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")


class _Item(msgspec.Struct):
    index: int
    embedding: list[float] | str


class _Answer(msgspec.Struct):
    data: list[_Item]


_decoder = msgspec.json.Decoder(_Answer)


def embeddings_url(base: str) -> str:
    """Return the address to post to; ``base`` may end in ``/embeddings``, in ``/v1`` or before it.

    A base with a path but no version keeps its path: ``https://host/api`` becomes
    ``https://host/api/v1/embeddings``. Raises ``invalid_setting`` when it is no http address, or holds
    a user name.
    """
    setting = "STRATA_EMBEDDINGS_URL"
    try:
        url = httpx2.URL(base.strip())
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise StrataError(INVALID_SETTING, f"{setting} is not an http or https address.", pointer=setting)
    if url.userinfo:
        raise StrataError(
            INVALID_SETTING,
            f"{setting} holds a user name or password; put the key into STRATA_EMBEDDINGS_API_KEY.",
            pointer=setting,
        )
    path = url.path.rstrip("/")
    if not path.endswith("/embeddings"):
        path += "/embeddings" if re.search(r"/v\d+[a-z0-9]*$", path) else "/v1/embeddings"
    return str(url.copy_with(path=path, fragment=None))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The configured service: one client with one breaker, whatever models are asked of it."""

    url: str
    client: HttpClient
    batches: asyncio.Semaphore


def _required(name: str, value: str | None) -> str:
    if not value:
        raise StrataError(INVALID_SETTING, f"An embedding endpoint needs {name}.", pointer=name)
    return value


def open_endpoint(settings: Settings) -> Endpoint:
    """Make the client of STRATA_EMBEDDINGS_URL; raises ``invalid_setting``. Calls nothing yet."""
    url = embeddings_url(_required("STRATA_EMBEDDINGS_URL", settings.embeddings_url))
    headers = {}
    if settings.embeddings_api_key:
        key = settings.embeddings_api_key.strip()
        if not key.isascii() or not key.isprintable():
            raise StrataError(
                INVALID_SETTING,
                "STRATA_EMBEDDINGS_API_KEY holds characters that no header can carry.",
                pointer="STRATA_EMBEDDINGS_API_KEY",
            )
        headers["Authorization"] = f"Bearer {key}"
    limits = Limits(
        timeout_seconds=settings.embeddings_timeout_seconds,
        concurrency=settings.embeddings_concurrency + QUESTIONS,
    )
    client = HttpClient(headers=headers, limits=limits)
    return Endpoint(url, client, asyncio.Semaphore(settings.embeddings_concurrency))


class EndpointEmbedder:
    """Embeds by an OpenAI-compatible service.

    The dimension is asked for where the settings name it; elsewhere it is what the model gives. An
    answer of another dimension is refused. ``is_rebuilt``: the space was described by an earlier
    configuration, which may have asked for a dimension, so longer vectors are asked for once more, cut.
    The endpoint is shared and stays open: who opened it closes its client.
    """

    def __init__(
        self, endpoint: Endpoint, space: EmbeddingSpace, settings: Settings, *, is_rebuilt: bool = False
    ) -> None:
        self._endpoint = endpoint
        self._space = space
        self._settings = settings
        self._asks_dimension = settings.embeddings_dimensions == space.dimension
        self._may_cut = is_rebuilt and not self._asks_dimension

    @classmethod
    async def open(cls, endpoint: Endpoint, settings: Settings) -> EndpointEmbedder:
        """Open the configured model; where no dimension is set, one call learns it.

        Raises ``embedding_unavailable`` or ``embedding_refused`` when that call fails.
        """
        space = EmbeddingSpace(
            provider="endpoint",
            model=_required("STRATA_EMBEDDINGS_MODEL", settings.embeddings_model),
            revision=settings.embeddings_revision,
            dimension=settings.embeddings_dimensions or 0,
            query_prefix=settings.embeddings_query_prefix,
            passage_prefix=settings.embeddings_passage_prefix,
            pooling="provider",
        )
        embedder = cls(endpoint, space, settings)
        if not space.dimension:
            rows = await embedder._post([f"{space.passage_prefix}{_PROBE}"], asks_dimension=False)
            dimension = len(rows[0])
            if not 1 <= dimension <= MAX_DIMENSION:
                raise StrataError(
                    EMBEDDING_REFUSED,
                    f"The embedder returned vectors of {dimension} dimensions; 1 to {MAX_DIMENSION} can be stored.",
                    remedy="Choose another model, or set STRATA_EMBEDDINGS_DIMENSIONS where it can cut its vectors.",
                )
            checked(rows, count=1, dimension=dimension)
            embedder = cls(endpoint, msgspec.structs.replace(space, dimension=dimension), settings)
        return embedder

    @property
    def space(self) -> EmbeddingSpace:
        """The space of every vector it returns."""
        return self._space

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Embed in batches, several at once; the first that fails ends the others. As :class:`Embedder`."""
        size = self._settings.embeddings_batch
        prefix = self._space.passage_prefix
        given = [prefix + well_formed(text) for text in texts]
        batches = [given[start : start + size] for start in range(0, len(given), size)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._batch(batch)) for batch in batches]
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        done = [task.result() for task in tasks]
        return np.concatenate(done) if done else np.empty((0, self._space.dimension), np.float32)

    async def embed_query(self, text: str) -> Vectors:
        """Embed a question, within nine tenths of the time that a lookup waits for it. As :class:`Embedder`."""
        # Less than the lookup waits, so that the breaker learns of a service that hangs.
        deadline = 0.9 * self._settings.embeddings_query_timeout_seconds
        given = [self._space.query_prefix + well_formed(text)]
        vector: Vectors = (await self._vectors(given, deadline=deadline, attempts=_QUESTION_ATTEMPTS))[0]
        return vector

    async def close(self) -> None:
        """Do nothing: the endpoint belongs to who opened it."""

    async def _batch(self, texts: list[str]) -> Vectors:
        async with self._endpoint.batches:
            return await self._vectors(texts)

    async def _vectors(
        self, texts: list[str], *, deadline: float | None = None, attempts: int | None = None
    ) -> Vectors:
        dimension = self._space.dimension
        rows = await self._post(texts, asks_dimension=self._asks_dimension, deadline=deadline, attempts=attempts)
        if self._may_cut and not self._asks_dimension and all(len(row) > dimension for row in rows):
            try:
                cut = await self._post(texts, asks_dimension=True, deadline=deadline, attempts=attempts)
            except StrataError as error:
                if error.kind is not EMBEDDING_REFUSED:
                    raise
            else:
                vectors = checked(cut, count=len(texts), dimension=dimension)
                self._asks_dimension = True
                return vectors
        return checked(rows, count=len(texts), dimension=dimension)

    async def _post(
        self, texts: list[str], *, asks_dimension: bool, deadline: float | None = None, attempts: int | None = None
    ) -> list[Any]:
        """Send one batch and return its vectors in the order of the texts, not checked yet."""
        body: dict[str, Any] = {"model": self._space.model, "input": texts, "encoding_format": "float"}
        if asks_dimension:
            body["dimensions"] = self._space.dimension
        try:
            content = await self._endpoint.client.post(
                self._endpoint.url,
                msgspec.json.encode(body),
                deadline_seconds=deadline,
                attempts=attempts,
                max_response_bytes=_THREAD_BYTES + len(texts) * _BYTES_A_VECTOR,
            )
        except ProviderError as error:
            raise _as_strata_error(error) from error
        if len(content) > _THREAD_BYTES:
            return await asyncio.to_thread(_rows, content, len(texts))
        return _rows(content, len(texts))


def _rows(content: bytes, count: int) -> list[Any]:
    """Read an answer: as many vectors as texts, each index once. Raises ``embedding_refused``."""
    try:
        items = _decoder.decode(content).data
    except (msgspec.DecodeError, RecursionError) as error:
        words = "what does not fit the format of embeddings, or holds a number that is none (null, NaN)"
        raise refused(words) from error
    if len(items) != count:
        raise refused(f"{len(items)} vectors for {count} texts")
    rows: list[Any] = [None] * count
    for item in items:
        if not 0 <= item.index < count or rows[item.index] is not None:
            raise refused(f"index {item.index} twice, or beyond the {count} texts")
        rows[item.index] = _unpacked(item.embedding) if isinstance(item.embedding, str) else item.embedding
    return rows


def _unpacked(packed: str) -> Any:
    try:
        return np.frombuffer(base64.b64decode(packed, validate=True), "<f4")
    except (binascii.Error, ValueError) as error:
        raise refused("a vector that is not base64 of 32-bit floats") from error


def _as_strata_error(error: ProviderError) -> StrataError:
    """Say in words of this service what became of a call; of the answer, only its error's code."""
    extra = {"providerStatus": error.status} if error.status is not None else {}
    where = f"The embedding endpoint {error.host}"
    if error.status == 413 or (error.status is not None and error.status >= 400 and _is_too_long(error.body)):
        return StrataError(
            EMBEDDING_REFUSED,
            f"{where} answered {error.status}: the input is too long for it.",
            remedy="Set a smaller STRATA_EMBEDDINGS_BATCH, or use a model that takes longer texts.",
            extra=extra,
        )
    if not isinstance(error, ProviderRefusedError):
        return StrataError(EMBEDDING_UNAVAILABLE, f"{where} {error.words}.", extra=extra)
    name = _error_name(error.body)
    detail = f"{where} {error.words}{f' ({name})' if name else ''}."
    remedy = _REMEDIES.get(error.status or 0)
    return StrataError(EMBEDDING_REFUSED, detail, remedy=remedy, extra=extra)


_REMEDIES = {
    401: "Set STRATA_EMBEDDINGS_API_KEY to a key that the endpoint takes.",
    403: "Set STRATA_EMBEDDINGS_API_KEY to a key that may use STRATA_EMBEDDINGS_MODEL.",
    404: "Check the path of STRATA_EMBEDDINGS_URL and the name in STRATA_EMBEDDINGS_MODEL.",
}


def _error(body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return {}
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    return error if isinstance(error, dict) else {"message": error}


def _error_name(body: bytes) -> str | None:
    """Return the code or type of an error answer, when it looks like a name and not like a text."""
    error = _error(body)
    for key in ("code", "type", "error_type"):
        value = error.get(key)
        if isinstance(value, str) and _NAME.fullmatch(value):
            return value
    return None


def _is_too_long(body: bytes) -> bool:
    error = _error(body)
    return any(_TOO_LONG.search(str(error.get(key, ""))) for key in ("code", "type", "error_type", "message", "detail"))
