"""Audits, schema documents, communities, embeddings and upkeep of one context."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from strata.contexts_api.directory import NDJSON
from strata.contexts_api.operation import Call, Nothing, Text, operation
from strata.contexts_api.requests import (
    AuditConsolidation,
    AuditDrift,
    AuditSchema,
    AuditVocabulary,
    ValidateSchema,
)
from strata.embeddings.schemas import ContextEmbeddings
from strata.errors import EMBEDDINGS_UNCONFIGURED, StrataError
from strata.knowledge.audit_schemas import (
    ConsolidationAuditOut,
    DriftAuditOut,
    SchemaAuditOut,
    VocabularyAuditOut,
)


class PassageVectorsOut(Struct, frozen=True, kw_only=True):
    """The vectors of a context's passages: their model, their width, how many."""

    model: str
    width: int
    rows: int


class GlossVectorsOut(Struct, frozen=True, kw_only=True):
    """The vectors of a context's names: their model, their width, how many of each kind."""

    model: str
    width: int
    concepts: int
    labels: int


class EmbeddingsOut(Struct, frozen=True, kw_only=True):
    """The model that is configured, and the one that the context's vectors are of."""

    provider_model: str | None
    glosses: GlossVectorsOut | UnsetType = UNSET
    passages: PassageVectorsOut | UnsetType = UNSET


class BreakdownOut(Struct, frozen=True, kw_only=True):
    """How many of how many were embedded."""

    embedded: int
    total: int


class RefreshOut(Struct, frozen=True, kw_only=True):
    """What a refresh embedded."""

    embedded: int
    total: int
    glosses: BreakdownOut
    passages: BreakdownOut


class CompactOut(Struct, frozen=True, kw_only=True):
    """What compacting took away: nothing dead is kept, so only names that nothing uses any more."""

    bytes_before: int
    bytes_after: int
    dead_edges: int
    aliases_dropped: int


@operation("POST", "/contexts/{ref:str}/vocabulary/audit")
async def audit_vocabulary(call: Call, body: AuditVocabulary) -> VocabularyAuditOut:
    """Return names that may be spellings of one thing."""
    return await call.services.graph.vocabulary_audit(
        call.tenant, call.ref, dice_floor=body.dice_floor, cosine_floor=body.cosine_floor
    )


@operation("POST", "/contexts/{ref:str}/drift/audit")
async def audit_drift(call: Call, body: AuditDrift) -> DriftAuditOut:
    """Return facts without a source and aliases of names without facts."""
    return await call.services.graph.drift_audit(
        call.tenant,
        call.ref,
        unsourced_floor=body.unsourced_floor,
        limit=body.limit,
        after=body.after,
        include_twins=body.include_twins,
        dice_floor=body.dice_floor,
        cosine_floor=body.cosine_floor,
    )


@operation("POST", "/contexts/{ref:str}/consolidation/audit")
async def audit_consolidation(call: Call, body: AuditConsolidation) -> ConsolidationAuditOut:
    """Return what may be merged, what may disagree, and what may be out of date."""
    return await call.services.graph.consolidation_audit(
        call.tenant,
        call.ref,
        body.checks,
        limit=body.limit,
        evidence_cap=body.evidence_cap,
        dice_floor=body.dice_floor,
        cosine_floor=body.cosine_floor,
        floor_secs=body.floor_secs,
    )


@operation("GET", "/contexts/{ref:str}/schema")
async def get_schema(call: Call) -> dict[str, Any]:
    """Return the schema document of a context."""
    return await call.services.graph.get_schema(call.tenant, call.ref)


@operation("PUT", "/contexts/{ref:str}/schema")
async def put_schema(call: Call, body: dict[str, object]) -> dict[str, Any]:
    """Install a schema document."""
    return await call.services.graph.put_schema(call.tenant, call.ref, body)


@operation("POST", "/contexts/{ref:str}/schema/audit")
async def audit_schema(call: Call, body: AuditSchema) -> SchemaAuditOut:
    """Return what of a graph its schema document does not allow."""
    return await call.services.graph.audit_schema(call.tenant, call.ref, limit=body.limit, after=body.after)


