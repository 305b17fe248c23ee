"""``strata sources relations``: how the documents of a context relate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strata.services import Services
    from strata.sources.relation_schemas import Direction, Kind, RelationPage, RelationView, State

_HEADINGS = ("DIRECTION", "RELATION", "DOCUMENT", "STATE", "TITLE")


@examples(
    "strata sources relations leave.md --context handbook",
    "strata sources relations leave.md -c handbook --direction incoming --predicate supersedes",
    "strata sources relations leave.md -c handbook --all --json | jq -r '.items[].path'",
    "strata sources relations --dangling --context handbook",
)
def relations(
    source: Annotated[
        str | None, typer.Argument(help="The source, by path or id; none for all of them.", metavar="[SOURCE]")
    ] = None,
    *,
    context: Annotated[str, typer.Option("--context", "-c", help="The context, by name or id.")] = "default",
    direction: Annotated[str, typer.Option(help="outgoing, incoming or both; of one source.")] = "both",
    predicates: Annotated[
        list[str] | None, typer.Option("--predicate", help="Only relations of this name; of one source; repeatable.")
    ] = None,
    links: Annotated[bool, typer.Option("--links", help="Links in the text instead of what is declared.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Links in the text too.")] = False,
    dangling: Annotated[bool, typer.Option("--dangling", help="Relations of all sources that lead nowhere.")] = False,
    limit: Annotated[int, typer.Option(help="How many, 1 to 100.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where the page before ended.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """List the relations of a source both ways, or of all sources.

    What is declared in `rel-*` metadata; links in the text on request. Each is resolved at this moment.
    """
    kind: Kind = "all" if everything else "links" if links else "declared"
    if source is not None and dangling:
        raise base.bad_option("--dangling", "--dangling is about all sources: leave SOURCE out.")
    if source is None and (predicates or direction != "both"):
        option = "--predicate" if predicates else "--direction"
        raise base.bad_option(option, f"{option} needs a SOURCE.")

    async def read(services: Services) -> RelationPage:
        if source is None:
            state: State | None = "DANGLING" if dangling else None
            return await services.sources.relations.all(
                DEFAULT_TENANT, context, state=state, kind=kind, limit=limit, cursor=cursor
            )
        return await services.sources.relations.of(
            DEFAULT_TENANT,
            context,
            source,
            direction=cast("Direction", direction),
            predicates=predicates,
            kind=kind,
            limit=limit,
            cursor=cursor,
        )

    page = base.with_services(read)
    if as_json:
        output.json_page(page.items, page.next_cursor)
    elif not page.items:
        output.note("No relations match.")
    elif source is None:
        rows = [(item.source.path, _name(item), _document(item), item.state.lower()) for item in page.items]
        output.table(("SOURCE", "RELATION", "DOCUMENT", "STATE"), rows)
    else:
        show_relations(page.items)
    if page.next_cursor and not as_json:
        output.note(f"more: --cursor {page.next_cursor}")


def show_relations(items: Sequence[RelationView]) -> None:
    """Write the relations of one source as a table, its own ones first."""
    rows = [
        (item.direction.lower(), _name(item), item.source.path, "resolved", item.source.title)
        if item.direction == "INCOMING"
        else (item.direction.lower(), _name(item), _document(item), _state(item), item.title or item.label or "")
        for item in items
    ]
    output.table(_HEADINGS, rows)


def note_dangling(count: int, context: str) -> None:
    """Say that declared relations lead nowhere, and what lists them; nothing where none does."""
    if count:
        verb = "leads" if count == 1 else "lead"
        output.note(
            f"{output.count(count, 'declared relation')} {verb} nowhere: "
            f"`strata sources relations --dangling --context {context}` lists them."
        )


def _name(item: RelationView) -> str:
    return item.predicate or "link"


def _document(item: RelationView) -> str:
    place = item.path or item.target
    return f"{place}#{item.anchor}" if item.path and item.anchor else place


def _state(item: RelationView) -> str:
    return f"{item.state.lower()}, no such section" if item.anchor_found is False else item.state.lower()
