"""``strata evaluate --eval`` and ``strata evaluate compare``: eval files, thresholds, and two runs side by side."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.cli import base, output
from strata.cli.base import ExitCode, examples

if TYPE_CHECKING:
    import httpx2

    from strata.evaluate.artifact import Evaluation
    from strata.evaluate.backend import Budget
    from strata.evaluate.case_lanes import Mode
    from strata.evaluate.cases import Eval
    from strata.evaluate.compare import Comparison, Delta
    from strata.evaluate.thresholds import Thresholds
    from strata.services import Services

STDOUT = Path("-")

_SUMMARY = (
    "recall.recall_at_k",
    "recall.mrr",
    "recall.ndcg",
    "coverage.concepts",
    "coverage.labels",
    "coverage.associations",
    "citations.recall",
    "citations.locator_validity",
    "diversity.sources",
    "budget.tokens_used",
    "latency.passage_ms",
    "latency.evidence_ms",
)

Artifact = Annotated[Path, typer.Argument(metavar="FILE", help="The evaluation.json of a run.")]


@examples(
    "strata evaluate --eval eval.jsonl --context handbook",
    "strata evaluate --eval eval.jsonl --context handbook --assembly --max-tokens 2000 --thresholds thresholds.json",
    "strata evaluate --eval ./scifact --context scifact --url http://127.0.0.1:8080",
    "strata evaluate compare baseline.json assembly.json",
)
def evaluate(
    context: typer.Context,
    *,
    eval_file: Annotated[
        Path | None, typer.Option("--eval", metavar="PATH", help="An eval file, or a folder in BEIR layout.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--context", "-c", metavar="CONTEXT", help="The context to ask, by name or id.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Ask this server instead of the own database.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the result goes, - being standard output.")
    ] = None,
    thresholds: Annotated[
        Path | None, typer.Option("--thresholds", metavar="FILE", help="Exit with 3 unless these are kept.")
    ] = None,
    assembly: Annotated[
        bool, typer.Option("--assembly", help="Ask for assembled evidence instead of searching passages.")
    ] = False,
    max_items: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=1000, help="Items admitted for a case.")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=1_048_576, help="Bytes admitted for a case.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(metavar="N", min=0, help="Tokens admitted for a case.")] = None,
    rerank: Annotated[
        str | None, typer.Option("--rerank", metavar="MODEL", help="Have this model order the assembled evidence.")
    ] = None,
    assembly_options: Annotated[
        str | None,
        typer.Option("--assembly-options", metavar="JSON", help="Further fields of the evidence request."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="K", min=1, max=1000, help="The k of cases that state none; default 10.")
    ] = None,
) -> None:
    """Measure retrieval on questions whose answers are known, and compare runs.

    Without a command: ask every case of an eval and write evaluation.json. --max-items, --max-bytes and
    --max-tokens hold search and assembly to the same budget, counted in the same way.
    """
    options = {
        "--eval": eval_file,
        "--context": target,
        "--url": url,
        "--out": out,
        "--thresholds": thresholds,
        "--assembly": assembly or None,
        "--max-items": max_items,
        "--max-bytes": max_bytes,
        "--max-tokens": max_tokens,
        "--rerank": rerank,
        "--assembly-options": assembly_options,
        "--limit": limit,
    }
    if context.invoked_subcommand is not None:
        _refuse_options(options, context.invoked_subcommand)
        return
    if eval_file is None:
        raise base.bad_option("--eval", "No eval is given.")
    if rerank is not None and not assembly:
        raise base.bad_option("--rerank", "Only assembled evidence is reranked: give --assembly too.")
    if assembly_options is not None and not assembly:
        raise base.bad_option("--assembly-options", "Only assembled evidence has options: give --assembly too.")
    mode = _mode(
        is_assembly=assembly,
        limit=limit,
        rerank=rerank,
        options=assembly_options,
        ceilings=(max_items, max_bytes, max_tokens),
    )
    _run(eval_file, mode, target=target, url=url, out=out or Path("evaluation.json"), thresholds=thresholds)


@examples(
    "strata evaluate compare baseline.json assembly.json",
    "strata evaluate compare main.json branch.json --out changes.jsonl",
)
def compare(
    first: Artifact,
    second: Artifact,
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where the changes go, - being standard output.")
    ] = Path("changes.jsonl"),
) -> None:
    """Tell which cases improved and which got worse from the first run to the second.

    Writes a header with counts and differences of the means, then one line for each case that changed.
    """
    from strata.evaluate.artifact import read_evaluation
    from strata.evaluate.compare import compare as compare_runs

    _require_folder(out)
    found = compare_runs(read_evaluation(first), read_evaluation(second))
    _write(out, found.lines())
    for warning in found.header.warnings:
        output.note(f"Warning: {warning}")
    if out != STDOUT:
        _show_comparison(found)


def _run(path: Path, mode: Mode, *, target: str | None, url: str | None, out: Path, thresholds: Path | None) -> None:
    from strata.evaluate.cases import load_eval

    _require_folder(out)
    given = load_eval(path)
    bounds = _thresholds(thresholds, given)
    if url is not None:
        from strata.evaluate.wire import client

        base.configure_logging(base.settings())
        result = base.run_async(_evaluate(client(url), given, mode, target, bounds))
    else:

        async def inside(services: Services) -> Evaluation:
            return await _evaluate(_own_server(services), given, mode, target, bounds)

        result = base.with_services(inside)
    _write(out, _document(result))
    for warning in result.warnings:
        output.note(f"Warning: {warning}")
    if out != STDOUT:
        _show(result, out)
    _conclude(result)


async def _evaluate(
    client: AbstractAsyncContextManager[httpx2.AsyncClient],
    given: Eval,
    mode: Mode,
    target: str | None,
    thresholds: Thresholds | None,
) -> Evaluation:
    from strata.cli.progress import Progress
    from strata.evaluate.run import evaluate as run
    from strata.evaluate.wire import WireBackend

    async with client as opened:
        with Progress() as progress:
            return await run(
                WireBackend(opened), given, mode, context=target, thresholds=thresholds, progress=progress.stage
            )


def _own_server(services: Services) -> httpx2.AsyncClient:
    """Return a client of the application itself, in this process: what a server would answer, without a socket."""
    import httpx2

    from strata.app import create_app

    served: Any = create_app(services.settings, services=services)
    transport = httpx2.ASGITransport(served)
    return httpx2.AsyncClient(transport=transport, base_url="http://strata/", timeout=None)


def _mode(
    *,
    is_assembly: bool,
    limit: int | None,
    rerank: str | None,
    options: str | None,
    ceilings: tuple[int | None, int | None, int | None],
) -> Mode:
    from strata.evaluate.case_lanes import Mode
    from strata.evaluate.cases import DEFAULT_LIMIT
    from strata.evaluate.options import parse_options

    has_budget = is_assembly or any(ceiling is not None for ceiling in ceilings)
    return Mode(
        is_assembly=is_assembly,
        limit=limit or DEFAULT_LIMIT,
        budget=_budget(*ceilings) if has_budget else None,
        rerank=rerank,
        options=parse_options(options) if options is not None else {},
    )


def _budget(max_items: int | None, max_bytes: int | None, max_tokens: int | None) -> Budget:
    """Return the ceilings; one that was not given is the evidence endpoint's own, in both modes."""
    from strata.evaluate.backend import Budget

    given = {"max_items": max_items, "max_bytes": max_bytes, "max_tokens": max_tokens}
    return Budget(**{name: ceiling for name, ceiling in given.items() if ceiling is not None})


