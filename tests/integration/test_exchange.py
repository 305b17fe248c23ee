"""Import over a real database: whole sources, one transaction each, refused without a trace."""

from __future__ import annotations

import asyncio

import pytest

from exchange_support import facts, graph_of, make_kit, state, stream
from ingest_support import check, rows, search
from strata.errors import CONFLICT, CONTEXT_NOT_FOUND, INVALID_REQUEST, OVER_LIMIT, SOURCE_NOT_FOUND, StrataError
from strata.exchange.parse import parse_stream
from strata.exchange.schemas import LocatorIn, QuestionIn, SectionIn, StorePassagesIn
from strata.knowledge.graph_schemas import LocatorOut
from strata.platform.ids import DEFAULT_TENANT as T
from strata.sources import write_repository

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


def alias(spelling, canonical, kind="concept"):
    return {"alias": spelling, "canonical": canonical, "kind": kind}


async def test_the_recorded_import_gives_the_recorded_answer(kit):
    imported = await kit.load(
        header("doc.md", "corpus-f", description="wire-contract import corpus"),
        {"passage": "導入。\n\n本編。"},
        {"paragraph": 1, "locator": {"kind": "page", "value": "12"}},
        fact("alpha", "connects_to", "beta"),
    )
    assert kit.wire(imported.result) == {
        "batches": [
            {
                "context": "corpus-f",
                "source": "doc.md",
                "created": True,
                "retracted": 0,
                "associations": 1,
                "aliases": 0,
                "passage_stored": True,
                "passage_dropped": False,
                "questions_stored": 0,
                "questions_dropped": 0,
                "sections_stored": 0,
                "sections_dropped": 0,
                "locators_stored": 1,
                "locators_dropped": 0,
                "association_paragraphs_dropped": 0,
                "schema_violations": 0,
            }
        ]
    }
    assert (await kit.contexts.get(T, "corpus-f")).description == "wire-contract import corpus"


async def test_a_later_refusal_leaves_the_earlier_sources(kit):
    with pytest.raises(StrataError) as raised:
        await kit.load(
            header("doc-1"), fact("alpha", "connects_to", "beta"), header("doc-2"), alias("Alpha", "存在しない")
        )
    assert raised.value.kind is CONFLICT
    extra = raised.value.extra
    assert {key: extra[key] for key in ("integrity", "durable_batches", "retryable_after_correction")} == {
        "integrity": "durable_prefix",
        "durable_batches": 1,
        "retryable_after_correction": True,
    }
    assert extra["issues"] == [
        {
            "path": "batches[1].concepts['Alpha']",
            "kind": "unknown_reference",
            "expected": "'存在しない' already interned as a concept or label this batch's associations use",
            "actual": "not present in this request",
        }
    ]
    assert extra["issues_total"] == 1
    assert await facts(kit, "kb") == {("alpha", "connects_to", "beta"): {"doc-1": (1.0, 1, None)}}


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_refused_first_source_writes_nothing_at_all(kit, dry_run):
    with pytest.raises(StrataError) as raised:
        await kit.load(header("doc"), {"passage": "text"}, fact("a", "b", "c"), alias("x", "nowhere"), dry_run=dry_run)
    assert raised.value.extra["integrity"] == "nothing_written"
    assert raised.value.extra["durable_batches"] == 0
    for table in ("context", "source", "association", "concept", "lexical_segment", "context_change"):
        assert await rows(kit, f"SELECT 1 FROM {table}") == [], table


async def test_a_context_that_is_not_there_is_made_by_its_header_only(kit):
    with pytest.raises(StrataError) as raised:
        await kit.load({"taguru_batch": 1, "context": "kb", "source": "doc"}, fact("a", "b", "c"))
    assert raised.value.kind is CONTEXT_NOT_FOUND
    identifier = "0f8fad5b-d9cb-469f-a165-70867728950e"
    made = {"type": "source", "id": "doc", "context_id": identifier, "create": {"name": "named", "dice_floor": 0.5}}
    imported = await kit.load(made, fact("a", "b", "c"))
    assert kit.wire(imported.result)["batches"][0]["context_id"] == identifier
    assert imported.result.batches[0].created
    view = await kit.contexts.get(T, "named")
    assert str(view.id) == identifier
    assert [row[0] for row in await rows(kit, "SELECT dice_floor FROM context")] == [0.5]
    again = await kit.load({**made, "create": {"name": "other"}}, fact("a", "b", "c"))
    assert not again.result.batches[0].created
    taken = {**made, "context_id": "0f8fad5b-d9cb-469f-a165-708677289500"}
    with pytest.raises(StrataError, match="name of the context"):
        await kit.load(taken, fact("a", "b", "c"))


