"""Export over a real database: the same bytes for the same state, which they read back to."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from exchange_support import facts, make_kit, state, stream
from ingest_support import check, rows
from strata.errors import CONTEXT_NOT_FOUND, GROUP_NOT_FOUND, INVALID_REQUEST, OVER_LIMIT, SCHEMA_VIOLATION, StrataError
from strata.exchange import exporting
from strata.exchange.parse import parse_stream
from strata.exchange.records import Form
from strata.platform.ids import DEFAULT_TENANT as T

pytestmark = pytest.mark.database


@pytest.fixture
async def kit(database, settings):
    made = make_kit(database, settings)
    yield made
    await made.close()


def header(source, context="kb", **create):
    return {"taguru_batch": 1, "context": context, "source": source, "create": create}


def fact(subject, label, target, weight=1.0, **more):
    return {"subject": subject, "label": label, "object": target, "weight": weight, **more}


SCHEMA = {
    "taguru_schema": 1,
    "context": "kb",
    "mode": "warn",
    "closed_labels": False,
    "types": {"Person": {"is_a": []}},
    "relations": {"wrote": {"domain": ["Person"], "range": []}},
}

RICH = (
    header("doc/β.md", description="all of it", pinned=True, dice_floor=0.25, semantic_floor=0.5),
    {
        "passage": "\ufeffOne.\r\n\r\n二。 👩‍👩‍👧\n\n\nThree \u2028 end\r\n",
        "stored_at": 1_700_000_000,
        "date": -5,
        "tags": ["b", "a"],
    },
    {"paragraph": 0, "question": "second?"},
    {"paragraph": 0, "question": "first?"},
    {"paragraph": 1, "section": "節 \x1f"},
    {"paragraph": 2, "locator": {"kind": "sheet", "value": "A1:C4"}},
    fact("Ada", "wrote", "Notes", 0.1, paragraph=2),
    fact("Ada", "wrote", "Notes", 0.2, paragraph=1),
    fact("Ada", "wrote", "Notes", -0.7, valid_from=5, valid_until=9),
    fact("Zoë", "knows", "Ada", -3.0),
    header("facts only"),
    fact("Ada", "wrote", "Notes", 1e6),
    header("text only"),
    {"passage": "", "stored_at": 3},
    {"alias": "Countess", "canonical": "Ada", "kind": "concept"},
    {"alias": "penned", "canonical": "wrote", "kind": "label"},
    SCHEMA,
)


@pytest.mark.parametrize("form", list(Form))
async def test_an_export_reads_back_to_the_same_state_and_the_same_bytes(kit, form):
    await kit.load(*RICH)
    exported = await kit.export("kb", form=form)
    assert await kit.export("kb", form=form) == exported
    before = await state(kit, "kb")
    await kit.exchange.import_stream(T, parse_stream(exported))
    assert await state(kit, "kb") == before, "over what is there"
    await kit.contexts.delete(T, "kb")
    await kit.exchange.import_stream(T, parse_stream(exported))
    assert await state(kit, "kb") == before, "into nothing"
    assert await kit.export("kb", form=form) == exported
    await check(kit)


async def test_what_no_source_says_is_exported_under_a_name_of_its_own(kit):
    await kit.load(header("doc"), fact("a", "b", "c", 2.0))
    await kit.say("", fact("a", "b", "c", 0.5), fact("d", "e", "f", 0.25))
    exported = await kit.export("kb")
    await kit.contexts.delete(T, "kb")
    await kit.exchange.import_stream(T, parse_stream(exported))
    assert await kit.export("kb") == exported
    assert await facts(kit, "kb") == {
        ("a", "b", "c"): {"doc": (2.0, 1, None), "export:unsourced": (0.5, 1, None)},
        ("d", "e", "f"): {"export:unsourced": (0.25, 1, None)},
    }


async def test_an_empty_context_is_exported_as_one_empty_source(kit):
    await kit.contexts.create(T, "kb", "nothing yet")
    exported = await kit.export("kb")
    await kit.contexts.delete(T, "kb")
    await kit.exchange.import_stream(T, parse_stream(exported))
    assert (await kit.contexts.get(T, "kb")).description == "nothing yet"
    assert await kit.export("kb") == exported
    with pytest.raises(StrataError) as raised:
        await kit.exchange.export(T, "nowhere")
    assert raised.value.kind is CONTEXT_NOT_FOUND


async def test_a_read_document_is_exported_by_the_paragraphs_of_its_text(kit):
    content = "---\ntags: [x]\ndate: 2024-05-01\n---\n# Leave\n\nTwenty-five days.\n\n## Carry over\n\nTen days."
    await kit.ingest("hr/leave.md", content)
    await kit.say(
        "hr/leave.md", fact("Carry over", "allows", "ten days", paragraph=1), fact("a", "b", "c", paragraph=9)
    )
    exported = await kit.export("kb")
    lines = [json.loads(line) for line in exported.splitlines()]
    text = next(line["passage"] for line in lines if "passage" in line)
    paragraphs = [part for part in text.split("\n\n") if part]
    pointed = next(line["paragraph"] for line in lines if line.get("subject") == "Carry over")
    assert paragraphs[pointed] == "## Carry over"
    assert [line["section"] for line in lines if "section" in line] == ["Leave", "Carry over"]
    assert "paragraph" not in next(line for line in lines if line.get("subject") == "a")
    await kit.contexts.delete(T, "kb")
    imported = await kit.exchange.import_stream(T, parse_stream(exported))
    assert imported.result.batches[0].association_paragraphs_dropped == 0
    assert await kit.export("kb") == exported
    assert (await kit.sources.get(T, "kb", "hr/leave.md")).occurred_at.year == 2024


async def test_a_text_that_no_stream_can_hold_is_refused_by_name(kit, monkeypatch):
    await kit.ingest("long.md", "word " * 50)
    monkeypatch.setattr(exporting, "MAX_PASSAGE_BYTES", 100)
    with pytest.raises(StrataError, match=r"long\.md") as raised:
        await kit.exchange.export(T, "kb")
    assert raised.value.kind is OVER_LIMIT


async def test_an_export_is_of_one_moment_whoever_writes_meanwhile(kit):
    def version(word):
        return [line for n in range(40) for line in (header(f"doc-{n:02}"), fact(f"{word} {n}", "is", word))]

    await kit.load(*version("old"))
    writing = asyncio.create_task(kit.load(*version("new")))
    seen = set()
    while not writing.done():
        exported = (await kit.export("kb")).decode()
        words = [json.loads(line)["object"] for line in exported.splitlines() if "subject" in line]
        assert len(words) == 40
        assert words == sorted(words), "what was written first is new, the rest is old"
        seen.add(words.count("new"))
        await asyncio.sleep(0)
    await writing
    assert seen


async def test_a_context_larger_than_memory_may_hold_is_given_in_pieces(kit):
    text = "\n\n".join(f"{n} {'word ' * 200}" for n in range(1_000))
    for number in range(6):
        await kit.load(header(f"doc-{number}"), {"passage": text})
    pieces = [piece async for piece in await kit.exchange.export(T, "kb")]
    assert len(pieces) > 20
    assert sum(b'"passage"' in line for line in b"".join(pieces).splitlines()) == 6


async def test_a_schema_is_installed_after_the_sources_and_judges_what_comes_later(kit):
    imported = await kit.load(header("doc"), fact("Ada", "wrote", "Notes"), {**SCHEMA, "mode": "strict"})
    assert kit.wire(imported.result)["schemas"] == [{"context": "kb", "mode": "strict", "types": 1, "relations": 1}]
    typed = fact("Ada", "schema:type", "Person")
    await kit.load(header("types"), typed)
    await kit.load(header("doc"), fact("Ada", "wrote", "Notes"))
    before = await state(kit, "kb")
    with pytest.raises(StrataError) as raised:
        await kit.load(
            header("doc"), {"passage": "x"}, fact("Rock", "schema:type", "Nowhere"), fact("Rock", "wrote", "N")
        )
    assert raised.value.kind is SCHEMA_VIOLATION
    assert raised.value.extra["integrity"] == "nothing_written"
    assert await state(kit, "kb") == before


async def test_a_schema_that_only_warns_lets_the_sources_in_and_counts(kit):
    await kit.load(header("doc"), fact("a", "b", "c"), SCHEMA)
    imported = await kit.load(
        header("doc"),
        fact("Rock", "schema:type", "Stone"),
        fact("Rock", "wrote", "Notes"),
        header("fine"),
        fact("a", "b", "c"),
    )
    counts = [batch.schema_violations for batch in imported.result.batches]
    assert counts[0] > 0
    assert counts[1] == 0
    assert imported.violations == sum(counts)
    assert imported.issues[0].path.startswith("batches[0].")
    assert len(await facts(kit, "kb")) == 3


async def test_a_schema_that_breaks_its_rules_leaves_the_sources(kit):
    with pytest.raises(StrataError) as raised:
        await kit.load(
            header("doc"),
            fact("a", "b", "c"),
            {**SCHEMA, "types": {"A": {"is_a": ["B"]}, "B": {"is_a": ["A"]}}, "relations": {}},
        )
    assert raised.value.kind is INVALID_REQUEST
    assert (raised.value.extra["integrity"], raised.value.extra["durable_batches"]) == ("durable_prefix", 1)
    assert len(await facts(kit, "kb")) == 1
    assert await rows(kit, "SELECT 1 FROM context_schema") == []


@pytest.mark.parametrize("form", list(Form))
async def test_a_group_is_exported_as_one_line_that_restores_it(kit, form):
    await kit.load(
        header("doc"),
        fact("a", "b", "c"),
        header("doc", "kb2"),
        fact("a", "b", "c"),
        {"taguru_group": 1, "name": "inner", "contexts": ["kb2", "kb"]},
        {"taguru_group": 1, "name": "outer", "description": "d", "groups": ["inner"]},
    )
    lines = [await kit.exchange.export_group(T, name, form=form) for name in ("inner", "outer")]
    imported = await kit.exchange.import_stream(T, parse_stream(b"".join(lines)))
    assert [group.outcome for group in imported.result.groups] == ["unchanged", "unchanged"]
    with pytest.raises(StrataError) as raised:
        await kit.exchange.export_group(T, "nowhere")
    assert raised.value.kind is GROUP_NOT_FOUND


numbers = itertools.count()
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(str.strip)
weights = st.floats(-1e6, 1e6, allow_nan=False)


# Shrinking would take minutes: every example is a database's work.
@hypothesis_settings(
    max_examples=20,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.tuples(
            names,
            st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40),
            st.lists(st.tuples(names, names, names, weights), max_size=6),
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda source: source[0],
    )
)
async def test_any_context_reads_back_to_itself(kit, sources):
    context = f"kb {next(numbers)}"
    lines = []
    for source, text, stated in sources:
        lines.append(header(source, context))
        if text is not None:
            lines.append({"passage": text})
        # Two spellings of one concept would join a concept with itself.
        lines.extend(fact(f"a{one[0]}", one[1], f"b{one[2]}", one[3]) for one in stated)
    await kit.load(*lines)
    exported = await kit.export(context)
    before = await state(kit, context)
    await kit.contexts.delete(T, context)
    await kit.exchange.import_stream(T, parse_stream(exported))
    assert await state(kit, context) == before
    assert await kit.export(context) == exported


def test_the_streams_of_these_tests_are_well_formed():
    assert len(parse_stream(stream(*RICH)).sources) == 3
