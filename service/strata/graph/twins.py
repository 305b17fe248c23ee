"""Names that may be two spellings of one thing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.graph.model import Graph
from strata.graph.names import HIDDEN_LABEL, fold
from strata.graph.vocabulary import Ints, Namespace, SpellingIndex, Vocabulary, distinct, gather

TWIN_FLOOR = 0.6
TWIN_CAP = 100
SEMANTIC_NAMES = 2_000
"""Names above which meanings are not compared pair by pair."""
_FLOORS = (0.95, 0.85, 0.75)
_BLOCK = 1 << 22
_ROUNDING = 1e-9
_LONG = 48


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
    index = SpellingIndex(folded, np.array(chosen, dtype=np.int64))
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

    Nearly all pairs that reach the floor share two bigrams, and two together are far rarer than one.
    One is looked for only where one may be enough, and among spellings so long that their pairs of
    bigrams would be too many.
    """
    sizes = np.diff(starts)
    partner = floor / (2 - floor)
    stages = (
        (2, (sizes >= 2) & (sizes <= _LONG)),
        (1, (sizes >= 1) & (sizes < 2 / floor)),
        (1, (sizes >= partner * (_LONG + 1) - _ROUNDING) & (sizes.max(initial=0) > _LONG)),
    )
    found = [_meeting(starts, rows, np.flatnonzero(chosen), floor, together) for together, chosen in stages]
    pairs = distinct(np.concatenate(found))
    count = max(len(sizes), 1)
    return pairs // count, pairs % count


def _meeting(starts: Ints, rows: Ints, chosen: Ints, floor: float, together: int) -> Ints:
    """Pair spellings that share ``together`` (1 or 2) of their rarest bigrams, as ``left * count + right``.

    Two names of Dice ``t`` share at least ``t / (2 - t)`` of the bigrams of each, so the rarest of
    each, all but that many less ``together``, must have that many in common. What two share beyond
    the prefix that ends first lies in the rest of that name, which bounds what they share in all.
    """
    sizes = np.diff(starts)
    needed = np.maximum(np.ceil(sizes * (floor / (2 - floor)) - _ROUNDING).astype(np.int64), together)
    prefix = np.zeros_like(sizes)
    prefix[chosen] = sizes[chosen] - needed[chosen] + together
    tokens, owners = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for length in distinct(prefix[prefix >= together]).tolist():
        held = np.flatnonzero(prefix == length)
        grams = rows[starts[held][:, None] + np.arange(length)]
        if together == 2:
            first, second = np.triu_indices(length, k=1)
            grams = (grams[:, first] << 31) | grams[:, second]
        tokens.append(grams.ravel())
        owners.append(np.repeat(held, grams.shape[1]))
    token, owner = np.concatenate(tokens), np.concatenate(owners)
    order = np.lexsort((owner, token))
    rests, found = sizes - prefix, [np.empty(0, dtype=np.int64)]
    for pairs, meetings in _meetings(token[order], owner[order], sizes, floor):
        left, right = pairs // len(sizes), pairs % len(sizes)
        shared = meetings if together == 1 else (1 + np.sqrt(1 + 8 * meetings)) / 2
        least = floor * (sizes[left] + sizes[right]) / 2 - _ROUNDING
        found.append(pairs[shared + np.maximum(rests[left], rests[right]) >= least])
    return np.concatenate(found)


def _meetings(tokens: Ints, owners: Ints, sizes: Ints, floor: float) -> Iterator[tuple[Ints, Ints]]:
    """Count under how many tokens two spellings of fitting sizes meet, a block of first spellings at a time."""
    # Each spelling is paired with those after it under the same token, which come after it by name too.
    following = np.searchsorted(tokens, tokens, side="right") - np.arange(len(tokens)) - 1
    entries = np.argsort(owners, kind="stable")
    entries = entries[following[entries] > 0]
    totals = np.cumsum(following[entries])
    ends = np.flatnonzero(np.diff(owners[entries], append=-1)) + 1
    first = 0
    while first < len(entries):
        reached = totals[first - 1] if first else 0
        room = int(np.searchsorted(totals, reached + _BLOCK, side="right"))
        # A block ends with the last entry of a spelling, so that its counts are whole.
        place = int(np.searchsorted(ends, room, side="right")) - 1
        last = (
            int(ends[place])
            if place >= 0 and ends[place] > first
            else int(ends[np.searchsorted(ends, first, side="right")])
        )
        block = entries[first:last]
        others = following[block]
        ones = np.repeat(block, others)
        twos = ones + 1 + np.arange(len(ones)) - np.repeat(np.cumsum(others) - others, others)
        smaller, larger = sizes[owners[ones]], sizes[owners[twos]]
        fits = 2 * np.minimum(smaller, larger) >= floor * (smaller + larger) - _ROUNDING
        yield np.unique(owners[ones[fits]] * len(sizes) + owners[twos[fits]], return_counts=True)
        first = last


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
