"""Search the passages of contexts, lane by lane, without hints or selection: what the contexts API serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID

from msgspec import Struct

from strata.errors import INVALID_REQUEST, StrataError
from strata.evidence.model import LaneRank
from strata.knowledge.model import ContextRow
from strata.lookup import repository
from strata.lookup.candidates import HOP, HYBRID, LEXICAL, VECTOR, Hit
from strata.lookup.engine import Engine
from strata.lookup.meaning import Question
from strata.lookup.repository import SourceFilter
from strata.lookup.request import plan_lookup
from strata.lookup.schemas import MAX_QUERY_CHARS, Lane, LookupRequest
from strata.platform.database import Connection
from strata.platform.ids import ORDINALS
from strata.text.normalise import normalise_text
from strata.traces.schemas import LaneTrace

DEFAULT_COSINE_FLOOR = 0.35
"""Least cosine of what only the vector lane nominates, where neither call nor context says otherwise."""

NOTHING_TO_SEARCH = "the query has no searchable terms"
NO_EMBEDDER = "no embedding provider is configured"

_LEAST_DEPTH = 50
_DEPTH_FACTOR = 4


@dataclass(frozen=True, slots=True)
class PassageQuery:
    """What to search for, and in which sources.

    ``tags`` are any-of; ``since`` and ``until`` (epoch seconds, half open) are over the date that a source
    states, or that it was stored on. ``floor`` is the least cosine of the vector lane. ``paths`` are regular
    expressions over the names of the sources that a search is about at all: no filter that anyone asked for.
    """

    text: str
    limit: int
    floor: float | None = None
    tags: Sequence[str] = ()
    since: int | None = None
    until: int | None = None
    paths: Sequence[str] = ()
    expand: bool = False

    @property
    def is_filtered(self) -> bool:
        """Whether sources are left out at the wish of the caller."""
        return bool(self.tags) or self.since is not None or self.until is not None

    @property
    def source_filter(self) -> SourceFilter:
        """The filter on sources; raises ``invalid_request`` for a date that no calendar has."""
        return SourceFilter(
            paths=tuple(self.paths),
            any_tags=tuple(self.tags),
            since=moment(self.since, "/since"),
            until=moment(self.until, "/until"),
            by_arrival=True,
        )


class FoundPassage(Struct, frozen=True):
    """One passage with its place in each lane; ``paragraph`` is its number within its source, from 0.

    ``score`` is BM25 where only words were searched, else the fused one; comparable within one context.
    """

    context: UUID
    passage: int
    source: str
    paragraph: int
    text: str
    score: float
    lexical: LaneRank | None
    vector: LaneRank | None


@dataclass(frozen=True, slots=True)
class Found:
    """The search of one context: hits best first, what each lane did, and what the filter left."""

    context: ContextRow
    hits: Sequence[FoundPassage]
    lexical: LaneTrace
    vector: LaneTrace
    floor: float
    eligible: int | None = None
    sources: int | None = None


@dataclass(slots=True)
class Ranked:
    """What the lanes over passages find, fused, best first, and what they say of themselves."""

    hits: list[Hit] = field(default_factory=list)
    lexical: LaneTrace = field(default_factory=lambda: LaneTrace(ran=False, reason=NOTHING_TO_SEARCH))
    vector: LaneTrace = field(default_factory=lambda: LaneTrace(ran=False, reason=NOTHING_TO_SEARCH))


class SearchService:
    """Passage search over one context at a time, in the caller's snapshot."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def question(self, tenant: UUID, text: str) -> Question:
        """Return the question of a call; its vector is asked for once, whatever number of contexts is searched."""
        return self._engine.question(tenant, cleaned(text))

    @property
    def local(self) -> Mapping[str, str]:
        """The settings of the database that the caller's unit of work needs for vector searches."""
        return self._engine.local

    async def find(
        self, connection: Connection, tenant: UUID, context: ContextRow, query: PassageQuery, question: Question
    ) -> Found:
        """Return the passages of one context that lanes find; needs a snapshot with :attr:`local` set.

        An empty query or a limit of 0 runs no lane. Raises ``invalid_request`` for a query beyond 4,096
        characters.
        """
        floor = cosine_floor(query.floor, context)
        ranked = await self.ranked(connection, tenant, context, query, question)
        kept = ranked.hits[: query.limit]
        ids = [hit.passage for hit in kept]
        rows = {
            row.passage_id: row
            for row in await repository.passage_rows(connection, tenant, [context.context_id] * len(ids), ids, len(ids))
        }
        hits = [
            FoundPassage(
                context=context.context_id,
                passage=hit.passage,
                source=row.path,
                paragraph=hit.passage & ORDINALS,
                text=row.text or "",
                score=score_of(hit),
                lexical=place_in(hit, LEXICAL),
                vector=place_in(hit, VECTOR),
            )
            for hit in kept
            if (row := rows.get(hit.passage)) is not None
        ]
        eligible = sources = None
        if query.is_filtered:
            eligible = len(
                (await repository.eligible(connection, tenant, context.context_id, query.source_filter)).serials
            )
            about = SourceFilter(paths=tuple(query.paths))
            everything = await repository.eligible(connection, tenant, context.context_id, about)
            sources = len(everything.serials)
        return Found(context, hits, ranked.lexical, ranked.vector, floor, eligible, sources)

    async def ranked(
        self,
        connection: Connection,
        tenant: UUID,
        context: ContextRow,
        query: PassageQuery,
        question: Question,
        *,
        depth: int = 0,
    ) -> Ranked:
        """Return the whole ranking, at least ``depth`` deep in each lane, before the limit cuts it."""
        text = cleaned(query.text)
        if not text or query.limit <= 0:
            return Ranked()
        lanes = [Lane.LEXICAL, Lane.VECTOR, *((Lane.HOP,) if query.expand else ())]
        request = LookupRequest(query=text, context=str(context.context_id), lanes=lanes)
        plan = replace(plan_lookup(request), source_filter=query.source_filter)
        deep = max(depth, _LEAST_DEPTH, _DEPTH_FACTOR * query.limit)
        gatherer = self._engine.gatherer(tenant, plan, question, {}, deep)
        hits, gathered = await gatherer.find(connection)
        vector = gathered.lanes[VECTOR]
        if not question.is_enabled:
            vector = LaneTrace(ran=False, reason=NO_EMBEDDER)
        return Ranked(_above(hits, cosine_floor(query.floor, context)), gathered.lanes[LEXICAL], vector)


