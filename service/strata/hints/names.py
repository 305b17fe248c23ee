"""Names as they are compared: the normal form, and every part of a question that could be one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

from strata.text.languages import DEFAULT_LANGUAGE, detect_language, stop_words
from strata.text.normalise import normalise_text
from strata.text.scripts import HANGUL, INVISIBLE, SPACELESS, SYMBOL, WORD_BEGIN, WORD_INSIDE, fold

MAX_CONTAINED_WORDS = 8
"""A name of more spaced words is found by a question that is the name, or begins it, only."""

MAX_CONTAINED_ATOMS = 16
MAX_KEY_CHARS = 200
MIN_PREFIX_CHARS = 3
_MAX_QUESTION_CHARS = 4096
_HEAD_ATOMS = 64
_TAIL_ATOMS = 32
_DIGEST_MARK = "~"  # no normal form holds it

_RUN = rf"[{SPACELESS}{HANGUL}](?:[\s\u30fb]*[{SPACELESS}{HANGUL}])*"
_UNIT = re.compile(rf"{_RUN}|[{WORD_BEGIN}][{WORD_BEGIN}{WORD_INSIDE}]*(?:\+\+|[+#](?!\w))?|[{SYMBOL}]")
_ASCII_UNIT = re.compile(r"[a-z0-9]+(?:\+\+|[+#](?!\w))?")
_IN_RUN = re.compile(r"[\s\u30fb]+")
_SPACELESS_START = re.compile(f"[{SPACELESS}{HANGUL}]")
_FOLDS: Mapping[int, int | str | None] = {
    **{point: point - 0x60 for point in (*range(0x30A1, 0x30F7), 0x30FD, 0x30FE)},
    **dict.fromkeys(point for point in range(0xFFFF) if re.match(f"[{INVISIBLE}]", chr(point))),
    ord("_"): " ",
}


@lru_cache(maxsize=32_768)
def normalise_name(text: str) -> str:
    """Return the form in which names are compared; empty where nothing in it could be asked for.

    NFKC, lower case, katakana as hiragana; accents stay. Punctuation and whitespace become one
    space between words, and none inside a run of a script written without spaces (Hangul counts
    as one). ``+`` and ``#`` stay at the end of a word (C++, C#). Idempotent.
    """
    return " ".join(name_units(text))


def name_units(text: str) -> list[str]:
    """Return the units of a name: spaced words, whole runs of spaceless scripts, symbols."""
    cleaned = normalise_text(text).text
    if cleaned.isascii():
        return _ASCII_UNIT.findall(cleaned.lower())
    # Folding case can undo the normal form and the other way round: the second round settles it.
    for _ in range(2):
        cleaned = unicodedata.normalize("NFKC", cleaned).casefold().translate(_FOLDS)
    cleaned = unicodedata.normalize("NFKC", cleaned)
    return [_IN_RUN.sub("", unit) for unit in _UNIT.findall(cleaned)]


def is_spaceless(unit: str) -> bool:
    """Tell a run of a script without spaces from a spaced word."""
    return _SPACELESS_START.match(unit) is not None


def name_key(norm: str) -> str:
    """Return what is stored and probed for a normalised name: itself, or a head with a digest of all of it."""
    if len(norm) <= MAX_KEY_CHARS:
        return norm
    digest = blake2b(norm.encode(), digest_size=10).hexdigest()
    return f"{norm[: MAX_KEY_CHARS - 21]}{_DIGEST_MARK}{digest}"


def is_whole_key(key: str) -> bool:
    """Tell whether a key is the whole name, not a digest of it."""
    return _DIGEST_MARK not in key


def keyword_key(keyword: str) -> str | None:
    """Return the word by which a keyword is probed: its longest; None where it has none."""
    units = normalise_name(keyword).split()
    if not units:
        return None
    longest = max(units, key=lambda unit: (len(unit), unit))
    return name_key(longest[:MAX_CONTAINED_ATOMS] if is_spaceless(longest) else longest)


def compact(norm: str) -> str:
    """Return a normalised name without its spaces, the form that fuzzy matching compares."""
    return norm.replace(" ", "")


def bigrams(text: str) -> frozenset[str]:
    """Return the character bigrams of a compact name."""
    return frozenset(map("".join, pairwise(text)))


def dice(left: frozenset[str], right: frozenset[str]) -> float:
    """Return the Dice coefficient of two sets: twice what they share over what they hold; 0 when both are empty."""
    total = len(left) + len(right)
    return 2 * len(left & right) / total if total else 0.0


@dataclass(frozen=True, slots=True)
class _Atom:
    """A spaced word, or one character of a spaceless run; ``unit`` numbers what it belongs to."""

    text: str
    unit: int
    is_spaceless: bool


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the matcher sees it.

    ``parts`` maps every run of neighbouring atoms that could be a name to where it stands (first
    atom, atom after the last); ``single_unit`` holds those within one unit, which keywords are
    probed by. A question of many words is read at its head and its tail.
    """

    norm: str
    units: tuple[str, ...]
    parts: Mapping[str, tuple[tuple[int, int], ...]]
    single_unit: frozenset[str]
    function_words: frozenset[str]

    @property
    def name_probes(self) -> list[str]:
        """The keys that a title or alias of this question can have, longest first."""
        names = {name_key(part) for part in self.parts if self.can_be_contained(part)}
        return _longest_first(names | {name_key(self.norm)})

    @property
    def keyword_probes(self) -> list[str]:
        """The keys that a keyword of this question can have, longest first."""
        return _longest_first({name_key(part) for part in self.single_unit})

    @property
    def prefix(self) -> str | None:
        """What longer names may begin with; None where the question is too short or too long for one."""
        return self.norm if MIN_PREFIX_CHARS <= len(self.norm) <= MAX_KEY_CHARS - 21 else None

    def can_be_contained(self, part: str) -> bool:
        """Tell whether a part is enough of a name: not function words alone, not one spaceless character."""
        if len(part) == 1 and is_spaceless(part):
            return False
        return part not in self.function_words and not self.function_words.issuperset(part.split())


