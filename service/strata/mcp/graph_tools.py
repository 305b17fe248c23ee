"""The tools over one context's facts and passages: thin adapters to services of the contexts API.

Their text is the whole body that the contexts API answers; their structured result is its ``result``
as an object.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from strata.errors import CONTEXT_NOT_FOUND, PARAGRAPH_NOT_FOUND, SOURCE_NOT_FOUND, StrataError
from strata.mcp.arguments import (
    ActivateArguments,
    AssembleArguments,
    CiteArguments,
    QueryArguments,
    ResolveArguments,
    SearchArguments,
    read_arguments,
)
from strata.mcp.cap import HALF_QUARTERS, RESULT_TOKENS, clip_texts, compact, cut_tail, excess, longest_head
from strata.mcp.plain_schema import plain_schema
from strata.mcp.tools import Answer, Call, Tool, Toolbox, ToolService
from strata.text.estimate import token_quarters

_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_REDUCED = {
    "type": "object",
    "description": "Present where the result was cut to what clients take: what was left out, by number.",
    "properties": {
        "omitted": {"type": "object", "additionalProperties": {"type": "integer"}},
        "max_tokens": _INTEGER,
        "message": _TEXT,
    },
    "required": ["omitted", "max_tokens", "message"],
}

_MISSING = {SOURCE_NOT_FOUND: "source", PARAGRAPH_NOT_FOUND: "paragraph"}
_ATTRIBUTIONS = 10

Cut = Callable[[dict[str, Any]], dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """How a result becomes an object. ``key`` holds what says whether anything was found."""

    key: str
    properties: dict[str, Any]
    cut: Cut
    wraps_list: bool = False
    tells_found: bool = True
    may_be_missing: bool = False

    def schema(self) -> dict[str, Any]:
        found = {"found": {"type": "boolean"}} if self.tells_found else {}
        return {
            "type": "object",
            "properties": {**found, **self.properties, "reduced": _REDUCED},
            "required": [*found, self.key] if self.key in self.properties else [*found],
        }


def graph_tools(box: Toolbox) -> list[Tool]:
    """Return the tools whose service is there."""
    offered = [
        (box.assemble_evidence, _assemble_evidence),
        (box.resolve, _resolve),
        (box.query, _query),
        (box.activate, _activate),
        (box.search_passages, _search_passages),
        (box.cite_passage, _cite_passage),
    ]
    return [make(service) for service, make in offered if service is not None]


def _tool(
    service: ToolService,
    name: str,
    title: str,
    description: str,
    *,
    arguments: type[Struct],
    texts: Sequence[str] | None,
    shape: _Shape,
) -> Tool:
    """Return a tool; ``texts`` names what the caller writes in its own words, None where the service keeps the row."""

    async def run(call: Call, read: Struct) -> Answer:
        given = arguments_of(read)
        context = str(given.pop("context"))
        started = time.perf_counter()
        missing = None
        try:
            result = msgspec.to_builtins(await service(call, context, given))
        except StrataError as error:
            if error.kind is CONTEXT_NOT_FOUND and error.pointer is None:
                error.pointer = "/context"
            missing = _MISSING.get(error.kind)
            if not shape.may_be_missing or missing is None:
                raise
            result = None
        return _answer(result, shape, time.perf_counter() - started, missing)

    return Tool(
        name=name,
        title=title,
        description=description,
        input_schema=plain_schema(arguments, optional_is_null=False),
        output_schema=shape.schema(),
        read=lambda sent: read_arguments(sent, arguments),
        run=run,
        recorded=None if texts is None else lambda read: _recorded(arguments_of(read), texts),
    )


def arguments_of(read: Struct) -> dict[str, Any]:
    """Return the arguments that were given; null is the same as left out."""
    return _given(msgspec.to_builtins(read))


def _recorded(given: dict[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """Return the arguments for the row: what the caller wrote is its ``query``, so that privacy settings cover it."""
    values = [given.pop(name) for name in texts if name in given]
    written = [item for value in values for item in ([value] if isinstance(value, str) else value)]
    if "after" in given:
        given["after"] = {"weight": given["after"]["weight"]}
    return {"query": "; ".join(written), **given} if written else given


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _given(value) if isinstance(value, dict) else value for name, value in values.items() if value is not None
    }


def _answer(result: Any, shape: _Shape, seconds: float, missing: str | None) -> Answer:
    given = {shape.key: result or []} if shape.wraps_list else result or {shape.key: None, "missing": missing}
    value: dict[str, Any] = {shape.key: [], **given}
    found = missing is None if shape.may_be_missing else bool(value.get("total", value[shape.key]))
    evidence = len(value[shape.key]) if isinstance(value[shape.key], list) else int(found)
    omitted = {name: count for name, count in shape.cut(value).items() if count} if excess(value) > 0 else {}
    body: dict[str, Any] = {
        "result": None if result is None else value[shape.key] if shape.wraps_list else dict(value),
        "status": "ok",
        "time": round(seconds, 6),
    }
    if shape.tells_found:
        value = {"found": found, **value}
    if missing:
        body["missing"] = missing
    if omitted:
        told = ", ".join(f"{name}: {count}" for name, count in omitted.items())
        message = f"Left out or clipped to stay within {RESULT_TOKENS} tokens: {told}. Ask for less at once."
        value["reduced"] = body["reduced"] = {"omitted": omitted, "max_tokens": RESULT_TOKENS, "message": message}
    return Answer(structured=value, text=compact(body), found=found, evidence=evidence)


def _cut_candidates(value: dict[str, Any]) -> dict[str, int]:
    return {"candidates": cut_tail(value, value["candidates"])}


def _cut_facts(value: dict[str, Any]) -> dict[str, int]:
    """Keep at most ten attributions of a fact, from the last fact on; then drop facts from the end."""
    over, attributions = excess(value), 0
    for match in reversed(value["matches"]):
        stated = match.get("association", match)["attributions"]
        if over <= 0:
            break
        while over > 0 and len(stated) > _ATTRIBUTIONS:
            over -= token_quarters(compact(stated.pop())) + 1
            attributions += 1
    return {"attributions": attributions, "matches": cut_tail(value, value["matches"])}


def _cut_hits(value: dict[str, Any]) -> dict[str, int]:
    return {"texts": clip_texts(value, value["hits"]), "hits": cut_tail(value, value["hits"])}


def _cut_citation(value: dict[str, Any]) -> dict[str, int]:
    """Keep the longest head of the text."""
    text = value["text"]
    value["text"] = longest_head(text, lambda head: excess({**value, "text": head}) <= 0)
    return {"texts": int(value["text"] != text)}


def _cut_package(value: dict[str, Any]) -> dict[str, int]:
    """Drop the list of omissions from its end; then keep the items that fit, best first, with their citations.

    What is told beside the evidence (anchors, revisions) has at most half of the room.
    """
    items, citations = value["items"], value["citations"]
    lost = {"omitted": cut_tail(value, value["omitted"])}
    over = excess(value)
    if over <= 0:
        return lost
    value["items"], value["citations"] = [], []
    for name in ("anchors", "revision"):
        lost[name] = cut_tail(value, value.get(name, []), room=HALF_QUARTERS)
    costs = {_place(entry): token_quarters(compact(entry)) + 1 for entry in citations}
    free, cited = -excess(value), set[tuple[Any, ...]]()
    for item in items:
        places = {_place(ref) for ref in item["citation_refs"]} - cited
        cost = token_quarters(compact(item)) + 1 + sum(costs.get(place, 0) for place in places)
        if cost <= free:
            free -= cost
            cited |= places
            value["items"].append(item)
    value["citations"] = [entry for entry in citations if _place(entry) in cited]
    lost["items"], lost["citations"] = len(items) - len(value["items"]), len(citations) - len(value["citations"])
    return lost


def _place(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return entry.get("context"), entry.get("source"), entry.get("paragraph")


def _assemble_evidence(service: ToolService) -> Tool:
    return _tool(
        service,
        "assemble_evidence",
        "Assemble an evidence package",
        "Gather facts, passages and citations about named things into one ranked, deduplicated package within a "
        "budget, ready to be put before an answer. Use it for questions about how things relate, or that need "
        "several facts together; use lookup for one question in words. Contradicting facts are kept side by side "
        "and marked. What did not get in is counted with its reason, and plan says what ran.",
        arguments=AssembleArguments,
        texts=None,
        shape=_Shape(
            key="items",
            properties={
                "items": _OBJECTS,
                "citations": _OBJECTS,
                "budget": {"type": "object"},
                "omitted": _OBJECTS,
                "omitted_total": _INTEGER,
                "omitted_by_reason": {"type": "object", "additionalProperties": _INTEGER},
                "plan": {"type": "object"},
                "anchors": _OBJECTS,
                "revision": _OBJECTS,
            },
            cut=_cut_package,
            tells_found=False,
        ),
    )


def _resolve(service: ToolService) -> Tool:
    return _tool(
        service,
        "resolve",
        "Resolve a name",
        "Find the concepts of a context that a name may mean, best first, with what each is known for. Use it "
        "before query and activate, which take exact names.",
        arguments=ResolveArguments,
        texts=("cue",),
        shape=_Shape(key="candidates", properties={"candidates": _OBJECTS}, cut=_cut_candidates, wraps_list=True),
    )


def _query(service: ToolService) -> Tool:
    return _tool(
        service,
        "query",
        "Query facts",
        "List the facts (subject, label, object) that match a pattern, with who asserted each. Names are exact; "
        "resolve finds them. A negative weight says that the fact was denied.",
        arguments=QueryArguments,
        texts=("subject", "label", "object"),
        shape=_Shape(key="matches", properties={"total": _INTEGER, "matches": _OBJECTS}, cut=_cut_facts),
    )


def _activate(service: ToolService) -> Tool:
    return _tool(
        service,
        "activate",
        "Find facts near concepts",
        "Follow facts outwards from concepts and return the strongest, each with the path to it. Use it to see "
        "what is connected to a thing when no relation is known.",
        arguments=ActivateArguments,
        texts=("origins",),
        shape=_Shape(key="matches", properties={"total": _INTEGER, "matches": _OBJECTS}, cut=_cut_facts),
    )


def _search_passages(service: ToolService) -> Tool:
    return _tool(
        service,
        "search_passages",
        "Search passages",
        "Search the paragraphs of a context by words and by meaning. Each hit names its source and paragraph for "
        "cite_passage. lookup does more: it removes duplicates, judges relevance and keeps a budget.",
        arguments=SearchArguments,
        texts=("query",),
        shape=_Shape(key="hits", properties={"plan": {"type": "object"}, "hits": _OBJECTS}, cut=_cut_hits),
    )


def _cite_passage(service: ToolService) -> Tool:
    return _tool(
        service,
        "cite_passage",
        "Cite a paragraph",
        "Return the exact text of one paragraph of a source, with its section and locator, to quote or to check "
        "a citation. found=false where there is no such paragraph; missing says whether the source is known.",
        arguments=CiteArguments,
        texts=(),
        shape=_Shape(
            key="text",
            properties={
                "text": {"type": ["string", "null"]},
                "source": _TEXT,
                "section": {"type": ["string", "null"]},
                "locator": {"type": ["object", "null"]},
                "missing": {"type": "string", "enum": ["source", "paragraph"]},
            },
            cut=_cut_citation,
            may_be_missing=True,
        ),
    )
