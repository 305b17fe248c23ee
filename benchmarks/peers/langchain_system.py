"""langchain-postgres: PGVectorStore with HybridSearchConfig, a stored tsvector column and rank fusion.

As in the how-to of PGVectorStore. The configuration of a search is made anew for each question:
the store writes the question into it, and would ask the first one for ever.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version

os.environ["LANGSMITH_TRACING"] = "false"

from langchain_core.embeddings import Embeddings
from langchain_postgres import Column, PGEngine, PGVectorStore
from langchain_postgres.v2.hybrid_search_config import HybridSearchConfig, reciprocal_rank_fusion
from langchain_postgres.v2.indexes import DistanceStrategy, HNSWIndex, HNSWQueryOptions
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.peers.corpus import Corpus
from benchmarks.peers.systems import Hnsw, QuestionEmbedder, Setup

TABLE = "langchain_passages"
BATCH = 1000


class SharedEmbeddings(Embeddings):
    """The embedder behind LangChain's interface."""

    def __init__(self, embedder: QuestionEmbedder | None) -> None:
        self._embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Refuse: the vectors of passages are given."""
        raise NotImplementedError

    def embed_query(self, text: str) -> list[float]:
        """Embed in the calling thread."""
        assert self._embedder is not None  # noqa: S101 - only loading goes without
        return self._embedder.compute(text)

    async def aembed_query(self, text: str) -> list[float]:
        """Embed without holding the event loop."""
        assert self._embedder is not None  # noqa: S101 - only loading goes without
        return await self._embedder.vector(text)


class LangChainSystem:
    """One store over one engine."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._engine: PGEngine | None = None
        self._store: PGVectorStore | None = None
        self._embedder: QuestionEmbedder | None = None
        self._setup: Setup | None = None

    def _connect(self) -> PGEngine:
        address = f"postgresql+asyncpg://{self._dsn.partition('://')[2]}"
        return PGEngine.from_engine(create_async_engine(address, pool_size=16, max_overflow=0))

    def _hybrid(self, candidates: int) -> HybridSearchConfig:
        return HybridSearchConfig(
            tsv_column="content_tsv",
            tsv_lang="pg_catalog.english",
            fusion_function=reciprocal_rank_fusion,
            fusion_function_parameters={"rrf_k": 60},
            primary_top_k=candidates,
            secondary_top_k=candidates,
        )

    async def load(self, corpus: Corpus, hnsw: Hnsw) -> None:
        """Make the table with its tsvector column, add the passages, then both indexes."""
        engine = self._connect()
        await engine.ainit_vectorstore_table(
            TABLE, 384, id_column=Column("langchain_id", "TEXT", nullable=False), hybrid_search_config=self._hybrid(10)
        )
        store = await PGVectorStore.create(engine, SharedEmbeddings(None), TABLE, hybrid_search_config=self._hybrid(10))
        for start in range(0, len(corpus.passages), BATCH):
            passages = corpus.passages[start : start + BATCH]
            await store.aadd_embeddings(
                [passage.content for passage in passages],
                corpus.passage_vectors[start : start + BATCH].tolist(),
                metadatas=[{"title": passage.title} for passage in passages],
                ids=[passage.id for passage in passages],
            )
        await store.aapply_vector_index(
            HNSWIndex(
                distance_strategy=DistanceStrategy.COSINE_DISTANCE, m=hnsw.m, ef_construction=hnsw.ef_construction
            )
        )
        await store.aapply_hybrid_search_index()
        await engine.close()

    async def open(self, setup: Setup, corpus: Corpus) -> None:
        """Open the store."""
        await self.close()
        self._setup = setup
        self._embedder = QuestionEmbedder(setup, corpus)
        self._engine = self._connect()
        self._store = await PGVectorStore.create(
            self._engine,
            SharedEmbeddings(self._embedder),
            TABLE,
            k=setup.top_k,
            distance_strategy=DistanceStrategy.COSINE_DISTANCE,
            index_query_options=HNSWQueryOptions(ef_search=setup.ef_search or 40),
            hybrid_search_config=self._hybrid(setup.candidates),
        )

    async def hybrid(self, text: str) -> Sequence[str]:
        """Search with a configuration of this question's own."""
        assert self._store is not None and self._setup is not None  # noqa: S101, PT018 - opened before
        found = await self._store.asimilarity_search(
            text, k=self._setup.top_k, hybrid_search_config=self._hybrid(self._setup.candidates)
        )
        return [document.id or "" for document in found]

    async def nearest(self, text: str) -> Sequence[str]:
        """Search without the keyword leg."""
        assert self._store is not None and self._setup is not None  # noqa: S101, PT018 - opened before
        found = await self._store.asimilarity_search(text, k=self._setup.top_k, hybrid_search_config=None)
        return [document.id or "" for document in found]

    def describe(self) -> dict[str, str]:
        """Name the versions and what was configured."""
        return {
            "langchain-core": version("langchain-core"),
            "langchain-postgres": version("langchain-postgres"),
            "sqlalchemy": version("sqlalchemy"),
            "asyncpg": version("asyncpg"),
            "configuration": (
                "PGVectorStore.asimilarity_search over PGEngine.from_engine, HybridSearchConfig (stored tsvector "
                "with GIN, english, reciprocal_rank_fusion k=60), HNSWIndex cosine, "
                "HNSWQueryOptions; pool of 16"
            ),
        }

    async def close(self) -> None:
        """Close the engine and the embedder."""
        if self._engine is not None:
            await self._engine.close()
            self._engine = None
        if self._embedder is not None:
            self._embedder.close()
            self._embedder = None
