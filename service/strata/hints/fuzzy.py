"""Names that resemble a question: an exact search by shared bigrams over a bounded set of names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt

from strata.hints.matching import MIN_DICE
from strata.hints.names import MIN_PREFIX_CHARS, compact

MAX_FUZZY_NAMES = 20_000
"""Names kept for one context: curated ones first, by priority."""

MAX_FUZZY_HITS = 32
_PLACE_BITS = 15  # a bit more than MAX_FUZZY_NAMES needs
_PLACE_MASK = (1 << _PLACE_BITS) - 1
_POINT_BITS = 21  # any code point
_POINT_MASK = (1 << _POINT_BITS) - 1
_BREAK = ord("\n")
_MAX_CACHED_NAMES = 200_000
_MAX_CACHED_CONTEXTS = 1024


class FuzzyNames:
    """The names of one context, by bigram. Immutable; built once for a hints revision."""

    def __init__(self, names: Sequence[tuple[UUID, str]]) -> None:
        kept = [(hint, short) for hint, norm in names if len(short := compact(norm)) >= MIN_PREFIX_CHARS]
        kept = kept[:MAX_FUZZY_NAMES]
        self._hints = [hint for hint, _ in kept]
        pairs = _distinct_pairs([short for _, short in kept])
        self._places = pairs & _PLACE_MASK
        self._grams, self._starts = np.unique(pairs >> _PLACE_BITS, return_index=True)
        self._ends = np.append(self._starts[1:], len(pairs))
        self._sizes = np.bincount(self._places, minlength=len(kept))

    def __len__(self) -> int:
        return len(self._hints)

    def search(self, norm: str) -> list[UUID]:
        """Return the hints with a name of Dice 0.6 or more to a normalised question, most alike first, 32 at most."""
        asked = compact(norm)
        if len(asked) < MIN_PREFIX_CHARS or not self._hints:
            return []
        grams = np.unique(_codes(asked))
        if self._sizes.max() * (2 - MIN_DICE) < MIN_DICE * len(grams):
            return []
        known = np.searchsorted(self._grams, grams)
        known = known[known < len(self._grams)]
        known = known[np.isin(self._grams[known], grams)]
        held = [self._places[self._starts[gram] : self._ends[gram]] for gram in np.unique(known)]
        if not held:
            return []
        shared = np.bincount(np.concatenate(held), minlength=len(self._hints))
        # In whole numbers, so that a name at the limit is never lost to rounding: 2s / (a + b) >= 0.6.
        alike = np.flatnonzero(10 * shared >= round(5 * MIN_DICE) * (self._sizes + len(grams)))
        score = 2 * shared[alike] / (self._sizes[alike] + len(grams))
        best = alike[np.argsort(-score, kind="stable")]
        return list(dict.fromkeys(self._hints[place] for place in best))[:MAX_FUZZY_HITS]


def _codes(text: str) -> npt.NDArray[np.int64]:
    """Return each pair of neighbouring characters as one number."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.int64)
    return (points[:-1] << _POINT_BITS) | points[1:]


def _distinct_pairs(names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return every (bigram, place of the name) once, as one number each, in rising order."""
    text = "\n".join(names)
    if not text:
        return np.empty(0, dtype=np.int64)
    codes = _codes(text)
    breaks = codes & _POINT_MASK == _BREAK
    places = np.cumsum(breaks)
    inside = ~breaks & (codes >> _POINT_BITS != _BREAK)
    return np.unique((codes[inside] << _PLACE_BITS) | places[inside])


@dataclass(frozen=True, slots=True)
class _Cached:
    revision: int
    names: FuzzyNames


class FuzzyCache:
    """The fuzzy names of the contexts asked last, each bound to the hints revision it was read at."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[UUID, UUID], _Cached] = OrderedDict()
        self._size = 0

    def search(self, tenant: UUID, context: UUID, norm: str) -> list[UUID]:
        """Return the hints that resemble the question by what is held, of whatever revision."""
        held = self._held.get((tenant, context))
        if held is None:
            return []
        self._held.move_to_end((tenant, context))
        return held.names.search(norm)

    def is_current(self, tenant: UUID, context: UUID, revision: int) -> bool:
        """Tell whether what is held is of this revision or a later one; revision 0 never had a hint."""
        held = self._held.get((tenant, context))
        return revision == 0 if held is None else held.revision >= revision

    def put(self, tenant: UUID, context: UUID, revision: int, names: FuzzyNames) -> None:
        """Hold the names of a context, dropping those asked longest ago where there is no room."""
        key = (tenant, context)
        if old := self._held.pop(key, None):
            self._size -= len(old.names)
        self._held[key] = _Cached(revision, names)
        self._size += len(names)
        while len(self._held) > 1 and (self._size > _MAX_CACHED_NAMES or len(self._held) > _MAX_CACHED_CONTEXTS):
            _, dropped = self._held.popitem(last=False)
            self._size -= len(dropped.names)
