"""Ask one case: passages or a package, the graph, and citations. The three are never fused."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import UNSET

from strata.evaluate.allowance import admitted
from strata.evaluate.backend import Backend, Budget, CallError, Candidate, Cited, Place, Spend
from strata.evaluate.cases import DEFAULT_LIMIT, Case, ExpectedAssociation, ExpectedCitation
from strata.graph.names import fold

RESOLVE_LIMIT = 5

FOUND, ABSENT, NOT_FOUND, AMBIGUOUS = "found", "absent", "not_found", "ambiguous"
ASSOCIATION_OUTCOMES = (FOUND, ABSENT, NOT_FOUND, AMBIGUOUS)

_STRENGTH = {"exact": 0, "alias": 0, "containment": 1, "fuzzy": 2}
_LEXICAL, _SEMANTIC = 2, 3
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How cases are asked. ``limit`` is for those that state none; without ``budget`` a search is not cut.

    ``options`` are further fields of the evidence request, as :func:`parse_options` returns them.
    """

    is_assembly: bool = False
    limit: int = DEFAULT_LIMIT
    budget: Budget | None = None
    rerank: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def limit_of(self, case: Case) -> int:
        """Return the k of a case."""
        return case.options.limit or self.limit


@dataclass(slots=True)
class Timings:
    """Milliseconds of every call that was answered."""

    passage: list[float] = field(default_factory=list)
    resolve: list[float] = field(default_factory=list)
    query: list[float] = field(default_factory=list)
    citation: list[float] = field(default_factory=list)
    evidence: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Passages:
    """The passage lane of a case. ``places`` holds all that was admitted, best first; None after an error."""

    places: tuple[Place, ...] | None
    error: str | None = None
    spend: Spend | None = None
    milliseconds: float | None = None
    reranked: bool | None = None
    rerank_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Structural:
    """What the graph gave: expected names not found, the outcome of each expected association, cited paragraphs."""

    missing_concepts: tuple[str, ...]
    missing_labels: tuple[str, ...]
    associations: tuple[str, ...]
    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Checked:
    """One citation: how it ended, and whether section and quote are as stated, None where that was not checked."""

    outcome: str
    section: bool | None
    quote: bool | None

    @property
    def is_valid(self) -> bool:
        """Whether it can be cited as stated."""
        return self.outcome == "resolved" and self.section is not False and self.quote is not False


@dataclass(frozen=True, slots=True)
class Observed:
    """All that was seen of one case."""

    case: Case
    context: str
    limit: int
    passages: Passages
    structural: Structural
    citations: tuple[Checked, ...]


class CaseLanes:
    """Asks cases one after another, so that calls do not slow each other down."""

    def __init__(self, backend: Backend, mode: Mode) -> None:
        self._backend = backend
        self._mode = mode
        self.timings = Timings()

    async def observe(self, case: Case, context: str, name: str) -> Observed:
        """Ask one case of ``context``, whose name is ``name``; an error of the passage lane is part of the outcome."""
        ask = self._package if self._mode.is_assembly else self._search
        try:
            passages = await ask(case, context, name)
        except CallError as error:
            passages = Passages(None, error.answer)
        return Observed(
            case,
            context,
            self._mode.limit_of(case),
            passages,
            await self._structural(case, context),
            tuple([await self._check(context, expected) for expected in case.expected_citations]),
        )

    async def _search(self, case: Case, context: str, name: str) -> Passages:
        limit = self._mode.limit_of(case)
        hits = await _timed(self.timings.passage, self._backend.search(context, case.query, limit, case.options))
        spend = None
        if self._mode.budget is not None:
            hits, spend = admitted(hits, name, self._mode.budget)
        places = tuple((hit.source, hit.paragraph) for hit in hits)
        return Passages(places, spend=spend, milliseconds=self.timings.passage[-1])

    async def _package(self, case: Case, context: str, _name: str) -> Passages:
        package = await _timed(
            self.timings.evidence,
            self._backend.assemble(
                context,
                case.asked,
                case.query,
                limit=self._mode.limit_of(case),
                options=case.options,
                budget=self._mode.budget or Budget(),
                rerank=self._mode.rerank,
                extra=self._mode.options,
            ),
        )
        return Passages(
            package.places, spend=package.spend, reranked=package.reranked, rerank_reason=package.rerank_reason
        )

    async def _structural(self, case: Case, context: str) -> Structural:
        concepts = await self._names(context, case.asked) if case.expected_concepts else frozenset()
        labels = await self._names(context, case.asked, labels=True) if case.expected_labels else frozenset()
        outcomes, places = [], set[Place]()
        for wanted in case.expected_associations:
            outcome, cited = await self._association(context, wanted)
            outcomes.append(outcome)
            places.update(cited)
        return Structural(
            tuple(name for name in case.expected_concepts if fold(name) not in concepts),
            tuple(name for name in case.expected_labels if fold(name) not in labels),
            tuple(outcomes),
            frozenset(places),
        )

    async def _names(self, context: str, cues: Sequence[str], *, labels: bool = False) -> frozenset[str]:
        found = [await self._best(context, cue, labels=labels) for cue in cues]
        return frozenset(fold(name) for names in found for name in names)

    async def _association(self, context: str, wanted: ExpectedAssociation) -> tuple[str, tuple[Place, ...]]:
        positions = [
            await self._best(context, wanted.subject),
            await self._best(context, wanted.label, labels=True),
            await self._best(context, wanted.object),
        ]
        if not all(positions):
            return NOT_FOUND, ()
        if any(len(names) > 1 for names in positions):
            return AMBIGUOUS, ()
        subject, label, target = (names[0] for names in positions)
        pinned = ExpectedAssociation(subject=subject, label=label, object=target)
        answer = await _timed(self.timings.query, self._backend.associations(context, pinned))
        return (FOUND, answer.places) if answer.total else (ABSENT, ())

    async def _best(self, context: str, cue: str, *, labels: bool = False) -> list[str]:
        resolve = self._backend.resolve_label if labels else self._backend.resolve
        return top_tier(await _timed(self.timings.resolve, resolve(context, cue, RESOLVE_LIMIT)))

    async def _check(self, context: str, expected: ExpectedCitation) -> Checked:
        cited = await _timed(self.timings.citation, self._backend.cite(context, expected.source, expected.paragraph))
        return checked(expected, cited)


def top_tier(candidates: Sequence[Candidate]) -> list[str]:
    """Return the names of the strongest kind of match: the same spelling, then containment, likeness, meaning."""
    strengths = [_strength(candidate) for candidate in candidates]
    best = min(strengths, default=None)
    return [each.name for each, strength in zip(candidates, strengths, strict=True) if strength == best]


def checked(expected: ExpectedCitation, cited: Cited) -> Checked:
    """Compare a citation with what was expected of it."""
    if cited.outcome != "resolved":
        return Checked(cited.outcome, None, None)
    section = None if expected.section is UNSET else expected.section == cited.section
    quote = None if expected.quote is UNSET else fold(expected.quote) in fold(cited.text)
    return Checked(cited.outcome, section, quote)


def _strength(candidate: Candidate) -> int:
    if candidate.tier == "semantic":
        return _SEMANTIC
    return _STRENGTH.get(candidate.kind or "", _LEXICAL)


async def _timed(into: list[float], call: Awaitable[_T]) -> _T:
    started = time.perf_counter()
    answer = await call
    into.append((time.perf_counter() - started) * 1000)
    return answer
