"""Exact duplicates by source key, and near duplicates by text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from strata.evidence.fusion import fused_order, reciprocal_rank_fusion, unite
from strata.evidence.model import Candidate, KeyBasis, Layer, Omission, Reason

BIGRAM_DICE = 0.9
"""Share of common character bigrams from which two texts may be the same."""
SHINGLE_DICE = 0.6
"""Share of common runs of three words that such texts must have too: long texts on one subject
share most bigrams of their language, but not its word order."""

_WORD = re.compile(r"[぀-ヿ㐀-鿿豈-﫿]|[^\W_]+")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def merge_by_source_key(
    candidates: Sequence[Candidate], weights: Mapping[str, float] | None = None
) -> tuple[list[Candidate], list[Omission]]:
    """Let one candidate stand for all of its source key.

    The best in fused order keeps its text and preview; lanes, layers and reasons are united, the
    title and breadcrumb come from a hint where one has them, ``merged_count`` adds up, and the
    fused score is computed anew from the united ranks. A RANK key never merges across layers.
    Returns the merged in fused order, and the others as DUPLICATE_SOURCE.
    """
    groups: dict[tuple[str, str, str], list[Candidate]] = {}
    for candidate in candidates:
        layer = candidate.layer if candidate.source_key_basis is KeyBasis.RANK else ""
        groups.setdefault((candidate.scope, candidate.source_key, layer), []).append(candidate)
    merged, omitted = [], []
    for group in groups.values():
        best = unite(group)
        titled = next((member for member in group if member.layer is Layer.L0 and member.title), best)
        merged.append(
            replace(
                best,
                title=titled.title,
                breadcrumb=titled.breadcrumb or best.breadcrumb,
                merged_count=sum(member.merged_count for member in group),
                fused_score=reciprocal_rank_fusion(best.lane_ranks, weights),
            )
        )
        omitted += [Omission(member, Reason.DUPLICATE_SOURCE, best.source_key) for member in group[1:]]
    return sorted(merged, key=fused_order), omitted


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What near-duplicate comparison needs of a text."""

    folded: str
    numbers: Counter[str]
    bigrams: frozenset[str]
    shingles: frozenset[tuple[str, ...]]


def fingerprint(text: str) -> Fingerprint:
    """Return the comparison form of ``text``: NFKC, lower case, white space collapsed."""
    folded = " ".join(unicodedata.normalize("NFKC", text).lower().split())
    words = _WORD.findall(folded)
    return Fingerprint(
        folded=folded,
        numbers=Counter(_NUMBER.findall(folded)),
        bigrams=frozenset(map("".join, pairwise(folded))) or frozenset({folded * 2}),
        shingles=frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset({tuple(words)}),
    )


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


def drop_near_duplicates(candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[Omission]]:
    """Keep the first of texts that say the same, in the order given.

    Candidates without text are kept: they have nothing to compare; so is a protected one. The one
    kept counts the dropped in ``merged_count``.
    """
    kept: list[Candidate] = []
    prints: list[tuple[int, Fingerprint]] = []
    absorbed: Counter[int] = Counter()
    omitted: list[Omission] = []
    for candidate in candidates:
        if candidate.text is None:
            kept.append(candidate)
            continue
        print_ = fingerprint(candidate.text)
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
