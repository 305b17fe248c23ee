"""Evidence packages: lanes, fusion, duplicates, reranking, selection under a budget, in one recorded call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec
from msgspec import UNSET

from strata.assembly.communities import CommunityService
from strata.assembly.nominate import LaneState, Nominations, Nominator
from strata.assembly.record import details_of
from strata.assembly.render import Renderer
from strata.assembly.schemas import (
    DEFAULT_BYTES,
    DEFAULT_ITEMS,
    DEFAULT_TOKENS,
    MAX_ACTIVATED,
    MAX_BYTES,
    MAX_CONTEXTS,
    MAX_ITEMS,
    MAX_ORIGINS,
    MAX_SEARCH,
    BudgetIn,
    BudgetOut,
    CountedOut,
    EvidencePackage,
    EvidenceRequest,
    LanePlanOut,
    LanesOut,
    LimitsOut,
    OmittedOut,
    PlanOut,
    RerankerOut,
    RevisionOut,
    SelectionOut,
)
from strata.errors import INTERNAL, INVALID_REQUEST, OVER_LIMIT, StrataError
from strata.evidence.extracts import extractor
from strata.evidence.fusion import fuse, with_ranks
from strata.evidence.model import Limits, Omission, Package, Reason
from strata.evidence.package import omission_reason, omitted_by_reason
from strata.evidence.policy import Contradictions, Policy, package_policy
from strata.evidence.selection import Survivors, admit, deduplicate, reorder
from strata.graph.names import MAX_NAME_BYTES
from strata.knowledge.graph_base import away
from strata.knowledge.graph_service import GraphService
from strata.knowledge.groups import GroupService
from strata.knowledge.model import ContextRow
from strata.knowledge.service import ContextService
from strata.lookup.schemas import MAX_QUERY_CHARS
from strata.lookup.search import SearchService, cleaned
from strata.platform import telemetry
from strata.platform.database import Connection, Database
from strata.platform.ids import new_id
from strata.providers.rerank import Reranker
from strata.sources.text_service import TextService
from strata.text.counting import counter_for, known_models
from strata.text.tokenise import analyse_query
from strata.traces.schemas import Invocation, RetrievalDetails, Status, Surface
from strata.traces.service import Recorder

TOOL = "assemble_evidence"
OMITTED_SHOWN = 20
_SLOWER = 10
"""A candidate takes about as long as this many edges of a graph."""

FUNCTIONAL_FROM = 0.5
"""A label takes one object where at least this share of its subjects has one."""


@dataclass(slots=True)
class AssemblyCaller:
    """Where a call came from; what goes into its row beside the request."""

    surface: Surface
    request_id: str | None = None
    session_id: str | None = None
    agent_id: str | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The services that an assembly takes its evidence from."""

    contexts: ContextService
    groups: GroupService
    graph: GraphService
    texts: TextService
    search: SearchService
    communities: CommunityService
    reranker: Reranker


