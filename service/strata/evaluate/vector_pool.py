"""Vectors to measure the vector lane with: read, embedded or made; the filters over them, and the true nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from rich.console import Console

from strata.errors import INVALID_SETTING, StrataError
from strata.evaluate.beir import load_judged_set
from strata.lanes.vector.index import Eligible
from strata.providers.embeddings.base import Vectors
from strata.settings import Settings
from strata.text.contextual import embedded_text

Ids: TypeAlias = npt.NDArray[np.int64]

_NEIGHBOURS = 32
_RUN = 8
_NOISE = 0.2
"""Length of the noise added to a mix: with it, neighbours and questions lie about as far as among real passages."""

_err = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Pool:
    """Vectors to fill a context from, questions to ask it, and what they are."""

    passages: Vectors
    questions: Vectors
    origin: str


def clusters(count: int, dimension: int, rng: np.random.Generator) -> Pool:
    """Make unit vectors in clusters of unlike sizes around a common direction, and questions beside some of them."""
    common = rng.standard_normal(dimension).astype(np.float32)
    centres = _unit(rng.standard_normal((max(1, count // 200), dimension)).astype(np.float32) + common)
    sizes = rng.zipf(1.5, len(centres)).clip(max=1000).astype(np.float64)
    owner = rng.choice(len(centres), count, p=sizes / sizes.sum())
    passages = _unit(centres[owner] + _noise((count, dimension), 0.5, rng))
    near = rng.choice(count, min(count, 500), replace=False)
    return Pool(passages, _unit(passages[near] + _noise((len(near), dimension), 0.5, rng)), "made clusters")


def read_pool(folder: Path, rng: np.random.Generator) -> Pool:
    """Read the .npz files of a folder."""
    sets = [np.load(path) for path in sorted(folder.glob("*.npz"))]
    questions = [_unit(each["q"])[rng.permutation(len(each["q"]))[:100]] for each in sets]
    passages = np.concatenate([_unit(each["d"]) for each in sets])
    return Pool(passages, np.concatenate(questions), f"{len(passages):,} vectors of {len(sets)} files")


def grow(pool: Pool, count: int, rng: np.random.Generator) -> Vectors:
    """Return ``count`` vectors: those of the pool, then mixes of one of them, a near neighbour of it, and noise.

    Neighbours in the pool, which are often of one document, stay together, and mixes of like ones do.
    """
    missing = count - len(pool.passages)
    if missing <= 0:
        runs = np.sort(rng.permutation(len(pool.passages) // _RUN)[: count // _RUN + 1])
        chosen: Vectors = pool.passages[(runs[:, None] * _RUN + np.arange(_RUN)).ravel()[:count]]
        return chosen
    base = pool.passages
    near = _neighbours(base, rng)
    one = np.sort(rng.integers(0, len(base), missing))
    other = near[one, rng.integers(0, near.shape[1], missing)]
    made = np.empty((missing, base.shape[1]), np.float32)
    for start in range(0, missing, 65_536):
        part = slice(start, start + 65_536)
        share = rng.uniform(0.3, 0.7, (len(one[part]), 1)).astype(np.float32)
        mixed = _unit(base[one[part]] * (1 - share) + base[other[part]] * share)
        made[part] = _unit(mixed + _noise(mixed.shape, _NOISE, rng))
    return np.concatenate([base, made])


def _neighbours(base: Vectors, rng: np.random.Generator) -> Ids:
    """Return near neighbours of each vector, looked for in a sample of at most 50,000."""
    sample = rng.choice(len(base), min(len(base), 50_000), replace=False)
    count = min(_NEIGHBOURS, len(sample) - 1)
    found = np.empty((len(base), count), np.int64)
    for start in range(0, len(base), 1_024):
        scores = base[start : start + 1_024] @ base[sample].T
        found[start : start + 1_024] = sample[np.argpartition(-scores, count, axis=1)[:, 1 : count + 1]]
    return found


def _noise(shape: tuple[int, ...], length: float, rng: np.random.Generator) -> Vectors:
    scale = np.float32(length / np.sqrt(shape[-1]))
    noise: Vectors = rng.standard_normal(shape, dtype=np.float32) * scale
    return noise


def _unit(rows: npt.NDArray[Any]) -> Vectors:
    unit: Vectors = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
    return unit


@dataclass(frozen=True, slots=True)
class Filter:
    """Which sources are eligible; ``places`` are the positions of their vectors. None: all."""

    name: str
    eligible: Eligible | None
    places: Ids | None


def make_filters(
    shares: Sequence[float], vectors: Vectors, questions: Vectors, per_source: int, rng: np.random.Generator
) -> list[Filter]:
    """Return no filter, one of random sources for each share, and one of the sources farthest from the questions."""
    count = len(vectors)
    sources = (count + per_source - 1) // per_source
    filters = [Filter("none", None, None)]
    serial_of = np.arange(count) // per_source

    def of(name: str, chosen: Ids) -> Filter:
        places = np.flatnonzero(np.isin(serial_of, chosen))
        return Filter(name, Eligible((np.sort(chosen) + 1).tolist(), len(places)), places)

    for share in shares:
        chosen = rng.choice(sources, max(1, round(sources * share)), replace=False)
        filters.append(of(f"{share:.1%}", chosen))
    nearness = vectors[::per_source] @ questions.mean(axis=0)
    filters.append(of("5.0% farthest", np.argsort(nearness, kind="stable")[: max(1, sources // 20)]))
    return filters


def nearest(vectors: Vectors, questions: Vectors, places: Ids | None, depth: int) -> Ids:
    """Return the positions of the true nearest, by float32 inner product, equal ones by position."""
    best = np.full((len(questions), 0), 0, np.int64)
    scores = np.full((len(questions), 0), 0, np.float32)
    every = np.arange(len(vectors)) if places is None else places
    for start in range(0, len(every), 100_000):
        part = every[start : start + 100_000]
        here = questions @ vectors[part].T
        all_scores = np.concatenate([scores, here], axis=1)
        all_places = np.concatenate([best, np.broadcast_to(part, here.shape)], axis=1)
        order = np.argsort(-all_scores, axis=1, kind="stable")[:, :depth]
        scores, best = np.take_along_axis(all_scores, order, 1), np.take_along_axis(all_places, order, 1)
    return best


def recall(found: Sequence[Sequence[int]], truth: Ids, depth: int) -> float:
    """Return the share of the true nearest ``depth`` that was found among as many."""
    wanted = truth[:, :depth]
    hits = sum(len(set(row[:depth]) & set(true.tolist())) for row, true in zip(found, wanted, strict=True))
    return round(hits / max(1, wanted.size), 4)


async def embed(folder: Path, settings: Settings, limit: int, rng: np.random.Generator) -> Pool:
    """Embed up to ``limit`` documents of each judged set below ``folder``, and 100 of its questions."""
    from strata.providers.embeddings.embedders import Embedders

    embedders = Embedders(settings)
    passages: list[Vectors] = []
    questions: list[Vectors] = []
    try:
        embedder = await embedders.configured()
        if embedder is None:
            raise StrataError(INVALID_SETTING, "STRATA_EMBEDDINGS is none.", pointer="STRATA_EMBEDDINGS")
        for directory in judged_sets(folder):
            judged = load_judged_set(directory)
            texts = [embedded_text(record.title, (), record.text) for record in judged.documents()]
            passages.append(await embedder.embed_passages([texts[at] for at in rng.permutation(len(texts))[:limit]]))
            chosen = rng.permutation(len(judged.queries))[:100]
            questions += [await embedder.embed_query(judged.queries[at].text) for at in chosen]
            _err.print(f"{directory.name}: {len(passages[-1]):,} passages embedded")
    finally:
        await embedders.close()
    together = np.concatenate(passages)
    return Pool(together, np.stack(questions), f"{len(together):,} vectors of {len(passages)} judged sets")


def judged_sets(data: Path) -> list[Path]:
    """Return the folders below ``data`` in BEIR layout, by name."""
    return sorted(path for path in data.iterdir() if (path / "queries.jsonl").is_file())
