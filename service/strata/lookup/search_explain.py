"""Why a source is, or is not, among the passages that a search finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from strata.knowledge.model import ContextRow
from strata.lanes.lexical.index import LexicalIndex
from strata.lookup import repository
from strata.lookup.gather import languages_of
from strata.lookup.meaning import Question
from strata.lookup.search import (
    NOTHING_TO_SEARCH,
    PassageQuery,
    Ranked,
    SearchService,
    cleaned,
    cosine_floor,
    place_in,
    score_of,
)
from strata.platform.database import Connection
from strata.platform.ids import ORDINALS, SERIAL_BITS
from strata.text.tokenise import QueryTerm, analyse, analyse_query

DEEP = 1_000
"""How far an explanation looks down the ranking."""


class TermShare(Struct, frozen=True, kw_only=True):
    """What one term of the query adds: ``df`` passages of the context hold it, this one ``tf`` times."""

    term: str
    tf: float
    df: int
    idf: float
    contribution: float


class LexicalShare(Struct, frozen=True, kw_only=True):
    """How a passage stands by words."""

    score: float
    terms: list[TermShare]
    rank: int | UnsetType = UNSET


class VectorShare(Struct, frozen=True, kw_only=True):
    """How a passage stands by meaning, or why that was not asked."""

    ran: bool
    reason: str | UnsetType = UNSET
    floor: float | UnsetType = UNSET
    cosine: float | UnsetType = UNSET
    rank: int | UnsetType = UNSET


class Ranking(Struct, frozen=True, kw_only=True):
    """Where a passage stands in the whole ranking, which the limit cuts; ``limit_to_reach`` serves it."""

    fused: bool
    ranked: int
    limit: int
    served: bool
    rank: int | UnsetType = UNSET
    score: float | UnsetType = UNSET
    cutoff_score: float | UnsetType = UNSET
    limit_to_reach: int | UnsetType = UNSET


class SearchExplanation(Struct, frozen=True, kw_only=True):
    """Why a source was served or not: ``verdict`` for machines, ``summary`` for people, the rest is evidence."""

    verdict: str
    summary: str
    source: str
    paragraph: int | UnsetType = UNSET
    paragraphs: int | UnsetType = UNSET
    paragraph_named: bool | UnsetType = UNSET
    query_terms: list[str] | UnsetType = UNSET
    paragraph_terms: list[str] | UnsetType = UNSET
    bm25: LexicalShare | UnsetType = UNSET
    vector: VectorShare | UnsetType = UNSET
    ranking: Ranking | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class Target:
    """The source asked about: its serial, its passages, and the paragraph that was named, if any."""

    source: str
    serial: int
    paragraphs: int
    paragraph: int | None


class SearchExplainer:
    """Explains searches of :class:`SearchService`, in the caller's snapshot."""

    def __init__(self, search: SearchService, lexical: LexicalIndex) -> None:
        self._search = search
        self._lexical = lexical

    async def explain(
        self,
        connection: Connection,
        tenant: UUID,
        context: ContextRow,
        query: PassageQuery,
        question: Question,
        *,
        source: str,
        paragraph: int | None,
    ) -> SearchExplanation:
        """Return the first verdict that holds of a source, or of one of its paragraphs, for a search."""
        found = await repository.source_sizes(connection, tenant, context.context_id, [source])
        if source not in found:
            return SearchExplanation(
                verdict="not_stored", summary="The context holds no text under this source.", source=source
            )
        serial, paragraphs = found[source]
        target = Target(source, serial, paragraphs, paragraph)
        if paragraph is not None and paragraph >= paragraphs:
            return _verdict(
                target,
                "paragraph_out_of_range",
                f"The source has {paragraphs} paragraphs, numbered from 0.",
            )
        if not query.source_filter.is_empty:
            eligible = await repository.eligible(connection, tenant, context.context_id, query.source_filter)
            if serial not in set(eligible.serials):
                return _verdict(target, "filtered_out", "The filters of the search leave this source out.")
        terms = analyse_query(cleaned(query.text), languages_of([context]))
        # A limit of 0 serves nothing, yet what it cuts has its place.
        searched = replace(query, limit=max(query.limit, 1))
        ranked = await self._search.ranked(connection, tenant, context, searched, question, depth=DEEP)
        if not ranked.lexical.ran and not ranked.vector.ran:
            return _verdict(target, "no_query_terms", f"Nothing was searched for: {NOTHING_TO_SEARCH}.")
        return await self._ranked(connection, tenant, context, query=query, terms=terms, ranked=ranked, target=target)

    async def _ranked(
        self,
        connection: Connection,
        tenant: UUID,
        context: ContextRow,
        *,
        query: PassageQuery,
        terms: Sequence[QueryTerm],
        ranked: Ranked,
        target: Target,
    ) -> SearchExplanation:
        order = [hit.passage for hit in ranked.hits]
        own = [at for at, passage in enumerate(order) if passage >> SERIAL_BITS == target.serial]
        if target.paragraph is not None:
            own = [at for at in own if order[at] & ORDINALS == target.paragraph]
        place = own[0] if own else None
        number = target.paragraph or 0 if place is None else order[place] & ORDINALS
        passage = target.serial << SERIAL_BITS | number
        rows = await repository.passage_rows(connection, tenant, [context.context_id], [passage], 1)
        text = (rows[0].text or "") if rows else ""
        words = await self._words(connection, tenant, context, terms, passage=passage, text=text)
        hit = None if place is None else ranked.hits[place]
        lexical = place_in(hit, "lexical") if hit else None
        vector = place_in(hit, "vector") if hit else None
        floor = cosine_floor(query.floor, context)
        is_served = place is not None and place < query.limit
        cutoff = ranked.hits[min(query.limit, len(ranked.hits)) - 1] if ranked.hits and query.limit else None
        verdict, summary = _judged(place, query.limit, has_words=any(item.tf for item in words))
        return SearchExplanation(
            verdict=verdict,
            summary=summary,
            source=target.source,
            paragraph=number,
            paragraphs=target.paragraphs,
            paragraph_named=target.paragraph is not None,
            query_terms=[term.token for term in terms],
            paragraph_terms=sorted(analyse(text, next(iter(context.languages), None)).frequencies)[:DEEP],
            bm25=LexicalShare(
                score=lexical.score if lexical else sum(item.contribution for item in words),
                terms=words,
                rank=lexical.rank if lexical else UNSET,
            ),
            vector=VectorShare(
                ran=ranked.vector.ran,
                reason=UNSET if ranked.vector.ran else ranked.vector.reason or UNSET,
                floor=floor if ranked.vector.ran else UNSET,
                cosine=vector.score if vector else UNSET,
                rank=vector.rank if vector else UNSET,
            ),
            ranking=Ranking(
                fused=ranked.lexical.ran and ranked.vector.ran,
                ranked=len(order),
                limit=query.limit,
                served=is_served,
                rank=UNSET if place is None else place + 1,
                score=score_of(hit) if hit else UNSET,
                cutoff_score=score_of(cutoff) if cutoff else UNSET,
                limit_to_reach=UNSET if place is None or is_served else place + 1,
            ),
        )

    async def _words(
        self,
        connection: Connection,
        tenant: UUID,
        context: ContextRow,
        terms: Sequence[QueryTerm],
        *,
        passage: int,
        text: str,
    ) -> list[TermShare]:
        """Return what each term adds to the score of a passage: each is scored by itself."""
        counts = analyse(text, next(iter(context.languages), None)).frequencies
        shares: list[TermShare] = []
        for term in terms:
            hits = await self._lexical.search(connection, tenant, context.context_id, [term], k=1)
            score = hits.of([passage])[0].score
            shares.append(
                TermShare(
                    term=term.token,
                    tf=float(counts.get(term.token, 0)),
                    df=hits.frequencies[term.token],
                    idf=hits.idf[term.token],
                    contribution=score,
                )
            )
        return shares


def _verdict(target: Target, verdict: str, summary: str) -> SearchExplanation:
    return SearchExplanation(
        verdict=verdict,
        summary=summary,
        source=target.source,
        paragraph=UNSET if target.paragraph is None else target.paragraph,
        paragraphs=target.paragraphs,
        paragraph_named=target.paragraph is not None,
    )


def _judged(place: int | None, limit: int, *, has_words: bool) -> tuple[str, str]:
    if place is None and not has_words:
        return "no_term_overlap", "The paragraph shares no term with the query, and its meaning is not near enough."
    if place is None:
        return "below_cutoff", f"The paragraph is not among the first {DEEP} of the ranking."
    if place >= limit:
        return "below_cutoff", f"The paragraph is at place {place + 1}; the limit is {limit}."
    return "served", f"The paragraph is at place {place + 1} of what is served."
