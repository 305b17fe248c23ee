"""The tables of the benchmarks as Markdown."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence

from strata.evaluate.budgeted import BudgetReport
from strata.evaluate.coverage import RIVAL
from strata.evaluate.fit import LevelsReport, SetLevels
from strata.evaluate.fitting import SHOWN
from strata.evaluate.lanes import LANES
from strata.evaluate.packages import PackageCoverage
from strata.evaluate.pool import PoolTimes
from strata.evaluate.quality import Quality
from strata.evaluate.samples import Kind
from strata.evaluate.scale import Memory, Row

_VECTORS = {
    "real": "vectors made by the embedder",
    "mixed": "real vectors to 100,000 passages, beyond them synthetic ones, mixed from 2,048 real ones with noise",
    "synthetic": "synthetic vectors, mixed from 2,048 real ones with noise",
    "none": "no vectors",
}


def heading() -> str:
    """Return the line that says on what, and when."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return f"Machine: {machine}. Run of {time.strftime('%Y-%m-%d', time.gmtime())}."


def quality_tables(found: Sequence[Quality]) -> str:
    """Return nDCG@10 and recall@100 by set and lane, then evidence coverage."""
    lanes = [lane for lane in (RIVAL, *LANES) if any(lane in item.lanes for item in found)]
    tables = [
        _table(
            [f"{metric} by set", "questions", *lanes],
            (
                [_label(item), str(item.questions), *(_share(_mean(item, lane, metric)) for lane in lanes)]
                for item in found
            ),
        )
        for metric in ("nDCG@10", "recall@100")
    ]
    return "\n".join([*tables, *(coverage_table(item) for item in found if item.coverage is not None)])


def coverage_table(item: Quality) -> str:
    """Return the share of questions with all gold documents inside so many tokens, by way and budget."""
    assert item.coverage is not None  # noqa: S101 - the caller chooses those that have it
    return _shares_table(f"all gold inside so many tokens, {item.name}", item.coverage.shares)


def package_table(item: PackageCoverage) -> str:
    """Return the share of questions with all gold documents in a package of so many tokens, by way and budget."""
    return _shares_table(f"all gold in a package of so many tokens, {item.name}", item.shares)


def budget_tables(found: BudgetReport) -> str:
    """Return the share of questions whose quotes are all in one lookup, by way and budget; and what each costs."""
    shares: dict[str, dict[int, float]] = {}
    for item in found.counted:
        shares.setdefault(item.way, {})[item.budget] = item.share
    categories = sorted({name for item in found.counted for name in item.by_category})
    by_category = _table(
        ["way", "tokens", *categories],
        (
            [item.way, f"{item.budget:,}", *(_share(item.by_category[name]) for name in categories)]
            for item in found.counted
        ),
    )
    costs = _table(
        ["lookup", "tokens sent", "statements", "p50 ms", "p95 ms"],
        (
            [
                "plain" if item.budget is None else f"budget {item.budget:,}",
                f"{item.tokens:,.0f}",
                f"{item.statements:.1f}",
                f"{item.p50:.1f}",
                f"{item.p95:.1f}",
            ]
            for item in found.costs
        ),
    )
    title = f"all quotes in one lookup of so many tokens, {found.name}, {found.questions} questions"
    return "\n".join([_shares_table(title, shares), by_category, costs, f"Absent, judged so: {_share(found.absent)}"])


def pool_table(times: PoolTimes) -> str:
    """Return the time of one assembly and its parts, beside the comparison of each text with each."""
    head = ["candidates", "near duplicates", "kept", "fusion ms", "near duplicates ms", "selection ms", "whole ms"]
    parts = (times.fuse_ms, times.duplicates_ms, times.selection_ms, times.whole_ms, times.naive_ms)
    cells = [f"{times.candidates:,}", str(times.duplicates), str(times.kept), *(f"{part:,.1f}" for part in parts)]
    return _table([*head, "near duplicates by comparing each with each, ms"], [cells])


def _shares_table(title: str, shares: Mapping[str, Mapping[int, float]]) -> str:
    budgets = sorted({budget for counts in shares.values() for budget in counts})
    return _table(
        [title, *(f"{budget:,}" for budget in budgets)],
        ([way, *(_share(counts[budget]) for budget in budgets)] for way, counts in shares.items()),
    )