@operation("POST", "/contexts/{ref:str}/schema/validate")
async def validate_schema(call: Call, body: ValidateSchema) -> SchemaAuditOut:
    """Return what of a graph a schema document would not allow; it is not installed."""
    return await call.services.graph.validate_schema(
        call.tenant, call.ref, body.document, limit=body.limit, after=body.after
    )


@operation("GET", "/contexts/{ref:str}/communities")
async def analyze_communities(call: Call) -> Text:
    """Return the communities of a graph: a header line, then a line for each, leaves first."""
    found = await call.services.graph.communities(call.tenant, call.ref)
    header = {
        "taguru_communities": 1,
        "algorithm": found.algorithm,
        "context": found.context,
        "revision": {
            "graph": found.graph_revision,
            "passages": found.passages_revision,
            "config": found.config_revision,
        },
        "levels": 1 + max((line.level for line in found.communities), default=-1),
        "communities": len(found.communities),
    }
    lines = [msgspec.json.encode(header), *map(msgspec.json.encode, found.communities)]
    return Text(b"\n".join(lines) + b"\n", NDJSON)


@operation("GET", "/contexts/{ref:str}/embeddings")
async def embeddings_status(call: Call) -> EmbeddingsOut:
    """Return the embedder that is configured, and what a context's vectors are of."""
    status = await call.services.embeddings.context_status(call.tenant, call.ref)
    active = next((space for space in status.spaces if space.state == "active"), None)
    passages: PassageVectorsOut | UnsetType = UNSET
    if active is not None:
        passages = PassageVectorsOut(model=active.model, width=active.dimension, rows=active.vectors)
    model = None if status.configured.mode == "none" else status.configured.model
    names = await call.services.graph.name_vectors(call.tenant, call.ref) if model else None
    glosses: GlossVectorsOut | UnsetType = UNSET
    if names is not None:
        glosses = GlossVectorsOut(
            model=names.model, width=names.dimension, concepts=names.concepts, labels=names.labels
        )
    return EmbeddingsOut(provider_model=model, glosses=glosses, passages=passages)


@operation("POST", "/contexts/{ref:str}/embeddings/refresh")
async def refresh_embeddings(call: Call, body: Nothing) -> RefreshOut:  # noqa: ARG001 - a body is allowed
    """Embed what waits to be embedded: passages, and the names whose facts have changed."""
    embeddings = call.services.embeddings
    before = await embeddings.context_status(call.tenant, call.ref)
    if not embeddings.is_on:
        raise StrataError(EMBEDDINGS_UNCONFIGURED, "No embedder is configured.")
    await embeddings.run(call.tenant, call.ref)
    after = await embeddings.context_status(call.tenant, call.ref)
    names = await call.services.graph.refresh_names(call.tenant, call.ref)
    passages = BreakdownOut(embedded=max(0, _vectors(after) - _vectors(before)), total=after.passages)
    glosses = BreakdownOut(embedded=names.embedded, total=names.concepts + names.labels)
    return RefreshOut(
        embedded=passages.embedded + glosses.embedded,
        total=passages.total + glosses.total,
        glosses=glosses,
        passages=passages,
    )


@operation("POST", "/contexts/{ref:str}/compact")
async def compact(call: Call, body: Nothing) -> CompactOut:  # noqa: ARG001 - a body is allowed
    """Take away the names that nothing uses any more."""
    before = await call.services.graph.stats(call.tenant, call.ref)
    dropped = await call.services.graph.compact(call.tenant, call.ref)
    after = await call.services.graph.stats(call.tenant, call.ref)
    return CompactOut(
        bytes_before=before.footprint_bytes,
        bytes_after=after.footprint_bytes,
        dead_edges=before.dead_edges,
        aliases_dropped=dropped,
    )


def _vectors(status: ContextEmbeddings) -> int:
    return sum(space.vectors for space in status.spaces if space.state == "active")


ROUTES = (
    audit_vocabulary,
    audit_drift,
    audit_consolidation,
    get_schema,
    put_schema,
    audit_schema,
    validate_schema,
    analyze_communities,
    embeddings_status,
    refresh_embeddings,
    compact,
)
