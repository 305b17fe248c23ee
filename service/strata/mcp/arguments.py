"""What each tool takes. The structs are both the published input schema and its check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from strata.errors import INVALID_REQUEST, StrataError
from strata.evidence.model import Layer
from strata.lookup.schemas import MAX_TOP_K, Ceiling, Lane, ResultTokens
from strata.mcp.plain_schema import plain_schema
from strata.platform.problems import FieldError, invalid_fields, struct_errors
from strata.sources.document_schemas import MAX_FETCH_TOKENS, MIN_FETCH_TOKENS, Mode
from strata.sources.relation_schemas import MAX_RELATIONS, Direction, Kind

T = TypeVar("T", bound=Struct)
_MAX_ERRORS = 20
_NUL = "a NUL character"

ContextName = Annotated[str, Meta(description="The context (knowledge base) to read, by name or id.")]
MAX_WHOLE = 2**53
"""The largest whole number that every JSON parser keeps."""

Epoch = Annotated[int, Meta(ge=-MAX_WHOLE, le=MAX_WHOLE)]
Since = Annotated[Epoch | None, Meta(description="Only sources dated from then on; epoch seconds.")]
Until = Annotated[Epoch | None, Meta(description="Only sources dated before then; epoch seconds.")]
Floor = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0, le=MAX_WHOLE)]


class LookupArguments(Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A question with its limits, named as the query parameters of ``GET /api/v1/lookup``."""

    query: Annotated[
        str,
        Meta(description="The question, in full and in the user's own words and language; at most 4,096 characters."),
    ]
    context: Annotated[
        str | list[str] | None,
        Meta(
            description='The context (knowledge base) to search, by name or id; several as a list. Default: "default".'
        ),
    ] = None
    category: Annotated[
        str | list[str] | None, Meta(description="Prefer sources of this category; relaxed when nothing is found.")
    ] = None
    top_k: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_TOP_K)] | None,
        Meta(description="Evidence blocks wanted. Default: 5; with a budget, 30 results."),
    ] = None
    budget: Annotated[
        ResultTokens | None,
        Meta(
            description="Tokens for the whole result: the passages, the documents that the best one names (what "
            "supersedes it, what it depends on), and notes. One call then holds what lookup and fetch would bring."
        ),
    ] = None
    max_items: Annotated[Ceiling | None, Meta(description="Evidence blocks at most, without a budget.")] = None
    max_bytes: Annotated[Ceiling | None, Meta(description="Budget: bytes of evidence at most.")] = None
    max_tokens: Annotated[
        Ceiling | None,
        Meta(description="Budget: tokens of evidence at most (estimated). Set it to what the context window has left."),
    ] = None
    reserve_tokens: Annotated[
        Ceiling | None, Meta(description="Budget: tokens of maxTokens to keep free, for the answer.")
    ] = None
    sources: Annotated[
        list[str] | None, Meta(description="Only sources whose path matches one of these globs, such as hr/**.")
    ] = None
    tags: Annotated[list[str] | None, Meta(description="Only sources that carry one of these tags.")] = None
    since: Annotated[str | None, Meta(description="Only sources dated on or after: 2026-01-31 or an ISO time.")] = None
    until: Annotated[str | None, Meta(description="Only sources dated on or before.")] = None
    language: Annotated[str | None, Meta(description="Only sources in this language, such as en or ja.")] = None
    content: Annotated[
        bool | None, Meta(description="Whole passages instead of previews. Default: true where a budget is given.")
    ] = None
    expand: Annotated[
        bool | None,
        Meta(description="Search one step further, from what was found. Default: true where a budget is given."),
    ] = None
    layers: Annotated[list[Layer] | None, Meta(description="L0: curated hints. L1: passages. Default: both.")] = None
    lanes: Annotated[list[Lane] | None, Meta(description="How to search. Default: every way.")] = None
    format: Annotated[
        Literal["markdown", "json"] | None,
        Meta(description="What the text content is: Markdown to read (default), or the structured result as JSON."),
    ] = None


Source = Annotated[
    str,
    Meta(
        description="The document: its path, id or pin (path/v2), with #anchor for a section; as results name it.",
    ),
]


