"""The contexts API as a backend: over the network, or through any transport that carries its wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
import msgspec
from msgspec import Struct, field

from strata.errors import CONTEXT_NOT_FOUND, INVALID_REQUEST, SERVER_UNAVAILABLE, StrataError
from strata.evaluate.backend import (
    MAX_SEARCH_LIMIT,
    Associations,
    Budget,
    CallError,
    Candidate,
    Cited,
    Corpus,
    Hit,
    Package,
    Place,
    Spend,
)
from strata.evaluate.cases import ExpectedAssociation, Options

TIMEOUT_SECONDS = 60.0

_SOURCES_A_CALL = 100
_BUDGET_REASON = "budget"
_PASSING = frozenset({408, 429})
_T = TypeVar("_T")


class _Error(Struct):
    code: str = "unknown"


class _Row(Struct):
    name: str
    revision: dict[str, int] | None = None


class _Embeddings(Struct):
    provider_model: str | None = None


class _Missing(Struct):
    missing: list[str]


class _Hits(Struct):
    hits: list[dict[str, Any]]


class _Found(Struct):
    source: str
    paragraph: int


class _Place(Struct):
    source: str
    paragraph: int | None = None


class _Item(Struct):
    kind: str
    passage: _Place | None = None
    extract: dict[str, Any] | None = None
    citation_refs: list[_Place] = field(default_factory=list)


class _Used(Struct):
    items_used: int
    bytes_used: int
    tokens_used: int


class _Reranker(Struct):
    ran: bool = False
    reason: str | None = None


class _Plan(Struct):
    reranker: _Reranker = field(default_factory=_Reranker)


class _Package(Struct):
    items: list[_Item]
    citations: list[_Place]
    budget: _Used
    omitted_by_reason: dict[str, int] = field(default_factory=dict)
    plan: _Plan = field(default_factory=_Plan)


class _Candidate(Struct):
    name: str
    tier: str
    kind: str | None = None


class _Association(Struct):
    attributions: list[_Place] = field(default_factory=list)


class _Matches(Struct):
    total: int
    matches: list[_Association]


class _Citation(Struct):
    text: str
    section: str | None = None


class WireBackend:
    """Asks a server of the contexts API. The client, with its base address, stays the caller's."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def corpus(self, context: str) -> Corpus:
        """Return the context as it stands; a server without vectors has no model."""
        row = await self._get(context, "", _Row)
        try:
            model = (await self._get(context, "/embeddings", _Embeddings)).provider_model
        except CallError:
            model = None
        return Corpus(row.name, row.revision or {}, model)

    async def unknown_sources(self, context: str, sources: Sequence[str]) -> list[str]:
        """Return those of the sources that have no passages here, in the order given."""
        missing: list[str] = []
        for start in range(0, len(sources), _SOURCES_A_CALL):
            wanted = list(sources[start : start + _SOURCES_A_CALL])
            answer = await self._post(context, "/sources/lookup", {"sources": wanted}, _Missing)
            gone = set(answer.missing)
            missing += [source for source in wanted if source in gone]
        return missing

    async def search(self, context: str, query: str, limit: int, options: Options) -> list[Hit]:
        """Return the best passages."""
        body = {"query": query, "limit": limit, **_filters(options)}
        answer = await self._post(context, "/sources/search", body, _Hits)
        try:
            found = msgspec.convert(answer.hits, list[_Found])
        except ValueError as error:
            raise _foreign("POST", "/sources/search") from error
        return [Hit(each.source, each.paragraph, wire) for each, wire in zip(found, answer.hits, strict=True)]

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
        """Return a package within the budget."""
        body = {
            **extra,
            "origins": list(origins),
            "text_fallback_query": query,
            "search_limit": min(limit, MAX_SEARCH_LIMIT),
            "budget": msgspec.to_builtins(budget),
            **({"rerank": {"model": rerank}} if rerank is not None else {}),
            **_filters(options),
        }
        return _package(await self._post(context, "/evidence", body, _Package))

    async def resolve(self, context: str, cue: str, limit: int) -> list[Candidate]:
        """Return the concepts that a cue may mean, best first."""
        return await self._candidates(context, "/resolve", cue, limit)

    async def resolve_label(self, context: str, cue: str, limit: int) -> list[Candidate]:
        """Return the labels that a cue may mean, best first."""
        return await self._candidates(context, "/resolve_label", cue, limit)

    async def associations(self, context: str, wanted: ExpectedAssociation) -> Associations:
        """Return the associations with exactly these names."""
        answer = await self._post(context, "/query", msgspec.to_builtins(wanted), _Matches)
        places = [_placed(place) for match in answer.matches for place in match.attributions]
        return Associations(answer.total, tuple(place for place in places if place))

    async def cite(self, context: str, source: str, paragraph: int) -> Cited:
        """Return a paragraph as it is cited."""
        try:
            found = await self._post(context, "/citations", {"source": source, "paragraph": paragraph}, _Citation)
        except CallError as error:
            if error.answer == "no_source":
                return Cited("no_source")
            if error.answer == "no_paragraph":
                return Cited("no_paragraph")
            raise
        return Cited("resolved", found.text, found.section)

    async def _candidates(self, context: str, path: str, cue: str, limit: int) -> list[Candidate]:
        found = await self._post(context, path, {"cue": cue, "limit": limit}, list[_Candidate])
        return [Candidate(each.name, each.tier, each.kind) for each in found]

    async def _get(self, context: str, path: str, shape: type[_T]) -> _T:
        return await self._call("GET", context, path, None, shape)

    async def _post(self, context: str, path: str, body: Mapping[str, Any], shape: type[_T]) -> _T:
        return await self._call("POST", context, path, msgspec.json.encode(body), shape)

    async def _call(self, method: str, context: str, path: str, body: bytes | None, shape: type[_T]) -> _T:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        url = f"contexts/{quote(context, safe='')}{path}"
        try:
            response = await self._client.request(method, url, content=body, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise StrataError(SERVER_UNAVAILABLE, f"The server does not answer: {type(error).__name__}.") from error
        if not response.is_success:
            raise _failure(response, context, path)
        try:
            fields = msgspec.json.decode(response.content, type=dict[str, msgspec.Raw])
            return msgspec.json.decode(fields["result"], type=shape)
        except (ValueError, KeyError) as error:
            raise _foreign(method, path) from error


def client(url: str) -> httpx2.AsyncClient:
    """Return a client for the server at ``url``; raises ``invalid_request`` for what is no address."""
    try:
        parsed = httpx2.URL(url if url.endswith("/") else f"{url}/")
    except httpx2.InvalidURL as error:
        raise _no_address(url) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise _no_address(url)
    return httpx2.AsyncClient(base_url=parsed, timeout=TIMEOUT_SECONDS)


def _no_address(url: str) -> StrataError:
    remedy = "Give the address of a server, such as http://127.0.0.1:8080."
    return StrataError(INVALID_REQUEST, f"{url!r} is no http address.", pointer="--url", remedy=remedy)


def _foreign(method: str, path: str) -> StrataError:
    return StrataError(
        SERVER_UNAVAILABLE,
        f"The answer to {method} {path or 'the context'} is not one of the contexts API.",
        remedy="Check the address: it is the server's, without a path of the API.",
    )


def _failure(response: httpx2.Response, context: str, path: str) -> StrataError:
    try:
        code = msgspec.json.decode(response.content, type=_Error).code
    except ValueError:
        code = "unknown"
    if code == "no_context":
        return StrataError(CONTEXT_NOT_FOUND, f"There is no context {context!r}.", pointer="--context")
    status = response.status_code
    kind = SERVER_UNAVAILABLE if status >= 500 or status in _PASSING else INVALID_REQUEST
    return CallError(kind, f"The server answered {status} ({code}) to {path or 'the context'}.", code)


def _filters(options: Options) -> dict[str, Any]:
    given = {
        "semantic_floor": options.floor,
        "tags": list(options.tags) or None,
        "since": options.since,
        "until": options.until,
    }
    return {name: value for name, value in given.items() if value is not None}


def _package(answer: _Package) -> Package:
    used = answer.budget
    omitted = sum(count for reason, count in answer.omitted_by_reason.items() if _BUDGET_REASON in reason)
    reranker = answer.plan.reranker
    return Package(
        places=tuple(dict.fromkeys(_given(answer))),
        spend=Spend(
            items_used=used.items_used, bytes_used=used.bytes_used, tokens_used=used.tokens_used, omitted=omitted
        ),
        reranked=reranker.ran,
        rerank_reason=reranker.reason,
    )


def _given(answer: _Package) -> Iterator[Place]:
    """Give the paragraphs that stand whole in the package: passages, and what associations cite, in its order."""
    cited = {_placed(place) for place in answer.citations}
    for item in answer.items:
        if item.passage is not None and item.extract is None and (place := _placed(item.passage)):
            yield place
        for reference in item.citation_refs:
            if (place := _placed(reference)) in cited and place:
                yield place


def _placed(place: _Place) -> Place | None:
    return None if place.paragraph is None else (place.source, place.paragraph)
