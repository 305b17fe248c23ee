"""``strata communities``: the clusters of a context's graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.assembly.community_builder import Built
    from strata.knowledge.audit_schemas import CommunitiesOut, CommunityOut
    from strata.services import Services

_SHOWN = 5

app = typer.Typer(help="Clusters of a context's graph: list them, and build the summaries that are searched.")


@app.command("list")
@examples("strata communities list handbook", "strata communities list handbook --json")
def list_(
    context: Annotated[str, typer.Argument(help="The context, by name or id.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Write the communities as JSON.")] = False,
) -> None:
    """Detect the communities of a graph and list them, the innermost level first. Nothing is written."""

    async def read(services: Services) -> CommunitiesOut:
        return await services.graph.communities(DEFAULT_TENANT, context)

    found = base.with_services(read)
    if as_json:
        output.json_document(found)
        return
    rows = [(one.id, f"{one.concept_count:,}", ", ".join(_held(one)[:_SHOWN])) for one in found.communities]
    output.table(("COMMUNITY", "CONCEPTS", "STRONGEST, OR PARTS"), rows, right=(1,))


@app.command("build")
@examples("strata communities build handbook", "strata communities build handbook --json")
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
    counts = f"{output.count(built.communities, 'community')} on {output.count(built.levels, 'level')}"
    output.line(f"{output.printable(built.derived)}: {counts}")


def _held(community: CommunityOut) -> list[str]:
    """Return the members of a leaf, the strongest first, or the communities that another is made of."""
    return [member.name for member in community.members or []] or list(community.children or [])
