import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from strata.exchange.dump import (
    ContextDump,
    Fact,
    SourceState,
    assertion_weights,
    dump_group,
    dump_stream,
)
from strata.exchange.parse import parse_stream
from strata.exchange.records import (
    MAX_EPOCH,
    MAX_PARAGRAPH,
    MAX_WEIGHT,
    MIN_EPOCH,
    AliasLine,
    AssociationLine,
    Create,
    Form,
    GroupRecord,
    LocatorLine,
    PassageLine,
    QuestionLine,
    RelationRule,
    SchemaRecord,
    SectionLine,
    SourceBatch,
    Stream,
    TypeRule,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NAME = TEXT.filter(bool)
WORD = st.sampled_from(["a", "b", "東京", "x:y", '"q"', "\\", "😀", "\u2028", "a\nb"])
EPOCH = st.none() | st.integers(MIN_EPOCH, MAX_EPOCH)
PARAGRAPH = st.integers(0, 3) | st.just(MAX_PARAGRAPH)
WEIGHT = st.floats(-MAX_WEIGHT, MAX_WEIGHT).map(lambda weight: weight + 0.0)
FLOOR = st.none() | st.floats(0, 1).map(lambda floor: floor + 0.0)
UUIDS = st.uuids().map(str)


def unique(elements, key):
    return st.lists(elements, max_size=5, unique_by=key)


@st.composite
def associations(draw, has_passage):
    subject, target = draw(st.tuples(NAME, NAME).filter(lambda pair: pair[0] != pair[1]))
    since, until = draw(EPOCH), draw(EPOCH)
    if since is not None and until is not None and since >= until:
        since, until = (until, since) if since > until else (since, None)
    at = draw(st.none() | PARAGRAPH) if has_passage else None
    return AssociationLine(subject, draw(NAME), target, draw(WEIGHT), at, since, until)


@st.composite
def batches(draw, form, context, source):
    passage = draw(st.none() | st.builds(PassageLine, TEXT, EPOCH, EPOCH, unique(NAME, str).map(tuple)))
    has_passage = passage is not None
    creates = st.builds(
        Create,
        name=st.none() if form is Form.NAME else NAME,
        description=TEXT,
        pinned=st.booleans(),
        dice_floor=FLOOR,
        semantic_floor=FLOOR,
    )

    def pointing(line, *fields, key=lambda line: line.paragraph):
        lines = unique(st.builds(line, PARAGRAPH, *fields), key) if has_passage else st.just([])
        return lines.map(lambda found: tuple(sorted(found, key=lambda one: one.paragraph)))

    aliases = unique(
        st.builds(AliasLine, NAME, NAME, st.sampled_from(["concept", "label"])), lambda line: (line.kind, line.alias)
    )
    return SourceBatch(
        form=form,
        context=context,
        source=source,
        create=draw(st.none() | creates),
        passage=passage,
        associations=tuple(draw(st.lists(associations(has_passage), max_size=4))),
        aliases=tuple(draw(aliases)),
        questions=draw(pointing(QuestionLine, NAME, key=lambda line: (line.paragraph, line.question))),
        sections=draw(pointing(SectionLine, NAME)),
        locators=draw(pointing(LocatorLine, NAME, NAME)),
    )


@st.composite
def schemas(draw, form, context):
    names = unique(NAME, str).map(tuple)
    return SchemaRecord(
        form=form,
        context=context,
        mode=draw(st.sampled_from(["off", "warn", "strict"])),
        closed_labels=draw(st.booleans()),
        types=draw(st.dictionaries(NAME, st.builds(TypeRule, names), max_size=3)),
        relations=draw(st.dictionaries(NAME, st.builds(RelationRule, names, names), max_size=3)),
    )


@st.composite
def streams(draw):
    form = draw(st.sampled_from(Form))
    contexts = st.sampled_from(["sake", "茶"]) if form is Form.NAME else st.just("0b7a6e0e-30a5-4c0f-9d2e-5b1f0f6f2a11")
    keys = draw(unique(st.tuples(contexts, NAME), tuple))
    members = unique(WORD if form is Form.NAME else UUIDS, str).map(tuple)
    groups = [
        GroupRecord(form=form, name=name, description=draw(TEXT), contexts=draw(members), groups=draw(members))
        for name in draw(unique(st.sampled_from("gh"), str))
    ]
    stream = Stream(
        sources=tuple(draw(batches(form, context, source)) for context, source in keys),
        schemas=tuple(draw(schemas(form, context)) for context in draw(unique(contexts, str))),
        groups=tuple(groups),
    )
    return stream if keys or groups or stream.schemas else replace(stream, groups=(GroupRecord(form=form, name="g"),))


def plain(record):
    """The record without the numbers of its lines."""
    if isinstance(record, (tuple, list)):
        return tuple(plain(item) for item in record)
    if not hasattr(record, "__struct_fields__"):
        return record
    changes = {name: plain(getattr(record, name)) for name in record.__struct_fields__}
    return replace(record, **{**changes, **({"line": 0} if "line" in changes else {})})


@given(streams())
def test_a_written_stream_reads_back_as_it_was_and_writes_the_same_bytes(stream):
    data = b"".join(dump_stream(stream))
    again = parse_stream(data)
    assert plain(again) == stream
    assert b"".join(dump_stream(again)) == data


FACT = st.builds(
    Fact,
    st.sampled_from("ab"),
    WORD,
    st.sampled_from("cd"),
    st.floats(-1e3, 1e3),
    st.integers(0, 7),
    valid_from=st.none() | st.integers(0, 2),
)
STATES = st.dictionaries(
    st.sampled_from(["a.md", "export:unsourced", "exporu", "z", "東"]), st.lists(FACT, max_size=4), max_size=4
)


def facts_of(stream):
    """The raw sum and count of each fact, added line by line, unsourced and reserved together."""
    sums, counts = {}, {}
    for batch in stream.sources:
        for line in batch.associations:
            key = (batch.source, line.subject, line.label, line.object, line.valid_from)
            sums[key] = sums.get(key, 0.0) + line.weight
            counts[key] = counts.get(key, 0) + 1
    return {key: (sums[key], counts[key]) for key in sums}


def keyed(facts):
    return {(fact.subject, fact.label, fact.object, fact.valid_from): fact for fact in facts}


def dumped(states, unsourced=(), aliases=(), **options):
    dump = ContextDump("c", Create(description="d"), unsourced=unsourced, aliases=aliases, **options)
    lines = [*dump.start()]
    for source in sorted(states):
        lines += dump.source(SourceState(source=source, facts=states[source]))
    return [*lines, *dump.finish()], dump


@given(STATES, st.lists(FACT, max_size=3), st.randoms(use_true_random=False))
def test_every_sum_and_count_comes_back_exactly_whatever_the_order_of_the_facts(states, unsourced, random):
    states = {source: list(keyed(facts).values()) for source, facts in states.items()}
    unsourced = [] if "export:unsourced" in states else list(keyed(unsourced).values())
    lines, _ = dumped(states, unsourced)
    stream = parse_stream(b"".join(lines))
    expected = {
        (source, *key): (fact.weight + 0.0, fact.count)
        for source, facts in {"export:unsourced": unsourced, **states}.items()
        for key, fact in keyed(facts).items()
        if fact.count
    }
    assert facts_of(stream) == expected
    order = [batch.source for batch in stream.sources]
    assert order == sorted(order)
    assert [batch.create is not None for batch in stream.sources] == [True] + [False] * (len(order) - 1)
    shuffled = {source: random.sample(facts, len(facts)) for source, facts in states.items()}
    assert dumped(shuffled, random.sample(unsourced, len(unsourced)))[0] == lines


@given(st.lists(st.floats(-MAX_WEIGHT, MAX_WEIGHT), min_size=1, max_size=60))
def test_weights_add_up_to_the_sum_in_the_order_they_are_written(asserted):
    total = 0.0
    for weight in asserted:
        total += weight
    weights = list(assertion_weights(total, len(asserted)))
    again = 0.0
    for weight in weights:
        again += weight
    assert again == total
    assert len(weights) == len(asserted)
    assert all(abs(weight) <= MAX_WEIGHT for weight in weights)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("count", [2, 3, 7, 999, 100_000])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 50])
