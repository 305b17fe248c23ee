"""``strata version``."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from strata.cli import output
from strata.cli.base import examples


def show(*, as_json: bool) -> None:
    """Write the version; as JSON with those of Python and the platform."""
    number = metadata.version("strata")
    if not as_json:
        output.line(f"strata {number}")
        return
    import platform

    output.json_document({"version": number, "python": platform.python_version(), "platform": platform.platform()})


@examples(
    "strata version",
    "strata version --json",
)
def version(as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False) -> None:
    """Show the version."""
    show(as_json=as_json)
