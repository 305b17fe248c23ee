"""From a cue to the names it may mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from strata.graph.model import Graph
from strata.graph.names import fold, key_of_folded
from strata.graph.vocabulary import Ints, Namespace, SpellingIndex, Vocabulary, distinct

DICE_FLOOR = 0.3
CONFIDENT = 0.5
"""Best lexical score from which no meaning is asked for."""
SEMANTIC_CAP = 5
LIMIT = 1000

Kind = Literal["exact", "alias", "containment", "fuzzy"]
_EXACT, _ALIAS, _KEY, _KEY_ALIAS, _CONTAINMENT, _FUZZY = range(6)
_KINDS: tuple[Kind, ...] = ("exact", "alias", "exact", "alias", "containment", "fuzzy")


@dataclass(frozen=True, slots=True)
class Resolved:
    """One candidate: a canonical name, how well it fits (0 to 1), and how it was found."""

    name: str
    score: float
    tier: Literal["lexical", "semantic"]
    kind: Kind | None = None


def wants_semantic(lexical: Sequence[Resolved]) -> bool:
    """Say whether candidates by meaning may join: no lexical one is confident."""
    return not lexical or lexical[0].score < CONFIDENT


def lexical_candidates(
    graph: Graph, namespace: Namespace, cue: str, *, dice_floor: float = DICE_FLOOR, limit: int = LIMIT
) -> list[Resolved]:
    """Rank the names that a cue may spell, best first, equal scores by name.

    A spelling (canonical or alias) equal to the cue once both are folded, or once separators are
    gone too, scores 1 and is ``exact``; ``alias`` where only an alias is equal. One that holds the
    cue or is held by it scores shorter / longer in characters, whatever the floor. Where nothing is
    exact, the others score the Dice of their telling bigrams and need ``dice_floor``. A name counts
    by its best spelling. Equal folds come before equal keys.
    """
    vocabulary = graph.vocabulary(namespace)
    folded = fold(cue)
    if not folded or not vocabulary.names or limit <= 0:
        return []
    found = [*_equal(vocabulary, folded), _contained(vocabulary.index, folded)]
    if len(found) == 1:
        found.append(_fuzzy(vocabulary.index, folded, found[0].spellings, dice_floor))
    return _best(vocabulary, found, limit)


@dataclass(frozen=True, slots=True)
class _Found:
    """Spellings that one rule found, with the record each leads to."""

    kind: int
    spellings: Ints
    records: Ints
    scores: npt.NDArray[np.float64]


def _equal(vocabulary: Vocabulary, folded: str) -> list[_Found]:
    index, own_key = vocabulary.index, key_of_folded(folded)
    found: list[_Found] = []
    rules: tuple[tuple[dict[str, list[int]], str, Callable[[str], str], int], ...] = (
        (index.by_fold, folded, str, _EXACT),
        (index.by_key, own_key, key_of_folded, _KEY),
    )
    for table, wanted, form, kind in rules:
        for spelling in table.get(wanted, ()):
            record = index.owners[[spelling]]
            is_alias = form(index.folded[int(record[0])]) != wanted
            found.append(_Found(kind + is_alias, np.array([spelling]), record, np.ones(1)))
    return found


def _contained(index: SpellingIndex, folded: str) -> _Found:
    spellings = distinct(np.concatenate((index.containing(folded), index.contained_in(folded))))
    lengths = index.lengths[spellings]
    scores = np.minimum(lengths, len(folded)) / np.maximum(lengths, len(folded))
    return _Found(_CONTAINMENT, spellings, index.owners[spellings], scores)


def _fuzzy(index: SpellingIndex, folded: str, contained: Ints, floor: float) -> _Found:
    spellings, scores = index.overlaps(folded)
    kept = (scores >= floor) & ~np.isin(spellings, contained, assume_unique=True)
    return _Found(_FUZZY, spellings[kept], index.owners[spellings[kept]], scores[kept])


def _best(vocabulary: Vocabulary, found: Sequence[_Found], limit: int) -> list[Resolved]:
    records = np.concatenate([rule.records for rule in found])
    scores = np.concatenate([rule.scores for rule in found])
    kinds = np.concatenate([np.full(len(rule.records), rule.kind) for rule in found])
    order = np.lexsort((kinds, -scores, records))
    records, scores, kinds = records[order], scores[order], kinds[order]
    first = np.ones(len(records), dtype=bool)
    first[1:] = records[1:] != records[:-1]
    records, scores, kinds = records[first], scores[first], kinds[first]
    # Records are in order of their names already; equality of fold goes before equality of key.
    order = np.lexsort((records, np.isin(kinds, (_KEY, _KEY_ALIAS)), -scores))[:limit]
    return [
        Resolved(vocabulary.names[record], score, "lexical", _KINDS[kind])
        for record, score, kind in zip(
            records[order].tolist(), scores[order].tolist(), kinds[order].tolist(), strict=True
        )
    ]


def resolve(
    graph: Graph,
    namespace: Namespace,
    cue: str,
    *,
    dice_floor: float = DICE_FLOOR,
    limit: int = LIMIT,
    semantic: Sequence[tuple[str, float]] = (),
) -> list[Resolved]:
    """Rank the names that a cue may mean: lexical candidates, then up to five by meaning.

    ``semantic`` holds (canonical name, cosine) of those at or above the caller's floor; it counts
    only where ``wants_semantic`` holds of the lexical candidates. What goes over ``limit`` is cut
    from the end of the lexical ones.
    """
    lexical = lexical_candidates(graph, namespace, cue, dice_floor=dice_floor, limit=limit)
    return joined(lexical, semantic, limit)


def joined(lexical: Sequence[Resolved], semantic: Sequence[tuple[str, float]], limit: int) -> list[Resolved]:
    """Append candidates by meaning to a lexical ranking, as ``resolve`` does."""
    served = list(lexical[:limit])
    if not wants_semantic(served):
        return served
    present = {candidate.name for candidate in served}
    further = sorted((pair for pair in semantic if pair[0] not in present), key=lambda pair: (-pair[1], pair[0]))[
        :SEMANTIC_CAP
    ]
    room = max(limit - len(further), 0)
    return [*served[:room], *(Resolved(name, score, "semantic") for name, score in further)][:limit]


Verdict = Literal[
    "not_in_vocabulary",
    "cue_resolved_exactly",
    "below_floor",
    "below_cutoff",
    "semantic_not_run",
    "semantic_below_floor",
    "served",
]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a search by meaning found for a cue: each name's cosine, whatever the floor; or why none ran."""

    cosines: Sequence[tuple[str, float]] = ()
    floor: float = 0.35
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LexicalAccount:
    """What the spelling of the expected name scored; None where nothing compares, or fuzzy did not run."""

    floor: float
    confident: bool
    score: float | None
    kind: Kind | None


