"""Eval files: questions with what must be found, one JSON object a line, or a judged set in BEIR layout."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from strata.errors import INVALID_REQUEST, StrataError
from strata.evaluate.beir import load_judged_set

VERSION = "2026-10-01"
DEFAULT_LIMIT = 10
MAX_LIMIT = 1000
MAX_RELEVANCE = 3

_SHOWN = 5
_MAX_LINE_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_T = TypeVar("_T")

Name = Annotated[str, Meta(min_length=1)]
Paragraph = Annotated[int, Meta(ge=0)]
Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT)]


class _Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of an eval file; a field that is not known is refused."""


class ExpectedSource(_Line, frozen=True):
    """A source that answers; ``paragraphs`` any of which do, none given meaning all of them."""

    source: Name
    paragraphs: tuple[Paragraph, ...] = ()
    relevance: Annotated[int, Meta(ge=0, le=MAX_RELEVANCE)] = 1

    def is_met_by(self, source: str, paragraph: int) -> bool:
        """Tell whether a passage is what was expected."""
        return source == self.source and (not self.paragraphs or paragraph in self.paragraphs)


class ExpectedAssociation(_Line, frozen=True):
    """A fact that the graph must hold."""

    subject: Name
    label: Name
    object: Name


class ExpectedCitation(_Line, frozen=True):
    """A paragraph that must be citable. ``section`` null: it must stand outside all sections; absent: not checked."""

    source: Name
    paragraph: Paragraph
    section: str | UnsetType | None = UNSET
    quote: Name | UnsetType = UNSET


class Options(_Line, frozen=True):
    """How a case is asked; ``limit`` is the k of its metrics. ``since`` and ``until`` are epoch seconds, half open."""

    limit: Limit | None = None
    floor: Annotated[float, Meta(ge=0, le=1)] | None = None
    tags: tuple[Name, ...] = ()
    since: int | None = None
    until: int | None = None

    def __post_init__(self) -> None:
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError("Expected `since` before `until`")


class Target(_Line, frozen=True):
    """The context that a case asks, by name or id."""

    context: Name | None = None
    context_id: Name | None = None

    def __post_init__(self) -> None:
        if (self.context is None) == (self.context_id is None):
            raise ValueError("Expected exactly one of `context` and `context_id`")

    @property
    def reference(self) -> str:
        """The name or id."""
        return self.context or self.context_id or ""


class Case(_Line, frozen=True):
    """One question and what must be found for it."""

    case_id: Name
    query: Name
    cues: tuple[Name, ...] = ()
    expected_sources: tuple[ExpectedSource, ...] = ()
    expected_concepts: tuple[Name, ...] = ()
    expected_labels: tuple[Name, ...] = ()
    expected_associations: tuple[ExpectedAssociation, ...] = ()
    expected_citations: tuple[ExpectedCitation, ...] = ()
    options: Options = Options()
    target: Target | None = None

    def __post_init__(self) -> None:
        if not self.query.strip():
            raise ValueError("Expected `query` to ask something")
        for name in _LISTS:
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"`{name}` states the same twice")

    @property
    def asked(self) -> tuple[str, ...]:
        """What is resolved to concepts and labels: the cues, or the question where there are none."""
        return self.cues or (self.query,)

    @property
    def wanted(self) -> tuple[ExpectedSource, ...]:
        """The expected sources that count: relevance 1 or more."""
        return tuple(expected for expected in self.expected_sources if expected.relevance)

    @property
    def is_structural(self) -> bool:
        """Whether anything is expected of the graph."""
        return bool(self.expected_concepts or self.expected_labels or self.expected_associations)


_LISTS = (
    "cues",
    "expected_sources",
    "expected_concepts",
    "expected_labels",
    "expected_associations",
    "expected_citations",
)


class _NumberedHeader(_Line, frozen=True):
    taguru_eval: Literal[1]
    name: Name
    default_target: Target | None = None


class _TypedHeader(_Line, frozen=True):
    type: Literal["eval"]
    name: Name
    version: Literal["2026-10-01"] | UnsetType = UNSET
    default_target: Target | None = None