def test_weights_near_the_largest_one_never_pass_it(sign, count, steps):
    total = count * MAX_WEIGHT
    for _ in range(steps):
        total = math.nextafter(total, 0)
    again = 0.0
    for weight in assertion_weights(sign * total, count):
        assert abs(weight) <= MAX_WEIGHT
        again += weight
    assert again == sign * total


def test_small_sums_of_many_assertions_are_exact():
    for total, count in ((5e-324, 2), (1.5e-323, 4), (0.1, 3), (1e-300, 10_000), (0.7, 1_000_003)):
        again = 0.0
        for weight in assertion_weights(total, count):
            again += weight
        assert again == total
    assert list(assertion_weights(1.0, 0)) == []
    assert list(assertion_weights(2.0, 2)) == [1.0, 1.0]


def test_a_context_is_written_in_the_order_and_spelling_of_the_format():
    schema = SchemaRecord(
        context="sake", mode="warn", closed_labels=False, types={"B": TypeRule(("A",)), "A": TypeRule(())}, relations={}
    )
    aliases = [
        AliasLine("年", "創業年", "label"),
        AliasLine("Zoo", "青嶺", "concept"),
        AliasLine("Aomine", "青嶺", "concept"),
        AliasLine("gone", "nobody", "concept"),
    ]
    create = Create(description="酒", pinned=True, dice_floor=0.5)
    dump = ContextDump(
        "sake", create, schema=schema, aliases=aliases, unsourced=[Fact("青嶺", "創業年", "1907年", 1.5, 1)]
    )
    passage = PassageLine("一。\n\n二。", 1_700_000_000, None, ("t",))
    lines = [
        *dump.start(),
        *dump.source(
            SourceState(
                source="a.md",
                passage=passage,
                facts=[Fact("青嶺", "杜氏", "高瀬", 2.0, 2, 1), Fact("青嶺", "創業年", "1907年", 1e-7, 1, None, 5, 6)],
                questions=[QuestionLine(1, "z"), QuestionLine(1, "y"), QuestionLine(0, "x")],
                sections=[SectionLine(1, "s")],
                locators=[LocatorLine(1, "page", "2")],
            )
        ),
        *dump.source(SourceState(source="z.md")),
        *dump.finish(),
    ]
    types = '"types":{"A":{"is_a":[]},"B":{"is_a":["A"]}},"relations":{}}'
    made = '{"description":"酒","pinned":true,"dice_floor":0.5}}'
    assert b"".join(lines).decode().splitlines() == [
        '{"taguru_schema":1,"context":"sake","mode":"warn","closed_labels":false,' + types,
        '{"taguru_batch":1,"context":"sake","source":"a.md","create":' + made,
        '{"passage":"一。\\n\\n二。","stored_at":1700000000,"tags":["t"]}',
        '{"paragraph":0,"question":"x"}',
        '{"paragraph":1,"question":"z"}',
        '{"paragraph":1,"question":"y"}',
        '{"paragraph":1,"section":"s"}',
        '{"paragraph":1,"locator":{"kind":"page","value":"2"}}',
        '{"subject":"青嶺","label":"創業年","object":"1907年","weight":1e-7,"valid_from":5,"valid_until":6}',
        '{"subject":"青嶺","label":"杜氏","object":"高瀬","weight":1.0,"paragraph":1}',
        '{"subject":"青嶺","label":"杜氏","object":"高瀬","weight":1.0,"paragraph":1}',
        '{"taguru_batch":1,"context":"sake","source":"export:unsourced"}',
        '{"subject":"青嶺","label":"創業年","object":"1907年","weight":1.5}',
        '{"taguru_batch":1,"context":"sake","source":"z.md"}',
        '{"alias":"Aomine","canonical":"青嶺","kind":"concept"}',
        '{"alias":"Zoo","canonical":"青嶺","kind":"concept"}',
        '{"alias":"年","canonical":"創業年","kind":"label"}',
    ]
    assert dump.aliases_dropped == 1
    assert len(parse_stream(b"".join(lines)).sources) == 3