@dataclass(frozen=True, slots=True)
class SemanticAccount:
    """Whether meaning was asked (else why not), and where the expected name stands in it."""

    entered: bool
    reason: str | None
    floor: float | None
    cosine: float | None
    rank: int | None
    cap: int


@dataclass(frozen=True, slots=True)
class RankingAccount:
    """Where the expected name stands in the whole ranking, and the least ``limit`` that serves it."""

    limit: int
    served: bool
    rank: int | None
    tier: Literal["lexical", "semantic"] | None
    score: float | None
    limit_to_reach: int | None


@dataclass(frozen=True, slots=True)
class Nearest:
    """The stored names nearest to a name that is not stored."""

    lexical: tuple[Resolved, ...]
    semantic: tuple[tuple[str, float], ...]
    semantic_note: str | None


@dataclass(frozen=True, slots=True)
class ResolveExplanation:
    """Why a name does, or does not, come out for a cue."""

    verdict: Verdict
    summary: str
    cue: str
    expected: str
    in_vocabulary: bool
    canonical: str | None = None
    expected_kind: Literal["exact", "alias"] | None = None
    lexical: LexicalAccount | None = None
    semantic: SemanticAccount | None = None
    ranking: RankingAccount | None = None
    nearest: Nearest | None = None


def explain_resolve(
    graph: Graph,
    namespace: Namespace,
    cue: str,
    expected: str,
    *,
    dice_floor: float = DICE_FLOOR,
    limit: int = LIMIT,
    sweep: Sweep | None = None,
) -> ResolveExplanation:
    """Say why ``resolve`` with the same arguments does or does not give ``expected``.

    The first that holds is the verdict: ``not_in_vocabulary`` (with the nearest names),
    ``served``, ``below_cutoff`` (ranked, but past ``limit``), ``cue_resolved_exactly`` (to another
    name, so nothing fuzzy was tried), ``below_floor``, ``semantic_not_run``,
    ``semantic_below_floor``. ``sweep`` tells what meaning found; None stands for no embeddings.
    """
    sweep = sweep or Sweep(reason="no embedding provider is configured")
    canonical = graph.find(namespace, expected)
    if canonical is None:
        return _not_in_vocabulary(graph, namespace, cue, expected, sweep)
    everything = 2 * len(graph.vocabulary(namespace).names)
    lexical = lexical_candidates(graph, namespace, cue, dice_floor=dice_floor, limit=everything)
    compared = lexical_candidates(graph, namespace, cue, dice_floor=0.0, limit=everything)
    own = next((found for found in compared if found.name == canonical), None)
    floored = [pair for pair in sweep.cosines if pair[1] >= sweep.floor] if sweep.reason is None else []
    ranking = _ranking(lexical, floored, canonical, limit)
    semantic = _semantic(lexical, sweep, canonical)
    verdict = _verdict(lexical, own, semantic, ranking)
    account = LexicalAccount(
        floor=dice_floor,
        confident=not wants_semantic(lexical),
        score=None if own is None else own.score,
        kind=None if own is None else own.kind,
    )
    return ResolveExplanation(
        verdict=verdict,
        summary=_summary(verdict, canonical, account, semantic, ranking),
        cue=cue,
        expected=expected,
        in_vocabulary=True,
        canonical=canonical,
        expected_kind="exact" if canonical == expected else "alias",
        lexical=account,
        semantic=semantic,
        ranking=ranking,
    )


