"""What the exchange tests share: services over one database, streams, and what a context holds as a value."""

from __future__ import annotations

import json
from dataclasses import dataclass

import msgspec

from ingest_support import rows
from strata.embeddings.service import EmbeddingService
from strata.exchange.parse import parse_stream
from strata.exchange.service import ExchangeService
from strata.hints.service import HintService
from strata.knowledge.graph_model import Assertion
from strata.knowledge.graph_service import GraphService
from strata.knowledge.groups import GroupService
from strata.knowledge.service import ContextService
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT as T
from strata.providers.embeddings.embedders import Embedders
from strata.settings import Settings
from strata.sources.model import DocumentInput
from strata.sources.service import SourceService
from strata.sources.text_service import TextService


@dataclass(frozen=True)
class Kit:
    database: Database
    settings: Settings
    contexts: ContextService
    sources: SourceService
    texts: TextService
    graph: GraphService
    exchange: ExchangeService

    async def load(self, *lines, dry_run=False, progress=None):
        return await self.exchange.import_stream(T, parse_stream(stream(*lines)), dry_run=dry_run, progress=progress)

    async def export(self, context, **more):
        return b"".join([piece async for piece in await self.exchange.export(T, context, **more)])

    async def ingest(self, path, content, context="kb"):
        report = await self.sources.ingest(T, context, [DocumentInput(path=path, content=content)])
        assert report.refused == 0

    async def say(self, source, *facts_, context="kb"):
        """Assert facts of a source beside what it says already."""
        async with self.database.work(T) as connection:
            row = await self.contexts.resolve(connection, T, context)
            said = [Assertion(**one) for one in facts_]
            await self.graph.apply(connection, T, row.context_id, source, said)

    def wire(self, result):
        return json.loads(msgspec.json.encode(result))

    async def close(self):
        await self.sources.close()
        await self.contexts.close()


def make_kit(database: Database, settings: Settings) -> Kit:
    contexts = ContextService(database)
    hints = HintService(database, contexts)
    embeddings = EmbeddingService(database, settings, contexts, Embedders(settings))
    graph = GraphService(database, contexts)
    sources = SourceService(database, settings, contexts, hints, embeddings, facts=graph)
    exchange = ExchangeService(database, contexts, sources.texts, graph, GroupService(database, contexts))
    return Kit(database, settings, contexts, sources, sources.texts, graph, exchange)


def stream(*lines):
    """The bytes of a stream with these lines."""
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)


async def facts(kit, context):
    """Who asserts what: {triple: {source: (weight, count, paragraph)}}, intervals left out."""
    found = {}
    for row in await rows(
        kit,
        "SELECT subject.name, label.name, object.name, a.source, a.weight, a.count, a.paragraph "
        "FROM attribution a JOIN association e USING (tenant_id, context_id, association_id) "
        "JOIN context USING (tenant_id, context_id) JOIN label USING (tenant_id, context_id, label_id) "
        "JOIN concept subject ON subject.concept_id = e.subject_id AND subject.context_id = e.context_id "
        "JOIN concept object ON object.concept_id = e.object_id AND object.context_id = e.context_id "
        "WHERE context.name = $1 ORDER BY a.attribution_id",
        context,
    ):
        found.setdefault(tuple(row[:3]), {})[row[3]] = tuple(row[4:])
    return found


async def graph_of(kit, context):
    """The names of the concepts, and the triples."""
    names = await rows(
        kit, "SELECT c.name FROM concept c JOIN context x USING (tenant_id, context_id) WHERE x.name = $1", context
    )
    return {row[0] for row in names}, set(await facts(kit, context))


async def state(kit, context):
    """All that a context holds, as a value that two equal contexts have."""
    select = {
        "sources": "SELECT path, tags, occurred_at, date_trunc('second', updated_at), content FROM source s "
        "JOIN source_content USING (tenant_id, context_id, source_id) JOIN context x USING (tenant_id, context_id) "
        "WHERE x.name = $1",
        "passages": "SELECT s.path, passage_id & 1048575, section_ordinal, start_byte, end_byte, page, locator_kind, "
        "locator_value FROM passage JOIN source s USING (tenant_id, context_id, source_id) "
        "JOIN context x USING (tenant_id, context_id) WHERE x.name = $1",
        "sections": "SELECT s.path, ordinal, heading, start_byte, end_byte FROM section "
        "JOIN source s USING (tenant_id, context_id, source_id) JOIN context x USING (tenant_id, context_id) "
        "WHERE x.name = $1",
        "questions": "SELECT s.path, paragraph, ordinal, question FROM passage_question "
        "JOIN source s USING (tenant_id, context_id, source_id) JOIN context x USING (tenant_id, context_id) "
        "WHERE x.name = $1",
        "attributions": "SELECT subject.name, label.name, object.name, a.source, a.weight, a.count, a.paragraph, "
        "a.valid_from, a.valid_until, e.weight, e.count "
        "FROM attribution a JOIN association e USING (tenant_id, context_id, association_id) "
        "JOIN context x USING (tenant_id, context_id) JOIN label USING (tenant_id, context_id, label_id) "
        "JOIN concept subject ON subject.concept_id = e.subject_id AND subject.context_id = e.context_id "
        "JOIN concept object ON object.concept_id = e.object_id AND object.context_id = e.context_id "
        "WHERE x.name = $1",
        "aliases": "SELECT namespace, alias, coalesce(c.name, l.name) FROM alias "
        "JOIN context x USING (tenant_id, context_id) "
        "LEFT JOIN concept c USING (tenant_id, context_id, concept_id) "
        "LEFT JOIN label l USING (tenant_id, context_id, label_id) WHERE x.name = $1",
        "schema": "SELECT mode, document::text FROM context_schema JOIN context x USING (tenant_id, context_id) "
        "WHERE x.name = $1",
        "context": "SELECT description, is_pinned, dice_floor, semantic_floor FROM context x WHERE x.name = $1",
    }
    return {
        name: sorted((tuple(map(_plain, row)) for row in await rows(kit, sql, context)), key=repr)
        for name, sql in select.items()
    }


def _plain(value):
    return tuple(value) if isinstance(value, list) else value
