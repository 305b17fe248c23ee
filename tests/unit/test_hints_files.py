"""Hint files: what is read, what is refused, and that nothing is lost on the way."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import INVALID_REQUEST, StrataError
from strata.hints.files import parse_hints, render_hints
from strata.hints.schemas import HintEntry, HintInput, HintOrigin
from strata.hints.validate import valid_hint


def refusal(data, file_format="yaml"):
    with pytest.raises(StrataError) as raised:
        parse_hints(data if isinstance(data, bytes) else data.encode(), file_format)
    assert raised.value.kind is INVALID_REQUEST
    return raised.value


def test_yaml_takes_names_as_they_are_written():
    (hint,) = parse_hints(
        b"""
- title: 2026
  aliases: [no, on, 1.10, 0x1F, 2026-01-01, ~x, "null"]
  validFrom: 2026-01-01
  validUntil: 2026-06-01 12:00:00+02:00
  priority: 3
  category:
  metadata: {n: 1, ok: true, day: 2026-01-02}
""",
        "yaml",
    )
    assert hint.title == "2026"
    assert hint.aliases == ["no", "on", "1.10", "0x1F", "2026-01-01", "~x", "null"]
    assert hint.valid_from == datetime(2026, 1, 1, tzinfo=UTC)
    assert hint.valid_until == datetime(2026, 6, 1, 10, tzinfo=UTC)
    assert (hint.priority, hint.category) == (3, None)
    assert hint.metadata == {"n": 1, "ok": True, "day": "2026-01-02"}


@pytest.mark.parametrize("data", ["", "# nothing\n", "[]", "hints: []", "hints:", "---\n"])
def test_an_empty_file_holds_no_hints(data):
    assert parse_hints(data.encode(), "yaml") == []


@pytest.mark.parametrize(
    ("data", "file_format"),
    [
        ("hints:\n- title: a\n", "yaml"),
        ('[{"title": "a"}]', "json"),
        ('{"hints": [{"title": "a"}]}', "json"),
        ('\ufeff{"title": "a"}\r\n\r\n', "jsonl"),
    ],
)
def test_every_layout_is_read(data, file_format):
    assert parse_hints(data.encode(), file_format) == [HintInput(title="a")]


@pytest.mark.parametrize(
    ("data", "file_format", "detail", "pointer"),
    [
        ("- title: a\n- title: b\n  alias: [x]\n", "yaml", "Entry 2 (line 2): There is no field 'alias'", "/1"),
        ("- aliases: [x]\n", "yaml", "Entry 1 (line 1): Object missing required field `title`.", "/0"),
        ("- title: a\n  aliases: x\n", "yaml", "aliases: Expected `array`", "/0/aliases"),
        ("- title: a\n  aliases: [x, [y]]\n", "yaml", "Entry 1 (line 1): aliases: a list of texts", "/0"),
        ("- title: a\n  aliases: [x, ~]\n", "yaml", "aliases 1: Expected `str`", "/0/aliases/1"),
        ("- title: a\n  title: b\n", "yaml", "stands twice", "/0"),
        ("- title: '...'\n", "yaml", "needs a letter", "/0/title"),
        ("- title: a\n  aliases: [ok, '!']\n", "yaml", "needs a letter", "/0/aliases/1"),
        ("- title: a\n  priority: 1001\n", "yaml", "-1000 to 1000", "/0/priority"),
        ("- title: a\n  validFrom: soon\n", "yaml", "validFrom: Invalid RFC3339", "/0/validFrom"),
        ("- title: a\n  validFrom: 2026-02-30\n", "yaml", "validFrom: Invalid RFC3339", "/0/validFrom"),
        ("- title: a\n  validFrom: 2026-01-02\n  validUntil: 2026-01-01\n", "yaml", "begin", "/0/validUntil"),
        ("- title: a\n  id: x\n", "yaml", "id: Invalid UUID", "/0/id"),
        ("- title: a\n  metadata: [1]\n", "yaml", "metadata: Expected `object`", "/0/metadata"),
        ("- title: a\n  metadata: {x: !!python/name:os.system ''}\n", "yaml", "metadata:", "/0"),
        ("- 5\n", "yaml", "Entry 1 (line 1): A hint is a mapping", "/0"),
        ("title: a\n", "yaml", "A hint file is a list", None),
        ("- title: [a\n", "yaml", "not valid YAML (line 2)", None),
        ("- title: a\n---\n- title: b\n", "yaml", "not valid YAML", None),
        ("[" * 5000, "yaml", "not valid YAML", None),
        ("[" * 50000, "json", "not valid JSON", None),
        ('{"title": "a"}\nnot json\n', "jsonl", "Entry 2 (line 2): This line is not valid JSON", "/1"),
        ('"a"', "json", "A hint file is a list", None),
        ("- title: a\n  targets: ['']\n", "yaml", "must not be empty", "/0/targets/0"),
    ],
)
def test_a_fault_names_entry_line_and_field(data, file_format, detail, pointer):
    error = refusal(data, file_format)
    assert detail in error.detail
    assert error.pointer == pointer


def test_the_first_twenty_faults_are_told_at_once():
    error = refusal("- title: ok\n" + "- titel: a\n" * 30)
    assert [fault["line"] for fault in error.extra["errors"]] == list(range(2, 22))
    assert error.extra["errors"][3]["pointer"] == "/4"


def test_aliases_that_multiply_in_yaml_are_refused_fast():
    bomb = "- title: a\n  metadata:\n    a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"    a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    assert "nested too deeply or holds too many" in refusal(bomb).detail


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"title": "x" * 1001}, "/title"),
        ({"aliases": [f"a{n}" for n in range(65)]}, "/aliases"),
        ({"aliases": ["ok", "x" * 301]}, "/aliases/1"),
        ({"keywords": [f"a{n}" for n in range(129)]}, "/keywords"),
        ({"targets": [f"a{n}" for n in range(65)]}, "/targets"),
        ({"targets": ["x" * 2049]}, "/targets/0"),
        ({"breadcrumb": ["x"] * 33}, "/breadcrumb"),
        ({"category": "x" * 129}, "/category"),
        ({"summary": "x" * 4001}, "/summary"),
        ({"metadata": {"x": "y" * 17_000}}, "/metadata"),
        ({"priority": -1001}, "/priority"),
    ],
)
def test_every_limit_is_refused_by_its_field(fields, pointer):
    with pytest.raises(StrataError) as raised:
        valid_hint(HintInput(**{"title": "a", **fields}), "/hints/0")
    assert raised.value.pointer == f"/hints/0{pointer}"


def test_ugly_text_is_cleaned_and_repeats_are_left_out():
    hint = valid_hint(
        HintInput(
            title=" A\x00nnual \n leave\ud800 ",
            aliases=["ANNUAL LEAVE", "pto", "ＰＴＯ", "p.t.o"],
            targets=["a.md", "a.md"],
            category="  ",
            metadata={"k\x00": "v\udfff", "n": float("nan")},
        )
    )
    assert hint.title == "Annual leave"
    assert hint.aliases == ["pto", "p.t.o"]
    assert (hint.targets, hint.category, hint.metadata) == (["a.md"], None, {"k": "v", "n": None})


inputs = st.builds(
    HintInput,
    id=st.uuids(),
    title=st.text(min_size=1, max_size=30).map(lambda text: f"t{text}"),
    aliases=st.lists(st.text(max_size=10).map(lambda text: f"a{text}"), max_size=3),
    summary=st.none() | st.text(max_size=30),
    targets=st.lists(st.just("a.md#x"), max_size=1),
    priority=st.integers(-5, 5),
    valid_from=st.none() | st.datetimes(timezones=st.just(UTC)),
    metadata=st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers(-9, 9) | st.booleans(), max_size=3),
).map(valid_hint)


@given(st.lists(inputs, max_size=4), st.sampled_from(["yaml", "json", "jsonl"]))
def test_what_is_written_is_read_back_the_same(hints, file_format):
    entries = [
        HintEntry(
            hint_id=hint.id,
            context_id=UUID(int=1),
            origin=HintOrigin.CURATED,
            **{name: value for name, value in msgspec.structs.asdict(hint).items() if name != "id"},
        )
        for hint in hints
    ]
    assert parse_hints(render_hints(entries, file_format).encode(), file_format) == hints
