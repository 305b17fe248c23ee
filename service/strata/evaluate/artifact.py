"""evaluation.json: what a run was given, what it found, and what the figures mean. It holds no text of the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from strata.errors import INVALID_REQUEST, StrataError
from strata.evaluate.backend import Budget, Spend
from strata.evaluate.case_metrics import Figure
from strata.evaluate.cases import decode
from strata.evaluate.thresholds import Verdict

MAX_MISSED = 3
TYPE = "evaluation"

_V = TypeVar("_V")
Nested = dict[str, dict[str, _V]]


class EvalInput(Struct, frozen=True, kw_only=True):
    """The eval that was run."""

    name: str
    sha256: str
    cases: int


class Inputs(Struct, frozen=True, kw_only=True):
    """What the run was given. ``budget`` is null where none was set, ``limit`` that of cases that state none."""

    eval: EvalInput
    contexts: list[str]
    mode: str
    limit: int
    budget: Budget | None
    rerank: str | None
    thresholds: str | None
    assembly_options: dict[str, Any] = field(default_factory=dict)


class CorpusState(Struct, frozen=True, kw_only=True):
    """The contexts before and after the run, by the name or id that was asked."""

    revision_before: dict[str, Mapping[str, int]]
    revision_after: dict[str, Mapping[str, int]]
    stable: bool
    embeddings: dict[str, str | None]


class PassageOutcome(Struct, frozen=True, kw_only=True):
    """The passage lane of a case. ``ranks`` of its expected sources in their order, null where one was missed."""

    completed: bool
    error: str | None
    hits: int
    ranks: list[int | None]


class Rerank(Struct, frozen=True, kw_only=True):
    """Whether the reranker put a case in order, and why not."""

    ran: bool
    reason: str | None


class Missed(Struct, frozen=True, kw_only=True):
    """An expectation of the eval that was not met."""

    kind: str
    source: str | UnsetType = UNSET
    paragraphs: list[int] | UnsetType = UNSET
    names: list[str] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class CaseOutcome(Struct, frozen=True, kw_only=True):
    """One case. ``missed`` shows three expectations at most, ``missed_total`` counts all."""

    case_id: str
    context: str
    passage: PassageOutcome
    associations: dict[str, int]
    citations: dict[str, int]
    spend: Spend | None
    rerank: Rerank | None
    metrics: Nested[float | None]
    missed: list[Missed]
    missed_total: int


class Evaluation(Struct, frozen=True, kw_only=True):
    """A whole run."""

    type: str = TYPE
    inputs: Inputs
    matching: dict[str, str]
    corpus: CorpusState
    definitions: dict[str, str]
    warnings: list[str]
    cases: list[CaseOutcome]
    metrics: Nested[Figure]
    gate: Verdict | None = None


class StoredEvaluation(Struct, frozen=True, kw_only=True):
    """As much of a written run as a comparison reads."""

    type: str
    inputs: Inputs
    corpus: CorpusState
    cases: list[CaseOutcome]
    metrics: Nested[dict[str, float | None]] = field(default_factory=dict)


def nested(flat: Mapping[str, _V]) -> Nested[_V]:
    """Return values by family, then by name: ``recall.mrr`` becomes ``{"recall": {"mrr": ...}}``."""
    families: Nested[_V] = {}
    for key, value in flat.items():
        family, _, name = key.partition(".")
        families.setdefault(family, {})[name] = value
    return families


def document(value: Any) -> bytes:
    """Return an artifact as it is written: indented JSON in UTF-8."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def read_evaluation(path: Path) -> StoredEvaluation:
    """Read an evaluation.json; raises ``invalid_request`` for anything else."""
    try:
        found = decode(path.read_bytes(), StoredEvaluation)
    except OSError as error:
        raise _unreadable(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _unreadable(f"{path} is not the artifact of a run: {error}") from error
    if found.type != TYPE:
        raise _unreadable(f"{path} is not the artifact of a run")
    return found


def _unreadable(detail: str) -> StrataError:
    return StrataError(INVALID_REQUEST, f"{detail}.", remedy="Give two files that `strata evaluate --eval` wrote.")
