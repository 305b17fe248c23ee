"""The page on the contexts API says what the client has, and its example runs."""

import inspect
import re
from pathlib import Path

import pytest
from msgspec.structs import fields
from taguru import Context

from strata.assembly.schemas import EvidenceRequest
from wire.public import surface

PAGE = (Path(__file__).parents[2] / "docs" / "contexts-api.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`[^|]+) \|", PAGE, re.MULTILINE)
NAMED = {name for row in ROWS for name in re.findall(r"`([\w.]+)`", row)}


def test_every_method_of_the_client_has_its_row():
    methods = {method.removeprefix("client.").removeprefix("context.") for method in surface("sync")}
    assert methods <= NAMED


def test_every_added_field_of_an_evidence_request_has_its_row():
    known = set(inspect.signature(Context.assemble_evidence).parameters)
    added = {field.name for field in fields(EvidenceRequest)} - known
    section = PAGE.partition("## What Strata adds")[2]
    assert set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)))) == added


@pytest.mark.database
def test_the_example_runs(server_url, monkeypatch, capsys):
    monkeypatch.setenv("TAGURU_URL", server_url)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "contexts-api.md", "exec"), {})
    assert "Ida Brandt" in capsys.readouterr().out
