"""``strata lookup``: a question in, evidence out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.errors import StrataError

if TYPE_CHECKING:
    from strata.lookup.schemas import LookupResult


@examples(
    'strata lookup "How long is parental leave?" --context handbook',
    'strata lookup "error ZX-81-Q" -c manuals -c tickets --top-k 10',
    'strata lookup "data retention" --category legal --since 2026-01-01 --json',
    'strata lookup "rate limits" --max-tokens 2000 --format markdown',
)
def lookup(
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="The question, in any script. `-` reads it from standard input.")
    ],
    *,
    context: Annotated[
        list[str] | None,
        typer.Option("--context", "-c", metavar="NAME", help="Context by name or id; repeat to search several."),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Evidence blocks wanted, 1 to 200.")] = 5,
    category: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only sources of this category; may repeat.")
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only paths that match this glob; may repeat.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Only sources with this tag; may repeat.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="Only sources dated on or after, such as 2026-01-31.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Only sources dated on or before.")] = None,
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="Only sources in this language, such as en or ja.")
    ] = None,
    layer: Annotated[
        list[str] | None, typer.Option(metavar="LAYER", help="L0 (hints) or L1 (passages); default both.")
    ] = None,
    lane: Annotated[
        list[str] | None,
        typer.Option(metavar="LANE", help="hints, lexical, vector, hop or graph; default all but hop; may repeat."),
    ] = None,
    content: Annotated[bool, typer.Option("--content", help="Whole passages instead of previews.")] = False,
    max_items: Annotated[int | None, typer.Option(help="Budget: blocks at most.")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Budget: bytes of evidence at most.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Budget: tokens of evidence at most (estimated).")] = None,
    reserve_tokens: Annotated[
        int | None, typer.Option(help="Budget: tokens of --max-tokens to leave free for the answer.")
    ] = None,
    session: Annotated[str | None, typer.Option(help="Session id for the record.")] = None,
    agent: Annotated[str | None, typer.Option(help="Agent id for the record.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, json, or markdown as agents read it.")] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Find evidence for a question.

    Exits with 4 when nothing is found; that is no statement about the world.
    """
    if form not in {"text", "json", "markdown"}:
        raise base.bad_option("--format", f"--format is text, json or markdown, not {form!r}.")
    chosen = "json" if as_json else form
    question = _read(question)
    result = _ask(
        {
            "query": question,
            "context": context or "default",
            "category": category or None,
            "filters": _filters(sources=source, tags=tag, since=since, until=until, language=language),
            "topK": top_k,
            "budget": _present(
                {
                    "maxItems": max_items,
                    "maxBytes": max_bytes,
                    "maxTokens": max_tokens,
                    "reserveTokens": reserve_tokens,
                }
            ),
            "layers": [name.upper() for name in layer] if layer else None,
            "lanes": lane or None,
            "content": content or None,
            "sessionId": session,
            "agentId": agent,
            "format": "markdown" if chosen == "markdown" else "json",
        }
    )
    if chosen == "json":
        output.json_document(result)
    elif chosen == "markdown":
        output.line((result.markdown or "").rstrip())
    else:
        from strata.cli.evidence import show_result

        show_result(question, result)
    if not result.found:
        raise typer.Exit(base.ExitCode.NOTHING_FOUND)


def _read(question: str) -> str:
    import sys

    return sys.stdin.read() if question == "-" else question


def _filters(**values: Any) -> dict[str, Any] | None:
    return _present({name: value for name, value in values.items() if value})


def _present(values: dict[str, Any]) -> dict[str, Any] | None:
    return {name: value for name, value in values.items() if value is not None} or None


_OPTIONS = {
    "/query": "QUESTION",
    "/context": "--context",
    "/category": "--category",
    "/topK": "--top-k",
    "/budget/maxItems": "--max-items",
    "/budget/maxBytes": "--max-bytes",
    "/budget/maxTokens": "--max-tokens",
    "/filters/sources": "--source",
    "/filters/tags": "--tag",
    "/filters/since": "--since",
    "/filters/until": "--until",
    "/filters/language": "--language",
    "/layers": "--layer",
    "/lanes": "--lane",
    "/sessionId": "--session",
    "/agentId": "--agent",
}


def _ask(request: dict[str, Any]) -> LookupResult:
    """Send the request as REST would, so that one that cannot be read is recorded too."""
    import json

    from strata.lookup.service import Caller
    from strata.platform.ids import DEFAULT_TENANT
    from strata.traces.schemas import Surface

    # An argument that is no UTF-8 arrives with lone surrogates, which JSON cannot carry.
    body = json.dumps(request, ensure_ascii=False).encode("utf-8", "replace")
    try:
        return base.with_services(
            lambda services: services.lookup.lookup_json(DEFAULT_TENANT, body, Caller(Surface.CLI))
        )
    except StrataError as error:
        raise _for_options(error) from error


def _for_options(error: StrataError) -> StrataError:
    """Return the error with the option in place of the pointer into the body."""
    option = next((name for path, name in _OPTIONS.items() if (error.pointer or "").startswith(path)), error.pointer)
    return StrataError(error.kind, error.detail, pointer=option, remedy=error.remedy, extra=error.extra)
