"""The trace as use cases: record a call, list calls, show one, say why something is or is not in it."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from strata.errors import CONTEXT_NOT_FOUND, INVALID_REQUEST, INVOCATION_NOT_FOUND, StrataError
from strata.knowledge.service import clean_ref
from strata.lookup.request import plan_lookup
from strata.lookup.schemas import LookupRequest
from strata.platform.database import Connection, Database
from strata.platform.ids import SERIAL_BITS
from strata.text.normalise import normalise_text
from strata.text.tokenise import analyse_query
from strata.traces import repository, retention
from strata.traces.recorder import Recorder
from strata.traces.schemas import (
    InvocationPage,
    InvocationSummary,
    InvocationView,
    LiveSource,
    PruneReport,
    RetrievalDetails,
    Stage,
    Status,
    Surface,
    WhyReport,
)
from strata.traces.why import (
    Absence,
    Target,
    TermMatch,
    fate_sentence,
    ingest_absence,
    lane_absence,
    lane_notes,
    match_terms,
    nearest_fates,
    read_details,
    shown_notes,
    unlisted,
)

__all__ = ["InvocationService", "LaneOrders", "Recorder"]

MAX_PAGE = 500
MAX_TARGET_CHARS = 2048
MAX_CHECKED_PASSAGES = 1000

LaneOrders = Callable[[UUID, UUID, str], Awaitable[Mapping[str, Sequence[int]]]]
"""Given tenant, context and query: by lane, the ids of the context's passages in its order, as far as they go."""


