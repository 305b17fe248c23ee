"""Exact BM25 over segments, in blocks of at most 65,536 passages that stay in the processor's cache.

The score of a passage is summed in the order of the query's terms with the same single-precision
steps wherever it is stored, so that splitting, merging and order of segments never change a result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.lanes.lexical.segment import SEGMENT_PASSAGES, Ids, Locals, Mask
from strata.platform.ids import SERIAL_BITS

K1 = 1.2
B = 0.75

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.intp]  # numpy converts any other index type anew at every use


@dataclass(frozen=True, slots=True, eq=False)
class SegmentArrays:
    """What the scorer keeps in memory of a segment: everything but the postings."""

    segment_id: int
    version: int
    passage_ids: Ids
    lengths: Locals
    dead: Mask | None

    @property
    def nbytes(self) -> int:
        """The memory that the arrays take."""
        return self.passage_ids.nbytes + self.lengths.nbytes + (0 if self.dead is None else self.dead.nbytes)


@dataclass(frozen=True, eq=False)
class Block:
    """Segments laid end to end: ``offsets[i]`` is where the positions of ``segments[i]`` begin."""

    segments: tuple[SegmentArrays, ...]
    offsets: tuple[int, ...]

    @cached_property
    def passage_ids(self) -> Ids:
        """The ids by position; ascending within a segment only."""
        return np.concatenate([segment.passage_ids for segment in self.segments])

    @cached_property
    def lengths(self) -> Floats:
        """The lengths by position."""
        return np.concatenate([segment.lengths for segment in self.segments]).astype(np.float32)

    @cached_property
    def live(self) -> Mask | None:
        """Which positions are live; None when all are."""
        if all(segment.dead is None for segment in self.segments):
            return None
        return np.concatenate(
            [
                np.ones(len(segment.lengths), np.bool_) if segment.dead is None else ~segment.dead
                for segment in self.segments
            ]
        )

    @cached_property
    def sources(self) -> tuple[Ids, Ids]:
        """The serials of the sources in runs of neighbouring positions, and the length of each run."""
        serials = self.passage_ids >> SERIAL_BITS
        first = np.flatnonzero(np.append(True, serials[1:] != serials[:-1]))
        return serials[first], np.diff(np.append(first, len(serials)))

    def eligible(self, serials: Ids) -> Mask:
        """Return which positions belong to the given sources (ascending serials)."""
        runs, widths = self.sources
        if not len(serials):
            return np.zeros(len(self.passage_ids), np.bool_)
        at = np.minimum(np.searchsorted(serials, runs), len(serials) - 1)
        return np.repeat(serials[at] == runs, widths)


class Layout:
    """The segments of one context at one moment, in blocks, with the statistics of their live passages.

    A segment over half the size of a block is a block of its own; smaller ones share. ``reuse`` hands over
    the blocks of an earlier moment that have not changed.
    """

    def __init__(self, segments: Sequence[SegmentArrays], reuse: Layout | None = None) -> None:
        known = {tuple(map(id, block.segments)): block for block in reuse.blocks} if reuse else {}
        self.blocks: list[Block] = [known.get(tuple(map(id, group))) or _block(group) for group in _groups(segments)]
        self.passages = 0
        self.total_length = 0
        for segment in segments:
            lengths = segment.lengths if segment.dead is None else segment.lengths[~segment.dead]
            self.passages += len(lengths)
            self.total_length += int(lengths.sum(dtype=np.int64))
        average = np.float32(self.total_length / self.passages) if self.total_length else np.float32(1.0)
        base, slope = np.float32(K1 * (1 - B)), np.float32(K1 * B) / average
        self.norms = [base + slope * block.lengths for block in self.blocks]

    @property
    def stored(self) -> int:
        """How many passages are stored, dead ones included."""
        return sum(len(block.passage_ids) for block in self.blocks)


def _groups(segments: Sequence[SegmentArrays]) -> list[tuple[SegmentArrays, ...]]:
    big = [(segment,) for segment in segments if len(segment.lengths) > SEGMENT_PASSAGES // 2]
    shared: list[list[SegmentArrays]] = []
    room = 0
    for segment in segments:
        size = len(segment.lengths)
        if not size or size > SEGMENT_PASSAGES // 2:
            continue
        if size > room:
            shared.append([])
            room = SEGMENT_PASSAGES
        shared[-1].append(segment)
        room -= size
    return [*big, *map(tuple, shared)]


def _block(segments: tuple[SegmentArrays, ...]) -> Block:
    offsets = np.cumsum([0, *(len(segment.lengths) for segment in segments[:-1])])
    return Block(segments, tuple(offsets.tolist()))


def idf(passages: int, frequency: int) -> float:
    """Return ln(1 + (N - n + 0.5) / (n + 0.5)): BM25's weight of a term in n of N passages, never negative."""
    return math.log(1 + (passages - frequency + 0.5) / (frequency + 0.5))


