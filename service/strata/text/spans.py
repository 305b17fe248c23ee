"""Find where the terms of a query stand in a text, and how much of the query a text covers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from strata.text.languages import DEFAULT_LANGUAGE, detect_language, resolve_language
from strata.text.tokenise import UNIT, QueryTerm, is_run, normalise, run_forms, unit_tokens

# A starter with the marks that may compose with it: NFKC never reaches across two of these.
_CLUSTER = re.compile("(?s).[\u0300-\u036f\u0591-\u06ff\u0900-\u0dff\u1100-\u11ff\u3099\u309a\uff9e\uff9f]*")


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
    offsets = None if plain == text else _offsets(text)
    codes = list(dict.fromkeys(code for code in map(resolve_language, languages) if code))
    codes = codes or [detect_language(text) or DEFAULT_LANGUAGE]
    found = sorted({span for match in UNIT.finditer(plain) for span in _unit_spans(match, wanted, codes)})
    if offsets is None:
        return found
    return [Span(offsets[start], offsets[end], term) for start, end, term in found]


def _unit_spans(match: re.Match[str], wanted: frozenset[str], languages: Sequence[str]) -> Iterator[Span]:
    unit = match.group()
    if not is_run(unit):
        for language in languages:
            for token in unit_tokens(unit, language):
                if token in wanted:
                    yield Span(match.start(), match.end(), token)
        return
    places = [match.start() + at for at, char in enumerate(unit) if not char.isspace()]
    run = "".join(char for char in unit if not char.isspace())
    pairs = len(run) - 1
    for at, form in enumerate(run_forms(run)):
        if form.token in wanted:
            first, last = (at, at + 1) if at < pairs else (at - pairs, at - pairs)
            yield Span(places[first], places[last] + 1, form.token)


def _offsets(text: str) -> list[int]:
    """Map every offset of the NFKC form, its end included, to one of the text.

    Within a cluster that normalising changes, each character maps to the cluster's start.
    """
    offsets: list[int] = []
    for cluster in _CLUSTER.finditer(text):
        plain = unicodedata.normalize("NFKC", cluster.group())
        same = len(plain) == len(cluster.group())
        offsets.extend(cluster.start() + at if same else cluster.start() for at in range(len(plain)))
    offsets.append(len(text))
    return offsets


def coverage(terms: Sequence[QueryTerm], idf: Mapping[str, float], present: Collection[str]) -> float:
    """Return how much of a query a text holds, 0 to 1: the idf of its words that occur, over that of all.

    A word counts by the idf of its commonest form, times how often the query says it; ``idf`` must have
    every token, those of frequency 0 included. ``present`` holds the tokens of the text. 0 for no terms.
    """
    mass: dict[int, float] = {}
    covered: set[int] = set()
    for term in terms:
        if len(term.groups) == 1:
            group = term.groups[0]
            weighed = idf[term.token] * max(1.0, term.weight)
            mass[group] = min(mass.get(group, weighed), weighed)
        if term.token in present:
            covered.update(term.groups)
    total = sum(mass.values())
    return sum(value for group, value in mass.items() if group in covered) / total if total else 0.0