def read_question(text: str) -> Question:
    """Analyse a question; never fails. Only its first 4,096 characters count."""
    text = text[:_MAX_QUESTION_CHARS]
    units = tuple(name_units(text))
    parts: dict[str, list[tuple[int, int]]] = {}
    single: set[str] = set()
    atoms = list(_atoms(units))
    for first, last in _windows(len(atoms)):
        for start in range(first, last):
            for part, end in _parts_from(atoms, start, last):
                parts.setdefault(part, []).append((start, end))
                if atoms[start].unit == atoms[end - 1].unit:
                    single.add(part)
    lists = (stop_words(DEFAULT_LANGUAGE), stop_words(detect_language(text) or DEFAULT_LANGUAGE))
    function_words = frozenset(unit for unit in units if any(fold(unit) in words for words in lists))
    spans = {part: tuple(places) for part, places in parts.items()}
    return Question(" ".join(units), units, spans, frozenset(single), function_words)


def _longest_first(keys: set[str]) -> list[str]:
    return sorted(keys, key=lambda key: (-len(key), key))


def _atoms(units: tuple[str, ...]) -> Iterator[_Atom]:
    for number, unit in enumerate(units):
        if is_spaceless(unit):
            yield from (_Atom(char, number, is_spaceless=True) for char in unit)
        else:
            yield _Atom(unit, number, is_spaceless=False)


def _windows(atoms: int) -> list[tuple[int, int]]:
    if atoms <= _HEAD_ATOMS + _TAIL_ATOMS:
        return [(0, atoms)]
    return [(0, _HEAD_ATOMS), (atoms - _TAIL_ATOMS, atoms)]


def _parts_from(atoms: list[_Atom], start: int, last: int) -> Iterator[tuple[str, int]]:
    """Yield each run of atoms that begins at ``start``, with the place after its end."""
    text = ""
    words = 0
    for place in range(start, min(last, start + MAX_CONTAINED_ATOMS)):
        atom = atoms[place]
        words += not atom.is_spaceless
        if words > MAX_CONTAINED_WORDS:
            return
        text += f" {atom.text}" if text and atom.unit != atoms[place - 1].unit else atom.text
        yield text, place + 1
