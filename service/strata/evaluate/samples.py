"""Questions with and without an answer, and what the lanes know of their candidates: what a fit is made from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from uuid import UUID

from strata.errors import INVALID_REQUEST, StrataError
from strata.evaluate.beir import JudgedSet, Query, load_judged_set, relevant, sampled
from strata.evaluate.lanes import Asker
from strata.evaluate.scratch import Progress
from strata.evaluate.service import EvaluateService
from strata.lookup.pool import CandidateSignals
from strata.providers.embeddings.base import EmbeddingSpace

MOST = 400
"""Questions of each kind taken from one set, unless told."""


class Kind(StrEnum):
    """Whether a question can be answered from the corpus it is asked of, and how that was made so.

    ``FOREIGN`` was written for another set in the same language. Of ``GOLD_REMOVED`` the documents that are
    judged to answer it were taken out, of ``REMOVED`` all others of the same title too: much of what is left
    after the first answers all the same, little after the second.
    """

    ANSWERABLE = "answerable"
    FOREIGN = "foreign"
    GOLD_REMOVED = "gold_removed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Sample:
    """One question asked of one set. ``judgments`` is empty where it cannot be answered."""

    corpus: str
    kind: Kind
    query: Query
    judgments: Mapping[str, int]
    candidates: Sequence[CandidateSignals]

    @property
    def gold(self) -> frozenset[str]:
        """The documents that answer."""
        return relevant(self.judgments)


@dataclass(frozen=True, slots=True)
class Samples:
    """All questions, set by set; ``space`` is that of the vectors, None without."""

    samples: list[Sample]
    space: EmbeddingSpace | None


@dataclass(frozen=True, slots=True)
class _Loaded:
    judged: JudgedSet
    language: str | None
    titles: dict[str, str]
    asked: list[Query]

    def language_of(self, query: Query) -> str | None:
        return query.lang or self.language

    def languages(self) -> frozenset[str | None]:
        return frozenset(map(self.language_of, self.judged.queries))


async def collect(
    evaluate: EvaluateService,
    tenant: UUID,
    directories: Sequence[Path],
    *,
    most: int = MOST,
    keep: bool = False,
    progress: Progress | None = None,
) -> Samples:
    """Ask questions of every set and return what the lanes know of their candidates.

    Of each set at most ``most`` questions of its own, the same again without their answers, and at most
    ``most`` of the other sets in its language; which ones does not change from run to run. A question
    of another set is left out where a document that answers it has a title that this set has too: it
    may be answered here. Raises ``invalid_request`` for an unfit folder and for two of one name.
    """
    loaded = [await asyncio.to_thread(_load, directory, most) for directory in directories]
    names = [item.judged.name for item in loaded]
    if len(set(names)) < len(names):
        raise StrataError(INVALID_REQUEST, "Two sets have the same name.", pointer="DIR")
    samples: list[Sample] = []
    space: EmbeddingSpace | None = None
    for item in loaded:
        async with evaluate.scratches.filled(tenant, item.judged, keep=keep, progress=progress) as scratch:
            space = scratch.space
            asker = Asker(evaluate.lookup, tenant, scratch.name, by_language=item.judged.is_multilingual)
            foreign = foreign_questions(item, loaded, most)
            for number, query in enumerate(item.asked, 1):
                samples += _own(item, query, await asker.signals(query))
                _tell(progress, item, number, len(item.asked) + len(foreign))
            for number, query in enumerate(foreign, 1):
                candidates = await asker.signals(query)
                samples.append(Sample(item.judged.name, Kind.FOREIGN, query, {}, candidates))
                _tell(progress, item, len(item.asked) + number, len(item.asked) + len(foreign))
    return Samples(samples, space)


def foreign_questions(item: _Loaded, loaded: Iterable[_Loaded], most: int) -> list[Query]:
    """Return at most ``most`` questions of the other sets that this one does not answer, as fairly as can be."""
    titles = set(item.titles.values()) - {""}
    languages = item.languages()
    pools = [
        [
            query
            for query in other.asked
            if other.language_of(query) in languages
            and not any(other.titles.get(document) in titles for document in other.judged.gold(query))
        ]
        for other in loaded
        if other is not item
    ]
    share = -(-most // max(1, sum(map(bool, pools))))
    return [query for pool in pools for query in sampled(pool, share)][:most]


def _load(directory: Path, most: int) -> _Loaded:
    judged = load_judged_set(directory)
    return _Loaded(
        judged,
        judged.language(),
        {record.id: record.title.strip() for record in judged.documents()},
        sampled([query for query in judged.queries if not query.is_blank], most),
    )


def _own(item: _Loaded, query: Query, candidates: Sequence[CandidateSignals]) -> list[Sample]:
    """Return a question with its answers, without them, and without all of their titles."""
    gold = item.judged.gold(query)
    titles = {item.titles.get(document, "") for document in gold} - {""}
    left = [candidate for candidate in candidates if candidate.source not in gold]
    rest = [candidate for candidate in left if item.titles.get(candidate.source, "") not in titles]
    return [
        Sample(item.judged.name, Kind.ANSWERABLE, query, item.judged.judgments[query.id], candidates),
        Sample(item.judged.name, Kind.GOLD_REMOVED, query, {}, left),
        Sample(item.judged.name, Kind.REMOVED, query, {}, rest),
    ]


def _tell(progress: Progress | None, item: _Loaded, done: int, total: int) -> None:
    if progress:
        progress(f"signals of {item.judged.name}", done, total)
