"""Find where the terms of a query stand in a text, and how much of the query a text covers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from strata.text.languages import DEFAULT_LANGUAGE, detect_language, resolve_language
from strata.text.tokenise import UNIT, QueryTerm, is_run, normalise, run_forms, unit_tokens

_GAP = re.compile(r"\s+")
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
    # Told apart first by spelling, since a text repeats its words: most units hold none of the terms.
    hits = {unit: held for unit in set(UNIT.findall(plain)) if (held := _wanted_in(unit, wanted, codes))}
    if not hits:
        return []
    found = sorted(
        {span for match in UNIT.finditer(plain) if match[0] in hits for span in _unit_spans(match, hits[match[0]])}
    )
    if offsets is None:
        return found
    return [Span(offsets[start], offsets[end], term) for start, end, term in found]


def _wanted_in(unit: str, wanted: frozenset[str], languages: Sequence[str]) -> frozenset[str]:
    """Return those of the wanted tokens that a unit gives."""
    if is_run(unit):
        return wanted.intersection(form.token for form in run_forms(_GAP.sub("", unit)))
    return wanted.intersection(token for language in languages for token in unit_tokens(unit, language))


def _unit_spans(match: re.Match[str], wanted: frozenset[str]) -> Iterator[Span]:
    unit = match.group()
    if not is_run(unit):
        yield from (Span(match.start(), match.end(), token) for token in wanted)
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
