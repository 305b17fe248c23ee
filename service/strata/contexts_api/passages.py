"""Sources of a context: stored, listed, searched, cited, retracted; streams in and out."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from strata.assembly.passages import HitsOut, SearchPlanOut, searched
from strata.assembly.schemas import CitationOut, CommunityOut
from strata.contexts_api.directory import NDJSON, form_of
from strata.contexts_api.operation import Call, Text, limit_of, operation, strings
from strata.contexts_api.requests import (
    Cite,
    ExplainSearch,
    Promote,
    Retract,
    SearchAcross,
    SearchCommunities,
    SearchPassages,
    SourceNames,
)
from strata.errors import INVALID_REQUEST, StrataError
from strata.exchange.parse import parse_stream
from strata.exchange.schemas import ImportResult, PromoteResult, RetractOutcome, StoredPassages, StorePassagesIn
from strata.knowledge.audit_schemas import ConsolidationAuditOut
from strata.lookup.search import PassageQuery
from strata.lookup.search_explain import SearchExplanation

DEFAULT_HITS = 5
CONSOLIDATION_CHECKS = ("merge", "contradiction", "staleness")


class SourceOut(Struct, frozen=True, kw_only=True):
    """A source with its times (epoch seconds) and tags; one that only asserts facts has neither."""

    name: str
    stored_at: int | UnsetType = UNSET
    date: int | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET


class SourcesOut(Struct, frozen=True, kw_only=True):
    """A page of sources by name."""

    total: int
    sources: list[str]
    entries: list[SourceOut]


class TextsOut(Struct, frozen=True, kw_only=True):
    """Whole texts by source, and the sources without one."""

    passages: dict[str, str]
    missing: list[str]


class CommunityRevisionOut(Struct, frozen=True, kw_only=True):
    """The graph's revision when the communities were derived, and now."""

    recorded_graph: int
    current_graph: int


class CommunityHitsOut(Struct, frozen=True, kw_only=True):
    """Summaries of communities; ``stale`` where the graph has changed since."""

    derived_id: str
    derived: str
    algorithm: str
    stale: bool
    revision: CommunityRevisionOut
    plan: SearchPlanOut
    hits: list[CommunityOut]


class PromotedOut(Struct, frozen=True, kw_only=True):
    """What became of promoted sources, and what an audit of the destination found."""

    batches: list[object]
    aliases_dropped: int
    audit: ConsolidationAuditOut | UnsetType = UNSET


@operation("GET", "/contexts/{ref:str}/sources")
async def list_sources(call: Call) -> SourcesOut:
    """Return a page of sources by name."""
    services = call.services
    async with services.database.work(call.tenant, snapshot=True) as connection:
        row = await services.contexts.resolve(connection, call.tenant, call.ref)
        page = await services.texts.page(
            connection,
            call.tenant,
            row.context_id,
            after=call.parameters.get("after", ""),
            limit=call.whole("limit", 1_000) or 0,
            prefix=call.parameters.get("prefix", ""),
        )
    call.context_id = row.context_id
    return SourcesOut(
        total=page.total,
        sources=[entry.name for entry in page.entries],
        entries=[
            SourceOut(
                name=entry.name,
                stored_at=UNSET if entry.stored_at is None else entry.stored_at,
                date=UNSET if entry.date is None else entry.date,
                tags=list(entry.tags) or UNSET,
            )
            for entry in page.entries
        ],
    )


@operation("POST", "/contexts/{ref:str}/sources")
async def store_passages(call: Call, body: StorePassagesIn) -> StoredPassages:
    """Store texts, each replacing that of its source."""
    return await call.services.exchange.store_passages(call.tenant, call.ref, body)


@operation("POST", "/contexts/{ref:str}/sources/lookup")
async def lookup_passages(call: Call, body: SourceNames) -> TextsOut:
    """Return whole texts by source."""
    found, missing = await call.services.texts.lookup(call.tenant, call.ref, strings(body.sources, "/sources"))
    call.found = bool(found)
    return TextsOut(passages=found, missing=missing)


@operation("POST", "/contexts/{ref:str}/sources/search")
async def search_passages(call: Call, body: SearchPassages) -> HitsOut:
    """Return the paragraphs of a context that fit a query."""
    hits = await call.services.passages.search(call.tenant, call.ref, _query(body))
    call.found = bool(hits.hits)
    return hits


@operation("POST", "/sources/search")
async def search_passages_across(call: Call, body: SearchAcross) -> HitsOut:
    """Return the paragraphs of several contexts that fit a query: first the best of each, then the second of each."""
    refs = strings([*body.contexts, *body.context_ids], "/contexts")
    groups = strings(body.groups, "/groups")
    if not refs and not groups:
        raise StrataError(INVALID_REQUEST, "Name at least one context or group.", pointer="/contexts")
    hits = await call.services.passages.search_across(call.tenant, refs, groups, _query(body))
    call.found = bool(hits.hits)
    return hits


