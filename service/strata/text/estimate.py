"""The declared counters of size: cheap, monotone and the same everywhere."""

from __future__ import annotations


def token_quarters(text: str) -> int:
    """Return the estimate in quarter tokens: 1 for an ASCII character, 4 for any other."""
    if text.isascii():
        return len(text)
    return 4 * len(text) - 3 * len(text.encode("ascii", "ignore"))


def tokens_of_quarters(quarters: int) -> int:
    """Return whole tokens, rounded up once."""
    return -(-quarters // 4)


def utf8_bytes(text: str) -> int:
    """Return the length in UTF-8; a lone surrogate counts 3, as every character of its range would."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
