"""``strata invocations``: review what was asked and what came of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

app = typer.Typer(help="Review recorded calls: list, show, why, prune.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
Identifier = Annotated[str, typer.Argument(help="The id of the call, as `list` shows it.", metavar="INVOCATION")]
_AGE = re.compile(r"(\d{1,5})\s*(s|m|h|d|w)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@app.command("list")
@examples(
    "strata invocations list",
    "strata invocations list --context handbook --status NOT_FOUND --since 2026-01-31",
    "strata invocations list --query 'parental leave' --limit 5 --json",
)
def list_(
    *,
    context: Annotated[str | None, typer.Option("--context", "-c", help="Only calls that asked this first.")] = None,
    status: Annotated[str | None, typer.Option(help="SUCCESS, NOT_FOUND, DEGRADED, ERROR or CANCELLED.")] = None,
    query: Annotated[str | None, typer.Option(help="Only questions that hold this text.")] = None,
    session: Annotated[str | None, typer.Option(help="Only calls of this session.")] = None,
    trace: Annotated[str | None, typer.Option(help="Only calls of this trace id.")] = None,
    since: Annotated[str | None, typer.Option(help="Only calls at or after this time, or age such as 2h.")] = None,
    until: Annotated[str | None, typer.Option(help="Only calls before this time, or age such as 1d.")] = None,
    limit: Annotated[int, typer.Option(help="How many, 1 to 500.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Go on where the page before ended.")] = None,
    as_json: Json = False,
) -> None:
    """List calls, newest first."""
    begin, end = _moment(since, "--since"), _moment(until, "--until")
    page = base.with_services(
        lambda services: services.invocations.list(
            DEFAULT_TENANT,
            context=context,
            status=status,
            query=query,
            session_id=session,
            trace_id=trace,
            since=begin,
            until=end,
            limit=limit,
            cursor=cursor,
        )
    )
    if as_json:
        output.json_document(page)
        return
    if not page.items:
        output.note("No calls match.")
        return
    rows = [
        (
            item.created_at,
            item.status,
            item.relevance_level,
            item.evidence_count,
            f"{item.duration_ms:.1f}",
            item.id,
            _short(item.query or item.tool_name),
        )
        for item in page.items
    ]
    output.table(("TIME (UTC)", "STATUS", "RELEVANCE", "BLOCKS", "MS", "ID", "QUESTION"), rows, right=(3, 4))
    if page.next_cursor:
        output.note(f"more: --cursor {page.next_cursor}")


@app.command("show")
@examples(
    "strata invocations show 0198c5c2-6a4e-7cc0-8b5c-1d2f6f3f9a10",
    "strata invocations show 0198c5c2-6a4e-7cc0-8b5c-1d2f6f3f9a10 --json | jq .retrievalDetails.lanes",
)
def show(invocation: Identifier, *, as_json: Json = False) -> None:
    """Show one call: what was asked, what each lane did, what was chosen and what was left out."""
    identifier = _uuid(invocation)
    view = base.with_services(lambda services: services.invocations.show(DEFAULT_TENANT, identifier))
    if as_json:
        output.json_document(view)
    else:
        from strata.cli.review import show_invocation

        show_invocation(view)


@app.command("why")
@examples(
    "strata invocations why 0198c5c2-6a4e-7cc0-8b5c-1d2f6f3f9a10 leave.md",
    "strata invocations why 0198c5c2-6a4e-7cc0-8b5c-1d2f6f3f9a10 leave.md#parental-leave --json",
)
def why(
    invocation: Identifier,
    target: Annotated[str, typer.Argument(help="A source path (#anchor allowed), source key or passage id.")],
    *,
    as_json: Json = False,
) -> None:
    """Say why a source or passage is, or is not, in the answer: the stage and the reason."""
    identifier = _uuid(invocation)
    told = base.with_services(lambda services: services.invocations.why(DEFAULT_TENANT, identifier, target))
    if as_json:
        output.json_document(told)
    else:
        from strata.cli.review import show_why

        show_why(told)


@app.command("prune")
@examples(
    "strata invocations prune --older-than 30d",
    "strata invocations prune --older-than 12w --dry-run",
)
def prune(
    *,
    older_than: Annotated[str, typer.Option(help="An age: 90m, 12h, 30d or 8w.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Remove old calls of all tenants."""
    age = _age(older_than)
    if age is None:
        raise base.bad_option("--older-than", f"--older-than is an age such as 30d, not {older_than!r}.")
    pruned = base.with_services(lambda services: services.invocations.prune(age, dry_run=dry_run))
    if as_json:
        output.json_document(pruned)
        return
    verb = "would remove" if dry_run else "removed"
    calls = output.count(pruned.rows_in_partitions + pruned.rows_deleted, "call")
    output.line(f"{verb} {calls} from before {output.cell(pruned.older_than)} UTC")


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise base.bad_option("INVOCATION", f"{text!r} is not the id of an invocation.") from None


def _age(text: str) -> timedelta | None:
    found = _AGE.fullmatch(text.strip().lower())
    return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else None


def _moment(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    age = _age(text)
    if age is not None:
        return datetime.now(UTC) - age
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise base.bad_option(option, f"{option} is a time such as 2026-01-31, or an age such as 2h.") from None


def _short(text: str, limit: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
