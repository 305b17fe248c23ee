"""A corpus of any size out of the text of judged sets, and vectors for it without embedding each passage."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from strata.evaluate.beir import load_judged_set
from strata.providers.embeddings.base import Embedder, Vectors
from strata.sources.readers import iter_beir

WORDS_PER_PASSAGE = 110
BASES = 2_048
"""Real vectors that synthetic ones are mixed from."""

_SEED = 7
_BATCH = 32


class Corpus:
    """Passages remixed from the sentences of judged sets, the same for the same seed."""

    def __init__(self, directories: Sequence[Path], seed: int = _SEED) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a benchmark wants the same numbers again
        self.sentences: list[str] = []
        queries: list[str] = []
        for directory in directories:
            for record in iter_beir(directory / "corpus.jsonl", []):
                self.sentences += [part for part in record.text.split(". ") if 20 < len(part) < 400]
            queries += [query.text for query in load_judged_set(directory).queries if not query.is_blank]
        self.queries = list(dict.fromkeys(queries))
        self._random.shuffle(self.queries)
        self._made = 0

    def write(self, path: Path, passages: int) -> None:
        """Write that many more documents of one passage each, in BEIR layout."""
        with path.open("wb") as file:
            for text in self._texts(self._random, passages):
                title = " ".join(text.split(". ")[0].split()[:6])
                record = {"_id": f"doc/{self._made:08}", "title": title, "text": text}
                file.write(msgspec.json.encode(record) + b"\n")
                self._made += 1

    def sample(self, passages: int) -> list[str]:
        """Return texts made the same way, the same ones each time, without moving on."""
        return list(self._texts(random.Random(_SEED + 1), passages))  # noqa: S311 - as above

    def _texts(self, chance: random.Random, passages: int) -> Iterator[str]:
        for _ in range(passages):
            parts: list[str] = []
            words = 0
            while words < WORDS_PER_PASSAGE:
                sentence = chance.choice(self.sentences)
                parts.append(sentence)
                words += max(1, len(sentence) // 6)
            yield ". ".join(parts)


class SyntheticVectors:
    """Unit vectors near those of real passages: two of them mixed, and noise; the same for the same seed."""

    SHARES = (0.8, 0.4)
    NOISE = 0.3

    def __init__(self, bases: Vectors, seed: int = _SEED) -> None:
        self._bases = bases
        self._random = np.random.default_rng(seed)

    def take(self, count: int) -> Vectors:
        """Return so many more."""
        picks = self._random.integers(0, len(self._bases), (count, len(self.SHARES)))
        noise = self._random.standard_normal((count, self._bases.shape[1]), dtype=np.float32)
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        mixed = self.NOISE * noise
        for at, share in enumerate(self.SHARES):
            mixed += share * self._bases[picks[:, at]]
        unit: Vectors = (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32)
        return unit


async def base_vectors(embedder: Embedder, corpus: Corpus, folder: Path, count: int = BASES) -> Vectors:
    """Embed a sample of the corpus; what an earlier run embedded in ``folder`` is used again."""
    path = folder / f"bases-{embedder.space.fingerprint.hex()[:16]}-{len(corpus.sentences)}-{count}.npy"
    known = await asyncio.to_thread(_loaded, path)
    if known is not None:
        return known
    texts = corpus.sample(count)
    batches = [await embedder.embed_passages(texts[at : at + _BATCH]) for at in range(0, count, _BATCH)]
    vectors: Vectors = np.concatenate(batches)
    await asyncio.to_thread(_save, path, vectors)
    return vectors


def _loaded(path: Path) -> Vectors | None:
    if not path.is_file():
        return None
    vectors: Vectors = np.load(path)
    return vectors


def _save(path: Path, vectors: Vectors) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, vectors)
