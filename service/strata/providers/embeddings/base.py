"""What every embedder is: texts in, unit vectors of one named space out."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from strata.errors import EMBEDDING_REFUSED, StrataError

Vectors: TypeAlias = npt.NDArray[np.float32]
"""One row for each text, each of length 1."""

MAX_DIMENSION = 4000
"""What the vector index takes (pgvector's HNSW on halfvec)."""


class EmbeddingSpace(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides which vector a text gets. Vectors of different spaces are never compared.

    ``revision`` pins the weights (a digest, or what the provider calls them), ``quantiser`` says in
    which numbers they are computed, ``max_tokens`` where a text is cut (None: unknown).
    """

    provider: str
    model: str
    revision: str
    dimension: int
    query_prefix: str = ""
    passage_prefix: str = ""
    pooling: str = "mean"
    quantiser: str = "none"
    max_tokens: int | None = None

    @property
    def fingerprint(self) -> bytes:
        """The identity of the space: sha256 of its canonical JSON."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).digest()


class Embedder(Protocol):
    """Turns texts into vectors of one space. Used from one event loop."""

    @property
    def space(self) -> EmbeddingSpace:
        """The space of every vector it returns."""
        ...

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector for each text, in order, shape (texts, dimension), float32.

        Raises ``embedding_unavailable`` when the provider cannot be had now, ``embedding_refused``
        when it gave what is no embedding of these texts, or will not embed them.
        """
        ...

    async def embed_query(self, text: str) -> Vectors:
        """Return the unit vector of a question, shape (dimension,), float32; raises as for passages."""
        ...

    async def close(self) -> None:
        """Let go of what it holds. Safe to call again."""
        ...


def is_cancelled() -> bool:
    """Tell whether the running task itself was cancelled, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def well_formed(text: str) -> str:
    """Return the text with each lone surrogate, which no UTF-8 can hold, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def checked(rows: Any, *, count: int, dimension: int) -> Vectors:
    """Return what a provider gave as unit vectors, or refuse all of it: a shifted batch is worse than none.

    Raises ``embedding_refused`` for a number of vectors other than ``count``, a dimension other than
    ``dimension``, what is not numbers, and vectors that are zero, NaN or infinite.
    """
    if len(rows) != count:
        raise refused(f"{len(rows)} vectors for {count} texts")
    if not count:
        return np.empty((0, dimension), np.float32)
    try:
        numbers = np.asarray(rows)
    except (TypeError, ValueError) as error:
        raise refused("vectors of unlike lengths") from error
    if numbers.ndim != 2 or numbers.dtype.kind not in "fiu":
        raise refused("what is not one list of numbers for each text")
    if numbers.shape[1] != dimension:
        raise refused(f"vectors of {numbers.shape[1]} dimensions instead of {dimension}")
    with np.errstate(over="ignore"):
        vectors = numbers.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise refused("a vector with NaN or infinity")
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not (norms > 0).all():
        raise refused("a vector of zeros")
    unit: Vectors = (vectors / norms).astype(np.float32)
    return unit


def refused(detail: str) -> StrataError:
    """Say what an embedder returned in place of vectors; no word of the texts."""
    return StrataError(EMBEDDING_REFUSED, f"The embedder returned {detail}.")
