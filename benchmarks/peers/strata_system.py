"""Strata in this process: the whole lookup, as its own surfaces call it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from uuid import UUID

import numpy as np

from benchmarks.peers.corpus import Corpus, Floats
from benchmarks.peers.systems import Hnsw, Setup
from strata.lanes.vector.index import SpaceRef, VectorIndex
from strata.lanes.vector.tuning import search_settings
from strata.lookup.schemas import MAX_QUERY_CHARS, LookupRequest
from strata.lookup.service import Caller
from strata.platform.ids import DEFAULT_TENANT
from strata.providers.embeddings.base import Vectors
from strata.services import Services, open_services
from strata.settings import load_settings
from strata.traces.schemas import Surface

CONTEXT = "peers"
AGENT = "strata-bench-peers"
SERIAL_SHIFT = 20


class StrataSystem:
    """The services over the embedded server."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._stack = AsyncExitStack()
        self._services: Services | None = None
        self._setup: Setup | None = None
        self._context: UUID
        self._paths: dict[int, str] = {}
        self._plans: set[str] = set()

    async def _open(self, *, cache_entries: int) -> Services:
        await self._stack.aclose()
        settings = load_settings(
            {}, home=self._home, embeddings="local", embeddings_cache_entries=cache_entries, log_level="error"
        )
        self._services = await self._stack.enter_async_context(open_services(settings))
        return self._services

    async def load(self, corpus: Corpus, hnsw: Hnsw) -> None:  # noqa: ARG002 - the index is its own
        """Ingest the corpus as any BEIR file; the vectors that were computed already are handed over."""
        services = await self._open(cache_entries=0)
        await _lend_vectors(services, corpus)
        await services.sources.ingest_paths(DEFAULT_TENANT, CONTEXT, [corpus.folder / "passages.jsonl"])
        await services.embeddings.run(DEFAULT_TENANT, CONTEXT)
        await services.embeddings.settle()
        await services.sources.settle()

    async def _learn_paths(self) -> None:
        """Learn which source each serial is, to name what the vector lane finds."""
        assert self._services is not None  # noqa: S101 - opened before
        async with self._services.database.owner() as connection:
            self._context = await connection.fetchval("SELECT context_id FROM context WHERE name = $1", CONTEXT)
            rows = await connection.fetch("SELECT serial, path FROM source WHERE context_id = $1", self._context)
        self._paths = {row["serial"]: row["path"] for row in rows}

    async def open(self, setup: Setup, corpus: Corpus) -> None:
        """Open the services; a question's vector is kept from round to round unless it must be computed."""
        self._setup = setup
        # A call asks for its vector twice, early and in time: one that is in flight must find it again. So small
        # a cache has forgotten a question when its turn comes round.
        await self._open(cache_entries=2 * (setup.clients if setup.embeds else len(corpus.questions)))
        await self._learn_paths()
        for question in corpus.questions if not setup.embeds else []:
            await self.hybrid(question.text)

    async def hybrid(self, text: str) -> Sequence[str]:
        """Look up, with hints, evidence selection and the trace row."""
        assert self._services is not None and self._setup is not None  # noqa: S101, PT018 - opened before
        request = LookupRequest(query=text[:MAX_QUERY_CHARS], context=CONTEXT, top_k=self._setup.top_k, agent_id=AGENT)
        result = await self._services.lookup.lookup(DEFAULT_TENANT, request, Caller(Surface.CLI))
        return [block.source for block in result.evidence_blocks]

    async def nearest(self, text: str) -> Sequence[str]:
        """Ask the vector lane's own search, as a lookup does before it fuses."""
        assert self._services is not None and self._setup is not None  # noqa: S101, PT018 - opened before
        services, context = self._services, self._context
        settings = search_settings(services.settings)
        async with services.database.work(DEFAULT_TENANT, snapshot=True, local=settings) as connection:
            active = (await services.embeddings.active(connection, DEFAULT_TENANT, [context]))[context]
            vector = await services.embedders.query_vector(active.space, text)
            space = SpaceRef(active.space_id, active.space.dimension, active.vectors, active.is_indexed)
            index = VectorIndex(services.settings)
            found = await index.search(connection, DEFAULT_TENANT, context, space, vector, k=self._setup.top_k)
        self._plans.add(found.plan.value)
        return [self._paths[hit.passage_id >> SERIAL_SHIFT] for hit in found.hits]

    def describe(self) -> dict[str, str]:
        """Name the version and what was configured."""
        return {
            "strata": version("strata"),
            "asyncpg": version("asyncpg"),
            "configuration": (
                "as it comes, but for the cache of question vectors, made small where questions are embedded; "
                f"vector search: {' and '.join(sorted(self._plans))}, ef_search {load_settings({}).vector_ef_search}"
            ),
        }

    async def close(self) -> None:
        """Close the services and the database."""
        await self._stack.aclose()
        self._services = None


async def _lend_vectors(services: Services, corpus: Corpus) -> None:
    """Let the embedder look up the passages' vectors; a text that is not there is an error."""
    embedder = await services.embedders.configured()
    assert embedder is not None  # noqa: S101 - the settings name the local one
    known = {passage.content: place for place, passage in enumerate(corpus.passages)}

    async def embed_passages(texts: Sequence[str]) -> Vectors:
        found: Floats = corpus.passage_vectors[[known[text] for text in texts]]
        return np.ascontiguousarray(found)

    embedder.embed_passages = embed_passages  # type: ignore[method-assign]
