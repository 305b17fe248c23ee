"""Spaces and work as the domain hands them around."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias
from uuid import UUID

from strata.platform.ids import ORDINALS, SERIAL_BITS
from strata.providers.embeddings.base import Embedder, EmbeddingSpace
from strata.providers.embeddings.embedders import EmbedderDescription, Mode

EMBED = "embed"
"""Work: embed the passages of ``ranges`` in ``space``."""

FILL = "embed_fill"
"""Work: find the passages from ``after`` to ``until`` that ``space`` lacks; make the space first where it is null."""

ITEM_PASSAGES = 32

State = Literal["building", "active", "retired"]
Range: TypeAlias = Sequence[int]
"""Serial of a source, first ordinal, number of passages."""


class EmbedderSource(Protocol):
    """Where embedders come from (:class:`~strata.providers.embeddings.embedders.Embedders`)."""

    @property
    def mode(self) -> Mode:
        """Which kind of embedder is configured."""
        ...

    def describe(self) -> EmbedderDescription:
        """Say what is configured; opens nothing."""
        ...

    async def configured(self) -> Embedder | None:
        """Return the embedder of the settings; None when embeddings are off. Raises ``embedding_unavailable``."""
        ...

    async def for_space(self, space: EmbeddingSpace) -> Embedder | None:
        """Return an embedder whose vectors are of the space; None when there is none here."""
        ...


@dataclass(frozen=True, slots=True)
class ActiveSpace:
    """The space that a context is searched in."""

    space_id: int
    space: EmbeddingSpace
    vectors: int
    is_indexed: bool


@dataclass(frozen=True, slots=True)
class SpaceRow:
    """A space as it stands in its table."""

    context_id: UUID
    space_id: int
    space: EmbeddingSpace
    state: State
    vectors: int
    removed: int
    indexed_at: datetime | None
    created_at: datetime
    activated_at: datetime | None


@dataclass(frozen=True, slots=True)
class PassageText:
    """A passage that is to be embedded."""

    passage_id: int
    title: str
    breadcrumb: list[str]
    text: str


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """Items of one space: due or put off, lent to a worker, and failed for good."""

    waiting: int = 0
    running: int = 0
    failed: int = 0

    @property
    def pending(self) -> int:
        """The items that something will still come of."""
        return self.waiting + self.running


@dataclass(frozen=True, slots=True)
class Failure:
    """Passages of one source that could not be embedded, and why."""

    context_id: UUID
    space_id: int
    serial: int
    path: str
    ordinals: list[int]
    error: str


def passage_ids(ranges: Iterable[Range]) -> list[int]:
    """Return the ids of the passages in ranges, ascending."""
    return sorted(serial << SERIAL_BITS | first + n for serial, first, count in ranges for n in range(count))


def ranges_of(ids: Iterable[int]) -> list[list[int]]:
    """Return passages as ranges, in order."""
    found: list[list[int]] = []
    for identifier in sorted(ids):
        serial, ordinal = identifier >> SERIAL_BITS, identifier & ORDINALS
        if found and found[-1][0] == serial and found[-1][1] + found[-1][2] == ordinal:
            found[-1][2] += 1
        else:
            found.append([serial, ordinal, 1])
    return found


def packed(ranges: Iterable[Range], limit: int = ITEM_PASSAGES) -> Iterator[list[list[int]]]:
    """Cut ranges into lists of at most ``limit`` passages each; what is empty is left out."""
    current: list[list[int]] = []
    room = limit
    for serial, start, number in ranges:
        first, count = start, number
        while count > 0:
            taken = min(count, room)
            current.append([serial, first, taken])
            first, count, room = first + taken, count - taken, room - taken
            if room == 0:
                yield current
                current, room = [], limit
    if current:
        yield current


def embed_payloads(space_id: int, ranges: Iterable[Range]) -> list[Mapping[str, Any]]:
    """Return the payloads of the work that embeds ranges of passages in a space."""
    return [{"space": space_id, "ranges": part} for part in packed(ranges)]


def fill_payload(space_id: int | None, until: int | None = None, after: int = -1) -> Mapping[str, Any]:
    """Return the payload of the work that finds what a space lacks; ``until`` None means to the last passage."""
    return {"space": space_id, "after": after, "until": until}
