"""Embedders that run in this process: the model that comes with Strata, or a folder with an ONNX model."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from strata.errors import EMBEDDING_MODEL_MISSING, EMBEDDING_REFUSED, EMBEDDING_UNAVAILABLE, StrataError
from strata.providers.embeddings import e5
from strata.providers.embeddings.base import MAX_DIMENSION, EmbeddingSpace, Vectors, checked, is_cancelled
from strata.providers.embeddings.onnx import OnnxModel
from strata.settings import Settings

LOCAL_SPACE = EmbeddingSpace(
    provider="local",
    model=e5.MODEL,
    revision=f"{e5.BLOB_SHA256[:16]}-{e5.CONVERSION}",
    dimension=384,
    query_prefix="query: ",
    passage_prefix="passage: ",
    pooling="mean",
    quantiser="int8",
    max_tokens=e5.MAX_TOKENS,
)
"""The space of the model that comes with Strata; known without opening it."""

_MAX_THREADS = 8


class LocalEmbedder:
    """Embeds in threads of this process; opened by :meth:`open_local` or :meth:`open_folder`.

    Passages have a pool of threads, questions a pool of their own, so that a question does not wait
    behind a batch. Embedders of the same folder share one model and its threads.
    """

    def __init__(self, engine: _Engine, space: EmbeddingSpace) -> None:
        """Take over one use of the engine, which :meth:`close` gives back."""
        self._engine: _Engine | None = engine
        self._space = space
        self._under_way: set[asyncio.Future[Vectors]] = set()

    @classmethod
    async def open_local(cls, settings: Settings) -> LocalEmbedder:
        """Open the model that comes with Strata; the first time in a STRATA_HOME converts it, in seconds.

        Raises ``embedding_model_missing``.
        """

        def work() -> LocalEmbedder:
            folder = e5.prepare(settings.home / "models")
            try:
                return cls(_Engine.acquire(folder, LOCAL_SPACE.revision), LOCAL_SPACE)
            except StrataError as error:
                remedy = f"Delete {folder}: the next start makes it anew."
                raise StrataError(error.kind, error.detail, remedy=remedy) from error

        return await _opened(work)

    @classmethod
    async def open_folder(cls, folder: Path, settings: Settings) -> LocalEmbedder:
        """Open a folder with ``model.onnx`` and ``tokenizer.json``; one embedding learns the dimension.

        Raises ``embedding_model_missing``, and ``embedding_refused`` when the model gives no vector.
        """

        def work() -> LocalEmbedder:
            revision = _digest(folder)
            engine = _Engine.acquire(folder, revision)
            try:
                return cls(engine, _folder_space(folder, revision, engine.model, settings))
            except BaseException:
                engine.release()
                raise

        return await _opened(work)

    @property
    def space(self) -> EmbeddingSpace:
        """The space of every vector it returns."""
        return self._space

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Embed each text by itself, several at once. A cancelled call runs no text that waits."""
        engine = self._open_engine()
        given = [self._space.passage_prefix + text for text in texts]
        rows = await self._run(engine.passages, engine.model, given)
        return checked(rows, count=len(texts), dimension=self._space.dimension)

    async def embed_query(self, text: str) -> Vectors:
        """Embed a question on the thread that is kept for questions."""
        engine = self._open_engine()
        rows = await self._run(engine.questions, engine.model, [self._space.query_prefix + text])
        vector: Vectors = checked(rows, count=1, dimension=self._space.dimension)[0]
        return vector

    async def close(self) -> None:
        """Let go of the model. Calls under way fail as unavailable. Safe to call again."""
        engine, self._engine = self._engine, None
        for future in self._under_way:
            future.cancel()
        if engine is not None:
            await asyncio.to_thread(engine.release)

    def _open_engine(self) -> _Engine:
        if self._engine is None:
            raise _closed()
        return self._engine

    async def _run(self, pool: Executor, model: OnnxModel, texts: list[str]) -> list[Vectors]:
        loop = asyncio.get_running_loop()
        try:
            futures = [loop.run_in_executor(pool, model.embed, text) for text in texts]
        except RuntimeError as error:  # the pool was shut down meanwhile
            raise _closed() from error
        self._under_way.update(futures)
        try:
            return await asyncio.gather(*futures)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise _closed() from None
        finally:
            self._under_way.difference_update(futures)
            for future in futures:
                future.cancel()


