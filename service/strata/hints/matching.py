"""Which hints a question means, why, and how strongly: pure, deterministic, explainable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from strata.hints.generic import is_generic
from strata.hints.keys import ORIGIN_RANK
from strata.hints.names import (
    MAX_CONTAINED_ATOMS,
    MIN_PREFIX_CHARS,
    Question,
    bigrams,
    compact,
    dice,
    is_spaceless,
    normalise_name,
)
from strata.hints.schemas import HintEntry, HintOrigin
from strata.hints.targets import split_target

MAX_MATCHES = 20
MIN_DICE = 0.6
_AMBIGUOUS_FROM = 4
_MIN_DERIVED_SPACELESS_CHARS = 4
_WEAK = 0.3
_REASON_ORDER = ("L0_EXACT", "L0_ALIAS", "L0_PREFIX", "L0_KEYWORD", "L0_FUZZY")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class HintMatch:
    """A hint that a question means.

    ``strength`` (0..1) orders hits. ``is_confident`` says that the question names the hint: whole,
    or with a part that could hardly mean another thing; only such hits may suggest a category.
    """

    entry: HintEntry
    reasons: tuple[str, ...]
    strength: float
    is_confident: bool


@dataclass(frozen=True, slots=True)
class HintTarget:
    """A source, or a section of one, that hits point to; ``weight`` is the strength of the best of them."""

    context_id: UUID
    path: str
    anchor: str | None
    weight: float


@dataclass(frozen=True, slots=True)
class HintGuidance:
    """What L0 hands to L1: all of it may raise passages, none of it may remove one."""

    categories: tuple[str, ...]
    targets: tuple[HintTarget, ...]
    extra_terms_text: str


@dataclass(slots=True)
class _Claim:
    """Parts of the question that one hint takes for its own, by one of its names or keywords."""

    hint: int
    reason: str
    size: int
    spans: Sequence[Sequence[Span]]
    is_trusted: bool


@dataclass(slots=True)
class _Hits:
    """What fires for one entry, while it is being found out."""

    entry: HintEntry
    reasons: dict[str, float] = field(default_factory=dict)
    is_confident: bool = False
    dice: float = 0.0

    def add(self, reason: str, strength: float, *, is_confident: bool = False) -> None:
        self.reasons[reason] = max(strength, self.reasons.get(reason, 0.0))
        self.is_confident = self.is_confident or is_confident


def match(question: Question, entries: Iterable[HintEntry]) -> list[HintMatch]:
    """Return the hints that the question means, best first, 20 at most.

    Whole names (``L0_EXACT``, ``L0_ALIAS``), beginnings of names (``L0_PREFIX``), names and
    keywords inside the question (``L0_ALIAS``, ``L0_KEYWORD``) where no longer name of an equally
    trusted origin takes the same words, and, unless a whole name matched, names that share most of
    their character bigrams (``L0_FUZZY:0.71``, Dice 1945). The order of ``entries`` does not matter.
    """
    if not question.norm:
        return []
    unique = {(entry.context_id, entry.hint_id): entry for entry in entries}
    hits = [_Hits(entry) for entry in unique.values()]
    names = [_names(hit.entry) for hit in hits]
    shared = Counter(key for held in names for key in set(held))
    claims: list[_Claim] = []
    for number, hit in enumerate(hits):
        _match_whole(question, hit, names[number], shared)
        claims += _claims(question, number, hit.entry, names[number], shared)
    _settle(question, hits, claims)
    if not any(_is_whole(question, held) for held in names):
        for hit, held in zip(hits, names, strict=True):
            _match_fuzzy(question, hit, held)
    matches = [_finish(hit) for hit in hits if hit.reasons]
    return sorted(matches, key=_order)[:MAX_MATCHES]


def guidance(matches: Sequence[HintMatch]) -> HintGuidance:
    """Return what the hits give to retrieval.

    Categories of confident hits, best first; every target once, at the strength of its best hit;
    titles and aliases of confident hits, for extra lexical terms at a lower weight.
    """
    confident = [found for found in matches if found.is_confident]
    categories = dict.fromkeys(found.entry.category for found in confident if found.entry.category)
    weights: dict[tuple[UUID, str, str | None], float] = {}
    for found in matches:
        for target in found.entry.targets:
            key = (found.entry.context_id, *split_target(target))
            weights[key] = max(found.strength, weights.get(key, 0.0))
    ordered = sorted(weights.items(), key=lambda item: (-item[1], item[0][1], item[0][2] or "", item[0][0]))
    texts = {normalise_name(name): name for found in confident for name in (found.entry.title, *found.entry.aliases)}
    return HintGuidance(
        tuple(categories),
        tuple(HintTarget(*key, weight) for key, weight in ordered),
        "\n".join(texts.values()),
    )


def _names(entry: HintEntry) -> dict[str, str]:
    """Return the normalised names of an entry with the reason for which a whole match fires."""
    names = {normalise_name(alias): "L0_ALIAS" for alias in entry.aliases}
    names[normalise_name(entry.title)] = "L0_EXACT"
    names.pop("", None)
    return names


def _is_whole(question: Question, names: Mapping[str, str]) -> bool:
    return question.norm in names


def _is_trusted(entry: HintEntry, name: str, shared: Mapping[str, int]) -> bool:
    """Tell whether a name found in a question stands for its entry beyond doubt.

    A curated one always: a person chose it. Another one not when it is a heading that any document
    could have, or when several entries share it.
    """
    if entry.origin is HintOrigin.CURATED:
        return True
    return not is_generic(name) and shared[name] < _AMBIGUOUS_FROM


def _is_telling(question: Question, entry: HintEntry, name: str) -> bool:
    """Tell whether a derived name says enough to be meant where it stands inside a longer question."""
    if entry.origin is not HintOrigin.DERIVED:
        return True
    units = name.split()
    words = [unit for unit in units if not is_spaceless(unit) and unit not in question.function_words]
    return len(words) > 1 or sum(len(unit) for unit in units if is_spaceless(unit)) >= _MIN_DERIVED_SPACELESS_CHARS


def _match_whole(question: Question, hit: _Hits, names: Mapping[str, str], shared: Mapping[str, int]) -> None:
    asked = question.norm
    for name, reason in names.items():
        if name == asked:
            is_trusted = _is_trusted(hit.entry, name, shared)
            strength = 1.0 if reason == "L0_EXACT" else 0.95
            hit.add(reason, strength if is_trusted else _WEAK, is_confident=is_trusted)
        elif len(asked) >= MIN_PREFIX_CHARS and question.prefix and name.startswith(asked):
            hit.add("L0_PREFIX", 0.4 + 0.4 * len(asked) / len(name))


def _claims(
    question: Question, hint: int, entry: HintEntry, names: Mapping[str, str], shared: Mapping[str, int]
) -> list[_Claim]:
    claims = []
    for name in names:
        spans = question.parts.get(name)
        if not spans or name == question.norm or not question.can_be_contained(name):
            continue
        if is_generic(name) and entry.origin is not HintOrigin.CURATED:
            continue
        is_trusted = _is_trusted(entry, name, shared) and _is_telling(question, entry, name)
        claims.append(_Claim(hint, "L0_ALIAS", len(name), [spans], is_trusted))
    if question.norm in names:
        claims.append(_Claim(hint, "", len(question.norm), [[(0, 1 << 20)]], is_trusted=True))
    for keyword in entry.keywords:
        places = _keyword_places(question, keyword)
        if places is not None:
            size = sum(len(unit) for unit in normalise_name(keyword).split())
            claims.append(_Claim(hint, "L0_KEYWORD", size, places, is_trusted=False))
    return claims


def _keyword_places(question: Question, keyword: str) -> list[Sequence[Span]] | None:
    """Return where each word of a keyword stands; None when one is missing or all are function words."""
    units = normalise_name(keyword).split()
    if question.function_words.issuperset(units):
        return None
    places: list[Sequence[Span]] = []
    for unit in units:
        if unit in question.single_unit:
            places.append(question.parts[unit])
        elif is_spaceless(unit) and _is_in_long_run(question, unit):
            places.append([(-1, -1)])
        else:
            return None
    return places


def _is_in_long_run(question: Question, unit: str) -> bool:
    return (
        len(unit) > MAX_CONTAINED_ATOMS
        and unit[:MAX_CONTAINED_ATOMS] in question.single_unit
        and any(unit in run for run in question.units)
    )


def _settle(question: Question, hits: Sequence[_Hits], claims: Sequence[_Claim]) -> None:
    """Let the longest claim win where claims overlap.

    A hint does not compete with itself, nor does a derived one take words from a curated one.
    """
    taken: dict[tuple[int, Span], dict[int, int]] = {}
    total = max(1, len(question.norm))
    for claim in sorted(claims, key=lambda claim: -claim.size):
        hit = hits[claim.hint]
        rank = ORIGIN_RANK[hit.entry.origin]
        stronger = [
            span
            for (size, span), owners in taken.items()
            if size > claim.size and any(owner != claim.hint and held <= rank for owner, held in owners.items())
        ]
        free = [[span for span in places if not _overlaps(span, stronger)] for places in claim.spans]
        if not all(free):
            continue
        for span in (span for places in free for span in places):
            taken.setdefault((claim.size, span), {})[claim.hint] = rank
        coverage = min(1.0, claim.size / total)
        if claim.reason == "L0_KEYWORD":
            hit.add(claim.reason, 0.3 + 0.2 * coverage)
        elif claim.reason:
            floor, share = (0.5, 0.4) if claim.is_trusted else (0.2, 0.2)
            hit.add(claim.reason, floor + share * coverage, is_confident=claim.is_trusted)


def _overlaps(span: Span, others: Iterable[Span]) -> bool:
    start, end = span
    return any(start < last and first < end for first, last in others)


def _match_fuzzy(question: Question, hit: _Hits, names: Iterable[str]) -> None:
    if hit.entry.origin is HintOrigin.DERIVED:
        return
    asked = compact(question.norm)
    if len(asked) < MIN_PREFIX_CHARS:
        return
    grams = bigrams(asked)
    for name in names:
        short = compact(name)
        if len(short) >= MIN_PREFIX_CHARS and len(short) * (2 - MIN_DICE) >= MIN_DICE * len(grams):
            hit.dice = max(hit.dice, dice(grams, bigrams(short)))
    if hit.dice >= MIN_DICE:
        hit.add("L0_FUZZY", 0.8 * hit.dice)


def _finish(hit: _Hits) -> HintMatch:
    reasons = tuple(
        f"L0_FUZZY:{hit.dice:.2f}" if reason == "L0_FUZZY" else reason
        for reason in _REASON_ORDER
        if reason in hit.reasons
    )
    return HintMatch(hit.entry, reasons, round(max(hit.reasons.values()), 6), hit.is_confident)


def _order(found: HintMatch) -> tuple[float, int, int, str, UUID, UUID]:
    entry = found.entry
    origin = ORIGIN_RANK[entry.origin]
    return (-found.strength, -entry.priority, origin, normalise_name(entry.title), entry.hint_id, entry.context_id)
