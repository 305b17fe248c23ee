"""What the ingest tests share: services over one database, and what must hold of its rows."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

import numpy as np

from strata.embeddings.service import EmbeddingService
from strata.hints.service import HintService
from strata.knowledge.service import ContextService
from strata.lanes.lexical.index import LexicalIndex
from strata.lanes.lexical.segment import unpack_dead
from strata.platform.database import Database
from strata.platform.ids import DEFAULT_TENANT
from strata.providers.embeddings.embedders import Embedders
from strata.settings import Settings
from strata.sources.service import SourceService
from strata.text.tokenise import analyse_query


@dataclass(frozen=True)
class Kit:
    database: Database
    settings: Settings
    contexts: ContextService
    hints: HintService
    sources: SourceService


def make_kit(database: Database, settings: Settings) -> Kit:
    contexts = ContextService(database)
    hints = HintService(database, contexts)
    embeddings = EmbeddingService(database, settings, contexts, Embedders(settings))
    return Kit(database, settings, contexts, hints, SourceService(database, settings, contexts, hints, embeddings))


async def rows(kit: Kit, sql: str, *args, tenant=DEFAULT_TENANT):
    async with kit.database.work(tenant) as connection:
        return await connection.fetch(sql, *args)


async def search(kit: Kit, context: str, query: str, tenant=DEFAULT_TENANT) -> list[str]:
    """The paths of the sources whose passages the words of the query find, best first."""
    async with kit.database.work(tenant, snapshot=True) as connection:
        row = await kit.contexts.resolve(connection, tenant, context)
        hits = await LexicalIndex(kit.settings.lexical_cache_bytes).search(
            connection, tenant, row.context_id, analyse_query(query), k=100
        )
        ids = [hit.passage_id for hit in hits.hits]
        found = await connection.fetch(
            "SELECT passage_id, path FROM passage JOIN source USING (tenant_id, context_id, source_id) "
            "WHERE passage_id = ANY($1)",
            ids,
        )
    paths = dict(tuple(row) for row in found)
    assert set(paths) == set(ids), "the index holds a live passage that the table does not"
    return list(dict.fromkeys(paths[identifier] for identifier in ids))


async def check(kit: Kit, tenant=DEFAULT_TENANT) -> None:
    """Every passage is in exactly one live slot of the index, and every hash and range is right."""
    async with kit.database.work(tenant, snapshot=True) as connection:
        passages = await connection.fetch(
            "SELECT p.context_id, passage_id, start_byte, end_byte, sha256, content, serial FROM passage p "
            "JOIN source s USING (tenant_id, context_id, source_id) "
            "JOIN source_content USING (tenant_id, context_id, source_id)"
        )
        segments = await connection.fetch(
            "SELECT context_id, segment_id, passages, passage_ids, dead, dead_count FROM lexical_segment"
        )
        orphans = await connection.fetchval(
            "SELECT count(*) FROM lexical_posting p WHERE NOT EXISTS "
            "(SELECT FROM lexical_segment s WHERE s.segment_id = p.segment_id)"
        )
        sources = await connection.fetch("SELECT source_id, passage_count, text_bytes FROM source")
        counted = Counter(
            {row[0]: row[1] for row in await connection.fetch("SELECT source_id, count(*) FROM passage GROUP BY 1")}
        )
        contents = dict(
            tuple(row) for row in await connection.fetch("SELECT source_id, length(content) FROM source_content")
        )
        roots = await connection.fetchval("SELECT count(*) FROM section WHERE ordinal = 0")
    assert orphans == 0
    assert {row[0]: row[1] for row in sources} == {row[0]: counted[row[0]] for row in sources}
    assert {row[0]: row[2] for row in sources} == contents
    assert roots == len(sources)
    live: Counter = Counter()
    for row in segments:
        ids = np.frombuffer(row["passage_ids"], "<i8")
        dead = unpack_dead(row["dead"], row["passages"])
        assert row["dead_count"] == (0 if dead is None else int(dead.sum()))
        live.update((row["context_id"], int(one)) for one in (ids if dead is None else ids[~dead]))
    assert live == Counter((row["context_id"], row["passage_id"]) for row in passages)
    for row in passages:
        assert row["passage_id"] >> 20 == row["serial"]
        assert hashlib.sha256(row["content"][row["start_byte"] : row["end_byte"]]).digest() == row["sha256"]


async def texts(kit: Kit, tenant=DEFAULT_TENANT) -> dict[tuple[str, str], bytes]:
    found = await rows(
        kit,
        "SELECT c.name, s.path, content FROM source s JOIN source_content USING (tenant_id, context_id, source_id) "
        "JOIN context c USING (tenant_id, context_id)",
        tenant=tenant,
    )
    return {(row[0], row[1]): row[2] for row in found}
