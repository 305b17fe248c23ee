"""Find where the terms of a query stand in a text, and how much of the query a text covers."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from strata.text.languages import DEFAULT_LANGUAGE, detect_language, latin_language, resolve_language
from strata.text.tokenise import UNIT, QueryTerm, is_run, normalise, tokens_by_unit

_GAP = re.compile(r"\s+")


class Span(NamedTuple):
    """One occurrence of a term; character offsets into the text as given, end exclusive."""

    start: int
    end: int
    term: str


def find_spans(text: str, terms: Collection[str], languages: Sequence[str] = ()) -> list[Span]:
    """Return the occurrences of analysed tokens in text order; a compound or word is one span, once a term.

    ``languages`` should be those of the text; None given, the text's own words vote. In scripts without
    spaces the spans of neighbouring pairs overlap. Empty where nothing matches.
    """
    wanted = frozenset(terms)
    if not wanted:
        return []
    plain = normalise(text)
    codes = list(dict.fromkeys(code for code in map(resolve_language, languages) if code))
    codes = codes or [detect_language(text) or DEFAULT_LANGUAGE]
    found = sorted(set(_spans(plain, wanted, codes)))
    if not found or plain == text:
        return found
    place = _places(text)
    return [Span(place(start), place(end), term) for start, end, term in found]


def _spans(plain: str, wanted: frozenset[str], languages: Sequence[str]) -> Iterator[Span]:
    """Yield the spans in normalised text.

    Units are told apart by spelling first: a text repeats its words, and most hold none of the terms.
    """
    units = set(UNIT.findall(plain))
    runs = {unit for unit in units if is_run(unit)}
    hits: dict[str, list[str]] = {}
    # Languages without Latin letters of their own read them as English does: once is enough.
    for language in dict.fromkeys(map(latin_language, languages)):
        known = tokens_by_unit(language)
        for unit in units - runs:
            for token in known[unit][0]:
                if token in wanted:
                    hits.setdefault(unit, []).append(token)
    if any(unit in hits or unit in runs for unit in units):
        for match in UNIT.finditer(plain):
            unit = match[0]
            if unit in hits:
                yield from (Span(match.start(), match.end(), token) for token in hits[unit])
            elif unit in runs:
                yield from _run_spans(unit, match.start(), wanted)


def _run_spans(unit: str, start: int, wanted: frozenset[str]) -> Iterator[Span]:
    """Yield the pairs and characters of a run that are wanted; a line break inside counts for nothing."""
    run = _GAP.sub("", unit)
    places: Sequence[int] = range(len(unit))
    if len(run) != len(unit):
        places = [at for at, char in enumerate(unit) if not char.isspace()]
    for at, char in enumerate(run):
        if char in wanted:
            yield Span(start + places[at], start + places[at] + 1, char)
        pair = run[at : at + 2]
        if pair in wanted and len(pair) == 2:
            yield Span(start + places[at], start + places[at + 1] + 1, pair)


@lru_cache(maxsize=65_536)
def _stays_one(char: str) -> bool:
    """Tell whether a character normalises to one character, whatever stands before or after it."""
    plain = unicodedata.normalize("NFKC", char)
    return len(plain) == 1 and not unicodedata.combining(plain) and not "\u1100" <= plain <= "\u11ff"


def _places(text: str) -> Callable[[int], int]:
    """Return the map from offsets of the NFKC form, its end included, to those of the text.

    Runs of characters that stay one keep their distances; within a cluster that normalising
    changes, each character maps to the cluster's start.
    """
    odd = "".join(sorted(char for char in set(text) if not (char.isascii() or _stays_one(char))))
    if not odd:
        return int
    plain_starts, text_starts, stretches = [0], [0], [True]
    length = last = 0
    for cluster in re.finditer(f"(?s).?[{re.escape(odd)}]+", text):
        length += cluster.start() - last
        plain = unicodedata.normalize("NFKC", cluster.group())
        plain_starts += [length, length + len(plain)]
        text_starts += [cluster.start(), cluster.end()]
        stretches += [len(plain) == len(cluster.group()), True]
        length, last = length + len(plain), cluster.end()

    def place(offset: int) -> int:
        at = bisect_right(plain_starts, offset) - 1
        return text_starts[at] + (offset - plain_starts[at] if stretches[at] else 0)

    return place


class Coverage:
    """How much of a query a text holds, 0 to 1: the idf of its words that occur, over that of all.

    A word counts by the idf of its commonest form, times how often the query says it; ``idf`` must have
    every token, those of frequency 0 included. 0 for no terms.
    """

    def __init__(self, terms: Sequence[QueryTerm], idf: Mapping[str, float]) -> None:
        mass: dict[int, float] = {}
        for term in terms:
            if len(term.groups) == 1:
                group = term.groups[0]
                weighed = idf[term.token] * max(1.0, term.weight)
                mass[group] = min(mass.get(group, weighed), weighed)
        total = sum(mass.values())
        self._share = {group: value / total for group, value in mass.items()} if total else {}
        self._groups = {term.token: term.groups for term in terms}

    def of(self, present: Iterable[str]) -> float:
        """Return the share that a text with these tokens holds."""
        covered = {group for token in present for group in self._groups.get(token, ())}
        # Summed in the order of the query, so that equal sets give equal floats.
        return min(1.0, sum(share for group, share in self._share.items() if group in covered))
