"""Compare two runs case by case: what improved, what got worse, and whether the two can be compared at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from strata.evaluate.artifact import CaseOutcome, Inputs, StoredEvaluation
from strata.evaluate.case_metrics import COMPARED, rounded

IMPROVED, REGRESSED, ADDED, REMOVED = "improved", "regressed", "added", "removed"
UNCHANGED = "unchanged"


class Delta(Struct, frozen=True, kw_only=True):
    """A metric in both runs; null where it has no value. ``delta`` is head less base."""

    base: float | None
    head: float | None
    delta: float | None


class Change(Struct, frozen=True, kw_only=True):
    """A case that differs, with the metrics that do. Any metric that is lower, or has no value any more: regressed."""

    case_id: str
    change: str
    metrics: dict[str, Delta]


class Header(Struct, frozen=True, kw_only=True):
    """The first line of changes.jsonl."""

    type: Literal["evaluation_changes"] = "evaluation_changes"
    base: Inputs
    head: Inputs
    warnings: list[str]
    counts: dict[str, int]
    metrics: dict[str, Delta]


class Comparison(Struct, frozen=True, kw_only=True):
    """The header, and the cases that differ: in the order of head, then those that only base has."""

    header: Header
    changes: list[Change]

    def lines(self) -> bytes:
        """Return changes.jsonl."""
        return b"".join(msgspec.json.encode(line) + b"\n" for line in (self.header, *self.changes))


def compare(base: StoredEvaluation, head: StoredEvaluation) -> Comparison:
    """Compare two runs by the nine metrics that a case has, latency aside."""
    earlier = {case.case_id: case for case in base.cases}
    later = {case.case_id: case for case in head.cases}
    found = [_change(case_id, earlier.get(case_id), later.get(case_id)) for case_id in {**later, **earlier}]
    counts = dict.fromkeys((IMPROVED, REGRESSED, ADDED, REMOVED, UNCHANGED), 0)
    for change in found:
        counts[change.change] += 1
    header = Header(
        base=base.inputs,
        head=head.inputs,
        warnings=list(_mismatches(base, head)),
        counts=counts,
        metrics={key: _delta(_mean(base, key), _mean(head, key)) for key in COMPARED},
    )
    return Comparison(header=header, changes=[change for change in found if change.change != UNCHANGED])


def _change(case_id: str, base: CaseOutcome | None, head: CaseOutcome | None) -> Change:
    deltas = {key: _delta(_value(base, key), _value(head, key)) for key in COMPARED}
    differing = {key: delta for key, delta in deltas.items() if delta.base != delta.head}
    if base is None:
        change = ADDED
    elif head is None:
        change = REMOVED
    elif any(_is_worse(delta) for delta in differing.values()):
        change = REGRESSED
    else:
        change = IMPROVED if differing else UNCHANGED
    return Change(case_id=case_id, change=change, metrics=differing)


def _is_worse(delta: Delta) -> bool:
    return delta.base is not None and (delta.head is None or delta.head < delta.base)


def _delta(base: float | None, head: float | None) -> Delta:
    delta = None if base is None or head is None else rounded(head - base)
    return Delta(base=base, head=head, delta=delta)


def _value(case: CaseOutcome | None, key: str) -> float | None:
    return None if case is None else _at(case.metrics, key)


def _mean(run: StoredEvaluation, key: str) -> float | None:
    family, _, name = key.partition(".")
    return run.metrics.get(family, {}).get(name, {}).get("mean")


def _at(metrics: Mapping[str, Mapping[str, float | None]], key: str) -> float | None:
    family, _, name = key.partition(".")
    return metrics.get(family, {}).get(name)


def _mismatches(base: StoredEvaluation, head: StoredEvaluation) -> Iterator[str]:
    one, other = base.inputs, head.inputs
    if one.eval.sha256 != other.eval.sha256:
        yield "The runs are of different evals."
    if one.contexts != other.contexts:
        yield f"The runs asked different contexts: {_names(one.contexts)} and {_names(other.contexts)}."
    elif base.corpus.revision_after != head.corpus.revision_before:
        yield "The corpus changed between the runs."
    for which, run in (("base", base), ("head", head)):
        if not run.corpus.stable:
            yield f"The corpus changed during {which}."
    if base.corpus.embeddings != head.corpus.embeddings:
        yield "The runs had vectors of different models."
    yield from _unequal_questions(one, other)


def _unequal_questions(one: Inputs, other: Inputs) -> Iterator[str]:
    if one.limit != other.limit:
        yield f"The runs had different limits: {one.limit} and {other.limit}."
    if one.budget != other.budget:
        yield f"The runs had different budgets: {_budget(one)}; {_budget(other)}. Their figures are not comparable."
    if one.mode == other.mode and one.assembly_options != other.assembly_options:
        yield "The runs asked for different options of the assembly."
    if one.thresholds != other.thresholds:
        yield "The runs were held to different thresholds."


def _names(contexts: Sequence[str]) -> str:
    return ", ".join(contexts) or "none"


def _budget(inputs: Inputs) -> str:
    budget = inputs.budget
    if budget is None:
        return "none"
    return f"{budget.max_items} items, {budget.max_bytes:,} bytes, {budget.max_tokens:,} tokens"
