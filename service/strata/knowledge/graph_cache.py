"""Graphs of contexts in memory, bounded in bytes, each at one revision."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from uuid import UUID

from strata.graph.model import Graph

DEFAULT_BYTES = 512 * 1024 * 1024

# What Python's objects and the indexes made on first use add to the columns and the text, measured.
_BYTES_PER_NAME = 220
_BYTES_PER_EDGE = 40

Key = tuple[UUID, UUID, int]


class GraphCache:
    """The graphs asked for last. Callers at one moment share one load; a newer revision takes an older one's place."""

    def __init__(self, capacity_bytes: int = DEFAULT_BYTES) -> None:
        self._capacity = capacity_bytes
        self._graphs: OrderedDict[Key, tuple[Graph, int]] = OrderedDict()
        self._loading: dict[Key, asyncio.Future[Graph | None]] = {}
        self.size_bytes = 0

    async def get(self, tenant: UUID, context: UUID, revision: int, load: Callable[[], Awaitable[Graph]]) -> Graph:
        """Return the graph at a revision, loading it where it is not held; what ``load`` raises is its caller's."""
        key = tenant, context, revision
        while True:
            held = self._graphs.get(key)
            if held is not None:
                self._graphs.move_to_end(key)
                return held[0]
            others = self._loading.get(key)
            if others is None:
                return await self._load(key, load)
            await asyncio.wait((others,))
            shared = others.result()
            if shared is not None:
                return shared

    async def _load(self, key: Key, load: Callable[[], Awaitable[Graph]]) -> Graph:
        loading = self._loading[key] = asyncio.get_running_loop().create_future()
        graph: Graph | None = None
        try:
            graph = await load()
            self._keep(key, graph)
            return graph
        finally:
            del self._loading[key]
            loading.set_result(graph)

    def _keep(self, key: Key, graph: Graph) -> None:
        for other in [held for held in self._graphs if held[:2] == key[:2]]:
            if other[2] > key[2]:
                return  # a reader of an older state: what is newer stays
            self._drop(other)
        size = _size(graph)
        if size > self._capacity:
            return
        self._graphs[key] = graph, size
        self.size_bytes += size
        while self.size_bytes > self._capacity:
            self._drop(next(iter(self._graphs)))

    def _drop(self, key: Key) -> None:
        self.size_bytes -= self._graphs.pop(key)[1]


def _size(graph: Graph) -> int:
    names = (
        len(graph.concepts.names) + len(graph.labels.names) + len(graph.concepts.aliases) + len(graph.labels.aliases)
    )
    return graph.footprint_bytes + names * _BYTES_PER_NAME + graph.edge_count * _BYTES_PER_EDGE
