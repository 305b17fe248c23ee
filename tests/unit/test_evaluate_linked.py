"""A judged set becomes sources with the facts that its own titles and first sentences give."""

from __future__ import annotations

import json

from strata.evaluate.linked import Titles, import_stream, linked
from strata.exchange.parse import parse_stream
from strata.sources.readers import BeirRecord


def documents(*pairs):
    return [BeirRecord(f"d{number}", title, text, {}, number + 1, {}) for number, (title, text) in enumerate(pairs)]


def facts(given, at=0):
    lines = dict(linked(given, Titles(given)))[f"d{at}"]
    return [(line["label"], line["object"]) for line in lines if "label" in line]


def test_a_document_says_what_it_is_and_which_others_it_mentions():
    given = documents(
        ("Brand", "Brand is a play by Henrik Ibsen. It was staged in Norway."), ("Henrik Ibsen", "x"), ("Norway", "x")
    )
    assert facts(given) == [("is", "play by Henrik Ibsen"), ("mentions", "Henrik Ibsen"), ("mentions", "Norway")]


def test_only_whole_names_in_their_own_spelling_count():
    given = documents(
        ("A play", "Norwegian brands in the north, North Norway, and NORWAY."), ("Norway", "x"), ("Brand", "x")
    )
    assert facts(given) == [("mentions", "Norway")]
    given = documents(("A play", "Norwegian brands in NORWAY."), ("Norway", "x"), ("Brand", "x"))
    assert facts(given) == []


def test_a_name_is_found_wherever_it_stands_in_a_long_text():
    for before in (0, 760, 770, 1015, 1024, 3000):
        given = documents(("Long", "x " * (before // 2) + "Henrik Ibsen" + " y" * 900), ("Henrik Ibsen", "x"))
        assert facts(given) == [("mentions", "Henrik Ibsen")]


def test_a_document_never_mentions_itself_and_one_without_a_title_has_no_facts():
    given = documents(("Brand", "Brand, Brand and Brand."), ("", "This is a text about Brand."), ("...", "x ... y"))
    assert facts(given) == []
    assert facts(given, 1) == []
    assert facts(given, 2) == []


def test_a_question_mentions_titles_in_any_case_longest_first():
    titles = Titles(documents(("Brand", "x"), ("Henrik Ibsen", "x"), ("Ibsen", "x")))
    assert titles.in_question("which brand did henrik ibsen own?") == ["Henrik Ibsen", "Brand"]


def test_the_stream_imports_each_document_as_one_paragraph_under_its_title():
    given = documents(("Brand", "One.\n\nTwo of  Norway."), ("Norway", "A country."), ("Empty", "  "))
    stream = import_stream(linked(given, Titles(given)), "c")
    batches = parse_stream(stream).sources
    assert [batch.source for batch in batches] == ["d0", "d1"]
    assert batches[0].passage.text == "One. Two of Norway."
    assert [(line.subject, line.object, line.paragraph) for line in batches[0].associations] == [("Brand", "Norway", 0)]
    assert json.loads(stream.splitlines()[2]) == {"paragraph": 0, "section": "Brand"}
