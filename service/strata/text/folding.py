"""The folding under which names, and texts that may repeat each other, are compared."""

from __future__ import annotations

import unicodedata

_HIRAGANA = {code: code - 0x60 for code in range(0x30A1, 0x30F7)}


def fold(name: str) -> str:
    """Return a text with its case, compatibility form and kana made alike.

    Each character in lower case, NFKC, lower case once more (a compatibility form may be a capital), and
    katakana U+30A1 to U+30F6 as hiragana. Nothing is trimmed, accents stay, ß stays, and so does the
    long-vowel mark.
    """
    if name.isascii():
        return name.lower()
    return _lower(unicodedata.normalize("NFKC", _lower(name))).translate(_HIRAGANA)


def _lower(text: str) -> str:
    """Lower each character by itself: str.lower() would end a word in a final sigma."""
    return text.replace("Σ", "σ").lower()