def test_the_id_form_names_the_context_by_its_id_and_says_its_name():
    identifier = "0b7a6e0e-30a5-4c0f-9d2e-5b1f0f6f2a11"
    dump = ContextDump(identifier, Create(name="sake"), form=Form.ID)
    (line,) = [*dump.start(), *dump.source(SourceState(source="a.md")), *dump.finish()]
    assert json.loads(line) == {
        "type": "source",
        "version": "2026-10-01",
        "id": "a.md",
        "context_id": identifier,
        "create": {"name": "sake", "description": ""},
    }
    group = dump_group(GroupRecord(form=Form.ID, name="g", contexts=(identifier,)))
    assert group == f'{{"type":"group","version":"2026-10-01","id":"g","context_ids":["{identifier}"]}}\n'.encode()


def test_an_empty_context_is_one_header_that_can_make_it_again():
    lines, dump = dumped({}, [Fact("a", "b", "c", 1.0, 0)], [AliasLine("x", "a", "concept")])
    assert lines == [b'{"taguru_batch":1,"context":"c","source":"export:empty","create":{"description":"d"}}\n']
    assert dump.aliases_dropped == 1


def test_unsourced_facts_join_the_source_that_an_earlier_export_left():
    fact = Fact("a", "b", "c", 1.0, 1)
    lines, _ = dumped({"export:unsourced": [replace(fact, subject="b")], "f": []}, [fact])
    (first, last) = parse_stream(b"".join(lines)).sources
    assert [line.subject for line in first.associations] == ["a", "b"]
    assert (first.source, last.source) == ("export:unsourced", "f")


def test_a_schema_that_is_off_is_not_written():
    schema = SchemaRecord(context="c", mode="off", closed_labels=False, types={}, relations={})
    assert list(ContextDump("c", Create(), schema=schema).start()) == []


def test_facts_that_oppose_each_other_are_both_written():
    lines, _ = dumped({"a": [Fact("a", "b", "c", 1.0, 1)], "b": [Fact("a", "b", "c", -1.0, 1)]})
    assert [line.weight for batch in parse_stream(b"".join(lines)).sources for line in batch.associations] == [
        1.0,
        -1.0,
    ]


def test_sources_out_of_order_are_the_callers_mistake():
    dump = ContextDump("c", Create())
    list(dump.source(SourceState(source="b")))
    for source in ("b", "a"):
        with pytest.raises(ValueError, match="ascending"):
            list(dump.source(SourceState(source=source)))


def test_lines_are_made_as_they_are_asked_for():
    stream = dump_stream(Stream(sources=(SourceBatch(context="c", source="s"),)))
    assert next(stream) == b'{"taguru_batch":1,"context":"c","source":"s"}\n'
