import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import INVALID_REQUEST, StrataError
from strata.exchange.parse import parse_stream, parse_streams
from strata.exchange.records import (
    AliasLine,
    AssociationLine,
    Create,
    Form,
    GroupRecord,
    LocatorLine,
    PassageLine,
    QuestionLine,
    RelationRule,
    SectionLine,
    TypeRule,
)

ID = "0b7a6e0e-30a5-4c0f-9d2e-5b1f0f6f2a11"
HEADER = '{"taguru_batch":1,"context":"sake","source":"a.md"}'
FACT = '{"subject":"a","label":"b","object":"c","weight":1.0}'
PASSAGE = '{"passage":"one\\n\\ntwo"}'


def short(value):
    return ascii(value)[1:40]


def stream_of(*lines):
    return "\n".join(lines).encode()


def read(*lines):
    return parse_stream(stream_of(*lines))


def refused(*lines, name=None):
    with pytest.raises(StrataError) as caught:
        parse_stream(stream_of(*lines), name=name)
    error = caught.value
    assert error.kind is INVALID_REQUEST
    assert error.detail.startswith(f"line {error.extra['line']}: " if name is None else f"{name}: line ")
    assert set(error.extra["issue"]) == {"path", "kind", "expected", "actual"}
    assert all(error.extra["issue"].values())
    assert error.remedy
    error.detail.encode()
    return error


def issue(*lines):
    error = refused(*lines)
    found = error.extra["issue"]
    return error.extra["line"], found["path"], found["kind"]


def test_a_source_is_read_with_every_kind_of_line():
    stream = read(
        '{"taguru_batch": 1, "context": "sake", "source": "doc.md", "create": {"description": "d", "dice_floor": 0}}',
        '{"passage": "導入。\\n\\n本編。", "stored_at": 1700000000, "date": -5, "tags": ["x", "y", "x"]}',
        '{"paragraph": 1, "locator": {"kind": "page", "value": "12"}}',
        '{"paragraph": 0, "section": "始"}',
        '{"paragraph": 1, "question": "why?"}',
        '{"subject": "alpha", "label": "connects_to", "object": "beta", "weight": -1, "paragraph": 1}',
        '{"alias": "A", "canonical": "alpha", "kind": "concept"}',
    )
    (batch,) = stream.sources
    assert (batch.form, batch.context, batch.source, batch.line) == (Form.NAME, "sake", "doc.md", 1)
    assert batch.create == Create(description="d", dice_floor=0.0)
    assert batch.passage == PassageLine("導入。\n\n本編。", 1_700_000_000, -5, ("x", "y"), 2)
    assert batch.locators == (LocatorLine(1, "page", "12", 3),)
    assert batch.sections == (SectionLine(0, "始", 4),)
    assert batch.questions == (QuestionLine(1, "why?", 5),)
    assert batch.associations == (AssociationLine("alpha", "connects_to", "beta", -1.0, 1, line=6),)
    assert batch.aliases == (AliasLine("A", "alpha", "concept", 7),)


def test_the_id_form_is_read_with_and_without_its_revision():
    stream = read(
        f'{{"type":"source","id":"a.md","context_id":"{ID}","create":{{"name":"sake"}}}}',
        FACT,
        f'{{"type":"schema","version":"2026-10-01","context_id":"{ID}","mode":"warn","closed_labels":false,'
        '"types":{"T":{"is_a":["U"]}},"relations":{"r":{"domain":["T"],"range":[]}}}',
        f'{{"type":"group","id":"g","context_ids":["{ID}","{ID}"],"groups":["h"]}}',
    )
    assert stream.sources[0].form is Form.ID
    assert stream.sources[0].context == ID
    assert stream.sources[0].create == Create(name="sake")
    assert stream.schemas[0].types == {"T": TypeRule(("U",))}
    assert stream.schemas[0].relations == {"r": RelationRule(("T",), ())}
    assert stream.groups == (GroupRecord(form=Form.ID, name="g", contexts=(ID,), groups=("h",), line=4),)


def test_a_header_alone_takes_back_what_its_source_said():
    assert read(HEADER).sources[0].associations == ()


