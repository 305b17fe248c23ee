"""Reads and writes of one context's graph."""

from __future__ import annotations

from typing import Any

from strata.contexts_api.operation import Call, operation, strings
from strata.contexts_api.requests import (
    Activate,
    Aliases,
    AliasNames,
    AssertionBody,
    Cue,
    Describe,
    ExplainCue,
    Explore,
    Paths,
    Query,
    QueryAcross,
    Recall,
    RecallAcross,
    Triple,
    Unreachable,
)
from strata.errors import INVALID_REQUEST, OVER_LIMIT, StrataError
from strata.knowledge.graph_model import MAX_OPERATIONS, Assertion, SourcedAssertion
from strata.knowledge.graph_schemas import (
    ActivationPage,
    AliasPage,
    ChangesPage,
    CrossMatchPage,
    DescriptionOut,
    ExplorePage,
    LabelPage,
    MatchPage,
    PathsPage,
    ResolutionOut,
    ResolveExplanationOut,
    RetractionOut,
)


@operation("POST", "/contexts/{ref:str}/resolve")
async def resolve(call: Call, body: Cue) -> list[ResolutionOut]:
    """Return the concepts that a cue may mean."""
    found = await call.services.graph.resolve(
        call.tenant,
        call.ref,
        body.cue,
        dice_floor=body.dice_floor,
        semantic_floor=body.semantic_floor,
        limit=body.limit,
    )
    call.found = bool(found)
    return found


@operation("POST", "/contexts/{ref:str}/resolve_label")
async def resolve_label(call: Call, body: Cue) -> list[ResolutionOut]:
    """Return the labels that a cue may mean."""
    found = await call.services.graph.resolve_label(
        call.tenant,
        call.ref,
        body.cue,
        dice_floor=body.dice_floor,
        semantic_floor=body.semantic_floor,
        limit=body.limit,
    )
    call.found = bool(found)
    return found


@operation("POST", "/contexts/{ref:str}/resolve/explain")
async def explain_resolve(call: Call, body: ExplainCue) -> ResolveExplanationOut:
    """Return why a cue leads to a concept, or does not."""
    return await call.services.graph.explain_resolve(
        call.tenant,
        call.ref,
        body.cue,
        body.expected,
        dice_floor=body.dice_floor,
        semantic_floor=body.semantic_floor,
        limit=body.limit,
    )


@operation("POST", "/contexts/{ref:str}/resolve_label/explain")
async def explain_resolve_label(call: Call, body: ExplainCue) -> ResolveExplanationOut:
    """Return why a cue leads to a label, or does not."""
    return await call.services.graph.explain_resolve_label(
        call.tenant,
        call.ref,
        body.cue,
        body.expected,
        dice_floor=body.dice_floor,
        semantic_floor=body.semantic_floor,
        limit=body.limit,
    )


@operation("POST", "/contexts/{ref:str}/describe")
async def describe(call: Call, body: Describe) -> DescriptionOut | None:
    """Return the labels of a concept in each role; null for an unknown one."""
    found = await call.services.graph.describe(call.tenant, call.ref, body.concept)
    call.found = found is not None
    return found


@operation("POST", "/contexts/{ref:str}/query")
async def query(call: Call, body: Query) -> MatchPage:
    """Return the facts whose parts are among the names given."""
    page = await call.services.graph.query(
        call.tenant,
        call.ref,
        subject=body.subject,
        label=body.label,
        object=body.object,
        subject_types=body.subject_types,
        object_types=body.object_types,
        limit=body.limit,
        after=body.after,
        since=body.since,
        until=body.until,
    )
    call.found = bool(page.total)
    return page


@operation("POST", "/query")
async def query_across(call: Call, body: QueryAcross) -> CrossMatchPage:
    """Return the facts of several contexts whose parts are among the names given."""
    _no_window(body.since, body.until)
    page = await call.services.graph.query_across(
        call.tenant,
        contexts=strings([*body.contexts, *body.context_ids], "/contexts"),
        groups=strings(body.groups, "/groups"),
        subject=body.subject,
        label=body.label,
        object=body.object,
        subject_types=body.subject_types,
        object_types=body.object_types,
        limit=body.limit,
        after=body.after,
    )
    call.found = bool(page.total)
    return page


@operation("POST", "/contexts/{ref:str}/recall")
async def recall(call: Call, body: Recall) -> MatchPage:
    """Return every fact at a concept or under a label."""
    page = await call.services.graph.recall(
        call.tenant, call.ref, body.cue, limit=body.limit, after=body.after, since=body.since, until=body.until
    )
    call.found = bool(page.total)
    return page


@operation("POST", "/recall")
async def recall_across(call: Call, body: RecallAcross) -> CrossMatchPage:
    """Return every fact at a concept or under a label, in several contexts."""
    _no_window(body.since, body.until)
    page = await call.services.graph.recall_across(
        call.tenant,
        body.cue,
        contexts=strings([*body.contexts, *body.context_ids], "/contexts"),
        groups=strings(body.groups, "/groups"),
        limit=body.limit,
        after=body.after,
    )
    call.found = bool(page.total)
    return page


