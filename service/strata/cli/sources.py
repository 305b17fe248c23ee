"""``strata sources``: the documents of a context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.cli.documents import explore, fetch
from strata.cli.relations import relations, show_relations
from strata.errors import CONFLICT, StrataError
from strata.platform.ids import DEFAULT_TENANT
from strata.sources.paths import pin_of

if TYPE_CHECKING:
    from strata.services import Services
    from strata.sources.relation_schemas import RelationPage
    from strata.sources.schemas import SourceDetail

app = typer.Typer(help="List, show, read, archive and delete the sources of a context.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
Context = Annotated[str, typer.Option("--context", "-c", help="The context, by name or id.")]
Ref = Annotated[str, typer.Argument(help="The source, by path or id.", metavar="SOURCE")]
Pinnable = Annotated[str, typer.Argument(help="The source, by path, id or pin (leave.md/v2).", metavar="SOURCE")]


@app.command("list")
@examples(
    "strata sources list --context handbook",
    "strata sources list -c handbook --limit 1000 --json | jq -r '.items[].path'",
    "strata sources list -c handbook --archived",
)
def list_(
    *,
    context: Context = "default",
    category: Annotated[str | None, typer.Option(help="Only of this category.")] = None,
    prefix: Annotated[str, typer.Option(help="Only paths that begin with this.")] = "",
    limit: Annotated[int, typer.Option(help="How many, 1 to 1000.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Go on where the page before ended.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Archived sources instead, each by its pin.")] = False,
    as_json: Json = False,
) -> None:
    """List sources by path."""
    page = base.with_services(
        lambda services: services.sources.list(
            DEFAULT_TENANT,
            context,
            prefix=prefix,
            category=category,
            limit=limit,
            cursor=cursor,
            archived=archived,
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
            pin_of(view.path, view.revision) if archived else view.path,
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
    "strata sources show leave.md/v2 --context handbook",
    "strata sources show leave.md -c handbook --json | jq .sections",
)
def show(source: Pinnable, *, context: Context = "default", as_json: Json = False) -> None:
    """Show one source, or the revision that a pin names: its outline, metadata, and what was normalised away.

    With the relations of the current revision, both ways.
    """
    if as_json:
        output.json_document(base.with_services(lambda services: services.sources.get(DEFAULT_TENANT, context, source)))
        return
    detail, related = base.with_services(lambda services: _described(services, context, source))
    output.fields(
        [
            ("path", detail.path),
            ("id", detail.id),
            ("title", detail.title),
            (
                "revision",
                detail.revision if detail.state == "CURRENT" else f"{detail.revision}, {detail.state.lower()}",
            ),
            ("superseded by", detail.superseded_by),
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
    if related and related.items:
        output.line()
        show_relations(related.items)
        if related.next_cursor:
            output.note(f"more: strata sources relations --cursor {related.next_cursor}")


async def _described(services: Services, context: str, source: str) -> tuple[SourceDetail, RelationPage | None]:
    """Return a source with what it is related to; an earlier revision is related to nothing."""
    detail = await services.sources.get(DEFAULT_TENANT, context, source)
    if detail.state != "CURRENT":
        return detail, None
    return detail, await services.sources.relations.of(DEFAULT_TENANT, context, str(detail.id))


app.command("fetch")(fetch)
app.command("explore")(explore)
app.command("relations")(relations)


@app.command("text")
@examples(
    "strata sources text leave.md --context handbook",
    "strata sources text leave.md/v2 -c handbook --start 1204 --end 1710",
)
def text(
    source: Pinnable,
    *,
    context: Context = "default",
    start: Annotated[int, typer.Option(help="First byte, as citations count.")] = 0,
    end: Annotated[int | None, typer.Option(help="End byte, exclusive.")] = None,
    as_json: Json = False,
) -> None:
    """Write the stored text, or a byte range of it: what citations refer to.

    A pin reads the revision that it names. A range that cuts a character is narrowed to whole ones. As
    JSON at most 1 MiB is written.
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


@app.command("revisions")
@examples(
    "strata sources revisions leave.md --context handbook",
    "strata sources revisions leave.md -c handbook --json | jq -r '.items[].pin'",
)
def revisions(
    source: Pinnable,
    *,
    context: Context = "default",
    limit: Annotated[int, typer.Option(help="How many, 1 to 1000.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Go on where the page before ended.")] = None,
    as_json: Json = False,
) -> None:
    """List the revisions of a source, newest first; of an archived one too."""
    page = base.with_services(
        lambda services: services.sources.revisions.page(DEFAULT_TENANT, context, source, limit=limit, cursor=cursor)
    )
    if as_json:
        output.json_page(page.items, page.next_cursor)
        return
    rows = [
        (view.pin, view.state.lower(), view.title, output.human_bytes(view.text_bytes), view.stored_at, view.sha256)
        for view in page.items
    ]
    output.table(("PIN", "STATE", "TITLE", "TEXT", "STORED (UTC)", "SHA256"), rows, right=(3,))
    if page.next_cursor:
        output.note(f"more: --cursor {page.next_cursor}")


@app.command("archive")
@examples(
    "strata sources archive leave.md --context handbook",
    "strata sources archive old.md -c handbook --yes",
)
def archive(
    source: Ref,
    *,
    context: Context = "default",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take a source out of search; its revisions stay readable by their pins. Ingesting it again brings it back."""
    base.confirm(f"Archive {source!r} of {context!r}?", yes=yes)
    archival = base.with_services(lambda services: services.sources.revisions.archive(DEFAULT_TENANT, context, source))
    output.note(f"archived {archival.path}, readable as {archival.pin}")


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
    """Delete a source, archived or not, with its text, its revisions and the hints derived from it. This is final."""
    base.confirm(f"Delete {source!r} from {context!r}?", yes=yes)
    base.with_services(lambda services: services.sources.delete(DEFAULT_TENANT, context, source))
    output.note(f"deleted {source}")
