"""How a recorded call reads on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from strata.cli import output
from strata.cli.evidence import reason

if TYPE_CHECKING:
    from strata.traces.schemas import InvocationView, WhyReport


def show_invocation(view: InvocationView) -> None:
    """Write the call, its lanes, what it returned and what it left out."""
    arguments = {name: value for name, value in view.arguments.items() if value is not None and name != "query"}
    output.fields(
        [
            ("id", view.id),
            ("time", f"{output.cell(view.created_at)} UTC"),
            ("tool", f"{view.tool_name} by {view.surface}"),
            ("question", view.arguments.get("query")),
            ("arguments", ", ".join(f"{name}={output.cell(value)}" for name, value in arguments.items())),
            ("status", view.status),
            ("relevance", view.relevance_level),
            ("completeness", view.completeness_hint),
            ("blocks", view.evidence_count),
            ("took", f"{view.duration_ms:.1f} ms"),
            ("session", view.session_id),
            ("agent", view.agent_id),
            ("request", view.request_id),
            ("trace", view.trace_id),
            ("error", ": ".join(part for part in (view.error_type, view.error_message) if part)),
        ]
    )
    if view.retrieval_details:
        _lanes(view.retrieval_details.get("lanes", {}))
        _blocks(view.retrieval_details.get("evidenceBlocks", []))
        _omitted(view.retrieval_details)


def _lanes(lanes: Mapping[str, Any]) -> None:
    if not lanes:
        return
    output.line()
    rows = [
        (
            name,
            output.cell(lane.get("ran")),
            lane.get("candidates", 0),
            f"{lane.get('durationMs', 0):.1f}",
            lane.get("reason") or "",
        )
        for name, lane in sorted(lanes.items())
    ]
    output.table(("LANE", "RAN", "CANDIDATES", "MS", "REASON"), rows, right=(2, 3))


def _blocks(blocks: Iterable[Mapping[str, Any]]) -> None:
    rows = [
        (
            block["rank"],
            f"{block['score']:.2f}",
            block["title"],
            block["sourceKey"],
            ", ".join(reason(code) for code in block["hitReasons"]),
        )
        for block in blocks
    ]
    if rows:
        output.line()
        output.table(("RANK", "SCORE", "TITLE", "SOURCE KEY", "WHY"), rows, right=(0, 1))


def _omitted(details: Mapping[str, Any]) -> None:
    omitted = details.get("omitted", [])
    if not omitted:
        return
    output.line()
    rows = [(item["reason"], item["sourceKey"], _ranks(item.get("laneRanks", []))) for item in omitted]
    output.table(("LEFT OUT FOR", "SOURCE KEY", "LANE RANKS"), rows)
    unlisted = details.get("omittedTotal", len(omitted)) - len(omitted)
    if unlisted > 0:
        output.line(f"and {unlisted:,} more that the row does not list")


def _ranks(ranks: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{rank['lane']} {rank['rank']}" for rank in ranks)


def show_why(told: WhyReport) -> None:
    """Write the stage and the reason, then all that helps to understand them."""
    style = "bold green" if told.is_selected else "bold yellow"
    state = str(told.stage) if told.reason is None else f"{told.stage} ({told.reason})"
    output.render(Text.assemble((state, style), f"  {output.printable(told.target)}"))
    output.render(Text(output.printable(told.sentence)))
    if told.candidates:
        output.line()
        rows = [
            (
                fate.stage,
                fate.reason,
                fate.rank,
                fate.source_key,
                fate.duplicate_of,
                ", ".join(f"{rank.lane} {rank.rank}" for rank in fate.lane_ranks),
            )
            for fate in told.candidates
        ]
        output.table(("STAGE", "REASON", "RANK", "SOURCE KEY", "STANDS FOR IT", "LANE RANKS"), rows, right=(2,))
    if told.live is not None:
        output.line()
        live = told.live
        output.fields(
            [
                ("now in", f"{live.context}: {live.path}, revision {live.revision}"),
                ("passages", live.passages),
                ("updated", f"{output.cell(live.updated_at)} UTC"),
                ("fails", live.filters_failed),
                ("has words", live.terms_held),
                ("lacks words", live.terms_missing),
                ("lexical rank", live.lexical_rank),
                ("vector rank", live.vector_rank),
            ]
        )
    for note in told.notes:
        output.render(Text(f"note: {output.printable(note)}", style="dim"))
