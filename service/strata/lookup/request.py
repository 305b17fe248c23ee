"""From the bytes of a request to a checked plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from strata.errors import INVALID_REQUEST, MALFORMED_BODY, StrataError
from strata.evidence.model import Layer, Limits
from strata.lookup.repository import SourceFilter
from strata.lookup.schemas import (
    DEFAULT_CONTEXT,
    DEFAULT_ROWS,
    DEFAULT_TOP_K,
    MAX_QUERY_CHARS,
    BudgetRequest,
    Filters,
    Lane,
    LookupQuery,
    LookupRequest,
)
from strata.text.languages import resolve_language
from strata.text.normalise import normalise_text

MAX_CONTEXTS = 32
MAX_FILTER_VALUES = 100
MAX_FILTER_CHARS = 1024
_REPEATED = frozenset({"context", "category", "sources", "tags", "layers", "lanes"})


@dataclass(frozen=True, slots=True)
class Plan:
    """A lookup that has passed every check: nothing in it can fail on its own."""

    query: str
    contexts: tuple[str, ...]
    categories: tuple[str, ...]
    source_filter: SourceFilter
    top_k: int
    limits: Limits
    has_budget: bool
    result_tokens: int | None
    layers: frozenset[Layer]
    lanes: frozenset[str]
    wants_content: bool
    wants_markdown: bool
    follows_relations: bool


def plan_lookup(request: LookupRequest) -> Plan:
    """Check a request as a whole; raises ``invalid_request`` with a pointer to the field."""
    query = normalise_text(request.query).text.strip()
    if not query:
        raise StrataError(INVALID_REQUEST, "query is empty.", pointer="/query", remedy="Ask a question.")
    if len(query) > MAX_QUERY_CHARS:
        raise StrataError(
            INVALID_REQUEST, f"query has {len(query)} characters; at most {MAX_QUERY_CHARS} are read.", pointer="/query"
        )
    contexts = _strings(DEFAULT_CONTEXT if request.context is None else request.context, "/context", MAX_CONTEXTS)
    if not contexts:
        raise StrataError(INVALID_REQUEST, "context names nothing.", pointer="/context")
    tokens = request.budget if isinstance(request.budget, int) else None
    limits = _limits(request.budget) if isinstance(request.budget, BudgetRequest) else Limits()
    return Plan(
        query=query,
        contexts=contexts,
        categories=_strings(request.category or [], "/category", MAX_FILTER_VALUES),
        source_filter=_source_filter(request.filters or Filters()),
        top_k=request.top_k or (DEFAULT_TOP_K if tokens is None else DEFAULT_ROWS),
        limits=limits,
        has_budget=limits != Limits(),
        result_tokens=tokens,
        layers=frozenset(request.layers or Layer),
        lanes=_lanes(request),
        wants_content=request.content if request.content is not None else request.budget is not None,
        wants_markdown=request.format == "markdown",
        follows_relations=request.expand is not False,
    )


def _limits(budget: BudgetRequest) -> Limits:
    """Return the ceilings that apply, less what is reserved for the answer."""
    tokens, reserve = budget.max_tokens, budget.reserve_tokens or 0
    if tokens is None:
        if reserve:
            detail = "Nothing can be reserved of tokens without a ceiling."
            raise StrataError(
                INVALID_REQUEST, detail, pointer="/budget/reserveTokens", remedy="Set maxTokens beside it."
            )
        return Limits(budget.max_items, budget.max_bytes)
    return Limits(budget.max_items, budget.max_bytes, max(0, tokens - reserve))


def _lanes(request: LookupRequest) -> frozenset[str]:
    """Return the lanes asked for; by default all, the second hop where the call may look one step further."""
    if request.lanes:
        return frozenset(request.lanes)
    expands = request.expand if request.expand is not None else isinstance(request.budget, BudgetRequest)
    return frozenset(lane for lane in Lane if expands or lane is not Lane.HOP)


def decode_request(body: bytes) -> LookupRequest:
    """Read a JSON body; raises ``malformed_body`` or ``invalid_request`` with a pointer."""
    try:
        return msgspec.json.decode(body, type=LookupRequest)
    except msgspec.ValidationError as error:
        raise invalid_field(error) from error
    except msgspec.DecodeError as error:
        raise StrataError(MALFORMED_BODY, f"The body is not JSON: {error}.") from error


def decode_query(parameters: Mapping[str, Sequence[str]]) -> LookupRequest:
    """Read query parameters; unknown names are ignored. Pointers are those of a body (:func:`as_parameter`)."""
    values: dict[str, object] = {}
    for name, given in parameters.items():
        if not given:
            continue
        values[name] = list(given) if name in _REPEATED else given[-1]
    try:
        query = msgspec.convert(values, LookupQuery, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_field(error) from error
    ceilings = BudgetRequest(
        max_items=query.max_items,
        max_bytes=query.max_bytes,
        max_tokens=query.max_tokens,
        reserve_tokens=query.reserve_tokens,
    )
    return LookupRequest(
        query=query.q,
        context=query.context,
        category=query.category or None,
        filters=Filters(
            sources=query.sources, tags=query.tags, since=query.since, until=query.until, language=query.language
        ),
        top_k=query.top_k,
        budget=one_budget(query.budget, ceilings, "/budget"),
        expand=query.expand,
        layers=query.layers or None,
        lanes=query.lanes or None,
        content=query.content,
        session_id=query.session_id,
        agent_id=query.agent_id,
        format=query.format,
    )


def one_budget(tokens: int | None, ceilings: BudgetRequest, pointer: str) -> int | BudgetRequest | None:
    """Return the budget that was given, as tokens for the whole result or as ceilings for the evidence.

    Raises ``invalid_request`` where both were.
    """
    if ceilings == BudgetRequest():
        return tokens
    if tokens is None:
        return ceilings
    raise StrataError(
        INVALID_REQUEST,
        "A budget for the whole result leaves no room for ceilings of the evidence.",
        pointer=pointer,
        remedy="Send the budget alone, or maxItems, maxBytes and maxTokens without it.",
    )


def as_parameter(pointer: str | None) -> str | None:
    """Return the query parameter that stands for a field of the body: ``?since`` for ``/filters/since``."""
    if pointer is None or not pointer.startswith("/"):
        return pointer
    name, *inner = pointer.removeprefix("/").split("/")
    if name in {"filters", "budget"} and inner:
        name = inner[0]
    return "?q" if name == "query" else f"?{name}"


def invalid_field(error: msgspec.ValidationError) -> StrataError:
    """Return the StrataError of a field that has the wrong type or lies outside its bounds."""
    detail, _, path = str(error).partition(" - at `")
    pointer = re.sub(r"\[(\d+|\.\.\.)\]", r"/\1", path.rstrip("`").removeprefix("$")).replace(".", "/")
    if missing := re.search(r"missing required field `(\w+)`", detail):
        pointer = f"{pointer}/{missing[1]}"
    return StrataError(INVALID_REQUEST, f"{detail}.", pointer=pointer or "/")


def _strings(value: str | list[str], pointer: str, most: int) -> tuple[str, ...]:
    """Return the distinct, cleaned strings of a field in the order given."""
    values = [value] if isinstance(value, str) else value
    if len(values) > most:
        raise StrataError(INVALID_REQUEST, f"{len(values)} values; at most {most} are taken.", pointer=pointer)
    cleaned = [normalise_text(item).text.strip() for item in values]
    for index, item in enumerate(cleaned):
        where = pointer if isinstance(value, str) else f"{pointer}/{index}"
        if not item:
            raise StrataError(INVALID_REQUEST, "The value is empty.", pointer=where)
        if len(item) > MAX_FILTER_CHARS:
            raise StrataError(
                INVALID_REQUEST, f"The value is longer than {MAX_FILTER_CHARS} characters.", pointer=where
            )
    return tuple(dict.fromkeys(cleaned))


def _source_filter(filters: Filters) -> SourceFilter:
    return SourceFilter(
        paths=tuple(
            glob_to_regex(glob) for glob in _strings(filters.sources or [], "/filters/sources", MAX_FILTER_VALUES)
        ),
        tags=_strings(filters.tags or [], "/filters/tags", MAX_FILTER_VALUES),
        since=_moment(filters.since, "/filters/since", is_end=False),
        until=_moment(filters.until, "/filters/until", is_end=True),
        language=_language(filters.language),
    )


def _language(value: str | None) -> str | None:
    """Return the code that sources carry for a language tag or name (zh-CN is zh)."""
    if value is None:
        return None
    code = resolve_language(value)
    if code is None:
        raise StrataError(
            INVALID_REQUEST,
            "The value is no language.",
            pointer="/filters/language",
            remedy="Send a tag such as en or zh-CN.",
        )
    return code


_WILDCARDS = {"**/": "(.*/)?", "*": "[^/]*", "?": "[^/]"}


def glob_to_regex(glob: str) -> str:
    """Return the anchored POSIX regular expression of a path glob.

    ``*`` and ``?`` stay within one path segment, ``**`` crosses segments, ``**/`` may match nothing.
    """
    pattern = ""
    for part in re.findall(r"\*\*/|\*+|\?|[^*?]+", glob):
        if part in _WILDCARDS:
            pattern += _WILDCARDS[part]
        else:
            pattern += ".*" if part.startswith("*") else _escaped(part)
    return f"^{pattern}$"


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char.isascii() and not (char.isalnum() or char in "_/ -") else char for char in text)


def _moment(value: str | None, pointer: str, *, is_end: bool) -> datetime | None:
    """Read an ISO date or time, UTC where no zone is given; an end that is a date includes that day."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError as error:
        raise StrataError(
            INVALID_REQUEST,
            "The value is not an ISO 8601 date or time.",
            pointer=pointer,
            remedy="Send 2026-01-31 or 2026-01-31T12:00:00Z.",
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    is_date = len(value.strip()) <= 10
    try:
        return moment + timedelta(days=1) if is_end and is_date else moment.astimezone(UTC)
    except OverflowError as error:
        raise StrataError(INVALID_REQUEST, "The date is out of range.", pointer=pointer) from error
