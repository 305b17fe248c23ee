"""The change feed of a context, and what its graph holds."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from uuid import UUID

from strata.errors import INVALID_REQUEST, STALE_CURSOR, StrataError
from strata.knowledge import graph_repository as repository
from strata.knowledge import stats_repository
from strata.knowledge.graph_base import GraphBase, limited
from strata.knowledge.graph_cache import DEFAULT_BYTES
from strata.knowledge.graph_schemas import ChangeOut, ChangesPage, ContextStatsOut
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.platform.database import Connection, Database

_CURSOR = re.compile(r"cf1-([0-9a-f]{16})-([0-9]{1,18})")
_STATS_KEPT = 4_096


class GraphChanges(GraphBase):
    """What happened to a context, and how much it holds."""

    def __init__(self, database: Database, contexts: ContextService, *, cache_bytes: int = DEFAULT_BYTES) -> None:
        super().__init__(database, contexts, cache_bytes=cache_bytes)
        self._stats: OrderedDict[tuple[UUID, UUID, int, int], ContextStatsOut] = OrderedDict()

    async def changes(
        self, tenant: UUID, ref: str, *, since: str | None = None, limit: int | None = None
    ) -> ChangesPage:
        """Return the events past a position, oldest first; without one, the position to follow from.

        Raises ``stale_cursor`` for a position that this context never gave, ``invalid_request`` for what is none.
        """
        most = limited(limit, 100, pointer="?limit")
        async with self._snapshot(tenant) as connection:
            row = await self._contexts.resolve(connection, tenant, ref)
            last = await repository.last_change(connection, tenant, row.context_id)
            if since is None:
                return ChangesPage(events=[], next=_cursor(row.context_id, last), more=False)
            start = _position(since, row.context_id, last)
            found = await repository.changes(connection, tenant, row.context_id, start, most)
        events = [ChangeOut(seq=seq, kind=kind, **payload) for seq, kind, payload in found]
        reached = events[-1].seq if events else start
        return ChangesPage(events=events, next=_cursor(row.context_id, reached), more=reached < last)

    async def stats(self, tenant: UUID, ref: str) -> ContextStatsOut:
        """Return what a context's graph holds."""
        async with self._snapshot(tenant) as connection:
            row = await self._contexts.resolve(connection, tenant, ref)
            return (await self.stats_of(connection, tenant, [row]))[row.context_id]

    async def stats_of(
        self, connection: Connection, tenant: UUID, rows: Sequence[ContextRow]
    ) -> dict[UUID, ContextStatsOut]:
        """Return what the graphs of contexts hold, in a unit of work of its own; counted once for each revision."""
        keys = {row.context_id: (tenant, row.context_id, row.graph_revision, row.passages_revision) for row in rows}
        # Taken before anything is awaited: what is counted meanwhile may take the place of these.
        found = {context: self._stats[key] for context, key in keys.items() if key in self._stats}
        missing = [context for context in keys if context not in found]
        if missing:
            found.update(await stats_repository.stats(connection, tenant, missing))
        self._stats.update((keys[context], stats) for context, stats in found.items())
        while len(self._stats) > _STATS_KEPT:
            self._stats.popitem(last=False)
        return found


def _cursor(context: UUID, position: int) -> str:
    return f"cf1-{context.hex[16:]}-{position}"


def _position(cursor: str, context: UUID, last: int) -> int:
    shape = _CURSOR.fullmatch(cursor)
    if shape is None:
        raise StrataError(INVALID_REQUEST, "since is the next of an earlier page.", pointer="?since")
    position = int(shape[2])
    if shape[1] != context.hex[16:] or position > last:
        raise StrataError(STALE_CURSOR, "The position is not one of this context's change feed.", pointer="?since")
    return position