@operation("POST", "/contexts/{ref:str}/activate")
async def activate(call: Call, body: Activate) -> ActivationPage:
    """Return the facts that activation reaches from some concepts."""
    page = await call.services.graph.activate(
        call.tenant, call.ref, body.origins, decay=body.decay, limit=body.limit, since=body.since, until=body.until
    )
    call.found = bool(page.total)
    return page


@operation("POST", "/contexts/{ref:str}/explore")
async def explore(call: Call, body: Explore) -> ExplorePage:
    """Return the facts around some concepts, by distance."""
    page = await call.services.graph.explore(
        call.tenant,
        call.ref,
        body.origins,
        max_depth=body.max_depth,
        limit=body.limit,
        after=body.after,
        since=body.since,
        until=body.until,
    )
    call.found = bool(page.total)
    return page


@operation("POST", "/contexts/{ref:str}/paths")
async def paths(call: Call, body: Paths) -> PathsPage:
    """Return the simple paths between two sets of concepts."""
    page = await call.services.graph.paths(
        call.tenant, call.ref, body.origins, body.targets, max_depth=body.max_depth, limit=body.limit
    )
    call.found = bool(page.total)
    return page


@operation("POST", "/contexts/{ref:str}/unreachable_from")
async def unreachable_from(call: Call, body: Unreachable) -> MatchPage:
    """Return the facts that cannot be reached from some concepts."""
    return await call.services.graph.unreachable_from(
        call.tenant, call.ref, body.origins, limit=body.limit, after=body.after
    )


@operation("GET", "/contexts/{ref:str}/labels")
async def list_labels(call: Call) -> LabelPage:
    """Return a page of labels."""
    return await call.services.graph.labels(
        call.tenant,
        call.ref,
        limit=call.whole("limit"),
        after=call.parameters.get("after") or None,
        prefix=call.parameters.get("prefix", ""),
    )


@operation("GET", "/contexts/{ref:str}/aliases")
async def list_aliases(call: Call) -> AliasPage:
    """Return a page of aliases, those of concepts first."""
    return await call.services.graph.aliases(
        call.tenant,
        call.ref,
        limit=call.whole("limit"),
        after=call.parameters.get("after") or None,
        prefix=call.parameters.get("prefix", ""),
    )


@operation("POST", "/contexts/{ref:str}/aliases")
async def add_aliases(call: Call, body: Aliases) -> int:
    """Register aliases; return how many stand now."""
    _operations(len(body.concepts) + len(body.labels), "aliases")
    return await call.services.graph.add_aliases(call.tenant, call.ref, concepts=body.concepts, labels=body.labels)


@operation("DELETE", "/contexts/{ref:str}/aliases")
async def remove_aliases(call: Call, body: AliasNames) -> int:
    """Remove aliases; return how many there were."""
    _operations(len(body.concepts) + len(body.labels), "alias removals")
    return await call.services.graph.remove_aliases(call.tenant, call.ref, concepts=body.concepts, labels=body.labels)


@operation("POST", "/contexts/{ref:str}/associations")
async def add_associations(call: Call, body: list[AssertionBody]) -> int:
    """Assert facts; return how many assertions were applied."""
    _operations(len(body), "associations")
    statements = [
        SourcedAssertion(
            Assertion(
                item.subject,
                item.label,
                item.object,
                item.weight,
                item.paragraph,
                item.valid_from,
                item.valid_until,
            ),
            _source(item.source, at),
        )
        for at, item in enumerate(body)
    ]
    applied = await call.services.graph.add_associations(call.tenant, call.ref, statements)
    call.issues, call.schema_violations = list(applied.issues), applied.violations
    return applied.associations


@operation("POST", "/contexts/{ref:str}/associations/retract")
async def retract_association(call: Call, body: Triple) -> RetractionOut:
    """Withdraw one fact, whoever asserts it."""
    return await call.services.graph.retract_association(call.tenant, call.ref, body.subject, body.label, body.object)


@operation("GET", "/contexts/{ref:str}/changes")
async def changes(call: Call) -> ChangesPage:
    """Return the changes since a position of the feed; without one, the position to begin at."""
    return await call.services.graph.changes(
        call.tenant, call.ref, since=call.parameters.get("since") or None, limit=call.whole("limit")
    )


def _source(source: str | None, at: int) -> str:
    if source == "":
        raise StrataError(INVALID_REQUEST, "A source has a name; leave it out for none.", pointer=f"/{at}/source")
    return source or ""


def _operations(count: int, what: str) -> None:
    if count > MAX_OPERATIONS:
        raise StrataError(OVER_LIMIT, f"The request carries {count} {what}, past the ceiling of {MAX_OPERATIONS}.")


def _no_window(*bounds: Any) -> None:
    if any(bound is not None for bound in bounds):
        raise StrataError(
            INVALID_REQUEST, "A window is of one context's sources; ask each context by itself.", pointer="/since"
        )


ROUTES = (
    resolve,
    resolve_label,
    explain_resolve,
    explain_resolve_label,
    describe,
    query,
    query_across,
    recall,
    recall_across,
    activate,
    explore,
    paths,
    unreachable_from,
    list_labels,
    list_aliases,
    add_aliases,
    remove_aliases,
    add_associations,
    retract_association,
    changes,
)
