"""Near duplicates by character bigrams alone, found exactly without comparing each text with each.

The Dice coefficient of two sets is at least 0.9 just where their difference holds at most a tenth as many
elements as the two together. A set hashed into the bits of a signature can only lose differences, so two
signatures with more differing bits are of no near duplicates; nor are two sets of which the larger holds
more than 11/9 of the smaller. What passes both is compared. (Looking texts up by their rare bigrams prunes
nothing within one language: there all texts share a few hundred of them.)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from strata.evidence.duplicates import SHINGLE_DICE, DuplicateRule, Fingerprint, dice
from strata.evidence.nominate import PASSAGE
from strata.text.folding import fold

MAX_CONFLICTS = 8
"""Texts that more others repeat but for their numbers are a form filled in many times, not a conflict."""
LEAST_CONFLICT_BIGRAMS = 12
"""Texts with fewer, as "Section 1" and "Section 2", are told apart by their numbers."""

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_CODE_BITS = 21
_LEAST_BITS, _MOST_BITS = 8, 12  # of a signature, as powers of two
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BLOCK_ROWS = 32
_SHINGLE_MASK = 255
_ROUNDING = 1e-9

Uint64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]


class SameBigrams:
    """Texts are the same where the Dice coefficient of their folded character bigrams is 0.9 or more.

    The bigram of a single character is itself twice; two empty texts are the same.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._pairs, self._starts = _bigrams([self._compared(fold(text)) for text in texts])
        self._likely = _likely(self._pairs, self._starts)
        self._sets: dict[int, frozenset[int]] = {}
        self._kept: set[int] = set()

    def twin(self, at: int) -> int | None:
        """Return the first kept text that says the same, None where there is none."""
        return next((other for other in self._kept_likely(at) if self._is_same(at, other)), None)

    def keep(self, at: int) -> None:
        """Count a text among the kept."""
        self._kept.add(at)

    def conflicts(self) -> Mapping[int, Sequence[int]]:
        """Return none: whatever differs little is a duplicate."""
        return {}

    def _compared(self, folded: str) -> str:
        return folded

    def _kept_likely(self, at: int) -> list[int]:
        return [other for other in self._likely[at] if other in self._kept]

    def _is_same(self, first: int, second: int) -> bool:
        one, two = self._set(first), self._set(second)
        # 2 * common / sizes >= 0.9, in whole numbers.
        return 20 * len(one & two) >= 9 * (len(one) + len(two))

    def _set(self, at: int) -> frozenset[int]:
        known = self._sets.get(at)
        if known is None:
            pairs = self._pairs[self._starts[at] : self._starts[at + 1]]
            known = self._sets[at] = frozenset(pairs.tolist())
        return known


