"""Reads over several contexts in one rank."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt

from strata.graph import match
from strata.graph.vocabulary import Ints
from strata.knowledge.graph_base import Reading, away, limited, one_name
from strata.knowledge.graph_matching import DEFAULT_MATCHES, GraphMatching, Names, parts, type_filters
from strata.knowledge.graph_schemas import (
    AssociationOut,
    CrossAssociationOut,
    CrossMatchCursor,
    CrossMatchPage,
    MatchPlan,
)
from strata.knowledge.groups import GroupService

Find = Callable[[Reading], Awaitable[Ints]]


class GraphAcross(GraphMatching):
    """One question put to several contexts, named or in groups."""

    async def query_across(
        self,
        tenant: UUID,
        *,
        contexts: Sequence[str] = (),
        groups: Sequence[str] = (),
        subject: Names | None = None,
        label: Names | None = None,
        object: Names | None = None,  # noqa: A002 - the wire's word
        subject_types: Names | None = None,
        object_types: Names | None = None,
        limit: int | None = None,
        after: CrossMatchCursor | None = None,
    ) -> CrossMatchPage:
        """Put one query to several contexts; equal weights go by context, subject, label, object."""
        wanted, types = parts(subject, label, object), type_filters(subject_types, object_types)

        async def find(reading: Reading) -> Ints:
            return await self.matching(reading, wanted, types)

        return await self._across(tenant, contexts, groups, find, limit=limit, after=after)

    async def recall_across(
        self,
        tenant: UUID,
        cue: str,
        *,
        contexts: Sequence[str] = (),
        groups: Sequence[str] = (),
        limit: int | None = None,
        after: CrossMatchCursor | None = None,
    ) -> CrossMatchPage:
        """Recall one cue in several contexts; equal weights go by context, subject, label, object."""
        one_name(cue, "/cue")

        async def find(reading: Reading) -> Ints:
            return await away(reading.graph.edge_count, match.recall, reading.graph, cue)

        return await self._across(tenant, contexts, groups, find, limit=limit, after=after)

    async def _across(
        self,
        tenant: UUID,
        contexts: Sequence[str],
        groups: Sequence[str],
        find: Find,
        *,
        limit: int | None,
        after: CrossMatchCursor | None,
    ) -> CrossMatchPage:
        most = limited(limit, DEFAULT_MATCHES)
        best: list[tuple[float, str, int, Reading, int]] = []
        total = 0
        async with self._snapshot(tenant) as connection:
            rows = await GroupService(self._database, self._contexts).expand(connection, tenant, contexts, groups)
            for row in rows:
                reading = await self.reading(connection, tenant, row)
                positions = await find(reading)
                total += len(positions)
                self._contexts.count_read(tenant, row.context_id, is_empty=not len(positions))
                positions = _after(reading, positions, after)[:most]
                sizes = np.abs(reading.graph.averages[positions])
                best += [
                    (-size, row.name, place, reading, position)
                    for place, (size, position) in enumerate(zip(sizes.tolist(), positions.tolist(), strict=True))
                ]
            best = sorted(best, key=lambda item: item[:3])[:most]
            facts = await _shown(best)
        return CrossMatchPage(total=total, matches=facts, plan=MatchPlan(contexts=[row.name for row in rows]))


def _after(reading: Reading, positions: Ints, after: CrossMatchCursor | None) -> Ints:
    """Return what follows the cursor: among equal weights, contexts go by name."""
    if after is None:
        return positions
    if reading.row.name == after.context:
        return match.after(
            reading.graph, positions, weight=after.weight, subject=after.subject, label=after.label, object=after.object
        )
    sizes = np.abs(reading.graph.averages[positions])
    is_later = reading.row.name > after.context
    follows: npt.NDArray[np.bool_] = (sizes < abs(after.weight)) | ((sizes == abs(after.weight)) & is_later)
    return positions[follows]


async def _shown(best: Sequence[tuple[float, str, int, Reading, int]]) -> list[CrossAssociationOut]:
    """Return the facts in the order given, reading those of each context at once."""
    readings = {reading.row.context_id: reading for _, _, _, reading, _ in best}
    shown: dict[tuple[UUID, int], AssociationOut] = {}
    for context, reading in readings.items():
        own = [position for _, _, _, of, position in best if of is reading]
        shown.update(((context, position), fact) for position, fact in zip(own, await reading.shown(own), strict=True))
    return [
        CrossAssociationOut(**msgspec.structs.asdict(shown[reading.row.context_id, position]), context=reading.row.name)
        for _, _, _, reading, position in best
    ]