def _not_in_vocabulary(graph: Graph, namespace: Namespace, cue: str, expected: str, sweep: Sweep) -> ResolveExplanation:
    nearest = lexical_candidates(graph, namespace, expected, dice_floor=0.0, limit=SEMANTIC_CAP)
    by_meaning = sorted(sweep.cosines, key=lambda pair: (-pair[1], pair[0]))[:SEMANTIC_CAP]
    return ResolveExplanation(
        verdict="not_in_vocabulary",
        summary=f"No name or alias is spelled '{expected}'; an alias to one of the nearest would make it found.",
        cue=cue,
        expected=expected,
        in_vocabulary=False,
        nearest=Nearest(tuple(nearest), tuple(by_meaning), sweep.reason),
    )


def _ranking(
    lexical: Sequence[Resolved], semantic: Sequence[tuple[str, float]], name: str, limit: int
) -> RankingAccount:
    whole = joined(lexical, semantic, len(lexical) + SEMANTIC_CAP)
    rank = next((place for place, found in enumerate(whole, 1) if found.name == name), None)
    if rank is None:
        return RankingAccount(limit, served=False, rank=None, tier=None, score=None, limit_to_reach=None)

    def serves(tried: int) -> bool:
        return any(found.name == name for found in joined(lexical[:tried], semantic, tried))

    # A limit that cuts lexical candidates keeps those by meaning, up to five of them.
    least = rank if whole[rank - 1].tier == "lexical" else rank - len(lexical)
    tries = (*range(least, least + SEMANTIC_CAP + 1), *range(rank, rank + SEMANTIC_CAP + 1))
    return RankingAccount(
        limit=limit,
        served=serves(limit),
        rank=rank,
        tier=whole[rank - 1].tier,
        score=whole[rank - 1].score,
        limit_to_reach=next(filter(serves, tries), None),
    )


