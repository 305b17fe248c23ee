"""Invocations for the tests of the trace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from strata.platform.ids import DEFAULT_TENANT, new_id
from strata.traces.schemas import (
    BlockTrace,
    ContextRevision,
    FiltersTrace,
    HintLayerTrace,
    Invocation,
    LaneRankTrace,
    LaneTrace,
    LayersTrace,
    OmissionTrace,
    PostprocessTrace,
    RetrievalDetails,
    RetrievalLayerTrace,
    Status,
    Surface,
)

CONTEXT = new_id()
TENANT = DEFAULT_TENANT


def ranks(**lanes: int) -> list[LaneRankTrace]:
    return [LaneRankTrace(lane=lane, rank=rank) for lane, rank in lanes.items()]


def block(rank: int, source: str, *, anchor: str = "", passage: str | None = None, **given) -> BlockTrace:
    values = {
        "rank": rank,
        "source_key": f"path:{source}{anchor}",
        "source_key_basis": "PATH",
        "layers": ["L1"],
        "title": source.rpartition("/")[2],
        "breadcrumb": ["Guide", "Part"],
        "score": 1 / rank,
        "lane_ranks": ranks(lexical=rank),
        "hit_reasons": [f"L1_LEXICAL:{rank}"],
        "content_chars": 400,
        "content_sha256": f"{rank:064x}",
        "source": source,
        "passage": passage,
    }
    return BlockTrace(**{**values, **given})


def omission(path: str, reason: str, *, anchor: str = "", **given) -> OmissionTrace:
    values = {"source_key": f"path:{path}{anchor}", "reason": reason, "lane_ranks": ranks(lexical=9)}
    return OmissionTrace(**{**values, **given})


def details(
    blocks: list[BlockTrace] | None = None, omitted: list[OmissionTrace] | None = None, **given
) -> RetrievalDetails:
    blocks, omitted = blocks or [], omitted or []
    reasons = [item.reason for item in omitted]
    values = {
        "contexts": [ContextRevision(id=CONTEXT, revision=7)],
        "layers": LayersTrace(
            l0=HintLayerTrace(matched=1, duration_ms=0.2), l1=RetrievalLayerTrace(candidates=10, duration_ms=3.5)
        ),
        "lanes": {
            "lexical": LaneTrace(ran=True, candidates=10, duration_ms=3.1),
            "vector": LaneTrace(ran=False, reason="NO_INDEX"),
        },
        "filters": FiltersTrace(),
        "postprocess": PostprocessTrace(
            raw=len(blocks) + len(omitted),
            deduplicated=len(blocks) + len(omitted),
            near_duplicates_dropped=reasons.count("NEAR_DUPLICATE"),
            omitted_by_reason={reason: reasons.count(reason) for reason in sorted(set(reasons))},
        ),
        "evidence_blocks": blocks,
        "omitted": omitted,
        "omitted_total": len(omitted),
    }
    return RetrievalDetails(**{**values, **given})


def invocation(**given) -> Invocation:
    values = {
        "tenant_id": DEFAULT_TENANT,
        "id": new_id(),
        "tool_name": "lookup",
        "surface": Surface.REST,
        "status": Status.SUCCESS,
        "duration_ms": 4.25,
        "context_id": CONTEXT,
        "arguments": {"query": "How do I reset it?", "context": "default", "topK": 5},
        "found": True,
        "relevance_level": "HIGH",
        "completeness_hint": "COMPLETE",
        "evidence_count": 1,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "span_id": "b7ad6b7169203331",
        "retrieval_details": details([block(1, "docs/a.md")]),
    }
    return Invocation(**{**values, **given})


async def add_context(database, name="kb"):
    context = new_id()
    async with database.work(TENANT) as connection:
        await connection.execute(
            "INSERT INTO context (tenant_id, context_id, name) VALUES ($1, $2, $3)", TENANT, context, name
        )
    return context


async def add_source(database, context, path, *texts, **given):
    """Store a source as ingest does: its text, and a passage for each of ``texts``."""
    source, content = new_id(), "\n\n".join(texts)
    at = given.pop("at", datetime.now(UTC) - timedelta(days=1))
    async with database.work(TENANT) as connection:
        serial = await connection.fetchval("SELECT nextval('source_serial_seq')")
        await connection.execute(
            """
            INSERT INTO source (tenant_id, context_id, source_id, serial, path, format, category, language, tags,
                                source_key, occurred_at, content_sha256, fingerprint, original_bytes, text_bytes,
                                passage_count, created_at, updated_at)
            VALUES ($1, $2, $3, $4, $5, 'markdown', $6, $7, $8, $9, $10, '', '', 1, $11, $12, $13, $13)
            """,
            TENANT,
            context,
            source,
            serial,
            path,
            given.get("category"),
            given.get("language", "en"),
            given.get("tags", []),
            given.get("source_key"),
            given.get("occurred_at"),
            len(content.encode()),
            len(texts),
            at,
        )
        await connection.execute(
            "INSERT INTO source_content (tenant_id, context_id, source_id, content) VALUES ($1, $2, $3, $4)",
            TENANT,
            context,
            source,
            content.encode(),
        )
        start = 0
        for ordinal, text in enumerate(texts):
            size = len(text.encode())
            await connection.execute(
                "INSERT INTO passage (tenant_id, context_id, passage_id, source_id, section_ordinal, kind, start_byte, "
                "end_byte, sha256) VALUES ($1, $2, $3, $4, 0, 'paragraph', $5, $6, '')",
                TENANT,
                context,
                (serial << 20) + ordinal,
                source,
                start,
                start + size,
            )
            start += size + 2
    return serial << 20


def asked(context, **given):
    traced = given.pop("retrieval_details", details([block(1, "docs/other.md")]))
    traced = msgspec.structs.replace(traced, contexts=[ContextRevision(id=context, revision=1)])
    return invocation(context_id=context, retrieval_details=traced, **given)