def test_an_assertion_may_say_when_it_holds():
    fact = FACT[:-1]
    stream = read(
        HEADER, f'{fact},"valid_from":0}}', f'{fact},"valid_until":9}}', f'{fact},"valid_from":-1,"valid_until":0}}'
    )
    assert [(line.valid_from, line.valid_until) for line in stream.sources[0].associations] == [
        (0, None),
        (None, 9),
        (-1, 0),
    ]
    assert issue(HEADER, f'{fact},"valid_from":5,"valid_until":5}}') == (2, "valid_until", "range")
    assert issue(HEADER, f'{fact},"valid_from":1.5}}') == (2, "valid_from", "type")
    error = refused(HEADER, f'{fact},"valid_from":1700000000000}}')
    assert "not milliseconds" in error.remedy


def test_the_key_that_comes_first_in_the_order_says_what_a_line_is():
    assert issue(HEADER, '{"alias":"x","passage":"y"}') == (2, "passage", "domain")
    assert issue(HEADER, '{"question":"q","section":"s","paragraph":0}') == (2, "section", "domain")
    assert issue(HEADER, '{"subject":null,"alias":"x"}') == (2, "alias", "domain")


@pytest.mark.parametrize("blank", ["", " ", "\t\r", "\u3000\xa0\u2028", "\x0b\x0c"])
def test_blank_lines_count_and_say_nothing(blank):
    stream = read(blank, HEADER + "\r", blank, f"\u3000 {FACT}\xa0\r")
    assert stream.sources[0].line == 2
    assert stream.sources[0].associations[0].line == 4


def test_a_byte_order_mark_stands_at_the_start_only():
    assert parse_stream(b"\xef\xbb\xbf" + stream_of(HEADER)).sources
    error = refused(HEADER, "\ufeff" + FACT)
    assert error.extra["line"] == 2
    assert "byte order mark" in error.detail


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_an_empty_stream_is_refused(data):
    with pytest.raises(StrataError, match=r"^line 1: "):
        parse_stream(data)


def test_no_files_are_an_empty_stream_and_an_empty_file_among_others_is_named():
    with pytest.raises(StrataError, match=r"^line 1: "):
        parse_streams([])
    with pytest.raises(StrataError, match=r"^b\.jsonl: line 1: ") as caught:
        parse_streams([("a.jsonl", stream_of(HEADER)), ("b.jsonl", b"")])
    assert caught.value.extra["file"] == "b.jsonl"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("{", "malformed JSON"),
        ("[1]", "an array"),
        ('"x"', "a string"),
        ("null", "null"),
        ("{} {}", "malformed JSON"),
        ("\x1c{}", "malformed JSON"),
        ('{"subject":NaN}', "NaN"),
        ('{"weight":1e999}', "number out of range"),
        ('{"weight":' + "9" * 5_000 + "}", ""),
        ('{"passage":"\\ud800"}', "surrogate"),
        ('{"\\udfff":1}', "surrogate"),
        ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "nesting"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "nesting"),
        ("{}", "an empty object"),
        ('{"context":"c","source":"s"}', "'context'"),
    ],
    ids=short,
)
def test_a_line_that_is_no_known_object_is_refused_with_its_number(line, word):
    error = refused(HEADER, line)
    assert error.extra["line"] == 2
    assert word in error.detail


@pytest.mark.parametrize("data", [b"\xff\xfe{", b'{"passage":"\xed\xa0\x80"}', b'{"passage":"\xff"}', b"\x80"])
def test_bytes_that_are_not_utf8_are_refused(data):
    with pytest.raises(StrataError, match=r"^line 2: expected UTF-8, found the byte 0x"):
        parse_stream(HEADER.encode() + b"\n" + data)


def test_a_surrogate_pair_in_escapes_is_one_character():
    assert read(HEADER, '{"passage":"\\ud83d\\ude00"}').sources[0].passage.text == "😀"


def test_a_key_said_twice_is_refused_wherever_it_stands():
    assert issue(HEADER, '{"subject":"a","label":"b","object":"c","weight":1,"weight":2}') == (2, "weight", "conflict")
    assert issue(HEADER, '{"passage":"a:b","\\u0070assage":"c"}') == (2, "passage", "conflict")
    assert issue(HEADER, PASSAGE, '{"paragraph":0,"locator":{"kind":"a","kind":"b","value":"c"}}') == (
        3,
        "kind",
        "conflict",
    )
    assert read(HEADER, '{"passage" : "a:\\"b\\":c"}').sources[0].passage.text == 'a:"b":c'