async def test_a_source_is_replaced_whole_and_its_old_facts_are_really_gone(kit):
    await kit.load(
        header("doc"),
        {"passage": "alpha\n\nbeta"},
        {"paragraph": 0, "question": "zebra?"},
        fact("old", "is", "gone"),
        fact("kept", "is", "here", 2.0, paragraph=1),
        header("other"),
        fact("kept", "is", "here", 4.0),
    )
    imported = await kit.load(header("doc"), {"passage": "gamma"}, fact("new", "is", "there"))
    assert imported.result.batches[0].retracted == 2
    assert await facts(kit, "kb") == {
        ("new", "is", "there"): {"doc": (1.0, 1, None)},
        ("kept", "is", "here"): {"other": (4.0, 1, None)},
    }
    names = {row[0] for row in await rows(kit, "SELECT name FROM concept")}
    assert names == {"new", "there", "kept", "here"}
    assert await search(kit, "kb", "alpha zebra") == []
    assert await rows(kit, "SELECT 1 FROM passage_question") == []
    await check(kit)


async def test_a_header_alone_retracts_the_source(kit):
    await kit.load(header("doc"), {"passage": "alpha"}, fact("a", "b", "c"))
    imported = await kit.load(header("doc"))
    outcome = imported.result.batches[0]
    assert (outcome.retracted, outcome.passage_dropped, outcome.passage_stored) == (1, True, False)
    for table in ("source", "passage", "association", "attribution", "concept", "label"):
        assert await rows(kit, f"SELECT 1 FROM {table}") == [], table


async def test_paragraphs_that_the_text_lacks_are_dropped_and_counted(kit):
    imported = await kit.load(
        header("doc"),
        {"passage": "one\n\ntwo"},
        *({"paragraph": at, "question": "q"} for at in (1, 2)),
        *({"paragraph": at, "section": "s"} for at in (1, 3)),
        *({"paragraph": at, "locator": {"kind": "page", "value": "1"}} for at in (1, 4)),
        fact("a", "b", "c", paragraph=1),
        fact("d", "e", "f", paragraph=2),
    )
    outcome = imported.result.batches[0]
    assert (outcome.questions_stored, outcome.sections_stored, outcome.locators_stored) == (1, 1, 1)
    assert (outcome.questions_dropped, outcome.sections_dropped, outcome.locators_dropped) == (1, 1, 1)
    assert outcome.association_paragraphs_dropped == 1
    assert await facts(kit, "kb") == {
        ("a", "b", "c"): {"doc": (1.0, 1, 1)},
        ("d", "e", "f"): {"doc": (1.0, 1, None)},
    }


async def test_a_dry_run_says_what_the_run_would_say_and_leaves_nothing(kit):
    lines = (
        header("doc-1"),
        {"passage": "alpha"},
        fact("Alpha", "is", "first"),
        header("doc-2"),
        alias("A", "Alpha"),
        {"taguru_group": 1, "name": "all", "contexts": ["kb"]},
    )
    rehearsed = await kit.load(*lines, dry_run=True)
    for table in ("context", "source", "concept", "alias", "context_group", "lexical_segment", "context_change"):
        assert await rows(kit, f"SELECT 1 FROM {table}") == [], table
    assert (await kit.load(*lines)).result == rehearsed.result


async def test_the_same_stream_again_changes_nothing(kit):
    lines = (
        header("doc"),
        {"passage": "alpha\n\nbeta", "stored_at": 5, "tags": ["t"]},
        fact("a", "b", "c", 0.1),
        fact("a", "b", "c", 0.2),
        alias("A", "a"),
    )
    await kit.load(*lines)
    before = await state(kit, "kb")
    await kit.load(*lines)
    assert await state(kit, "kb") == before


async def test_an_alias_of_a_name_that_only_this_source_uses_survives_its_import(kit):
    await kit.load(header("doc"), fact("Alpha", "is", "first"))
    await kit.load(header("doc"), fact("Beta", "is", "second"), alias("A", "Alpha"))
    assert [row[0] for row in await rows(kit, "SELECT alias FROM alias")] == ["A"]


PARTS = [
    [("Ada Lovelace", "wrote", "Notes"), ("Notes", "describe", "Analytical Engine")],
    [("ada lovelace", "wrote", "notes"), ("Charles Babbage", "designed", "Analytical Engine")],
    [("Charles Babbage", "designed", "Analytical engine"), ("Ada Lovelace", "knew", "Charles Babbage")],
    [("Ada Lovelace", "knew", "Charles Babbage")],
    [("Analytical Engine", "precedes", "Computer"), ("Notes", "describe", "Analytical Engine")],
]


