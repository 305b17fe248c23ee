"""How documents relate, read from either end."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, cast, get_args
from uuid import UUID

import msgspec

from strata.errors import INVALID_REQUEST, SOURCE_NOT_FOUND, StrataError
from strata.knowledge.service import ContextService
from strata.platform.database import Connection, Database
from strata.sources import reading, relation_repository
from strata.sources.relation_repository import Place, RelationRow, Wanted
from strata.sources.relation_schemas import (
    DEFAULT_RELATIONS,
    MAX_RELATIONS,
    Direction,
    Kind,
    RelatedSource,
    RelationPage,
    RelationView,
    State,
)
from strata.sources.repository import SourceRow
from strata.sources.views import is_storable

_DIGEST_BYTES = 8


class RelationService:
    """The relations of the documents of a context, each resolved at the moment it is read."""

    def __init__(self, database: Database, contexts: ContextService) -> None:
        self._database = database
        self._contexts = contexts

    async def of(
        self,
        tenant: UUID,
        context_ref: str,
        path_or_id: str,
        *,
        direction: Direction = "both",
        predicates: Sequence[str] | None = None,
        kind: Kind = "declared",
        limit: int = DEFAULT_RELATIONS,
        cursor: str | None = None,
    ) -> RelationPage:
        """Return one page of the relations of a source: outgoing ones in its order, then incoming ones.

        In each direction declared ones come first; incoming ones by path of the document that has them.
        ``predicates`` None means every one; none matches an empty list. ``cursor`` is the ``nextCursor`` of the
        page before, for the same question. Raises ``source_not_found``, also for the pin of an earlier revision,
        and ``source_archived``.
        """
        wanted = _wanted(direction, kind, predicates)
        _check_limit(limit)
        async with self._database.work(tenant, snapshot=True) as connection:
            context = await self._contexts.resolve(connection, tenant, context_ref)
            row = await reading.find_document(connection, tenant, context.context_id, path_or_id)
            if not isinstance(row, SourceRow):
                raise StrataError(SOURCE_NOT_FOUND, "Relations are known of the current revision only.")
            question = [context.context_id, row.source_id, direction, kind, wanted.predicates]
            rows = await relation_repository.page_of(
                connection,
                tenant,
                context.context_id,
                row.source_id,
                wanted,
                after=_decode(cursor, question),
                limit=limit + 1,
            )
        return _page(rows, limit, question)

    async def all(
        self,
        tenant: UUID,
        context_ref: str,
        *,
        state: State | None = None,
        kind: Kind = "declared",
        limit: int = DEFAULT_RELATIONS,
        cursor: str | None = None,
    ) -> RelationPage:
        """Return one page of the relations of all sources, by path and in their order; ``state`` None means any."""
        wanted = _wanted("outgoing", kind, None)
        if state is not None and state not in get_args(State):
            raise StrataError(INVALID_REQUEST, f"A state is one of {_words(State)}.", pointer="?state")
        _check_limit(limit)
        async with self._database.work(tenant, snapshot=True) as connection:
            context = await self._contexts.resolve(connection, tenant, context_ref)
            question = [context.context_id, state, kind]
            rows = await relation_repository.page_of_context(
                connection,
                tenant,
                context.context_id,
                wanted,
                state=state,
                after=_decode(cursor, question),
                limit=limit + 1,
            )
        return _page(rows, limit, question)

    async def count_dangling(self, tenant: UUID, context_ref: str) -> int:
        """Return how many declared relations of a context lead to nothing; archived targets are something."""
        async with self._database.work(tenant) as connection:
            context = await self._contexts.resolve(connection, tenant, context_ref)
            return await relation_repository.count_dangling(connection, tenant, context.context_id)

    async def superseded_by(
        self, connection: Connection, tenant: UUID, context: UUID, sources: Sequence[UUID]
    ) -> dict[UUID, list[str]]:
        """Return for each source that is superseded what supersedes it, sorted; in the caller's unit of work.

        That is a live document that says so, or what the source itself names, be it there or not.
        """
        found: dict[UUID, list[str]] = {}
        for source, path in await relation_repository.superseding(connection, tenant, context, sources):
            found.setdefault(source, []).append(path)
        return found


def _wanted(direction: Direction, kind: Kind, predicates: Sequence[str] | None) -> Wanted:
    """Check what is asked for; raises ``invalid_request`` at the parameter."""
    if direction not in get_args(Direction):
        raise StrataError(INVALID_REQUEST, f"A direction is one of {_words(Direction)}.", pointer="?direction")
    if kind not in get_args(Kind):
        raise StrataError(INVALID_REQUEST, f"A kind is one of {_words(Kind)}.", pointer="?kind")
    named = None
    if predicates is not None:
        # What cannot be stored is declared by nobody.
        named = sorted({predicate.lower() for predicate in predicates if is_storable(predicate)})
    return Wanted(direction != "incoming", direction != "outgoing", kind != "links", kind != "declared", named)


def _words(literal: object) -> str:
    return ", ".join(get_args(literal))


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_RELATIONS:
        raise StrataError(INVALID_REQUEST, f"A page has 1 to {MAX_RELATIONS} relations.", pointer="?limit")


def _page(rows: Sequence[RelationRow], limit: int, question: Sequence[object]) -> RelationPage:
    return RelationPage(
        items=[_view(row) for row in rows[:limit]],
        next_cursor=_encode(rows[limit - 1], question) if len(rows) > limit else None,
    )


def _view(row: RelationRow) -> RelationView:
    place = row.target_path or (None if row.form == "name" else row.target)
    return RelationView(
        direction="INCOMING" if row.is_incoming else "OUTGOING",
        kind="DECLARED" if row.predicate else "LINK",
        predicate=row.predicate or None,
        state=cast("State", row.state),
        source=RelatedSource(path=row.source_path, title=row.source_title, revision=row.source_revision),
        target=row.written,
        path=place,
        title=row.target_title,
        revision=row.target_revision,
        anchor=row.anchor,
        anchor_found=row.target_section is not None if row.anchor is not None and row.target_id else None,
        label=row.label or None,
        section=row.section or [],
        count=row.count,
    )


def _digest(question: Sequence[object]) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(question), digest_size=_DIGEST_BYTES).digest()


def _encode(last: RelationRow, question: Sequence[object]) -> str:
    place = [last.is_incoming, not last.predicate, last.source_path, last.ordinal]
    return base64.urlsafe_b64encode(_digest(question) + msgspec.msgpack.encode(place)).decode()


def _decode(cursor: str | None, question: Sequence[object]) -> Place:
    """Return where a page goes on; raises ``invalid_request`` for the cursor of another question."""
    if not cursor:
        return Place()
    try:
        data = base64.b64decode(cursor, altchars=b"-_", validate=True)
        place: Any = msgspec.msgpack.decode(data[_DIGEST_BYTES:], type=tuple[bool, bool, str, int])
    except (ValueError, msgspec.MsgspecError):
        place = None
    if (
        place is None
        or data[:_DIGEST_BYTES] != _digest(question)
        or not is_storable(place[2])
        or not -1 <= place[3] < 2**31
    ):
        raise StrataError(
            INVALID_REQUEST, "The cursor is not one that a page of this question gave.", pointer="?cursor"
        )
    return Place(*place)
