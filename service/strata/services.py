"""The services of one process, wired over one open database.

Every surface gets a :class:`Services` and nothing else; :mod:`strata.app` puts REST on top.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from strata.assembly.communities import CommunityService
from strata.assembly.community_builder import CommunityBuilder
from strata.assembly.passages import PassageService
from strata.assembly.service import AssemblyService, Parts
from strata.embeddings.service import EmbeddingService
from strata.exchange.service import ExchangeService
from strata.hints.service import HintService
from strata.knowledge.graph_service import GraphService
from strata.knowledge.groups import GroupService
from strata.knowledge.service import ContextService
from strata.lanes.vector.tuning import verify_settings
from strata.lookup.search import SearchService
from strata.lookup.search_explain import SearchExplainer
from strata.lookup.service import LookupService
from strata.platform import telemetry
from strata.platform.database import Database
from strata.platform.embedded import EmbeddedPostgres
from strata.platform.ids import DEFAULT_TENANT
from strata.platform.schema import HEAD_REVISION, current_revision, require_current
from strata.providers.embeddings.embedders import Embedders
from strata.providers.rerank import Reranker
from strata.settings import Settings
from strata.sources.service import SourceService
from strata.sources.text_service import TextService
from strata.traces.service import InvocationService, Recorder


@dataclass(frozen=True, slots=True)
class Services:
    """Every use case, ready to call, over one open database."""

    settings: Settings
    database: Database
    contexts: ContextService
    sources: SourceService
    hints: HintService
    embeddings: EmbeddingService
    graph: GraphService
    groups: GroupService
    texts: TextService
    exchange: ExchangeService
    search: SearchService
    search_explainer: SearchExplainer
    communities: CommunityService
    community_builder: CommunityBuilder
    passages: PassageService
    assembly: AssemblyService
    reranker: Reranker
    lookup: LookupService
    invocations: InvocationService
    recorder: Recorder
    embedders: Embedders

    async def close(self) -> None:
        """Stop background work and write the trace rows that still wait; before the database closes."""
        await self.embeddings.close()
        await self.sources.close()
        await self.embedders.close()
        await self.reranker.close()
        await self.contexts.close()
        await self.recorder.close()


def compose(settings: Settings, database: Database, *, embedders: Embedders | None = None) -> Services:
    """Wire the services over an open database; ``embedders`` stand in for those of the settings, and are closed too."""
    embedders = embedders or Embedders(settings, observe=telemetry.count_query_vector)
    contexts = ContextService(database)
    hints = HintService(database, contexts)
    embeddings = EmbeddingService(database, settings, contexts, embedders)
    graph = GraphService(database, contexts, cache_bytes=settings.graph_cache_bytes, embedders=embedders)
    groups = GroupService(database, contexts)
    sources = SourceService(database, settings, contexts, hints, embeddings, facts=graph)
    exchange = ExchangeService(database, contexts, sources.texts, graph, groups)
    recorder = Recorder(database, settings)
    lookup = LookupService(
        database,
        settings,
        contexts=contexts,
        hints=hints,
        graph=graph,
        embeddings=embeddings,
        embedders=embedders,
        recorder=recorder,
    )
    search = SearchService(lookup.engine)
    communities = CommunityService(contexts, graph, sources.texts, search)
    reranker = Reranker(settings, observe=telemetry.record_rerank)
    parts = Parts(contexts, groups, graph, sources.texts, search, communities, reranker)
    return Services(
        settings=settings,
        database=database,
        contexts=contexts,
        sources=sources,
        hints=hints,
        embeddings=embeddings,
        graph=graph,
        groups=groups,
        texts=sources.texts,
        exchange=exchange,
        search=search,
        search_explainer=SearchExplainer(search, lookup.engine.lexical),
        communities=communities,
        community_builder=CommunityBuilder(database, contexts, graph, sources.texts, exchange),
        passages=PassageService(database, contexts, groups, sources.texts, search),
        assembly=AssemblyService(database, parts, recorder),
        reranker=reranker,
        lookup=lookup,
        invocations=InvocationService(database, lookup.lane_orders),
        recorder=recorder,
        embedders=embedders,
    )


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the configured database, starting the embedded server where no URL is set."""
    if settings.database_url:
        database = Database(settings.database_url, settings)
        try:
            await database.open()
            yield database
        finally:
            await database.close()
        return
    server = EmbeddedPostgres(settings.home)
    info = await asyncio.to_thread(server.acquire)
    database = Database(info.dsn, settings, revive=lambda: server.acquire().dsn)
    try:
        await database.open()
        yield database
    finally:
        await database.close()
        await asyncio.to_thread(server.release)


@asynccontextmanager
async def open_services(settings: Settings, *, migrate_embedded: bool = True) -> AsyncIterator[Services]:
    """Open database and services for one process.

    The embedded database is ours alone, so it is migrated on the way; a database by URL must be
    current already, else ``schema_outdated`` says to run ``strata migrate``. Where embeddings are on,
    ``database_setup`` names a setting of vector searches that the server does not take.
    """
    async with open_database(settings) as database:
        async with database.owner() as connection:
            if migrate_embedded and not settings.database_url and await current_revision(connection) != HEAD_REVISION:
                from strata.platform.migrations import migrate

                await migrate(database.dsn)
            await require_current(connection, database.dsn)
        services = compose(settings, database)
        try:
            if services.embeddings.is_on:
                async with database.work(DEFAULT_TENANT) as unit:
                    await verify_settings(unit, settings)
            yield services
        finally:
            await services.close()