async def test_a_document_in_five_parts_gives_the_facts_of_the_whole(kit):
    """Cut or whole, a document gives the same entities and relations (user case B-19)."""
    parts = [line for n, part in enumerate(PARTS) for line in (header(f"doc#{n}"), *(fact(*each) for each in part))]
    await kit.load(*parts)
    await kit.load(header("doc", "whole"), *(fact(*each) for part in PARTS for each in part))
    assert await graph_of(kit, "kb") == await graph_of(kit, "whole")
    concepts, triples = await graph_of(kit, "whole")
    assert len(concepts) == 5
    assert len(triples) == 5


async def test_twenty_importers_of_one_source_leave_one_of_two_variants_whole(kit):
    variants = [
        [
            header("doc"),
            {"passage": "\n\n".join(f"{word} {n}" for n in range(size))},
            {"paragraph": 0, "question": word},
            *(fact(word, "counts", f"{word}{n}", paragraph=n) for n in range(size)),
            alias(f"the {word}", word),
        ]
        for word, size in (("apple", 3), ("banana", 5))
    ]
    await kit.load(header("other"), fact("apple", "counts", "apple0"), fact("banana", "counts", "banana0"))
    await asyncio.gather(*(kit.load(*variants[number % 2]) for number in range(20)))
    texts, _ = await kit.texts.lookup(T, "kb", ["doc"])
    word = "apple" if texts["doc"].startswith("apple") else "banana"
    size = 3 if word == "apple" else 5
    held = await facts(kit, "kb")
    assert {triple for triple, sources in held.items() if "doc" in sources} == {
        (word, "counts", f"{word}{n}") for n in range(size)
    }
    assert held[word, "counts", f"{word}0"] == {"doc": (1.0, 1, 0), "other": (1.0, 1, None)}
    assert [row[0] for row in await rows(kit, "SELECT question FROM passage_question")] == [word]
    await check(kit)


async def test_importers_of_many_sources_at_once_lose_nothing(kit):
    async def one(number):
        await kit.load(
            header(f"doc-{number}"), {"passage": f"text {number}"}, fact("hub", "links", f"leaf {number % 4}")
        )

    await asyncio.gather(*(one(number) for number in range(16)), kit.ingest("a.md", "alpha"), kit.ingest("b.md", "b"))
    held = await facts(kit, "kb")
    assert sum(len(sources) for sources in held.values()) == 16
    assert len(held) == 4
    await check(kit)


@pytest.mark.parametrize("step", ["insert_content", "insert_questions", "put_sources"])
async def test_a_failure_in_the_middle_leaves_the_source_as_it_was(kit, monkeypatch, step):
    lines = (header("doc"), {"passage": "before"}, {"paragraph": 0, "question": "old"}, fact("a", "b", "c"))
    await kit.load(*lines)
    before = await state(kit, "kb")

    async def failing(*_):
        raise ConnectionResetError

    with monkeypatch.context() as patch:
        patch.setattr(write_repository, step, failing)
        with pytest.raises(StrataError):
            await kit.load(header("doc"), {"passage": "after"}, fact("d", "e", "f"))
    assert await state(kit, "kb") == before
    await check(kit)


async def test_a_failure_after_the_text_leaves_the_text_as_it_was(kit, monkeypatch):
    await kit.load(header("doc"), {"passage": "before"}, fact("a", "b", "c"))
    before = await state(kit, "kb")

    async def failing(*_, **__):
        raise ConnectionResetError

    with monkeypatch.context() as patch:
        patch.setattr(kit.graph, "record_change", failing)
        with pytest.raises(StrataError):
            await kit.load(header("doc"), {"passage": "after"}, fact("d", "e", "f"))
    assert await state(kit, "kb") == before


async def test_a_text_that_cannot_be_stored_stops_the_stream_before_it_begins(kit):
    good = parse_stream(stream(header("doc-1"), {"passage": "fine"}))
    text = "x\n\n" * 1_048_576
    bad = parse_stream(stream(header("doc-2"), {"passage": text}))
    with pytest.raises(StrataError, match="1048575 paragraphs") as raised:
        await kit.exchange.import_stream(T, type(good)(sources=good.sources + bad.sources))
    assert raised.value.extra["integrity"] == "nothing_written"
    assert await rows(kit, "SELECT 1 FROM context") == []