def test_a_line_has_a_cap():
    long = '{"passage":"' + "x" * (16 * 1024 * 1024) + '"}'
    assert issue(HEADER, long) == (2, "line", "too_long")


@pytest.mark.parametrize(
    ("line", "path", "kind"),
    [
        ('{"subject":"a","label":"b","object":"c"}', "weight", "missing"),
        ('{"subject":"a","label":null,"object":"c","weight":1}', "label", "missing"),
        ('{"subject":1,"label":"b","object":"c","weight":1}', "subject", "type"),
        ('{"subject":"","label":"b","object":"c","weight":1}', "subject", "empty"),
        ('{"subject":"%s","label":"b","object":"c","weight":1}' % ("漢" * 342), "subject", "too_long"),
        ('{"subject":"a\\u0000","label":"b","object":"c","weight":1}', "subject", "domain"),
        ('{"subject":"a","label":"b","object":"a","weight":1}', "object", "domain"),
        ('{"subject":"a","label":"b","object":"c","weight":1000000.1}', "weight", "range"),
        ('{"subject":"a","label":"b","object":"c","weight":true}', "weight", "type"),
        ('{"subject":"a","label":"b","object":"c","weight":"1"}', "weight", "type"),
        ('{"subject":"a","label":"b","object":"c","weight":%s}' % ("9" * 400), "weight", "range"),
        ('{"subject":"a","label":"b","object":"c","weight":1,"paragraph":-1}', "paragraph", "range"),
        ('{"subject":"a","label":"b","object":"c","weight":1,"paragraph":1.0}', "paragraph", "type"),
        ('{"subject":"a","label":"b","object":"c","weight":1,"source":"x"}', "source", "domain"),
        ('{"subject":"a","label":"b","object":"c","wieght":1}', "wieght", "domain"),
        ('{"alias":"a","canonical":"b","kind":"thing"}', "kind", "domain"),
        ('{"alias":"a","canonical":"b"}', "kind", "missing"),
        ('{"alias":"","canonical":"b","kind":"label"}', "alias", "empty"),
        ('{"passage":null}', "passage", "missing"),
        ('{"passage":"a\\u0000b"}', "passage", "domain"),
        ('{"passage":"a","date":"2024-01-01"}', "date", "type"),
        ('{"passage":"a","stored_at":1e3}', "stored_at", "type"),
        ('{"passage":"a","tags":"x"}', "tags", "type"),
        ('{"passage":"a","tags":["x",""]}', "tags[1]", "empty"),
        ('{"passage":"a","tags":["%s"]}' % ("x" * 129), "tags[0]", "too_long"),
        (json.dumps({"passage": "a", "tags": [str(at) for at in range(33)]}), "tags", "over_limit"),
        ('{"question":"q"}', "paragraph", "missing"),
        ('{"paragraph":0,"question":"%s"}' % ("x" * 513), "question", "too_long"),
        ('{"paragraph":0,"section":""}', "section", "empty"),
        ('{"paragraph":0,"section":"%s"}' % ("x" * 513), "section", "too_long"),
        ('{"paragraph":0,"locator":"p"}', "locator", "type"),
        ('{"paragraph":0,"locator":{"kind":"%s","value":"v"}}' % ("x" * 65), "locator.kind", "too_long"),
        ('{"paragraph":0,"locator":{"kind":"k"}}', "locator.value", "missing"),
        ('{"paragraph":0,"locator":{"kind":"k","value":"v","x":1}}', "locator.x", "domain"),
    ],
    ids=short,
)
def test_a_field_that_breaks_its_rule_is_named(line, path, kind):
    assert issue("", HEADER, line) == (3, path, kind)


def test_the_caps_themselves_are_allowed():
    name = "漢" * 341 + "x"
    read(
        HEADER,
        json.dumps({"passage": "x" * (8 * 1024 * 1024), "tags": [f"{at:0128}" for at in range(32)]}),
        json.dumps({"subject": name, "label": name, "object": "y", "weight": -1e6, "paragraph": 2**32 - 1}),
        json.dumps({"paragraph": 0, "locator": {"kind": "k" * 64, "value": "v" * 512}}),
        '{"subject":"a","label":"b","object":"c","weight":0,"paragraph":null,"valid_from":null}',
    )
    assert issue(HEADER, json.dumps({"passage": "x" * (8 * 1024 * 1024 + 1)})) == (2, "passage", "too_long")