class AssemblyService:
    """Assembles evidence for cues. Every call leaves one row, whatever became of it."""

    def __init__(self, database: Database, parts: Parts, recorder: Recorder) -> None:
        self._database = database
        self._parts = parts
        self._recorder = recorder

    async def assemble(
        self, tenant: UUID, ref: str, request: EvidenceRequest, caller: AssemblyCaller
    ) -> EvidencePackage:
        """Return the package of a request over the context ``ref`` and those that the request adds.

        Raises ``context_not_found``, ``group_not_found``, ``over_limit`` and ``invalid_request`` with a
        pointer. Whatever keeps a lane or the reranker from running is in the plan, not an error.
        """
        call = _Call(tenant, ref, request, caller)
        with telemetry.span("strata.evidence", surface=caller.surface.value):
            try:
                return await self._assemble(call)
            except asyncio.CancelledError:
                call.fail(Status.CANCELLED, "cancelled", "The caller went away.")
                raise
            except StrataError as error:
                call.fail(Status.ERROR, error.code, error.detail)
                raise
            except Exception as error:
                call.fail(Status.ERROR, INTERNAL.code, type(error).__name__)
                raise
            finally:
                await self._record(call)

    async def _assemble(self, call: _Call) -> EvidencePackage:
        request = call.request
        cues = _cues(request.origins, "/origins")
        labels = _cues([] if request.labels is None else request.labels, "/labels")
        limits = limits_of(request.budget)
        for name, value, most in (
            ("search_limit", request.search_limit, MAX_SEARCH),
            ("activate_limit", request.activate_limit, MAX_ACTIVATED),
            ("resolve_limit", request.resolve_limit, MAX_ACTIVATED),
        ):
            if value is not None and value > most:
                raise _above(name, value, most)
        counter = None
        if request.tokenizer is not None and (counter := counter_for(request.tokenizer)) is None:
            known = ", ".join(known_models())
            raise StrataError(
                INVALID_REQUEST, f"No tokenizer of this name is at hand; there are {known}.", pointer="/tokenizer"
            )
        query = _question(request.text_fallback_query, cues)
        question = self._parts.search.question(call.tenant, query)
        if query:
            await question.foresee()
        async with self._database.work(call.tenant, snapshot=True, local=self._parts.search.local) as connection:
            rows = await self._rows(connection, call)
            call.rows = rows
            nominator = Nominator(
                request,
                cues=cues,
                labels=labels,
                query=query,
                is_qualified=len(rows) > 1,
                graph=self._parts.graph,
                texts=self._parts.texts,
                search=self._parts.search,
                communities=self._parts.communities,
            )
            for row in rows:
                await nominator.run(connection, call.tenant, row, question)
        found = nominator.found
        languages = sorted({language for row in rows for language in row.languages})
        policy = self._policy(request, limits, found, query, languages)
        size = _SLOWER * len(found.candidates)
        survivors = await away(size, _deduplicated, found, policy)
        survivors, reranker = await self._reranked(request, query, survivors)
        renderer = Renderer(found.texts, is_qualified=len(rows) > 1)
        package = await away(size, admit, survivors, policy, renderer.item_json, renderer.citation_json)
        call.details = details_of(rows, found, package)
        answer = self._answer(request, package, renderer, found=found, rows=rows, limits=limits, reranker=reranker)
        call.found = bool(package.kept)
        call.evidence = len(package.kept)
        for row in rows:
            self._parts.contexts.count_read(call.tenant, row.context_id, is_empty=not package.kept)
        if counter is not None and request.tokenizer is not None:
            arrays = [msgspec.json.encode(answer.items).decode(), msgspec.json.encode(answer.citations).decode()]
            tokens = await asyncio.to_thread(counter.count, arrays)
            counted = CountedOut(model=request.tokenizer, tokens=tokens)
            answer = msgspec.structs.replace(answer, budget=msgspec.structs.replace(answer.budget, counted=counted))
        return answer

    async def _rows(self, connection: Connection, call: _Call) -> Sequence[ContextRow]:
        request = call.request
        if not request.contexts and not request.groups:
            return [await self._parts.contexts.resolve(connection, call.tenant, call.ref)]
        own = [await self._parts.contexts.resolve(connection, call.tenant, call.ref)] if call.ref else []
        more = await self._parts.groups.expand(connection, call.tenant, request.contexts or [], request.groups or [])
        rows = list({row.context_id: row for row in (*own, *more)}.values())
        if len(rows) > MAX_CONTEXTS:
            raise _above("contexts", len(rows), MAX_CONTEXTS)
        return rows

    @staticmethod
    def _policy(
        request: EvidenceRequest, limits: Limits, found: Nominations, query: str, languages: Sequence[str]
    ) -> Policy:
        partial = request.contradictions == "partial"
        is_functional: Callable[[str], bool] = lambda label: found.tendencies.get(label, 0.0) >= FUNCTIONAL_FROM  # noqa: E731
        weights = {term.token: term.weight for term in analyse_query(query, languages)} if request.extracts else {}
        return package_policy(
            limits,
            contradictions=Contradictions.PARTIAL if partial else Contradictions.ATOMIC,
            is_functional=is_functional if partial else None,
            careful_duplicates=request.numeric_conflicts,
            shares_text=request.share_text,
            extract=extractor(weights, languages) if weights else None,
        )

    async def _reranked(
        self, request: EvidenceRequest, query: str, survivors: Survivors
    ) -> tuple[Survivors, RerankerOut]:
        reranker = self._parts.reranker
        if request.rerank is None:
            return survivors, RerankerOut(configured=reranker.is_configured, ran=False)
        outcome = await reranker.rerank(
            query, [candidate.text or "" for candidate in survivors.candidates], model=request.rerank.model
        )
        reason: str | None = outcome.reason
        if outcome.order is not None:
            survivors, problem = reorder(survivors, outcome.order)
            reason = problem or reason
        ran = outcome.ran and reason is None
        return survivors, RerankerOut(
            configured=reranker.is_configured,
            ran=ran,
            model=outcome.model if ran and outcome.model else UNSET,
            reason=reason or UNSET,
        )

    @staticmethod
    def _answer(
        request: EvidenceRequest,
        package: Package,
        renderer: Renderer,
        *,
        found: Nominations,
        rows: Sequence[ContextRow],
        limits: Limits,
        reranker: RerankerOut,
    ) -> EvidencePackage:
        lanes = {name: _plan(state, is_full=request.revision) for name, state in found.lanes.items()}
        return EvidencePackage(
            items=[renderer.item(item, cost) for item, cost in zip(package.kept, package.costs, strict=True)],
            citations=[renderer.citation(entry) for entry in package.citations],
            budget=BudgetOut(
                items_used=package.spend.items,
                bytes_used=package.spend.bytes,
                tokens_used=package.spend.tokens,
                limits=LimitsOut(
                    max_items=limits.max_items or 0, max_bytes=limits.max_bytes or 0, max_tokens=limits.max_tokens or 0
                ),
            ),
            omitted=[_omitted(item) for item in package.omitted[:OMITTED_SHOWN]],
            omitted_total=len(package.omitted),
            omitted_by_reason=omitted_by_reason(package.omitted),
            plan=PlanOut(
                lanes=LanesOut(**lanes),
                selection=SelectionOut(
                    dedup_dropped=package.dedup_dropped,
                    contradiction_groups=package.contradiction_groups,
                    diversity_tier_width=package.tier_width,
                ),
                reranker=reranker,
            ),
            anchors=found.anchors if request.anchor_floor is not None else UNSET,
            revision=[_revision(row) for row in rows] if request.revision else UNSET,
        )

    async def _record(self, call: _Call) -> None:
        trace_id, span_id = telemetry.current_ids()
        request = call.request
        # Under this name the setting of what is kept of questions holds for it.
        asked = request.text_fallback_query or "; ".join(_listed(request.origins))
        if request.labels:
            asked += f"; labels: {', '.join(_listed(request.labels))}"
        given = {
            name: value
            for name, value in msgspec.to_builtins(request).items()
            if name not in _ASKED and value is not None and value is not False and value != []
        }
        await self._recorder.record(
            Invocation(
                tenant_id=call.tenant,
                id=call.id,
                tool_name=TOOL,
                surface=call.caller.surface,
                status=call.status,
                duration_ms=round((time.perf_counter() - call.started) * 1000, 3),
                context_id=call.rows[0].context_id if call.rows else None,
                session_id=call.caller.session_id,
                agent_id=call.caller.agent_id,
                request_id=call.caller.request_id,
                trace_id=trace_id,
                span_id=span_id,
                arguments={"context": call.ref, "query": asked, **given},
                found=call.found,
                evidence_count=call.evidence,
                error_type=call.error[0] if call.error else None,
                error_message=call.error[1] if call.error else None,
                retrieval_details=call.details,
            ),
            None,
        )
        telemetry.count_invocation(tool=TOOL, surface=call.caller.surface.value, status=call.status.value)