async def test_progress_names_each_source(kit):
    told = []
    await kit.load(header("a"), fact("a", "b", "c"), header("b"), fact("a", "b", "d"), progress=told.append)
    assert [(one.done, one.total, one.source) for one in told] == [(1, 2, "a"), (2, 2, "b")]


async def test_the_change_feed_tells_what_an_import_did(kit):
    await kit.load(header("doc"), {"passage": "alpha"}, fact("a", "b", "c"), fact("a", "b", "d"), alias("A", "a"))
    await kit.load(header("doc"))
    found = await rows(kit, "SELECT kind, payload FROM context_change ORDER BY seq")
    assert [(row[0], row[1]) for row in found] == [
        ("associations_added", {"count": 2}),
        ("aliases_added", {"count": 1}),
        ("source_stored", {"source": "doc"}),
        ("source_retracted", {"source": "doc"}),
    ]


async def test_groups_are_restored_as_one_set(kit):
    await kit.load(header("doc"), fact("a", "b", "c"))
    inner = {"taguru_group": 1, "name": "inner", "contexts": ["kb"]}
    outer = {"taguru_group": 1, "name": "outer", "description": "d", "groups": ["inner"]}
    imported = await kit.load(outer, inner)
    assert kit.wire(imported.result)["groups"] == [
        {"name": "outer", "outcome": "created", "contexts": 0, "groups": 1},
        {"name": "inner", "outcome": "created", "contexts": 1, "groups": 0},
    ]
    imported = await kit.load({**outer, "description": "other"}, inner)
    assert [group.outcome for group in imported.result.groups] == ["replaced", "unchanged"]
    lost = {"taguru_group": 1, "name": "lost", "groups": ["nowhere"]}
    with pytest.raises(StrataError) as raised:
        await kit.load(header("doc-2"), fact("a", "b", "c"), {**inner, "contexts": []}, lost)
    assert (raised.value.extra["integrity"], raised.value.extra["durable_batches"]) == ("durable_prefix", 1)
    assert [row[0] for row in await rows(kit, "SELECT count(*) FROM context_group_context")] == [1]


async def test_stored_passages_leave_the_facts_of_their_source(kit):
    await kit.load(header("doc.md"), fact("a", "b", "c"))
    stored = await kit.exchange.store_passages(
        T,
        "kb",
        StorePassagesIn(
            passages={"doc.md": "導入。\n\n本編。"},
            questions={"doc.md": [QuestionIn(paragraph=0, question="q"), QuestionIn(paragraph=9, question="q")]},
            sections={"doc.md": [SectionIn(paragraph=1, section="本編")]},
            locators={"doc.md": [LocatorIn(paragraph=1, locator=LocatorOut(kind="page", value="12"))]},
            tags={"doc.md": ["t"]},
            dates={"doc.md": 77},
        ),
    )
    assert kit.wire(stored) == {
        "stored": 1,
        "questions_stored": 1,
        "questions_dropped": 1,
        "sections_stored": 1,
        "sections_dropped": 0,
        "locators_stored": 1,
        "locators_dropped": 0,
    }
    assert await facts(kit, "kb") == {("a", "b", "c"): {"doc.md": (1.0, 1, None)}}


@pytest.mark.parametrize(
    ("body", "kind", "pointer"),
    [
        (StorePassagesIn(passages={"": "x"}), INVALID_REQUEST, "/passages/"),
        (StorePassagesIn(passages={"a": "x\x00"}), INVALID_REQUEST, "/passages/a"),
        (StorePassagesIn(passages={"a": "x"}, tags={"b/c": ["t"]}), INVALID_REQUEST, "/tags/b~1c"),
        (StorePassagesIn(passages={str(n): "x" for n in range(1_001)}), OVER_LIMIT, "/passages"),
        (
            StorePassagesIn(passages={"a": "x"}, questions={"a": [QuestionIn(paragraph=-1, question="q")]}),
            INVALID_REQUEST,
            "/questions/a/0",
        ),
    ],
)
async def test_passages_that_cannot_be_stored_are_refused_whole(kit, body, kind, pointer):
    await kit.load(header("doc"), fact("a", "b", "c"))
    with pytest.raises(StrataError) as raised:
        await kit.exchange.store_passages(T, "kb", body)
    assert (raised.value.kind, raised.value.pointer) == (kind, pointer)
    assert await rows(kit, "SELECT 1 FROM source") == []


