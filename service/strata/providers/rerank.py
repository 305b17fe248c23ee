"""A reranking service that speaks the ``POST /rerank`` of Cohere and Jina."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import httpx2
import msgspec
import structlog

from strata.errors import INVALID_SETTING, StrataError
from strata.providers.breaker import Breaker, State
from strata.providers.embeddings.base import well_formed
from strata.providers.http import HttpClient, Limits, ProviderRefusedError, ProviderUnavailableError
from strata.settings import Settings

Reason: TypeAlias = Literal[
    "not_configured",
    "model_mismatch",
    "empty_pool",
    "invalid_permutation",
    "circuit_open",
    "timeout",
    "provider_error",
]
"""Why texts were left in their order."""

Observe: TypeAlias = Callable[[str, float | None, State], None]
"""Told of each call: ``ran`` or its reason, the provider's seconds (None: not called), the breaker's state."""

MAX_RESPONSE_BYTES = 4 * 1024 * 1024

_PAUSE_SECONDS = 0.1
_TIMER_SLACK_SECONDS = 0.002
"""How much too early a timer of an event loop may fire; uvloop's count in milliseconds."""

_log = structlog.get_logger(__name__)


class Reranked(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call.

    ``order`` holds the positions of the texts, best first, or None with the ``reason``. ``model`` is the
    configured model, None where there is none.
    """

    order: list[int] | None = None
    reason: Reason | None = None
    ran: bool = False
    model: str | None = None


class _Result(msgspec.Struct):
    index: int


class _Answer(msgspec.Struct):
    results: list[_Result]


_decoder = msgspec.json.Decoder(_Answer)


class Reranker:
    """The configured reranker, or none; a failure of the service is a reason and no error.

    Reranking is off unless both STRATA_RERANK_URL and STRATA_RERANK_MODEL are set; where only a part is,
    the log says once what is missing. Raises ``invalid_setting`` for an address or a key that cannot be
    used. ``breaker`` stands in for the one of three failures and 30 seconds. For one event loop.
    """

    def __init__(self, settings: Settings, *, observe: Observe | None = None, breaker: Breaker | None = None) -> None:
        self._observe = observe
        self._timeout = settings.rerank_timeout_seconds
        self._breaker = breaker or Breaker(failures=3, cool_down_seconds=30.0)
        self._is_closed = False
        self._model: str | None = None
        self._client: HttpClient | None = None
        given = {
            "STRATA_RERANK_URL": (settings.rerank_url or "").strip(),
            "STRATA_RERANK_MODEL": (settings.rerank_model or "").strip(),
        }
        key = (settings.rerank_api_key or "").strip()
        missing = [name for name, value in given.items() if not value]
        if missing:
            if key or len(missing) < len(given):
                _log.warning("rerank_off", missing=missing)
            return
        self._url = rerank_url(given["STRATA_RERANK_URL"])
        self._model = given["STRATA_RERANK_MODEL"]
        self._client = HttpClient(
            headers=_authorization(key),
            # Attempts are counted here: which of them ended how decides on the reason.
            limits=Limits(
                timeout_seconds=self._timeout,
                concurrency=16,
                attempts=1,
                max_response_bytes=MAX_RESPONSE_BYTES,
            ),
            breaker=self._breaker,
        )

    @property
    def is_configured(self) -> bool:
        """Whether there is a service to ask."""
        return self._client is not None

    @property
    def model(self) -> str | None:
        """The configured model; None where reranking is off."""
        return self._model

    async def rerank(
        self, query: str, texts: Sequence[str], *, model: str | None = None, deadline_seconds: float | None = None
    ) -> Reranked:
        """Ask for the order of the texts, best first.

        ``model`` other than the configured one is not served, None is the configured one.
        ``deadline_seconds`` bounds the whole call, None leaves it to the limit of each of two attempts. An
        answer counts when it names each text exactly once. A cancelled call is not repeated, and passes.
        """
        reason = self._refusal(texts, model, deadline_seconds)
        if self._client is None or reason is not None:
            return self._ended(reason or "not_configured", None)
        body = msgspec.json.encode(
            {
                "model": self._model,
                "query": well_formed(query),
                "documents": [well_formed(text) for text in texts],
                "top_n": len(texts),
            }
        )
        started = time.monotonic()
        deadline = started + (math.inf if deadline_seconds is None else deadline_seconds)
        outcome = await self._ask(self._client, body, len(texts), deadline)
        return self._ended(outcome, None if outcome == "circuit_open" else time.monotonic() - started)

    async def close(self) -> None:
        """Close every connection; calls under way end as ``provider_error``. Safe to call again."""
        self._is_closed = True
        if self._client is not None:
            await self._client.close()

    def _refusal(self, texts: Sequence[str], model: str | None, deadline_seconds: float | None) -> Reason | None:
        """Say why there is nothing to ask; None where there is."""
        if self._model is None:
            return "not_configured"
        if model is not None and model != self._model:
            return "model_mismatch"
        if len(texts) < 2:
            return "empty_pool"
        return "timeout" if deadline_seconds is not None and deadline_seconds <= 0 else None

    def _ended(self, outcome: Reason | list[int], seconds: float | None) -> Reranked:
        done = outcome if isinstance(outcome, list) else None
        reason = None if isinstance(outcome, list) else outcome
        if self._observe is not None:
            self._observe(reason or "ran", seconds, self._breaker.state)
        return Reranked(order=done, reason=reason, ran=done is not None, model=self._model)

    async def _ask(self, client: HttpClient, body: bytes, count: int, deadline: float) -> list[int] | Reason:
        """Post once, and once more where that may help; return the order, or why there is none."""
        reason: Reason | None = None
        while True:
            started = time.monotonic()
            limit = min(self._timeout, deadline - started)
            is_second = reason is not None
            try:
                return _order(await client.post(self._url, body, deadline_seconds=limit), count)
            except ProviderRefusedError as error:
                _log.warning("rerank_attempt_failed", detail=str(error))
                return "provider_error"
            except ProviderUnavailableError as error:
                if error.is_final:
                    # An attempt that failed tells more than the breaker that it may have opened.
                    return reason or ("provider_error" if self._is_closed else "circuit_open")
                _log.warning("rerank_attempt_failed", detail=str(error))
                is_late = error.status is None and time.monotonic() - started >= limit - _TIMER_SLACK_SECONDS
                reason = "timeout" if is_late else "provider_error"
            if is_second or client.breaker.state == "open" or time.monotonic() + _PAUSE_SECONDS >= deadline:
                return reason
            await asyncio.sleep(_PAUSE_SECONDS)


def rerank_url(base: str) -> str:
    """Return the address to post to: ``base``, with ``/rerank`` behind its path unless it ends so.

    Raises ``invalid_setting`` when it is no http address, or holds a user name.
    """
    setting = "STRATA_RERANK_URL"
    try:
        url = httpx2.URL(base)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise StrataError(INVALID_SETTING, f"{setting} is not an http or https address.", pointer=setting)
    if url.userinfo:
        words = "holds a user name or password; put the key into STRATA_RERANK_API_KEY."
        raise StrataError(INVALID_SETTING, f"{setting} {words}", pointer=setting)
    path = url.path.rstrip("/")
    return str(url.copy_with(path=path if path.endswith("/rerank") else f"{path}/rerank", fragment=None))


def _authorization(key: str) -> dict[str, str]:
    setting = "STRATA_RERANK_API_KEY"
    if not key.isascii() or not key.isprintable():
        raise StrataError(INVALID_SETTING, f"{setting} holds characters that no header can carry.", pointer=setting)
    return {"Authorization": f"Bearer {key}"} if key else {}


def _order(content: bytes, count: int) -> list[int] | Reason:
    """Read the order from an answer; each of ``count`` texts must be in it exactly once."""
    try:
        order = [result.index for result in _decoder.decode(content).results]
    except (msgspec.DecodeError, RecursionError):
        _log.warning("rerank_answer_refused", reason="provider_error")
        return "provider_error"
    # The length first: an answer of 4 MiB may name a hundred thousand.
    if len(order) != count or sorted(order) != list(range(count)):
        _log.warning("rerank_answer_refused", reason="invalid_permutation")
        return "invalid_permutation"
    return order
