"""What is measured: single lanes, their fusion, and whole calls with parts of them switched off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from strata.errors import INVALID_REQUEST, StrataError
from strata.evaluate.beir import Query, sources_within
from strata.lookup.pool import CandidateSignals
from strata.lookup.schemas import MAX_QUERY_CHARS, BudgetRequest, Filters, Lane, LookupRequest, LookupResult
from strata.lookup.service import Caller, LookupService
from strata.traces.schemas import Surface

DEPTH = 100
"""How deep rankings are judged; recall@100 needs as many."""

AGENT = "strata-evaluate"
"""The agent id in the trace rows of an evaluation."""

RANKINGS: Final = {
    "lexical": (Lane.LEXICAL,),
    "vector": (Lane.VECTOR,),
    "hybrid": (Lane.LEXICAL, Lane.VECTOR),
    "hybrid_hop": (Lane.LEXICAL, Lane.VECTOR, Lane.HOP),
}
"""Words alone, meaning alone, both fused, and with a second hop; no hints, no pipeline, no trace row."""

CALLS: Final = {
    "lookup": None,
    "lookup_without_hints": (Lane.LEXICAL, Lane.VECTOR),
    "lookup_lexical": (Lane.HINTS, Lane.LEXICAL),
}
"""Whole calls, with the lanes that each asks for."""

LANES: Final = (*RANKINGS, *CALLS)

DEFAULT_LANES: Final = (*RANKINGS, "lookup")

NEEDS_VECTORS: Final = frozenset(RANKINGS) - {"lexical"}
"""Lanes that mean nothing without vectors. ``lookup_lexical`` is the same as ``lookup`` there, and left out too."""


def answerable_lanes(lanes: Sequence[str], *, has_vectors: bool) -> tuple[list[str], list[str]]:
    """Return the lanes that can be measured, and those left out for want of vectors.

    Raises ``invalid_request`` for a lane that does not exist.
    """
    for lane in lanes:
        if lane not in LANES:
            raise StrataError(
                INVALID_REQUEST, f"There is no lane {lane!r}; there are {', '.join(LANES)}.", pointer="--lanes"
            )
    lacking = set() if has_vectors else NEEDS_VECTORS | ({"lookup_lexical"} if "lookup" in lanes else set())
    return [lane for lane in lanes if lane not in lacking], [lane for lane in lanes if lane in lacking]


class Asker:
    """Asks the questions of a set in one context.

    ``by_language`` asks each among the documents of its own language, ``within`` among the sources that
    belong to that field of the question.
    """

    def __init__(
        self, lookup: LookupService, tenant: UUID, context: str, *, by_language: bool = False, within: str | None = None
    ) -> None:
        self._lookup = lookup
        self._tenant = tenant
        self._context = context
        self._by_language = by_language
        self._within = within

    async def ranking(self, query: Query, lane: str) -> list[str]:
        """Return the documents that a lane finds, best first; none for a blank question."""
        if query.is_blank:
            return []
        if lane in RANKINGS:
            return await self._lookup.ranking(
                self._tenant,
                self._context,
                question(query),
                DEPTH,
                lanes=RANKINGS[lane],
                filters=self.filters(query),
            )
        result = await self.call(query, lane)
        return [block.source for block in result.evidence_blocks]

    async def call(
        self, query: Query, lane: str, *, top_k: int = DEPTH, max_tokens: int | None = None, content: bool | None = None
    ) -> LookupResult:
        """Make a whole call."""
        lanes = CALLS[lane]
        request = LookupRequest(
            query=question(query),
            context=self._context,
            top_k=top_k,
            lanes=None if lanes is None else list(lanes),
            filters=self.filters(query),
            budget=BudgetRequest(max_tokens=max_tokens) if max_tokens is not None else None,
            content=content,
            agent_id=AGENT,
        )
        return await self._lookup.lookup(self._tenant, request, Caller(Surface.CLI))

    async def signals(self, query: Query) -> list[CandidateSignals]:
        """Return what the lanes over passages know of a question's candidates."""
        return await self._lookup.signals(self._tenant, self._context, question(query), filters=self.filters(query))

    def filters(self, query: Query) -> Filters | None:
        """Return the filters that a question is asked under."""
        language = query.lang if self._by_language else None
        sources = sources_within(query, self._within) if self._within is not None else None
        return Filters(language=language, sources=sources) if language or sources else None


def question(query: Query) -> str:
    """Return a question as long as the lookup takes it."""
    return query.text.strip()[:MAX_QUERY_CHARS]