def _thresholds(path: Path | None, given: Eval) -> Thresholds | None:
    from strata.evaluate.thresholds import parse_thresholds

    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise base.bad_option("--thresholds", f"{path} cannot be read: {error.strerror}.") from error
    return parse_thresholds(content, path.name, {case.case_id for case in given.cases})


def _refuse_options(options: dict[str, Any], command: str) -> None:
    given = next((name for name, value in options.items() if value is not None), None)
    if given is not None:
        raise base.bad_option(given, f"{given} does not stand before {command}.")


def _require_folder(out: Path) -> None:
    if out != STDOUT and not out.resolve().parent.is_dir():
        raise base.bad_option("--out", f"There is no folder {out.parent}.")


def _document(value: Any) -> bytes:
    from strata.evaluate.artifact import document

    return document(value)


def _write(out: Path, content: bytes) -> None:
    if out == STDOUT:
        output.binary(content)
        return
    try:
        out.write_bytes(content)
    except OSError as error:
        raise base.bad_option("--out", f"{out} cannot be written: {error.strerror}.") from error


def _show(result: Evaluation, out: Path) -> None:
    from strata.evaluate.case_metrics import Distribution

    rows = []
    for key in _SUMMARY:
        family, _, name = key.partition(".")
        found = result.metrics[family][name]
        if isinstance(found, Distribution) and found.n:
            rows.append((key, _figure(found.mean), _figure(found.p50), _figure(found.p90), found.n))
    output.table(("METRIC", "MEAN", "P50", "P90", "N"), rows, right=range(1, 5))
    output.note(f"Wrote {out}.")


def _conclude(result: Evaluation) -> None:
    """End with 3 where a threshold was not kept."""
    gate = result.gate
    if gate is None:
        return
    for violation in gate.violations:
        place = f" of {violation.case_id}" if violation.case_id else ""
        ends = (("at least", violation.min), ("at most", violation.max))
        bounds = " and ".join(f"{words} {end:g}" for words, end in ends if end is not None)
        output.note(f"Threshold: {violation.metric}{place} is {violation.value:g}, not {bounds}.")
    if gate.is_unstable:
        output.note("Threshold: the corpus changed during the run.")
    if gate.skipped:
        output.note(f"Thresholds without a value: {', '.join(gate.skipped)}.")
    if not gate.passed:
        raise typer.Exit(ExitCode.PARTIAL)


def _show_comparison(found: Comparison) -> None:
    rows = [
        (key, _figure(delta.base), _figure(delta.head), _signed(delta)) for key, delta in found.header.metrics.items()
    ]
    output.table(("MEAN", "BASE", "HEAD", "DIFFERENCE"), rows, right=range(1, 4))
    counts = found.header.counts
    output.line(", ".join(f"{counts[name]} {name}" for name in counts) + ".")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4f}".rstrip("0").rstrip(".")


def _signed(delta: Delta) -> str:
    return "-" if delta.delta is None else f"{delta.delta:+.4f}"
