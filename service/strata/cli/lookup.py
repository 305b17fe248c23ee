"""``strata lookup``: a question in, evidence out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.errors import StrataError

if TYPE_CHECKING:
    from strata.lookup.service import BudgetedAnswer, LookupAnswer


@examples(
    'strata lookup "How long is parental leave?" --context handbook',
    'strata lookup "error ZX-81-Q" -c manuals -c tickets --top-k 10',
    'strata lookup "data retention" --category legal --since 2026-01-01 --json',
    'strata lookup "rate limits" --max-tokens 2000 --format markdown',
    'strata lookup "Which rule replaced the audit policy?" --budget 1500',
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
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", "-k", help="Evidence blocks wanted, 1 to 200; default 5, with --budget 30."),
    ] = None,
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
    budget: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            help="Tokens for the whole result: passages, the documents they name, notes. Prints Markdown or JSON.",
        ),
    ] = None,
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
    from strata.lookup.service import BudgetedAnswer

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
            "budget": _budget(
                budget, maxItems=max_items, maxBytes=max_bytes, maxTokens=max_tokens, reserveTokens=reserve_tokens
            ),
            "layers": [name.upper() for name in layer] if layer else None,
            "lanes": lane or None,
            "content": content or None,
            "sessionId": session,
            "agentId": agent,
            "format": "markdown" if chosen == "markdown" else "json",
        }
    )
    if isinstance(result, BudgetedAnswer):
        _show_budgeted(result, as_json=chosen == "json")
        return
    if chosen == "json":
        output.json_document(result)
    elif chosen == "markdown":
        output.line((result.markdown or "").rstrip())
    else:
        from strata.cli.evidence import show_result

        show_result(question, result)
    if not result.found:
        raise typer.Exit(base.ExitCode.NOTHING_FOUND)


def _show_budgeted(answer: BudgetedAnswer, *, as_json: bool) -> None:
    from strata.lookup.budget_view import markdown

    if as_json:
        output.json_document(answer.result)
    else:
        output.line(markdown(answer.result).rstrip())
    if not answer.result.found:
        raise typer.Exit(base.ExitCode.NOTHING_FOUND)


def _budget(tokens: int | None, **ceilings: int | None) -> int | dict[str, Any] | None:
    """Return the budget of the request: tokens for the whole result, or ceilings for the evidence."""
    given = _present(ceilings)
    if tokens is not None and given:
        raise base.bad_option("--budget", "--budget is for the whole result; give it without --max-... options.")
    return tokens if tokens is not None else given


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
    "/budget/reserveTokens": "--reserve-tokens",
    "/budget/maxBytes": "--max-bytes",
    "/budget/maxTokens": "--max-tokens",
    "/budget": "--budget",
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


def _ask(request: dict[str, Any]) -> LookupAnswer:
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
