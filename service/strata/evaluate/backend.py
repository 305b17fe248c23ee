"""What an eval is run against: the calls that answer it, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from msgspec import Struct

from strata.errors import ErrorKind, StrataError
from strata.evaluate.cases import ExpectedAssociation, Options

MAX_SEARCH_LIMIT = 200
"""The most passages that an assembled package takes from the passage lane."""

Place = tuple[str, int]
"""Source and paragraph."""


class CallError(StrataError):
    """An answer that is an error; ``answer`` is the code that it gave. A case may end so, and the run go on."""

    def __init__(self, kind: ErrorKind, detail: str, answer: str) -> None:
        super().__init__(kind, detail)
        self.answer = answer


class Budget(Struct, frozen=True, kw_only=True):
    """Ceilings of what is admitted for one case; the defaults are those of the evidence endpoint."""

    max_items: int = 40
    max_bytes: int = 65_536
    max_tokens: int = 4_000


class Spend(Struct, frozen=True, kw_only=True):
    """What was admitted for one case, and how many items the budget kept out."""

    items_used: int
    bytes_used: int
    tokens_used: int
    omitted: int


@dataclass(frozen=True, slots=True)
class Corpus:
    """A context as it stands: its name, its revision counters, and the model of its vectors, None without."""

    name: str
    revision: Mapping[str, int]
    embeddings: str | None


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found. ``wire`` is all of it as the contexts API states it: its cost is counted from that."""

    source: str
    paragraph: int
    wire: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Package:
    """An assembled package: the paragraphs that it gives whole, in order, their cost, and whether it was reranked."""

    places: tuple[Place, ...]
    spend: Spend
    reranked: bool
    rerank_reason: str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A name that a cue may mean. ``tier`` is ``lexical`` or ``semantic``, ``kind`` how a lexical one matched."""

    name: str
    tier: str
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Associations:
    """How many associations there are, and the paragraphs that those shown were taken from."""

    total: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Cited:
    """What came of a citation; text and section where it is resolved, ``section`` None outside all sections."""

    outcome: Literal["resolved", "no_source", "no_paragraph"]
    text: str = ""
    section: str | None = None


class Backend(Protocol):
    """The calls of a run, each to one context by name or id.

    All raise StrataError: ``context_not_found``, or :class:`CallError` for another error in answer.
    """

    async def corpus(self, context: str) -> Corpus:
        """Return the context as it stands."""
        ...

    async def unknown_sources(self, context: str, sources: Sequence[str]) -> list[str]:
        """Return those of the sources that have no passages here, in the order given."""
        ...

    async def search(self, context: str, query: str, limit: int, options: Options) -> list[Hit]:
        """Return the best passages; floor, tags and dates are those of ``options``."""
        ...

    async def assemble(
        self,
        context: str,
        origins: Sequence[str],
        query: str,
        *,
        limit: int,
        options: Options,
        budget: Budget,
        rerank: str | None,
        extra: Mapping[str, Any],
    ) -> Package:
        """Return a package within the budget; ``rerank`` names the model that is to put it in order.

        ``extra`` holds further fields of the request.
        """
        ...

    async def resolve(self, context: str, cue: str, limit: int) -> list[Candidate]:
        """Return the concepts that a cue may mean, best first."""
        ...

    async def resolve_label(self, context: str, cue: str, limit: int) -> list[Candidate]:
        """Return the labels that a cue may mean, best first."""
        ...

    async def associations(self, context: str, wanted: ExpectedAssociation) -> Associations:
        """Return the associations with exactly these names."""
        ...

    async def cite(self, context: str, source: str, paragraph: int) -> Cited:
        """Return a paragraph as it is cited."""
        ...