Posting = tuple[Locals, npt.NDArray[np.uint8]]
Postings = Mapping[int, Mapping[int, Posting]]
"""By term hash, then by segment id."""


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A term of the query as the scorer takes it.

    Where the term at position ``instead_of`` occurs nowhere, this one takes over its weight: an exact form
    counts in full when the stem is that of another language than the passages'.
    """

    term: int
    weight: float
    instead_of: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TopPassages:
    """The best passages, best first, equal scores by ascending id.

    ``matched[i, t]`` tells whether term ``t`` is in passage ``i``.
    """

    passage_ids: Ids
    scores: Floats
    matched: Mask


@dataclass(frozen=True, slots=True, eq=False)
class _BlockPostings:
    """The live postings of one term in one block; positions ascend."""

    positions: Positions
    frequencies: Floats


@dataclass(eq=False)
class Scorer:
    """One query over one layout: the frequencies of its terms, its best passages, the score of any passage."""

    layout: Layout
    terms: Sequence[WeightedTerm]
    postings: Postings
    document_frequencies: list[int] = field(init=False)
    idfs: list[float] = field(init=False)
    ideal: float = field(init=False)

    def __post_init__(self) -> None:
        self._found = [[_gather(block, self.postings.get(term.term, {})) for term in self.terms]
                       for block in self.layout.blocks]  # fmt: skip
        self.document_frequencies = [
            sum(len(found.positions) for row in self._found if (found := row[at]) is not None)
            for at in range(len(self.terms))
        ]
        self.idfs = [idf(self.layout.passages, frequency) for frequency in self.document_frequencies]
        self._factors = [
            np.float32(self._weight(term) * value * (K1 + 1)) for term, value in zip(self.terms, self.idfs, strict=True)
        ]
        self.ideal = float(sum(self._factors))

    def _weight(self, term: WeightedTerm) -> float:
        if term.instead_of is None or self.document_frequencies[term.instead_of]:
            return term.weight
        return max(term.weight, self.terms[term.instead_of].weight)

    def top(self, k: int, eligible: Ids | None = None) -> TopPassages:
        """Return the best ``k`` passages of the sources whose serials are given, ascending; None: of all sources."""
        best_scores = np.empty(0, np.float32)
        best_ids = np.empty(0, np.int64)
        best_blocks = np.empty(0, np.int64)
        best_places = np.empty(0, np.int64)
        floor = np.float32(0)
        for at, block in enumerate(self.layout.blocks):
            scores = self._block_scores(at)
            if scores is None:
                continue
            if eligible is not None:
                scores *= block.eligible(eligible)
            places = _candidates(scores, k, floor)
            if not len(places):
                continue
            best_scores = np.concatenate([best_scores, scores[places]])
            best_ids = np.concatenate([best_ids, block.passage_ids[places]])
            best_blocks = np.concatenate([best_blocks, np.full(len(places), at)])
            best_places = np.concatenate([best_places, places])
            order = np.lexsort((best_ids, -best_scores))[:k]
            best_scores, best_ids = best_scores[order], best_ids[order]
            best_blocks, best_places = best_blocks[order], best_places[order]
            floor = best_scores[-1] if len(best_scores) == k else np.float32(0)
        return TopPassages(best_ids, best_scores, self._matched(best_blocks, best_places))

    def of(self, passage_ids: Sequence[int]) -> TopPassages:
        """Return the scores of given passages in the given order; 0 where no term matches or none is live."""
        wanted = np.asarray(passage_ids, np.int64)
        scores = np.zeros(len(wanted), np.float32)
        matched = np.zeros((len(wanted), len(self.terms)), np.bool_)
        for at, block in enumerate(self.layout.blocks):
            for segment, offset in zip(block.segments, block.offsets, strict=True):
                place = np.searchsorted(segment.passage_ids, wanted)
                inside = place < len(segment.passage_ids)
                inside[inside] = segment.passage_ids[place[inside]] == wanted[inside]
                if segment.dead is not None:
                    inside[inside] = ~segment.dead[place[inside]]
                if inside.any():
                    rows = np.flatnonzero(inside)
                    scores[rows], matched[rows] = self._score_places(at, place[rows] + offset)
        return TopPassages(wanted, scores, matched)

    def _block_scores(self, at: int) -> Floats | None:
        norms = self.layout.norms[at]
        scores: Floats | None = None
        for factor, found in zip(self._factors, self._found[at], strict=True):
            if found is None:
                continue
            if scores is None:
                scores = np.zeros(len(norms), np.float32)
            scores[found.positions] += _contribution(factor, found.frequencies, norms[found.positions])
        return scores

    def _score_places(self, at: int, places: Ids) -> tuple[Floats, Mask]:
        norms = self.layout.norms[at][places]
        scores = np.zeros(len(places), np.float32)
        matched = np.zeros((len(places), len(self.terms)), np.bool_)
        for number, (factor, found) in enumerate(zip(self._factors, self._found[at], strict=True)):
            if found is None:
                continue
            where, hit = _locate(found.positions, places)
            scores[hit] += _contribution(factor, found.frequencies[where[hit]], norms[hit])
            matched[:, number] = hit
        return scores, matched

    def _matched(self, blocks: Ids, places: Ids) -> Mask:
        matched = np.zeros((len(places), len(self.terms)), np.bool_)
        for at in np.unique(blocks).tolist():
            rows = np.flatnonzero(blocks == at)
            for number, found in enumerate(self._found[at]):
                if found is not None:
                    matched[rows, number] = _locate(found.positions, places[rows])[1]
        return matched


def _contribution(factor: np.float32, frequencies: Floats, norms: Floats) -> Floats:
    return factor * (frequencies / (frequencies + norms))


def _locate(positions: Positions, places: Ids) -> tuple[Ids, Mask]:
    """Find each place among ascending positions: where it would be, and whether it is there."""
    where = np.searchsorted(positions, places)
    hit = where < len(positions)
    hit[hit] = positions[where[hit]] == places[hit]
    return where, hit


def _gather(block: Block, by_segment: Mapping[int, Posting]) -> _BlockPostings | None:
    """Join a term's postings in the segments of a block, dead passages left out; None where there are none."""
    rows = [
        (offset, *posting)
        for segment, offset in zip(block.segments, block.offsets, strict=True)
        if (posting := by_segment.get(segment.segment_id)) is not None
    ]
    if not rows:
        return None
    positions = _joined([row[1] for row in rows]).astype(np.intp)
    if len(block.segments) > 1:
        positions += np.repeat(np.array([row[0] for row in rows]), np.array([len(row[1]) for row in rows]))
    frequencies = _joined([row[2] for row in rows]).astype(np.float32)
    if block.live is not None:
        live = block.live[positions]
        positions, frequencies = positions[live], frequencies[live]
    return _BlockPostings(positions, frequencies) if len(positions) else None


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _candidates(scores: Floats, k: int, floor: np.float32) -> Ids:
    """Return the positions that may be among the best ``k``: above zero, not below ``floor``, ties kept."""
    places = np.flatnonzero(scores >= floor if floor > 0 else scores > 0)
    if len(places) > k:
        values = scores[places]
        places = places[values >= np.partition(values, -k)[-k]]
    return places
