"""Rules of the code base that no general linter knows: where SQL stands, and how it is made."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import strata

PACKAGE = Path(strata.__file__).parent
SQL = re.compile(
    r"^\s*(SELECT\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|WITH\s+\w+\s+AS\s)", re.IGNORECASE
)
# They ask the server about itself, outside any tenant and before there may be a table; the benchmark
# asks one statement in a bare transaction, to tell what a unit of work adds.
OUTSIDE_REPOSITORIES = {"platform/schema.py", "platform/migrations.py", "platform/embedded.py", "evaluate/bench.py"}


def python_files():
    return sorted(path for path in PACKAGE.rglob("*.py") if "_migrations" not in path.parts)


def sql_strings(tree):
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    formatted = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in documentation or id(node) in formatted:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if SQL.match(node.value):
                yield node.lineno
        elif isinstance(node, ast.JoinedStr):
            first = node.values[0] if node.values else None
            if isinstance(first, ast.Constant) and SQL.match(str(first.value)):
                yield -node.lineno


@pytest.mark.parametrize("path", python_files(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_sql_stands_in_repositories_only(path):
    name = path.relative_to(PACKAGE).as_posix()
    found = [abs(line) for line in sql_strings(ast.parse(path.read_text(encoding="utf-8")))]
    if not (path.stem == "repository" or path.stem.endswith("_repository") or name in OUTSIDE_REPOSITORIES):
        assert found == []


@pytest.mark.parametrize(
    "path",
    [path for path in python_files() if path.stem.endswith("repository")],
    ids=lambda path: path.relative_to(PACKAGE).as_posix(),
)
def test_sql_is_never_made_with_values_inside(path):
    """An f-string may put in a constant of the module, never anything else."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        first = node.values[0]
        if not (isinstance(first, ast.Constant) and SQL.match(str(first.value))):
            continue
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                assert isinstance(value.value, ast.Name), f"{path.name}:{node.lineno}"
                assert value.value.id.isupper() or value.value.id == "table", f"{path.name}:{node.lineno}"


def test_the_lint_sees_sql_where_it_should_not_be():
    assert list(sql_strings(ast.parse('x = "SELECT 1"\n'))) == [1]
    assert list(sql_strings(ast.parse('x = f"DELETE FROM {t}"\n'))) == [-1]
    assert list(sql_strings(ast.parse('"""Select what to do."""\nx = "selected"\n'))) == []
