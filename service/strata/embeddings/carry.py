"""What of a source's vectors holds for its next revision: those of passages that are embedded from the same text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from strata.platform.ids import SERIAL_BITS

Key: TypeAlias = tuple[bytes, str, tuple[str, ...]]
"""All that an embedded text is made of: digest of the passage, title, breadcrumb."""


@dataclass(frozen=True, slots=True)
class KeyedPassage:
    """A passage and what decides its vector."""

    passage_id: int
    key: Key


@dataclass(frozen=True, slots=True)
class Carried:
    """Passages of new revisions that have their vector already, by space."""

    by_space: Mapping[int, set[int]] = field(default_factory=dict)

    def lacking(self, space_id: int, ranges: Iterable[tuple[int, int, int]]) -> list[int]:
        """Return the passages of ranges that still need a vector in a space."""
        done = self.by_space.get(space_id, set())
        ids = (serial << SERIAL_BITS | first + n for serial, first, count in ranges for n in range(count))
        return [identifier for identifier in ids if identifier not in done]


NOTHING_CARRIED = Carried()


def matched(
    old: Iterable[KeyedPassage], new: Iterable[KeyedPassage], successors: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Pair passages of old revisions with passages of the new ones that are embedded from the same text.

    ``successors`` gives the serial that follows each old one. Equal passages are paired in order; each is
    in one pair at most.
    """
    waiting: dict[tuple[int, Key], list[int]] = {}
    for passage in sorted(old, key=lambda one: one.passage_id, reverse=True):
        successor = successors.get(passage.passage_id >> SERIAL_BITS)
        if successor is not None:
            waiting.setdefault((successor, passage.key), []).append(passage.passage_id)
    pairs = []
    for passage in sorted(new, key=lambda one: one.passage_id):
        found = waiting.get((passage.passage_id >> SERIAL_BITS, passage.key))
        if found:
            pairs.append((found.pop(), passage.passage_id))
    return pairs
