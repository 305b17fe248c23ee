"""How an evidence package names what it left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from strata.evidence.model import GroupFate, Omission, Reason

_GROUP_REASONS = {
    GroupFate.WHOLE: "contradiction_group_exceeds_budget",
    GroupFate.PARTIAL: "contradiction_group_partial",
}


def omission_reason(omission: Omission) -> str:
    """Return the reason as an evidence package spells it."""
    if omission.group is not None:
        return _GROUP_REASONS[omission.group]
    return "duplicate_passage" if omission.reason is Reason.NEAR_DUPLICATE else omission.reason.value.lower()


def omitted_by_reason(omitted: Iterable[Omission]) -> dict[str, int]:
    """Return the number of omissions of each reason, by name."""
    return dict(sorted(Counter(map(omission_reason, omitted)).items()))