def cleaned(text: str) -> str:
    """Return a query as it is searched for; raises ``invalid_request`` beyond 4,096 characters."""
    query = normalise_text(text).text.strip()
    if len(query) > MAX_QUERY_CHARS:
        raise StrataError(
            INVALID_REQUEST,
            f"The query has {len(query)} characters; at most {MAX_QUERY_CHARS} are read.",
            pointer="/query",
        )
    return query


def moment(seconds: int | None, pointer: str) -> datetime | None:
    """Return a time in seconds since 1970 as a date; raises ``invalid_request`` beyond the year 9999."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise StrataError(INVALID_REQUEST, f"{seconds} lies outside the calendar.", pointer=pointer) from error


def cosine_floor(asked: float | None, context: ContextRow) -> float:
    """Return the floor of the vector lane: the call's, else the context's, else 0.35."""
    if asked is not None:
        return asked
    return DEFAULT_COSINE_FLOOR if context.semantic_floor is None else context.semantic_floor


def _above(hits: Sequence[Hit], floor: float) -> list[Hit]:
    """Drop what the vector lane nominated below the floor, and that lane's place of what words found too."""
    kept = []
    for hit in hits:
        vector = place_in(hit, VECTOR)
        # What a second hop found is near the longer question, not the one that was asked.
        if vector is None or vector.score >= floor or place_in(hit, HOP) is not None:
            kept.append(hit)
        elif place_in(hit, LEXICAL) is not None:
            places = tuple(place for place in hit.places if place.lane != VECTOR)
            kept.append(Hit(hit.context, hit.passage, places, hit.relevance, hit.reasons))
    return kept


def place_in(hit: Hit, lane: str) -> LaneRank | None:
    """Return the place of a hit in a lane."""
    return next((place for place in hit.places if place.lane == lane), None)


def score_of(hit: Hit) -> float:
    """Return the score that orders hits: the fused one where there is one."""
    place = place_in(hit, HYBRID) or place_in(hit, LEXICAL) or place_in(hit, VECTOR)
    return place.score if place else 0.0
