"""What the worker asks of every system."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from benchmarks.peers.corpus import Corpus, Floats
from strata.providers.embeddings.onnx import OnnxModel


class Hnsw(msgspec.Struct, frozen=True, kw_only=True):
    """How the index over the vectors is built."""

    m: int
    ef_construction: int


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How a system is opened.

    ``ef_search`` None: as it comes. ``candidates`` is how many passages each leg of the peers hands to
    the fusion. ``embeds`` False: the vector of a question is looked up, not computed.
    """

    model: str
    query_prefix: str
    top_k: int
    candidates: int
    ef_search: int | None
    embeds: bool
    clients: int
    hnsw: Hnsw


class QuestionEmbedder:
    """The one embedder, for the adapters of the peers: computes vectors in threads, or looks them up."""

    def __init__(self, setup: Setup, corpus: Corpus) -> None:
        self._prefix = setup.query_prefix
        self._model = OnnxModel(Path(setup.model)) if setup.embeds else None
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, "embed")
        self._known = {
            question.text: vector for question, vector in zip(corpus.questions, corpus.question_vectors, strict=True)
        }

    async def vector(self, text: str) -> list[float]:
        """Return the unit vector of a question."""
        if self._model is None:
            return self._known[text].tolist()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.compute, text)

    def compute(self, text: str) -> list[float]:
        """Return the unit vector of a question, computed in the calling thread."""
        assert self._model is not None  # noqa: S101 - asked for only where questions are embedded
        vector: Floats = self._model.embed(self._prefix + text)
        return (vector / np.linalg.norm(vector)).tolist()

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown()


class System(Protocol):
    """One library, opened over one database with everything loaded."""

    async def load(self, corpus: Corpus, hnsw: Hnsw) -> None:
        """Make tables, store passages with their vectors, build the indexes."""
        ...

    async def open(self, setup: Setup, corpus: Corpus) -> None:
        """Open for questions; again with another setup closes what was open before."""
        ...

    async def hybrid(self, text: str) -> Sequence[str]:
        """Answer a question: the ids of the best passages, best first."""
        ...

    async def nearest(self, text: str) -> Sequence[str]:
        """Return the ids of the passages that the vector leg alone finds, best first."""
        ...

    def describe(self) -> dict[str, str]:
        """Return the versions and the configuration, for the report."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
