"""The comparison as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec


class Load(msgspec.Struct, kw_only=True):
    """One system under so many clients: calls in a second (mean, and of each round), times of a call."""

    clients: int
    per_second: float
    rounds: list[float]
    p50_ms: float
    p95_ms: float
    p99_ms: float
    calls: int
    differing: int


class Row(msgspec.Struct, kw_only=True):
    """One system in one configuration. ``computed`` embeds each question, ``given`` has its vector."""

    system: str
    ef_search: int | None
    vector_recall: float
    ndcg: dict[str, float]
    recall: dict[str, float]
    empty: int
    wide_ndcg: float | None = None
    computed: list[Load] = []
    given: list[Load] = []
    memory_mb: int = 0
    about: dict[str, str] = {}

    @property
    def label(self) -> str:
        """Name the row."""
        return self.system if self.ef_search is None else f"{self.system}, ef_search {self.ef_search}"


def mean(values: Mapping[str, float]) -> float:
    """Return the mean over the sets, each counting the same."""
    return statistics.fmean(values.values()) if values else 0.0


def _speed(title: str, rows: Sequence[Row], loads: Mapping[str, list[Load]]) -> list[str]:
    clients = [load.clients for load in next(iter(loads.values()))]
    lines = [
        f"**{title}**",
        "",
        "| system | p50 ms | p95 ms | "
        + " | ".join(f"lookups/s, {count} client{'s' * (count > 1)}" for count in clients)
        + f" | p95 ms, {clients[-1]} clients |",
        "|---|---|---|" + "---|" * (len(clients) + 1),
    ]
    for row in rows:
        if measured := loads.get(row.label):
            rates = " | ".join(
                f"{load.per_second:.0f} ({min(load.rounds):.0f} to {max(load.rounds):.0f})" for load in measured
            )
            first, last = measured[0], measured[-1]
            lines.append(f"| {row.label} | {first.p50_ms:.1f} | {first.p95_ms:.1f} | {rates} | {last.p95_ms:.0f} |")
    return [*lines, ""]


def markdown(rows: Sequence[Row], about: Mapping[str, str]) -> str:
    """Return the tables: speed with and without embedding, quality, configurations."""
    lines = [f"{name}: {value}  " for name, value in about.items()] + [""]
    computed = {row.label: row.computed for row in rows if row.computed}
    given = {row.label: row.given for row in rows if row.given}
    if computed:
        lines += _speed("Speed, the question embedded in each call", rows, computed)
    if given:
        lines += _speed("Speed, the question's vector at hand", rows, given)
    sets = list(rows[0].ndcg)
    lines += [
        "**Quality**",
        "",
        "| system | vector leg, recall@10 against exact | nDCG@10, mean of the sets | recall@10 "
        "| nDCG@10 with more candidates | " + " | ".join(f"nDCG@10 {name}" for name in sets) + " | RSS MB |",
        "|---|---|---|---|---|" + "---|" * (len(sets) + 1),
    ]
    for row in rows:
        wide = "" if row.wide_ndcg is None else f"{row.wide_ndcg:.4f}"
        cells = " | ".join(f"{row.ndcg[name]:.4f}" for name in sets)
        lines.append(
            f"| {row.label} | {row.vector_recall:.4f} | {mean(row.ndcg):.4f} | {mean(row.recall):.4f} | {wide} "
            f"| {cells} | {row.memory_mb} |"
        )
    lines += ["", "**Configurations**", ""]
    for row in {row.system: row for row in rows}.values():
        versions = ", ".join(f"{name} {value}" for name, value in row.about.items() if name != "configuration")
        lines.append(f"- {row.system} ({versions}): {row.about.get('configuration', '')}.")
    differing = {row.label: sum(load.differing for load in row.computed + row.given) for row in rows}
    if any(differing.values()):
        lines += ["", "Answers under load that differ from those given alone: "]
        lines[-1] += ", ".join(f"{label} {count}" for label, count in differing.items() if count) + "."
    return "\n".join(lines) + "\n"