class SameInWords(SameBigrams):
    """Texts must agree in their runs of three words too, as long ones share most bigrams of their language.

    They are compared without their numbers: the same with the same numbers are twins, with others in conflict.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._numbers: list[tuple[str, ...]] = []
        self._masked: list[str] = []
        super().__init__(texts)
        self._shingles: dict[int, tuple[frozenset[object], int]] = {}
        self._found: dict[int, list[int]] = {}
        self._degrees: Counter[int] = Counter()

    def twin(self, at: int) -> int | None:
        """Return the first kept text with the same numbers that says the same, None where there is none."""
        numbers = self._numbers[at]
        return next(
            (other for other in self._kept_likely(at) if self._numbers[other] == numbers and self._is_same(at, other)),
            None,
        )

    def keep(self, at: int) -> None:
        """Count a text among the kept, in conflict with those of them that differ in numbers only."""
        found = self._found[at] = []
        if self._starts[at + 1] - self._starts[at] >= LEAST_CONFLICT_BIGRAMS:
            for other in self._kept_likely(at):
                if self._numbers[other] != self._numbers[at] and self._is_same(at, other):
                    found.append(other)
                    if len(found) > MAX_CONFLICTS:
                        break
        self._degrees.update([at] * len(found) + found)
        super().keep(at)

    def conflicts(self) -> Mapping[int, Sequence[int]]:
        """Return the kept texts that differ in their numbers only, but for what many repeat."""
        both: dict[int, list[int]] = {}
        for at, others in self._found.items():
            for other in others:
                if max(self._degrees[at], self._degrees[other]) <= MAX_CONFLICTS:
                    both.setdefault(at, []).append(other)
                    both.setdefault(other, []).append(at)
        return both

    def _compared(self, folded: str) -> str:
        self._numbers.append(tuple(sorted(_NUMBER.findall(folded))))
        self._masked.append(_NUMBER.sub("0", folded))
        return self._masked[-1]

    def _is_same(self, first: int, second: int) -> bool:
        (one, bits), (two, other_bits) = self._shingled(first), self._shingled(second)
        # As for bigrams: what differs in the bits differs in the sets, and may be no more than their share.
        return (
            (bits ^ other_bits).bit_count() <= (1 - SHINGLE_DICE) * (len(one) + len(two)) + _ROUNDING
            and dice(one, two) >= SHINGLE_DICE
            and super()._is_same(first, second)
        )

    def _shingled(self, at: int) -> tuple[frozenset[object], int]:
        """Return the runs of three words of a text, and the bits that they hash to."""
        known = self._shingles.get(at)
        if known is None:
            shingles = Fingerprint(self._masked[at]).shingles
            bits = 0
            for shingle in shingles:
                bits |= 1 << (hash(shingle) & _SHINGLE_MASK)
            known = self._shingles[at] = (shingles, bits)
        return known


SAME_BIGRAMS = DuplicateRule(SameBigrams, frozenset({PASSAGE}))
SAME_IN_WORDS = DuplicateRule(SameInWords, frozenset({PASSAGE}))


def _bigrams(texts: Sequence[str]) -> tuple[Uint64s, Int64s]:
    """Return the distinct bigrams of each text, one text after the other, and where each text's begin."""
    texts = [text * 2 if len(text) == 1 else text for text in texts]
    lengths = np.array([len(text) for text in texts], np.int64)
    owners = np.arange(len(texts) + 1, dtype=np.uint64) << np.uint64(2 * _CODE_BITS)
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    keyed = codes[:-1] << np.uint64(_CODE_BITS)
    keyed |= codes[1:]
    keyed |= np.repeat(owners[:-1], lengths)[:-1]
    across = np.cumsum(lengths)[:-1] - 1
    keyed = np.delete(keyed, across[(across >= 0) & (across < len(keyed))])
    # np.unique looks up integers one by one, which takes ten times as long as sorting them.
    keyed.sort()
    keyed = keyed[np.concatenate(([True], keyed[1:] != keyed[:-1]))[: len(keyed)]]
    return keyed & np.uint64((1 << 2 * _CODE_BITS) - 1), np.searchsorted(keyed, owners)


def _likely(pairs: Uint64s, starts: Int64s) -> list[list[int]]:
    """Return for each text the earlier ones that no filter excludes, in order."""
    sizes = np.diff(starts)
    signatures = _signatures(pairs, sizes)
    order = np.argsort(sizes, kind="stable")
    sizes, signatures = sizes[order], signatures[order]
    # Smaller sets than 9/11 of a set are out, whatever they share with it.
    first = np.searchsorted(sizes, -(-9 * sizes // 11))
    likely: list[list[int]] = [[] for _ in order]
    for start in range(0, len(order), _BLOCK_ROWS):
        rows, columns = slice(start, start + _BLOCK_ROWS), slice(first[start], start + _BLOCK_ROWS)
        differing = np.bitwise_count(signatures[rows, None] ^ signatures[None, columns]).sum(axis=2, dtype=np.int64)
        found = np.nonzero(10 * differing <= sizes[rows, None] + sizes[None, columns])
        for row, column in zip((found[0] + start).tolist(), (found[1] + int(first[start])).tolist(), strict=True):
            if column < row:
                one, two = int(order[row]), int(order[column])
                likely[max(one, two)].append(min(one, two))
    for others in likely:
        others.sort()
    return likely


def _signatures(pairs: Uint64s, sizes: Int64s) -> Uint64s:
    """Return a row of bits for each text, with those set that its bigrams hash to.

    There are more bits than a text has bigrams on average.
    """
    width = min(max((len(pairs) // max(1, len(sizes))).bit_length(), _LEAST_BITS), _MOST_BITS)
    bits = np.zeros((len(sizes), 1 << width), bool)
    buckets = (pairs * _GOLDEN) >> np.uint64(64 - width)
    bits[np.repeat(np.arange(len(sizes)), sizes), buckets.astype(np.int64)] = True
    return np.packbits(bits, axis=1).view(np.uint64)
