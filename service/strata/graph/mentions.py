"""The names that a question mentions, as they stand in it."""

from __future__ import annotations

from dataclasses import dataclass

from strata.graph.names import fold
from strata.graph.vocabulary import Vocabulary
from strata.text.paragraphs import is_cjk

MAX_TEXT_CHARS = 1_024
"""How much of a text is read; questions are shorter."""

_LEAST_CHARS = 2


@dataclass(frozen=True, slots=True)
class Mention:
    """A name found in a text: its index among the names, and where it stands in the folded text."""

    index: int
    start: int
    end: int


def mentions(vocabulary: Vocabulary, text: str, most: int = 16) -> list[Mention]:
    """Return the names and aliases that stand in a text, longest first, at most ``most`` of them.

    A name inside a longer one that is mentioned does not count, nor does one that is only a part of a word;
    scripts without spaces have no such parts. Names of one character are left out: they stand everywhere.
    """
    folded = fold(text[:MAX_TEXT_CHARS])
    index = vocabulary.index
    places: list[tuple[int, int, int]] = []
    for spelling in index.contained_in(folded).tolist():
        name = index.folded[spelling]
        if len(name) < _LEAST_CHARS:
            continue
        start = folded.find(name)
        while start != -1:
            if _stands_alone(folded, start, start + len(name)):
                places.append((-len(name), start, int(index.owners[spelling])))
            start = folded.find(name, start + 1)
    taken: list[Mention] = []
    seen: set[int] = set()
    for length, start, owner in sorted(places):
        end = start - length
        if owner in seen or any(start < other.end and other.start < end for other in taken):
            continue
        seen.add(owner)
        taken.append(Mention(owner, start, end))
        if len(taken) == most:
            break
    return taken


def _stands_alone(text: str, start: int, end: int) -> bool:
    return not (
        (start > 0 and _joined(text[start - 1], text[start])) or (end < len(text) and _joined(text[end - 1], text[end]))
    )


def _joined(left: str, right: str) -> bool:
    """Tell whether two neighbouring characters belong to one word."""
    return left.isalnum() and right.isalnum() and not is_cjk(left) and not is_cjk(right)
