"""``strata doctor``: what is wrong, and how to mend it."""

from __future__ import annotations

from typing import Annotated

import typer

from strata.cli import base, output
from strata.cli.base import examples


@examples(
    "strata doctor",
    "strata doctor --no-start",
    "strata doctor --json",
)
def doctor(
    start: Annotated[
        bool, typer.Option("--start/--no-start", help="Start a resting embedded server to look inside.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Check what Strata stands on, and say how to mend it.

    Exits with 1 when a check fails; warnings do not count. Nothing is changed: an embedded server
    that rests is started for the check and stopped after it, and a database is never made.
    """
    from strata.platform.doctor import Status, examine

    configured = base.settings()
    base.configure_logging(configured)
    report = base.run_async(examine(configured, start=start))
    if as_json:
        output.json_document(report)
    else:
        from rich.text import Text

        styles = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}
        width = max(len(check.name) for check in report.checks)
        for check in report.checks:
            words = Text.assemble((f"{check.status:<4}", styles[check.status]), f"  {check.name:<{width}}  ")
            output.render(words.append(output.printable(check.detail)))
            if check.remedy:
                output.render(Text(f"{'':<{width + 8}}mend: {output.printable(check.remedy)}", style="dim"))
    if not report.healthy:
        raise typer.Exit(base.ExitCode.FAILED)
