"""The time of one assembly by itself: a generated pool of candidates through fusion, duplicates and selection."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
from msgspec import Struct

from strata.assembly.render import Renderer
from strata.assembly.schemas import CitationOut, LaneScore, PassageLanesOut, PassageOut
from strata.evaluate.metrics import percentile
from strata.evidence.fusion import fuse, with_ranks
from strata.evidence.model import Attribution, Candidate, Fact, LaneRank, Limits, Locator, Package
from strata.evidence.nominate import PASSAGE, association, passage
from strata.evidence.policy import Policy, package_policy
from strata.evidence.selection import admit, deduplicate
from strata.graph.names import fold
from strata.knowledge.graph_schemas import AssociationOut, AttributionOut

WORDS = 90
"""Words of a passage: what 500 to 600 characters hold."""

_SEED = 7
_T = TypeVar("_T")
_CONTEXT = "pool"
_FACTS, _VARIANTS = 0.3, 0.2
"""Shares of the candidates that are facts, and of the passages that say what an earlier one says."""


class PoolTimes(Struct, frozen=True, kw_only=True, rename="camel"):
    """CPU milliseconds, medians over the rounds; ``naive_ms`` is one comparison of each passage with each kept one."""

    candidates: int
    kept: int
    duplicates: int
    fuse_ms: float
    duplicates_ms: float
    selection_ms: float
    whole_ms: float
    naive_ms: float


def measure_pool(candidates: int = 1_000, rounds: int = 20, limits: Limits | None = None) -> PoolTimes:
    """Assemble a pool, the same one each time, under ``limits`` (those of a package that names none unless given).

    Raises AssertionError where the naive comparison finds other duplicates.
    """
    pool, renderer = generated(candidates)
    policy = package_policy() if limits is None else package_policy(limits)
    times: list[tuple[float, ...]] = []
    for _ in range(rounds):
        package, parts = _assembled(pool, renderer, policy)
        times.append((*parts, sum(parts)))
    fused = fuse(pool)
    (naive, naive_ms) = _timed(lambda: naive_duplicates([item for item in fused if item.kind == PASSAGE]))
    dropped = {item.candidate.candidate_id for item in package.omitted if item.duplicate_of is not None}
    if naive != dropped:
        raise AssertionError("the filters and the definition found different duplicates")
    fuse_ms, duplicates_ms, selection_ms, whole_ms = (percentile(column, 50) for column in zip(*times, strict=True))
    return PoolTimes(
        candidates=candidates,
        kept=len(package.kept),
        duplicates=len(dropped),
        fuse_ms=fuse_ms,
        duplicates_ms=duplicates_ms,
        selection_ms=selection_ms,
        whole_ms=whole_ms,
        naive_ms=round(naive_ms, 3),
    )


def generated(candidates: int, seed: int = _SEED) -> tuple[list[Candidate], Renderer]:
    """Return a pool of passages and facts with their citations, and what renders it."""
    rng = random.Random(seed)  # noqa: S311 - a benchmark wants the same numbers again
    facts = round(candidates * _FACTS)
    texts = list(_texts(rng, candidates - facts))
    pool = [_passage(rank, text) for rank, text in enumerate(texts, 1)]
    pool += [_fact(rng, rank, len(texts)) for rank in range(1, facts + 1)]
    cited = {
        Locator(source, 0, _CONTEXT): CitationOut(text=text, source=source, section=None, locator=None)
        for source, text in ((_source(number), text) for number, text in enumerate(texts, 1))
    }
    return pool, Renderer(cited, is_qualified=False)


def naive_duplicates(passages: Sequence[Candidate]) -> set[str]:
    """Return the near duplicates by their definition: each passage, in order, is compared with all that are kept."""
    kept: list[frozenset[str]] = []
    dropped: set[str] = set()
    for candidate in passages:
        text = fold(candidate.text or "")
        own = frozenset(map("".join, pairwise(text))) or frozenset({text * 2})
        if any(20 * len(own & other) >= 9 * (len(own) + len(other)) for other in kept):
            dropped.add(candidate.candidate_id)
        else:
            kept.append(own)
    return dropped


def _assembled(
    pool: Sequence[Candidate], renderer: Renderer, policy: Policy
) -> tuple[Package, tuple[float, float, float]]:
    fused, fuse_ms = _timed(lambda: with_ranks(fuse(pool)))
    survivors, duplicates_ms = _timed(lambda: deduplicate(fused, policy, len(pool)))
    package, selection_ms = _timed(lambda: admit(survivors, policy, renderer.item_json, renderer.citation_json))
    return package, (fuse_ms, duplicates_ms, selection_ms)


def _texts(rng: random.Random, count: int) -> Iterator[str]:
    """Give texts of words as frequent as in a language, some of them variants of earlier ones."""
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(rng.choices(letters, range(len(letters), 0, -1), k=rng.randint(2, 9))) for _ in range(4_000)]
    weights = (1 / np.arange(1, len(words) + 1)).tolist()
    made: list[list[str]] = []
    for _ in range(count):
        if made and rng.random() < _VARIANTS:
            text = list(rng.choice(made))
            text[rng.randrange(len(text))] = rng.choice(words)
        else:
            text = rng.choices(words, weights, k=WORDS)
        made.append(text)
        yield " ".join(text)


def _passage(rank: int, text: str) -> Candidate:
    score = LaneScore(rank=rank, score=10 / rank)
    shown = PassageOut(source=_source(rank), paragraph=0, score=10 / rank, text=text, lanes=PassageLanesOut(bm25=score))
    return passage(_CONTEXT, shown.source, 0, text, LaneRank("passage_bm25", rank), payload=shown)


def _fact(rng: random.Random, rank: int, sources: int) -> Candidate:
    fact = Fact(f"subject {rank % 97}", f"label {rank % 5}", f"object {rank}")
    source = _source(rng.randint(1, sources))
    said = AttributionOut(source=source, weight=1.0, count=1, paragraph=0, section=None, locator=None)
    return association(
        fact,
        [Attribution(source, 0)],
        LaneRank("graph_activate", rank),
        context=_CONTEXT,
        citable=[(source, 0)],
        payload=AssociationOut(**fact._asdict(), weight=1.0, count=1, attributions=[said]),
    )


def _source(number: int) -> str:
    return f"source/{number:04}"


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    started = time.process_time()
    result = work()
    return result, (time.process_time() - started) * 1000
