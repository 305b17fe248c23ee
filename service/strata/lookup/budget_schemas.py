"""The wire of a lookup whose whole result has a budget. Fields without a value are left out: each costs tokens."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from strata.lookup.schemas import Completeness, EmptyReason, RelevanceLevel


class BudgetedBlock(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One part of a budgeted result.

    A ``row`` is text that the search found, for the results of the ranks ``rows``. A ``related`` block is text
    of a document that the first one names under ``relation`` (or that names it: ``direction`` incoming). An
    ``outline`` lists the sections of a document too large to print; a ``note`` says something of the result.

    ``at`` is where the text stands: path, revision and anchor, as every tool takes it; ``bytes`` are the
    first byte and the end, exclusive, in the stored text of that revision. ``alsoAt`` are places of the same text.
    ``supersededBy`` is there where other documents stand in place of this one, and names those that may be
    named. ``relations`` are what the document declares, by predicate. ``context`` is there where several were
    asked.
    """

    kind: Literal["row", "related", "outline", "note"]
    rows: list[int] = []
    relation: str | None = None
    direction: Literal["outgoing", "incoming"] | None = None
    at: str | None = None
    context: str | None = None
    title: str | None = None
    bytes: Annotated[list[int], Meta(min_length=2, max_length=2)] | None = None
    superseded_by: list[str] | UnsetType = UNSET
    also_at: list[str] = []
    relations: dict[str, list[str]] = {}
    text: str | None = None


class LeftOut(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """A result, or a related document, of which ``tokens`` were left out; ``at`` is what to fetch."""

    at: str
    tokens: int
    rank: int | None = None
    relation: str | None = None
    context: str | None = None


class NextCall(Struct, frozen=True, rename="camel", kw_only=True):
    """A call that brings what was left out first; the ``at`` of the others goes into its ``source``."""

    tool: str
    arguments: dict[str, Any]


class BudgetedOmissions(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """What was left out: how many in all, the first of them, and how to get them."""

    total: int
    items: list[LeftOut] = []
    next: NextCall | None = None


class ResultBudget(Struct, frozen=True, rename="camel", kw_only=True):
    """The tokens that the result may take, and those that this form of it takes, by the declared estimate."""

    limit: int
    used: int


class BudgetedResult(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """The answer within a budget: the blocks, what was left out, and what it is worth.

    ``completenessMessage`` is there where something failed or nothing was found, ``vectorCoverage`` where
    it is not whole.
    """

    lookup_id: UUID
    found: bool
    relevance_level: RelevanceLevel
    completeness_hint: Completeness
    completeness_message: str | None = None
    empty_reason: EmptyReason | None = None
    vector_coverage: float | None = None
    blocks: list[BudgetedBlock]
    omitted: BudgetedOmissions
    budget: ResultBudget
