"""The question of one lookup as a vector, in the space of each context it is asked of."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from strata.embeddings.model import ActiveSpace
from strata.embeddings.service import EmbeddingService
from strata.errors import StrataError
from strata.platform import telemetry
from strata.platform.database import Connection
from strata.providers.embeddings.base import EmbeddingSpace, Vectors
from strata.providers.embeddings.embedders import Embedders
from strata.settings import Settings


@dataclass(frozen=True, slots=True)
class Meaning:
    """The vector lane of one context in one lookup: its space, and the question as a vector of it."""

    active: ActiveSpace
    vector: Vectors


@dataclass(frozen=True, slots=True)
class Meanings:
    """What the vector lane can do in one lookup.

    ``by_context`` lacks the contexts without vectors, and is empty where the lane cannot run: then
    ``reason`` says why. ``failure`` is the error code where it should have run.
    """

    by_context: Mapping[UUID, Meaning]
    reason: str | None = None
    failure: str | None = None


class Question:
    """Gets the vectors of one question, each space's once, and as early as can be."""

    def __init__(
        self,
        tenant: UUID,
        text: str,
        *,
        embeddings: EmbeddingService,
        embedders: Embedders,
        settings: Settings,
    ) -> None:
        self._tenant = tenant
        self._text = text
        self._patience = settings.embeddings_query_timeout_seconds
        self._second_hop = settings.second_hop
        self._asked: dict[EmbeddingSpace, asyncio.Future[Vectors]] = {}
        self._embeddings = embeddings
        self._embedders = embedders

    @property
    def is_enabled(self) -> bool:
        """Whether there is an embedder at all."""
        return self._embedders.mode != "none"

    async def foresee(self) -> None:
        """Start on the configured embedder's vector before the space is known: it nearly always is the one.

        An embedder of this process works beside the statements to come. One behind a network is waited
        for, so that no database connection is held meanwhile. Failures are for :meth:`meanings` to tell.
        """
        is_remote = self._embedders.mode == "endpoint"
        with contextlib.suppress(StrataError, TimeoutError):
            # The model of this process is there in a second or two; an endpoint may be away for long.
            async with asyncio.timeout(self._patience if is_remote else None):
                embedder = await self._embedders.configured()
            if embedder is None:
                return
            vector = self._ask(embedder.space)
            if is_remote:
                await vector

    def _ask(self, space: EmbeddingSpace) -> asyncio.Future[Vectors]:
        """Return the call for the question's vector in a space, the same one each time."""
        vector = self._asked.get(space)
        if vector is None:
            vector = self._asked[space] = asyncio.ensure_future(self._embedders.query_vector(space, self._text))
            vector.add_done_callback(_seen)
        return vector

    async def follow(self, space: EmbeddingSpace, opening: str) -> Vectors:
        """Return the vector of the question with the opening of a passage added to it."""
        return await self._embedders.query_vector(space, f"{self._text} {opening}")

    @property
    def may_follow(self) -> bool:
        """Whether a second hop is wanted: by itself only where asking the embedder again costs no call elsewhere."""
        if self._second_hop == "auto":
            return self._embedders.mode in {"local", "folder"}
        return self._second_hop == "on"

    async def meanings(self, connection: Connection, contexts: Sequence[UUID]) -> Meanings:
        """Return the question's vector for each context that has vectors to compare it with."""
        if not self.is_enabled:
            return Meanings({}, "embeddings are off")
        active = await self._embeddings.active(connection, self._tenant, contexts)
        usable = {context: space for context, space in active.items() if space.vectors}
        if not usable:
            return Meanings({}, "no passage has a vector yet")
        found: dict[UUID, Meaning] = {}
        with telemetry.stage("embed_query"):
            for context, space in usable.items():
                try:
                    vector = await asyncio.shield(self._ask(space.space))
                except StrataError as error:
                    return Meanings({}, error.detail, error.code)
                found[context] = Meaning(space, vector)
        return Meanings(found)


def _seen(vector: asyncio.Future[Vectors]) -> None:
    """Take note of a failure, also where nobody asks for the vector any more."""
    if not vector.cancelled():
        vector.exception()
