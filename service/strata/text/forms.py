"""The forms under which one spaced word or compound is indexed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from itertools import pairwise

from strata.text.languages import latin_language, stem, stop_words
from strata.text.scripts import HANGUL, fold

MAX_TOKEN_CHARS = 64
_MAX_WHOLE_CHARS = 256

_HANGUL_START = re.compile(f"[{HANGUL}]")
_SEGMENT = re.compile(r"[/\\@:]")
_APOSTROPHE = re.compile(r"['’]")
_HARD = re.compile(r"[.\-‐&_]+")
_DIGIT = re.compile(r"\d")
_JOINT = re.compile(r"(?<=[^\W\d_])[-'](?=[^\W\d_])")
# What an apostrophe ties to a word without being one: English after it, French and Italian before it.
_CLITICS = frozenset({"s", "t", "d", "m", "ll", "re", "ve"})
_ELISIONS = frozenset({"l", "d", "j", "m", "t", "s", "n", "c", "qu", "dell", "all", "nell", "sull", "un"})


class Role(Enum):
    """What a token is to the place in the text that it came from."""

    STEM = "stem"
    EXACT = "exact"
    WHOLE = "whole"
    SOFT = "soft"
    PAIR = "pair"
    SINGLE = "single"
    STOP = "stop"
    WEAK = "weak"


OPENS_WORD = frozenset({Role.STEM, Role.STOP, Role.PAIR, Role.SINGLE, Role.WEAK})
"""The roles of which every word has exactly one; forms of other roles follow the words that they belong to."""


@dataclass(frozen=True, slots=True)
class Form:
    """One token, its role, and how many words, the latest included, it stands for."""

    token: str
    role: Role
    words: int = 1


def unit_forms(unit: str, language: str) -> list[Form]:
    """Return the forms of a spaced word, compound, Hangul word or symbol, most important first.

    Empty for what has no letter, digit or symbol in it. Tokens have at most 64 characters.
    """
    if _HANGUL_START.match(unit):
        return list(_hangul_forms(fold(unit)))
    if len(unit) == 1 and not unit.isalnum():
        return [] if unit == "_" else [Form(unit, Role.STEM)]
    return list(_compound_forms(unit, language))


def clip(token: str) -> str:
    """Keep a token within bounds; what is cut is replaced by a digest of all of it, so equality is exact."""
    if len(token) <= MAX_TOKEN_CHARS:
        return token
    digest = blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{token[: MAX_TOKEN_CHARS - 17]}~{digest}"


def _hangul_forms(word: str) -> Iterator[Form]:
    if len(word) == 1:
        yield Form(word, Role.STEM)
        return
    yield from (Form(a + b, Role.PAIR) for a, b in pairwise(word))
    if len(word) > 2:
        yield Form(clip(word), Role.EXACT)
    yield from (Form(syllable, Role.WEAK) for syllable in word)


def _compound_forms(unit: str, language: str) -> Iterator[Form]:
    core = unit.lstrip(".").rstrip("+#")
    segments = _SEGMENT.split(core)
    words = 0
    for segment in segments:
        for form in _segment_forms(segment, language):
            words += form.role in OPENS_WORD
            yield form
    if len(unit) <= _MAX_WHOLE_CHARS and (len(segments) > 1 or len(core) != len(unit)):
        yield Form(clip(fold(unit)), Role.WHOLE, words)


def _segment_forms(segment: str, language: str) -> Iterator[Form]:
    pieces = _without_clitics(segment)
    words = [word for piece in pieces for word in _HARD.split(piece) if word]
    for word in words:
        yield from _word_forms(word, language)
    if len(words) > 1 and len(segment) <= _MAX_WHOLE_CHARS:
        yield from _whole_forms("'".join(pieces), words, language)


def _whole_forms(segment: str, words: list[str], language: str) -> Iterator[Form]:
    """Yield the whole of a compound: letters joined (wi-fi, wifi), digits and dots kept apart (1.2.3, zx-81-q)."""
    whole = fold(segment).replace("_", "-").replace("‐", "-").replace("’", "'").strip("-.&")
    if "." in whole and all(len(word) == 1 and word.isalpha() for word in words):
        whole = whole.replace(".", "")
    whole = clip(_JOINT.sub("", whole))
    yield Form(whole, Role.WHOLE, len(words))
    if whole.isalpha():
        stemmed = stem(whole, language)
        if stemmed != whole:
            yield Form(stemmed, Role.WHOLE, len(words))


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
        yield Form(clip(folded), Role.STEM)
        return
    if folded in stop_words(latin_language(language) if folded.isascii() else language):
        yield Form(folded, Role.STOP)
        return
    stemmed = folded if _DIGIT.search(folded) else stem(folded, language)
    yield Form(stemmed, Role.STEM)
    if stemmed != folded:
        yield Form(folded, Role.EXACT)
    for part in _fragments(word):
        yield Form(part if part.isdigit() else stem(part, language), Role.SOFT)


def _fragments(word: str) -> list[str]:
    """Return the folded parts of a word at changes of case and between letters and digits; none for a plain one."""
    if word.isalpha() and (word.islower() or word.isupper() or word[1:].islower()):
        return []
    cuts = [0]
    for at in range(1, len(word)):
        before, here = word[at - 1], word[at]
        after = word[at + 1 : at + 2]
        opens = here.isupper() and (before.islower() or (before.isupper() and after.islower()))
        if opens or before.isdigit() != here.isdigit():
            cuts.append(at)
    if len(cuts) == 1:
        return []
    return [part for a, b in zip(cuts, [*cuts[1:], len(word)], strict=True) if (part := fold(word[a:b]))]
