"""Find where the terms of a query stand in a text, and how much of the query a text covers."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from strata.text.languages import DEFAULT_LANGUAGE, detect_language, latin_language, resolve_language
from strata.text.scripts import SPACELESS
from strata.text.tokenise import UNIT, QueryTerm, is_run, normalise, tokens_by_unit

_BROKEN_RUN = re.compile(rf"[{SPACELESS}]\s+[{SPACELESS}]")
_MAX_KNOWN_CHARS = 64
_MAX_KNOWN_PIECES = 200_000


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
    found = sorted(set(_spans(plain, wanted, _codes(text, languages))))
    if not found or plain == text:
        return found
    place = _places(text)
    return [Span(place(start), place(end), term) for start, end, term in found]


def find_terms(text: str, terms: Collection[str], languages: Sequence[str] = ()) -> frozenset[str]:
    """Return which analysed tokens occur in a text: those of :func:`find_spans`, several times as fast."""
    wanted = frozenset(terms)
    if not wanted:
        return wanted
    plain = normalise(text)
    found: set[str] = set()
    for language in dict.fromkeys(map(latin_language, _codes(text, languages))):
        known = _pieces(language)
        found.update(*(known[piece] & wanted for piece in set(plain.split())))
    runs = [token for token in wanted if is_run(token)]
    return frozenset(found).union(span.term for span in _run_spans(plain, runs)) if runs else frozenset(found)


def _codes(text: str, languages: Sequence[str]) -> list[str]:
    """Return the languages that are known; that of the text itself where none is."""
    codes = list(dict.fromkeys(code for code in map(resolve_language, languages) if code))
    return codes or [detect_language(text) or DEFAULT_LANGUAGE]


def _spans(plain: str, wanted: frozenset[str], languages: Sequence[str]) -> Iterator[Span]:
    """Yield the spans in normalised text; one may come twice."""
    # Languages without Latin letters of their own read them as English does: once is enough.
    for language in dict.fromkeys(map(latin_language, languages)):
        yield from _word_spans(plain, wanted, language)
    if spaceless := [token for token in wanted if is_run(token)]:
        yield from _run_spans(plain, spaceless)


def _word_spans(plain: str, wanted: frozenset[str], language: str) -> Iterator[Span]:
    """Yield the spans of spaced words.

    A text repeats its words and most hold no term, so what stands between white space is told apart
    first, by spelling and from memory; only what holds a term is looked at closely.
    """
    known = _pieces(language)
    hits = [piece for piece in set(plain.split()) if not wanted.isdisjoint(known[piece])]
    if not hits:
        return
    tokens = tokens_by_unit(language)
    for piece in re.finditer(rf"(?<!\S)(?:{'|'.join(map(re.escape, sorted(hits)))})(?!\S)", plain):
        for match in UNIT.finditer(plain, piece.start(), piece.end()):
            if not is_run(match[0]):
                yield from (Span(match.start(), match.end(), token) for token in tokens[match[0]][0] if token in wanted)


class _Pieces(dict[str, frozenset[str]]):
    """The tokens of the spaced words in a piece of text without white space; emptied when full."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._tokens = tokens_by_unit(language)

    def __missing__(self, piece: str) -> frozenset[str]:
        units = (unit for unit in UNIT.findall(piece) if not is_run(unit))
        value = frozenset(token for unit in units for token in self._tokens[unit][0])
        if len(piece) <= _MAX_KNOWN_CHARS:
            if len(self) >= _MAX_KNOWN_PIECES:
                self.clear()
            self[piece] = value
        return value


@cache
def _pieces(language: str) -> _Pieces:
    return _Pieces(language)


def _run_spans(plain: str, wanted: Sequence[str]) -> Iterator[Span]:
    """Yield the spans of pairs and characters of scripts without spaces; a line break inside counts for nothing."""
    text, places = plain, None
    if _BROKEN_RUN.search(plain):
        places = [at for at, char in enumerate(plain) if not char.isspace()]
        text = "".join(plain[at] for at in places)
    for token in wanted:
        at = text.find(token)
        while at >= 0:
            last = at + len(token) - 1
            start, end = (at, last + 1) if places is None else (places[at], places[last] + 1)
            if places is None or _is_one_run(plain, start, end):
                yield Span(start, end, token)
            at = text.find(token, at + 1)


def _is_one_run(plain: str, start: int, end: int) -> bool:
    """Tell whether a stretch is one unit: white space inside a run is at most one line break."""
    match = UNIT.match(plain, start, end)
    return match is not None and match.end() == end


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
