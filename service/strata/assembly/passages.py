"""Passages by search and by citation, as the contexts API and the tools show them (snake_case)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from strata.assembly.nominate import citation_out, passage_out
from strata.assembly.schemas import CitationOut, PassageOut
from strata.errors import PARAGRAPH_NOT_FOUND, SOURCE_NOT_FOUND, StrataError
from strata.knowledge.groups import GroupService
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.lookup.search import Found, PassageQuery, SearchService
from strata.platform.database import Connection, Database
from strata.sources.text_service import TextService
from strata.traces.schemas import LaneTrace


class LaneOut(Struct, frozen=True, kw_only=True):
    """Whether a lane ran, and why not; ``floor`` is the least cosine of the vector lane."""

    ran: bool
    reason: str | UnsetType = UNSET
    floor: float | UnsetType = UNSET


class SearchLanesOut(Struct, frozen=True, kw_only=True):
    """The two lanes of a search."""

    bm25: LaneOut
    vector: LaneOut


class FilterOut(Struct, frozen=True, kw_only=True):
    """How many sources a filter left."""

    eligible_sources: int
    total_sources: int


class SearchedOut(Struct, frozen=True, kw_only=True):
    """What a search did in one context."""

    context: str
    lanes: SearchLanesOut
    filter: FilterOut | UnsetType = UNSET


class SearchPlanOut(Struct, frozen=True, kw_only=True):
    """What a search did, context by context."""

    contexts: list[SearchedOut]


class HitsOut(Struct, frozen=True, kw_only=True):
    """Paragraphs found, best first."""

    plan: SearchPlanOut
    hits: list[PassageOut]


class PassageService:
    """Searches contexts and cites paragraphs, each call in one snapshot."""

    def __init__(
        self,
        database: Database,
        contexts: ContextService,
        groups: GroupService,
        texts: TextService,
        search: SearchService,
    ) -> None:
        self._database = database
        self._contexts = contexts
        self._groups = groups
        self._texts = texts
        self._search = search

    async def search(self, tenant: UUID, ref: str, query: PassageQuery) -> HitsOut:
        """Return the paragraphs of one context that fit a query, best first."""

        async def rows(connection: Connection) -> Sequence[ContextRow]:
            return [await self._contexts.resolve(connection, tenant, ref)]

        return await self._searched(tenant, query, rows, is_across=False)

    async def search_across(
        self, tenant: UUID, refs: Sequence[str], groups: Sequence[str], query: PassageQuery
    ) -> HitsOut:
        """Return the paragraphs of contexts and groups of them: the best of each, then the second of each, and on."""

        async def rows(connection: Connection) -> Sequence[ContextRow]:
            return await self._groups.expand(connection, tenant, refs, groups)

        return await self._searched(tenant, query, rows, is_across=True)

    async def _searched(
        self,
        tenant: UUID,
        query: PassageQuery,
        rows_of: Callable[[Connection], Awaitable[Sequence[ContextRow]]],
        *,
        is_across: bool,
    ) -> HitsOut:
        question = self._search.question(tenant, query.text)
        if query.text and query.limit:
            await question.foresee()
        async with self._database.work(tenant, snapshot=True, local=self._search.local) as connection:
            rows = await rows_of(connection)
            found = [await self._search.find(connection, tenant, row, query, question) for row in rows]
        for one in found:
            self._contexts.count_read(tenant, one.context.context_id, is_empty=not one.hits)
        shown = [[passage_out(hit, one.context.name if is_across else None) for hit in one.hits] for one in found]
        hits = [hit for rank in zip_longest(*shown) for hit in rank if hit is not None][: query.limit]
        return HitsOut(plan=SearchPlanOut(contexts=[searched(one, one.context.name) for one in found]), hits=hits)

    async def cite(self, tenant: UUID, ref: str, source: str, paragraph: int) -> CitationOut:
        """Return one paragraph, word for word; raises ``source_not_found`` and ``paragraph_not_found``."""
        async with self._database.work(tenant, snapshot=True) as connection:
            row = await self._contexts.resolve(connection, tenant, ref)
            found = await self._texts.cite(connection, tenant, row.context_id, [(source, paragraph)])
        if found.no_source:
            raise StrataError(SOURCE_NOT_FOUND, "The context holds no text under this source.", pointer="/source")
        if found.no_paragraph:
            raise StrataError(PARAGRAPH_NOT_FOUND, f"The source has no paragraph {paragraph}.", pointer="/paragraph")
        return citation_out(source, found.found[source, paragraph])


def searched(found: Found, name: str) -> SearchedOut:
    """Return what a search did in one context."""
    narrowed: FilterOut | UnsetType = UNSET
    if found.eligible is not None and found.sources is not None:
        narrowed = FilterOut(eligible_sources=found.eligible, total_sources=found.sources)
    lanes = SearchLanesOut(bm25=_lane(found.lexical), vector=_lane(found.vector, found.floor))
    return SearchedOut(context=name, lanes=lanes, filter=narrowed)


def _lane(trace: LaneTrace, floor: float | None = None) -> LaneOut:
    if trace.ran:
        return LaneOut(ran=True, floor=UNSET if floor is None else floor)
    return LaneOut(ran=False, reason=trace.reason or UNSET)
