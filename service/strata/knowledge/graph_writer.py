"""Writing facts inside the transaction of who imports or edits them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from math import inf
from operator import add
from typing import TypeVar
from uuid import UUID

from msgspec import Struct

from strata.errors import CONFLICT, INVALID_REQUEST
from strata.graph.names import HIDDEN_LABEL, key
from strata.graph.vocabulary import Namespace
from strata.knowledge import alias_repository
from strata.knowledge import graph_write_repository as repository
from strata.knowledge.graph_base import away
from strata.knowledge.graph_checks import (
    Issues,
    Names,
    Token,
    check_alias_names,
    check_assertions,
    check_loops,
    plan_aliases,
    refuse_malformed,
)
from strata.knowledge.graph_judge import judge
from strata.knowledge.graph_model import (
    AliasRow,
    Applied,
    Assertion,
    Change,
    Edge,
    Retracted,
    Share,
    SourcedAssertion,
)
from strata.knowledge.locks import graph_lock_key
from strata.platform.database import Connection

_ROWS = 5_000
T = TypeVar("T")
Triple = tuple[int, int, int]
Slot = tuple[str, int | None, int | None]
Unplaced = tuple[str, int | None, int | None, float, int, int | None]

Find = Callable[[Connection, UUID, UUID, Sequence[str], Sequence[str]], Awaitable[list[int | None]]]
Insert = Callable[[Connection, UUID, UUID, Sequence[str], Sequence[str]], Awaitable[dict[str, int]]]


@dataclass(frozen=True, slots=True)
class _Space:
    find: Find
    insert: Insert


class _Total(Struct, gc=False):
    """What one source says of an association for one interval, as it is added up."""

    weight: float = 0.0
    count: int = 0
    paragraph: int | None = None


_SPACES = {
    Namespace.CONCEPT: _Space(repository.find_concepts, repository.insert_concepts),
    Namespace.LABEL: _Space(repository.find_labels, repository.insert_labels),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A write that was found to be in order: what its names stand for, its aliases, what the schema warns of."""

    statements: Sequence[SourcedAssertion]
    names: dict[Namespace, Names]
    aliases: dict[Namespace, dict[str, Token]]
    alias_count: int
    warnings: Issues
    replaces: str | None


async def lock_graph(connection: Connection, context: UUID) -> None:
    """Wait for other writers of a context's graph, and keep them out until the transaction ends.

    Take it before any other lock but :meth:`ContextService.hold`, in a transaction that is READ
    COMMITTED: what the others wrote must be seen.
    """
    await repository.lock(connection, graph_lock_key(context))


async def plan_write(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    statements: Sequence[SourcedAssertion],
    aliases: Sequence[AliasRow],
    *,
    replaces: str | None = None,
    path: str = "",
) -> Plan:
    """Check a write against what is stored, reading only.

    ``replaces`` names a source whose earlier statements will be withdrawn. ``path`` goes before the path
    of each issue. Raises ``invalid_request`` for malformed values and
    self-loops, ``conflict`` for aliases that cannot be, ``schema_violation`` where the schema is strict.
    """
    issues = Issues(path)
    size = len(statements) + len(aliases)
    assertions, spellings = await away(size, _checked, issues, statements, aliases)
    refuse_malformed(issues)
    names = {space: await _resolve(connection, tenant, context, space, spellings[space]) for space in Namespace}
    await away(size, check_loops, issues, assertions, names[Namespace.CONCEPT])
    issues.refuse(INVALID_REQUEST, "A fact relates two different concepts")
    planned = {}
    for space in Namespace:
        rows = [row for row in aliases if row.kind == space]
        spelled, targets = await _resolve_aliases(connection, tenant, context, space, rows, names=names[space])
        planned[space] = await away(len(rows), plan_aliases, issues, rows, spelled, targets, names[space])
    issues.refuse(CONFLICT, "An alias cannot be registered; nothing was written")
    warnings = Issues(path)
    await judge(connection, tenant, context, assertions, names=names, replaces=replaces, warnings=warnings)
    return Plan(statements, names, planned, len(aliases), warnings, replaces)


def _checked(
    issues: Issues, statements: Sequence[SourcedAssertion], aliases: Sequence[AliasRow]
) -> tuple[list[Assertion], dict[Namespace, list[str]]]:
    """Note what is wrong with single values; return the assertions, and each spelling of theirs once."""
    assertions = [statement.assertion for statement in statements]
    check_assertions(issues, assertions, [statement.source for statement in statements])
    check_alias_names(issues, aliases)
    return assertions, {
        Namespace.CONCEPT: list(dict.fromkeys(name for item in assertions for name in (item.subject, item.object))),
        Namespace.LABEL: list(dict.fromkeys(item.label for item in assertions)),
    }


