"""Admits units in order while every ceiling holds: the last stage of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from strata.evidence.extracts import excerpt_text
from strata.evidence.metering import Bill, Meter, cost_in_json, cost_of
from strata.evidence.model import (
    Candidate,
    CitationEntry,
    Cost,
    GroupFate,
    Limits,
    Locator,
    Omission,
    Reason,
    Spend,
)
from strata.evidence.policy import Contradictions, Policy
from strata.evidence.units import Unit

Render = Callable[[Candidate, int], str]
"""Gives the JSON text of a candidate at a rank (from 1): what it costs is the length of that."""

Cite = Callable[[CitationEntry], str]
"""Gives the JSON text of a citation; one that is held by a passage carries no text of its own."""

_EXTRACT_TRIES = 4
_MOST_EXTRACTS = 32
"""Paragraphs tried, the best of those that do not fit: after so many there is hardly room for a sentence."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What was admitted, in order, with the cost of each, what was not, and the spend."""

    kept: tuple[Candidate, ...]
    costs: tuple[Cost, ...]
    omitted: tuple[Omission, ...]
    citations: tuple[CitationEntry, ...]
    spend: Spend


class _Offer(NamedTuple):
    """Candidates as they would be admitted, what that costs, and the citations it adds or changes."""

    members: tuple[Candidate, ...]
    costs: tuple[Cost, ...]
    bill: Bill
    citations: tuple[CitationEntry, ...]


def select(units: Sequence[Unit], policy: Policy, render: Render, cite: Cite | None = None) -> Admitted:
    """Admit units in order while every ceiling holds; one that does not fit is skipped.

    Room is held for a protected candidate until its turn, so that nothing before it takes its place.
    Without ceilings nothing is rendered, and the spend is that of nothing. ``cite`` None means that the
    package has no citations beside its items.
    """
    admission = _Admission(policy, render, cite)
    awaited = next(
        (unit for unit in units[: policy.top_k] if unit.is_protected and unit.members[0].text is not None), None
    )
    if awaited:
        admission.reserve(awaited)
    for unit in units:
        if unit is awaited:
            admission.release()
        admission.offer(unit)
    return admission.result()


