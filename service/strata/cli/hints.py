"""``strata hints``: curated names that lead to sources, or answer by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.hints.files import HintFormat
    from strata.hints.schemas import HintOrigin, HintReport

app = typer.Typer(help="List, add, import, export and delete hints.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
Context = Annotated[str, typer.Option("--context", "-c", help="The context, by name or id.")]
Many = list[str] | None


@app.command("list")
@examples("strata hints list --context handbook", "strata hints list -c handbook --origin curated --json")
def list_(
    *,
    context: Context = "default",
    origin: Annotated[str | None, typer.Option(help="curated, frontmatter or derived.")] = None,
    limit: Annotated[int, typer.Option(help="How many, 1 to 1000.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Go on where the page before ended.")] = None,
    as_json: Json = False,
) -> None:
    """List hints: curated ones, and those that documents give."""
    wanted = _origin(origin)
    page = base.with_services(
        lambda services: services.hints.list(DEFAULT_TENANT, context, origin=wanted, limit=limit, cursor=cursor)
    )
    if as_json:
        output.json_page(page.hints, page.next_cursor)
        return
    if not page.hints:
        output.note("No hints match.")
        return
    rows = [(hint.title, hint.aliases, hint.category, hint.targets, hint.origin, hint.hint_id) for hint in page.hints]
    output.table(("TITLE", "ALIASES", "CATEGORY", "TARGETS", "ORIGIN", "ID"), rows)
    if page.next_cursor:
        output.note(f"more: --cursor {page.next_cursor}")


@app.command("add")
@examples(
    'strata hints add "Parental leave" -c handbook --alias "baby leave" --target leave.md',
    'strata hints add "Opening hours" -c handbook --keyword "open on sunday" --summary "Daily from 9 to 17."',
)
def add(
    title: Annotated[str, typer.Argument(help="The name that questions use. An existing title is replaced.")],
    *,
    context: Context = "default",
    alias: Annotated[Many, typer.Option(help="Another name; may repeat.")] = None,
    keyword: Annotated[Many, typer.Option(help="Words that must all be in the question; may repeat.")] = None,
    category: Annotated[str | None, typer.Option(help="Its category.")] = None,
    summary: Annotated[str | None, typer.Option(help="What it says by itself.")] = None,
    target: Annotated[Many, typer.Option(help="A source path (#anchor allowed); may repeat.")] = None,
    priority: Annotated[int, typer.Option(help="Higher wins between equal matches.")] = 0,
    as_json: Json = False,
) -> None:
    """Add a curated hint, or replace the one of the same title."""
    from strata.hints.schemas import HintInput

    hint = HintInput(
        title=title,
        aliases=alias or [],
        keywords=keyword or [],
        category=category,
        summary=summary,
        targets=target or [],
        priority=priority,
    )
    _show(base.with_services(lambda services: services.hints.put(DEFAULT_TENANT, context, [hint])), as_json)


@app.command("import")
@examples(
    "strata hints import hints.yaml --context handbook",
    "strata hints import - --context handbook --format jsonl < hints.jsonl",
)
def import_(
    file: Annotated[Path, typer.Argument(help="A YAML, JSON or JSON lines file; `-` reads standard input.")],
    *,
    context: Context = "default",
    form: Annotated[str | None, typer.Option("--format", help="yaml, json or jsonl; default by suffix.")] = None,
    as_json: Json = False,
) -> None:
    """Store the curated hints of a file, all or none; the same title is replaced."""
    chosen = _format(form)
    source = _read(file)
    report = base.with_services(lambda services: services.hints.import_file(DEFAULT_TENANT, context, source, chosen))
    _show(report, as_json)


@app.command("export")
@examples(
    "strata hints export --context handbook > hints.yaml",
    "strata hints export -c handbook --all --format jsonl",
)
def export(
    *,
    context: Context = "default",
    form: Annotated[str, typer.Option("--format", help="yaml, json or jsonl.")] = "yaml",
    everything: Annotated[bool, typer.Option("--all", help="Also those that documents give.")] = False,
) -> None:
    """Write curated hints as a file that `import` takes."""
    from strata.hints.schemas import HintOrigin

    chosen = _format(form) or "yaml"
    origin = None if everything else HintOrigin.CURATED
    text = base.with_services(lambda services: services.hints.export(DEFAULT_TENANT, context, chosen, origin))
    output.binary(text.encode())


@app.command("delete")
@examples(
    "strata hints delete 0198c5c2-6a4e-7cc0-8b5c-1d2f6f3f9a10 --context handbook",
    "strata hints delete 0198c5c2-6a4e-7cc0-8b5c-1d2f6f3f9a10 -c handbook --yes",
)
def delete(
    hint: Annotated[str, typer.Argument(help="The id of the hint.", metavar="HINT")],
    *,
    context: Context = "default",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a curated hint; those that a document gives go with the document."""
    try:
        identifier = UUID(hint)
    except ValueError:
        raise base.bad_option("HINT", f"{hint!r} is not the id of a hint.") from None
    base.confirm(f"Delete the hint {hint}?", yes=yes)
    base.with_services(lambda services: services.hints.delete(DEFAULT_TENANT, context, identifier))
    output.note(f"deleted the hint {hint}")


def _origin(text: str | None) -> HintOrigin | None:
    from strata.hints.schemas import HintOrigin

    if text is None:
        return None
    try:
        return HintOrigin(text.lower())
    except ValueError:
        raise base.bad_option("--origin", f"--origin is {', '.join(HintOrigin)}, not {text!r}.") from None


def _format(text: str | None) -> HintFormat | None:
    from typing import get_args

    from strata.hints.files import HintFormat

    if text is None:
        return None
    for known in get_args(HintFormat):
        if text.lower() == known:
            chosen: HintFormat = known
            return chosen
    raise base.bad_option("--format", f"--format is {', '.join(get_args(HintFormat))}, not {text!r}.")


def _read(file: Path) -> Path | bytes:
    import sys

    return sys.stdin.buffer.read() if str(file) == "-" else file


def _show(report: HintReport, as_json: bool) -> None:
    if as_json:
        output.json_document(report)
    else:
        output.line(f"{report.created} created, {report.updated} updated, {report.unchanged} unchanged")
