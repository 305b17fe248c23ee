"""``strata sources fetch`` and ``explore``: one document as agents read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.sources.document_schemas import Mode

Context = Annotated[str, typer.Option("--context", "-c", help="The context, by name or id.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
Source = Annotated[
    str,
    typer.Argument(
        help="The document, by path, id or pin; a section with #anchor (leave.md#vacation).", metavar="SOURCE"
    ),
]


@examples(
    "strata sources fetch leave.md#vacation --context handbook",
    "strata sources fetch leave.md -c handbook --outline",
    "strata sources fetch leave.md/v2 -c handbook --whole --max-tokens 20000 --json",
)
def fetch(
    source: Source,
    *,
    context: Context = "default",
    section: Annotated[str | None, typer.Option(help="Only this section, by anchor or heading.")] = None,
    outline: Annotated[bool, typer.Option("--outline", help="The outline alone.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="The text of a large document too.")] = False,
    known: Annotated[str | None, typer.Option(help="The revision or sha256 that you have.")] = None,
    start: Annotated[int | None, typer.Option(help="Go on from this byte.", min=0)] = None,
    max_tokens: Annotated[int, typer.Option(help="Tokens of the whole answer, 200 to 20000.")] = 8_000,
    as_json: Json = False,
) -> None:
    """Read a section, a document, or the outline of a large one, within a number of tokens.

    What does not fit is cut, and the answer says how to go on. The same as the tool of agents.
    """
    from strata.sources.document_view import fetched_markdown

    if outline and whole:
        raise base.bad_option("--outline", "--outline and --whole exclude each other.")
    mode: Mode = "outline" if outline else "whole" if whole else "auto"
    fetched = base.with_services(
        lambda services: services.sources.documents.fetch(
            DEFAULT_TENANT,
            context,
            source,
            section=section,
            mode=mode,
            known=known,
            max_tokens=max_tokens,
            start_byte=start,
        )
    )
    if as_json:
        output.json_document(fetched)
    else:
        output.line(output.printable(fetched_markdown(fetched).rstrip("\n")))


@examples(
    "strata sources explore leave.md --context handbook",
    "strata sources explore leave.md -c handbook --json | jq .card.supersededBy",
)
def explore(source: Source, *, context: Context = "default", as_json: Json = False) -> None:
    """Show what a document stands among: outline, opening, relations and links both ways, its folder.

    `strata sources relations` lists all relations.
    """
    from strata.sources.card_view import explored_markdown

    explored = base.with_services(lambda services: services.sources.documents.explore(DEFAULT_TENANT, context, source))
    if as_json:
        output.json_document(explored)
    else:
        output.line(output.printable(explored_markdown(explored).rstrip("\n")))
