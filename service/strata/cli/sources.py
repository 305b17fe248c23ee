"""``strata sources``: the documents of a context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.errors import CONFLICT, StrataError
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.services import Services

app = typer.Typer(help="List, show, read and delete the sources of a context.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
Context = Annotated[str, typer.Option("--context", "-c", help="The context, by name or id.")]
Ref = Annotated[str, typer.Argument(help="The source, by path or id.", metavar="SOURCE")]


@app.command("list")
@examples(
    "strata sources list --context handbook",
    "strata sources list -c handbook --limit 1000 --json | jq -r '.items[].path'",
)
def list_(
    *,
    context: Context = "default",
    category: Annotated[str | None, typer.Option(help="Only of this category.")] = None,
    prefix: Annotated[str, typer.Option(help="Only paths that begin with this.")] = "",
    limit: Annotated[int, typer.Option(help="How many, 1 to 1000.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Go on where the page before ended.")] = None,
    as_json: Json = False,
) -> None:
    """List sources by path."""
    page = base.with_services(
        lambda services: services.sources.list(
            DEFAULT_TENANT, context, prefix=prefix, category=category, limit=limit, cursor=cursor
        )
    )
    if as_json:
        output.json_page(page.sources, page.next_cursor)
        return
    if not page.sources:
        output.note("No sources match.")
        return
    rows = [
        (
            view.path,
            view.title,
            view.format,
            view.category,
            f"{view.passages:,}",
            output.human_bytes(view.text_bytes),
            view.updated_at,
        )
        for view in page.sources
    ]
    output.table(("PATH", "TITLE", "FORMAT", "CATEGORY", "PASSAGES", "TEXT", "UPDATED (UTC)"), rows, right=(4, 5))
    if page.next_cursor:
        output.note(f"more: --cursor {page.next_cursor}")


@app.command("show")
@examples(
    "strata sources show leave.md --context handbook",
    "strata sources show leave.md -c handbook --json | jq .sections",
)
def show(source: Ref, *, context: Context = "default", as_json: Json = False) -> None:
    """Show one source: its outline, metadata, and what was normalised away."""
    detail = base.with_services(lambda services: services.sources.get(DEFAULT_TENANT, context, source))
    if as_json:
        output.json_document(detail)
        return
    output.fields(
        [
            ("path", detail.path),
            ("id", detail.id),
            ("title", detail.title),
            ("revision", detail.revision),
            ("format", detail.format),
            ("category", detail.category),
            ("language", detail.language),
            ("tags", detail.tags),
            ("dated", detail.occurred_at),
            ("source key", detail.source_key),
            ("text", f"{output.human_bytes(detail.text_bytes)} in {output.count(detail.passages, 'passage')}"),
            ("sha256", detail.sha256),
            ("updated", f"{output.cell(detail.updated_at)} UTC"),
            ("metadata", ", ".join(f"{name}={value}" for name, value in sorted(detail.metadata.items()))),
            ("normalised", ", ".join(f"{name} {number}" for name, number in sorted(detail.normalisation.items()))),
            ("warnings", "; ".join(detail.warnings)),
        ]
    )
    if detail.sections:
        output.line()
        rows = [
            (f"{section.start_byte}-{section.end_byte}", "  " * max(0, section.level - 1) + section.heading)
            for section in detail.sections
        ]
        output.table(("BYTES", "SECTION"), rows, right=(0,))


@app.command("text")
@examples(
    "strata sources text leave.md --context handbook",
    "strata sources text leave.md -c handbook --start 1204 --end 1710",
)
def text(
    source: Ref,
    *,
    context: Context = "default",
    start: Annotated[int, typer.Option(help="First byte, as citations count.")] = 0,
    end: Annotated[int | None, typer.Option(help="End byte, exclusive.")] = None,
    as_json: Json = False,
) -> None:
    """Write the stored text, or a byte range of it: what citations refer to.

    A range that cuts a character is narrowed to whole ones. As JSON at most 1 MiB is written.
    """
    if as_json:
        output.json_document(
            base.with_services(lambda services: services.sources.read_text(DEFAULT_TENANT, context, source, start, end))
        )
    else:
        base.with_services(lambda services: _write_text(services, context, source, start, end))


async def _write_text(services: Services, context: str, source: str, start: int, end: int | None) -> None:
    """Write slice after slice; raises ``conflict`` when the source is replaced meanwhile."""
    first = piece = await services.sources.read_text(DEFAULT_TENANT, context, source, start, end)
    output.binary(piece.text.encode())
    stop = piece.total_bytes if end is None else min(end, piece.total_bytes)
    while piece.text and piece.end_byte < stop:
        piece = await services.sources.read_text(DEFAULT_TENANT, context, source, piece.end_byte, end)
        if piece.revision != first.revision:
            raise StrataError(CONFLICT, f"{source} was replaced while it was read.", remedy="Run the command again.")
        output.binary(piece.text.encode())


@app.command("delete")
@examples(
    "strata sources delete leave.md --context handbook",
    "strata sources delete old.md -c handbook --yes",
)
def delete(
    source: Ref,
    *,
    context: Context = "default",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a source with its text and the hints derived from it. This is final."""
    base.confirm(f"Delete {source!r} from {context!r}?", yes=yes)
    base.with_services(lambda services: services.sources.delete(DEFAULT_TENANT, context, source))
    output.note(f"deleted {source}")
