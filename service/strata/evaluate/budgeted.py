"""Budgeted lookups on a linked corpus: does one call hold every sentence that an answer needs?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from strata.embeddings.service import EmbeddingService
from strata.evaluate.lanes import AGENT
from strata.evaluate.metrics import percentile
from strata.evaluate.scale import Statements
from strata.evaluate.scratch import PREFIX, Progress
from strata.knowledge.service import ContextService
from strata.lookup.budget_schemas import BudgetedResult
from strata.lookup.schemas import BudgetRequest, LookupRequest, LookupResult
from strata.lookup.service import BudgetedAnswer, Caller, LookupAnswer, LookupService
from strata.platform.ids import new_id
from strata.sources.paths import pin_of
from strata.sources.service import SourceService
from strata.text.estimate import token_quarters, tokens_of_quarters
from strata.text.paragraphs import collapse_spaces
from strata.traces.schemas import Surface

TEXTS, CEILING, ROWS, WHOLE = "plain top-k, texts alone", "lookup with maxTokens", "rows without the hop", "budget"
WAYS: Final = (TEXTS, CEILING, ROWS, WHOLE)
BUDGETS: Final = (800, 1_500, 3_000)
DEPTH = 50
"""How many passages plain top-k has to fill its budget with."""

ROUNDS = 6
"""How often each question is asked for its time; once before, and once after for what it sends."""

ABSENT = "absent"


class Quote(Struct, frozen=True, kw_only=True):
    """A sentence that an answer needs, in a revision of a document; ``pinned`` where that is not the current one."""

    source: str
    revision: int
    quote: str
    section: str | None = None
    pinned: bool = False


class LinkedQuestion(Struct, frozen=True, kw_only=True):
    """A question with its typed answer and the sentences that support it; none where nothing answers it."""

    id: str
    category: str
    split: str
    question: str
    expected: dict[str, Any]
    quotes: list[Quote]


class Counted(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one way held at one budget: questions with all their quotes, by category, and what it cost."""

    way: str
    budget: int
    share: float
    by_category: dict[str, float]
    tokens: float
    held: list[str]


