"""What is admitted together, and in which order: contradiction groups, diversity, protection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from strata.evidence.model import Candidate
from strata.evidence.policy import Contradictions, Policy


class Sourced(Protocol):
    """What comes from a source; an empty name means that none is known."""

    @property
    def source(self) -> str:
        """The name of the source."""


T = TypeVar("T", bound=Sourced)


class Unit(Struct, frozen=True):
    """Candidates that are admitted at one place: one, or the members of a contradiction group, best first."""

    members: tuple[Candidate, ...]

    @property
    def source(self) -> str:
        """The source of the first member."""
        return self.members[0].source

    @property
    def is_protected(self) -> bool:
        """Whether a member is to be selected wherever it fits."""
        return any(member.is_protected for member in self.members)


def group_contradictions(candidates: Sequence[Candidate], policy: Policy) -> tuple[list[Unit], int]:
    """Return the units in order, and the number of contradiction groups among them.

    Facts of one subject and label that name several objects contradict each other, and each names those
    with another object than its own. A group stands at the place of its first member.
    """
    groups: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in candidates:
        fact = candidate.fact
        if fact and (policy.is_functional is None or policy.is_functional(fact.label)):
            groups.setdefault((fact.subject, fact.label), []).append(candidate)
    if not groups:
        return [Unit((candidate,)) for candidate in candidates], 0
    disagreeing = [group for group in groups.values() if len({item.fact and item.fact.object for item in group}) > 1]
    units = {candidate.identity: Unit((candidate,)) for candidate in candidates}
    for group in disagreeing:
        members = _with_contradictions(group)
        if policy.contradictions is Contradictions.SHOWN:
            units.update((member.identity, Unit((member,))) for member in members)
            continue
        units[members[0].identity] = Unit(members)
        for member in members[1:]:
            del units[member.identity]
    return list(units.values()), len(disagreeing)


def _with_contradictions(group: Sequence[Candidate]) -> tuple[Candidate, ...]:
    named = sorted((member.candidate_id, member.fact and member.fact.object) for member in group)
    return tuple(
        replace(member, contradicts=tuple(id_ for id_, said in named if said != (member.fact and member.fact.object)))
        for member in group
    )


def diversify_tiers(units: Sequence[T], width: int) -> list[T]:
    """Within tiers of ``width``, put sources not seen before ahead of repeats; a nameless one is always new.

    The order inside both groups stays; nothing moves across a tier.
    """
    seen: set[str] = set()
    ordered: list[T] = []
    for start in range(0, len(units), width):
        fresh: list[T] = []
        repeated: list[T] = []
        for unit in units[start : start + width]:
            (repeated if unit.source in seen else fresh).append(unit)
            if unit.source:
                seen.add(unit.source)
        ordered += fresh + repeated
    return ordered


def protect(units: Sequence[Unit], top_k: int) -> list[Unit]:
    """Bring a protected unit into the first ``top_k`` where others pushed it out."""
    ordered = list(units)
    for index, unit in enumerate(units):
        if index >= top_k > 0 and unit.is_protected:
            ordered.remove(unit)
            ordered.insert(top_k - 1, unit)
    return ordered
