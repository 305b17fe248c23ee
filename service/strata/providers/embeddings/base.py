"""What every embedder is: texts in, unit vectors of one named space out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from strata.errors import EMBEDDING_REFUSED, StrataError

Vectors: TypeAlias = npt.NDArray[np.float32]
"""One row for each text, each of length 1."""


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


def checked(rows: Any, *, count: int, dimension: int) -> Vectors:
    """Return what a provider gave as unit vectors, or refuse all of it: a shifted batch is worse than none.

    Raises ``embedding_refused`` for a number of vectors other than ``count``, a dimension other than
    ``dimension``, and vectors that are zero, NaN or infinite.
    """
    if len(rows) != count:
        raise _refused(f"{len(rows)} vectors for {count} texts")
    try:
        vectors = np.asarray(rows, np.float32).reshape(count, -1)
    except (TypeError, ValueError) as error:
        raise _refused("vectors of unlike lengths, or not of numbers") from error
    if count and vectors.shape[1] != dimension:
        raise _refused(f"vectors of {vectors.shape[1]} dimensions instead of {dimension}")
    if not np.isfinite(vectors).all():
        raise _refused("a vector with NaN or infinity")
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not (norms > 0).all():
        raise _refused("a vector of zeros")
    unit: Vectors = (vectors / norms).astype(np.float32)
    return unit


def _refused(detail: str) -> StrataError:
    return StrataError(EMBEDDING_REFUSED, f"The embedder returned {detail}.")