class _Call:
    """One call as it unfolds, so that its row can be written however it ends."""

    def __init__(self, tenant: UUID, ref: str, request: EvidenceRequest, caller: AssemblyCaller) -> None:
        self.tenant = tenant
        self.ref = ref
        self.request = request
        self.caller = caller
        self.id = new_id()
        self.started = time.perf_counter()
        self.rows: Sequence[ContextRow] = ()
        self.details: RetrievalDetails | None = None
        self.found: bool | None = None
        self.evidence = 0
        self.error: tuple[str, str] | None = None
        self._status: Status | None = None

    @property
    def status(self) -> Status:
        """How the call ended."""
        return self._status or (Status.SUCCESS if self.found else Status.NOT_FOUND)

    def fail(self, status: Status, code: str, detail: str) -> None:
        """Say that the call failed."""
        self._status, self.error = status, (code, detail)


def _deduplicated(found: Nominations, policy: Policy) -> Survivors:
    return deduplicate(with_ranks(fuse(found.candidates)), policy, len(found.candidates))


def limits_of(budget: BudgetIn | None) -> Limits:
    """Return the ceilings that apply, less what is reserved; raises ``over_limit`` above 1,000 items or 1 MiB."""
    asked = budget or BudgetIn()
    for name, value, most in (("max_items", asked.max_items, MAX_ITEMS), ("max_bytes", asked.max_bytes, MAX_BYTES)):
        if value is not None and value > most:
            raise _above(f"budget/{name}", value, most)
    tokens = DEFAULT_TOKENS if asked.max_tokens is None else asked.max_tokens
    return Limits(
        DEFAULT_ITEMS if asked.max_items is None else asked.max_items,
        DEFAULT_BYTES if asked.max_bytes is None else asked.max_bytes,
        max(0, tokens - (asked.reserve_tokens or 0)),
    )