@pytest.mark.parametrize(
    ("line", "path", "kind"),
    [
        ('{"taguru_batch":2,"context":"c","source":"s"}', "taguru_batch", "domain"),
        ('{"taguru_batch":"1","context":"c","source":"s"}', "taguru_batch", "type"),
        ('{"taguru_batch":true,"context":"c","source":"s"}', "taguru_batch", "type"),
        ('{"taguru_batch":1,"context":"c"}', "source", "missing"),
        ('{"taguru_batch":1,"context":"","source":"s"}', "context", "empty"),
        ('{"taguru_batch":1,"context":"%s","source":"s"}' % ("x" * 129), "context", "too_long"),
        ('{"taguru_batch":1,"context":"c","source":"%s"}' % ("x" * 1025), "source", "too_long"),
        ('{"taguru_batch":1,"context":"c","source":"s","create":[]}', "create", "type"),
        ('{"taguru_batch":1,"context":"c","source":"s","create":{"name":"c"}}', "create.name", "domain"),
        ('{"taguru_batch":1,"context":"c","source":"s","create":{"pinned":1}}', "create.pinned", "type"),
        ('{"taguru_batch":1,"context":"c","source":"s","create":{"dice_floor":1.1}}', "create.dice_floor", "range"),
        ('{"type":"sauce"}', "type", "domain"),
        ('{"type":1}', "type", "type"),
        ('{"type":"source","id":"s","context_id":"UPPER"}', "context_id", "domain"),
        ('{"type":"source","id":"s","context_id":"BARE"}', "context_id", "domain"),
        ('{"type":"source","version":"2026-09-01","id":"s","context_id":"ID"}', "version", "domain"),
        ('{"type":"source","version":1,"id":"s","context_id":"ID"}', "version", "domain"),
        ('{"type":"source","id":"s","context_id":"ID","create":{}}', "create.name", "missing"),
        ('{"type":"source","source":"s","context_id":"ID"}', "source", "domain"),
        ('{"taguru_schema":1,"context":"c","mode":"off","closed_labels":false,"types":{}}', "relations", "missing"),
        (
            '{"taguru_schema":1,"context":"c","mode":"loud","closed_labels":false,"types":{},"relations":{}}',
            "mode",
            "domain",
        ),
        (
            '{"taguru_schema":1,"context":"c","mode":"off","closed_labels":false,"types":{"T":{}},"relations":{}}',
            "types.'T'.is_a",
            "missing",
        ),
        ('{"type":"schema","id":"x","context_id":"ID"}', "id", "domain"),
        ('{"taguru_group":1,"name":"g","contexts":["a",2]}', "contexts[1]", "type"),
        (json.dumps({"taguru_group": 1, "name": "g", "contexts": ["c"] * 1001}), "contexts", "over_limit"),
        ('{"type":"group","id":"g","context_ids":["c"]}', "context_ids[0]", "domain"),
    ],
    ids=short,
)
def test_a_record_that_breaks_a_rule_is_named(line, path, kind):
    for word, value in (("UPPER", ID.upper()), ("BARE", ID.replace("-", "")), ("ID", ID)):
        line = line.replace(f'"{word}"', f'"{value}"')
    assert issue(line) == (1, path, kind)


def test_lines_that_point_into_a_missing_passage_are_refused_at_the_first_of_them():
    pointed = FACT[:-1] + ',"paragraph":0}'
    for line in ('{"paragraph":0,"question":"q"}', '{"paragraph":0,"section":"s"}', pointed):
        assert issue(HEADER, FACT, line, '{"paragraph":7,"section":"t"}') == (3, "passage", "missing")
        assert issue(HEADER, line, '{"taguru_group":1,"name":"g"}') == (2, "passage", "missing")
        assert read(HEADER, line, PASSAGE).sources
    assert read(HEADER, '{"passage":""}', pointed).sources[0].passage.text == ""


def test_an_operation_needs_an_open_source():
    assert issue(FACT) == (1, "line", "missing")
    assert issue(HEADER, '{"taguru_group":1,"name":"g"}', FACT) == (3, "line", "missing")


