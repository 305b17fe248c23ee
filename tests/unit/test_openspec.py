"""Every scenario of the specifications has a test, and every test that is named for one exists."""

from __future__ import annotations

import ast
import datetime as dt
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SPECS = ROOT / "openspec" / "specs"
ARCHIVE = ROOT / "openspec" / "changes" / "archive"
CAPABILITIES = sorted(path.parent.relative_to(SPECS).as_posix() for path in SPECS.rglob("spec.md"))
ARCHIVED = sorted(path.name for path in ARCHIVE.iterdir())
MAX_REQUIREMENT_CHARS = 500
SCENARIO = re.compile(r"^#### Scenario: (.+)$", re.MULTILINE)
REQUIREMENT = re.compile(r"^### Requirement: (.+)$", re.MULTILINE)
OPEN_TASK = re.compile(r"^\s*[-*] \[ \]", re.MULTILINE)


def spec(capability: str) -> str:
    return (SPECS / capability / "spec.md").read_text("utf-8")


@cache
def mapping() -> dict[str, dict[str, list[str]]]:
    text = (ROOT / "openspec" / "scenarios.yaml").read_text("utf-8")
    repeated = [key for key, count in _key_counts(yaml.compose(text)) if count > 1]
    assert not repeated, f"keys that stand twice: {repeated}"
    loaded: dict[str, dict[str, list[str]]] = yaml.safe_load(text)
    return loaded


def _key_counts(node: yaml.Node | None) -> list[tuple[str, int]]:
    """Count the keys of each mapping: YAML lets a later one silently win."""
    if not isinstance(node, yaml.MappingNode):
        return []
    keys = [key.value for key, _ in node.value]
    counts = [(key, keys.count(key)) for key in dict.fromkeys(keys)]
    return counts + [found for _, value in node.value for found in _key_counts(value)]


@cache
def functions(path: str) -> frozenset[str]:
    """The test functions at the top of a file."""
    file = ROOT / path
    if not path.startswith("tests/") or not file.is_file():
        return frozenset()
    body = ast.parse(file.read_text("utf-8")).body
    return frozenset(node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def test_the_capabilities_are_those_of_the_mapping():
    assert sorted(mapping()) == CAPABILITIES


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_mapping_has_exactly_the_scenarios_of_the_specification(capability):
    scenarios = SCENARIO.findall(spec(capability))
    assert len(scenarios) == len(set(scenarios)), "a scenario name stands twice"
    mapped = set(mapping().get(capability, {}))
    assert set(scenarios) - mapped == set(), "scenarios without a test"
    assert mapped - set(scenarios) == set(), "mapped scenarios that no specification has"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_scenario_names_tests_that_exist(capability):
    for scenario, tests in mapping()[capability].items():
        assert tests, f"{scenario}: no test"
        for test in tests:
            path, _, name = test.partition("::")
            name = name.partition("[")[0]
            assert name.startswith("test_"), f"{scenario}: {test} names no test function"
            assert name in functions(path), f"{scenario}: {test} does not exist"


def test_every_scenario_test_belongs_to_a_scenario():
    """A file of scenario tests holds none that no scenario names."""
    listed = [tests for scenarios in mapping().values() for tests in scenarios.values()]
    named = {test.partition("[")[0] for tests in listed for test in tests}
    for file in sorted((ROOT / "tests" / "integration").glob("test_scenarios_*.py")):
        path = file.relative_to(ROOT).as_posix()
        tests = {f"{path}::{name}" for name in functions(path) if name.startswith("test_")}
        assert tests - named == set(), "scenario tests that no scenario names"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_requirement_can_be_decided(capability):
    """A requirement is short, says SHALL or MUST, and each of its scenarios says WHEN and THEN."""
    text = spec(capability)
    names = REQUIREMENT.findall(text)
    assert len(names) == len(set(names)), "a requirement name stands twice"
    for part in re.split(r"^### Requirement: ", text, flags=re.MULTILINE)[1:]:
        head, *scenarios = re.split(r"^#### Scenario: ", part, flags=re.MULTILINE)
        name, _, body = head.partition("\n")
        assert re.search(r"\b(SHALL|MUST)\b", body), f"{name}: neither SHALL nor MUST"
        assert len(body.strip()) <= MAX_REQUIREMENT_CHARS, f"{name}: longer than {MAX_REQUIREMENT_CHARS} characters"
        assert scenarios, f"{name}: no scenario"
        for scenario in scenarios:
            assert "- **WHEN** " in scenario, f"{name}: {scenario.splitlines()[0]}: no WHEN"
            assert "- **THEN** " in scenario, f"{name}: {scenario.splitlines()[0]}: no THEN"


@pytest.mark.parametrize("change", ARCHIVED)
def test_an_archived_change_is_done_and_its_deltas_are_in_the_specifications(change):
    """Every task is ticked, and what the change added or modified is a requirement today."""
    folder = ARCHIVE / change
    dt.date.fromisoformat(change[:10])
    assert {"proposal.md", "design.md", "tasks.md", ".openspec.yaml"} <= {path.name for path in folder.iterdir()}
    tasks = (folder / "tasks.md").read_text("utf-8")
    assert "- [x]" in tasks
    assert not OPEN_TASK.search(tasks)
    for delta in sorted((folder / "specs").rglob("spec.md")):
        capability = delta.parent.relative_to(folder / "specs").as_posix()
        text = delta.read_text("utf-8").partition("## REMOVED Requirements")[0]
        current = spec(capability)
        assert set(REQUIREMENT.findall(text)) <= set(REQUIREMENT.findall(current)), capability
        assert set(SCENARIO.findall(text)) <= set(SCENARIO.findall(current)), capability
