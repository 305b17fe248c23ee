"""``strata contexts``: knowledge bases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.knowledge.schemas import ContextView

app = typer.Typer(help="List, create, show and delete contexts (knowledge bases).", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(help="The context, by name or id.", metavar="CONTEXT")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


@app.command("list")
@examples("strata contexts list", "strata contexts list --json | jq '.items[].name'")
def list_(*, as_json: Json = False) -> None:
    """List the contexts by name, with what they hold."""
    listed = base.with_services(lambda services: services.contexts.list(DEFAULT_TENANT))
    if as_json:
        output.json_page(listed.contexts)
    elif listed.contexts:
        rows = [(view.name, f"{view.sources:,}", f"{view.passages:,}", view.id) for view in listed.contexts]
        output.table(("NAME", "SOURCES", "PASSAGES", "ID"), rows, right=(1, 2))
    else:
        output.note("No contexts yet: `strata ingest PATH --context NAME` makes one.")


@app.command("create")
@examples("strata contexts create handbook", "strata contexts create legal --description 'Contracts since 2020'")
def create(
    name: Annotated[str, typer.Argument(help="A unique name.")],
    *,
    description: Annotated[str, typer.Option(help="What it holds.")] = "",
    as_json: Json = False,
) -> None:
    """Create an empty context; `strata ingest` makes one on its own."""
    _show(base.with_services(lambda services: services.contexts.create(DEFAULT_TENANT, name, description)), as_json)


@app.command("show")
@examples("strata contexts show handbook", "strata contexts show handbook --json")
def show(context: Ref, *, as_json: Json = False) -> None:
    """Show one context and its revision counters."""
    _show(base.with_services(lambda services: services.contexts.get(DEFAULT_TENANT, context)), as_json)


@app.command("delete")
@examples("strata contexts delete handbook", "strata contexts delete handbook --yes")
def delete(
    context: Ref,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a context with its sources, index and hints. This is final."""
    base.confirm(f"Delete the context {context!r} with all that it holds?", yes=yes)
    base.with_services(lambda services: services.contexts.delete(DEFAULT_TENANT, context))
    output.note(f"deleted the context {context}")


def _show(view: ContextView, as_json: bool) -> None:
    if as_json:
        output.json_document(view)
        return
    revisions = view.revisions
    output.fields(
        [
            ("name", view.name),
            ("id", view.id),
            ("description", view.description),
            ("sources", f"{view.sources:,}"),
            ("passages", f"{view.passages:,}"),
            ("created", view.created_at),
            (
                "revisions",
                ", ".join(f"{name} {number}" for name, number in msgspec.structs.asdict(revisions).items()),
            ),
        ]
    )
