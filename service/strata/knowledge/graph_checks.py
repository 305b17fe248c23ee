"""What is refused before anything is written: malformed names and weights, self-loops, aliases that cannot be."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from strata.errors import INVALID_REQUEST, OVER_LIMIT, ErrorKind, StrataError
from strata.graph.names import HIDDEN_LABEL, MAX_NAME_BYTES
from strata.graph.vocabulary import Namespace
from strata.knowledge.graph_model import MAX_ISSUES, MAX_SOURCE_BYTES, MAX_WEIGHT, AliasRow, Assertion
from strata.knowledge.graph_schemas import IssueOut

MAX_PARAGRAPH = 2**32 - 1
MAX_EPOCH = 253_402_300_799
_STEP = re.compile(r"\[(\d+)\]|\['(.*)'\](?=(?:\.[a-z_]+(?:\[\d+\])?)?$)|\.?([^.\[\]]+)")

Token = int | str
"""What a spelling names: the id of a record, or the key of a name that is not recorded yet."""


@dataclass(slots=True)
class Issues:
    """What is wrong with a request: the first of it, and how much there is. ``prefix`` goes before each path."""

    prefix: str = ""
    first: list[IssueOut] = field(default_factory=list)
    total: int = 0

    def add(self, path: str, kind: str, expected: str, actual: str) -> None:
        """Note one more."""
        self.total += 1
        if len(self.first) < MAX_ISSUES:
            self.first.append(IssueOut(path=self.prefix + path, kind=kind, expected=expected, actual=actual))

    def refuse(self, kind: ErrorKind, what: str) -> None:
        """Raise ``kind`` with what was noted, if anything was; the pointer leads to the first."""
        if not self.total:
            return
        issue = self.first[0]
        more = f" {self.total - 1} more like it." if self.total > 1 else ""
        raise StrataError(
            kind,
            f"{what}: {issue.path}: expected {issue.expected}, got {issue.actual}.{more}",
            pointer=pointer_of(issue.path),
            extra={
                "issues": [{key: getattr(found, key) for key in found.__struct_fields__} for found in self.first],
                "issues_total": self.total,
            },
        )


def pointer_of(path: str) -> str:
    """Return the JSON pointer of an issue's path: ``associations[1].subject`` is ``/associations/1/subject``."""
    steps = [index or quoted or name for index, quoted, name in _STEP.findall(path)]
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def require_at_most(count: int, most: int, what: str, pointer: str) -> None:
    """Raise ``over_limit`` for a list that is too long."""
    if count > most:
        raise StrataError(OVER_LIMIT, f"At most {most:,} {what} in one request; this has {count:,}.", pointer=pointer)


def problem_of_name(name: str, most: int = MAX_NAME_BYTES) -> tuple[str, str, str] | None:
    """Return the kind of problem a name has, what was expected and what there is; None where it has none."""
    if not name:
        return "empty", "at least one character", "an empty string"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "type", "text that can be encoded as UTF-8", "a lone surrogate"
    if size > most:
        return "too_long", f"at most {most} bytes of UTF-8", f"{size} bytes"
    if "\x00" in name:
        return "type", "text without U+0000", "a NUL character"
    return None


def check_name(issues: Issues, path: str, name: str, most: int = MAX_NAME_BYTES) -> None:
    """Note what is wrong with a name."""
    problem = problem_of_name(name, most)
    if problem:
        issues.add(path, *problem)


def check_assertions(issues: Issues, assertions: Sequence[Assertion], sources: Iterable[str] = ()) -> None:
    """Note what is wrong with statements by themselves. ``sources`` are those of each, where they have some."""
    for index, item in enumerate(assertions):
        path = f"associations[{index}]"
        check_name(issues, f"{path}.subject", item.subject)
        check_name(issues, f"{path}.label", item.label)
        check_name(issues, f"{path}.object", item.object)
        if not (math.isfinite(item.weight) and abs(item.weight) <= MAX_WEIGHT):
            issues.add(f"{path}.weight", "range", "a number from -1000000 to 1000000", repr(item.weight))
        if item.paragraph is not None and not 0 <= item.paragraph <= MAX_PARAGRAPH:
            issues.add(f"{path}.paragraph", "range", f"0 to {MAX_PARAGRAPH}", repr(item.paragraph))
        _check_interval(issues, path, item)
    for index, source in enumerate(sources):
        if source:
            check_name(issues, f"associations[{index}].source", source, MAX_SOURCE_BYTES)


