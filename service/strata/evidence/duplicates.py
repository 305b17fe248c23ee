"""Exact duplicates by source key, and near duplicates by text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from msgspec.structs import replace

from strata.evidence.fusion import fused_order, unite
from strata.evidence.model import Candidate, KeyBasis, Layer, Omission, Reason

BIGRAM_DICE = 0.9
"""Share of common character bigrams from which two texts may be the same."""
SHINGLE_DICE = 0.8
"""Share of common runs of three words that such texts must have too: long texts on one subject
share most bigrams of their language, but not its word order."""

INDEXED_FROM = 8
"""Number of texts from which looking up shingles is cheaper than comparing with each."""

_WORD = re.compile(r"[぀-ヿ㐀-鿿豈-﫿]|[^\W_]+")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def merge_by_source_key(
    candidates: Sequence[Candidate], weights: Mapping[str, float] | None = None
) -> tuple[list[Candidate], list[Omission]]:
    """Let one candidate stand for all of its source key.

    The best in fused order (a protected one before all) keeps its text and preview; lanes, layers
    and reasons are united, the title and breadcrumb come from a hint where one has them,
    ``merged_count`` adds up, and the fused score is computed anew from the united ranks. The
    relevance is that of the text kept, or of a hint that means it. A RANK key never merges across
    layers. Returns the merged in fused order, and the others as
    DUPLICATE_SOURCE.
    """
    groups: dict[tuple[str, str, str], list[Candidate]] = {}
    for candidate in candidates:
        layer = candidate.layer if candidate.source_key_basis is KeyBasis.RANK else ""
        groups.setdefault((candidate.scope, candidate.source_key, layer), []).append(candidate)
    merged: list[Candidate] = []
    omitted: list[Omission] = []
    for group in groups.values():
        if len(group) == 1:
            merged += group
            continue
        # A protected member stands for its group: its own text must not be lost to its neighbour's.
        group.sort(key=lambda member: not member.is_protected)
        best = unite(group, weights)
        # What counts is what is shown: its own words, or that a hint means it.
        shown = [group[0], *(member for member in group if Layer.L0 in member.layers)]
        merged.append(
            replace(
                best,
                relevance=max(member.relevance for member in shown),
                merged_count=sum(member.merged_count for member in group),
            )
        )
        omitted += [Omission(member, Reason.DUPLICATE_SOURCE, best.source_key) for member in group[1:]]
    return sorted(merged, key=fused_order), omitted


class Fingerprint:
    """What near-duplicate comparison needs of a text; the costly parts are made when first compared.

    ``folded`` is NFKC, lower case, white space collapsed; ``numbers`` counts its numbers,
    ``bigrams`` holds its pairs of neighbouring characters and ``shingles`` its runs of three words.
    """

    def __init__(self, text: str) -> None:
        folded = text if text.isascii() else unicodedata.normalize("NFKC", text)
        self.folded = " ".join(folded.lower().split())
        self.numbers = Counter(_NUMBER.findall(self.folded))

    @cached_property
    def key(self) -> frozenset[tuple[str, int]]:
        """The numbers with their counts: what twins have in common."""
        return frozenset(self.numbers.items())

    @cached_property
    def bigrams(self) -> frozenset[str]:
        """Pairs of neighbouring characters; that of a single one is itself twice."""
        return frozenset(map("".join, pairwise(self.folded))) or frozenset({self.folded * 2})

    @cached_property
    def shingles(self) -> frozenset[tuple[str, ...]]:
        """Runs of three words, where a character of a script without spaces is a word."""
        words = _WORD.findall(self.folded)
        return frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset({tuple(words)})


def dice(first: frozenset[object], second: frozenset[object]) -> float:
    """Return the Dice coefficient of two sets, 1.0 for two empty ones."""
    if not first and not second:
        return 1.0
    return 2 * len(first & second) / (len(first) + len(second))


def are_near_duplicates(first: Fingerprint, second: Fingerprint) -> bool:
    """Tell whether one text may stand for the other.

    Texts that differ in any number never do: a price, a date or a version is the point of a passage.
    """
    if first.folded == second.folded:
        return True
    if first.numbers != second.numbers:
        return False
    return dice(first.bigrams, second.bigrams) >= BIGRAM_DICE and dice(first.shingles, second.shingles) >= SHINGLE_DICE


def drop_near_duplicates(candidates: Sequence[Candidate], wanted: int) -> tuple[list[Candidate], list[Omission]]:
    """Keep the first of texts that say the same, in the order given, until ``wanted`` distinct ones are found.

    What comes after those is kept uncompared: it is cut off anyhow. Candidates without text are
    kept too, they have nothing to compare; so is a protected one. The one kept counts the dropped
    in ``merged_count``.
    """
    kept: list[Candidate] = []
    known = _Known()
    absorbed: Counter[int] = Counter()
    omitted: list[Omission] = []
    for candidate in candidates:
        if candidate.text is None or known.size >= wanted:
            kept.append(candidate)
            continue
        print_ = Fingerprint(candidate.text)
        twin = known.twin(print_)
        if twin is None or candidate.is_protected:
            known.add(len(kept), print_)
            kept.append(candidate)
        else:
            absorbed[twin] += candidate.merged_count
            omitted.append(Omission(candidate, Reason.NEAR_DUPLICATE, kept[twin].source_key))
    return [
        replace(candidate, merged_count=candidate.merged_count + absorbed[index]) if absorbed[index] else candidate
        for index, candidate in enumerate(kept)
    ], omitted


class _Known:
    """The distinct texts so far, by their numbers: only texts with the same numbers can be twins."""

    def __init__(self) -> None:
        self.size = 0
        self._groups: dict[frozenset[tuple[str, int]], _Group] = {}

    def add(self, index: int, print_: Fingerprint) -> None:
        """Add a distinct text; ``index`` is handed back by :meth:`twin`."""
        self.size += 1
        self._groups.setdefault(print_.key, _Group()).add(index, print_)

    def twin(self, print_: Fingerprint) -> int | None:
        """Return the first text that says the same, None where there is none."""
        group = self._groups.get(print_.key)
        return group.twin(print_) if group else None


class _Group:
    """Texts with the same numbers.

    Where they are many, a new one is compared with those only that share enough of its shingles;
    the others cannot reach SHINGLE_DICE.
    """

    def __init__(self) -> None:
        self._prints: list[tuple[int, Fingerprint]] = []
        self._by_shingle: dict[tuple[str, ...], list[int]] = {}
        self._indexed = 0

    def add(self, index: int, print_: Fingerprint) -> None:
        self._prints.append((index, print_))

    def twin(self, print_: Fingerprint) -> int | None:
        if len(self._prints) < INDEXED_FROM:
            likely: Iterable[int] = range(len(self._prints))
        else:
            self._index()
            shared = Counter(at for shingle in print_.shingles for at in self._by_shingle.get(shingle, ()))
            likely = sorted(at for at, count in shared.items() if count >= self._least(at, print_))
        found = (self._prints[at] for at in likely)
        return next((index for index, other in found if are_near_duplicates(print_, other)), None)

    def _index(self) -> None:
        for at in range(self._indexed, len(self._prints)):
            for shingle in self._prints[at][1].shingles:
                self._by_shingle.setdefault(shingle, []).append(at)
        self._indexed = len(self._prints)

    def _least(self, at: int, print_: Fingerprint) -> float:
        """Return how many shingles two texts must share to reach SHINGLE_DICE."""
        return SHINGLE_DICE * (len(self._prints[at][1].shingles) + len(print_.shingles)) / 2 - 1e-9