class Cost(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a lookup costs, warm: ``budget`` None is the plain one. Milliseconds; statements and tokens are means."""

    budget: int | None
    tokens: float
    statements: float
    p50: float
    p95: float


class BudgetReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """Shares (0..1) of the questions that have an answer; ``absent`` of those without that are judged LOW or NONE."""

    name: str
    questions: int
    counted: list[Counted]
    absent: float
    costs: list[Cost] = []


def questions_of(folder: Path, split: str | None = None) -> list[LinkedQuestion]:
    """Return the questions of a linked corpus, of one split where it is named."""
    found = msgspec.json.decode((folder / "questions.json").read_bytes(), type=list[LinkedQuestion])
    return [item for item in found if split is None or item.split == split]


class BudgetMeasure:
    """Measures through the services that answer real questions; ``counted`` is the database that they ask."""

    def __init__(
        self,
        contexts: ContextService,
        sources: SourceService,
        embeddings: EmbeddingService,
        lookup: LookupService,
        counted: Statements | None = None,
    ) -> None:
        self._contexts = contexts
        self._sources = sources
        self._embeddings = embeddings
        self._lookup = lookup
        self._counted = counted

    async def run(
        self,
        tenant: UUID,
        folder: Path,
        *,
        budgets: Sequence[int] = BUDGETS,
        ways: Sequence[str] = WAYS,
        split: str | None = None,
        progress: Progress | None = None,
    ) -> BudgetReport:
        """Take in a linked corpus, its earlier revisions first, and ask every question in every way."""
        context = f"{PREFIX}linked-{new_id().hex[-12:]}"
        try:
            await fill(self._sources, tenant, context, folder)
            if self._embeddings.is_on:
                await self._embeddings.run(tenant, context)
            questions = await asyncio.to_thread(questions_of, folder, split)
            counted = await self.asked(tenant, context, questions, budgets=budgets, ways=ways, progress=progress)
            return BudgetReport(
                name=folder.name,
                questions=sum(item.category != ABSENT for item in questions),
                counted=counted,
                absent=await self.absent(tenant, context, questions),
                costs=await self.costs(tenant, context, questions, budgets) if self._counted else [],
            )
        finally:
            await self._contexts.delete(tenant, context)

    async def asked(
        self,
        tenant: UUID,
        context: str,
        questions: Sequence[LinkedQuestion],
        *,
        budgets: Sequence[int] = BUDGETS,
        ways: Sequence[str] = WAYS,
        progress: Progress | None = None,
    ) -> list[Counted]:
        """Ask the questions that have an answer in every way, of a context that holds the corpus."""
        answered = [item for item in questions if item.category != ABSENT]
        counted = []
        for number, way in enumerate(ways, 1):
            for budget in budgets:
                outcomes = [await self.found(tenant, context, item, way, budget) for item in answered]
                counted.append(_counted(way, budget, answered, outcomes))
            if progress:
                progress("budgets", number, len(ways))
        return counted

    async def costs(
        self, tenant: UUID, context: str, questions: Sequence[LinkedQuestion], budgets: Sequence[int]
    ) -> list[Cost]:
        """Time plain and budgeted lookups in turn, question by question, so that each meets the same moments."""
        ways: list[int | None] = [None, *budgets]
        times: dict[int | None, list[float]] = {way: [] for way in ways}
        statements: dict[int | None, int] = dict.fromkeys(ways, 0)
        tokens: dict[int | None, int] = dict.fromkeys(ways, 0)
        for turn in range(ROUNDS + 1):
            for item in questions:
                for way in ways:
                    request = LookupRequest(query=item.question, context=context, agent_id=AGENT, budget=way)
                    if self._counted is not None and turn == ROUNDS:
                        self._counted.log = []
                    started = time.perf_counter()
                    answer = await self._lookup.answer(tenant, request, Caller(Surface.CLI))
                    if 0 < turn < ROUNDS:
                        times[way].append((time.perf_counter() - started) * 1000)
                    if self._counted is not None and turn == ROUNDS:
                        statements[way] += len(self._counted.log or ())
                        tokens[way] += sent_tokens(answer)
                        self._counted.log = None
        return [
            Cost(
                budget=way,
                tokens=round(tokens[way] / len(questions), 1),
                statements=round(statements[way] / len(questions), 2),
                p50=round(percentile(times[way], 50), 2),
                p95=round(percentile(times[way], 95), 2),
            )
            for way in ways
        ]

    async def absent(self, tenant: UUID, context: str, questions: Sequence[LinkedQuestion]) -> float:
        """Return the share of the questions without an answer whose evidence is judged LOW or NONE."""
        levels = [await self._level(tenant, context, item) for item in questions if item.category == ABSENT]
        return round(sum(level in {"LOW", "NONE"} for level in levels) / max(1, len(levels)), 4)

    async def _level(self, tenant: UUID, context: str, item: LinkedQuestion) -> str:
        request = LookupRequest(query=item.question, context=context, agent_id=AGENT)
        return (await self._lookup.lookup(tenant, request, Caller(Surface.CLI))).relevance_level.value

    async def found(self, tenant: UUID, context: str, item: LinkedQuestion, way: str, budget: int) -> tuple[bool, int]:
        """Return whether one way holds all the quotes of a question, and the tokens of what it sends."""
        answer = await self._lookup.answer(tenant, _request(item, context, way, budget), Caller(Surface.CLI))
        if isinstance(answer, BudgetedAnswer):
            result = answer.result
            return holds(item.quotes, shown(result)), result.budget.used
        blocks, tokens = _fitting(answer, budget) if way == TEXTS else (list(_texts(answer)), _used(answer))
        return holds(item.quotes, blocks), tokens


async def fill(sources: SourceService, tenant: UUID, context: str, folder: Path) -> None:
    """Take in the earlier revisions of a linked corpus, then the current ones."""
    for part in ("earlier", "corpus"):
        await sources.ingest_paths(tenant, context, [folder / part])


def sent_tokens(answer: LookupAnswer) -> int:
    """Return the tokens of the JSON that is sent."""
    value = answer.result if isinstance(answer, BudgetedAnswer) else answer
    return tokens_of_quarters(token_quarters(msgspec.json.encode(value).decode()))


def shown(result: BudgetedResult) -> Iterable[tuple[str, str]]:
    """Yield (pin, text) of what a budgeted result shows; a text stands at each of its places."""
    for block in result.blocks:
        if block.kind in {"row", "related"} and block.text:
            for place in (block.at or "", *block.also_at):
                yield place.partition("#")[0], block.text


def holds(quotes: Sequence[Quote], texts: Iterable[tuple[str, str]]) -> bool:
    """Tell whether every quote stands in a text of its revision."""
    by_pin: dict[str, str] = {}
    for pin, text in texts:
        by_pin[pin] = f"{by_pin.get(pin, '')}\n\n{collapse_spaces(text)}"
    return all(collapse_spaces(item.quote) in by_pin.get(pin_of(item.source, item.revision), "") for item in quotes)


def _request(item: LinkedQuestion, context: str, way: str, budget: int) -> LookupRequest:
    request = LookupRequest(query=item.question, context=context, agent_id=AGENT)
    if way == TEXTS:
        return msgspec.structs.replace(request, top_k=DEPTH, content=True)
    if way == CEILING:
        return msgspec.structs.replace(request, top_k=DEPTH, budget=BudgetRequest(max_tokens=budget))
    if way == ROWS:
        return msgspec.structs.replace(request, budget=budget, expand=False)
    return msgspec.structs.replace(request, budget=budget)


def _fitting(answer: LookupResult, budget: int) -> tuple[list[tuple[str, str]], int]:
    """Return the passages in rank order as far as their texts alone fit; what does not is passed over."""
    kept, used = [], 0
    for pin, text in _texts(answer):
        quarters = token_quarters(text)
        if tokens_of_quarters(used + quarters) <= budget:
            kept.append((pin, text))
            used += quarters
    return kept, tokens_of_quarters(used)


def _texts(answer: LookupResult) -> Iterable[tuple[str, str]]:
    for block in answer.evidence_blocks:
        if block.citation is not None:
            yield pin_of(block.source, block.citation.source_version), block.content or ""


def _used(answer: LookupResult) -> int:
    return answer.budget.tokens_used if answer.budget else 0


def _counted(
    way: str, budget: int, questions: Sequence[LinkedQuestion], outcomes: Sequence[tuple[bool, int]]
) -> Counted:
    held = {item.id for item, (whole, _) in zip(questions, outcomes, strict=True) if whole}
    by_category: dict[str, list[bool]] = {}
    for item in questions:
        by_category.setdefault(item.category, []).append(item.id in held)
    return Counted(
        way=way,
        budget=budget,
        share=round(len(held) / max(1, len(questions)), 4),
        by_category={name: round(sum(marks) / len(marks), 4) for name, marks in sorted(by_category.items())},
        tokens=round(sum(tokens for _, tokens in outcomes) / max(1, len(outcomes)), 1),
        held=sorted(held),
    )
