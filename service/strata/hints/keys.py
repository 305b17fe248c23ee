"""The keys by which a question finds an entry in the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from strata.hints.names import keyword_key, name_key, normalise_name
from strata.hints.schemas import MAX_PRIORITY, HintEntry, HintOrigin

ORIGIN_RANK: Mapping[HintOrigin, int] = {HintOrigin.CURATED: 0, HintOrigin.FRONTMATTER: 1, HintOrigin.DERIVED: 2}
RANKS_PER_ORIGIN = 4096


@dataclass(frozen=True, slots=True)
class HintKey:
    """A string by which a hint is probed; ``ordinal`` 0 is its title."""

    hint_id: UUID
    ordinal: int
    kind: str
    norm: str
    rank: int


def entry_keys(entry: HintEntry) -> list[HintKey]:
    """Return the keys of an entry, each once: its title, its aliases, and a word of each keyword."""
    rank = ORIGIN_RANK[entry.origin] * RANKS_PER_ORIGIN + MAX_PRIORITY - entry.priority
    names = dict.fromkeys(name_key(normalise_name(name)) for name in (entry.title, *entry.aliases))
    words = dict.fromkeys(keyword_key(keyword) for keyword in entry.keywords)
    pairs = [("name", name) for name in names if name] + [("keyword", word) for word in words if word]
    return [HintKey(entry.hint_id, ordinal, kind, norm, rank) for ordinal, (kind, norm) in enumerate(pairs)]