class InvocationService:
    """Review of recorded calls. Nothing here changes a row but :meth:`prune`.

    ``lane_orders`` lets :meth:`why` say where a passage would rank today; without it that is left out.
    """

    def __init__(self, database: Database, lane_orders: LaneOrders | None = None) -> None:
        self._database = database
        self._lane_orders = lane_orders

    async def list(
        self,
        tenant: UUID,
        *,
        context: str | None = None,
        status: Status | str | None = None,
        tool: str | None = None,
        session_id: str | None = None,
        trace_id: str | None = None,
        query: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> InvocationPage:
        """Return the newest calls that meet every condition given.

        ``context`` is an id or a name and means the first context of a call; ``query`` is a part of
        the question, case ignored; ``since`` is inclusive, ``until`` is not; without a zone they are
        UTC. Raises ``invalid_request`` (status, limit, cursor, a time outside the years 1 to 9999 in
        UTC) and ``context_not_found``.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise StrataError(INVALID_REQUEST, f"limit must be from 1 to {MAX_PAGE}.", pointer="?limit")
        conditions: list[tuple[str, Sequence[Any]]] = [
            (name, (_clean(value),))
            for name, value in (
                ("status", _status(status)),
                ("tool", tool),
                ("session_id", session_id),
                ("trace_id", trace_id.lower() if trace_id else None),
                ("query", query),
            )
            if value
        ]
        conditions += [(name, (_bound(at, f"?{name}"),)) for name, at in (("since", since), ("until", until)) if at]
        if cursor:
            conditions.append(("after", _read_cursor(cursor)))
        async with self._database.work(tenant) as connection:
            if context:
                conditions.append(("context", (await _context(connection, tenant, context),)))
            rows = await repository.list_page(connection, tenant, conditions, limit + 1)
        items = [InvocationSummary(**_typed(row)) for row in rows[:limit]]
        return InvocationPage(items=items, next_cursor=_cursor(items[-1]) if len(rows) > limit else None)

    async def show(self, tenant: UUID, invocation: UUID) -> InvocationView:
        """Return the whole row; raises ``invocation_not_found``, also for another tenant's id."""
        async with self._database.work(tenant) as connection:
            return await _view(connection, tenant, invocation)

    async def why(self, tenant: UUID, invocation: UUID, target: str) -> WhyReport:
        """Say at which stage and for which reason ``target`` is or is not in the result.

        ``target`` is a source path (``#anchor`` allowed), a source key or a passage key. What the row
        does not tell is looked up in the tables as they are now. Raises ``invocation_not_found``,
        and ``invalid_request`` for an empty or overlong target.
        """
        asked = (_clean(target) or "").strip()
        if not asked or len(asked) > MAX_TARGET_CHARS:
            detail = f"The target is empty or longer than {MAX_TARGET_CHARS} characters."
            raise StrataError(INVALID_REQUEST, detail, pointer="?target")
        goal = Target.parse(asked)
        async with self._database.work(tenant, snapshot=True) as connection:
            call = await _view(connection, tenant, invocation)
            details = read_details(call.retrieval_details)
            if details is None:
                return _report(call, goal, _call_absence(call))
            found, about = nearest_fates(details, goal)
            if found:
                best = found[0]
                return WhyReport(
                    invocation_id=call.id,
                    target=asked,
                    stage=best.stage,
                    reason=best.reason,
                    is_selected=best.stage is Stage.SELECTED,
                    rank=best.rank,
                    sentence=fate_sentence(best, details),
                    candidates=found,
                    notes=[*about, *_notes(details), *shown_notes(details, goal)],
                )
            probe = _Probe(connection, tenant, call, details, goal)
            absence, live, best_passage = await probe.run()
        if live is not None and self._lane_orders is not None:
            live, absence = await self._ranked(tenant, probe, live, best_passage, absence)
        return _report(call, goal, absence, live, [*probe.notes, *_notes(details), *shown_notes(details, goal)])

    async def prune(self, older_than: timedelta, *, dry_run: bool = False) -> PruneReport:
        """Remove the calls of all tenants that are older than ``older_than`` (see :mod:`.retention`)."""
        return await retention.prune(self._database, older_than, dry_run=dry_run)

    async def make_partitions(self) -> int:
        """Make the partitions of the coming weeks; return how many were missing."""
        return await retention.make_partitions(self._database)

    async def _ranked(
        self, tenant: UUID, probe: _Probe, live: LiveSource, passage: int | None, absence: Absence
    ) -> tuple[LiveSource, Absence]:
        """Add the place that the passage would have today, where the question is known."""
        if self._lane_orders is None or probe.context is None or probe.query is None:
            return live, absence
        orders = await self._lane_orders(tenant, probe.context, probe.query)
        ranks = {}
        for lane, order in orders.items():
            # By words it is the passage that holds most of them; by meaning, whichever is nearest.
            meant = (at for at, other in enumerate(order, 1) if lane != "lexical" or other == passage)
            ranks[lane] = next((at for at in meant if order[at - 1] >> SERIAL_BITS == probe.serial), None)
        live = msgspec.structs.replace(live, lexical_rank=ranks.get("lexical"), vector_rank=ranks.get("vector"))
        known = {lane: rank for lane, rank in ranks.items() if rank is not None}
        if absence.stage is Stage.LANE and known:
            match = TermMatch(passage, live.terms_held, live.terms_missing)
            absence = lane_absence(match, known, probe.details.lanes)
        return live, absence


class _Probe:
    """Looks in the tables for what the row does not tell."""

    def __init__(
        self, connection: Connection, tenant: UUID, call: InvocationView, details: RetrievalDetails, target: Target
    ) -> None:
        self.connection = connection
        self.tenant = tenant
        self.call = call
        self.details = details
        self.target = target
        self.notes: list[str] = []
        self.context: UUID | None = None
        self.serial: int | None = None
        asked = call.arguments.get("query")
        self.query: str | None = asked if isinstance(asked, str) else None

    async def run(self) -> tuple[Absence, LiveSource | None, int | None]:
        """Return the reason, the source as it is now, and its best passage for the query."""
        target = self.target
        rows = await repository.live_sources(
            self.connection,
            self.tenant,
            path=target.path,
            source_key=target.text,
            serial=target.serial,
            passage=target.passage,
        )
        asked = {context.id for context in self.details.contexts}
        if not asked and self.call.context_id is not None:
            asked.add(self.call.context_id)
        inside = [row for row in rows if row["context_id"] in asked]
        if not inside:
            return await self._not_there(rows, asked), None, None
        row = inside[0]
        self.context, self.serial = row["context_id"], row["serial"]
        if len(inside) > 1:
            self.notes.append(f"{len(inside)} sources match; this is about {row['path']} in {row['context']}.")
        began = self.call.created_at - timedelta(milliseconds=self.call.duration_ms)
        failed = await self._failed_filters(row)
        match = await self._match(row)
        live = LiveSource(
            context=row["context"],
            path=row["path"],
            revision=row["revision"],
            ingested_at=row["created_at"],
            updated_at=row["updated_at"],
            passages=row["passage_count"],
            changed_after_call=row["updated_at"] > began,
            filters_failed=failed,
            terms_held=match.held if match else [],
            terms_missing=match.missing if match else [],
        )
        if live.changed_after_call:
            self.notes.append(f"It was replaced after the call: revision {row['revision']} is not what the call saw.")
        return self._absence(row, began, failed, match), live, match.passage if match else None

    def _absence(self, row: Any, began: datetime, failed: list[str], match: TermMatch | None) -> Absence:
        stored = ingest_absence(
            called_at=began, ingested_at=row["created_at"], passages=row["passage_count"], context=row["context"]
        )
        if stored is not None:
            return stored
        if self.target.passage is not None and not row["passage_exists"]:
            return Absence(Stage.INGEST, "NO_SUCH_PASSAGE", "Its source is stored, but has no such passage.")
        if failed:
            names = ", ".join(failed)
            return Absence(Stage.FILTER, failed[0].upper(), f"It does not pass the request's filters: {names}.")
        if count := unlisted(self.details):
            sentence = f"It is not among the listed candidates; {count} more were omitted without being listed."
            return Absence(Stage.FUSION, "NOT_LISTED", sentence)
        return lane_absence(match, {}, self.details.lanes)

    async def _not_there(self, rows: Sequence[Any], asked: set[UUID]) -> Absence:
        names = await repository.context_names(self.connection, self.tenant, list(asked))
        where = ", ".join(sorted(names.get(context, str(context)) for context in asked)) or "the contexts asked"
        if rows:
            elsewhere = ", ".join(sorted({row["context"] for row in rows}))
            return Absence(Stage.INGEST, "OTHER_CONTEXT", f"It is in {elsewhere}; the call asked {where}.")
        if self.target.passage is not None:
            sentence = f"No source in {where} has such a passage now: it was never there, or was deleted or replaced."
            return Absence(Stage.INGEST, "NO_SUCH_PASSAGE", sentence)
        return Absence(Stage.INGEST, "NOT_INGESTED", f"No such source is in {where}: never ingested, or deleted.")

    async def _failed_filters(self, row: Any) -> list[str]:
        """Return the request's filters that the source fails now; the category does not count when relaxed."""
        try:
            request = msgspec.convert({**self.call.arguments, "query": "?"}, LookupRequest, strict=False)
            plan = plan_lookup(request)
        except (msgspec.ValidationError, StrataError):
            self.notes.append("The filters of the request could not be read back.")
            return []
        wanted = plan.source_filter
        return await repository.failed_filters(
            self.connection,
            self.tenant,
            row["context_id"],
            row["source_id"],
            categories=[] if self.details.filters.relaxed else plan.categories,
            paths=wanted.paths,
            tags=wanted.tags,
            since=wanted.since,
            until=wanted.until,
            language=wanted.language,
        )

    async def _match(self, row: Any) -> TermMatch | None:
        """Match the query's terms against the source's passages, off the event loop."""
        if self.query is None:
            self.notes.append("The question is not stored, so its terms could not be looked for.")
            return None
        texts = await repository.passage_texts(
            self.connection,
            self.tenant,
            row["context_id"],
            row["source_id"],
            passage=self.target.passage,
            limit=MAX_CHECKED_PASSAGES,
        )
        if row["passage_count"] > MAX_CHECKED_PASSAGES and self.target.passage is None:
            self.notes.append(f"Only its first {MAX_CHECKED_PASSAGES} passages were searched for the terms.")
        language = row["language"]
        terms = analyse_query(self.query, [language] if language else [])
        return await asyncio.to_thread(match_terms, terms, texts, language)


async def _view(connection: Connection, tenant: UUID, invocation: UUID) -> InvocationView:
    row = await repository.one(connection, tenant, invocation)
    if row is None:
        raise StrataError(INVOCATION_NOT_FOUND, f"There is no invocation {invocation}.")
    return InvocationView(**_typed(row))


def _typed(row: Any) -> dict[str, Any]:
    return {**row, "surface": Surface(row["surface"]), "status": Status(row["status"])}


async def _context(connection: Connection, tenant: UUID, ref: str) -> UUID:
    try:
        return UUID(ref)
    except ValueError:
        found = await repository.context_id(connection, tenant, clean_ref(_clean(ref) or ""))
    if found is None:
        raise StrataError(CONTEXT_NOT_FOUND, f"There is no context {_clean(ref)!r}.", pointer="?context")
    return found


def _call_absence(call: InvocationView) -> Absence:
    if call.status in (Status.ERROR, Status.CANCELLED):
        cause = f" ({call.error_type})" if call.error_type else ""
        sentence = f"The call ended as {call.status}{cause} before its candidates were recorded."
        return Absence(Stage.CALL, str(call.status), sentence)
    return Absence(Stage.CALL, "NO_DETAILS", f"The call of {call.tool_name} recorded no candidates.")


def _report(
    call: InvocationView,
    target: Target,
    absence: Absence,
    live: LiveSource | None = None,
    notes: Sequence[str] = (),
) -> WhyReport:
    return WhyReport(
        invocation_id=call.id,
        target=target.text,
        stage=absence.stage,
        reason=absence.reason,
        is_selected=False,
        rank=None,
        sentence=absence.sentence,
        candidates=[],
        live=live,
        notes=list(notes),
    )


def _notes(details: RetrievalDetails) -> list[str]:
    notes = lane_notes(details.lanes)
    if details.filters.relaxed:
        notes.append("The category filter was relaxed: it left fewer blocks than wanted.")
    return notes


def _status(value: Status | str | None) -> str | None:
    if not value:
        return None
    try:
        return Status(value.upper())
    except ValueError as error:
        allowed = ", ".join(Status)
        raise StrataError(INVALID_REQUEST, f"status is one of {allowed}.", pointer="?status") from error


def _clean(value: str | None) -> str | None:
    return None if value is None else normalise_text(value).text


def _bound(moment: datetime, pointer: str) -> datetime:
    try:
        return _utc(moment)
    except OverflowError as error:
        detail = "The time is outside the years 1 to 9999 in UTC."
        raise StrataError(INVALID_REQUEST, detail, pointer=pointer) from error


def _utc(moment: datetime) -> datetime:
    """Return the moment in UTC, which it is in without a zone; OverflowError where UTC has no such year."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _cursor(last: InvocationSummary) -> str:
    return base64.urlsafe_b64encode(f"{last.created_at.isoformat()}|{last.id}".encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, UUID]:
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        moment, _, identifier = data.partition("|")
        return _utc(datetime.fromisoformat(moment)), UUID(identifier)
    except (ValueError, OverflowError, binascii.Error) as error:
        raise StrataError(INVALID_REQUEST, "The cursor is not one of ours.", pointer="?cursor") from error
