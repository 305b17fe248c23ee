"""The vectors of questions: cached with a bound, one call for equal questions, never waited for long."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from strata.errors import EMBEDDING_UNAVAILABLE, StrataError
from strata.providers.embeddings.base import Vectors, is_cancelled


@dataclass(slots=True)
class _Call:
    task: asyncio.Task[Vectors]
    waiting: int = 0


class QueryVectors:
    """Keeps the ``entries`` vectors used last; 0 keeps none. A failure is not kept. For one event loop.

    ``observe`` is called for each question, with whether no embedder had to be called for it alone.
    """

    def __init__(self, entries: int, timeout_seconds: float, observe: Callable[[bool], None] | None = None) -> None:
        self._entries = entries
        self._timeout = timeout_seconds
        self._observe = observe
        self._kept: OrderedDict[bytes, Vectors] = OrderedDict()
        self._calls: dict[bytes, _Call] = {}
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, fingerprint: bytes, text: str, embed: Callable[[], Awaitable[Vectors]]) -> Vectors:
        """Return the vector of a text in a space, calling ``embed`` where it is neither kept nor under way.

        Whoever is cancelled or out of time leaves the call to the others; the last one ends it. Raises
        ``embedding_unavailable`` after ``timeout_seconds``, else what ``embed`` raises.
        """
        # A digest: questions may be long, and are nobody's business in a dump of the memory.
        key = hashlib.blake2b(fingerprint + text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            self._count(is_hit=True)
            return kept
        call = self._calls.get(key)
        self._count(is_hit=call is not None)
        if call is None:
            call = self._calls[key] = _Call(asyncio.ensure_future(self._embed(key, embed)))
        call.waiting += 1
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.shield(call.task)
        except TimeoutError:
            words = f"No vector of the question came within {self._timeout:g} s."
            raise StrataError(EMBEDDING_UNAVAILABLE, words) from None
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise StrataError(EMBEDDING_UNAVAILABLE, "The embedders are closed.") from None
        finally:
            call.waiting -= 1
            if not call.waiting:
                self._drop(key, call)

    async def close(self) -> None:
        """End every call; who waits for one is told that it is unavailable."""
        tasks = [call.task for call in self._calls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _count(self, *, is_hit: bool) -> None:
        self.hits += is_hit
        self.misses += not is_hit
        if self._observe is not None:
            self._observe(is_hit)

    async def _embed(self, key: bytes, embed: Callable[[], Awaitable[Vectors]]) -> Vectors:
        vector = await embed()
        vector.setflags(write=False)
        if self._entries:
            self._kept[key] = vector
            while len(self._kept) > self._entries:
                self._kept.popitem(last=False)
        return vector

    def _drop(self, key: bytes, call: _Call) -> None:
        if self._calls.get(key) is call:
            del self._calls[key]
        if not call.task.done():
            call.task.cancel()
