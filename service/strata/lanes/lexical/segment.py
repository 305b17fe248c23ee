"""Posting segments: immutable, column-wise, at most 65,536 passages each. Pure; the database is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from strata.text.tokenise import Analysis

SEGMENT_PASSAGES = 65_536

_MAX_LENGTH = 65_535
_MAX_FREQUENCY = 255
_MAX_HASHES = 500_000

Ids = npt.NDArray[np.int64]
Locals = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


class _Hashes(dict[str, int]):
    """Signed 64-bit BLAKE2b of tokens; emptied when full."""

    def __missing__(self, token: str) -> int:
        digest = blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        value = int.from_bytes(digest, "little", signed=True)
        if len(self) >= _MAX_HASHES:
            self.clear()
        self[token] = value
        return value


_hashes = _Hashes()


def term_hash(token: str) -> int:
    """Return the signed 64-bit BLAKE2b of a token: the term under which it is stored."""
    return _hashes[token]


@dataclass(frozen=True, slots=True, eq=False)
class SegmentData:
    """One segment. ``passage_ids`` ascend; ``lengths`` are their word counts, capped at 65,535.

    The postings of ``terms[i]`` (ascending) are ``locals_[starts[i]:starts[i + 1]]``, positions in
    ``passage_ids`` that ascend within a term, and the frequencies beside them, capped at 255.
    """

    passage_ids: Ids
    lengths: Locals
    terms: Ids
    starts: Ids
    locals_: Locals
    frequencies: Counts

    @property
    def total_length(self) -> int:
        """The sum of the lengths."""
        return int(self.lengths.sum(dtype=np.int64))

    def rows(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield each term with its postings as they are stored: little-endian u16 positions, u8 frequencies."""
        places, counts = self.locals_.astype("<u2").tobytes(), self.frequencies.tobytes()
        starts = self.starts.tolist()
        for at, term in enumerate(self.terms.tolist()):
            first, last = starts[at], starts[at + 1]
            yield term, places[2 * first : 2 * last], counts[first:last]


def build_segments(passages: Sequence[tuple[int, Analysis]]) -> list[SegmentData]:
    """Build the segments of analysed passages, given with their ids in any order; none for none.

    Raises ValueError for an id that comes twice.
    """
    ordered = sorted(passages, key=lambda passage: passage[0])
    if len({passage_id for passage_id, _ in ordered}) != len(ordered):
        raise ValueError("a passage id comes twice")
    return [_build(ordered[at : at + SEGMENT_PASSAGES]) for at in range(0, len(ordered), SEGMENT_PASSAGES)]


def _build(passages: Sequence[tuple[int, Analysis]]) -> SegmentData:
    hashes = [_hashes[token] for _, analysis in passages for token in analysis.frequencies]
    frequencies = [count for _, analysis in passages for count in analysis.frequencies.values()]
    widths = [len(analysis.frequencies) for _, analysis in passages]
    return _from_columns(
        np.array([passage_id for passage_id, _ in passages], np.int64),
        np.array([min(analysis.length, _MAX_LENGTH) for _, analysis in passages], np.uint16),
        np.array(hashes, np.int64),
        np.repeat(np.arange(len(passages), dtype=np.uint16), widths),
        np.minimum(np.array(frequencies, np.int64), _MAX_FREQUENCY).astype(np.uint8),
    )


def _from_columns(passage_ids: Ids, lengths: Locals, terms: Ids, places: Locals, frequencies: Counts) -> SegmentData:
    """Sort postings by term and position and cut them at the terms."""
    order = np.lexsort((places, terms))
    terms, places, frequencies = terms[order], places[order], frequencies[order]
    distinct, starts = np.unique(terms, return_index=True)
    return SegmentData(
        passage_ids, lengths, distinct, np.append(starts, len(terms)).astype(np.int64), places, frequencies
    )


def segment_from_rows(passage_ids: Ids, lengths: Locals, rows: Sequence[tuple[int, bytes, bytes]]) -> SegmentData:
    """Rebuild a segment from its stored rows, given in any order of terms."""
    ordered = sorted(rows)
    starts = np.zeros(len(ordered) + 1, np.int64)
    np.cumsum([len(row[2]) for row in ordered], out=starts[1:])
    return SegmentData(
        passage_ids,
        lengths,
        np.array([row[0] for row in ordered], np.int64),
        starts,
        np.frombuffer(b"".join(row[1] for row in ordered), "<u2"),
        np.frombuffer(b"".join(row[2] for row in ordered), np.uint8),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A merged segment, and for each input the new position of each of its passages (-1: dropped)."""

    data: SegmentData
    places: tuple[Ids, ...]


def merge_segments(parts: Sequence[tuple[SegmentData, Mask | None]]) -> Merged:
    """Merge segments into one, without the passages whose ``dead`` mask is set (None: all live).

    The result is what :func:`build_segments` makes of the live passages. Raises ValueError when more than
    65,536 are left.
    """
    live = [np.ones(len(data.passage_ids), np.bool_) if dead is None else ~dead for data, dead in parts]
    ids = np.concatenate([data.passage_ids[keep] for (data, _), keep in zip(parts, live, strict=True)])
    if len(ids) > SEGMENT_PASSAGES:
        raise ValueError(f"{len(ids)} passages do not fit one segment")
    order = np.argsort(ids, kind="stable")
    ranks = np.empty(len(ids), np.int64)
    ranks[order] = np.arange(len(ids))
    lengths = np.concatenate([data.lengths[keep] for (data, _), keep in zip(parts, live, strict=True)])[order]
    places: list[Ids] = []
    columns: list[tuple[Ids, Locals, Counts]] = []
    start = 0
    for (data, _), keep in zip(parts, live, strict=True):
        place = np.full(len(keep), -1, np.int64)
        place[keep] = ranks[start : start + int(keep.sum())]
        start += int(keep.sum())
        moved = place[data.locals_]
        kept = moved >= 0
        terms = np.repeat(data.terms, np.diff(data.starts))[kept]
        columns.append((terms, moved[kept].astype(np.uint16), data.frequencies[kept]))
        places.append(place)
    terms, positions, frequencies = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Merged(_from_columns(ids[order], lengths, terms, positions, frequencies), tuple(places))


def pack_dead(mask: Mask) -> bytes | None:
    """Write a mask of dead passages as it is stored: one bit each, least significant first; None when all live."""
    return np.packbits(mask, bitorder="little").tobytes() if mask.any() else None


def unpack_dead(dead: bytes | None, passages: int) -> Mask | None:
    """Read a stored mask of dead passages; None when all live."""
    if dead is None:
        return None
    return np.unpackbits(np.frombuffer(dead, np.uint8), count=passages, bitorder="little").astype(np.bool_)
