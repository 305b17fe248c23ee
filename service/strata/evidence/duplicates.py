"""Exact duplicates by source key, and near duplicates by text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, count, pairwise
from typing import Protocol

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


class Finder(Protocol):
    """Finds the first of the texts kept so far that says the same as another; texts go by their index."""

    def twin(self, at: int) -> int | None:
        """Return the first kept text that says the same, None where there is none."""

    def keep(self, at: int) -> None:
        """Count a text among the kept."""

    def conflicts(self) -> Mapping[int, Sequence[int]]:
        """Return, for kept texts, those that say the same but for what makes them contradict each other."""


@dataclass(frozen=True, slots=True)
class DuplicateRule:
    """When texts are near duplicates, and which kinds of candidates are compared, None meaning all with text."""

    finder: Callable[[Sequence[str]], Finder]
    kinds: frozenset[str] | None = None

    def compares(self, candidate: Candidate) -> bool:
        """Tell whether a candidate is compared: facts never are, each is one of its kind."""
        return candidate.text is not None and (
            candidate.fact is None if self.kinds is None else candidate.kind in self.kinds
        )


class SameWords:
    """The rule of :func:`are_near_duplicates`; only texts with the same numbers are compared at all."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._prints: dict[int, Fingerprint] = {}
        self._groups: dict[frozenset[tuple[str, int]], _Group] = {}

    def twin(self, at: int) -> int | None:
        """Return the first kept text that says the same, None where there is none."""
        print_ = self._print(at)
        group = self._groups.get(print_.key)
        return group.twin(print_) if group else None

    def keep(self, at: int) -> None:
        """Count a text among the kept."""
        print_ = self._print(at)
        self._groups.setdefault(print_.key, _Group()).add(at, print_)

    def conflicts(self) -> Mapping[int, Sequence[int]]:
        """Return none: texts that differ in a number are simply not the same."""
        return {}

    def _print(self, at: int) -> Fingerprint:
        known = self._prints.get(at)
        if known is None:
            known = self._prints[at] = Fingerprint(self._texts[at])
        return known


SAME_WORDS = DuplicateRule(SameWords)


def drop_near_duplicates(
    candidates: Sequence[Candidate], wanted: int, rule: DuplicateRule = SAME_WORDS
) -> tuple[list[Candidate], list[Omission]]:
    """Keep the first of texts that say the same, in the order given, until ``wanted`` distinct ones are found.

    What comes after those is kept uncompared: it is cut off anyhow. Candidates that the rule does not
    compare are kept too, and so is a protected one. The one kept counts the dropped in ``merged_count``,
    and names what it is in conflict with.
    """
    is_compared = [rule.compares(candidate) for candidate in candidates]
    compared = list(compress(candidates, is_compared))
    finder = rule.finder([candidate.text or "" for candidate in compared])
    kept: list[Candidate] = []
    absorbed: Counter[int] = Counter()
    omitted: list[Omission] = []
    places: dict[int, int] = {}
    index = count()
    for candidate, is_one in zip(candidates, is_compared, strict=True):
        if not is_one or len(places) >= wanted:
            kept.append(candidate)
            continue
        at = next(index)
        twin = finder.twin(at)
        if twin is None or candidate.is_protected:
            finder.keep(at)
            places[at] = len(kept)
            kept.append(candidate)
        else:
            absorbed[places[twin]] += candidate.merged_count
            omitted.append(Omission(candidate, Reason.NEAR_DUPLICATE, compared[twin].source_key))
    for place, dropped in absorbed.items():
        kept[place] = replace(kept[place], merged_count=kept[place].merged_count + dropped)
    for one, others in finder.conflicts().items():
        ids = tuple(sorted(compared[other].candidate_id for other in others))
        kept[places[one]] = replace(kept[places[one]], conflicts=ids)
    return kept, omitted


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
