"""Evidence packages on multi-hop questions: is all that a question needs in what is sent?"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from strata.assembly.passages import PassageService
from strata.assembly.schemas import BudgetIn, EvidencePackage, EvidenceRequest
from strata.assembly.service import AssemblyCaller, AssemblyService
from strata.embeddings.service import EmbeddingService
from strata.evaluate.allowance import admitted
from strata.evaluate.backend import Budget, Hit
from strata.evaluate.beir import JudgedSet, Query, load_judged_set
from strata.evaluate.coverage import BUDGETS
from strata.evaluate.lanes import AGENT, question
from strata.evaluate.linked import Lines, Titles, import_stream, linked
from strata.evaluate.scratch import Progress, kept_name
from strata.exchange.parse import parse_stream
from strata.exchange.service import ExchangeService
from strata.knowledge.service import ContextService
from strata.lookup.search import PassageQuery
from strata.providers.embeddings.embedders import Embedders
from strata.traces.schemas import Surface

PLAIN, FUSED, ASSEMBLY, GRAPH = "plain top-k", "fused top-k", "assembly", "assembly with graph"
HOP, GRAPH_HOP = "assembly, second hop", "assembly with graph, second hop"
WAYS: Final = (PLAIN, FUSED, ASSEMBLY, HOP, GRAPH, GRAPH_HOP)
NEED_VECTORS: Final = frozenset({FUSED, HOP, GRAPH_HOP})

DEPTH = 100
"""How many passages each way takes from the search."""

GRAPH_OPTIONS: Final[dict[str, Any]] = {"activate_limit": 3, "contradictions": "partial", "share_text": True}
"""Few facts, since each costs nearly as much as a passage; a document mentions many others without contradiction."""

OPTIONS: Final[dict[str, dict[str, Any]]] = {
    ASSEMBLY: {},
    HOP: {"expand": True},
    GRAPH: GRAPH_OPTIONS,
    GRAPH_HOP: {"expand": True, **GRAPH_OPTIONS},
}
"""What each way of assembly asks for beside question, depth and budget."""

_NAME_CHARS, _DIGEST_CHARS = 32, 8


class PackageCoverage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Share of the questions (0..1) of a set whose gold documents are all in the package, by way and budget."""

    name: str
    questions: int
    shares: dict[str, dict[int, float]]


class PackageMeasure:
    """Measures sets through the services that answer real questions; ``words`` searches without vectors."""

    def __init__(
        self,
        *,
        contexts: ContextService,
        exchange: ExchangeService,
        embeddings: EmbeddingService,
        embedders: Embedders,
        passages: PassageService,
        words: PassageService,
        assembly: AssemblyService,
    ) -> None:
        self._contexts = contexts
        self._exchange = exchange
        self._embeddings = embeddings
        self._embedders = embedders
        self._searches = {PLAIN: words, FUSED: passages}
        self._assembly = assembly

    async def run(
        self,
        tenant: UUID,
        directory: Path,
        *,
        budgets: Sequence[int] = BUDGETS,
        most: int | None = None,
        progress: Progress | None = None,
    ) -> PackageCoverage:
        """Fill a context with the set and its facts, ask every question in every way, and count.

        What counts is the JSON of items and citations, by the declared estimate. A document is in a package that
        holds its paragraph whole, as a passage or as a citation. Each way skips what does not fit and goes on. The
        context stays, as those of :meth:`Scratches.filled` with ``keep``.
        """
        judged = (await asyncio.to_thread(load_judged_set, directory)).sample(most)
        documents = await asyncio.to_thread(judged.documents)
        titles = await asyncio.to_thread(Titles, documents)
        context, has_vectors = await self._filled(
            tenant, judged, await asyncio.to_thread(linked, documents, titles), progress
        )
        ways = [way for way in WAYS if has_vectors or way not in NEED_VECTORS]
        inside = {way: dict.fromkeys(budgets, 0) for way in ways}
        for number, query in enumerate(judged.queries, 1):
            gold, cues = judged.gold(query), titles.in_question(question(query))
            for way in ways:
                for budget in budgets:
                    found = await self._found(tenant, context, query, way, cues=cues, max_tokens=budget)
                    inside[way][budget] += gold <= found
            if progress:
                progress("packages", number, len(judged.queries))
        total = max(1, len(judged.queries))
        return PackageCoverage(
            name=judged.name,
            questions=len(judged.queries),
            shares={way: {b: round(n / total, 4) for b, n in counts.items()} for way, counts in inside.items()},
        )

    async def _filled(
        self, tenant: UUID, judged: JudgedSet, sources: Sequence[tuple[str, Lines]], progress: Progress | None
    ) -> tuple[str, bool]:
        embedder = await self._embedders.configured()
        name = _name(judged, kept_name(judged, embedder.space if embedder else None), sources)
        views = (await self._contexts.list(tenant)).contexts
        if next((view.sources for view in views if view.name == name), 0) < len(sources):
            stream = await asyncio.to_thread(parse_stream, import_stream(sources, name))
            await self._exchange.import_stream(
                tenant, stream, progress=(lambda seen: progress("import", seen.done, seen.total)) if progress else None
            )
        if embedder is not None:
            await self._embeddings.run(tenant, name)
        return name, embedder is not None

    async def _found(
        self, tenant: UUID, context: str, query: Query, way: str, *, cues: Sequence[str], max_tokens: int
    ) -> frozenset[str]:
        """Return the documents that are whole in the package of one way."""
        if query.is_blank:
            return frozenset()
        if way in self._searches:
            found = await self._searches[way].search(tenant, context, PassageQuery(text=question(query), limit=DEPTH))
            hits = [Hit(hit.source, hit.paragraph, msgspec.to_builtins(hit)) for hit in found.hits]
            kept, _ = admitted(hits, context, Budget(max_tokens=max_tokens))
            return frozenset(hit.source for hit in kept)
        request = EvidenceRequest(
            origins=list(cues) if way in (GRAPH, GRAPH_HOP) else [],
            text_fallback_query=question(query),
            search_limit=DEPTH,
            budget=BudgetIn(max_tokens=max_tokens),
            **OPTIONS[way],
        )
        caller = AssemblyCaller(Surface.CLI, agent_id=AGENT)
        return whole_sources(await self._assembly.assemble(tenant, context, request, caller))


def whole_sources(package: EvidencePackage) -> frozenset[str]:
    """Return the sources of which a package holds a whole paragraph."""
    passages = (item.passage for item in package.items if not item.extract)
    return frozenset(
        {passage.source for passage in passages if passage} | {entry.source for entry in package.citations}
    )


def _name(judged: JudgedSet, kept: str, sources: Sequence[tuple[str, Lines]]) -> str:
    """Return a name that states the set, what :func:`kept_name` does, and the facts.

    It is short: each passage of a package is paid for with the name of its context.
    """
    digest = hashlib.sha256(kept.encode() + msgspec.json.encode(sources)).hexdigest()
    return f"{judged.name[:_NAME_CHARS]}-{digest[:_DIGEST_CHARS]}"