def _check_interval(issues: Issues, path: str, item: Assertion) -> None:
    for name, value in (("valid_from", item.valid_from), ("valid_until", item.valid_until)):
        if value is not None and abs(value) > MAX_EPOCH:
            issues.add(f"{path}.{name}", "range", "seconds since 1970 of the years up to 9999", repr(value))
    if item.valid_from is not None and item.valid_until is not None and item.valid_from >= item.valid_until:
        issues.add(f"{path}.valid_until", "range", f"more than {item.valid_from}", repr(item.valid_until))


def check_alias_names(issues: Issues, aliases: Sequence[AliasRow]) -> None:
    """Note what is wrong with aliases by themselves."""
    for row in aliases:
        path = alias_path(row)
        check_name(issues, path, row.alias)
        check_name(issues, path, row.canonical)


def alias_path(row: AliasRow) -> str:
    """Return the path of an alias in a request: ``concepts['Postgres']``."""
    return f"{row.kind}s['{row.alias}']"


def refuse_malformed(issues: Issues) -> None:
    """Raise ``invalid_request`` for what was noted of single values."""
    issues.refuse(INVALID_REQUEST, "The request holds a value that cannot be used")


@dataclass(frozen=True, slots=True)
class Names:
    """What the spellings of one namespace stand for; ``fresh`` holds the first spelling of each new key."""

    tokens: dict[str, Token]
    fresh: dict[str, str]


def check_loops(issues: Issues, assertions: Sequence[Assertion], concepts: Names) -> None:
    """Note statements whose subject and object are one concept, whatever the spellings."""
    for index, item in enumerate(assertions):
        if concepts.tokens[item.subject] == concepts.tokens[item.object]:
            issues.add(
                f"associations[{index}].object",
                "conflict",
                "another concept than the subject",
                f"'{item.object}', the subject itself",
            )


def plan_aliases(
    issues: Issues,
    aliases: Sequence[AliasRow],
    spelled: dict[str, int | None],
    canonical: dict[str, Token | None],
    names: Names,
) -> dict[str, Token]:
    """Decide what the aliases of one namespace lead to, noting those that cannot be.

    One that is there already, or is its own name, needs no row. ``spelled`` says what an alias's own
    spelling, exactly, names already; ``canonical`` what each target is. A target may be an alias that
    stands before it in the request.
    """
    rows: dict[str, Token] = {}
    reserved = {token for token in (HIDDEN_LABEL, canonical.get(HIDDEN_LABEL), names.tokens.get(HIDDEN_LABEL)) if token}
    for row in aliases:
        path = alias_path(row)
        target = rows.get(row.canonical, canonical.get(row.canonical))
        if row.kind == Namespace.LABEL and (HIDDEN_LABEL in {row.alias, row.canonical} or target in reserved):
            issues.add(path, "conflict", f"no alias of the reserved label '{HIDDEN_LABEL}'", f"'{row.canonical}'")
            continue
        if target is None:
            expected = f"'{row.canonical}' already interned as a concept or label this batch's associations use"
            issues.add(path, "unknown_reference", expected, "not present in this request")
            continue
        named = rows.get(row.alias, spelled.get(row.alias))
        if named is None:
            named = names.tokens.get(row.alias)
        if named is None:
            rows[row.alias] = target
        elif named != target:
            issues.add(path, "conflict", f"a spelling that names nothing but '{row.canonical}'", "it names another")
    return rows