class _Engine:
    """One model with its threads, shared by the embedders of this process that use the same folder."""

    _shared: dict[tuple[Path, str], _Engine] = {}  # noqa: RUF012 - the point of it is to be shared
    _lock = threading.Lock()

    def __init__(self, key: tuple[Path, str]) -> None:
        self._key = key
        self.users = 0
        self.model = OnnxModel(key[0])
        self.passages = ThreadPoolExecutor(embedding_threads(), "strata-passages")
        self.questions = ThreadPoolExecutor(embedding_threads(), "strata-questions")

    @classmethod
    def acquire(cls, folder: Path, revision: str) -> _Engine:
        """Open a folder or join who has it open at the same revision."""
        key = (folder.resolve(), revision)
        with cls._lock:
            engine = cls._shared.get(key) or cls(key)
            cls._shared[key] = engine
            engine.users += 1
            return engine

    def release(self) -> None:
        """Give back one use; the last one ends the threads."""
        with self._lock:
            self.users -= 1
            if self.users:
                return
            del self._shared[self._key]
        for pool in (self.questions, self.passages):
            pool.shutdown(wait=True, cancel_futures=True)


def embedding_threads() -> int:
    """Return how many texts are embedded at once: one on each core that this process may use, up to 8."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MAX_THREADS)


async def _opened(work: Callable[[], LocalEmbedder]) -> LocalEmbedder:
    """Open in a thread; a caller who is cancelled meanwhile leaves nothing open."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_let_go)
        raise


def _let_go(task: asyncio.Future[LocalEmbedder]) -> None:
    if not task.cancelled() and task.exception() is None:
        engine, task.result()._engine = task.result()._engine, None  # noqa: SLF001 - one module
        if engine is not None:
            # In a thread: another opening may hold the lock for seconds.
            asyncio.get_running_loop().run_in_executor(None, engine.release)


def _folder_space(folder: Path, revision: str, model: OnnxModel, settings: Settings) -> EmbeddingSpace:
    row = model.embed(settings.embeddings_passage_prefix + "dimension")
    if not 1 <= len(row) <= MAX_DIMENSION:
        words = f"{folder}: the model gives {len(row)} dimensions; 1 to {MAX_DIMENSION} can be stored."
        raise StrataError(EMBEDDING_REFUSED, words)
    checked(np.stack([row]), count=1, dimension=len(row))
    return EmbeddingSpace(
        provider="folder",
        model=folder.resolve().name,
        revision=revision,
        dimension=len(row),
        query_prefix=settings.embeddings_query_prefix,
        passage_prefix=settings.embeddings_passage_prefix,
        pooling=model.pooling,
        max_tokens=model.max_tokens,
    )


def _digest(folder: Path) -> str:
    """Return the sha256 over every file that decides a vector: the model, its tensors, and its tables."""
    names = {"model.onnx", "tokenizer.json", *_external_data(folder)}
    names |= {name for name in ("characters.json", "1_Pooling/config.json") if (folder / name).is_file()}
    whole = hashlib.sha256()
    for name in sorted(names):
        try:
            with (folder / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            words = f"{folder} has no {name} that can be read."
            raise StrataError(EMBEDDING_MODEL_MISSING, words) from error
        whole.update(name.encode() + b"\0" + digest)
    return whole.hexdigest()


def _external_data(folder: Path) -> set[str]:
    """Name the files beside ``model.onnx`` that hold its tensors."""
    import onnx

    try:
        model: Any = onnx.load(folder / "model.onnx", load_external_data=False)
        tensors = [*model.graph.initializer]
        for node in model.graph.node:
            tensors += [item.t for item in node.attribute if item.HasField("t")]
        return {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    except FileNotFoundError as error:
        raise StrataError(EMBEDDING_MODEL_MISSING, f"{folder} has no model.onnx.") from error
    except Exception as error:  # protobuf and onnx raise classes of their own
        words = f"{folder}: model.onnx cannot be read ({type(error).__name__})."
        raise StrataError(EMBEDDING_MODEL_MISSING, words) from error


def _closed() -> StrataError:
    return StrataError(EMBEDDING_UNAVAILABLE, "The embedder is closed.")
