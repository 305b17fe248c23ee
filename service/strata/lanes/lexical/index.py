"""Search a context's lexical index: two statements when warm, scored in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from strata.lanes.lexical import repository
from strata.lanes.lexical.cache import ByteCache
from strata.lanes.lexical.repository import SegmentInfo
from strata.lanes.lexical.scoring import Layout, Posting, Scorer, SegmentArrays, TopPassages, WeightedTerm
from strata.lanes.lexical.segment import term_hash
from strata.platform.database import Connection
from strata.text.tokenise import ANALYSER_VERSION, QueryTerm

THREAD_PASSAGES = 200_000
THREAD_POSTINGS = 200_000
"""Above either, scoring runs in a thread: the event loop must not stand still."""

_PASSAGE_BYTES = 20  # ids, lengths, norms and masks of one passage in a layout
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class LexicalHit:
    """One passage found; bit ``i`` of ``matched`` tells that term ``i`` of the query is in it."""

    passage_id: int
    score: float
    matched: int


@dataclass(frozen=True, slots=True, eq=False)
class LexicalHits:
    """The result of one search, best first, equal scores by ascending passage id.

    ``passages`` is N, the live passages of the whole context; ``frequencies`` says in how many of them each
    token of the query occurs, filters aside (0: nowhere), and ``idf`` what that makes it weigh. ``stale`` tells
    that some segments were made by another version of the analyser: those sources should be ingested again.
    """

    hits: Sequence[LexicalHit]
    passages: int
    frequencies: Mapping[str, int]
    idf: Mapping[str, float]
    stale: bool
    _scorer: Scorer

    @property
    def ideal(self) -> float:
        """The most that any passage could score on this query: every term, in as many places as it likes."""
        return self._scorer.ideal

    def of(self, passage_ids: Sequence[int]) -> list[LexicalHit]:
        """Return what any passages score on this query, in the given order; 0 for those without a term or dead."""
        return _hits(self._scorer.of(passage_ids))


class LexicalIndex:
    """Searches, with what never changes of the index kept in memory up to ``max_bytes``.

    One per process, used from one event loop. It holds no connection and no state that must be told of
    changes: each search reads the list of segments, and a segment's version is part of its key.
    """

    def __init__(self, max_bytes: int) -> None:
        self._cache = ByteCache(max_bytes)

    @property
    def used_bytes(self) -> int:
        """The bytes that the cache holds."""
        return self._cache.used_bytes

    async def search(
        self,
        connection: Connection,
        tenant: UUID,
        context: UUID,
        terms: Sequence[QueryTerm],
        *,
        k: int,
        eligible: Sequence[int] | None = None,
    ) -> LexicalHits:
        """Return the best ``k`` passages for analysed terms; of the sources with ``eligible`` serials only, if given.

        Statistics are those of the whole context whatever is eligible. The connection's unit of work must
        be a snapshot, so that the list of segments and their postings are of one moment.
        """
        infos = await repository.list_segments(connection, tenant, context)
        layout = await self._layout(connection, tenant, context, infos)
        weighted = weighted_terms(terms)
        postings = await self._postings(connection, tenant, context, infos, [term.term for term in weighted])
        serials = None if eligible is None else np.unique(np.asarray(eligible, np.int64))

        def score() -> tuple[Scorer, TopPassages]:
            scorer = Scorer(layout, weighted, postings)
            return scorer, scorer.top(k, serials)

        size = sum(len(posting[1]) for by_segment in postings.values() for posting in by_segment.values())
        inline = layout.stored <= THREAD_PASSAGES and size <= THREAD_POSTINGS
        scorer, top = score() if inline else await asyncio.to_thread(score)
        tokens = [term.token for term in terms]
        return LexicalHits(
            _hits(top),
            layout.passages,
            dict(zip(tokens, scorer.document_frequencies, strict=True)),
            dict(zip(tokens, scorer.idfs, strict=True)),
            any(info.analyser != ANALYSER_VERSION for info in infos),
            scorer,
        )

    async def _layout(
        self, connection: Connection, tenant: UUID, context: UUID, infos: Sequence[SegmentInfo]
    ) -> Layout:
        signature = tuple((info.segment_id, info.version) for info in infos)
        known: tuple[object, Layout] | None = self._cache.get((tenant, context))
        if known is not None and known[0] == signature:
            return known[1]
        arrays = await self._arrays(connection, tenant, context, infos)
        stored = sum(info.passages for info in infos)
        previous = known[1] if known is not None else None
        if stored <= THREAD_PASSAGES:
            layout = Layout(arrays, previous)
        else:
            layout = await asyncio.to_thread(Layout, arrays, previous)
        self._cache.put((tenant, context), (signature, layout), stored * _PASSAGE_BYTES)
        return layout

    async def _arrays(
        self, connection: Connection, tenant: UUID, context: UUID, infos: Sequence[SegmentInfo]
    ) -> list[SegmentArrays]:
        found = {info.segment_id: self._cache.get((info.segment_id, info.version, "arrays")) for info in infos}
        missing = [segment_id for segment_id, arrays in found.items() if arrays is None]
        if missing:
            read = await repository.read_arrays(connection, tenant, context, missing)
            for segment_id, arrays in read.items():
                self._cache.put((segment_id, arrays.version, "arrays"), arrays, arrays.nbytes)
            found.update(read)
        return [found[info.segment_id] for info in infos]

    async def _postings(
        self, connection: Connection, tenant: UUID, context: UUID, infos: Sequence[SegmentInfo], terms: Sequence[int]
    ) -> dict[int, dict[int, Posting]]:
        """Return the postings by term and segment, reading only what is not in memory; absence is remembered too."""
        found: dict[int, dict[int, Posting]] = {term: {} for term in terms}
        lacking_terms: set[int] = set()
        lacking_segments: set[int] = set()
        for term, by_segment in found.items():
            for info in infos:
                posting = self._cache.get((info.segment_id, term))
                if posting is None:
                    lacking_terms.add(term)
                    lacking_segments.add(info.segment_id)
                elif posting is not _ABSENT:
                    by_segment[info.segment_id] = posting
        if lacking_terms:
            segment_ids, wanted = sorted(lacking_segments), sorted(lacking_terms)
            rows = await repository.read_postings(connection, tenant, context, segment_ids, wanted)
            for row in rows:
                posting = np.frombuffer(row.passages, "<u2"), np.frombuffer(row.frequencies, np.uint8)
                found[row.term][row.segment_id] = posting
                self._cache.put((row.segment_id, row.term), posting, len(row.passages) + len(row.frequencies))
            for term in wanted:
                for segment_id in segment_ids:
                    if segment_id not in found[term]:
                        self._cache.put((segment_id, term), _ABSENT, 0)
        return found


def weighted_terms(terms: Sequence[QueryTerm]) -> list[WeightedTerm]:
    """Return analysed terms as the scorer takes them: a further form of a word stands in for the first."""
    first: dict[tuple[int, ...], int] = {}
    weighted: list[WeightedTerm] = []
    for at, term in enumerate(terms):
        main = first.setdefault(term.groups, at) if len(term.groups) == 1 else at
        weighted.append(WeightedTerm(term_hash(term.token), term.weight, None if main == at else main))
    return weighted


def _hits(top: TopPassages) -> list[LexicalHit]:
    bits = np.packbits(top.matched, axis=1, bitorder="little")
    return [
        LexicalHit(passage_id, score, int.from_bytes(row.tobytes(), "little"))
        for passage_id, score, row in zip(top.passage_ids.tolist(), top.scores.tolist(), bits, strict=True)
    ]
