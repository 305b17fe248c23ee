"""Writes of facts and aliases: inside a caller's transaction, or in one of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from strata.errors import CONFLICT
from strata.graph.names import key
from strata.graph.vocabulary import Namespace
from strata.knowledge import alias_repository
from strata.knowledge import graph_write_repository as repository
from strata.knowledge.graph_base import GraphBase, away, one_name
from strata.knowledge.graph_checks import Issues, check_name, refuse_malformed, require_at_most
from strata.knowledge.graph_model import (
    MAX_OPERATIONS,
    AliasRow,
    Applied,
    Assertion,
    Change,
    ChangeKind,
    Retracted,
    SourcedAssertion,
)
from strata.knowledge.graph_schemas import RetractionOut
from strata.knowledge.graph_writer import delete_unused, lock_graph, plan_write, settle, withdraw_sources, write
from strata.knowledge.model import ContextRow
from strata.platform.database import Connection

_TIMEOUT_SECONDS = 120.0


class GraphWriting(GraphBase):
    """Writes are whole: a transaction that is refused leaves nothing."""

    async def hold(self, connection: Connection, tenant: UUID, context_id: UUID) -> None:
        """Hold a context and its graph to the end of the unit of work, which is not a snapshot.

        The first thing a unit of work does that writes facts: before source paths, rows and revisions are
        locked. What writes here holds it too, which costs nothing where it is held already.
        Raises ``context_not_found``.
        """
        await self._contexts.hold(connection, tenant, context_id)
        await lock_graph(connection, context_id)

    async def check(  # noqa: PLR0917 - what is written, and where
        self,
        connection: Connection,
        tenant: UUID,
        context_id: UUID,
        source: str,
        assertions: Sequence[Assertion],
        aliases: Sequence[AliasRow] = (),
        *,
        replace: bool = False,
        path: str = "",
    ) -> Applied:
        """Say what :meth:`apply` would refuse or warn of, writing nothing. ``path`` goes before each issue's path.

        Raises what apply would: ``invalid_request``, ``conflict``, ``schema_violation``, each with ``issues``.
        """
        statements = await away(len(assertions), _sourced, source, assertions)
        replaces = source if replace else None
        plan = await plan_write(connection, tenant, context_id, statements, aliases, replaces=replaces, path=path)
        return Applied(len(assertions), len(aliases), issues=plan.warnings.first, violations=plan.warnings.total)

    async def apply(  # noqa: PLR0917 - what is written, and where
        self,
        connection: Connection,
        tenant: UUID,
        context_id: UUID,
        source: str,
        assertions: Sequence[Assertion],
        aliases: Sequence[AliasRow] = (),
        *,
        replace: bool = False,
        path: str = "",
    ) -> Applied:
        """Add what a source states (``""`` for no source) and aliases; ``replace`` withdraws its earlier statements.

        A name is an existing one of that spelling, else an alias's, else one that differs in case, width or
        separators only, else new. Moves the graph revision and records events where anything changes.
        """
        await self.hold(connection, tenant, context_id)
        statements = await away(len(assertions), _sourced, source, assertions)
        replaces = source if replace else None
        plan = await plan_write(connection, tenant, context_id, statements, aliases, replaces=replaces, path=path)
        return await write(connection, tenant, context_id, plan)

    async def retract_source(self, connection: Connection, tenant: UUID, context_id: UUID, source: str) -> Retracted:
        """Delete all that a source states, and what nobody else states; records it where there was something."""
        return await self.forget_sources(connection, tenant, context_id, [source])

    async def forget_sources(
        self, connection: Connection, tenant: UUID, context_id: UUID, paths: Sequence[str]
    ) -> Retracted:
        """Delete all that sources state, and what nobody else states; one event for each that stated something."""
        await self.hold(connection, tenant, context_id)
        stating = await repository.stating(connection, tenant, context_id, paths)
        if not stating:
            return Retracted()
        gone = await withdraw_sources(connection, tenant, context_id, stating)
        changes = [Change("source_retracted", {"source": source}) for source in stating]
        await repository.record(connection, tenant, context_id, changes, is_graph_changed=True)
        return gone

    async def record_change(
        self, connection: Connection, tenant: UUID, context_id: UUID, kind: ChangeKind, payload: Mapping[str, object]
    ) -> None:
        """Append an event to the change feed and count a write; the graph revision stays. Call it last."""
        await repository.record(connection, tenant, context_id, [Change(kind, dict(payload))], is_graph_changed=False)

    async def add_associations(self, tenant: UUID, ref: str, statements: Sequence[SourcedAssertion]) -> Applied:
        """Add statements of several sources, or of none, in one transaction."""
        require_at_most(len(statements), MAX_OPERATIONS, "associations", "")
        async with self._database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
            row = await self._held(connection, tenant, ref)
            plan = await plan_write(connection, tenant, row.context_id, statements, ())
            return await write(connection, tenant, row.context_id, plan)

    async def retract_association(
        self,
        tenant: UUID,
        ref: str,
        subject: str,
        label: str,
        object: str,  # noqa: A002 - the wire's word
    ) -> RetractionOut:
        """Delete one fact, whoever states it, with the names that nothing else uses."""
        names = [one_name(subject, "/subject"), one_name(label, "/label"), one_name(object, "/object")]
        async with self._database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
            row = await self._held(connection, tenant, ref)
            context = row.context_id
            ends, keys = [names[0], names[2]], [key(names[0]), key(names[2])]
            concepts = await repository.find_concepts(connection, tenant, context, ends, keys)
            labels = await repository.find_labels(connection, tenant, context, [names[1]], [key(names[1])])
            association = await repository.find_association(
                connection, tenant, context, subject=concepts[0], label=labels[0], object_=concepts[1]
            )
            if association is None:
                return RetractionOut(retracted=False, attributions_removed=0)
            removed = await repository.delete_shares_of_association(connection, tenant, context, association)
            await settle(connection, tenant, context, (), deletable=[association])
            change = Change("association_retracted", {"subject": subject, "label": label, "object": object})
            await repository.record(connection, tenant, context, [change], is_graph_changed=True)
        return RetractionOut(retracted=True, attributions_removed=removed)

    async def add_aliases(
        self, tenant: UUID, ref: str, *, concepts: Mapping[str, str], labels: Mapping[str, str]
    ) -> int:
        """Register aliases; returns how many were asked for, those that stood already included.

        Raises ``conflict`` for one that names something else, or that leads to nothing.
        """
        rows = [AliasRow(alias, name, Namespace.CONCEPT) for alias, name in concepts.items()]
        rows += [AliasRow(alias, name, Namespace.LABEL) for alias, name in labels.items()]
        require_at_most(len(rows), MAX_OPERATIONS, "aliases", "")
        async with self._database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
            row = await self._held(connection, tenant, ref)
            plan = await plan_write(connection, tenant, row.context_id, (), rows)
            return (await write(connection, tenant, row.context_id, plan)).aliases

    async def remove_aliases(self, tenant: UUID, ref: str, *, concepts: Sequence[str], labels: Sequence[str]) -> int:
        """Remove aliases, and the names that nothing else uses then; returns how many there were.

        Raises ``conflict`` for a name that is no alias but the canonical one.
        """
        require_at_most(len(concepts) + len(labels), MAX_OPERATIONS, "aliases", "")
        asked = {Namespace.CONCEPT: list(dict.fromkeys(concepts)), Namespace.LABEL: list(dict.fromkeys(labels))}
        issues = Issues()
        for space, spellings in asked.items():
            for index, spelling in enumerate(spellings):
                check_name(issues, f"{space}s[{index}]", spelling)
        refuse_malformed(issues)
        async with self._database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
            row = await self._held(connection, tenant, ref)
            return await self._remove_aliases(connection, tenant, row.context_id, asked)

    async def compact(self, tenant: UUID, ref: str) -> int:
        """Remove the aliases that lead to no fact, with their names; returns how many there were."""
        async with self._database.work(tenant, timeout_seconds=_TIMEOUT_SECONDS) as connection:
            row = await self._held(connection, tenant, ref)
            context = row.context_id
            concepts = await alias_repository.delete_dead_of_concepts(connection, tenant, context)
            labels = await alias_repository.delete_dead_of_labels(connection, tenant, context)
            dropped = len(concepts) + len(labels)
            if dropped:
                await delete_unused(connection, tenant, context, sorted(set(concepts)), sorted(set(labels)))
                change = Change("aliases_removed", {"count": dropped})
                await repository.record(connection, tenant, context, [change], is_graph_changed=True)
        return dropped

    async def _remove_aliases(
        self, connection: Connection, tenant: UUID, context: UUID, asked: Mapping[Namespace, Sequence[str]]
    ) -> int:
        targets: dict[Namespace, list[int]] = {}
        for space, spellings in asked.items():
            targets[space] = await alias_repository.delete_aliases(connection, tenant, context, space, spellings)
            canonical = await alias_repository.canonical(connection, tenant, context, space, spellings)
            issues = Issues()
            for name in canonical:
                issues.add(f"{space}s['{name}']", "conflict", "an alias", "a canonical name")
            issues.refuse(CONFLICT, "Only aliases are removed")
        removed = sum(len(found) for found in targets.values())
        if removed:
            await delete_unused(
                connection,
                tenant,
                context,
                sorted(set(targets[Namespace.CONCEPT])),
                sorted(set(targets[Namespace.LABEL])),
            )
            change = Change("aliases_removed", {"count": removed})
            await repository.record(connection, tenant, context, [change], is_graph_changed=True)
        return removed

    async def _held(self, connection: Connection, tenant: UUID, ref: str) -> ContextRow:
        row = await self._contexts.resolve(connection, tenant, ref)
        await self.hold(connection, tenant, row.context_id)
        return row


def _sourced(source: str, assertions: Sequence[Assertion]) -> list[SourcedAssertion]:
    return [SourcedAssertion(item, source) for item in assertions]
