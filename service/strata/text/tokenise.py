"""Turn text into the terms of the lexical index, the same way for passages and for queries.

Script runs are split first, then words. A spaced word gives its stem and, where it differs, its exact
form; a compound (``ZX-81-Q``, ``fooBar``, ``1.2.3``, ``a@b.example``) gives its parts and its whole. Scripts
without spaces give single characters and pairs of neighbours. A query is data: no character is an operator.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from hashlib import blake2b

from strata.text.languages import (
    DEFAULT_LANGUAGE,
    detect_language,
    latin_language,
    resolve_language,
    stem,
    stop_words,
)
from strata.text.scripts import HANGUL, HIRAGANA, SOUTHEAST, SPACELESS, SYMBOL, WORD_BEGIN, WORD_INSIDE, fold

ANALYSER_VERSION = 1
"""Stored with the index; moves whenever the same text would give other terms."""

MAX_TOKEN_CHARS = 64
_MAX_WHOLE_CHARS = 256
_MAX_CACHED_WORDS = 200_000

EXACT_WEIGHT = 0.1
WHOLE_WEIGHT = 1.0
SOFT_WEIGHT = 0.3
SINGLE_WEIGHT = 1.0

_CONNECT = r"(?:['’.\-‐&@/\\]|:(?=[0-9]))"
_ASCII_UNIT = re.compile(
    rf"(?:(?<![\w.])\.(?=[A-Za-z]))?[A-Za-z0-9_]+(?:{_CONNECT}[A-Za-z0-9_]+)*(?:\+\+|[+#](?!\w))?"
)
_RUN = rf"[{SPACELESS}]+(?:[ \t]*\r?\n[ \t]*[{SPACELESS}]+)*"
_WORD = rf"[{WORD_BEGIN}][{WORD_BEGIN}{WORD_INSIDE}]*"
_UNIT = re.compile(
    rf"(?:(?<![\w.])\.(?=[A-Za-z]))?{_WORD}(?:{_CONNECT}{_WORD})*(?:\+\+|[+#](?!\w))?|{_RUN}|[{HANGUL}]+|[{SYMBOL}]"
)
_SPACELESS_START = re.compile(f"[{SPACELESS}]")
_HANGUL_START = re.compile(f"[{HANGUL}]")
_GAP = re.compile(r"\s+")
_WEAK = re.compile(f"[{HIRAGANA}\u30fc]+|[{SOUTHEAST}]")
_SEGMENT = re.compile(r"[/\\@:]")
_APOSTROPHE = re.compile(r"['’]")
_HARD = re.compile(r"[.\-‐&_]+")
_SOFT = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\WA-Za-z\d_]+|\d+")
_JOINT = re.compile(r"(?<=[^\W\d_])[-'](?=[^\W\d_])")
# What an apostrophe ties to a word without being one: English after it, French and Italian before it.
_CLITICS = frozenset({"s", "t", "d", "m", "ll", "re", "ve"})
_ELISIONS = frozenset({"l", "d", "j", "m", "t", "s", "n", "c", "qu", "dell", "all", "nell", "sull", "un"})


class Role(Enum):
    """What a token is to the place it came from."""

    STEM = "stem"
    EXACT = "exact"
    WHOLE = "whole"
    SOFT = "soft"
    PAIR = "pair"
    SINGLE = "single"
    STOP = "stop"
    WEAK = "weak"


@dataclass(frozen=True, slots=True)
class Form:
    """One token of a unit, and its role."""

    token: str
    role: Role


@dataclass(frozen=True, slots=True)
class Analysis:
    """The terms of a text with their frequencies, and its length in word positions (function words left out)."""

    frequencies: Mapping[str, int]
    length: int


class _Cache(dict[str, tuple[tuple[str, ...], int]]):
    """The tokens and length of each spaced word of one language; emptied when full."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._language = language

    def __missing__(self, unit: str) -> tuple[tuple[str, ...], int]:
        forms = _unit_forms(unit, self._language)
        value = tuple(form.token for form in forms), sum(form.role in _COUNTED for form in forms)
        if len(unit) <= MAX_TOKEN_CHARS:
            if len(self) >= _MAX_CACHED_WORDS:
                self.clear()
            self[unit] = value
        return value


