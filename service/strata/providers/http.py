"""The outbound HTTP client of every provider: kept-alive connections, limits, retries, a breaker."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2
import stamina
import structlog

from strata.providers.breaker import Breaker, BreakerOpenError

_MAX_ERROR_BYTES = 64 * 1024
_CONNECT_SECONDS = 5.0
_REQUEST_TIMEOUT, _TOO_MANY_REQUESTS = 408, 429

# Its INFO lines print whole addresses, and a query string may hold a key.
logging.getLogger("httpx2").setLevel(logging.WARNING)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one service may cost.

    ``timeout_seconds`` is for one attempt, from the connection to the last byte. ``max_wait_seconds``
    caps the pause between attempts, and what Retry-After may ask for.
    """

    timeout_seconds: float = 30.0
    concurrency: int = 8
    attempts: int = 4
    first_wait_seconds: float = 0.25
    max_wait_seconds: float = 30.0
    max_response_bytes: int = 16 * 1024 * 1024
    breaker_failures: int = 5
    breaker_seconds: float = 15.0


class ProviderError(Exception):
    """A call that failed. The message names host and status: no path, header or body.

    ``status`` is None where no answer came. ``body`` holds the first 64 KiB of an error answer for
    the caller to look into; it may quote what was sent, so it goes into no message and no log.
    """

    def __init__(self, host: str, words: str, *, status: int | None = None, body: bytes = b"") -> None:
        super().__init__(f"{host} {words}")
        self.host = host
        self.words = words
        self.status = status
        self.body = body


class ProviderUnavailableError(ProviderError):
    """The service cannot be had now; the same call may succeed later.

    ``pause_seconds``: what the service asked for by Retry-After, capped. ``is_final``: another
    attempt at once is of no use.
    """

    pause_seconds: float | None = None
    is_final: bool = False


class ProviderRefusedError(ProviderError):
    """The service does not do what was asked; the same call fails again."""


