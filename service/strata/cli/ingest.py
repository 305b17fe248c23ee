"""``strata ingest``: files and folders into a context."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.cli.embeddings import run_embeddings, show_run
from strata.cli.relations import note_dangling
from strata.errors import (
    EMBEDDING_MODEL_MISSING,
    EMBEDDING_REFUSED,
    EMBEDDING_UNAVAILABLE,
    INVALID_SETTING,
    StrataError,
)
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.embeddings.schemas import RunReport
    from strata.services import Services
    from strata.sources.schemas import IngestReport
    from strata.sources.schemas import Progress as State

_SHOWN_REFUSALS = 50


@examples(
    "strata ingest ./handbook --context handbook",
    "strata ingest ./handbook --context handbook --prune",
    "strata ingest ./policies --context handbook --category hr --tag 2026",
    "strata ingest notes.md report.pdf --context inbox",
    "strata ingest ./manuals -c manuals --workers 4 --json",
    "strata ingest ./archive -c archive --no-embed",
)
def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Files and folders.", metavar="PATH...")],
    *,
    context: Annotated[str, typer.Option("--context", "-c", help="The context; made if need be.")] = "default",
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what an earlier run took from here and is gone.")
    ] = False,
    category: Annotated[str | None, typer.Option(help="The category of all these sources.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A tag for all these sources; repeatable.")] = None,
    language: Annotated[str | None, typer.Option(help="Their language, such as en or zh-CN.")] = None,
    workers: Annotated[int | None, typer.Option(help="Reader processes; default one for each CPU.")] = None,
    embed: Annotated[
        bool, typer.Option("--embed/--no-embed", help="Embed too, or leave that to a running server.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Write the report as JSON.")] = False,
) -> None:
    """Take files and folders into a context, and embed them.

    Unchanged files are passed over, changed ones are replaced as a whole. A file that cannot be
    read is reported with its reason and does not stop the rest; the exit code is then 3. What was
    taken is found by its words at once, by its meaning as soon as it is embedded.
    """
    for path in paths:
        if not path.exists():
            raise base.bad_option("PATH", f"There is no {path}.")
    if workers is not None and workers < 1:
        raise base.bad_option("--workers", "--workers is at least 1.")
    given = {"category": category, "tags": tags or [], "language": language}

    dangling = 0

    async def take(services: Services) -> tuple[IngestReport, RunReport | None, float | None]:
        nonlocal dangling
        report = await run_ingest(services, context, paths, prune=prune, workers=workers, given=given)
        if report.context_id is not None:
            dangling = await services.sources.relations.count_dangling(DEFAULT_TENANT, str(report.context_id))
        if report.context_id is None or not services.embeddings.is_on:
            return report, None, None
        run = await _embed(services, str(report.context_id)) if embed else None
        status = await services.embeddings.context_status(DEFAULT_TENANT, str(report.context_id))
        return report, run, status.coverage

    report, run, coverage = base.with_services(take)
    if as_json:
        numbers = {"embedded": run.embedded if run else 0, "vectorCoverage": coverage}
        output.json_document(msgspec.to_builtins(report) | numbers)
    else:
        show_report(report)
        if run is not None:
            show_run(run)
        note_dangling(dangling, context)
    if report.refused:
        raise typer.Exit(base.ExitCode.PARTIAL)


async def run_ingest(
    services: Services,
    context: str,
    paths: list[Path],
    *,
    prune: bool = False,
    workers: int | None = None,
    given: Mapping[str, Any] | None = None,
) -> IngestReport:
    """Ingest with progress on standard error."""
    from strata.cli.progress import Progress

    with Progress() as bar:

        def seen(state: State) -> None:
            words = f"{state.done:,} of {output.count(state.total, 'source')}"
            refused = f", {state.failed:,} refused" if state.failed else ""
            bar.show(
                "ingest",
                state.bytes_done,
                state.bytes_total,
                f"{words}{refused}",
                pieces=state.passages,
                noun="passage",
            )

        return await services.sources.ingest_paths(
            DEFAULT_TENANT,
            context,
            paths,
            prune=prune,
            workers=workers,
            progress=seen,
            **(given or {}),
        )


async def _embed(services: Services, context: str) -> RunReport | None:
    """Embed what was taken; None with a note when the embedder cannot be had: the sources are taken all the same."""
    try:
        return await run_embeddings(services, context)
    except StrataError as error:
        if error.kind not in (EMBEDDING_MODEL_MISSING, EMBEDDING_REFUSED, EMBEDDING_UNAVAILABLE, INVALID_SETTING):
            raise
        output.note(f"not embedded yet: {error.detail} `strata embeddings run` goes on with it.")
        return None


def show_report(report: IngestReport) -> None:
    """Write what was taken, and list what was not with its reason."""
    from rich.text import Text

    for refusal in report.refusals[:_SHOWN_REFUSALS]:
        refused = Text.assemble(("refused", "yellow"), f" {output.printable(refusal.path)}: {refusal.reason}: ")
        output.render(refused.append(output.printable(refusal.detail)))
    if report.refused > _SHOWN_REFUSALS:
        output.line(f"and {report.refused - _SHOWN_REFUSALS:,} more refused; --json lists up to 1,000")
    for name, counts in (("normalised away", report.normalisation), ("passed over", report.skipped)):
        if counts:
            output.line(f"{name}: {', '.join(f'{key} {number:,}' for key, number in sorted(counts.items()))}")
    numbers = [
        (report.added, "added"),
        (report.replaced, "replaced"),
        (report.unchanged, "unchanged"),
        (report.pruned, "pruned"),
        (report.refused, "refused"),
    ]
    words = ", ".join(f"{number:,} {word}" for number, word in numbers if number) or "nothing to take"
    rate = report.passages / report.seconds if report.seconds else 0.0
    work = f"{output.count(report.passages, 'passage')} in {output.human_seconds(report.seconds)}"
    output.line(f"{report.context}: {words}; {work}" + (f" ({rate:,.0f} a second)" if report.passages else ""))
