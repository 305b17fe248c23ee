"""The lookup: plan, gather, assemble, judge, record, answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog
from msgspec import structs

from strata.embeddings.service import EmbeddingService
from strata.errors import INTERNAL, OVERLOADED, STATEMENT_TIMEOUT, StrataError
from strata.evidence.fusion import fuse
from strata.evidence.model import Candidate, Layer, Package, Reason
from strata.evidence.selection import Policy, assemble, wants_more
from strata.hints.service import HintService
from strata.knowledge.graph_service import GraphService
from strata.knowledge.service import ContextService
from strata.lookup import repository, view
from strata.lookup.budget_schemas import BudgetedResult
from strata.lookup.candidates import GRAPH, HINTS, LEXICAL, VECTOR
from strata.lookup.engine import Engine
from strata.lookup.expansion import Expansion
from strata.lookup.gather import TEXT_WINDOW, Gathered, Gatherer, languages_of
from strata.lookup.pool import CandidateSignals
from strata.lookup.record import arguments_of, retrieval_details
from strata.lookup.relevance import Verdict, judge
from strata.lookup.request import Plan, as_parameter, decode_query, decode_request, plan_lookup
from strata.lookup.schemas import MAX_QUERY_CHARS, EmptyReason, Filters, Lane, LookupRequest, LookupResult
from strata.platform import telemetry
from strata.platform.database import Connection, Database
from strata.platform.ids import new_id
from strata.providers.embeddings.embedders import Embedders
from strata.settings import Settings
from strata.traces.schemas import Invocation, RetrievalDetails, Status, Surface
from strata.traces.service import Recorder

TOOL = "lookup"


@dataclass(frozen=True, slots=True)
class BudgetedAnswer:
    """A result within its budget; ``wants_markdown`` tells that it was asked for as the text that agents read."""

    result: BudgetedResult
    wants_markdown: bool


LookupAnswer = LookupResult | BudgetedAnswer
"""What a lookup answers: within a budget where the request gives the whole result one."""

MAX_ORDER = 1000
"""How deep :meth:`LookupService.lane_orders` looks."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """Where a call came from; what goes into its row beside the request."""

    surface: Surface
    request_id: str | None = None


@dataclass(slots=True)
class _Call:
    """One call as it unfolds, so that its row can be written however it ends."""

    tenant: UUID
    caller: Caller
    trace_id: str
    span_id: str
    lookup_id: UUID = field(default_factory=new_id)
    started: float = field(default_factory=time.perf_counter)
    request: LookupRequest | None = None
    details: RetrievalDetails | None = None

    @property
    def took_ms(self) -> float:
        return round((time.perf_counter() - self.started) * 1000, 3)


class LookupService:
    """Answers questions with evidence. Every call leaves one row, whatever became of it."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        *,
        contexts: ContextService,
        hints: HintService,
        graph: GraphService,
        embeddings: EmbeddingService,
        embedders: Embedders,
        recorder: Recorder,
    ) -> None:
        self._database = database
        self._settings = settings
        self._recorder = recorder
        self.engine = Engine.of(
            database,
            settings,
            contexts=contexts,
            hints=hints,
            graph=graph,
            embeddings=embeddings,
            embedders=embedders,
        )
        self._local = self.engine.local
        self._places = asyncio.Semaphore(settings.max_concurrent_lookups)
        self._waiting = 0

    async def lookup(self, tenant: UUID, request: LookupRequest, caller: Caller) -> LookupResult:
        """Answer one question, for which the whole result has no budget; like :meth:`answer`."""
        result = await self.answer(tenant, request, caller)
        assert isinstance(result, LookupResult)  # noqa: S101 - see above
        return result

    async def answer(self, tenant: UUID, request: LookupRequest, caller: Caller) -> LookupAnswer:
        """Answer one question.

        Raises ``invalid_request`` and ``context_not_found`` with a pointer, ``overloaded`` when too
        many lookups run, and the database's own failures. A miss is an answer, not an error.
        """
        return await self._recorded(tenant, caller, lambda: request)

    async def lookup_json(self, tenant: UUID, body: bytes, caller: Caller) -> LookupAnswer:
        """Answer one question sent as JSON; a body that cannot be read leaves its row too."""
        return await self._recorded(tenant, caller, lambda: decode_request(body))

    async def lookup_query(self, tenant: UUID, parameters: Mapping[str, Sequence[str]], caller: Caller) -> LookupAnswer:
        """Answer one question sent as query parameters, like :meth:`lookup_json`; pointers are ``?name``."""
        try:
            return await self._recorded(tenant, caller, lambda: decode_query(parameters))
        except StrataError as error:
            error.pointer = as_parameter(error.pointer)
            raise

    async def ranking(
        self,
        tenant: UUID,
        context: str,
        query: str,
        depth: int,
        *,
        lanes: Sequence[Lane],
        filters: Filters | None = None,
    ) -> list[str]:
        """Return the sources that lanes over passages rank first, fused where there are two, each at its best passage.

        For measurement: no hints, no pipeline, no trace row.
        """
        request = LookupRequest(query=query, context=context, lanes=list(lanes), filters=filters)
        async with self.engine.bare(tenant, plan_lookup(request), 2 * depth) as (gatherer, connection):
            rows = await gatherer.order(connection)
        return list(dict.fromkeys(row.path for row in rows))[:depth]

    async def signals(
        self, tenant: UUID, context: str, query: str, *, filters: Filters | None = None
    ) -> list[CandidateSignals]:
        """Return what the lanes over passages know of a question's candidates, for fitting; no trace row."""
        request = LookupRequest(query=query, context=context, filters=filters)
        async with self.engine.bare(tenant, plan_lookup(request), self._settings.candidates_per_lane) as (
            gatherer,
            connection,
        ):
            return await gatherer.signals(connection)

    async def lane_orders(self, tenant: UUID, context: UUID, query: str) -> dict[str, list[int]]:
        """Return the passages of a context that each lane over passages ranks for a question today, best first."""
        orders = {}
        for lane in (Lane.LEXICAL, Lane.VECTOR):
            request = LookupRequest(query=query[:MAX_QUERY_CHARS], context=str(context), lanes=[lane])
            async with self.engine.bare(tenant, plan_lookup(request), MAX_ORDER) as (gatherer, connection):
                orders[lane.value] = [row.passage_id for row in await gatherer.order(connection)]
        return orders

    async def _recorded(self, tenant: UUID, caller: Caller, read: Callable[[], LookupRequest]) -> LookupAnswer:
        with telemetry.span("strata.lookup", surface=caller.surface.value) as span:
            call = _Call(tenant, caller, *telemetry.current_ids())
            try:
                call.request = read()
                telemetry.set_attributes(span, query=call.request.query)
                result = await self._admitted(call)
            except asyncio.CancelledError:
                await self._record(call, Status.CANCELLED, error=("cancelled", "The caller went away."))
                raise
            except StrataError as error:
                await self._record(call, Status.ERROR, error=(error.code, error.detail))
                raise
            except Exception as error:
                _log.exception("lookup.failed", lookup_id=str(call.lookup_id))
                await self._record(call, Status.ERROR, error=(INTERNAL.code, type(error).__name__))
                raise
            return result

    async def _admitted(self, call: _Call) -> LookupAnswer:
        """Hold lookups to STRATA_MAX_CONCURRENT_LOOKUPS; as many again may wait their turn."""
        if self._places.locked() and self._waiting >= self._settings.max_concurrent_lookups:
            raise StrataError(OVERLOADED, "Too many lookups are running.")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._settings.database_acquire_timeout_seconds):
                await self._places.acquire()
        except TimeoutError as error:
            raise StrataError(OVERLOADED, "No place came free in time.") from error
        finally:
            self._waiting -= 1
        try:
            return await self._answer(call)
        finally:
            self._places.release()

    async def _answer(self, call: _Call) -> LookupAnswer:
        assert call.request is not None  # noqa: S101 - set by _recorded before it admits the call
        plan = plan_lookup(call.request)
        question = self.engine.question(call.tenant, plan.query)
        if VECTOR in plan.lanes and Layer.L1 in plan.layers:
            await question.foresee()
        skipped: dict[str, str] = {}
        while True:
            gatherer = self.engine.gatherer(call.tenant, plan, question, skipped)
            try:
                async with self._database.work(
                    call.tenant,
                    snapshot=True,
                    sync_commit=self._settings.trace_commit == "sync",
                    local=self._local,
                ) as connection:
                    gathered = await gatherer.gather(connection)
                    result = await self._assembled(call, plan, gathered, gatherer)
                    if not self._settings.trace_grouped:
                        status = _status(result, gathered)
                        await self._record(call, status, result=result, connection=connection)
            except StrataError as error:
                # A lane that timed out is left out and the others answer; without any of them, the failure stands.
                if error.kind is not STATEMENT_TIMEOUT or gatherer.running is None:
                    raise
                skipped[gatherer.running] = error.code
                if skipped.keys() >= ({HINTS, LEXICAL, VECTOR} if question.is_enabled else {HINTS, LEXICAL}):
                    raise
            else:
                if self._settings.trace_grouped:
                    await self._record(call, _status(result, gathered), result=result)
                return result

    async def _assembled(
        self,
        call: _Call,
        plan: Plan,
        gathered: Gathered,
        gatherer: Gatherer,
    ) -> LookupAnswer:
        renderer = view.BlockRenderer(
            gathered.terms,
            languages_of(gathered.contexts),
            preview_chars=self._settings.preview_chars,
            content_max_bytes=self._settings.content_max_bytes,
            with_content=plan.wants_content,
        )
        cutoffs = gathered.fit.cutoffs
        policy = Policy(plan.top_k, plan.limits, cutoffs.low, gathered.weights, view.LEAST_BLOCK_BYTES)
        package = await self._select(gathered, gatherer, policy, renderer)
        verdict = judge(
            package,
            cutoffs,
            degraded=sorted(gathered.failures),
            relaxed=gathered.is_relaxed and any("CATEGORY_FILTER_RELAXED" in c.hit_reasons for c in package.kept),
            l1_unavailable=gathered.is_l1_out,
            coverage=gathered.coverage,
            empty_reason=None if package.kept else await self._why_empty(call, gathered, gatherer, package),
        )
        call.details = retrieval_details(plan, gathered, package, renderer, empty_reason=verdict.empty_reason)
        if plan.result_tokens is not None:
            expansion = Expansion(call.tenant, plan, gathered, gatherer)
            expanded = await expansion.expand(package, verdict, call.lookup_id, plan.result_tokens)
            call.details = structs.replace(call.details, expansion=expanded.trace)
            return BudgetedAnswer(expanded.result, plan.wants_markdown)
        return self._result(call, plan, gathered, package=package, renderer=renderer, verdict=verdict)

    async def _select(
        self, gathered: Gathered, gatherer: Gatherer, policy: Policy, renderer: view.BlockRenderer
    ) -> Package:
        """Assemble; where near duplicates used the loaded texts up, load more and assemble again."""
        fused, package = self._assemble(gathered, policy, renderer)
        while wants_more(package, policy):
            missing = [item for item in fused if item.text is None and not item.is_gone]
            with telemetry.stage("confirm"):
                gathered.candidates = await gatherer.load_texts(
                    gathered.candidates, missing[: 2 * (policy.top_k + TEXT_WINDOW)]
                )
            fused, package = self._assemble(gathered, policy, renderer)
        return package

    @staticmethod
    def _assemble(gathered: Gathered, policy: Policy, renderer: view.BlockRenderer) -> tuple[list[Candidate], Package]:
        with telemetry.stage("fusion"):
            fused = fuse(gathered.candidates, policy.weights)
        with telemetry.stage("selection"):
            renderer.best_score = fused[0].fused_score if fused else 1.0
            return fused, assemble(fused, policy, renderer.render)

    async def _why_empty(self, call: _Call, gathered: Gathered, gatherer: Gatherer, package: Package) -> EmptyReason:
        if any(item.reason is Reason.BUDGET_EXCEEDED for item in package.omitted):
            return EmptyReason.BUDGET_EXCEEDED
        ids = [context.context_id for context in gathered.contexts]
        holds_facts = any(context.graph_revision for context in gathered.contexts)
        if not holds_facts and not await repository.has_passages(gatherer.connection, call.tenant, ids):
            return EmptyReason.EMPTY_CONTEXT
        has_looked = any(lane.ran for name, lane in gathered.lanes.items() if name in {LEXICAL, VECTOR, GRAPH})
        if not gathered.terms and not has_looked:
            return EmptyReason.NO_SEARCHABLE_TERMS
        if not has_looked or gathered.failures:
            return EmptyReason.LAYER_UNAVAILABLE
        if gathered.has_filtered_matches:
            return EmptyReason.FILTERED_OUT
        return EmptyReason.BELOW_FLOOR if gathered.knows_a_term or not gathered.terms else EmptyReason.UNKNOWN_TERMS

    def _result(
        self,
        call: _Call,
        plan: Plan,
        gathered: Gathered,
        *,
        package: Package,
        renderer: view.BlockRenderer,
        verdict: Verdict,
    ) -> LookupResult:
        cap = self._settings.content_max_bytes
        return LookupResult(
            lookup_id=call.lookup_id,
            found=bool(package.kept),
            primary=view.primary_text(package, cap),
            supplement=view.supplement_text(package, cap),
            relevance_level=verdict.level,
            completeness_hint=verdict.completeness,
            completeness_message=verdict.message,
            empty_reason=verdict.empty_reason,
            vector_coverage=gathered.coverage,
            evidence_blocks=[renderer.block(item, rank) for rank, item in enumerate(package.kept, 1)],
            omitted=view.omitted_view(package),
            budget=view.budget_view(package, plan.limits) if plan.has_budget else None,
            markdown=view.markdown_view(package, renderer, verdict.message) if plan.wants_markdown else None,
            trace_id=call.trace_id,
            took_ms=call.took_ms,
        )

    async def _record(
        self,
        call: _Call,
        status: Status,
        *,
        result: LookupAnswer | None = None,
        error: tuple[str, str] | None = None,
        connection: Connection | None = None,
    ) -> None:
        duration = call.took_ms
        request, details = call.request, call.details
        said = result.result if isinstance(result, BudgetedAnswer) else result
        with telemetry.stage("record"):
            await self._recorder.record(
                Invocation(
                    tenant_id=call.tenant,
                    context_id=details.contexts[0].id if details and details.contexts else None,
                    id=call.lookup_id,
                    tool_name=TOOL,
                    surface=call.caller.surface,
                    session_id=request.session_id if request else None,
                    agent_id=request.agent_id if request else None,
                    request_id=call.caller.request_id,
                    trace_id=call.trace_id,
                    span_id=call.span_id,
                    arguments=arguments_of(request) if request else {},
                    status=status,
                    found=said.found if said else None,
                    relevance_level=said.relevance_level.value if said else None,
                    completeness_hint=said.completeness_hint.value if said else None,
                    evidence_count=_evidence_of(result) if result else 0,
                    duration_ms=duration,
                    error_type=error[0] if error else None,
                    error_message=error[1] if error else None,
                    retrieval_details=details,
                ),
                connection,
            )
        telemetry.count_invocation(tool=TOOL, surface=call.caller.surface.value, status=status.value)
        telemetry.record_lookup(call.took_ms / 1000, surface=call.caller.surface.value, status=status.value)


def _evidence_of(result: LookupAnswer) -> int:
    """Return how many blocks of a result hold text of the sources."""
    if isinstance(result, LookupResult):
        return len(result.evidence_blocks)
    return sum(block.kind in {"row", "related"} for block in result.result.blocks)


def _status(result: LookupAnswer, gathered: Gathered) -> Status:
    if gathered.failures:
        return Status.DEGRADED
    said = result.result if isinstance(result, BudgetedAnswer) else result
    return Status.SUCCESS if said.found else Status.NOT_FOUND
