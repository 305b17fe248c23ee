"""Languages: their codes, stemmers and function words, and a cheap vote on which one a text is in."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib import resources
from threading import local
from typing import Protocol

from strata.text.scripts import fold

DEFAULT_LANGUAGE = "en"
_DETECT_CHARS = 20_000
_MIN_MARGIN = 1.25

_STEMMERS = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french",
    "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian",
    "lt": "lithuanian", "ne": "nepali", "nl": "dutch", "no": "norwegian", "pl": "polish", "pt": "portuguese",
    "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
_NAMES = {name: code for code, name in _STEMMERS.items()}
_SAME_AS = {"nb": "no", "nn": "no", "iw": "he", "in": "id", "deu": "de", "eng": "en", "fra": "fr", "jpn": "ja",
            "zho": "zh", "spa": "es", "ita": "it", "por": "pt", "rus": "ru", "nld": "nl"}  # fmt: skip
# A word in one of these scripts is stemmed by the script's language, whatever language the text is in.
_SCRIPT_LANGUAGES = (
    (re.compile("[\u0370-\u03ff]"), "el"), (re.compile("[\u0400-\u04ff]"), "ru"), (re.compile("[\u0530-\u058f]"), "hy"),
    (re.compile("[\u0600-\u06ff]"), "ar"), (re.compile("[\u0900-\u097f]"), "hi"), (re.compile("[\u0b80-\u0bff]"), "ta"),
)  # fmt: skip
_CYRILLIC = frozenset({"ru", "sr"})
_ARABIC = frozenset({"ar", "fa"})
_DEVANAGARI = frozenset({"hi", "ne"})
_NOT_LATIN = frozenset({"ar", "bo", "el", "fa", "he", "hi", "hy", "ja", "km", "ko", "lo", "my", "ne", "ru", "ta", "th",
                        "uk", "zh"})  # fmt: skip
_WORDS = re.compile(r"[^\W\d_]{2,}")
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa]")
_HAN = re.compile("[\u3400-\u9fff]")
_HANGUL = re.compile("[\uac00-\ud7a3]")
_THAI = re.compile("[\u0e01-\u0e3a]")


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 (the library's name)


def resolve_language(name: str | None) -> str | None:
    """Return the two-letter code of a language tag or English name (``fr-CA``, ``French``, ``pt_BR``).

    None where the name is empty or not a language tag at all; a tag without a stemmer is returned as it is.
    """
    cleaned = (name or "").strip().lower()
    if cleaned in _NAMES:
        return _NAMES[cleaned]
    code = re.split(r"[-_]", cleaned)[0]
    if not re.fullmatch(r"[a-z]{2,3}", code):
        return None
    return _SAME_AS.get(code, code)


def latin_language(language: str) -> str:
    """Return whose rules the Latin words in a text of this language follow: its own, or those of English."""
    return DEFAULT_LANGUAGE if language in _NOT_LATIN else language


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the folded function words of a language; empty where no list is kept."""
    return _stop_lists().get(language, frozenset())


@cache
def _stop_lists() -> dict[str, frozenset[str]]:
    text = resources.files("strata.text").joinpath("stopwords.txt").read_text(encoding="utf-8")
    rows = (line.partition(": ") for line in text.splitlines() if line and not line.startswith("#"))
    return {code: frozenset(fold(word) for word in words.split()) for code, _, words in rows}


@cache
def _voters() -> dict[str, tuple[tuple[str, float], ...]]:
    """Map each function word to the languages that own it, a word of many languages counting less for each."""
    owners: dict[str, list[str]] = {}
    for code, words in sorted(_stop_lists().items()):
        for word in words:
            owners.setdefault(word, []).append(code)
    return {word: tuple((code, 1.0 / len(codes) ** 2) for code in codes) for word, codes in owners.items()}


def detect_language(text: str) -> str | None:
    """Guess the language from its script, or from a vote of function words; None when nothing speaks for one.

    Deterministic; reads the first 20,000 characters. Han without kana is called Chinese. The winner of the
    vote needs a quarter more than the next language. Single letters do not vote.
    """
    sample = text[:_DETECT_CHARS]
    letters = max(1, sum(map(str.isalpha, sample)))
    if not sample.isascii():
        for pattern, code in ((_KANA, "ja"), (_HANGUL, "ko"), (_THAI, "th"), (_HAN, "zh")):
            if len(pattern.findall(sample)) > letters * 0.15:
                return code
    votes: Counter[str] = Counter()
    voters = _voters()
    for word, count in Counter(_WORDS.findall(sample)).items():
        for code, weight in voters.get(fold(word), ()):
            votes[code] += count * weight  # type: ignore[assignment]  # Counter is typed for int alone
    ranked = sorted(votes.items(), key=lambda vote: (-vote[1], vote[0]))
    if not ranked or (len(ranked) > 1 and ranked[0][1] < ranked[1][1] * _MIN_MARGIN):
        return _script_language(sample)
    return ranked[0][0]


def _script_language(text: str) -> str | None:
    if text.isascii():
        return None
    return next((code for pattern, code in _SCRIPT_LANGUAGES if pattern.search(text)), None)


_stemmers = local()


def _stemmer(language: str) -> _Stemmer | None:
    """Return this thread's stemmer: the C object is not made for two threads at once."""
    known: dict[str, _Stemmer | None] = _stemmers.__dict__.setdefault("known", {})
    if language not in known:
        import Stemmer

        name = _STEMMERS.get(language)
        known[language] = None if name is None else Stemmer.Stemmer(name, 0)
    return known[language]


def stem(word: str, language: str) -> str:
    """Return the folded stem of a folded word; the word itself where its language has no stemmer.

    A word in Cyrillic, Greek, Arabic, Devanagari, Tamil or Armenian letters is stemmed by the rules of
    its script whatever ``language`` says.
    """
    if word.isascii():
        code = latin_language(language)
    else:
        script = _script_language(word)
        kin = next((group for group in (_CYRILLIC, _ARABIC, _DEVANAGARI) if script in group), frozenset())
        code = language if script is None or language in kin else script
    stemmer = _stemmer(code)
    if stemmer is None:
        return word
    return fold(stemmer.stemWord(word)) or word
