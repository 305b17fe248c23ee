"""Counts what a package takes of its ceilings, exactly, while it is filled."""

from __future__ import annotations

import json
from typing import NamedTuple

from strata.evidence.model import Cost, Limits, Spend
from strata.text.estimate import token_quarters, tokens_of_quarters, utf8_bytes

_ENDLESS = 2**62


def cost_of(text: str) -> Cost:
    """Return the size of a text."""
    return Cost(utf8_bytes(text), token_quarters(text))


def cost_in_json(text: str) -> Cost:
    """Return the size of a text inside a JSON string, without the quotes."""
    return cost_of(json.dumps(text, ensure_ascii=False)[1:-1])


class Bill(NamedTuple):
    """What an admission adds: items and citations, and the bytes and quarters of their JSON."""

    items: int = 0
    citations: int = 0
    bytes: int = 0
    quarters: int = 0

    def plus(self, other: Bill) -> Bill:
        """Return both together."""
        return Bill(*(one + two for one, two in zip(self, other, strict=True)))


class Meter:
    """Counts the JSON arrays of items and, where the package has them, of citations: brackets and commas too."""

    def __init__(self, limits: Limits, *, has_citations: bool) -> None:
        self._limits = limits
        self._has_citations = has_citations
        self._taken = Bill()

    def spend(self, added: Bill | None = None) -> Spend:
        """Return what the package uses, with ``added`` on top."""
        total = self._taken.plus(added) if added else self._taken
        overhead = _brackets(total.items) + (_brackets(total.citations) if self._has_citations else 0)
        return Spend(
            items=total.items,
            bytes=total.bytes + overhead,
            tokens=tokens_of_quarters(total.quarters + overhead),
        )

    def admits(self, added: Bill) -> bool:
        """Tell whether all ceilings still hold with ``added``."""
        spend, limits = self.spend(added), self._limits
        return (
            (limits.max_items is None or spend.items <= limits.max_items)
            and (limits.max_bytes is None or spend.bytes <= limits.max_bytes)
            and (limits.max_tokens is None or spend.tokens <= limits.max_tokens)
        )

    def room(self, added: Bill) -> Cost:
        """Return the bytes and quarters left after ``added``; negative where it is too much."""
        spend, limits = self.spend(added), self._limits
        return Cost(
            _ENDLESS if limits.max_bytes is None else limits.max_bytes - spend.bytes,
            _ENDLESS if limits.max_tokens is None else 4 * (limits.max_tokens - spend.tokens),
        )

    def take(self, added: Bill) -> None:
        """Count ``added`` as taken."""
        self._taken = self._taken.plus(added)


def _brackets(count: int) -> int:
    return 2 + max(0, count - 1)