class _Admission:
    """The package while it is filled."""

    def __init__(self, policy: Policy, render: Render, cite: Cite | None) -> None:
        self._policy = policy
        self._render = render
        self._cite = cite
        self._is_bounded = policy.limits != Limits()
        self._meter = Meter(policy.limits, has_citations=cite is not None)
        self._reserved = Bill()
        self._kept: list[Candidate] = []
        self._costs: list[Cost] = []
        self._omitted: list[Omission] = []
        self._cited: dict[Locator, CitationEntry] = {}
        self._held: dict[Locator, str] = {}
        self._citation_costs: dict[CitationEntry, Cost] = {}
        self._extracts_left = _MOST_EXTRACTS

    def reserve(self, unit: Unit) -> None:
        """Hold room for a unit, where it fits at all."""
        if not self._is_bounded:
            return
        # The rank is not known yet; the widest one that can occur costs as much or more.
        bill = self._offer(unit.members, self._policy.top_k).bill
        self._reserved = bill if self._meter.admits(bill) else Bill()

    def release(self) -> None:
        """Let go of the room held."""
        self._reserved = Bill()

    def offer(self, unit: Unit) -> None:
        """Admit a unit, or what of it the policy allows to; note why the rest is omitted."""
        members = unit.members
        if len(members) == 1 or self._policy.contradictions is Contradictions.ATOMIC:
            refused = self._refused(members)
            group = GroupFate.WHOLE if len(members) > 1 else None
            self._omit(members if refused else (), refused, group)
            return
        before = len(self._kept)
        left = [(member, refused) for member in members if (refused := self._refused((member,)))]
        group = GroupFate.PARTIAL if len(self._kept) > before else GroupFate.WHOLE
        for member, refused in left:
            self._omit((member,), refused, group)

    def result(self) -> Admitted:
        """Return the package as it is."""
        return Admitted(
            kept=tuple(self._kept),
            costs=tuple(self._costs),
            omitted=tuple(self._omitted),
            citations=tuple(self._cited[locator] for locator in sorted(self._cited)),
            spend=self._meter.spend() if self._is_bounded else Spend(items=len(self._kept)),
        )

    def _omit(self, members: Sequence[Candidate], reason: Reason | None, group: GroupFate | None) -> None:
        if reason:
            fate = group if reason is Reason.BUDGET_EXCEEDED else None
            self._omitted += [Omission(member, reason, group=fate) for member in members]

    def _refused(self, members: tuple[Candidate, ...]) -> Reason | None:
        """Admit all of ``members`` and return None, or say why they are not admitted."""
        policy, limits = self._policy, self._policy.limits
        if len(self._kept) + len(members) > policy.top_k:
            return Reason.BELOW_TOP_K
        if any(member.text is None for member in members):
            least = Bill(items=1, bytes=policy.least_item_bytes, quarters=policy.least_item_bytes)
            return Reason.BELOW_TOP_K if self._meter.admits(least) else Reason.BUDGET_EXCEEDED
        if limits.max_items is not None and len(self._kept) + len(members) > limits.max_items:
            return Reason.BUDGET_EXCEEDED
        offer: _Offer | None = self._offer(members, len(self._kept) + 1)
        if self._is_bounded and offer and not self._meter.admits(offer.bill.plus(self._reserved)):
            offer = self._extract(offer)
        if offer is None:
            return Reason.BUDGET_EXCEEDED
        self._take(offer)
        return None

    def _offer(self, members: tuple[Candidate, ...], rank: int) -> _Offer:
        if not self._is_bounded:
            return _Offer(members, (), Bill(items=len(members)), ())
        costs = tuple(cost_of(self._render(member, rank + at)) for at, member in enumerate(members))
        entries = self._entries(members) if self._cite else ()
        added = [self._citation_cost(entry) for entry in entries]
        replaced = [self._citation_cost(self._cited[item.locator]) for item in entries if item.locator in self._cited]
        return _Offer(
            members,
            costs,
            Bill(
                items=len(members),
                citations=len(added) - len(replaced),
                bytes=sum(cost.bytes for cost in (*costs, *added)) - sum(cost.bytes for cost in replaced),
                quarters=sum(cost.quarters for cost in (*costs, *added)) - sum(cost.quarters for cost in replaced),
            ),
            entries,
        )

    def _entries(self, members: Sequence[Candidate]) -> tuple[CitationEntry, ...]:
        """Return the citations that ``members`` introduce, and those whose text they hold from now on."""
        entries: dict[Locator, CitationEntry] = {}
        for member in members:
            for locator in member.citation_refs:
                if locator not in self._cited:
                    entries[locator] = self._cheaper(locator, self._held.get(locator))
            if self._policy.shares_text and member.locator in self._cited:
                shared = self._cheaper(member.locator, member.candidate_id)
                if shared.held_by is not None:
                    entries[member.locator] = shared
        return tuple(entries.values())

    def _cheaper(self, locator: Locator, held_by: str | None) -> CitationEntry:
        """Return the citation that refers to a kept passage, or that with its text where a reference costs more."""
        whole = CitationEntry(locator)
        if held_by is None:
            return whole
        shared = CitationEntry(locator, held_by)
        return shared if self._citation_cost(shared) < self._citation_cost(whole) else whole

    def _citation_cost(self, entry: CitationEntry) -> Cost:
        known = self._citation_costs.get(entry)
        if known is None and self._cite:
            known = self._citation_costs[entry] = cost_of(self._cite(entry))
        return known or Cost()

    def _extract(self, offer: _Offer) -> _Offer | None:
        """Return what can be offered of a paragraph that does not fit; None where that is nothing.

        None too where a citation shows the whole paragraph already.
        """
        (candidate, *others), extract = offer.members, self._policy.extract
        if extract is None or others or candidate.locator is None or candidate.locator in self._cited:
            return None
        if not self._extracts_left:
            return None
        self._extracts_left -= 1
        text = candidate.text or ""
        whole = cost_in_json(text)
        frame = offer.bill.plus(Bill(bytes=-whole.bytes, quarters=-whole.quarters)).plus(self._reserved)
        room = self._meter.room(frame)
        for _ in range(_EXTRACT_TRIES):
            excerpts = extract(text, room) if min(room) > 0 else ()
            if not excerpts:
                return None
            found = self._offer((replace(candidate, excerpts=excerpts),), len(self._kept) + 1)
            bill = found.bill.plus(self._reserved)
            if self._meter.admits(bill):
                return found
            # What comes with spans beside their text, as offsets, is known only now.
            over, shown = self._meter.room(bill), cost_in_json(excerpt_text(text, excerpts))
            room = Cost(
                shown.bytes + over.bytes if over.bytes < 0 else room.bytes,
                shown.quarters + over.quarters if over.quarters < 0 else room.quarters,
            )
        return None

    def _take(self, offer: _Offer) -> None:
        self._meter.take(offer.bill)
        self._kept += offer.members
        self._costs += offer.costs
        self._cited.update((entry.locator, entry) for entry in offer.citations)
        if self._policy.shares_text:
            for member in offer.members:
                if member.locator is not None:
                    self._held[member.locator] = member.candidate_id
