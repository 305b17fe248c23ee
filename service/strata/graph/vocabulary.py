"""The spellings of one namespace, and the index that finds those like a cue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from strata.graph.names import fold, key_of_folded

Ints = npt.NDArray[np.int64]

STOP_MINIMUM = 64
STOP_SHARE = 20
"""A bigram carried by more than ``max(64, spellings / 20)`` spellings says nothing about a name."""


class Namespace(StrEnum):
    """Concepts and labels are named apart."""

    CONCEPT = "concept"
    LABEL = "label"


def gather(starts: Ints, groups: Ints) -> tuple[Ints, Ints]:
    """List the members of several groups of a compressed layout, and how many each group has.

    Group ``g`` holds ``starts[g]`` up to ``starts[g + 1]``; the result is indices into that layout.
    """
    first = starts[groups]
    lengths = starts[groups + 1] - first
    before = np.cumsum(lengths) - lengths
    return np.repeat(first - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64), lengths


def encode(texts: Sequence[str]) -> tuple[Ints, Ints]:
    """Lay the characters of all texts end to end, and say where each text starts (and the last ends)."""
    joined = "".join(texts).encode("utf-32-le", "surrogatepass")
    ends = np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)))
    return np.frombuffer(joined, dtype="<u4").astype(np.int64), np.concatenate(([0], ends)).astype(np.int64)


def gram_codes(characters: Ints) -> Ints:
    """Give each pair of neighbouring characters a number."""
    return (characters[:-1] << 21) | characters[1:]


def _is_first(ordered: Ints) -> npt.NDArray[np.bool_]:
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return first


def distinct(values: npt.NDArray[np.integer]) -> Ints:
    """List the distinct values, ascending. Sorting keeps its pace where numpy's hashing of dense keys does not."""
    ordered = np.sort(values).astype(np.int64, copy=False)
    found: Ints = ordered[_is_first(ordered)]
    return found


class SpellingIndex:
    """Folded spellings by their bigrams and single characters. Spelling ``i`` is record ``owners[i]``."""

    def __init__(self, folded: Sequence[str], owners: Ints) -> None:
        self.folded = folded
        self.owners = owners
        self.characters, self.starts = encode(folded)
        self.lengths = np.diff(self.starts)
        self._build_postings()

    def _build_postings(self) -> None:
        count = len(self.folded)
        codes = gram_codes(self.characters)
        inside = np.ones(len(codes), dtype=bool)
        borders = self.starts[1:-1]
        inside[borders[(borders > 0) & (borders <= len(codes))] - 1] = False
        carriers = np.repeat(np.arange(count, dtype=np.int64), np.maximum(self.lengths - 1, 0))
        # One sort of (bigram, spelling) in one number; room for 3.9 million spellings.
        pairs = codes[inside] * count + carriers
        pairs.sort()
        pairs = pairs[_is_first(pairs)]
        codes = pairs // max(count, 1)
        self.carriers: npt.NDArray[np.int32] = (pairs - codes * count).astype(np.int32)
        firsts = np.flatnonzero(_is_first(codes))
        self.grams: Ints = codes[firsts]
        self.gram_starts: Ints = np.append(firsts, len(codes)).astype(np.int64)
        spread = np.diff(self.gram_starts)
        self.is_stop = spread > max(STOP_MINIMUM, count / STOP_SHARE)
        self.sizes = np.bincount(self.carriers[~np.repeat(self.is_stop, spread)], minlength=count)

    @cached_property
    def by_fold(self) -> dict[str, list[int]]:
        """Spellings by their folded form."""
        found: dict[str, list[int]] = {}
        for spelling, folded in enumerate(self.folded):
            found.setdefault(folded, []).append(spelling)
        return found

    @cached_property
    def by_key(self) -> dict[str, list[int]]:
        """Spellings by their key."""
        found: dict[str, list[int]] = {}
        for spelling, folded in enumerate(self.folded):
            found.setdefault(key_of_folded(folded), []).append(spelling)
        return found

    @cached_property
    def _distinct_lengths(self) -> list[int]:
        return [int(length) for length in distinct(self.lengths) if length]

    def grams_of(self, text: str) -> tuple[Ints, int]:
        """List the known bigrams of a folded text, as rows of the index, and count its telling ones.

        A bigram that no spelling carries tells too: it is one the other side lacks.
        """
        codes = distinct(gram_codes(encode([text])[0])) if len(text) > 1 else np.empty(0, dtype=np.int64)
        rows = np.searchsorted(self.grams, codes)
        known = rows < len(self.grams)
        known[known] = self.grams[rows[known]] == codes[known]
        rows = rows[known]
        return rows, len(codes) - int(self.is_stop[rows].sum())

    def overlaps(self, text: str) -> tuple[Ints, npt.NDArray[np.float64]]:
        """Give the spellings that share a telling bigram with a folded text, and their Dice scores."""
        rows, size = self.grams_of(text)
        members, _ = gather(self.gram_starts, rows[~self.is_stop[rows]])
        shared = np.bincount(self.carriers[members], minlength=len(self.folded))
        spellings = np.flatnonzero(shared)
        return spellings, 2 * shared[spellings] / (self.sizes[spellings] + size)

    def containing(self, text: str) -> Ints:
        """List the spellings that hold a folded text, ascending."""
        if len(text) == 1:
            places = np.flatnonzero(self.characters == ord(text))
            return distinct(np.searchsorted(self.starts, places, side="right") - 1)
        codes = len(distinct(gram_codes(encode([text])[0])))
        rows, _ = self.grams_of(text)
        if len(rows) < codes:
            return np.empty(0, dtype=np.int64)
        rows = rows[np.argsort(np.diff(self.gram_starts)[rows], kind="stable")]
        found = self._carriers(int(rows[0]))
        if len(text) == 2:
            return found
        for row in rows[1:]:
            if len(found) <= 256:
                break
            found = np.intersect1d(found, self._carriers(int(row)), assume_unique=True)
        held = [spelling for spelling in found.tolist() if text in self.folded[spelling]]
        return np.array(held, dtype=np.int64)

    def _carriers(self, row: int) -> Ints:
        return self.carriers[self.gram_starts[row] : self.gram_starts[row + 1]].astype(np.int64)

    def contained_in(self, text: str) -> Ints:
        """List the spellings that a folded text holds, ascending."""
        found: set[int] = set()
        for length in self._distinct_lengths:
            if length > len(text):
                break
            pieces = {text[start : start + length] for start in range(len(text) - length + 1)}
            for piece in pieces & self.by_fold.keys() if len(pieces) > len(self.by_fold) else pieces:
                found.update(self.by_fold.get(piece, ()))
        return np.array(sorted(found), dtype=np.int64)