@dataclass(frozen=True, slots=True)
class Eval:
    """A set of cases. ``digest`` is the SHA-256 of what it was read from, ``target`` the context that it names."""

    name: str
    digest: str
    cases: tuple[Case, ...]
    target: str | None = None


def load_eval(path: Path) -> Eval:
    """Read an eval file, or a folder in BEIR layout whose documents are sources of the context under their ids.

    Raises ``invalid_request`` that names the lines at fault, and for a set without cases.
    """
    if path.is_dir():
        return _judged(path)
    return parse_eval(read_file(path), path.name)


def read_file(path: Path) -> bytes:
    """Read an input file; raises ``invalid_request`` where that cannot be done."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise unfit(f"{path} cannot be read: {error.strerror}") from error


def parse_eval(content: bytes, name: str) -> Eval:
    """Parse an eval file: a header, then cases. Blank lines are skipped, and counted.

    ``name`` stands in messages. Raises ``invalid_request`` with the first five lines at fault; all are in
    ``extra["issues"]``.
    """
    lines = _lines(content)
    number, first = next(lines, (1, b""))
    header = _header(name, number, first)
    issues: list[tuple[int, str]] = []
    cases: dict[str, tuple[int, Case]] = {}
    for number, line in lines:
        try:
            case = decode(line, Case)
        except ValueError as error:
            issues.append((number, str(error)))
            continue
        if case.case_id in cases:
            issues.append((number, f"the case_id of line {cases[case.case_id][0]} again"))
        else:
            cases[case.case_id] = number, case
    if issues:
        raise _issues_found(name, issues)
    if not cases:
        raise unfit(f"{name} has no cases")
    target = header.default_target.reference if header.default_target else None
    return Eval(header.name, _digest([content]), tuple(case for _, case in cases.values()), target)


def decode(line: bytes, shape: type[_T]) -> _T:
    """Decode one JSON text strictly; raises ValueError that says what is wrong, without quoting the text."""
    if len(line) > _MAX_LINE_BYTES:
        raise ValueError(f"longer than {_MAX_LINE_BYTES:,} bytes")
    try:
        return msgspec.json.decode(line, type=shape)
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def unfit(detail: str) -> StrataError:
    """Return the error of an eval that cannot be used."""
    return StrataError(
        INVALID_REQUEST,
        f"{detail}.",
        pointer="--eval",
        remedy="Give an eval file (docs/evaluate.md) or a folder in BEIR layout.",
    )


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(content.removeprefix(_BOM).split(b"\n"), 1):
        if stripped := line.strip():
            yield number, stripped


def _header(name: str, number: int, line: bytes) -> _NumberedHeader | _TypedHeader:
    try:
        fields = decode(line, dict[str, Any])
        shape: type[_NumberedHeader | _TypedHeader] = _NumberedHeader if "taguru_eval" in fields else _TypedHeader
        header: _NumberedHeader | _TypedHeader = decode(line, shape)
    except ValueError as error:
        raise unfit(f"{name}:{number}: not the header of an eval: {error}") from error
    return header


def _issues_found(name: str, issues: list[tuple[int, str]]) -> StrataError:
    shown = "; ".join(f"{name}:{number}: {words}" for number, words in issues[:_SHOWN])
    rest = f"; and {len(issues) - _SHOWN} more" if len(issues) > _SHOWN else ""
    error = unfit(f"{shown}{rest}")
    error.extra["issues"] = [{"line": number, "detail": words} for number, words in issues]
    return error


def _judged(folder: Path) -> Eval:
    judged = load_judged_set(folder)
    cases = []
    for query in judged.queries:
        if query.is_blank:
            continue
        grades = judged.judgments[query.id]
        expected = [
            ExpectedSource(source=document, relevance=min(grade, MAX_RELEVANCE))
            for document, grade in grades.items()
            if grade > 0
        ]
        cases.append(Case(case_id=query.id, query=query.text, expected_sources=tuple(expected)))
    if not cases:
        raise unfit(f"{judged.name} has no questions with a relevant document")
    parts = [msgspec.json.encode(case) for case in cases]
    return Eval(judged.name, _digest(parts), tuple(cases))


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