_ASKED = frozenset({"labels", "origins", "text_fallback_query"})


def _listed(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _question(text: str | None, cues: Sequence[str]) -> str:
    """Return what passages are searched for: the text, else as much of the cues as a search reads."""
    if text is None:
        return cleaned("; ".join(cues)[:MAX_QUERY_CHARS])
    try:
        return cleaned(text)
    except StrataError as error:
        error.pointer = "/text_fallback_query"
        raise


def _cues(value: str | Sequence[str], pointer: str) -> list[str]:
    cues = _listed(value)
    if len(cues) > MAX_ORIGINS:
        name = pointer.removeprefix("/")
        raise StrataError(OVER_LIMIT, f"{name} carries {len(cues)} items, past the per-request cap of {MAX_ORIGINS}.")
    for at, cue in enumerate(cues):
        if len(cue.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise StrataError(INVALID_REQUEST, f"A name has at most {MAX_NAME_BYTES} bytes.", pointer=f"{pointer}/{at}")
    return list(dict.fromkeys(cues))


def _above(name: str, value: int, most: int) -> StrataError:
    return StrataError(OVER_LIMIT, f"{value} is above the ceiling of {most}.", pointer=f"/{name}")


def _plan(state: LaneState, *, is_full: bool) -> LanePlanOut:
    return LanePlanOut(
        ran=state.ran,
        reason=state.reason if state.reason is not None and not state.ran else UNSET,
        floor=state.floor if state.floor is not None else UNSET,
        candidates=state.candidates if is_full and state.ran else UNSET,
    )


def _omitted(item: Omission) -> OmittedOut:
    is_duplicate = item.reason is Reason.NEAR_DUPLICATE and item.duplicate_of is not None
    return OmittedOut(
        candidate_id=item.candidate.candidate_id,
        kind=item.candidate.kind,
        reason=omission_reason(item),
        duplicate_of=str(item.duplicate_of) if is_duplicate else UNSET,
    )


def _revision(row: ContextRow) -> RevisionOut:
    return RevisionOut(
        context=row.name, graph=row.graph_revision, passages=row.passages_revision, config=row.config_revision
    )
