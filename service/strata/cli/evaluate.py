"""``strata evaluate``: run evals, measure the lanes on judged questions, and fit what they are weighed by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strata.cli import base, evaluate_cases, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

if TYPE_CHECKING:
    from strata.evaluate.fit import FitResult
    from strata.evaluate.service import EvaluateService
    from strata.evaluate.weights import FittedWeight
    from strata.lookup.fit import Fit
    from strata.services import Services

app = typer.Typer(no_args_is_help=True)
app.callback(invoke_without_command=True)(evaluate_cases.evaluate)
app.command("compare")(evaluate_cases.compare)

_SAMPLE = 400

Folder = Annotated[Path, typer.Argument(help="A folder with corpus.jsonl, queries.jsonl and qrels.tsv.")]
ByLanguage = Annotated[
    bool, typer.Option("--by-language", help="Ask each question among documents of its language only.")
]
Within = Annotated[
    str | None,
    typer.Option(
        metavar="FIELD",
        help="Ask each question among the sources whose id begins with the value of this field of the question.",
    ),
]
Sample = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Ask at most so many questions, the same ones each time.")
]
Keep = Annotated[
    bool, typer.Option("--keep", help="Keep the context, so that a repeat neither ingests nor embeds again.")
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


@app.command("beir")
@examples(
    "strata evaluate beir ./scifact",
    "strata evaluate beir ./scifact --lanes lexical,hybrid --keep --json",
    "strata evaluate beir ./meetings --within meeting",
)
def beir(
    folder: Folder,
    *,
    lanes: Annotated[
        str,
        typer.Option(
            metavar="LANES",
            help="By comma, or all: lexical, vector, hybrid, hybrid_hop, lookup, lookup_without_hints, lookup_lexical.",
        ),
    ] = "",
    by_language: ByLanguage = False,
    within: Within = None,
    sample: Sample = None,
    keep: Keep = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, keyed by lane.")] = False,
) -> None:
    """Score each lane on a folder in BEIR layout: nDCG@10, recall@10, recall@100, MRR.

    The corpus goes into a scratch context, which is deleted afterwards unless it is kept.
    """
    from strata.cli.progress import Progress
    from strata.evaluate.lanes import DEFAULT_LANES, LANES
    from strata.evaluate.service import LaneScores

    wanted = {"": DEFAULT_LANES, "all": LANES}.get(lanes) or tuple(part.strip() for part in lanes.split(","))

    async def run(services: Services) -> dict[str, LaneScores]:
        with Progress() as progress:
            return await _service(services).beir(
                DEFAULT_TENANT,
                folder,
                lanes=wanted,
                by_language=by_language,
                within=within,
                most=sample,
                keep=keep,
                progress=progress.stage,
            )

    scores = base.with_services(run)
    _note_left_out({lane: "embeddings are off" for lane in wanted if lane not in scores})
    if as_json:
        output.json_document(scores)
        return
    rows = [
        (
            lane,
            *(f"{value:.4f}" for value in (score.ndcg_at_10, score.recall_at_10, score.recall_at_100, score.mrr)),
            score.queries,
            f"{score.p50_ms:.1f}",
            f"{score.p95_ms:.1f}",
        )
        for lane, score in scores.items()
    ]
    headings = ("LANE", "NDCG@10", "RECALL@10", "RECALL@100", "MRR", "QUERIES", "P50 MS", "P95 MS")
    output.table(headings, rows, right=range(1, 8))


@app.command("coverage")
@examples("strata evaluate coverage ./hotpotqa", "strata evaluate coverage ./hotpotqa --budgets 500,1500 --json")
def coverage(
    folder: Folder,
    *,
    budgets: Annotated[str, typer.Option(metavar="TOKENS", help="Budgets by comma.")] = "1000,2000,4000",
    by_language: ByLanguage = False,
    within: Within = None,
    sample: Sample = None,
    keep: Keep = False,
    as_json: Json = False,
) -> None:
    """Tell how often everything that a question needs stands inside the first so many tokens of result.

    Compares plain BM25 (bm25s), the lanes, and whole calls held to the budget.
    """
    from strata.cli.progress import Progress
    from strata.evaluate.coverage import Coverage

    wanted = _numbers("--budgets", budgets)

    async def run(services: Services) -> Coverage:
        with Progress() as progress:
            return await _service(services).coverage(
                DEFAULT_TENANT,
                folder,
                budgets=wanted,
                by_language=by_language,
                within=within,
                most=sample,
                keep=keep,
                progress=progress.stage,
            )

    found = base.with_services(run)
    _note_left_out(found.left_out)
    if as_json:
        output.json_document(found)
        return
    rows = [(way, *(f"{shares[budget]:.4f}" for budget in wanted)) for way, shares in found.shares.items()]
    output.table(("ALL EVIDENCE WITHIN", *(f"{budget:,}" for budget in wanted)), rows, right=range(1, len(wanted) + 1))
    output.line(f"{found.questions:,} questions; tokens of result by the declared estimate.")


@app.command("fit")
@examples(
    "strata evaluate fit ./handbook-questions ./ticket-questions --out fit.json",
    "strata evaluate fit ./scifact ./hotpotqa ./niilc --keep --json",
    "STRATA_RELEVANCE_FIT=fit.json strata serve",
)
def fit(
    folders: Annotated[list[Path], typer.Argument(help="Two or more folders in BEIR layout.")],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the fit here, for STRATA_RELEVANCE_FIT.", dir_okay=False)
    ] = None,
    lexical: Annotated[bool, typer.Option("--lexical", help="Fit for words alone, without vectors.")] = False,
    sample: Annotated[int, typer.Option(metavar="N", min=1, help="Questions of each kind from each set.")] = _SAMPLE,
    keep: Keep = False,
    as_json: Json = False,
) -> None:
    """Fit how words and meaning are weighed, and what relevance levels mean, to judged questions.

    Unanswerable questions are made: those of the other sets in the same language, and each set's own with
    their answers taken out. Each set is judged by what was fitted to the others.
    """
    from strata.cli.progress import Progress
    from strata.evaluate.fit import fit as fit_to

    if out is not None and not out.resolve().parent.is_dir():
        raise base.bad_option("--out", f"There is no folder {out.parent}.")
    command = _fit_command(folders, lexical=lexical, sample=sample)

    async def run(services: Services) -> FitResult:
        with Progress() as progress:
            return await fit_to(
                _service(services),
                DEFAULT_TENANT,
                folders,
                command=command,
                most=sample,
                words_only=lexical,
                keep=keep,
                progress=progress.stage,
            )

    result = base.with_services(run)
    if out is not None:
        _write_fit(out, result.fit)
        output.note(f"Wrote {out}; set STRATA_RELEVANCE_FIT to it.")
    if as_json:
        output.json_document(result)
        return
    if result.weight is not None:
        _weight_table(result.weight)
        output.line()
    _levels_table(result)


def _fit_command(folders: Sequence[Path], *, lexical: bool, sample: int) -> str:
    """Return the command as it is noted in the fit: names of sets, no paths."""
    options = [*(["--lexical"] if lexical else []), *([f"--sample {sample}"] if sample != _SAMPLE else [])]
    return " ".join(["strata evaluate fit", *(folder.resolve().name for folder in folders), *options])


def _write_fit(path: Path, fit: Fit) -> None:
    import msgspec

    document = msgspec.json.format(msgspec.json.encode(fit, order="sorted"), indent=2)
    try:
        path.write_bytes(document + b"\n")
    except OSError as error:
        raise base.bad_option("--out", f"{path} cannot be written: {error.strerror}.") from error


def _weight_table(weight: FittedWeight) -> None:
    rows = [
        (
            item.name,
            f"{item.lexical:.4f}",
            f"{item.vector:.4f}",
            f"{item.fitted:.4f}",
            f"{item.left_out:.4f}",
            f"{item.left_out_weight:g}",
        )
        for item in weight.sets
    ]
    headings = ("NDCG@10", "LEXICAL", "VECTOR", "FUSED", "FUSED, SET LEFT OUT", "ITS WEIGHT")
    output.table(headings, rows, right=range(1, 6))
    output.line(f"Cosine weight {weight.weight:g}.")


def _levels_table(result: FitResult) -> None:
    provenance = result.fit.provenance
    achieved = [*((item.name, item.left_out) for item in result.sets), ("mean", provenance.left_out)]
    kinds = sorted({kind for _, item in achieved for kind in item.unanswerable})
    rows = []
    for name, item in achieved:
        first, _, shown = item.high_precision or (None, None, None)
        unanswerable = [item.unanswerable.get(kind) for kind in kinds]
        rows.append((name, *map(_percent, (item.high, first, shown, item.medium)), *map(_high_and_low, unanswerable)))
    headings = ("EACH SET LEFT OUT", "HIGH", "ANSWER FIRST", "IN FIRST 5", "MEDIUM OR BETTER")
    output.table(
        (*headings, *(f"{kind.replace('_', ' ').upper()}: HIGH, LOW OR NONE" for kind in kinds)),
        rows,
        right=range(1, len(headings) + len(kinds)),
    )
    cutoffs = result.fit.cutoffs
    output.line(f"HIGH from {cutoffs.high:g}, MEDIUM from {cutoffs.medium:g}.")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _high_and_low(shares: tuple[float, float, float] | None) -> str:
    """Show the share that is HIGH, and the one that is not even MEDIUM."""
    return "" if shares is None else f"{shares[0]:.1%}, {1 - shares[1]:.1%}"


def _service(services: Services) -> EvaluateService:
    from strata.evaluate.service import EvaluateService

    return EvaluateService(
        services.contexts, services.sources, services.lookup, services.embeddings, services.embedders
    )


def _note_left_out(reasons: Mapping[str, str]) -> None:
    for reason in dict.fromkeys(reasons.values()):
        names = ", ".join(name for name, why in reasons.items() if why == reason)
        output.note(f"Left out, because {reason}: {names}.")


def _numbers(option: str, text: str) -> list[int]:
    """Read whole numbers from 1 by comma, in ascending order, each once."""
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise base.bad_option(option, f"{text!r} is no list of whole numbers.") from error
    if numbers[0] < 1:
        raise base.bad_option(option, "A budget is at least 1 token.")
    return numbers