async def _resolve(
    connection: Connection, tenant: UUID, context: UUID, space: Namespace, spellings: Sequence[str]
) -> Names:
    """Find what spellings stand for; those that name nothing are one new name for each key."""
    tokens: dict[str, Token] = {}
    fresh: dict[str, str] = {}
    for part in _slices(spellings):
        keys = await away(len(part), _keys, part)
        found = await _SPACES[space].find(connection, tenant, context, part, keys)
        for name, own_key, identifier in zip(part, keys, found, strict=True):
            if identifier is None:
                fresh.setdefault(own_key, name)
            tokens[name] = own_key if identifier is None else identifier
    return Names(tokens, fresh)


def _keys(names: Sequence[str]) -> list[str]:
    return [key(name) for name in names]


async def _resolve_aliases(
    connection: Connection, tenant: UUID, context: UUID, space: Namespace, rows: Sequence[AliasRow], *, names: Names
) -> tuple[dict[str, int | None], dict[str, Token | None]]:
    """Return what the aliases' own spellings name exactly, and what their targets are."""
    if not rows:
        return {}, {}
    find = _SPACES[space].find
    spelled: dict[str, int | None] = {}
    for part in _slices(dict.fromkeys(row.alias for row in rows)):
        # No name has an empty key, so these are found by their exact spelling only.
        spelled.update(zip(part, await find(connection, tenant, context, part, [""] * len(part)), strict=True))
    targets: dict[str, Token | None] = {}
    for part in _slices(dict.fromkeys([*(row.canonical for row in rows), HIDDEN_LABEL])):
        keys = await away(len(part), _keys, part)
        found = await find(connection, tenant, context, part, keys)
        for name, own_key, identifier in zip(part, keys, found, strict=True):
            targets[name] = identifier if identifier is not None else names.tokens.get(name)
            if targets[name] is None and own_key in names.fresh:
                targets[name] = own_key
    return spelled, targets


async def write(connection: Connection, tenant: UUID, context: UUID, plan: Plan) -> Applied:
    """Carry out a plan, withdrawing what the source that it replaces stated before.

    An association that the source states again keeps its place: it is deleted only where nobody
    states it any more. Records the events and moves the graph revision, as the last statement.
    """
    touched = [] if plan.replaces is None else await _withdraw(connection, tenant, context, [plan.replaces])
    withdrawn = await away(len(touched), _distinct, touched)
    ids = {space: await _intern(connection, tenant, context, space, plan.names[space]) for space in Namespace}
    before = await _state(connection, tenant, context, plan.statements, ids=ids, names=plan.names)
    # Before names are deleted that nothing uses: an alias may be all that still does.
    for space in Namespace:
        for part in _slices(plan.aliases[space].items()):
            rows = [(alias, _identifier(token, ids[space])) for alias, token in part]
            await alias_repository.insert_aliases(connection, tenant, context, space, rows)
    changed = await away(len(touched) + len(before), _distinct, touched, before)
    await settle(connection, tenant, context, changed, deletable=withdrawn)
    changes = _changes(plan, plan.replaces if touched else None)
    if changes:
        await repository.record(connection, tenant, context, changes, is_graph_changed=True)
    return Applied(
        associations=len(plan.statements),
        aliases=plan.alias_count,
        retracted=Retracted(len(withdrawn), len(touched)),
        issues=plan.warnings.first,
        violations=plan.warnings.total,
    )


def _changes(plan: Plan, retracted: str | None) -> list[Change]:
    changes = []
    if retracted is not None:
        changes.append(Change("source_retracted", {"source": retracted}))
    if plan.statements:
        changes.append(Change("associations_added", {"count": len(plan.statements)}))
    if plan.alias_count:
        changes.append(Change("aliases_added", {"count": plan.alias_count}))
    return changes


async def withdraw_sources(connection: Connection, tenant: UUID, context: UUID, sources: Sequence[str]) -> Retracted:
    """Delete what sources state, with the associations and names that nothing else holds. Records nothing."""
    touched = await _withdraw(connection, tenant, context, sources)
    associations = await away(len(touched), _distinct, touched)
    await settle(connection, tenant, context, associations, deletable=associations)
    return Retracted(len(associations), len(touched))


