"""Character classes and folding: what a letter is, which scripts have no spaces, what counts as equal."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable

# Written without spaces between words: Han, kana, Bopomofo, Yi, Thai, Lao, Tibetan, Myanmar, Khmer. Digits excluded.
HAN = "\u2e80-\u2fdf\u3005\u3007\u303b\u3105-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua48c\uf900-\ufaff"
HAN += "\U0001aff0-\U0001b16f\U00020000-\U000323af"
HIRAGANA = "\u3041-\u3096\u3099\u309a\u309d-\u309f"
KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
SOUTHEAST = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecf\u0edc-\u0edf\u0f40-\u0fbc\u1000-\u103f\u1050-\u108f\u109a-\u109f"
    "\u1780-\u17d3\u17d7\u17dc\u17dd\ua9e0-\ua9ef\uaa60-\uaa7f"
)
SPACELESS = HAN + HIRAGANA + KATAKANA + SOUTHEAST
HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
# Written inside words but not part of what is compared: soft hyphen, (non-)joiners, word joiner, variation selectors.
INVISIBLE = "\u00ad\u200c\u200d\u2060\ufe00-\ufe0f"

_LAST_WITH_WORDS = 0x1FFFF  # planes above hold ideographs only
_EXTRA_FOLDS = {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h", "ŧ": "t",
                "ŋ": "n", "ĸ": "k", "ё": "е", "ς": "σ", "أ": "ا", "إ": "ا", "آ": "ا", "ـ": ""}  # fmt: skip
# Latin with its extensions, Greek: accents there are spelling, not letters. In Cyrillic (й) and Indic they are letters.
_ACCENTED = ((0x00C0, 0x024F), (0x0370, 0x03FF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF))
# Combining accents, Hebrew points, Arabic vowel signs: dropped wherever they stand.
_DROPPED = ((0x0300, 0x036F), (0x0591, 0x05C7), (0x064B, 0x0652), (0x0670, 0x0670), (0xFE00, 0xFE0F))


def _ranges(points: Iterable[int]) -> str:
    """Write ascending code points as the inside of a regular expression's character class."""
    out: list[str] = []
    first = last = -2
    for point in (*points, sys.maxunicode + 2):
        if point == last + 1:
            last = point
            continue
        if first >= 0:
            out.append(f"\\U{first:08x}-\\U{last:08x}")
        first = last = point
    return "".join(out)


def _word_classes() -> tuple[str, str]:
    """Return the class of characters that begin a spaced word, and that of those that only continue one."""
    apart = re.compile(f"[{SPACELESS}{HANGUL}]")
    begin: list[int] = []
    inside: list[int] = []
    for point in range(_LAST_WITH_WORDS + 1):
        char = chr(point)
        if apart.match(char):
            continue
        if char.isalnum() or char == "_":
            begin.append(point)
        elif unicodedata.category(char)[0] == "M":
            inside.append(point)
    return _ranges(begin), _ranges(inside) + INVISIBLE


def _symbol_class() -> str:
    """Return the class of symbols that can be searched for: emoji, dingbats, currency signs."""
    return _ranges(p for p in range(0x80, _LAST_WITH_WORDS + 1) if unicodedata.category(chr(p)) in ("So", "Sc"))


WORD_BEGIN, WORD_INSIDE = _word_classes()
SYMBOL = _symbol_class()


def _fold_table() -> dict[int, str | None]:
    table: dict[int, str | None] = {}
    for first, last in _ACCENTED:
        for point in range(first, last + 1):
            base = unicodedata.normalize("NFD", chr(point))
            plain = "".join(char for char in base if unicodedata.category(char) != "Mn")
            if plain != chr(point):
                table[point] = plain
    for first, last in _DROPPED:
        table.update(dict.fromkeys(range(first, last + 1)))
    table.update({ord(char): plain for char, plain in _EXTRA_FOLDS.items()})
    table.update({0x00AD: None, 0x200C: None, 0x200D: None, 0x2060: None})
    for point in range(0x0660, _LAST_WITH_WORDS + 1):
        digit = unicodedata.decimal(chr(point), None)
        if digit is not None:
            table[point] = str(digit)
    return table


_FOLD = _fold_table()


def fold(text: str) -> str:
    """Return NFKC text in the form in which words are compared: case folded, accents off, digits in ASCII.

    Idempotent. Never longer than three times its input, and empty only for invisible characters and accents.
    """
    if text.isascii():
        return text.lower()
    return text.casefold().translate(_FOLD).casefold()
