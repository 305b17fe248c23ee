"""``strata embeddings``: the vectors of each context, and the work that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.embeddings.schemas import ConfiguredView, ContextEmbeddings, RunProgress, RunReport, SpaceView
    from strata.services import Services

_SHOWN_FAILURES = 20

app = typer.Typer(
    help="Show how contexts are embedded, embed what waits, and change the model beside the running one.",
    no_args_is_help=True,
)

Wanted = Annotated[str | None, typer.Option("--context", "-c", help="Only this context, by name or id.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


@app.command("status")
@examples(
    "strata embeddings status",
    "strata embeddings status --context handbook",
    "strata embeddings status --json | jq '.contexts[] | {context, coverage}'",
)
def status(*, context: Wanted = None, as_json: Json = False) -> None:
    """Show the share of each context that has vectors, what waits, what failed, and what to do about it.

    A source is found by its words as soon as it is ingested; vectors follow. A context has one active
    space, which is searched, and during a rebuild a second one beside it.
    """

    async def ask(services: Services) -> tuple[object, ConfiguredView, list[ContextEmbeddings]]:
        if context is None:
            whole = await services.embeddings.status(DEFAULT_TENANT)
            return whole, whole.configured, whole.contexts
        one = await services.embeddings.context_status(DEFAULT_TENANT, context)
        return one, one.configured, [one]

    document, configured, views = base.with_services(ask)
    if as_json:
        output.json_document(document)
        return
    output.fields(_configured(configured))
    if not views:
        output.note("No contexts yet: `strata ingest PATH --context NAME` makes one.")
        return
    output.line()
    _show_table(views)
    for view in views:
        _show_details(view)


@app.command("run")
@examples(
    "strata embeddings run",
    "strata embeddings run --context handbook",
    "strata embeddings run --context handbook --json",
)
def run(*, context: Wanted = None, as_json: Json = False) -> None:
    """Embed what waits, and try again what had failed.

    Servers do this by themselves; any number of runs and servers share the work. Ctrl-C loses nothing:
    what was stored stays, the rest waits.
    """
    report = base.with_services(lambda services: run_embeddings(services, context, retries_failed=True))
    if as_json:
        output.json_document(report)
    else:
        show_run(report)
    if report.failed:
        raise typer.Exit(base.ExitCode.PARTIAL)


@app.command("rebuild")
@examples(
    "strata embeddings rebuild handbook",
    "strata embeddings rebuild handbook --no-wait",
    "strata embeddings rebuild handbook --force",
)
def rebuild(
    context: Annotated[str, typer.Argument(help="The context, by name or id.", metavar="CONTEXT")],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also where the configured model is the active one already.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Embed here and now, or leave it to the servers.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Embed a context by the configured model, beside the vectors that it is searched by.

    Lookups go on with the old vectors until the new ones are complete, then change over at once. Run it
    after changing STRATA_EMBEDDINGS or the model; broken off, it goes on where it stood.
    """

    async def do(services: Services) -> ContextEmbeddings:
        await services.embeddings.rebuild(DEFAULT_TENANT, context, force=force)
        if wait:
            await run_embeddings(services, context)
        return await services.embeddings.context_status(DEFAULT_TENANT, context)

    view = base.with_services(do)
    if as_json:
        output.json_document(view)
        return
    _show_table([view])
    _show_details(view)


async def run_embeddings(services: Services, context: str | None, *, retries_failed: bool = False) -> RunReport:
    """Embed passages, then the names whose facts have changed, with progress on standard error."""
    from strata.cli.progress import Progress

    with Progress() as bar:

        def seen(state: RunProgress) -> None:
            failed = f", {state.failed:,} failed" if state.failed else ""
            words = f"{state.done:,} of {output.count(state.total, 'passage')}{failed}"
            bar.show("embed", state.done, state.total, words, pieces=state.done, noun="passage")

        report = await services.embeddings.run(DEFAULT_TENANT, context, seen, retries_failed=retries_failed)
        every = (await services.contexts.list(DEFAULT_TENANT)).contexts
        for ref in [context] if context else [one.name for one in every]:
            await services.graph.refresh_names(DEFAULT_TENANT, ref, lambda done, total: bar.stage("names", done, total))
        return report


def show_run(report: RunReport) -> None:
    """Write what a run did as one line."""
    rate = f" ({report.embedded / report.seconds:,.0f} a second)" if report.embedded and report.seconds else ""
    failed = f", {report.failed:,} failed" if report.failed else ""
    output.line(
        f"embedded {output.count(report.embedded, 'passage')} in {output.human_seconds(report.seconds)}{rate}{failed}; "
        f"vectors cover {share(report.coverage)}"
    )


def share(coverage: float) -> str:
    """Return a coverage for people; only what is whole is called 100 %."""
    return "100 %" if coverage >= 1 else f"{min(coverage * 100, 99.9):.1f} %"


def _configured(view: ConfiguredView) -> list[tuple[str, object]]:
    dimension = f" ({view.dimension} dimensions)" if view.dimension else ""
    return [
        ("configured", view.mode),
        ("model", f"{view.model}{dimension}" if view.model else None),
        ("revision", view.revision),
        ("error", view.error),
    ]


def _show_table(views: list[ContextEmbeddings]) -> None:
    output.table(
        ("CONTEXT", "PASSAGES", "VECTORS", "COVERED", "STATE", "MODEL", "INDEX", "WAITING", "FAILED"),
        [row for view in views for row in _rows(view)],
        right=(1, 2, 3, 7, 8),
    )


def _rows(view: ContextEmbeddings) -> list[tuple[object, ...]]:
    if not view.spaces:
        return [(view.context, f"{view.passages:,}", "0", share(view.coverage), None, None, None, None, None)]
    return [_space_row(view, space) for space in view.spaces]


def _space_row(view: ContextEmbeddings, space: SpaceView) -> tuple[object, ...]:
    return (
        view.context,
        f"{view.passages:,}",
        f"{space.vectors:,}",
        share(space.coverage),
        space.state,
        f"{space.model} ({space.dimension})",
        "hnsw" if space.is_indexed else None,
        f"{space.waiting + space.running:,}",
        f"{space.failed:,}",
    )


def _show_details(view: ContextEmbeddings) -> None:
    for note in view.notes:
        output.line(f"{output.printable(view.context)}: {output.printable(note)}")
    for failure in view.failures[:_SHOWN_FAILURES]:
        passages = ", ".join(str(ordinal) for ordinal in failure.ordinals[:10])
        more = ", ..." if len(failure.ordinals) > 10 else ""
        output.line(
            f"failed {output.printable(failure.path)}, passage {passages}{more}: {output.printable(failure.error)}"
        )
    if len(view.failures) > _SHOWN_FAILURES:
        output.line(f"and {len(view.failures) - _SHOWN_FAILURES:,} more; --json lists up to 100")
