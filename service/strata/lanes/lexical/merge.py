"""Background merging: few, large segments, and no byte of a deleted passage for long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from strata.lanes.lexical import repository
from strata.lanes.lexical.repository import SegmentInfo
from strata.lanes.lexical.segment import SEGMENT_PASSAGES, Mask, Merged, merge_segments
from strata.platform.database import Connection, Database
from strata.text.tokenise import ANALYSER_VERSION

FAN_IN = 8
"""How many segments of a tier are merged into one of the next; a tier is this many times larger."""

DEAD_SHARE = 0.2
"""A segment with a larger share of dead passages is written anew without them."""

_FIRST_TIER_PASSAGES = 64
_TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What one call did: how many segments were replaced, by how many, and how many dead passages were dropped.

    ``busy`` tells that another process was merging the context, so that nothing was tried.
    """

    replaced: int = 0
    written: int = 0
    dropped_passages: int = 0
    busy: bool = False


def plan_merges(segments: Sequence[SegmentInfo], *, purge: bool = False) -> list[list[int]]:
    """Choose the groups of segments to merge next; a segment is in at most one group.

    Eight segments of a tier (by live passages, each tier eight times larger) become one, smallest first,
    as far as 65,536 passages hold them. A segment with over a fifth dead, or under ``purge`` with any
    dead, is rewritten alone unless it is merged anyway. Segments of another analyser are not merged:
    what they hold alive is to be ingested again. They too are rewritten alone under ``purge``, and
    dropped once nothing in them is live.
    """
    current = [segment for segment in segments if segment.analyser == ANALYSER_VERSION]
    tiers: dict[int, list[SegmentInfo]] = {}
    for segment in current:
        tiers.setdefault(_tier(segment.live), []).append(segment)
    groups: list[list[int]] = []
    for _, members in sorted(tiers.items()):
        members.sort(key=lambda segment: (segment.live, segment.segment_id))
        groups.extend(_tier_groups(members))
    chosen = {segment_id for group in groups for segment_id in group}
    groups.extend(
        [segment.segment_id]
        for segment in segments
        if segment.segment_id not in chosen and _is_rewritten(segment, purge=purge)
    )
    return [sorted(group) for group in groups]


def _is_rewritten(segment: SegmentInfo, *, purge: bool) -> bool:
    if purge or segment.live <= 0:
        return segment.dead_count > 0
    return segment.analyser == ANALYSER_VERSION and segment.dead_count > segment.passages * DEAD_SHARE


def _tier(passages: int) -> int:
    tier, limit = 0, _FIRST_TIER_PASSAGES
    while passages >= limit and limit * FAN_IN <= SEGMENT_PASSAGES:
        tier, limit = tier + 1, limit * FAN_IN
    return tier if passages < limit else tier + 1


def _tier_groups(members: Sequence[SegmentInfo]) -> list[list[int]]:
    groups: list[list[int]] = []
    at = 0
    while len(members) - at >= FAN_IN:
        group: list[int] = []
        total = 0
        while at < len(members) and total + members[at].live <= SEGMENT_PASSAGES:
            group.append(members[at].segment_id)
            total += members[at].live
            at += 1
        if len(group) < 2:
            break
        groups.append(group)
    return groups


async def needs_merge(connection: Connection, tenant: UUID, context: UUID, *, purge: bool = False) -> bool:
    """Tell whether :func:`merge_context` would find something to do."""
    return bool(plan_merges(await repository.list_segments(connection, tenant, context), purge=purge))


async def merge_context(database: Database, tenant: UUID, context: UUID, *, purge: bool = False) -> MergeReport:
    """Merge the segments of a context until none need it; one unit of work a merge.

    ``purge`` also rewrites every segment that holds a dead passage. Safe beside ingests, deletions and
    searches: what dies during a merge is dead in its result, and readers keep the old segments until they end.
    """
    report = MergeReport()
    while True:
        async with database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
            if not await repository.claim_merge(connection, tenant, context):
                return MergeReport(report.replaced, report.written, report.dropped_passages, busy=True)
            segments = await repository.list_segments(connection, tenant, context)
            groups = plan_merges(segments, purge=purge)
            if not groups:
                return report
            analyser = next(segment.analyser for segment in segments if segment.segment_id == groups[0][0])
            written, dropped = await _merge_group(connection, tenant, context, groups[0], analyser)
        report = MergeReport(
            report.replaced + len(groups[0]), report.written + written, report.dropped_passages + dropped
        )


async def _merge_group(
    connection: Connection, tenant: UUID, context: UUID, group: Sequence[int], analyser: int
) -> tuple[int, int]:
    """Replace a group by one segment; return how many were written (0 when none is live) and dead ones dropped.

    All of a group are of one ``analyser``, and so is the result.

    The work is done on what is read without locks; the locks come last and are held for the swap alone, when
    passages that died since are marked in the result.
    """
    arrays = await repository.read_arrays(connection, tenant, context, group)
    if len(arrays) < len(group):  # the context is being deleted
        return 0, 0
    parts = [(await repository.read_segment(connection, tenant, context, arrays[at]), arrays[at].dead) for at in group]
    merged = await asyncio.to_thread(merge_segments, parts)
    written: int | None = None
    if len(merged.data.passage_ids):
        written = await repository.add_segment(connection, tenant, context, merged.data, analyser=analyser)
    await repository.drop_postings(connection, tenant, context, group)
    now = await repository.lock_dead(connection, tenant, context, group)
    late = _died_since(merged, [now.get(segment_id) for segment_id in group])
    if written is not None and late.any():
        await repository.mark_dead(connection, tenant, context, written, late)
    await repository.drop_segments(connection, tenant, context, group)
    dropped = sum(len(data.passage_ids) for data, _ in parts) - len(merged.data.passage_ids)
    return int(written is not None), dropped


def _died_since(merged: Merged, dead: Sequence[Mask | None]) -> Mask:
    """Return which passages of a merged segment are dead in its inputs as they stand now."""
    late: Mask = np.zeros(len(merged.data.passage_ids), np.bool_)
    for places, mask in zip(merged.places, dead, strict=True):
        if mask is not None:
            moved = places[mask]
            late[moved[moved >= 0]] = True
    return late
