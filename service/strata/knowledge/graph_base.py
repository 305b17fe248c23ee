"""What every read of a graph does: find the context, take its graph at one revision, show facts with their sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TypeVar
from uuid import UUID

import numpy as np
from msgspec import UNSET

from strata.errors import INVALID_REQUEST, OVER_LIMIT, StrataError
from strata.graph.model import EdgeRows, Floats, Graph
from strata.graph.vocabulary import Ints, Namespace
from strata.knowledge import graph_repository as repository
from strata.knowledge.graph_cache import DEFAULT_BYTES, GraphCache
from strata.knowledge.graph_checks import problem_of_name
from strata.knowledge.graph_model import AttributionRow
from strata.knowledge.graph_schemas import AssociationOut, AttributionOut, IntervalOut, LocatorOut
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.platform.database import Connection, Database

MAX_LIST = 1_000
"""Longest list and largest limit of a read."""

_SMALL_GRAPH = 2_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """A context's graph as one unit of work sees it; in a time window where one was asked for."""

    connection: Connection
    tenant: UUID
    row: ContextRow
    graph: Graph
    since: int | None = None
    until: int | None = None
    tags: Sequence[str] = ()

    async def shown(self, positions: Sequence[int] | Ints) -> list[AssociationOut]:
        """Return associations with who states them, in the order asked for."""
        edges = list(self.graph.edges(positions))
        rows = await repository.attributions(
            self.connection,
            self.tenant,
            self.row.context_id,
            [edge.id for edge in edges],
            since=self.since,
            until=self.until,
            tags=self.tags,
        )
        stated = {
            association: _attributions(group) for association, group in groupby(rows, attrgetter("association_id"))
        }
        return [
            AssociationOut(
                subject=edge.subject,
                label=edge.label,
                object=edge.object,
                weight=edge.weight,
                count=edge.count,
                attributions=stated.get(edge.id, []),
            )
            for edge in edges
        ]