class Vocabulary:
    """The canonical names of one namespace in code point order, and the aliases that lead to them.

    A name's place in that order is its index everywhere in a graph, so comparing indices compares
    names. ``ids`` holds the database id of each index.
    """

    def __init__(self, records: Iterable[tuple[int, str]], aliases: Iterable[tuple[str, int]]) -> None:
        ordered = sorted(records, key=lambda record: (record[1], record[0]))
        self.names: list[str] = [name for _, name in ordered]
        self.ids: Ints = np.fromiter((number for number, _ in ordered), dtype=np.int64, count=len(ordered))
        by_id = np.argsort(self.ids, kind="stable")
        self._sorted_ids, self._by_id = self.ids[by_id], by_id
        pairs = sorted(aliases)
        targets = self.indices(np.array([target for _, target in pairs], dtype=np.int64))
        self.aliases: dict[str, int] = {alias: int(index) for (alias, _), index in zip(pairs, targets, strict=True)}

    def indices(self, ids: Ints) -> Ints:
        """Turn database ids into indices. Raises KeyError for an id of no record."""
        places = np.searchsorted(self._sorted_ids, ids)
        known = places < len(self._sorted_ids)
        known[known] = self._sorted_ids[places[known]] == ids[known]
        if not known.all():
            raise KeyError(int(ids[~known][0]))
        return self._by_id[places].astype(np.int64)

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    def find(self, spelling: str) -> int | None:
        """Give the index that a name or an alias, spelled exactly so, stands for."""
        index = self._by_name.get(spelling)
        return self.aliases.get(spelling) if index is None else index

    @cached_property
    def index(self) -> SpellingIndex:
        """The spellings, canonical names first, ready to be searched. Built on first use."""
        spellings = [*map(fold, self.names), *map(fold, self.aliases)]
        owners = np.concatenate(
            (np.arange(len(self.names)), np.fromiter(self.aliases.values(), dtype=np.int64, count=len(self.aliases)))
        ).astype(np.int64)
        return SpellingIndex(spellings, owners)

    @property
    def footprint_bytes(self) -> int:
        """Bytes of the names and aliases as UTF-8, and of the ids."""
        text = "".join(self.names), "".join(self.aliases)
        return sum(len(part.encode("utf-8", "surrogatepass")) for part in text) + self.ids.nbytes