@operation("POST", "/contexts/{ref:str}/sources/search/explain")
async def explain_search(call: Call, body: ExplainSearch) -> SearchExplanation:
    """Return why a source is, or is not, among what a search finds."""
    services = call.services
    query = _query(body)
    question = services.search.question(call.tenant, query.text)
    if query.text:
        await question.foresee()
    async with services.database.work(call.tenant, snapshot=True, local=services.search.local) as connection:
        row = await services.contexts.resolve(connection, call.tenant, call.ref)
        call.context_id = row.context_id
        return await services.search_explainer.explain(
            connection, call.tenant, row, query, question, source=body.source, paragraph=body.paragraph
        )


@operation("POST", "/contexts/{ref:str}/citations")
async def cite_passage(call: Call, body: Cite) -> CitationOut:
    """Return one paragraph, word for word, and where it stands."""
    return await call.services.passages.cite(call.tenant, call.ref, body.source, body.paragraph)


@operation("POST", "/contexts/{ref:str}/sources/retract")
async def retract_source(call: Call, body: Retract) -> RetractOutcome:
    """Delete a source with its text and all that it asserts."""
    return await call.services.exchange.retract_source(call.tenant, call.ref, body.source, dry_run=call.flag("dry_run"))


@operation("POST", "/import")
async def import_stream(call: Call) -> ImportResult:
    """Apply an import stream."""
    stream = parse_stream(call.body)
    imported = await call.services.exchange.import_stream(call.tenant, stream, dry_run=call.flag("dry_run"))
    call.issues, call.schema_violations = list(imported.issues), imported.violations
    return imported.result


@operation("GET", "/contexts/{ref:str}/export")
async def export_context(call: Call) -> Text:
    """Return a context as an import stream."""
    return Text(await call.services.exchange.export(call.tenant, call.ref, form=form_of(call)), NDJSON)


@operation("POST", "/contexts/{ref:str}/promote")
async def promote(call: Call, body: Promote) -> PromotedOut:
    """Carry whole sources into another context, and audit that one unless told otherwise."""
    dry_run = call.flag("dry_run")
    promoted = await call.services.exchange.promote(
        call.tenant, call.ref, body.into, strings(body.sources, "/sources"), dry_run=dry_run
    )
    call.issues, call.schema_violations = list(promoted.issues), promoted.violations
    result: PromoteResult = promoted.result
    audit: ConsolidationAuditOut | UnsetType = UNSET
    if not dry_run and body.audit is not False:
        audit = await call.services.graph.consolidation_audit(call.tenant, body.into, CONSOLIDATION_CHECKS)
    return PromotedOut(batches=list(result.batches), aliases_dropped=result.aliases_dropped, audit=audit)


@operation("POST", "/contexts/{ref:str}/communities/search")
async def search_communities(call: Call, body: SearchCommunities) -> CommunityHitsOut:
    """Return the summaries of communities that fit a query."""
    services = call.services
    query = PassageQuery(text=body.query, limit=limit_of(body.limit, DEFAULT_HITS), floor=body.semantic_floor)
    question = services.search.question(call.tenant, query.text)
    if query.text:
        await question.foresee()
    async with services.database.work(call.tenant, snapshot=True, local=services.search.local) as connection:
        row = await services.contexts.resolve(connection, call.tenant, call.ref)
        artifact = await services.communities.artifact(
            connection, call.tenant, row, body.derived_id or body.derived or None
        )
        found = await services.communities.search(connection, call.tenant, artifact, query, question)
    call.context_id, call.found = row.context_id, bool(found.hits)
    recorded = artifact.manifest.revision.graph
    return CommunityHitsOut(
        derived_id=str(artifact.row.context_id),
        derived=artifact.row.name,
        algorithm=artifact.manifest.algorithm,
        stale=recorded != row.graph_revision,
        revision=CommunityRevisionOut(recorded_graph=recorded, current_graph=row.graph_revision),
        plan=SearchPlanOut(contexts=[searched(found.search, row.name)]),
        hits=[hit for _, hit in found.hits],
    )


def _query(body: SearchPassages | ExplainSearch) -> PassageQuery:
    return PassageQuery(
        text=body.query,
        limit=limit_of(body.limit, DEFAULT_HITS),
        floor=body.semantic_floor,
        tags=strings(body.tags, "/tags"),
        since=body.since,
        until=body.until,
    )


ROUTES = (
    list_sources,
    store_passages,
    lookup_passages,
    search_passages,
    search_passages_across,
    explain_search,
    cite_passage,
    retract_source,
    import_stream,
    export_context,
    promote,
    search_communities,
)
