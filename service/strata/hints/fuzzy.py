"""Names that resemble a question: an exact search by shared bigrams over a bounded set of names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt

from strata.hints.matching import MIN_DICE
from strata.hints.names import MIN_PREFIX_CHARS, bigrams, compact

MAX_FUZZY_NAMES = 20_000
"""Names kept for one context: curated ones first, by priority."""

MAX_FUZZY_HITS = 32
_MAX_CACHED_NAMES = 200_000
_MAX_CACHED_CONTEXTS = 1024


class FuzzyNames:
    """The names of one context, by bigram. Immutable; built once for a hints revision."""

    def __init__(self, names: Sequence[tuple[UUID, str]]) -> None:
        kept = [(hint, grams) for hint, norm in names if len(grams := bigrams(compact(norm))) + 1 >= MIN_PREFIX_CHARS]
        self._hints = [hint for hint, _ in kept]
        self._sizes = np.array([len(grams) for _, grams in kept], dtype=np.int32)
        places: dict[str, list[int]] = {}
        for place, (_, grams) in enumerate(kept):
            for gram in grams:
                places.setdefault(gram, []).append(place)
        self._places: dict[str, npt.NDArray[np.int32]] = {
            gram: np.array(held, dtype=np.int32) for gram, held in places.items()
        }

    def __len__(self) -> int:
        return len(self._hints)

    def search(self, norm: str) -> list[UUID]:
        """Return the hints with a name of Dice 0.6 or more to a normalised question, most alike first, 32 at most."""
        asked = compact(norm)
        grams = bigrams(asked)
        held = [self._places[gram] for gram in sorted(grams) if gram in self._places]
        if len(asked) < MIN_PREFIX_CHARS or not held or not self._can_reach(len(grams)):
            return []
        shared = np.bincount(np.concatenate(held), minlength=len(self._hints))
        # In whole numbers, so that a name at the limit is never lost to rounding: 2s / (a + b) >= 0.6.
        alike = np.flatnonzero(10 * shared >= round(5 * MIN_DICE) * (self._sizes + len(grams)))
        score = 2 * shared[alike] / (self._sizes[alike] + len(grams))
        best = alike[np.argsort(-score, kind="stable")]
        return list(dict.fromkeys(self._hints[place] for place in best))[:MAX_FUZZY_HITS]

    def _can_reach(self, size: int) -> bool:
        """Tell whether the longest name has enough bigrams for a question of ``size``."""
        return bool(self._sizes.max(initial=0) * (2 - MIN_DICE) >= MIN_DICE * size)


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
        """Tell whether what is held is of this revision; revision 0 never had a hint."""
        held = self._held.get((tenant, context))
        return revision == 0 if held is None else held.revision == revision

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
