"""pgvector-haystack: embedding and keyword retriever in one pipeline, joined by reciprocal rank fusion.

As in the integration's page and the tutorial on hybrid retrieval. The store holds one asynchronous
connection, so that one pipeline answers one question at a time; several pipelines take turns here.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

import msgspec
from haystack import Document, Pipeline, component
from haystack.components.joiners import DocumentJoiner
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret
from haystack_integrations.components.retrievers.pgvector import (
    PgvectorEmbeddingRetriever,
    PgvectorKeywordRetriever,
)
from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore

from benchmarks.peers.corpus import Corpus
from benchmarks.peers.systems import Hnsw, QuestionEmbedder, Setup

MAX_PIPELINES = 4
BATCH = 1000
# Each connection would warn that the index is there already.
logging.getLogger("haystack_integrations").setLevel(logging.ERROR)


@component
class TextEmbedder:
    """The embedder as a component of a pipeline."""

    def __init__(self, embedder: QuestionEmbedder) -> None:
        self._embedder = embedder

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        """Embed in the calling thread."""
        return {"embedding": self._embedder.compute(text)}

    @component.output_types(embedding=list[float])
    async def run_async(self, text: str) -> dict[str, Any]:
        """Embed without holding the event loop."""
        return {"embedding": await self._embedder.vector(text)}


class HaystackSystem:
    """A pipeline for each of a few clients, over one table."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._stores: list[PgvectorDocumentStore] = []
        self._idle: deque[tuple[Pipeline, PgvectorEmbeddingRetriever]] = deque()
        self._places = asyncio.Semaphore(0)
        self._embedder: QuestionEmbedder | None = None
        self._setup: Setup | None = None

    def _store(self, *, hnsw: Hnsw | None, ef_search: int | None = None) -> PgvectorDocumentStore:
        return PgvectorDocumentStore(
            connection_string=Secret.from_token(self._dsn),
            embedding_dimension=384,
            vector_function="cosine_similarity",
            search_strategy="hnsw" if hnsw else "exact_nearest_neighbor",
            hnsw_index_creation_kwargs=msgspec.to_builtins(hnsw),
            hnsw_ef_search=ef_search,
            language="english",
        )

    async def load(self, corpus: Corpus, hnsw: Hnsw) -> None:
        """Write the documents, then build HNSW over them: opening with that strategy does so."""
        store = self._store(hnsw=None)
        for start in range(0, len(corpus.passages), BATCH):
            documents = [
                Document(
                    id=passage.id, content=passage.content, meta={"title": passage.title}, embedding=vector.tolist()
                )
                for passage, vector in zip(
                    corpus.passages[start : start + BATCH], corpus.passage_vectors[start : start + BATCH], strict=True
                )
            ]
            await store.write_documents_async(documents, policy=DuplicatePolicy.NONE)
        await store.close_async()
        indexed = self._store(hnsw=hnsw)
        await indexed.count_documents_async()
        await indexed.close_async()

    async def open(self, setup: Setup, corpus: Corpus) -> None:
        """Build the pipelines, each with a store and so a connection of its own."""
        await self.close()
        self._setup = setup
        self._embedder = QuestionEmbedder(setup, corpus)
        self._idle.clear()
        self._places = asyncio.Semaphore(min(setup.clients, MAX_PIPELINES))
        for _ in range(min(setup.clients, MAX_PIPELINES)):
            store = self._store(hnsw=setup.hnsw, ef_search=setup.ef_search)
            await store.count_documents_async()
            self._stores.append(store)
            self._idle.append((self._pipeline(store, setup), PgvectorEmbeddingRetriever(document_store=store)))

    def _pipeline(self, store: PgvectorDocumentStore, setup: Setup) -> Pipeline:
        assert self._embedder is not None  # noqa: S101 - open() has just made it
        pipeline = Pipeline()
        pipeline.add_component("text_embedder", TextEmbedder(self._embedder))
        pipeline.add_component(
            "embedding_retriever", PgvectorEmbeddingRetriever(document_store=store, top_k=setup.candidates)
        )
        pipeline.add_component(
            "keyword_retriever", PgvectorKeywordRetriever(document_store=store, top_k=setup.candidates)
        )
        pipeline.add_component("joiner", DocumentJoiner(join_mode="reciprocal_rank_fusion", top_k=setup.top_k))
        pipeline.connect("text_embedder.embedding", "embedding_retriever.query_embedding")
        pipeline.connect("embedding_retriever", "joiner")
        pipeline.connect("keyword_retriever", "joiner")
        return pipeline

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[tuple[Pipeline, PgvectorEmbeddingRetriever]]:
        """Give a pipeline that is idle, to those who wait in the order they came."""
        async with self._places:
            pair = self._idle.popleft()
            try:
                yield pair
            finally:
                self._idle.append(pair)

    async def hybrid(self, text: str) -> Sequence[str]:
        """Run a pipeline that is idle."""
        async with self._turn() as (pipeline, _):
            found = await pipeline.run_async({"text_embedder": {"text": text}, "keyword_retriever": {"query": text}})
        return [document.id for document in found["joiner"]["documents"]]

    async def nearest(self, text: str) -> Sequence[str]:
        """Run the embedding retriever alone."""
        assert self._embedder is not None and self._setup is not None  # noqa: S101, PT018 - opened before
        async with self._turn() as (_, retriever):
            vector = await self._embedder.vector(text)
            found = await retriever.run_async(query_embedding=vector, top_k=self._setup.top_k)
        return [document.id for document in found["documents"]]

    def describe(self) -> dict[str, str]:
        """Name the versions and what was configured."""
        return {
            "haystack-ai": version("haystack-ai"),
            "pgvector-haystack": version("pgvector-haystack"),
            "psycopg": version("psycopg"),
            "configuration": (
                "Pipeline.run_async: text embedder, PgvectorEmbeddingRetriever (hnsw, "
                "vector, cosine_similarity), PgvectorKeywordRetriever (english), DocumentJoiner "
                f"reciprocal_rank_fusion; up to {MAX_PIPELINES} pipelines, each with its own connection"
            ),
        }

    async def close(self) -> None:
        """Close the stores and the embedder."""
        for store in self._stores:
            await store.close_async()
        self._stores = []
        if self._embedder is not None:
            self._embedder.close()
            self._embedder = None
