"""Contexts and groups: the directory of the contexts API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from strata.contexts_api.operation import MAX_LIMIT, Call, Text, operation, strings
from strata.contexts_api.requests import CreateContext, CreateGroup, PatchContext, PatchGroup, Rename
from strata.errors import INVALID_REQUEST, StrataError
from strata.exchange.records import Form
from strata.knowledge.graph_schemas import ContextStatsOut
from strata.knowledge.group_schemas import GroupOut, GroupPage
from strata.knowledge.model import ContextOptions, DirectoryEntry

NDJSON = "application/x-ndjson"


class UsageOut(Struct, frozen=True, kw_only=True):
    """How often a context was read and written; 0 for a time that never was."""

    reads: int
    empty_reads: int
    writes: int
    last_read_epoch: int
    last_write_epoch: int


class RevisionOut(Struct, frozen=True, kw_only=True):
    """Counters of changes; compare for equality only."""

    graph: int
    passages: int
    config: int


class ContextOut(Struct, frozen=True, kw_only=True):
    """A context as the directory lists it; ``id`` is an addition of ours."""

    id: UUID
    name: str
    description: str
    pinned: bool
    loaded: bool
    dice_floor: float | None
    semantic_floor: float | None
    stats: ContextStatsOut
    usage: UsageOut
    revision: RevisionOut
    schema_mode: str | None


class ContextsOut(Struct, frozen=True, kw_only=True):
    """A page of the directory; ``total`` counts all."""

    total: int
    contexts: list[ContextOut]


class MetaOut(Struct, frozen=True, kw_only=True):
    """What a caller may set of a context."""

    description: str
    pinned: bool
    dice_floor: float | None
    semantic_floor: float | None


@operation("GET", "/contexts")
async def list_contexts(call: Call) -> ContextsOut:
    """Return a page of contexts by name."""
    services = call.services
    pinned = call.flag("pinned") if call.parameters.get("pinned") else None
    page = await services.contexts.directory(
        call.tenant,
        limit=call.whole("limit", MAX_LIMIT) or 0,
        after=call.parameters.get("after") or None,
        is_pinned=pinned,
    )
    return ContextsOut(total=page.total, contexts=await _shown(call, page.entries))


@operation("GET", "/contexts/{ref:str}")
async def get_context(call: Call) -> ContextOut:
    """Return one context."""
    entry = await call.services.contexts.entry(call.tenant, call.ref)
    return (await _shown(call, [entry]))[0]


@operation("PUT", "/contexts/{ref:str}")
async def create_context(call: Call, body: CreateContext) -> bool:
    """Make a context of the name in the path."""
    await _create(call, call.ref, body)
    return True


@operation("POST", "/contexts")
async def post_context(call: Call, body: CreateContext) -> ContextOut:
    """Make a context of the name in the body; return it."""
    if body.name is None:
        raise StrataError(INVALID_REQUEST, "The field is required.", pointer="/name")
    ref = await _create(call, body.name, body)
    return (await _shown(call, [await call.services.contexts.entry(call.tenant, ref)]))[0]


@operation("PATCH", "/contexts/{ref:str}")
async def update_context(call: Call, body: PatchContext) -> MetaOut:
    """Change what is given of a context; return what can be set of it."""
    options = ContextOptions(body.pinned, body.dice_floor, body.semantic_floor)
    await call.services.contexts.update(
        call.tenant, call.ref, name=body.name, description=body.description, options=options
    )
    row = (await call.services.contexts.entry(call.tenant, body.name or call.ref)).row
    return MetaOut(
        description=row.description,
        pinned=row.is_pinned,
        dice_floor=row.dice_floor,
        semantic_floor=row.semantic_floor,
    )


@operation("DELETE", "/contexts/{ref:str}")
async def delete_context(call: Call) -> bool:
    """Delete a context with all that it holds. Final."""
    await call.services.contexts.delete(call.tenant, call.ref)
    return True


@operation("POST", "/contexts/{ref:str}/rename")
async def rename_context(call: Call, body: Rename) -> bool:
    """Give a context another name; its id stays."""
    await call.services.contexts.rename(call.tenant, call.ref, body.to)
    return True


@operation("GET", "/groups")
async def list_groups(call: Call) -> GroupPage:
    """Return a page of groups by name."""
    limit = call.whole("limit", MAX_LIMIT) or 0
    return await call.services.groups.list(call.tenant, limit=limit, after=call.parameters.get("after") or None)


@operation("GET", "/groups/{ref:str}")
async def get_group(call: Call) -> GroupOut:
    """Return one group."""
    return await call.services.groups.get(call.tenant, call.ref)


@operation("PUT", "/groups/{ref:str}")
async def create_group(call: Call, body: CreateGroup) -> bool:
    """Make a group of the name in the path."""
    contexts = strings([*body.contexts, *body.context_ids], "/contexts")
    await call.services.groups.create(
        call.tenant,
        call.ref,
        description=body.description,
        contexts=contexts,
        groups=strings(body.groups, "/groups"),
    )
    return True


@operation("PATCH", "/groups/{ref:str}")
async def update_group(call: Call, body: PatchGroup) -> GroupOut:
    """Change description and members of a group, removals first; return it."""
    return await call.services.groups.update(
        call.tenant,
        call.ref,
        description=body.description,
        add_contexts=strings([*body.add_contexts, *body.add_context_ids], "/add_contexts"),
        remove_contexts=strings([*body.remove_contexts, *body.remove_context_ids], "/remove_contexts"),
        add_groups=strings(body.add_groups, "/add_groups"),
        remove_groups=strings(body.remove_groups, "/remove_groups"),
    )


@operation("DELETE", "/groups/{ref:str}")
async def delete_group(call: Call) -> bool:
    """Delete a group; its members stay."""
    await call.services.groups.delete(call.tenant, call.ref)
    return True


@operation("POST", "/groups/{ref:str}/rename")
async def rename_group(call: Call, body: Rename) -> bool:
    """Give a group another name; groups that hold it follow."""
    await call.services.groups.rename(call.tenant, call.ref, body.to)
    return True


@operation("GET", "/groups/{ref:str}/export")
async def export_group(call: Call) -> Text:
    """Return a group as one line of an import stream."""
    return Text(await call.services.exchange.export_group(call.tenant, call.ref, form=form_of(call)), NDJSON)


def form_of(call: Call) -> Form:
    """Return the form of a stream that the call asks for: ``?form=id`` names contexts by id; by name otherwise."""
    value = call.parameters.get("form", Form.NAME.value)
    if value not in {form.value for form in Form}:
        raise StrataError(INVALID_REQUEST, "The value is neither name nor id.", pointer="?form")
    return Form(value)


async def _create(call: Call, name: str, body: CreateContext) -> str:
    options = ContextOptions(body.pinned, body.dice_floor, body.semantic_floor)
    return str((await call.services.contexts.create(call.tenant, name, body.description, options)).id)


async def _shown(call: Call, entries: Sequence[DirectoryEntry]) -> list[ContextOut]:
    async with call.services.database.work(call.tenant, snapshot=True) as connection:
        stats = await call.services.graph.stats_of(connection, call.tenant, [entry.row for entry in entries])
    return [_context(entry, stats[entry.row.context_id]) for entry in entries]


def _context(entry: DirectoryEntry, stats: ContextStatsOut) -> ContextOut:
    row, usage = entry.row, entry.usage
    return ContextOut(
        id=row.context_id,
        name=row.name,
        description=row.description,
        pinned=row.is_pinned,
        loaded=True,
        dice_floor=row.dice_floor,
        semantic_floor=row.semantic_floor,
        stats=stats,
        usage=UsageOut(
            reads=usage.reads,
            empty_reads=usage.empty_reads,
            writes=usage.writes,
            last_read_epoch=_epoch(usage.last_read_at),
            last_write_epoch=_epoch(usage.last_write_at),
        ),
        revision=RevisionOut(graph=row.graph_revision, passages=row.passages_revision, config=row.config_revision),
        schema_mode=entry.schema_mode,
    )


def _epoch(moment: datetime | None) -> int:
    return int(moment.timestamp()) if moment else 0


ROUTES = (
    list_contexts,
    get_context,
    create_context,
    post_context,
    update_context,
    delete_context,
    rename_context,
    list_groups,
    get_group,
    create_group,
    update_group,
    delete_group,
    rename_group,
    export_group,
)
