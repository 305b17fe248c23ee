"""``strata communities``: the clusters of a context's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.assembly.community_builder import Built
    from strata.knowledge.audit_schemas import CommunitiesOut
    from strata.services import Services

app = typer.Typer(help="Clusters of a context's graph: list them, and build the summaries that are searched.")


@app.command("list")
@examples("strata communities list handbook", "strata communities list handbook --json")
def list_(
    context: Annotated[str, typer.Argument(help="The context, by name or id.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Write the communities as JSON.")] = False,
) -> None:
    """Detect the communities of a graph and list them, the smallest first. Nothing is written."""

    async def read(services: Services) -> CommunitiesOut:
        return await services.graph.communities(DEFAULT_TENANT, context)

    found = base.with_services(read)
    if as_json:
        output.json_document(found)
        return
    rows = [
        (one.id, one.concept_count, ", ".join(member.name for member in (one.members or [])[:5]))
        for one in found.communities
    ]
    output.table(("community", "concepts", "strongest"), rows, right=(1,))


@app.command("build")
@examples("strata communities build handbook")
def build(
    context: Annotated[str, typer.Argument(help="The context, by name or id.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Write the outcome as JSON.")] = False,
) -> None:
    """Build the summaries that a search over communities finds, in the context NAME::communities.

    A summary is made of the members and their heaviest facts. Building again replaces what is there; to
    put better words in, import sources named community:ID into that context.
    """

    async def make(services: Services) -> Built:
        return await services.community_builder.build(DEFAULT_TENANT, context)

    built = base.with_services(make)
    if as_json:
        output.json_document(built)
        return
    words = (
        output.count(built.communities, "community") if built.communities == 1 else f"{built.communities:,} communities"
    )
    output.line(f"{built.derived}: {words} on {built.levels} levels")
