"""What every search of a process shares: the lanes, what they were fitted to, and who embeds the question."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from strata.embeddings.service import EmbeddingService
from strata.hints.service import HintService
from strata.knowledge.graph_service import GraphService
from strata.knowledge.service import ContextService
from strata.lanes.lexical.index import LexicalIndex
from strata.lanes.vector.index import VectorIndex
from strata.lanes.vector.tuning import search_settings
from strata.lookup.fit import Fits
from strata.lookup.gather import Gatherer
from strata.lookup.meaning import Question
from strata.lookup.request import Plan
from strata.platform.database import Connection, Database
from strata.providers.embeddings.embedders import Embedders
from strata.settings import Settings


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts of a search, made once."""

    database: Database
    settings: Settings
    contexts: ContextService
    hints: HintService
    graph: GraphService
    embeddings: EmbeddingService
    embedders: Embedders
    lexical: LexicalIndex
    vectors: VectorIndex
    fits: Fits

    @classmethod
    def of(
        cls,
        database: Database,
        settings: Settings,
        *,
        contexts: ContextService,
        hints: HintService,
        graph: GraphService,
        embeddings: EmbeddingService,
        embedders: Embedders,
    ) -> Engine:
        """Make the lanes over the services they need."""
        lexical = LexicalIndex(settings.lexical_cache_bytes)
        vectors = VectorIndex(settings)
        return cls(database, settings, contexts, hints, graph, embeddings, embedders, lexical, vectors, Fits(settings))

    @property
    def local(self) -> Mapping[str, str]:
        """The settings of the database that vector searches run under."""
        return search_settings(self.settings)

    def question(self, tenant: UUID, text: str) -> Question:
        """Return a question whose vectors can be asked for."""
        return Question(tenant, text, embeddings=self.embeddings, embedders=self.embedders, settings=self.settings)

    def gatherer(
        self, tenant: UUID, plan: Plan, question: Question, skipped: dict[str, str], per_lane: int | None = None
    ) -> Gatherer:
        """Return the lanes for one plan; those in ``skipped`` do not run."""
        return Gatherer(
            tenant,
            plan,
            contexts=self.contexts,
            hints=self.hints,
            graph=self.graph,
            lexical=self.lexical,
            vectors=self.vectors,
            question=question,
            fits=self.fits,
            per_lane=per_lane or self.settings.candidates_per_lane,
            granularity=self.settings.source_key_granularity,
            skipped=skipped,
        )

    @asynccontextmanager
    async def bare(self, tenant: UUID, plan: Plan, per_lane: int) -> AsyncIterator[tuple[Gatherer, Connection]]:
        """Give a gatherer and its snapshot, outside any recorded call."""
        question = self.question(tenant, plan.query)
        async with self.database.work(tenant, snapshot=True, local=self.local) as connection:
            yield self.gatherer(tenant, plan, question, {}, per_lane), connection