class HttpClient:
    """Calls one service.

    Attempts that failed for want of a connection, of time, or with 408, 429 or 5xx are repeated with
    growing pauses; after failures in a row the breaker leaves the service alone. For one event loop.
    """

    def __init__(
        self,
        *,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._breaker = breaker or Breaker(
            failures=self._limits.breaker_failures, cool_down_seconds=self._limits.breaker_seconds
        )
        self._slots = asyncio.Semaphore(self._limits.concurrency)
        self._is_closed = False
        self._client = httpx2.AsyncClient(
            # Compressed, a small answer could grow past any limit.
            headers={"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})},
            timeout=httpx2.Timeout(
                self._limits.timeout_seconds,
                connect=min(self._limits.timeout_seconds, _CONNECT_SECONDS),
                pool=None,
            ),
            limits=httpx2.Limits(
                max_connections=self._limits.concurrency,
                max_keepalive_connections=self._limits.concurrency,
                keepalive_expiry=30.0,
            ),
            follow_redirects=False,
        )

    @property
    def breaker(self) -> Breaker:
        """The breaker of this service, to be read."""
        return self._breaker

    async def post(
        self,
        url: str,
        body: bytes,
        *,
        deadline_seconds: float | None = None,
        attempts: int | None = None,
        max_response_bytes: int | None = None,
    ) -> bytes:
        """Post JSON and return the bytes of the 2xx answer.

        ``deadline_seconds`` bounds all attempts together, pauses and the wait for a free slot
        included. Raises :class:`ProviderUnavailableError` or :class:`ProviderRefusedError`; redirects
        are refused. A cancelled call is not repeated.
        """
        limits, last = self._limits, None
        most = max_response_bytes or limits.max_response_bytes
        try:
            async with asyncio.timeout(deadline_seconds) as deadline:
                async for attempt in stamina.retry_context(
                    on=_pause,
                    attempts=attempts or limits.attempts,
                    timeout=None,
                    wait_initial=limits.first_wait_seconds,
                    wait_max=limits.max_wait_seconds,
                    wait_jitter=limits.first_wait_seconds,
                ):
                    with attempt:
                        try:
                            return await self._attempt(url, body, most, deadline)
                        except ProviderUnavailableError as error:
                            last = error
                            raise
        except TimeoutError:
            if last is None:
                last = ProviderUnavailableError(_host(url), f"gave no answer within {deadline_seconds:g} s")
            raise last from None
        raise AssertionError("unreachable: the last attempt raises")  # pragma: no cover

    async def close(self) -> None:
        """Close every connection. Calls under way fail as unavailable. Safe to call again."""
        self._is_closed = True
        await self._client.aclose()

    async def _attempt(self, url: str, body: bytes, most: int, deadline: asyncio.Timeout) -> bytes:
        host = _host(url)
        async with self._slots:
            if self._is_closed:
                raise _final(host, "is not called any more: the client is closed")
            try:
                ticket = self._breaker.enter()
            except BreakerOpenError as error:
                raise _final(host, f"is {error}") from None
            is_healthy = None
            try:
                async with asyncio.timeout(self._limits.timeout_seconds):
                    status, headers, content = await self._exchange(url, body, most)
                is_healthy = status < 500 and status != _REQUEST_TIMEOUT
            except (httpx2.RequestError, TimeoutError) as error:
                is_healthy = False
                raise ProviderUnavailableError(host, self._words(error)) from None
            except httpx2.InvalidURL as error:
                raise ProviderRefusedError(host, "has an address that is not valid") from error
            except asyncio.CancelledError:
                is_healthy = False if deadline.expired() else None
                raise
            except RuntimeError:
                if self._is_closed:
                    raise _final(host, "was not waited for: the client is closed") from None
                raise
            finally:
                self._leave(host, ticket, is_healthy=is_healthy)
        if 200 <= status < 300:
            return _accepted(host, status, headers, content, most)
        raise self._failure(host, status, headers, content)

    async def _exchange(self, url: str, body: bytes, most: int) -> tuple[int, httpx2.Headers, bytes]:
        """Send once; of an answer that is too long return one byte more than ``most``."""
        async with self._client.stream(
            "POST", url, content=body, headers={"Content-Type": "application/json"}
        ) as response:
            content = bytearray()
            enough = most + 1 if response.is_success else _MAX_ERROR_BYTES
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) >= enough:
                    break
            return response.status_code, response.headers, bytes(content[:enough])

    def _leave(self, host: str, ticket: int, *, is_healthy: bool | None) -> None:
        before = self._breaker.state
        self._breaker.leave(ticket, is_healthy=is_healthy)
        if before != self._breaker.state and is_healthy is not None:
            _log.warning("provider_breaker", host=host, state=self._breaker.state)

    def _failure(self, host: str, status: int, headers: httpx2.Headers, content: bytes) -> ProviderError:
        if 300 <= status < 400:
            return ProviderRefusedError(host, f"answered {status}, a redirect, which is not followed", status=status)
        if status < 500 and status not in {_REQUEST_TIMEOUT, _TOO_MANY_REQUESTS}:
            return ProviderRefusedError(host, f"answered {status}", status=status, body=content)
        error = ProviderUnavailableError(host, f"answered {status}", status=status, body=content)
        error.pause_seconds = _retry_after(headers.get("retry-after"), self._limits.max_wait_seconds)
        return error

    def _words(self, error: Exception) -> str:
        if isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError)):
            untrusted = "certificate" in str(error).lower()
            return "has a certificate that is not trusted" if untrusted else "cannot be reached"
        if isinstance(error, (httpx2.TimeoutException, TimeoutError)):
            return f"gave no answer within {self._limits.timeout_seconds:g} s"
        if isinstance(error, httpx2.UnsupportedProtocol):
            return "has an address that is neither http nor https"
        return "broke off the connection"


def _accepted(host: str, status: int, headers: httpx2.Headers, content: bytes, most: int) -> bytes:
    if headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise ProviderRefusedError(host, "compressed its answer, which was not asked for", status=status)
    if len(content) > most:
        raise ProviderRefusedError(host, f"sent more than {most} bytes", status=status)
    return content


def _pause(error: Exception) -> bool | float:
    """Tell stamina whether to go on, and after how many seconds where the service said so."""
    if not isinstance(error, ProviderUnavailableError) or error.is_final:
        return False
    if error.pause_seconds is None:
        return True
    # Everyone was told the same: spread the return.
    return error.pause_seconds * random.uniform(1.0, 1.1)  # noqa: S311 - no secret hangs on it


def _retry_after(value: str | None, cap: float) -> float | None:
    """Read Retry-After (RFC 9110, 10.2.3): seconds or a date; None where it is neither."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return min(float(value), cap)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    seconds = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), cap)


def _final(host: str, words: str) -> ProviderUnavailableError:
    error = ProviderUnavailableError(host, words)
    error.is_final = True
    return error


def _host(url: str) -> str:
    """Name the host and port of an address, without user, path or query."""
    try:
        return httpx2.URL(url).netloc.decode("ascii", "replace") or "the address"
    except httpx2.InvalidURL:
        return "the address"