async def settle(
    connection: Connection, tenant: UUID, context: UUID, associations: Sequence[int], *, deletable: Sequence[int]
) -> None:
    """Add associations up anew; delete those of ``deletable`` that nobody states, and the names left unused."""
    for part in _slices(associations):
        await repository.add_up(connection, tenant, context, part)
    for part in _slices(deletable):
        concepts, labels = await repository.delete_unstated(connection, tenant, context, part)
        await delete_unused(connection, tenant, context, concepts, labels)


async def delete_unused(
    connection: Connection, tenant: UUID, context: UUID, concepts: Sequence[int], labels: Sequence[int]
) -> None:
    """Delete those of the names that no association and no alias leads to."""
    if concepts:
        await repository.delete_unused_concepts(connection, tenant, context, concepts)
    if labels:
        await repository.delete_unused_labels(connection, tenant, context, labels)


async def _withdraw(connection: Connection, tenant: UUID, context: UUID, sources: Sequence[str]) -> list[int]:
    return await repository.delete_shares_of_sources(connection, tenant, context, sources)


async def _intern(
    connection: Connection, tenant: UUID, context: UUID, space: Namespace, names: Names
) -> dict[str, int]:
    """Insert the new names; return their ids by key."""
    ids: dict[str, int] = {}
    for part in _slices(list(names.fresh.items())):
        keys = [own_key for own_key, _ in part]
        inserted = await _SPACES[space].insert(connection, tenant, context, [name for _, name in part], keys)
        ids.update((own_key, inserted[name]) for own_key, name in part)
    return ids


def _identifier(token: Token, ids: dict[str, int]) -> int:
    return ids[token] if isinstance(token, str) else token


async def _state(
    connection: Connection,
    tenant: UUID,
    context: UUID,
    statements: Sequence[SourcedAssertion],
    *,
    ids: dict[Namespace, dict[str, int]],
    names: dict[Namespace, Names],
) -> list[int]:
    """Write the statements; return the associations that stood before, whose sums are to be made anew."""
    edges, shares = await away(len(statements), _edges_and_shares, statements, ids, names)
    places: dict[Triple, int] = {}
    before: list[int] = []
    for part in _slices(edges):
        found, stood = await repository.upsert_associations(connection, tenant, context, part)
        places.update(found)
        before.extend(stood)
    for rows in _slices(shares):
        placed = [Share(places[triple], *share) for triple, share in rows]
        await repository.upsert_attributions(connection, tenant, context, placed)
    return before


def _edges_and_shares(
    statements: Sequence[SourcedAssertion], ids: dict[Namespace, dict[str, int]], names: dict[Namespace, Names]
) -> tuple[list[Edge], list[tuple[Triple, Unplaced]]]:
    concepts, labels = (
        {name: _identifier(token, ids[space]) for name, token in names[space].tokens.items()}
        for space in (Namespace.CONCEPT, Namespace.LABEL)
    )
    return _added_up(statements, concepts, labels)


def _added_up(
    statements: Sequence[SourcedAssertion], concepts: dict[str, int], labels: dict[str, int]
) -> tuple[list[Edge], list[tuple[Triple, Unplaced]]]:
    """Add statements up by source and interval, and those by association, in the order that storage adds them."""
    totals: dict[Triple, dict[Slot, _Total]] = {}
    for statement in statements:
        item, source = statement.assertion, statement.source
        triple = concepts[item.subject], labels[item.label], concepts[item.object]
        total = totals.setdefault(triple, {}).setdefault((source, item.valid_from, item.valid_until), _Total())
        total.weight += item.weight
        total.count += 1
        if total.paragraph is None and source:
            total.paragraph = item.paragraph
    edges = []
    for triple, slots in totals.items():
        ordered = [slots[slot] for slot in sorted(slots, key=_slot_order)] if len(slots) > 1 else slots.values()
        weight = reduce(add, (total.weight for total in ordered))
        edges.append(Edge(*triple, weight, sum(total.count for total in ordered)))
    shares = [
        (triple, (*slot, total.weight, total.count, total.paragraph))
        for triple, slots in totals.items()
        for slot, total in slots.items()
    ]
    return edges, shares


def _slot_order(slot: Slot) -> tuple[str, float, float]:
    source, start, end = slot
    return source, inf if start is None else start, inf if end is None else end


def _distinct(*identifiers: Sequence[int]) -> list[int]:
    return sorted(set().union(*identifiers))


def _slices(rows: Iterable[T]) -> Iterator[list[T]]:
    """Cut rows so that preparing one statement does not hold the event loop for long."""
    remaining = iter(rows)
    while part := list(islice(remaining, _ROWS)):
        yield part