def test_what_may_stand_once_in_a_source_is_refused_the_second_time():
    assert issue(HEADER, PASSAGE, PASSAGE) == (3, "passage", "conflict")
    alias = '{"alias":"x","canonical":"a","kind":"concept"}'
    assert issue(HEADER, alias, alias) == (3, "alias", "conflict")
    other = HEADER.replace("a.md", "b.md")
    assert len(read(HEADER, alias, alias.replace("concept", "label"), other, alias).sources) == 2


def test_questions_fold_and_have_a_cap_a_paragraph():
    lines = [f'{{"paragraph":0,"question":"q{at}"}}' for at in range(8)]
    stream = read(HEADER, PASSAGE, '{"paragraph":1,"question":"q"}', *lines, *lines)
    assert [(line.paragraph, line.question) for line in stream.sources[0].questions] == [
        *((0, f"q{at}") for at in range(8)),
        (1, "q"),
    ]
    assert issue(HEADER, PASSAGE, *lines, '{"paragraph":0,"question":"q8"}') == (11, "question", "over_limit")


def test_the_last_section_and_locator_of_a_paragraph_count():
    batch = read(
        HEADER,
        PASSAGE,
        '{"paragraph":1,"section":"x"}',
        '{"paragraph":0,"section":"y"}',
        '{"paragraph":1,"section":"z"}',
        '{"paragraph":1,"locator":{"kind":"page","value":"1"}}',
        '{"paragraph":1,"locator":{"kind":"page","value":"2"}}',
    ).sources[0]
    assert [(line.paragraph, line.section) for line in batch.sections] == [(0, "y"), (1, "z")]
    assert [line.value for line in batch.locators] == ["2"]


@pytest.mark.parametrize(
    "record",
    [
        HEADER,
        f'{{"type":"source","id":"s","context_id":"{ID}"}}',
        '{"taguru_schema":1,"context":"c","mode":"off","closed_labels":true,"types":{},"relations":{}}',
        '{"taguru_group":1,"name":"g"}',
    ],
)
def test_a_record_stands_once_in_a_stream_and_across_files(record):
    assert issue(record, "", record) == (3, "line", "conflict")
    with pytest.raises(StrataError, match=r"^two: line 2: .* after one line 1\."):
        parse_streams([("one", record.encode()), ("two", b"\n" + record.encode())])
    with pytest.raises(StrataError, match=r"^one: line 1: .* after one line 1\."):
        parse_streams([("one", record.encode()), ("one", record.encode())])


def test_spellings_that_are_one_name_are_one_context():
    composed, decomposed = HEADER.replace("sake", "café"), HEADER.replace("sake", " cafe\u0301 ")
    assert issue(composed, decomposed) == (2, "line", "conflict")


def test_files_make_one_stream_and_each_source_knows_its_file():
    other = HEADER.replace("a.md", "b.md")
    stream = parse_streams([("one", b"\xef\xbb\xbf" + stream_of(HEADER, FACT)), ("two", stream_of("", other))])
    assert [(batch.source, batch.file, batch.line) for batch in stream.sources] == [
        ("a.md", "one", 1),
        ("b.md", "two", 2),
    ]
    error = refused(HEADER, "{", name="three")
    assert error.extra["file"] == "three"


def test_deep_nesting_leaves_the_interpreter_as_it_was():
    limit = sys.getrecursionlimit()
    for depth in (200, 480, 700, 990, 1_500):
        refused(HEADER, '{"passage":"\\ud800:","x":' + "[" * depth + "]" * depth + "}")
        refused(HEADER, '{"passage":"::","x":' + "[" * depth + "]" * depth + "}")
    assert sys.getrecursionlimit() == limit


@given(
    st.lists(st.binary(max_size=40) | st.sampled_from([HEADER.encode(), FACT.encode(), PASSAGE.encode()]), max_size=6)
)
def test_whatever_comes_is_a_stream_or_a_refusal_with_a_line(parts):
    data = b"\n".join(parts)
    try:
        parse_stream(data)
    except StrataError as error:
        line, detail = error.extra["line"], error.detail
    else:
        return
    assert 1 <= line <= data.count(b"\n") + 1
    detail.encode()
