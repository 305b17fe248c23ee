"""Reads of names: what a cue may mean, the labels, the aliases."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from msgspec import UNSET, UnsetType

from strata.errors import INVALID_REQUEST, StrataError
from strata.graph import match, resolve
from strata.graph.model import Graph
from strata.graph.resolve import Resolved
from strata.graph.vocabulary import Namespace
from strata.knowledge.graph_base import MAX_LIST, away, limited, one_name
from strata.knowledge.graph_meanings import GraphMeanings
from strata.knowledge.graph_schemas import (
    AliasPage,
    LabelPage,
    LexicalExplainOut,
    NearestGlossOut,
    NearestOut,
    NearestSpellingsOut,
    ResolutionOut,
    ResolveExplanationOut,
    ResolveRankingOut,
    SemanticExplainOut,
)

_GLOSSED = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Asked:
    """A cue, and how to look for what it means."""

    cue: str
    dice_floor: float | None
    semantic_floor: float | None
    limit: int | None

    def checked_limit(self) -> int:
        """Return the limit; raises ``invalid_request`` or ``over_limit`` for what cannot be asked."""
        one_name(self.cue, "/cue")
        for pointer, value in (("/dice_floor", self.dice_floor), ("/semantic_floor", self.semantic_floor)):
            if value is not None and not 0 <= value <= 1:
                raise StrataError(INVALID_REQUEST, "A floor is a number from 0 to 1.", pointer=pointer)
        return limited(self.limit, resolve.LIMIT)

    def floor(self, of_context: float | None) -> float:
        """Return the floor of likeness: that of the call, else of the context, else the usual one."""
        return next((value for value in (self.dice_floor, of_context) if value is not None), resolve.DICE_FLOOR)


class GraphNames(GraphMeanings):
    """The vocabulary of a context."""

    async def resolve(
        self,
        tenant: UUID,
        ref: str,
        cue: str,
        *,
        dice_floor: float | None = None,
        semantic_floor: float | None = None,
        limit: int | None = None,
    ) -> list[ResolutionOut]:
        """Return the concepts that a cue may mean, the likeliest first; the first eight with a gloss."""
        return await self._resolve(tenant, ref, Namespace.CONCEPT, _Asked(cue, dice_floor, semantic_floor, limit))

    async def resolve_label(
        self,
        tenant: UUID,
        ref: str,
        cue: str,
        *,
        dice_floor: float | None = None,
        semantic_floor: float | None = None,
        limit: int | None = None,
    ) -> list[ResolutionOut]:
        """Return the labels that a cue may mean, the likeliest first; the first eight with a gloss."""
        return await self._resolve(tenant, ref, Namespace.LABEL, _Asked(cue, dice_floor, semantic_floor, limit))

    async def explain_resolve(
        self,
        tenant: UUID,
        ref: str,
        cue: str,
        expected: str,
        *,
        dice_floor: float | None = None,
        semantic_floor: float | None = None,
        limit: int | None = None,
    ) -> ResolveExplanationOut:
        """Return why a cue does or does not lead to a concept."""
        asked = _Asked(cue, dice_floor, semantic_floor, limit)
        return await self._explain(tenant, ref, Namespace.CONCEPT, asked, expected)

    async def explain_resolve_label(
        self,
        tenant: UUID,
        ref: str,
        cue: str,
        expected: str,
        *,
        dice_floor: float | None = None,
        semantic_floor: float | None = None,
        limit: int | None = None,
    ) -> ResolveExplanationOut:
        """Return why a cue does or does not lead to a label."""
        asked = _Asked(cue, dice_floor, semantic_floor, limit)
        return await self._explain(tenant, ref, Namespace.LABEL, asked, expected)

    async def labels(
        self, tenant: UUID, ref: str, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> LabelPage:
        """Return labels in code point order; ``total`` counts all that begin with ``prefix``."""
        most = limited(limit, MAX_LIST, pointer="?limit")
        async with self._read(tenant, ref) as reading:
            total, names = await away(
                len(reading.graph.labels.names), match.label_names, reading.graph, prefix, after, most
            )
        self._contexts.count_read(tenant, reading.row.context_id, is_empty=not total)
        return LabelPage(total=total, labels=names)

    async def aliases(
        self, tenant: UUID, ref: str, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> AliasPage:
        """Return aliases with their names, those of concepts first, in code point order.

        ``after`` is the last alias of the page before, as ``concept:x`` or ``label:x``. Raises
        ``invalid_request`` for another form.
        """
        most = limited(limit, MAX_LIST, pointer="?limit")
        start = None if after is None else _alias_cursor(after)
        async with self._read(tenant, ref) as reading:
            graph = reading.graph
            size = len(graph.concepts.aliases) + len(graph.labels.aliases)
            rows = await away(size, _alias_rows, graph, prefix)
        first = 0 if start is None else bisect_right(rows, start, key=lambda row: row[:2])
        page = rows[first : first + most]
        self._contexts.count_read(tenant, reading.row.context_id, is_empty=not rows)
        return AliasPage(
            total=len(rows),
            concepts={alias: name for space, alias, name in page if space == Namespace.CONCEPT},
            labels={alias: name for space, alias, name in page if space == Namespace.LABEL},
        )

    async def _resolve(self, tenant: UUID, ref: str, space: Namespace, asked: _Asked) -> list[ResolutionOut]:
        most = asked.checked_limit()
        async with self._read(tenant, ref) as reading:
            graph, context = reading.graph, reading.row.context_id
            found = await self._lexical(graph, space, asked, asked.floor(reading.row.dice_floor), most)
            shown = await away(_size(graph, space), _shown, graph, space, found)
        if resolve.wants_semantic(found) and not isinstance(meant := await self._meant(asked.cue), str):
            async with self._read(tenant, ref) as reading:
                graph = reading.graph
                found = await self._lexical(graph, space, asked, asked.floor(reading.row.dice_floor), most)
                sweep = await self._swept(reading, space, meant, asked.semantic_floor)
                near = [pair for pair in sweep.cosines if pair[1] >= sweep.floor]
                shown = await away(_size(graph, space), _shown, graph, space, resolve.joined(found, near, most))
        self._contexts.count_read(tenant, context, is_empty=not shown)
        return shown

    @staticmethod
    async def _lexical(graph: Graph, space: Namespace, asked: _Asked, floor: float, most: int) -> list[Resolved]:
        return await away(
            _size(graph, space),
            lambda: resolve.lexical_candidates(graph, space, asked.cue, dice_floor=floor, limit=most),
        )

    async def _explain(
        self, tenant: UUID, ref: str, space: Namespace, asked: _Asked, expected: str
    ) -> ResolveExplanationOut:
        most = asked.checked_limit()
        one_name(expected, "/expected")
        meant = await self._meant(asked.cue)
        async with self._read(tenant, ref) as reading:
            graph, floor = reading.graph, asked.floor(reading.row.dice_floor)
            sweep = await self._swept(reading, space, meant, asked.semantic_floor, deep=True)
            found = await away(
                _size(graph, space),
                lambda: resolve.explain_resolve(
                    graph, space, asked.cue, expected, dice_floor=floor, limit=most, sweep=sweep
                ),
            )
        self._contexts.count_read(tenant, reading.row.context_id, is_empty=False)
        return _explanation(found)


def _size(graph: Graph, space: Namespace) -> int:
    return len(graph.vocabulary(space).names)


def _shown(graph: Graph, space: Namespace, found: Sequence[Resolved]) -> list[ResolutionOut]:
    return [
        ResolutionOut(
            name=item.name,
            score=item.score,
            tier=item.tier,
            kind=item.kind or UNSET,
            gloss=resolve.gloss(graph, space, item.name) if place < _GLOSSED else UNSET,
            types=(_types(graph, space, item.name) or UNSET) if place < _GLOSSED else UNSET,
        )
        for place, item in enumerate(found)
    ]


def _types(graph: Graph, space: Namespace, name: str) -> list[str]:
    return list(graph.types_of(name)) if space == Namespace.CONCEPT else []


def _alias_cursor(after: str) -> tuple[str, str]:
    space, colon, alias = after.partition(":")
    if not colon or space not in {Namespace.CONCEPT, Namespace.LABEL}:
        raise StrataError(INVALID_REQUEST, "after is concept: or label: and an alias.", pointer="?after")
    return space, alias


def _alias_rows(graph: Graph, prefix: str) -> list[tuple[str, str, str]]:
    """Return namespace, alias and name of the aliases that begin with ``prefix``, ordered."""
    rows = []
    for space in (Namespace.CONCEPT, Namespace.LABEL):
        vocabulary = graph.vocabulary(space)
        rows += [
            (space.value, alias, vocabulary.names[index])
            for alias, index in sorted(vocabulary.aliases.items())
            if alias.startswith(prefix)
        ]
    return rows


def _maybe(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value


def _explanation(found: resolve.ResolveExplanation) -> ResolveExplanationOut:
    lexical, semantic, ranking, nearest = found.lexical, found.semantic, found.ranking, found.nearest
    return ResolveExplanationOut(
        verdict=found.verdict,
        summary=found.summary,
        cue=found.cue,
        expected=found.expected,
        in_vocabulary=found.in_vocabulary,
        canonical=_maybe(found.canonical),
        expected_kind=_maybe(found.expected_kind),
        lexical=UNSET if lexical is None else _lexical(lexical),
        semantic=UNSET if semantic is None else _semantic(semantic),
        ranking=UNSET if ranking is None else _ranking(ranking),
        nearest=UNSET if nearest is None else _nearest(nearest),
    )


def _lexical(account: resolve.LexicalAccount) -> LexicalExplainOut:
    return LexicalExplainOut(
        score=_maybe(account.score), kind=_maybe(account.kind), floor=account.floor, confident=account.confident
    )


def _semantic(account: resolve.SemanticAccount) -> SemanticExplainOut:
    return SemanticExplainOut(
        entered=account.entered,
        reason=_maybe(account.reason),
        floor=_maybe(account.floor),
        cosine=_maybe(account.cosine),
        rank=_maybe(account.rank),
        cap=account.cap if account.entered else UNSET,
    )


def _ranking(account: resolve.RankingAccount) -> ResolveRankingOut:
    return ResolveRankingOut(
        rank=_maybe(account.rank),
        tier=_maybe(account.tier),
        score=_maybe(account.score),
        limit=account.limit,
        served=account.served,
        limit_to_reach=_maybe(account.limit_to_reach),
    )


def _nearest(found: resolve.Nearest) -> NearestSpellingsOut:
    return NearestSpellingsOut(
        lexical=[NearestOut(name=item.name, score=item.score, kind=item.kind or item.tier) for item in found.lexical],
        semantic=_glosses(found.semantic),
        semantic_note=_maybe(found.semantic_note),
    )


def _glosses(found: Sequence[tuple[str, float]]) -> list[NearestGlossOut]:
    return [NearestGlossOut(name=name, cosine=cosine) for name, cosine in found]
