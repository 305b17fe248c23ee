"""``strata evaluate``: measure the lanes on judged questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strata.cli import base, output
from strata.cli.base import examples
from strata.platform.ids import DEFAULT_TENANT

app = typer.Typer(help="Measure the lanes on judged questions.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Measure the lanes on judged questions."""


@app.command("beir")
@examples("strata evaluate beir ./scifact", "strata evaluate beir ./scifact --json")
def beir(
    folder: Annotated[Path, typer.Argument(help="A folder with corpus.jsonl, queries.jsonl and qrels.tsv.")],
    *,
    by_language: Annotated[
        bool, typer.Option("--by-language", help="Ask each question among documents of its language only.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, keyed by lane.")] = False,
) -> None:
    """Score each lane on a folder in BEIR layout: nDCG@10, recall@10, recall@100, MRR.

    The corpus goes into a scratch context, which is deleted afterwards.
    """
    from strata.cli.progress import Progress
    from strata.evaluate.service import EvaluateService, LaneScores
    from strata.services import Services

    async def run(services: Services) -> dict[str, LaneScores]:
        service = EvaluateService(services.contexts, services.sources, services.lookup)
        with Progress() as progress:
            return await service.beir(DEFAULT_TENANT, folder, by_language=by_language, progress=progress.stage)

    scores = base.with_services(run)
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
