"""What names mean: their glosses as vectors, made when asked for, and searched where spelling finds little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

import numpy as np

from strata.errors import EMBEDDINGS_UNCONFIGURED, StrataError
from strata.graph import resolve
from strata.graph.model import Graph
from strata.graph.twins import SEMANTIC_NAMES, TWIN_FLOOR
from strata.graph.vocabulary import Namespace
from strata.knowledge import meaning_repository
from strata.knowledge.graph_base import GraphBase, Reading, away
from strata.knowledge.graph_cache import DEFAULT_BYTES
from strata.knowledge.service import ContextService
from strata.platform.database import Database
from strata.providers.embeddings.base import Embedder, EmbeddingSpace, Vectors
from strata.providers.embeddings.embedders import Embedders

NO_EMBEDDER = "no embedding provider is configured"
NOT_EMBEDDED = "no name has a vector of the configured model; refresh the embeddings"
DEFAULT_FLOOR = 0.35
"""Least cosine of a name found by meaning, where neither call nor context says otherwise."""

FLOORS: Mapping[str, float] = {"multilingual-e5-small": 0.82}
"""The same for models whose cosines are all high: here those of unlike texts reach 0.8."""

_BATCH = 32
_SERVED = 64
_EXPLAINED = 10_000


@dataclass(frozen=True, slots=True)
class NamesEmbedded:
    """What a refresh did: how many names got a vector, of how many; and the model, with its dimension."""

    embedded: int
    concepts: int
    labels: int
    model: str
    dimension: int


@dataclass(frozen=True, slots=True)
class Meaning:
    """A cue as a vector of a space."""

    space: EmbeddingSpace
    vector: Vectors


class GraphMeanings(GraphBase):
    """Names by meaning. Without ``embedders`` nothing is embedded."""

    def __init__(
        self,
        database: Database,
        contexts: ContextService,
        *,
        cache_bytes: int = DEFAULT_BYTES,
        embedders: Embedders | None = None,
    ) -> None:
        super().__init__(database, contexts, cache_bytes=cache_bytes)
        self._embedders = embedders

    async def refresh_names(
        self, tenant: UUID, ref: str, progress: Callable[[int, int], None] | None = None
    ) -> NamesEmbedded:
        """Embed the names whose gloss has changed since, or that have no vector of the configured model.

        Raises ``embeddings_unconfigured`` without an embedder, and what that raises; what was embedded
        until then stays.
        """
        embedder = await self._embedder()
        if embedder is None:
            raise StrataError(EMBEDDINGS_UNCONFIGURED, "No embedder is configured.")
        print_ = embedder.space.fingerprint
        async with self._read(tenant, ref) as reading:
            graph, context = reading.graph, reading.row.context_id
            known = await meaning_repository.stored(reading.connection, tenant, context, print_)
        sizes = {space: len(graph.vocabulary(space).names) for space in Namespace}
        changed = await away(sum(sizes.values()), _changed, graph, known)
        for start in range(0, len(changed), _BATCH):
            batch = changed[start : start + _BATCH]
            vectors = await embedder.embed_passages([text for _, _, text in batch])
            async with self._database.work(tenant) as connection:
                for space in Namespace:
                    own = [at for at, item in enumerate(batch) if item[0] is space]
                    if own:
                        await meaning_repository.put(
                            connection,
                            tenant,
                            context,
                            space,
                            ids=[batch[at][1] for at in own],
                            digests=[sha256(batch[at][2].encode()).digest() for at in own],
                            vectors=vectors[own],
                            space=print_,
                        )
            if progress:
                progress(start + len(batch), len(changed))
        return NamesEmbedded(
            len(changed),
            sizes[Namespace.CONCEPT],
            sizes[Namespace.LABEL],
            embedder.space.model,
            embedder.space.dimension,
        )

    async def name_vectors(self, tenant: UUID, ref: str) -> NamesEmbedded | None:
        """Return how many names have a vector of the configured model; None where none has."""
        embedder = await self._embedder()
        if embedder is None:
            return None
        async with self._read(tenant, ref) as reading:
            concepts, labels = await meaning_repository.counts(
                reading.connection, tenant, reading.row.context_id, embedder.space.fingerprint
            )
        if not concepts + labels:
            return None
        return NamesEmbedded(0, concepts, labels, embedder.space.model, embedder.space.dimension)

    async def _vectors_of(self, reading: Reading, namespace: Namespace) -> tuple[list[str], Vectors, float] | str:
        """Return the embedded names of a namespace with their vectors and the floor of the model, or why not."""
        if len(reading.graph.vocabulary(namespace).names) > SEMANTIC_NAMES:
            return f"more than {SEMANTIC_NAMES:,} names: meanings are not compared"
        try:
            embedder = await self._embedder()
        except StrataError as error:
            return error.detail
        if embedder is None:
            return NO_EMBEDDER
        context, print_ = reading.row.context_id, embedder.space.fingerprint
        rows = await meaning_repository.vectors(
            reading.connection, reading.tenant, context, namespace, space=print_, most=SEMANTIC_NAMES
        )
        names = _names_of(reading.graph, namespace)
        known = [(names[number], vector) for number, vector in rows if number in names]
        if not known:
            return NOT_EMBEDDED
        vectors = np.array([vector for _, vector in known], dtype=np.float32)
        return [name for name, _ in known], vectors, FLOORS.get(embedder.space.model, TWIN_FLOOR)

    async def _embedder(self) -> Embedder | None:
        return None if self._embedders is None else await self._embedders.configured()

    async def _meant(self, cue: str) -> Meaning | str:
        """Return a cue as a vector, or why there is none; asks the embedder outside any unit of work."""
        if self._embedders is None or self._embedders.mode == "none":
            return NO_EMBEDDER
        try:
            embedder = await self._embedders.configured()
            if embedder is None:
                return NO_EMBEDDER
            return Meaning(embedder.space, await self._embedders.query_vector(embedder.space, cue))
        except StrataError as error:
            return error.detail

    async def _swept(
        self, reading: Reading, namespace: Namespace, meant: Meaning | str, floor: float | None, *, deep: bool = False
    ) -> resolve.Sweep:
        """Return the names nearest to a cue by meaning, or why none was looked for."""
        if isinstance(meant, str):
            return resolve.Sweep(reason=meant)
        found = await meaning_repository.nearest(
            reading.connection,
            reading.tenant,
            reading.row.context_id,
            namespace,
            space=meant.space.fingerprint,
            vector=meant.vector,
            limit=_EXPLAINED if deep else _SERVED,
        )
        if not found:
            return resolve.Sweep(reason=NOT_EMBEDDED)
        names = _names_of(reading.graph, namespace)
        chosen = (floor, reading.row.semantic_floor, FLOORS.get(meant.space.model), DEFAULT_FLOOR)
        return resolve.Sweep(
            cosines=[(names[number], cosine) for number, cosine in found if number in names],
            floor=next(value for value in chosen if value is not None),
        )


def _names_of(graph: Graph, namespace: Namespace) -> dict[int, str]:
    vocabulary = graph.vocabulary(namespace)
    return dict(zip(vocabulary.ids.tolist(), vocabulary.names, strict=True))


def _changed(graph: Graph, known: Mapping[Namespace, Mapping[int, bytes]]) -> list[tuple[Namespace, int, str]]:
    """Return the names whose gloss is not what was embedded of them, with it."""
    found = []
    for space in Namespace:
        for number, name in _names_of(graph, space).items():
            text = resolve.gloss(graph, space, name)
            if known[space].get(number) != sha256(text.encode()).digest():
                found.append((space, number, text))
    return found
