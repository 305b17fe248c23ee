"""Names of concepts and labels: how spellings are compared."""

from __future__ import annotations

import re

from strata.text.folding import fold

__all__ = ["HIDDEN_LABEL", "MAX_NAME_BYTES", "bigrams", "dice", "fold", "key", "key_of_folded"]

MAX_NAME_BYTES = 1024
"""Longest name or alias, in bytes of UTF-8."""

HIDDEN_LABEL = "schema:type"
"""The reserved label that asserts an entity's type: no walk follows or shows it."""

_SEPARATORS = re.compile(r"(?<=[^\s_‐-])[\s_‐-]+(?=[^\s_‐-])")
_SIGN = re.compile(r"\s-$")


def key(name: str) -> str:
    """Give the identity of a spelling: spellings with one key name one entity.

    It is the fold without white space, ``-`` and ``_`` between words, so ``System Admin``,
    ``system-admin`` and ``SystemAdmin`` are one. What separators alone tell apart stays apart:
    a separator between two digits counts (``1-12`` is not ``11-2``), so does a minus before a
    number and a mark at either end (``C-``, ``_private``).
    """
    return key_of_folded(fold(name))


def key_of_folded(folded: str) -> str:
    """Give the key of a name that is folded already."""
    return _SEPARATORS.sub(_separator, folded.strip()) or folded


def _separator(match: re.Match[str]) -> str:
    text, run = match.string, match.group()
    if not text[match.end()].isdigit():
        return ""
    if text[match.start() - 1].isdigit():
        return " "
    return " -" if _SIGN.search(run) else ""


def bigrams(folded: str) -> frozenset[str]:
    """List the pairs of neighbouring characters; one character alone has none."""
    return frozenset(map(str.__add__, folded, folded[1:]))


def dice(left: str, right: str) -> float:
    """Compare two folded names by their shared bigrams: 0 (none) to 1 (all); 0 where both have none."""
    one, other = bigrams(left), bigrams(right)
    total = len(one) + len(other)
    return 2 * len(one & other) / total if total else 0.0
