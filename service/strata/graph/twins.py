"""Names that may be two spellings of one thing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.graph.model import Graph
from strata.graph.names import HIDDEN_LABEL, fold
from strata.graph.vocabulary import Ints, Namespace, SpellingIndex, Vocabulary, gather

TWIN_FLOOR = 0.6
TWIN_CAP = 100
SEMANTIC_NAMES = 2_000
"""Names above which meanings are not compared pair by pair."""
_FLOORS = (0.95, 0.85, 0.75)
_BLOCK = 1 << 22
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Twins:
    """Two names and their likeness (Dice of their bigrams); ``a`` was stored first."""

    a: str
    b: str
    score: float


def lexical_twins(graph: Graph, namespace: Namespace, *, floor: float = TWIN_FLOOR, cap: int = TWIN_CAP) -> list[Twins]:
    """List the likest pairs of canonical names at or above a floor, at most ``cap``, equal ones by name.

    The result is that of comparing all pairs. Only pairs that share one of their rarest bigrams are
    compared (prefix filtering; Bayardo, Ma and Srikant, WWW 2007), at a high floor first, lower
    only while pairs are missing. A floor of 0 or less is that of sharing anything.
    """
    vocabulary = graph.vocabulary(namespace)
    chosen = [index for index, name in enumerate(vocabulary.names) if name != HIDDEN_LABEL]
    folded = [fold(vocabulary.names[index]) for index in chosen]
    index = SpellingIndex(folded, np.array(chosen, dtype=np.int64), len(chosen))
    floor = max(floor, 0.01)
    for tried in (*(step for step in _FLOORS if step > floor), floor):
        left, right, scores = _alike(index, tried)
        if len(scores) >= cap:
            break
    return _ordered(vocabulary, index.owners[left], index.owners[right], scores, cap)


def semantic_twins(
    graph: Graph,
    namespace: Namespace,
    names: Sequence[str],
    vectors: npt.NDArray[np.float32],
    *,
    floor: float = TWIN_FLOOR,
    cap: int = TWIN_CAP,
) -> list[Twins]:
    """List the pairs of names whose vectors (of unit length, one a name) have the highest cosines.

    Names that the graph does not have are left out. All pairs are compared: more than
    ``SEMANTIC_NAMES`` names are too many to ask for.
    """
    vocabulary = graph.vocabulary(namespace)
    places = [(vocabulary.find(name), row) for row, name in enumerate(names) if name != HIDDEN_LABEL]
    known = sorted((index, row) for index, row in places if index is not None)
    indices = np.array([index for index, _ in known], dtype=np.int64)
    rows = vectors[[row for _, row in known]]
    cosines = np.triu(rows @ rows.T, k=1) if known else np.empty((0, 0), dtype=np.float32)
    left, right = np.nonzero(cosines >= floor) if floor > 0 else np.triu_indices(len(known), k=1)
    return _ordered(vocabulary, indices[left], indices[right], cosines[left, right].astype(np.float64), cap)


def _ordered(vocabulary: Vocabulary, left: Ints, right: Ints, scores: npt.NDArray[np.float64], cap: int) -> list[Twins]:
    order = np.lexsort((right, left, -scores))[: max(cap, 0)]
    pairs: list[Twins] = []
    for one, other, score in zip(left[order], right[order], scores[order].tolist(), strict=True):
        first, second = sorted((one, other), key=lambda place: vocabulary.ids[place])
        pairs.append(Twins(vocabulary.names[first], vocabulary.names[second], score))
    return pairs


def _alike(index: SpellingIndex, floor: float) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
    """Find all pairs (in order of name) whose Dice reaches a floor above 0."""
    starts, rows = _grams_by_spelling(index)
    sizes = np.diff(starts)
    left, right = _candidates(starts, rows, floor)
    shorter, longer = np.minimum(sizes[left], sizes[right]), np.maximum(sizes[left], sizes[right])
    near = 2 * shorter >= floor * (shorter + longer)
    left, right = left[near], right[near]
    scores = 2 * _shared(starts, rows, len(index.grams), left, right) / np.maximum(sizes[left] + sizes[right], 1)
    kept = scores >= floor
    return left[kept], right[kept], scores[kept]


def _grams_by_spelling(index: SpellingIndex) -> tuple[Ints, Ints]:
    """Give the bigrams of each spelling, the rarest first, as ranks of rarity."""
    spread = np.diff(index.gram_starts)
    rarity = np.empty(len(spread), dtype=np.int64)
    rarity[np.lexsort((index.grams, spread))] = np.arange(len(spread))
    rows = np.repeat(rarity, spread)
    carriers = index.carriers.astype(np.int64)
    order = np.lexsort((rows, carriers))
    starts = np.searchsorted(carriers[order], np.arange(len(index.folded) + 1)).astype(np.int64)
    return starts, rows[order]


def _candidates(starts: Ints, rows: Ints, floor: float) -> tuple[Ints, Ints]:
    """Pair the spellings that share enough of the rarest bigrams of both.

    Two names of Dice ``t`` share at least ``t / (2 - t)`` of the bigrams of each, so what is left
    after all but that many of the commonest (the prefix) must meet. All that two share beyond the
    prefix that ends first lies in the rest of that name, which bounds what they share in all.
    """
    sizes = np.diff(starts)
    needed = np.maximum(np.ceil(sizes * (floor / (2 - floor)) - _ROUNDING).astype(np.int64), 1)
    prefix = np.where(sizes > 0, sizes - needed + 1, 0)
    place = np.arange(len(rows)) - np.repeat(starts[:-1], sizes)
    kept = place < np.repeat(prefix, sizes)
    grams, spellings = rows[kept], np.repeat(np.arange(len(sizes)), sizes)[kept]
    order = np.lexsort((spellings, grams))
    left, right, meetings = _meetings(grams[order], spellings[order], len(sizes))
    both, rests = sizes[left] + sizes[right], sizes - prefix
    enough = meetings + np.maximum(rests[left], rests[right]) >= floor * both / 2 - _ROUNDING
    return left[enough], right[enough]


def _meetings(grams: Ints, spellings: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    """Count under how many bigrams each pair of spellings meets, in blocks that bound the memory."""
    # Each spelling is paired with those after it under the same bigram.
    following = np.searchsorted(grams, grams, side="right") - np.arange(len(grams)) - 1
    totals = np.cumsum(following)
    pairs, meetings = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    first = 0
    while first < len(grams):
        reached = totals[first - 1] if first else 0
        last = max(int(np.searchsorted(totals, reached + _BLOCK, side="right")), first + 1)
        others = following[first:last]
        ones = np.repeat(np.arange(first, last), others)
        within = np.arange(len(ones)) - np.repeat(np.cumsum(others) - others, others)
        found, times = np.unique(spellings[ones] * count + spellings[ones + 1 + within], return_counts=True)
        pairs, where = np.unique(np.concatenate((pairs, found)), return_inverse=True)
        meetings = np.bincount(where, np.concatenate((meetings, times))).astype(np.int64)
        first = last
    return pairs // max(count, 1), pairs % max(count, 1), meetings


def _shared(starts: Ints, rows: Ints, grams: int, left: Ints, right: Ints) -> Ints:
    """Count the bigrams that each pair of spellings has in common."""
    held = np.repeat(np.arange(len(starts) - 1), np.diff(starts)) * max(grams, 1) + rows
    counts = np.empty(len(left), dtype=np.int64)
    step = max(_BLOCK // max(math.ceil(len(rows) / max(len(starts) - 1, 1)), 1), 1)
    for first in range(0, len(left), step):
        members, lengths = gather(starts, left[first : first + step])
        sought = np.repeat(right[first : first + step], lengths) * max(grams, 1) + rows[members]
        places = np.minimum(np.searchsorted(held, sought), len(held) - 1)
        pair = np.repeat(np.arange(len(lengths)), lengths)
        counts[first : first + step] = np.bincount(pair[held[places] == sought], minlength=len(lengths))
    return counts