_COUNTED = frozenset({Role.STEM, Role.PAIR, Role.SINGLE})


@cache
def _cache(language: str) -> _Cache:
    return _Cache(language)


def _clip(token: str) -> str:
    """Keep a token within bounds; what is cut is replaced by a digest of all of it, so equality is exact."""
    if len(token) <= MAX_TOKEN_CHARS:
        return token
    digest = blake2b(token.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{token[: MAX_TOKEN_CHARS - 17]}~{digest}"


def _unit_forms(unit: str, language: str) -> list[Form]:
    if _HANGUL_START.match(unit):
        return list(_hangul_forms(fold(unit)))
    if unit[0] != "." and len(unit) == 1 and not unit.isalnum():
        return [] if unit == "_" else [Form(unit, Role.STEM)]
    return list(_compound_forms(unit, language))


def _hangul_forms(word: str) -> Iterator[Form]:
    if len(word) == 1:
        yield Form(word, Role.STEM)
        return
    yield from (Form(a + b, Role.PAIR) for a, b in zip(word, word[1:], strict=False))
    if len(word) > 2:
        yield Form(_clip(word), Role.EXACT)
    yield from (Form(syllable, Role.WEAK) for syllable in word)


def _compound_forms(unit: str, language: str) -> Iterator[Form]:
    core = unit.lstrip(".").rstrip("+#")
    segments = _SEGMENT.split(core)
    for segment in segments:
        yield from _segment_forms(segment, language)
    if len(unit) <= _MAX_WHOLE_CHARS and (len(segments) > 1 or len(core) != len(unit)):
        yield Form(_clip(fold(unit)), Role.WHOLE)


def _segment_forms(segment: str, language: str) -> Iterator[Form]:
    pieces = _without_clitics(segment)
    words = [word for piece in pieces for word in _HARD.split(piece) if word]
    for word in words:
        yield from _word_forms(word, language)
    if len(words) > 1 and len(segment) <= _MAX_WHOLE_CHARS:
        yield from _whole_forms("'".join(pieces), words, language)


def _whole_forms(segment: str, words: list[str], language: str) -> Iterator[Form]:
    """Yield the whole of a compound: letters joined (wi-fi, wifi), digits and dots kept apart (1.2.3, zx-81-q)."""
    whole = fold(segment).replace("_", "-").replace("‐", "-").strip("-")
    if "." in whole and all(len(word) == 1 and word.isalpha() for word in words):
        whole = whole.replace(".", "")
    whole = _JOINT.sub("", whole)
    yield Form(_clip(whole), Role.WHOLE)
    if whole.isalpha() and len(whole) <= MAX_TOKEN_CHARS:
        stemmed = stem(whole, language)
        if stemmed != whole:
            yield Form(stemmed, Role.WHOLE)


def _without_clitics(segment: str) -> list[str]:
    pieces = [piece for piece in _APOSTROPHE.split(segment) if piece]
    while len(pieces) > 1 and fold(pieces[-1]) in _CLITICS:
        pieces.pop()
    while len(pieces) > 1 and fold(pieces[0]) in _ELISIONS:
        pieces.pop(0)
    return pieces


def _word_forms(word: str, language: str) -> Iterator[Form]:
    folded = fold(word)
    if not folded:
        return
    if len(folded) > MAX_TOKEN_CHARS:
        yield Form(_clip(folded), Role.STEM)
        return
    if folded in stop_words(latin_language(language) if folded.isascii() else language):
        yield Form(folded, Role.STOP)
        return
    stemmed = stem(folded, language) if folded.isalpha() else folded
    yield Form(stemmed, Role.STEM)
    if stemmed != folded:
        yield Form(folded, Role.EXACT)
    if folded.isalpha() and (word.islower() or word[1:].islower() or word.isupper()):
        return
    soft = _CAMEL.findall(word)
    if len(soft) > 1:
        for part in soft:
            yield from _soft_forms(fold(part), language)


def _soft_forms(part: str, language: str) -> Iterator[Form]:
    stemmed = stem(part, language) if part.isalpha() else part
    yield Form(stemmed, Role.SOFT)


def _language(language: str | None, text: str) -> str:
    return resolve_language(language) or detect_language(text) or DEFAULT_LANGUAGE


def normalise(text: str) -> str:
    """Return the NFKC form: full-width letters become half-width, half-width kana full-width."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def analyse(text: str, language: str | None = None) -> Analysis:
    """Analyse a passage: every term with its frequency, and the length that BM25 divides by.

    ``language`` is a tag or an English name; None lets the text's own words vote, English by default.
    Every word counts one position whatever number of forms it has; function words and hiragana count none.
    """
    code = _language(language, text)
    if text.isascii():
        return _count(Counter(_ASCII_UNIT.findall(text)), [], code)
    units = _UNIT.findall(normalise(text))
    runs = [unit for unit in units if _SPACELESS_START.match(unit)]
    words = [unit for unit in units if not _SPACELESS_START.match(unit)] if runs else units
    return _count(Counter(words), runs, code)


def _count(units: Counter[str], runs: list[str], language: str) -> Analysis:
    frequencies: dict[str, int] = {}
    length = 0
    known = _cache(language)
    for unit, times in units.items():
        tokens, positions = known[unit]
        length += positions * times
        for token in tokens:
            frequencies[token] = frequencies.get(token, 0) + times
    for token, times in _run_counts(runs).items():
        frequencies[token] = frequencies.get(token, 0) + times
        if not _WEAK.fullmatch(token):
            length += times
    return Analysis(frequencies, length)


def _run_counts(runs: list[str]) -> Counter[str]:
    if not runs:
        return Counter()
    joined = "\n".join(_GAP.sub("", run) for run in runs)
    counts = Counter(joined)
    counts.update(map(operator.add, joined, joined[1:]))
    for token in [token for token in counts if "\n" in token]:
        del counts[token]
    return counts


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One term to look up: its token, its weight in the score, and the place in the query it came from.

    Terms of one ``group`` stand for the same words of the query (``surface``): a passage with any of them
    has that part of the question. A weight of 1 is that of a plain BM25 term that occurs once in the query.
    """

    token: str
    weight: float
    group: int
    surface: str


_WEIGHTS = {Role.EXACT: EXACT_WEIGHT, Role.WHOLE: WHOLE_WEIGHT, Role.SOFT: SOFT_WEIGHT, Role.SINGLE: SINGLE_WEIGHT}
_LAST_RESORT = frozenset({Role.STOP, Role.WEAK})


def analyse_query(text: str, languages: Sequence[str] = ()) -> list[QueryTerm]:
    """Analyse a query into unique terms in the order in which they first occur.

    ``languages`` are those of the passages asked; a word is stemmed by the rules of each. None given:
    the query's own words vote, English by default. Function words, hiragana and single Hangul syllables
    count only where the query has nothing else.
    """
    codes = list(dict.fromkeys(resolve_language(name) or DEFAULT_LANGUAGE for name in languages))
    codes = codes or [_language(None, text)]
    found: dict[str, tuple[Role, float, int, str]] = {}
    group = -1
    for surface, forms in _query_units(normalise(text), codes):
        for form in forms:
            role = form.role
            if role in (Role.STEM, Role.STOP, Role.PAIR, Role.SINGLE, Role.WEAK):
                group += 1
            weight = _WEIGHTS.get(role, 1.0)
            known = found.get(form.token)
            if known is None:
                found[form.token] = role, weight, group, surface
            else:
                found[form.token] = known[0], known[1] + weight, known[2], known[3]
    kept = {token: term for token, term in found.items() if term[0] not in _LAST_RESORT} or found
    return [QueryTerm(token, weight, group, surface) for token, (_, weight, group, surface) in kept.items()]


def _query_units(text: str, languages: Sequence[str]) -> Iterator[tuple[str, list[Form]]]:
    for unit in _UNIT.findall(text):
        if _SPACELESS_START.match(unit):
            yield from _run_units(_GAP.sub("", unit))
            continue
        forms: dict[Form, None] = {}
        for language in languages:
            forms.update(dict.fromkeys(_unit_forms(unit, language)))
        yield unit, list(forms)


def _run_units(run: str) -> Iterator[tuple[str, list[Form]]]:
    pairs = [run[start : start + 2] for start in range(len(run) - 1)]
    for token in (*pairs, *run):
        role = Role.WEAK if _WEAK.fullmatch(token) else Role.PAIR if len(token) > 1 else Role.SINGLE
        yield token, [Form(token, role)]
