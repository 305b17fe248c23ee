"""What a package is selected by: one policy for the lookup, one for evidence packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from strata.evidence.bigrams import SAME_BIGRAMS, SAME_IN_WORDS
from strata.evidence.duplicates import SAME_WORDS, DuplicateRule
from strata.evidence.model import Cost, Excerpt, Limits

Extractor = Callable[[str, Cost], tuple[Excerpt, ...]]
"""Chooses the spans of a text to show in so much room; none where nothing worth it fits."""

DEFAULT_LIMITS = Limits(max_items=40, max_bytes=65_536, max_tokens=4_000)
"""The ceilings of an evidence package that names none."""

_ALL = 2**31 - 1


class Contradictions(StrEnum):
    """What becomes of facts that disagree.

    SHOWN: each is selected by itself and names the others. ATOMIC: all are admitted or none. PARTIAL: they
    are admitted together, the best of them where not all fit.
    """

    SHOWN = "SHOWN"
    ATOMIC = "ATOMIC"
    PARTIAL = "PARTIAL"


@dataclass(frozen=True, slots=True)
class Policy:
    """What a package is selected by; the defaults are those of the lookup.

    ``top_k`` is the number of items wanted, ``limits`` the hard ceilings, ``floor`` the least
    relevance (0..1) that counts as evidence, ``weights`` the lanes' weights in the fusion,
    ``least_item_bytes`` what no item costs less than, ``tiers`` the width of a diversity tier, None
    meaning a quarter of ``top_k``. Facts of a label that ``is_functional`` denies never disagree: the
    label has many values. ``shares_text`` lets a kept passage and its citation share one copy.
    ``extract`` cuts a paragraph that does not fit whole.
    """

    top_k: int
    limits: Limits = field(default_factory=Limits)
    floor: float = 0.0
    weights: Mapping[str, float] | None = None
    least_item_bytes: int = 0
    tiers: int | None = None
    duplicates: DuplicateRule = SAME_WORDS
    contradictions: Contradictions = Contradictions.SHOWN
    is_functional: Callable[[str], bool] | None = None
    shares_text: bool = False
    extract: Extractor | None = None

    @property
    def tier_width(self) -> int:
        """The width of a diversity tier, at least 1."""
        return max(1, self.top_k // 4) if self.tiers is None else self.tiers


def package_policy(
    limits: Limits = DEFAULT_LIMITS,
    *,
    contradictions: Contradictions = Contradictions.ATOMIC,
    is_functional: Callable[[str], bool] | None = None,
    careful_duplicates: bool = False,
    shares_text: bool = False,
    extract: Extractor | None = None,
) -> Policy:
    """Return the policy of an evidence package; every option left out gives the plain contract.

    ``careful_duplicates`` drops a passage only where it says the same in the same words and numbers; those
    that differ in their numbers only are kept and name each other.
    """
    return Policy(
        top_k=_ALL,
        limits=limits,
        tiers=max(1, (_ALL if limits.max_items is None else limits.max_items) // 4),
        duplicates=SAME_IN_WORDS if careful_duplicates else SAME_BIGRAMS,
        contradictions=contradictions,
        is_functional=is_functional,
        shares_text=shares_text,
        extract=extract,
    )