async def test_retracting_a_source_takes_its_text_and_its_facts_and_nothing_else(kit):
    await kit.load(
        header("doc"), {"passage": "alpha"}, fact("a", "b", "c"), fact("a", "b", "d"), header("x"), fact("a", "b", "c")
    )
    preview = await kit.exchange.retract_source(T, "kb", "doc", dry_run=True)
    assert (preview.associations_touched, preview.passage_removed) == (2, True)
    assert (await kit.texts.lookup(T, "kb", ["doc"]))[0] == {"doc": "alpha"}
    assert await kit.exchange.retract_source(T, "kb", "doc") == preview
    assert await facts(kit, "kb") == {("a", "b", "c"): {"x": (1.0, 1, None)}}
    assert await search(kit, "kb", "alpha") == []
    for name in ("doc", "never", "", "n\x00", "\ud83d"):
        gone = await kit.exchange.retract_source(T, "kb", name)
        assert (gone.associations_touched, gone.passage_removed) == (0, False)
    await check(kit)


async def test_a_document_that_is_ingested_anew_or_deleted_loses_its_facts(kit):
    await kit.ingest("a.md", "# A\n\nalpha")
    await kit.load(header("other"), fact("x", "y", "z"))
    await kit.say("a.md", fact("a", "b", "c"))
    await kit.ingest("a.md", "# A\n\nalpha")
    assert len(await facts(kit, "kb")) == 2
    await kit.ingest("a.md", "# A\n\nomega")
    assert list(await facts(kit, "kb")) == [("x", "y", "z")]
    await kit.say("a.md", fact("a", "b", "c"))
    await kit.sources.delete(T, "kb", "a.md")
    assert list(await facts(kit, "kb")) == [("x", "y", "z")]
    await kit.say("b.md", fact("a", "b", "c"))
    await kit.ingest("b.md", "beta")
    assert len(await facts(kit, "kb")) == 2
    await kit.sources.delete_all(T, "kb")
    assert list(await facts(kit, "kb")) == [("x", "y", "z")]
    await check(kit)


async def test_promotion_carries_whole_sources_and_is_idempotent(kit):
    await kit.load(
        header("session:w:a", "scratch"),
        {"passage": "alpha", "tags": ["t"], "date": 9, "stored_at": 5},
        fact("a", "b", "c", 0.1, paragraph=0),
        fact("a", "b", "c", 0.2, paragraph=0),
        header("session:w:b", "scratch"),
        fact("a", "b", "c", 7.0),
        fact("q", "r", "s"),
        alias("A", "a"),
        alias("Q", "q"),
    )
    await kit.load(header("old"), fact("a", "b", "c", 3.0))
    preview = await kit.exchange.promote(T, "scratch", "kb", ["session:w:a"], dry_run=True)
    assert list((await facts(kit, "kb"))["a", "b", "c"]) == ["old"]
    for _ in range(2):
        promoted = await kit.exchange.promote(T, "scratch", "kb", ["session:w:a"])
        assert promoted.result.aliases_dropped == preview.result.aliases_dropped == 1
        outcome = promoted.result.batches[0]
        assert (outcome.context, outcome.associations, outcome.aliases, outcome.passage_stored) == ("kb", 2, 1, True)
    held = await facts(kit, "kb")
    assert held == {("a", "b", "c"): {"old": (3.0, 1, None), "session:w:a": (0.1 + 0.2, 2, 0)}}
    page_text = (await kit.texts.lookup(T, "kb", ["session:w:a"]))[0]
    assert page_text == {"session:w:a": "alpha"}
    assert (await kit.texts.lookup(T, "scratch", ["session:w:a"]))[0] == page_text


@pytest.mark.parametrize(
    ("into", "names", "kind", "pointer"),
    [
        ("kb", ["doc", "gone"], SOURCE_NOT_FOUND, "/sources/1"),
        ("kb", ["n\x00"], SOURCE_NOT_FOUND, "/sources/0"),
        ("kb", [], INVALID_REQUEST, "/sources"),
        ("scratch", ["doc"], INVALID_REQUEST, "/into"),
        ("nowhere", ["doc"], CONTEXT_NOT_FOUND, "/into"),
        ("kb", [str(n) for n in range(1_001)], OVER_LIMIT, "/sources"),
    ],
)
async def test_a_promotion_that_cannot_be_writes_nothing(kit, into, names, kind, pointer):
    await kit.load(header("doc", "scratch"), fact("a", "b", "c"), header("old"), fact("x", "y", "z"))
    with pytest.raises(StrataError) as raised:
        await kit.exchange.promote(T, "scratch", into, names)
    assert (raised.value.kind, raised.value.pointer) == (kind, pointer)
    assert list(await facts(kit, "kb")) == [("x", "y", "z")]
