"""The context that a judged set is measured in: made, filled, embedded, then kept or deleted."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from uuid import UUID

from strata.embeddings.service import EmbeddingService
from strata.evaluate.beir import JudgedSet
from strata.knowledge.service import ContextService
from strata.platform.ids import new_id
from strata.providers.embeddings.base import EmbeddingSpace
from strata.providers.embeddings.embedders import Embedders
from strata.sources.service import SourceService
from strata.text.tokenise import ANALYSER_VERSION

Progress = Callable[[str, int, int], None]
"""Told (stage, done, total)."""

PREFIX = "evaluate-"
_SET_NAME_CHARS = 64
_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class Scratch:
    """A filled context: its name, and the space of its vectors, None without."""

    name: str
    space: EmbeddingSpace | None

    @property
    def has_vectors(self) -> bool:
        """Whether its passages have vectors."""
        return self.space is not None


class Scratches:
    """Makes the contexts of evaluations."""

    def __init__(
        self, contexts: ContextService, sources: SourceService, embeddings: EmbeddingService, embedders: Embedders
    ) -> None:
        self._contexts = contexts
        self._sources = sources
        self._embeddings = embeddings
        self._embedders = embedders

    @asynccontextmanager
    async def filled(
        self, tenant: UUID, judged: JudgedSet, *, keep: bool = False, progress: Progress | None = None
    ) -> AsyncIterator[Scratch]:
        """Give a context that holds the corpus, embedded where embeddings are on; deleted afterwards.

        With ``keep`` it stays. Its name states the corpus, the version and the embedder, so that a later
        run with the same finds it and takes in nothing again; one that was broken off is completed.
        """
        embedder = await self._embedders.configured()
        space = embedder.space if embedder is not None else None
        name = await asyncio.to_thread(kept_name, judged, space) if keep else passing_name(judged)
        try:
            await self._fill(tenant, name, judged, progress, embeds=space is not None)
            yield Scratch(name, space)
        finally:
            if not keep:
                await self._contexts.delete(tenant, name)

    async def _fill(
        self, tenant: UUID, name: str, judged: JudgedSet, progress: Progress | None, *, embeds: bool
    ) -> None:
        await self._sources.ingest_paths(
            tenant,
            name,
            [judged.corpus],
            progress=(lambda seen: progress("ingest", seen.done, seen.total)) if progress else None,
        )
        if embeds:
            await self._embeddings.run(
                tenant, name, progress=(lambda seen: progress("embed", seen.done, seen.total)) if progress else None
            )


def passing_name(judged: JudgedSet) -> str:
    """Return a name that no other run uses."""
    return f"{PREFIX}{_short(judged)}-{new_id().hex[-12:]}"


def kept_name(judged: JudgedSet, space: EmbeddingSpace | None) -> str:
    """Return the name under which the same corpus, version and embedding space are found again."""
    digest = hashlib.sha256(f"{metadata.version('strata')} {ANALYSER_VERSION} ".encode())
    digest.update(b"none" if space is None else space.fingerprint)
    digest.update(file_digest(judged.corpus))
    return f"{PREFIX}{_short(judged)}-kept-{digest.hexdigest()[:_DIGEST_CHARS]}"


def file_digest(path: Path) -> bytes:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _short(judged: JudgedSet) -> str:
    return judged.name[:_SET_NAME_CHARS]