class GraphBase:
    """Holds the graphs of contexts in memory, each read in the snapshot that asks for it."""

    def __init__(self, database: Database, contexts: ContextService, *, cache_bytes: int = DEFAULT_BYTES) -> None:
        self._database = database
        self._contexts = contexts
        self._cache = GraphCache(cache_bytes)

    async def graph(self, connection: Connection, tenant: UUID, row: ContextRow) -> Graph:
        """Return a context's graph; ``row`` was read in the same snapshot (``work(snapshot=True)``)."""

        async def load() -> Graph:
            arguments = connection, tenant, row.context_id
            concepts = await repository.concepts(*arguments)
            labels = await repository.labels(*arguments)
            of_concepts = await repository.aliases(*arguments, Namespace.CONCEPT)
            of_labels = await repository.aliases(*arguments, Namespace.LABEL)
            edges = await repository.edges(*arguments)
            size = sum(len(rows.ids or b"") // 8 for rows in (concepts, labels, of_concepts, of_labels))
            return await away(size, _built, row.graph_revision, concepts, labels, of_concepts, of_labels, edges)

        return await self._cache.get(tenant, row.context_id, row.graph_revision, load)

    async def reading(
        self,
        connection: Connection,
        tenant: UUID,
        row: ContextRow,
        *,
        since: int | None = None,
        until: int | None = None,
        tags: Sequence[str] = (),
    ) -> Reading:
        """Return a context's graph to read inside a unit of work that is a snapshot.

        A window weighs each association anew by the sources whose time is within it, and leaves the others out.
        """
        reading = Reading(connection, tenant, row, await self.graph(connection, tenant, row))
        if since is None and until is None and not tags:
            return reading
        windowed = await repository.in_window(connection, tenant, row.context_id, since=since, until=until, tags=tags)
        graph = await away(reading.graph.edge_count, _weighed, reading.graph, *windowed)
        return replace(reading, graph=graph, since=since, until=until, tags=tags)

    def _snapshot(self, tenant: UUID) -> AbstractAsyncContextManager[Connection]:
        # As in writes: planned without its values, a statement does not depend on what is known of its context.
        return self._database.work(tenant, snapshot=True, local={"plan_cache_mode": "force_generic_plan"})

    @asynccontextmanager
    async def _read(
        self, tenant: UUID, ref: str, *, since: int | None = None, until: int | None = None
    ) -> AsyncIterator[Reading]:
        async with self._snapshot(tenant) as connection:
            row = await self._contexts.resolve(connection, tenant, ref)
            yield await self.reading(connection, tenant, row, since=since, until=until)


def _built(  # noqa: PLR0917 - what a graph is made of
    revision: int,
    concepts: repository.NameRows,
    labels: repository.NameRows,
    of_concepts: repository.NameRows,
    of_labels: repository.NameRows,
    edges: EdgeRows,
) -> Graph:
    aliases = [(Namespace.CONCEPT, alias, target) for target, alias in of_concepts.pairs()]
    aliases += [(Namespace.LABEL, alias, target) for target, alias in of_labels.pairs()]
    graph = Graph.build(revision, concepts.pairs(), labels.pairs(), aliases, edges)
    _ = graph.footprint_bytes  # counted here, where it holds nobody up
    return graph


def _weighed(graph: Graph, ids: Ints, weights: Floats, counts: Ints) -> Graph:
    places = np.searchsorted(graph.topology.ids, ids)
    sums, numbers = np.zeros(graph.edge_count), np.zeros(graph.edge_count, dtype=np.int64)
    sums[places], numbers[places] = weights, counts
    return graph.with_weights(sums, numbers)


async def away(size: int, work: Callable[..., T], *args: object) -> T:
    """Do work that grows with a graph in a thread where it would hold the event loop for long."""
    return await asyncio.to_thread(work, *args) if size > _SMALL_GRAPH else work(*args)


def _attributions(rows: Iterable[AttributionRow]) -> list[AttributionOut]:
    return [_attribution(list(group)) for _, group in groupby(rows, attrgetter("source"))]


def _attribution(rows: Sequence[AttributionRow]) -> AttributionOut:
    """Add up what one source states; its paragraph is the first that it named."""
    located = next((row for row in rows if row.paragraph is not None), rows[0])
    intervals = [
        IntervalOut(valid_from=row.valid_from, valid_until=row.valid_until, weight=row.weight, count=row.count)
        for row in rows
        if row.valid_from is not None or row.valid_until is not None
    ]
    intervals.sort(key=lambda item: (item.valid_from is not None, item.valid_from or 0, item.valid_until or 0))
    weight = 0.0
    for row in rows:
        weight += row.weight
    return AttributionOut(
        source=located.source,
        weight=weight,
        count=sum(row.count for row in rows),
        paragraph=located.paragraph,
        section=located.section,
        locator=(
            None
            if located.locator_kind is None
            else LocatorOut(kind=located.locator_kind, value=located.locator_value or "")
        ),
        intervals=intervals or UNSET,
    )


def listed(value: str | Sequence[str], pointer: str) -> list[str]:
    """Return names given as one or several; raises ``over_limit`` for more than 1,000."""
    names = [value] if isinstance(value, str) else list(value)
    if len(names) > MAX_LIST:
        raise StrataError(OVER_LIMIT, f"At most {MAX_LIST:,} names; this has {len(names):,}.", pointer=pointer)
    return names


def limited(value: int | None, default: int, most: int = MAX_LIST, pointer: str = "/limit") -> int:
    """Return a limit; raises ``over_limit`` for one above ``most``, ``invalid_request`` for a negative one."""
    limit = default if value is None else value
    if limit < 0:
        raise StrataError(INVALID_REQUEST, "A limit is 0 or more.", pointer=pointer)
    if limit > most:
        raise StrataError(OVER_LIMIT, f"A limit is at most {most:,}; this is {limit:,}.", pointer=pointer)
    return limit


def one_name(value: str, pointer: str) -> str:
    """Return a cue or a name; raises ``invalid_request`` for one that cannot be one."""
    problem = problem_of_name(value)
    if problem:
        raise StrataError(INVALID_REQUEST, f"Expected {problem[1]}, got {problem[2]}.", pointer=pointer)
    return value