class FetchArguments(Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A document, and how much of it."""

    context: ContextName
    source: Source
    section: Annotated[
        str | None, Meta(description="Only this section: its anchor or its heading. The same as #anchor in source.")
    ] = None
    mode: Annotated[
        Mode | None,
        Meta(description="auto (default): the outline of a large document, else the text. whole: the text. outline."),
    ] = None
    known: Annotated[
        str | int | None,
        Meta(description="The revision number, or the sha256, that you have: what has not changed is not sent again."),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=MIN_FETCH_TOKENS, le=MAX_FETCH_TOKENS)] | None,
        Meta(description="Tokens of the whole result at most (estimated). Default 8,000."),
    ] = None
    start_byte: Annotated[
        Count | None, Meta(description="Go on from this byte of the document, as next of the result before says.")
    ] = None


class ExploreArguments(Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A document, or a page of its relations."""

    context: ContextName
    source: Source
    direction: Annotated[
        Direction | None, Meta(description="A page of relations: outgoing (its own), incoming (to it), or both.")
    ] = None
    predicates: Annotated[
        list[str] | None, Meta(description="A page of relations: only of these, such as supersedes or depends-on.")
    ] = None
    kind: Annotated[
        Kind | None, Meta(description="A page of relations: declared (default), links in the text, or all.")
    ] = None
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_RELATIONS)] | None, Meta(description="Relations a page. Default 20.")
    ] = None
    cursor: Annotated[str | None, Meta(description="nextCursor of the page before, for the same question.")] = None


class BudgetArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Three hard ceilings; one that is left out has its default."""

    max_items: Annotated[Count | None, Meta(description="Default 40, at most 1,000.")] = None
    max_bytes: Annotated[Count | None, Meta(description="Default 65,536, at most 1,048,576.")] = None
    max_tokens: Annotated[Count | None, Meta(description="Default 4,000; estimated.")] = None
    reserve_tokens: Annotated[
        Count | None, Meta(description="Tokens of max_tokens to keep free, for the answer. Default 0.")
    ] = None


class RerankArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reranker that is wanted."""

    model: Annotated[str | None, Meta(description="Only this model; another one leaves the order as it is.")] = None


class AssembleArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to gather evidence about, and how much of it."""

    context: ContextName
    origins: Annotated[
        str | list[str], Meta(description="Names of the things the question is about; each is resolved to a concept.")
    ]
    labels: Annotated[
        str | list[str] | None, Meta(description="Relations to ask for in particular, such as works_at.")
    ] = None
    text_fallback_query: Annotated[
        str | None, Meta(description="The question, for the search in passages. Default: the origins.")
    ] = None
    budget: Annotated[BudgetArguments | None, Meta(description="Hard ceilings of the package.")] = None
    search_limit: Annotated[Count | None, Meta(description="Passages looked at. Default 5, at most 200.")] = None
    resolve_limit: Annotated[Count | None, Meta(description="Candidates for each origin.")] = None
    activate_limit: Annotated[Count | None, Meta(description="Facts near the origins. Default 20.")] = None
    activate_decay: Annotated[float | None, Meta(description="How fast nearness fades. Default 0.5.")] = None
    dice_floor: Annotated[Floor | None, Meta(description="Least spelling likeness of a resolved name.")] = None
    semantic_floor: Annotated[Floor | None, Meta(description="Least cosine of what is found by meaning.")] = None
    include_communities: Annotated[
        bool | None, Meta(description="Also search summaries of groups of concepts. Default false.")
    ] = None
    rerank: Annotated[RerankArguments | None, Meta(description="Let the configured reranker order the pool.")] = None
    contexts: Annotated[list[str] | None, Meta(description="Further contexts to take evidence from.")] = None
    groups: Annotated[list[str] | None, Meta(description="Groups of contexts to take evidence from.")] = None
    tags: Annotated[list[str] | None, Meta(description="Only sources that carry one of these tags.")] = None
    since: Since = None
    until: Until = None
    expand: Annotated[
        bool | None, Meta(description="Search once more with the opening of the best passage. Default false.")
    ] = None
    anchor_floor: Annotated[
        Floor | None, Meta(description="Start from every concept that resolves with this score, and report them.")
    ] = None
    object_facts: Annotated[
        bool | None, Meta(description="With labels: also facts that end at an origin. Default false.")
    ] = None
    share_text: Annotated[
        bool | None, Meta(description="Send a paragraph once where it is both found and cited. Default false.")
    ] = None
    contradictions: Annotated[
        Literal["atomic", "partial"] | None,
        Meta(description="Whether facts that contradict each other are taken together or not at all. Default atomic."),
    ] = None
    numeric_conflicts: Annotated[
        bool | None, Meta(description="Keep near duplicates that differ in a number, as a conflict. Default false.")
    ] = None
    extracts: Annotated[
        bool | None, Meta(description="Take the best sentences of a paragraph that does not fit. Default false.")
    ] = None
    tokenizer: Annotated[
        str | None, Meta(description="A model whose tokens are counted beside the estimate, such as gpt-4o.")
    ] = None
    revision: Annotated[bool | None, Meta(description="Tell which state of the contexts answered.")] = None


class ResolveArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name to find in the vocabulary."""

    context: ContextName
    cue: Annotated[str, Meta(description="The name as the user wrote it; spelling may differ.")]
    dice_floor: Annotated[Floor | None, Meta(description="Least spelling likeness.")] = None
    semantic_floor: Annotated[Floor | None, Meta(description="Least cosine of a match by meaning.")] = None
    limit: Annotated[Count | None, Meta(description="Candidates at most.")] = None


class AfterArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last fact of the page before."""

    weight: float
    subject: str
    label: str
    object: str


class QueryArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern of facts; a position that is left out matches everything."""

    context: ContextName
    subject: Annotated[str | list[str] | None, Meta(description="Subjects, by exact name or alias.")] = None
    label: Annotated[str | list[str] | None, Meta(description="Relations, by exact name or alias.")] = None
    object: Annotated[str | list[str] | None, Meta(description="Objects, by exact name or alias.")] = None
    subject_types: Annotated[str | list[str] | None, Meta(description="Only subjects of these types.")] = None
    object_types: Annotated[str | list[str] | None, Meta(description="Only objects of these types.")] = None
    limit: Annotated[Count | None, Meta(description="Facts at most. Default 100.")] = None
    after: Annotated[AfterArguments | None, Meta(description="The last fact of the page before.")] = None
    since: Since = None
    until: Until = None


class ActivateArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to start in the graph."""

    context: ContextName
    origins: Annotated[str | list[str], Meta(description="Concepts to start from, by exact name or alias.")]
    decay: Annotated[float | None, Meta(description="How fast nearness fades with each step. Default 0.5.")] = None
    limit: Annotated[Count | None, Meta(description="Facts at most. Default 20.")] = None
    since: Since = None
    until: Until = None


class SearchArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search in passages."""

    context: ContextName
    query: Annotated[str, Meta(description="What to look for.")]
    limit: Annotated[Count | None, Meta(description="Passages at most. Default 5.")] = None
    semantic_floor: Annotated[Floor | None, Meta(description="Least cosine of a match by meaning.")] = None
    tags: Annotated[list[str] | None, Meta(description="Only sources that carry one of these tags.")] = None
    since: Since = None
    until: Until = None


class CiteArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paragraph, as an attribution or a search hit names it."""

    context: ContextName
    source: Annotated[str, Meta(description="The id of the source.")]
    paragraph: Annotated[Count, Meta(description="The number of the paragraph, from 0.")]


def read_arguments(arguments: Mapping[str, Any], wanted: type[T]) -> T:
    """Return the arguments as a struct.

    Raises ``invalid_request`` with a pointer to each argument that is wrong. An unknown one is refused
    by name: a limit with a misspelt name would otherwise be no limit.
    """
    refuse_unclean(arguments)
    _refuse_unknown(arguments, _schema(wanted)["properties"], "")
    try:
        return msgspec.convert(dict(arguments), wanted)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        found = list(struct_errors(dict(arguments), wanted))[:_MAX_ERRORS]
        raise invalid_fields(found or [FieldError(pointer="", detail=f"{error}.")]) from error


@cache
def _schema(wanted: type[Struct]) -> dict[str, Any]:
    return plain_schema(wanted, optional_is_null=False)


def _refuse_unknown(values: Mapping[str, Any], known: Mapping[str, Any], pointer: str) -> None:
    for name, value in values.items():
        place = f"{pointer}/{escape(name)}"
        if name not in known:
            raise unknown_argument(place, name, list(known))
        if isinstance(value, Mapping) and "properties" in known[name]:
            _refuse_unknown(value, known[name]["properties"], place)


def unknown_argument(pointer: str, name: str, known: list[str]) -> StrataError:
    """Return the error of an argument that the tool does not have."""
    return StrataError(
        INVALID_REQUEST,
        f"There is no argument {name[:80]!r}.",
        pointer=pointer[:200],
        remedy=f"The arguments are: {', '.join(known)}.",
    )


def refuse_unclean(value: Any, *, takes_nul: bool = False) -> None:
    """Raise ``invalid_request`` for a text that no store takes: NUL, or half of a character."""
    for pointer, problem in _unclean(value, ""):
        if takes_nul and problem.startswith(_NUL):
            continue
        raise StrataError(
            INVALID_REQUEST, f"The text holds {problem}.", pointer=pointer, remedy="Send the text without it."
        )


def _unclean(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            yield pointer, "a lone surrogate"
        elif "\0" in value:
            yield pointer, _NUL
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unclean(item, f"{pointer}/{index}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            for _, problem in _unclean(key, pointer):
                yield pointer, f"{problem} in a name"
            yield from _unclean(item, f"{pointer}/{escape(key)}")


def escape(step: str) -> str:
    """Return a name as one step of a JSON pointer."""
    return step.replace("~", "~0").replace("/", "~1")
