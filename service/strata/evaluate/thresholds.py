"""Thresholds that a run must keep: for the whole run, and case by case."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from strata.errors import INVALID_REQUEST, StrataError
from strata.evaluate.case_metrics import BY_CASE, CATALOGUE, Figure, figure
from strata.evaluate.cases import decode

_SHORT = {key.rpartition(".")[2]: key for key in BY_CASE if key.startswith("recall.")}
"""recall_at_k, mrr and ndcg may stand without their family."""


class Bound(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The least and the most that is allowed, both included."""

    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise ValueError("Expected `min`, `max` or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("Expected `min` not above `max`")

    def holds(self, value: float) -> bool:
        """Tell whether a value keeps it."""
        return not (self.min is not None and value < self.min) and not (self.max is not None and value > self.max)


Bounds = dict[str, Bound]


class CaseBounds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of every case, and of single ones, which win metric by metric."""

    default: Bounds = field(default_factory=dict)
    overrides: dict[str, Bounds] = field(default_factory=dict)

    def of(self, case_id: str) -> Bounds:
        """Return the bounds of one case by full metric key, in the order of the catalogue."""
        own = {_full(key): bound for key, bound in self.overrides.get(case_id, {}).items()}
        merged = {_full(key): bound for key, bound in self.default.items()} | own
        return {key: merged[key] for key in BY_CASE if key in merged}


class _Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    aggregate: Bounds = field(default_factory=dict)
    cases: CaseBounds = field(default_factory=CaseBounds)
    allow_unstable_corpus: bool = False


class _Numbered(_Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    taguru_evaluate_thresholds: Literal[1]


class _Typed(_Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: Literal["evaluate_thresholds"]
    version: Literal["2026-10-01"] | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A thresholds file; ``digest`` is the SHA-256 of it."""

    aggregate: Bounds
    cases: CaseBounds
    allow_unstable_corpus: bool
    digest: str


class Violation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bound that was not kept; ``case_id`` where it is one of a case."""

    metric: str
    value: float
    min: float | None = None
    max: float | None = None
    case_id: str | None = None


class Verdict(Struct, frozen=True, kw_only=True):
    """What came of the thresholds. ``skipped`` are those whose metric has no value in this run."""

    passed: bool
    is_unstable: bool
    violations: list[Violation]
    skipped: list[str]


def parse_thresholds(content: bytes, name: str, case_ids: Collection[str]) -> Thresholds:
    """Parse a thresholds file; raises ``invalid_request`` that lists every metric and case it should not name."""
    try:
        fields = decode(content, dict[str, Any])
        document = decode(content, _Numbered if "taguru_evaluate_thresholds" in fields else _Typed)
    except ValueError as error:
        raise _unfit(f"{name}: {error}") from error
    unknown = list(_unknown(document, case_ids))
    if unknown:
        raise _unfit(f"{name} names {'; '.join(unknown)}")
    digest = hashlib.sha256(content).hexdigest()
    return Thresholds(document.aggregate, document.cases, document.allow_unstable_corpus, digest)


def judge(
    thresholds: Thresholds,
    figures: Mapping[str, Figure],
    cases: Sequence[tuple[str, Mapping[str, float | None]]],
    *,
    is_stable: bool,
) -> Verdict:
    """Hold a run against its thresholds: ``figures`` of the run, ``cases`` with their values by metric."""
    violations: list[Violation] = []
    skipped: list[str] = []
    for key, bound in thresholds.aggregate.items():
        value = figure(key, figures)
        if value is None:
            skipped.append(key)
        elif not bound.holds(value):
            violations.append(Violation(metric=key, value=value, min=bound.min, max=bound.max))
    for case_id, values in cases:
        for key, bound in thresholds.cases.of(case_id).items():
            value = values[key]
            if value is None:
                skipped.append(f"{key} of {case_id}")
            elif not bound.holds(value):
                violations.append(Violation(metric=key, value=value, min=bound.min, max=bound.max, case_id=case_id))
    is_unstable = not is_stable and not thresholds.allow_unstable_corpus
    return Verdict(
        passed=not violations and not is_unstable, is_unstable=is_unstable, violations=violations, skipped=skipped
    )


def _unknown(document: _Document, case_ids: Collection[str]) -> Iterator[str]:
    named = {f"{key}.{part}" for key, metric in CATALOGUE.items() for part in metric.statistics()} | set(CATALOGUE)
    yield from (f"no metric {key}" for key in document.aggregate if key not in named)
    by_case = {*BY_CASE, *_SHORT}
    yield from (f"no metric {key} of cases" for key in document.cases.default if key not in by_case)
    for case_id, bounds in document.cases.overrides.items():
        if case_id not in case_ids:
            yield f"no case {case_id}"
        yield from (f"no metric {key} of cases ({case_id})" for key in bounds if key not in by_case)


def _full(key: str) -> str:
    return _SHORT.get(key, key)


def _unfit(detail: str) -> StrataError:
    return StrataError(
        INVALID_REQUEST,
        f"{detail}.",
        pointer="--thresholds",
        remedy="Name metrics of the catalogue (docs/evaluate.md) and cases of the eval.",
    )
