"""Reads that match and walk: query, recall, describe, activate, explore, paths, unreachable_from."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec import UNSET

from strata.graph import match, schema, traverse
from strata.graph.model import Graph
from strata.graph.vocabulary import Ints
from strata.knowledge import graph_repository as repository
from strata.knowledge.graph_base import GraphBase, Reading, away, limited, listed, one_name
from strata.knowledge.graph_schemas import (
    ActivationOut,
    ActivationPage,
    DescriptionOut,
    ExploreCursor,
    ExplorePage,
    LabelCountOut,
    MatchCursor,
    MatchPage,
    MatchPlan,
    PathsPage,
    RecollectionOut,
    TrailOut,
)

DEFAULT_MATCHES = 100
MAX_PATHS = 100

Names = str | Sequence[str]


class GraphMatching(GraphBase):
    """Facts by their parts, and by walking from concepts."""

    async def query(
        self,
        tenant: UUID,
        ref: str,
        *,
        subject: Names | None = None,
        label: Names | None = None,
        object: Names | None = None,  # noqa: A002 - the wire's word
        subject_types: Names | None = None,
        object_types: Names | None = None,
        limit: int | None = None,
        after: MatchCursor | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> MatchPage:
        """Return the facts whose parts are among the names given (exactly, or by an alias), the weightiest first."""
        most = limited(limit, DEFAULT_MATCHES)
        wanted = parts(subject, label, object)
        types = type_filters(subject_types, object_types)
        async with self._read(tenant, ref, since=since, until=until) as reading:
            positions = await self.matching(reading, wanted, types)
            page = await _page(reading, positions, after, most, is_search=True)
        self._contexts.count_read(tenant, reading.row.context_id, is_empty=not page.total)
        return page

    async def recall(
        self,
        tenant: UUID,
        ref: str,
        cue: str,
        *,
        limit: int | None = None,
        after: MatchCursor | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> MatchPage:
        """Return every fact at the concept, or under the label, that the cue names, the weightiest first."""
        most = limited(limit, DEFAULT_MATCHES)
        one_name(cue, "/cue")
        async with self._read(tenant, ref, since=since, until=until) as reading:
            positions = await away(reading.graph.edge_count, match.recall, reading.graph, cue)
            page = await _page(reading, positions, after, most, is_search=True)
        self._contexts.count_read(tenant, reading.row.context_id, is_empty=not page.total)
        return page

    async def describe(self, tenant: UUID, ref: str, concept: str) -> DescriptionOut | None:
        """Return how many facts of each label a concept has in each role; None for an unknown one."""
        one_name(concept, "/concept")
        async with self._read(tenant, ref) as reading:
            outline = await away(reading.graph.edge_count, match.describe, reading.graph, concept)
        self._contexts.count_read(tenant, reading.row.context_id, is_empty=outline is None)
        if outline is None:
            return None
        return DescriptionOut(
            concept=outline.concept,
            as_subject=label_counts(outline.as_subject),
            as_object=label_counts(outline.as_object),
            types=list(outline.types) or UNSET,
        )

    async def activate(
        self,
        tenant: UUID,
        ref: str,
        origins: Names,
        *,
        decay: float | None = None,
        limit: int | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> ActivationPage:
        """Spread activation from concepts; return the facts it reaches, the strongest first."""
        names, most = listed(origins, "/origins"), limited(limit, 20)
        async with self._read(tenant, ref, since=since, until=until) as reading:
            found = await away(
                reading.graph.edge_count,
                lambda: traverse.activate(reading.graph, names, decay=0.5 if decay is None else decay, limit=most),
            )
            facts = await reading.shown([item.position for item in found.matches])
        self._contexts.count_read(tenant, reading.row.context_id, is_empty=not found.total)
        matches = [
            ActivationOut(strength=item.strength, path=list(item.path), association=fact)
            for item, fact in zip(found.matches, facts, strict=True)
        ]
        return ActivationPage(total=found.total, matches=matches)

    async def explore(
        self,
        tenant: UUID,
        ref: str,
        origins: Names,
        *,
        max_depth: int | None = None,
        limit: int | None = None,
        after: ExploreCursor | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> ExplorePage:
        """Walk outwards from concepts; return the facts met, the nearest first."""
        names, most = listed(origins, "/origins"), limited(limit, DEFAULT_MATCHES)
        depth = limited(max_depth, traverse.MAX_DEPTH, traverse.MAX_DEPTH, "/max_depth")
        async with self._read(tenant, ref, since=since, until=until) as reading:
            graph = reading.graph
            found = await away(graph.edge_count, lambda: traverse.explore(graph, names, max_depth=depth))
            start = (
                0
                if after is None
                else found.after(distance=after.distance, subject=after.subject, label=after.label, object=after.object)
            )
            page = found[start : start + most]
            facts = await reading.shown([item.position for item in page])
        self._contexts.count_read(tenant, reading.row.context_id, is_empty=not found.total)
        matches = [
            RecollectionOut(distance=item.distance, path=list(item.path), association=fact)
            for item, fact in zip(page, facts, strict=True)
        ]
        return ExplorePage(total=found.total, matches=matches)

    async def paths(
        self,
        tenant: UUID,
        ref: str,
        origins: Names,
        targets: Names,
        *,
        max_depth: int | None = None,
        limit: int | None = None,
    ) -> PathsPage:
        """Return the simple paths between two sets of concepts, the shortest first."""
        starts, ends = listed(origins, "/origins"), listed(targets, "/targets")
        most = limited(limit, traverse.PATH_LIMIT, MAX_PATHS)
        depth = limited(max_depth, traverse.MAX_DEPTH, traverse.MAX_DEPTH, "/max_depth")
        async with self._read(tenant, ref) as reading:
            graph = reading.graph
            # The enumeration looks at up to 100,000 edges, in however small a graph.
            found = await away(10**9, lambda: traverse.paths(graph, starts, ends, max_depth=depth, limit=most))
            walked = list(dict.fromkeys(position for trail in found.matches for position in trail.positions))
            facts = dict(zip(walked, await reading.shown(walked), strict=True))
        self._contexts.count_read(tenant, reading.row.context_id, is_empty=not found.total)
        matches = [
            TrailOut(
                distance=trail.distance,
                path=list(trail.path),
                strength=trail.strength,
                associations=[facts[position] for position in trail.positions],
            )
            for trail in found.matches
        ]
        return PathsPage(total=found.total, capped=found.capped, matches=matches)

    async def unreachable_from(
        self, tenant: UUID, ref: str, origins: Names, *, limit: int | None = None, after: MatchCursor | None = None
    ) -> MatchPage:
        """Return the facts that no walk from the concepts meets."""
        names, most = listed(origins, "/origins"), limited(limit, DEFAULT_MATCHES)
        async with self._read(tenant, ref) as reading:
            positions = await away(reading.graph.edge_count, traverse.unreachable, reading.graph, names)
            page = await _page(reading, positions, after, most, is_search=False)
        self._contexts.count_read(tenant, reading.row.context_id, is_empty=not page.total)
        return page

    async def matching(
        self,
        reading: Reading,
        wanted: tuple[list[str] | None, list[str] | None, list[str] | None],
        types: tuple[list[str] | None, list[str] | None] = (None, None),
    ) -> Ints:
        """Return the positions of the facts whose subject, label and object are wanted, ranked."""
        subjects, objects = None, None
        if types != (None, None):
            subjects, objects = await self._typed(reading, types)
        return await away(reading.graph.edge_count, _matching, reading.graph, wanted, subjects, objects)

    async def _typed(
        self, reading: Reading, types: tuple[list[str] | None, list[str] | None]
    ) -> tuple[list[str] | None, list[str] | None]:
        """Return the concepts of the types asked for, by their schema; none where the context has no schema."""
        stored = await repository.schema(reading.connection, reading.tenant, reading.row.context_id)
        document = None if stored is None else schema.parse(stored[1])
        found = [
            None
            if wanted is None
            else await away(reading.graph.edge_count, schema.concepts_of_types, reading.graph, document, wanted)
            for wanted in types
        ]
        return found[0], found[1]


def _matching(
    graph: Graph,
    wanted: tuple[list[str] | None, list[str] | None, list[str] | None],
    subjects: list[str] | None,
    objects: list[str] | None,
) -> Ints:
    return match.query(
        graph, subjects=wanted[0], labels=wanted[1], objects=wanted[2], subject_names=subjects, object_names=objects
    )


async def _page(
    reading: Reading, positions: Ints, after: MatchCursor | None, limit: int, *, is_search: bool
) -> MatchPage:
    total = len(positions)
    if after is not None:
        positions = match.after(
            reading.graph,
            positions,
            weight=after.weight,
            subject=after.subject,
            label=after.label,
            object=after.object,
        )
    return MatchPage(
        total=total,
        matches=await reading.shown(positions[:limit]),
        plan=MatchPlan(contexts=[reading.row.name]) if is_search else UNSET,
    )


def parts(
    subject: Names | None, label: Names | None, object_: Names | None
) -> tuple[list[str] | None, list[str] | None, list[str] | None]:
    """Return the names wanted at each position, None where any will do."""
    return (
        None if subject is None else listed(subject, "/subject"),
        None if label is None else listed(label, "/label"),
        None if object_ is None else listed(object_, "/object"),
    )


def type_filters(subject_types: Names | None, object_types: Names | None) -> tuple[list[str] | None, list[str] | None]:
    """Return the types wanted at each end; an empty list is no filter."""
    return (
        (listed(subject_types, "/subject_types") or None) if subject_types is not None else None,
        (listed(object_types, "/object_types") or None) if object_types is not None else None,
    )


def label_counts(counts: Sequence[match.LabelCount]) -> list[LabelCountOut]:
    """Return counts as they are sent."""
    return [LabelCountOut(label=item.label, count=item.count) for item in counts]
