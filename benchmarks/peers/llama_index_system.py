"""LlamaIndex: PGVectorStore with hybrid_search, a dense and a sparse retriever in a QueryFusionRetriever.

As in the notebook on the Postgres vector store, which recommends the fusion over the store's own
hybrid mode: that one puts the sparse results behind the dense ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.schema import TextNode
from llama_index.vector_stores.postgres import PGVectorStore
from pydantic import PrivateAttr

from benchmarks.peers.corpus import Corpus
from benchmarks.peers.systems import Hnsw, QuestionEmbedder, Setup

BATCH = 1000


class SharedEmbedding(BaseEmbedding):
    """The embedder behind LlamaIndex's interface."""

    _embedder: QuestionEmbedder = PrivateAttr()

    def __init__(self, embedder: QuestionEmbedder) -> None:
        super().__init__(model_name="multilingual-e5-small")
        self._embedder = embedder

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embedder.compute(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await self._embedder.vector(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embedder.compute(text)


class LlamaIndexSystem:
    """One store, two retrievers and their fusion."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._store: PGVectorStore | None = None
        self._embedder: QuestionEmbedder | None = None
        self._fusion: BaseRetriever | None = None
        self._dense: BaseRetriever | None = None

    def _open_store(self, hnsw: Hnsw | None, ef_search: int) -> PGVectorStore:
        rest = self._dsn.partition("://")[2]
        return PGVectorStore.from_params(
            connection_string=f"postgresql+psycopg2://{rest}",
            async_connection_string=f"postgresql+asyncpg://{rest}",
            table_name="passages",
            embed_dim=384,
            hybrid_search=True,
            text_search_config="english",
            cache_ok=True,
            hnsw_kwargs=None
            if hnsw is None
            else {
                "hnsw_m": hnsw.m,
                "hnsw_ef_construction": hnsw.ef_construction,
                "hnsw_ef_search": ef_search,
                "hnsw_dist_method": "vector_cosine_ops",
            },
            create_engine_kwargs={"pool_size": 16, "max_overflow": 0},
        )

    async def load(self, corpus: Corpus, hnsw: Hnsw) -> None:
        """Add the nodes, then build HNSW over them: the first question with those settings does so."""
        store = self._open_store(None, 40)
        for start in range(0, len(corpus.passages), BATCH):
            await store.async_add(
                [
                    TextNode(
                        id_=passage.id,
                        text=passage.content,
                        metadata={"title": passage.title},
                        embedding=vector.tolist(),
                    )
                    for passage, vector in zip(
                        corpus.passages[start : start + BATCH],
                        corpus.passage_vectors[start : start + BATCH],
                        strict=True,
                    )
                ]
            )
        await store.close()
        indexed = self._open_store(hnsw, 40)
        await indexed.aget_nodes([corpus.passages[0].id])
        await indexed.close()

    async def open(self, setup: Setup, corpus: Corpus) -> None:
        """Build the retrievers."""
        await self.close()
        self._embedder = QuestionEmbedder(setup, corpus)
        self._store = self._open_store(setup.hnsw, setup.ef_search or 40)
        index = VectorStoreIndex.from_vector_store(self._store, embed_model=SharedEmbedding(self._embedder))
        self._dense = index.as_retriever(vector_store_query_mode="default", similarity_top_k=setup.top_k)
        self._fusion = QueryFusionRetriever(
            [
                index.as_retriever(vector_store_query_mode="default", similarity_top_k=setup.candidates),
                index.as_retriever(vector_store_query_mode="sparse", similarity_top_k=setup.candidates),
            ],
            llm=MockLLM(),
            mode="relative_score",
            similarity_top_k=setup.top_k,
            num_queries=1,
            use_async=True,
        )

    async def hybrid(self, text: str) -> Sequence[str]:
        """Ask both retrievers at once and fuse."""
        assert self._fusion is not None  # noqa: S101 - opened before
        return [found.node.node_id for found in await self._fusion.aretrieve(text)]

    async def nearest(self, text: str) -> Sequence[str]:
        """Ask the dense retriever alone."""
        assert self._dense is not None  # noqa: S101 - opened before
        return [found.node.node_id for found in await self._dense.aretrieve(text)]

    def describe(self) -> dict[str, str]:
        """Name the versions and what was configured."""
        return {
            "llama-index-core": version("llama-index-core"),
            "llama-index-vector-stores-postgres": version("llama-index-vector-stores-postgres"),
            "sqlalchemy": version("sqlalchemy"),
            "asyncpg": version("asyncpg"),
            "configuration": (
                "PGVectorStore(hybrid_search=True, text_search_config=english, cache_ok=True, hnsw "
                "vector_cosine_ops), QueryFusionRetriever of a default and a sparse retriever, "
                "mode=relative_score, num_queries=1, aretrieve; pool of 16"
            ),
        }

    async def close(self) -> None:
        """Close the store and the embedder."""
        if self._store is not None:
            await self._store.close()
            self._store = None
        if self._embedder is not None:
            self._embedder.close()
            self._embedder = None