def _semantic(lexical: Sequence[Resolved], sweep: Sweep, name: str) -> SemanticAccount:
    reason = sweep.reason if wants_semantic(lexical) else "a lexical candidate is confident"
    if reason is not None:
        return SemanticAccount(entered=False, reason=reason, floor=None, cosine=None, rank=None, cap=SEMANTIC_CAP)
    present = {found.name for found in lexical}
    ordered = sorted(
        (pair for pair in sweep.cosines if pair[0] not in present and pair[1] >= sweep.floor),
        key=lambda pair: (-pair[1], pair[0]),
    )
    return SemanticAccount(
        entered=True,
        reason=None,
        floor=sweep.floor,
        cosine=dict(sweep.cosines).get(name),
        rank=next((place for place, pair in enumerate(ordered, 1) if pair[0] == name), None),
        cap=SEMANTIC_CAP,
    )


def _verdict(
    lexical: Sequence[Resolved], own: Resolved | None, semantic: SemanticAccount, ranking: RankingAccount
) -> Verdict:
    if ranking.served:
        return "served"
    if ranking.rank is not None or semantic.rank is not None:
        return "below_cutoff"
    if lexical and lexical[0].kind in {"exact", "alias"}:
        return "cue_resolved_exactly"
    if own is not None:
        return "below_floor"
    return "semantic_below_floor" if semantic.entered else "semantic_not_run"


def _summary(
    verdict: Verdict, name: str, lexical: LexicalAccount, semantic: SemanticAccount, ranking: RankingAccount
) -> str:
    cutoff = (
        f"Rank {ranking.rank} lies past the limit of {ranking.limit}; {ranking.limit_to_reach} would serve '{name}'."
        if ranking.rank is not None
        else f"'{name}' ranks {semantic.rank} by meaning, past the {semantic.cap} that are served."
    )
    return {
        "served": f"'{name}' is served at rank {ranking.rank}.",
        "below_cutoff": cutoff,
        "cue_resolved_exactly": f"The cue is exactly another name, so nothing fuzzy was tried for '{name}'.",
        "below_floor": f"'{name}' scored {lexical.score or 0:.2f}, below the floor of {lexical.floor:g}.",
        "semantic_not_run": f"No spelling of '{name}' is like the cue, and meaning was not asked: {semantic.reason}.",
        "semantic_below_floor": f"No spelling of '{name}' is like the cue, and its meaning is not near enough.",
    }[verdict]


def gloss(graph: Graph, namespace: Namespace, name: str) -> str:
    """Describe a name by its heaviest facts: four of a concept, three examples of a label.

    Facts go by ``|sum|``, the earlier first where equal; one whose sum is negative is told as
    denied, one whose sum is zero is not told. A name without facts, or unknown, is its own gloss.
    """
    index = graph.vocabulary(namespace).find(name)
    if index is None:
        return name
    if namespace == Namespace.CONCEPT:
        positions, count = graph.incident(index), 4
    else:
        starts, by_label = graph.label_edges
        positions, count = by_label[starts[index] : starts[index + 1]], 3
    positions = positions[graph.conducts[positions] & (graph.sums[positions] != 0)]
    heaviest = positions[np.argsort(-np.abs(graph.sums[positions]), kind="stable")[:count]]
    facts = [
        f"{'' if edge.sum > 0 else 'Not so: '}{edge.subject} {edge.label} {edge.object}."
        for edge in graph.edges(heaviest)
    ]
    return " ".join([f"{graph.vocabulary(namespace).names[index]}.", *facts]) if facts else name