def relevance_tables(found: LevelsReport) -> str:
    """Return what HIGH is worth on answerable questions, and what unanswerable ones come out as, by set."""
    tables = [levels_table("words alone", found.words)]
    if found.meaning is not None:
        tables.append(levels_table("words and meaning", found.meaning))
    return "\n".join(tables)


def levels_table(title: str, sets: Sequence[SetLevels]) -> str:
    """Return one row a set, and the mean over sets, each weighing the same."""
    kinds = [kind for kind in Kind if kind is not Kind.ANSWERABLE]
    head = [f"relevanceLevel, {title}", "answerable HIGH", "answer first", f"in the first {SHOWN}", "MEDIUM", "NONE"]
    head += [f"{kind.replace('_', ' ')} {level}" for kind in kinds for level in ("HIGH", "LOW or NONE")]
    cells = [_levels_of(item) for item in sets]
    means = [_mean_of(column) for column in zip(*cells, strict=True)]
    names = [item.name for item in sets] + ["mean"]
    return _table(head, ([name, *map(_percent, row)] for name, row in zip(names, [*cells, means], strict=True)))


def _levels_of(item: SetLevels) -> list[float | None]:
    own = item.kinds.get(Kind.ANSWERABLE)
    cells: list[float | None] = [None] * 5
    if own is not None:
        cells = [own.high, own.high_precision, own.high_precision_shown, own.medium, own.none]
    for kind in Kind:
        if kind is not Kind.ANSWERABLE:
            found = item.kinds.get(kind)
            cells += [found.high, found.low + found.none] if found else [None, None]
    return cells


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def scale_tables(rows: Sequence[Row], memory: Memory | None, exact_limit: int) -> str:
    """Return latency, throughput and memory by size, and where the time of a lookup goes."""
    whole = _table(
        [
            "passages",
            "vectors",
            "ingest passages/s",
            "vectors/s",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "lookups/s at 1, 4, 16 clients",
            "bare SQL p50 ms",
            "whole / bare SQL",
            "trace share",
            "longest hold of the event loop ms",
            "process MiB",
        ],
        (
            [
                f"{row.passages:,}",
                f"{row.vectors:,}",
                f"{row.ingest_passages_per_second:,.0f}",
                f"{row.vectors_per_second:,.0f}",
                f"{row.p50_ms:.1f}",
                f"{row.p95_ms:.1f}",
                f"{row.p99_ms:.1f}",
                ", ".join(f"{value:.0f}" for value in row.lookups_per_second.values()),
                f"{row.bare_sql_p50_ms:.1f}",
                f"{row.ratio_to_bare_sql:.1f}",
                f"{row.trace_share:.1%}",
                f"{row.loop_held_ms:.1f}",
                str(row.rss_mib),
            ]
            for row in rows
        ),
    )
    names = sorted({name for row in rows for name in row.parts_p95_ms})
    parts = _table(
        ["part, p50 / p95 ms", *(f"{row.passages:,}" for row in rows)],
        (
            [name, *(f"{row.parts_p50_ms.get(name, 0):.1f} / {row.parts_p95_ms.get(name, 0):.1f}" for row in rows)]
            for name in names
        ),
    )
    notes = [f"Vectors: {_VECTORS[rows[0].vector_source]}; compared exactly up to {exact_limit:,} of them."]
    if rows[-1].vectors:
        notes.append(
            f"A question is embedded in {rows[-1].embed_p50_ms:.1f} ms by itself, {rows[-1].embed_p95_ms:.1f} at p95; "
            "`embed_query` is what a lookup waits for it."
        )
    if memory is not None:
        notes.append(
            f"Memory of the process: {memory.without_model_mib} MiB before the first question, "
            f"{memory.with_model_mib} MiB after it."
        )
    return "\n".join([whole, parts, " ".join(notes), ""])


def _label(item: Quality) -> str:
    return item.name if item.within is None else f"{item.name}, inside one {item.within}"


def _mean(item: Quality, lane: str, metric: str) -> float | None:
    means = item.lanes.get(lane)
    if means is None:
        return None
    return means.ndcg_at_10 if metric == "nDCG@10" else means.recall_at_100


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = "|" + "---|" * len(head)
    return "\n".join([_row(head), rule, *(_row(row) for row in rows), ""])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
