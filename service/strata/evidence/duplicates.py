"""Exact duplicates by source key, and near duplicates by text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from strata.evidence.fusion import fused_order, unite
from strata.evidence.model import Candidate, KeyBasis, Layer, Omission, Reason

BIGRAM_DICE = 0.9
"""Share of common character bigrams from which two texts may be the same."""
SHINGLE_DICE = 0.8
"""Share of common runs of three words that such texts must have too: long texts on one subject
share most bigrams of their language, but not its word order."""

_WORD = re.compile(r"[぀-ヿ㐀-鿿豈-﫿]|[^\W_]+")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def merge_by_source_key(
    candidates: Sequence[Candidate], weights: Mapping[str, float] | None = None
) -> tuple[list[Candidate], list[Omission]]:
    """Let one candidate stand for all of its source key.

    The best in fused order (a protected one before all) keeps its text and preview; lanes, layers
    and reasons are united, the title and breadcrumb come from a hint where one has them,
    ``merged_count`` adds up, and the fused score is computed anew from the united ranks. A RANK
    key never merges across layers. Returns the merged in fused order, and the others as
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
        titled = next((member for member in group if member.layer is Layer.L0 and member.title), best)
        merged.append(
            replace(
                best,
                title=titled.title,
                breadcrumb=titled.breadcrumb or best.breadcrumb,
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
    prints: list[tuple[int, Fingerprint]] = []
    absorbed: Counter[int] = Counter()
    omitted: list[Omission] = []
    for candidate in candidates:
        if candidate.text is None or len(prints) >= wanted:
            kept.append(candidate)
            continue
        print_ = Fingerprint(candidate.text)
        twin = next((index for index, other in prints if are_near_duplicates(print_, other)), None)
        if twin is None or candidate.is_protected:
            prints.append((len(kept), print_))
            kept.append(candidate)
        else:
            absorbed[twin] += candidate.merged_count
            omitted.append(Omission(candidate, Reason.NEAR_DUPLICATE, kept[twin].source_key))
    return [
        replace(candidate, merged_count=candidate.merged_count + absorbed[index]) if absorbed[index] else candidate
        for index, candidate in enumerate(kept)
    ], omitted
