"""Read one document within a budget, and see what it stands among."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn
from uuid import UUID

from msgspec.structs import replace

from strata.knowledge.service import ContextService
from strata.platform.database import Connection, Database
from strata.sources import document_repository, reading, relation_repository
from strata.sources.card_view import fitted_card, is_page_small, opening_of, related, trimmed
from strata.sources.document_repository import Found
from strata.sources.document_schemas import (
    DEFAULT_FETCH_TOKENS,
    BothWays,
    Card,
    Explored,
    Fetched,
    Mode,
    ReadyCall,
    Sibling,
    Siblings,
    SpentTokens,
)
from strata.sources.document_view import (
    SUPERSEDING_SHOWN,
    clipped,
    headings,
    narrowed,
    unchanged,
    with_outline,
    with_text,
)
from strata.sources.document_wish import (
    Shown,
    Wish,
    checked,
    is_digest,
    kind_of,
    known_of,
    one_anchor,
    range_of,
    readings_of,
    reference_of,
    section_of,
)
from strata.sources.relation_repository import Place, RelationRow, Wanted
from strata.sources.relation_schemas import Direction, Kind
from strata.sources.relation_service import RelationService
from strata.sources.repository import SectionHead
from strata.text.estimate import tokens_of_quarters

FETCH = "fetch"
PAGE_RELATIONS = 20
LISTED = 10
OUTLINE_HEADINGS = 20
_MOST_SIBLINGS = 100
_OPENING_BYTES = 8_192


class DocumentService:
    """Reads documents for agents: a section, the whole text or the outline; and what a document stands among."""

    def __init__(self, database: Database, contexts: ContextService, relations: RelationService) -> None:
        self._database = database
        self._contexts = contexts
        self._relations = relations

    async def fetch(
        self,
        tenant: UUID,
        context_ref: str,
        source: str,
        *,
        section: str | None = None,
        mode: Mode = "auto",
        known: str | int | None = None,
        max_tokens: int = DEFAULT_FETCH_TOKENS,
        start_byte: int | None = None,
    ) -> Fetched:
        """Return text of one document, or its outline, within ``max_tokens`` in either form.

        ``source`` is a path, an id or a pin, with an anchor behind ``#`` where a section is meant; ``section`` is
        an anchor or a heading. A section, or ``start_byte``, gives text. Else a document that is as ``known`` (its
        revision, or the sha256 of its text or of the original) is not sent again; else ``auto`` gives the outline
        of one of 8,192 bytes or more that has headings. What does not fit is cut, and ``next`` goes on.
        Raises ``source_not_found``, ``source_archived``, ``section_not_found`` and ``invalid_request``. Three
        statements.
        """
        wish = checked(Wish(section, mode, known_of(known), max_tokens, start_byte))
        async with self._database.work(tenant, snapshot=True) as connection:
            context = (await self._contexts.resolve(connection, tenant, context_ref)).context_id
            found, anchor = await self._find(connection, tenant, context, source, with_digest=is_digest(wish.known))
            part = section_of(found, one_anchor(anchor, wish.section))
            shown = kind_of(found, part, wish)
            start, end = range_of(found, part, wish)
            length = min(end - start, 4 * wish.max_tokens + 4) if shown == "text" else 0
            data, superseded_by = await document_repository.read(
                connection, tenant, context, found, start=start, length=length
            )
        call = _Calls(context_ref, found, part, wish)
        frame = narrowed(_frame(shown, found, part, superseded_by, wish))
        if shown == "unchanged":
            return unchanged(frame)
        if shown == "outline":
            listed = [head for head in found.sections if start <= head.start_byte < end]
            return with_outline(frame, headings(listed), call.outline, call.whole())
        return with_text(frame, data, start, end, call.text)

    async def explore(
        self,
        tenant: UUID,
        context_ref: str,
        source: str,
        *,
        direction: Direction | None = None,
        predicates: Sequence[str] | None = None,
        kind: Kind | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Explored:
        """Return what a document is and what it stands among, without its text; within 20,000 tokens in either form.

        ``source`` is as in :meth:`fetch`; an anchor stands for its document. With any of the others a page of its
        relations instead, as :meth:`RelationService.of` gives it, shortened where it would be too large. Raises
        ``source_not_found`` and ``source_archived``. Six statements.
        """
        if any(given is not None for given in (direction, predicates, kind, limit, cursor)):
            return await self._page(
                tenant,
                context_ref,
                source,
                limit=PAGE_RELATIONS if limit is None else limit,
                direction=direction or "both",
                predicates=predicates,
                kind=kind or "declared",
                cursor=cursor,
            )
        async with self._database.work(tenant, snapshot=True) as connection:
            context = (await self._contexts.resolve(connection, tenant, context_ref)).context_id
            found, _ = await self._find(connection, tenant, context, source)
            data, superseded_by = await document_repository.read(
                connection, tenant, context, found, start=0, length=_OPENING_BYTES
            )
            declared = await _both_ways(connection, tenant, context, found, Wanted())
            links = await _both_ways(connection, tenant, context, found, Wanted(has_declared=False, has_links=True))
            beside = await _siblings(connection, tenant, context, found)
        outline = headings(found.sections[:OUTLINE_HEADINGS])
        card = Card(
            path=found.path,
            pin=found.pin,
            revision=found.revision,
            state=found.state,
            title=found.title,
            total_bytes=found.text_bytes,
            tokens=tokens_of_quarters(found.text_bytes),
            superseded_by=superseded_by[:SUPERSEDING_SHOWN],
            opening=opening_of(data, [head.start_byte for head in found.sections]),
            outline=outline,
            outline_more=len(found.sections) - len(outline),
            declared=declared,
            links=links,
            siblings=beside,
            next=ReadyCall(tool=FETCH, arguments={"context": context_ref, "source": found.pin}),
        )
        return fitted_card(card)

    async def _page(self, tenant: UUID, context_ref: str, source: str, *, limit: int, **question: Any) -> Explored:
        """Return a page of relations, of fewer where they would be too large together."""
        if "#" in source:
            async with self._database.work(tenant) as connection:
                context = (await self._contexts.resolve(connection, tenant, context_ref)).context_id
                found, _ = await self._find(connection, tenant, context, source)
            source = found.pin
        while True:
            page = await self._relations.of(tenant, context_ref, source, limit=limit, **question)
            explored = Explored(kind="relations", relations=trimmed(page))
            if page.next_cursor is not None:
                given = {name: value for name, value in question.items() if value is not None}
                arguments = {"context": context_ref, "source": source, **given, "cursor": page.next_cursor}
                explored = replace(explored, next=ReadyCall(tool="explore", arguments=arguments))
            if limit == 1 or is_page_small(explored):
                return explored
            limit = -(-min(limit, len(page.items)) // 2)

    async def _find(
        self, connection: Connection, tenant: UUID, context: UUID, source: str, *, with_digest: bool = False
    ) -> tuple[Found, str | None]:
        """Return what a reference names, and the anchor in it; one statement unless it names nothing to read."""
        readings = readings_of(source)
        found = None
        if readings:
            wanted = [reference_of(ref) for ref, _ in readings]
            found = await document_repository.find(connection, tenant, context, wanted, with_digest=with_digest)
        if found is None:
            await _refuse(connection, tenant, context, readings[min(1, len(readings) - 1)][0] if readings else source)
        if not found.is_pinned:
            await _refuse(connection, tenant, context, readings[found.reading][0])
        return found, readings[found.reading][1]


class _Calls:
    """The calls that go on from a result."""

    def __init__(self, context_ref: str, found: Found, part: SectionHead | None, wish: Wish) -> None:
        self._base: dict[str, Any] = {"context": context_ref, "source": found.pin}
        if part is not None and part.anchor:
            self._base["source"] = f"{found.pin}#{part.anchor}"
        elif part is not None:
            self._base["section"] = part.heading
        self._room = {} if wish.max_tokens == DEFAULT_FETCH_TOKENS else {"maxTokens": wish.max_tokens}

    def text(self, start: int) -> ReadyCall:
        return ReadyCall(tool=FETCH, arguments={**self._base, "startByte": start, **self._room})

    def outline(self, start: int) -> ReadyCall:
        arguments = {**self._base, "mode": "outline", "startByte": start, **self._room}
        return ReadyCall(tool=FETCH, arguments=arguments)

    def whole(self) -> ReadyCall:
        return ReadyCall(tool=FETCH, arguments={**self._base, "mode": "whole", **self._room})


async def _refuse(connection: Connection, tenant: UUID, context: UUID, ref: str) -> NoReturn:
    """Raise the error of a reference that names nothing to read."""
    await reading.find_document(connection, tenant, context, ref)
    raise reading.not_found(ref)


async def _both_ways(connection: Connection, tenant: UUID, context: UUID, found: Found, wanted: Wanted) -> BothWays:
    """Return the first relations each way; none of an earlier revision."""
    rows: Sequence[RelationRow] = ()
    if found.is_current:
        rows = await relation_repository.page_of(
            connection,
            tenant,
            context,
            found.source_id,
            wanted,
            after=Place(),
            limit=LISTED + 1,
            is_limit_each_way=True,
        )
    outgoing = [related(row) for row in rows if not row.is_incoming]
    incoming = [related(row) for row in rows if row.is_incoming]
    return BothWays(
        outgoing=outgoing[:LISTED],
        outgoing_more=len(outgoing) > LISTED,
        incoming=incoming[:LISTED],
        incoming_more=len(incoming) > LISTED,
    )


async def _siblings(connection: Connection, tenant: UUID, context: UUID, found: Found) -> Siblings:
    folder = found.path[: found.path.rfind("/") + 1]
    rows = await document_repository.siblings(
        connection, tenant, context, found.path, folder=folder, limit=_MOST_SIBLINGS + 1
    )
    more = len(rows[LISTED:])
    return Siblings(
        folder=folder,
        items=[Sibling(path=path, title=title) for path, title in rows[:LISTED]],
        more=min(more, _MOST_SIBLINGS - LISTED),
        more_at_least=len(rows) > _MOST_SIBLINGS,
    )


def _frame(
    shown: Shown,
    found: Found,
    part: SectionHead | None,
    superseded_by: Sequence[str],
    wish: Wish,
) -> Fetched:
    return Fetched(
        kind=shown,
        path=found.path,
        pin=found.pin,
        revision=found.revision,
        state=found.state,
        title=found.title,
        anchor=None if part is None else part.anchor,
        breadcrumb=[] if part is None else [clipped(name) for name in part.breadcrumb],
        start_byte=None,
        end_byte=None,
        total_bytes=found.text_bytes,
        sha256=None,
        truncated=False,
        superseded_by=list(superseded_by[:SUPERSEDING_SHOWN]),
        budget=SpentTokens(limit=wish.max_tokens, used=wish.max_tokens),
    )
