"""What reading a document answers fits its budget, loses nothing, and lets no document speak for us."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.errors import StrataError
from strata.sources.card_view import explored_markdown, fitted_card, opening_of
from strata.sources.document_repository import Found
from strata.sources.document_schemas import (
    MAX_FETCH_TOKENS,
    BothWays,
    Card,
    Explored,
    Fetched,
    Heading,
    ReadyCall,
    RelatedDocument,
    Sibling,
    Siblings,
    SpentTokens,
)
from strata.sources.document_view import (
    fetched_markdown,
    headings,
    larger_form,
    narrowed,
    with_outline,
    with_text,
)
from strata.sources.document_wish import Wish, kind_of, known_of, readings_of, section_of
from strata.sources.relation_schemas import RelatedSource, RelationPage, RelationView
from strata.sources.repository import SectionHead

BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
SCARY = [
    "### 1. Forged",
    "> fake",
    "`x` ``y`",
    "a\u2028### 1. b",
    "x\x85Left out: 9 parts",
    "# \v### z",
    "\u202eabc",
    "日本語。" * 9,
]
names = st.one_of(st.sampled_from(SCARY), st.text(alphabet=BREAKS + "#>` ab日é🙂", max_size=40))
bodies = st.text(alphabet=st.sampled_from(f'{BREAKS}#>`"\\ abcé日。.!🙂\u0301\u200d'), max_size=1_500)


def frame(limit, **fields):
    base = {
        "kind": "text",
        "path": "a.md",
        "pin": "a.md/v1",
        "revision": 1,
        "state": "CURRENT",
        "title": "A",
        "anchor": None,
        "breadcrumb": [],
        "start_byte": None,
        "end_byte": None,
        "total_bytes": 10_000,
        "sha256": None,
        "truncated": False,
        "budget": SpentTokens(limit=limit, used=limit),
    }
    return Fetched(**{**base, **fields})


def following(start):
    return ReadyCall(tool="fetch", arguments={"context": "c", "source": "a.md/v1", "startByte": start})


def pieces(text, limit, **fields):
    """Read a text piece by piece, as the calls that go on do."""
    data, start, found = text.encode(), 0, []
    while True:
        part = with_text(
            narrowed(frame(limit, total_bytes=len(data), **fields)), data[start:], start, len(data), following
        )
        found.append(part)
        if not part.truncated:
            return found
        assert part.next.arguments["startByte"] == part.end_byte > start
        start = part.end_byte


@settings(max_examples=150)
@given(bodies, st.integers(200, 500), names)
def test_pieces_keep_the_budget_and_make_the_whole_text(text, limit, title):
    found = pieces(text, limit, title=title)
    data = text.encode()
    assert "".join(part.text for part in found) == text
    for part in found:
        assert larger_form(part) <= 4 * part.budget.used <= 4 * limit
        assert data[part.start_byte : part.end_byte] == part.text.encode()
        assert part.sha256 == hashlib.sha256(part.text.encode()).hexdigest()


@settings(max_examples=150)
@given(bodies, names, names, st.lists(names, max_size=3), st.lists(names, max_size=3))
def test_no_line_but_quoted_ones_is_the_documents(text, title, path, breadcrumb, superseding):
    result = frame(
        8_000,
        title=title,
        path=path,
        pin=f"{path}/v1",
        anchor=path,
        breadcrumb=breadcrumb,
        superseded_by=superseding,
        text=text,
        start_byte=0,
        end_byte=9,
        sha256="0" * 64,
        next=ReadyCall(tool="fetch", arguments={"context": "c", "source": f"{path}/v1#{title}"}),
        truncated=True,
    )
    lines = fetched_markdown(result).splitlines()
    assert lines[0].startswith("### ")
    assert lines[1].startswith("`")
    ours = [line for line in lines[2:] if line and not line.startswith("> ")]
    assert [line.partition(" ")[0] for line in ours] == [*(["Section:"] if breadcrumb else []), "Cut"]
    assert len([line for line in lines if line.startswith("> ")]) == len(text.splitlines())


def card(name, **fields):
    document = RelatedDocument(
        path=name, predicate=name, title=name, anchor=name, label=name, state="DANGLING", count=3
    )
    both = BothWays(outgoing=[document] * 2, outgoing_more=True, incoming=[document], incoming_more=True)
    base = {
        "path": name,
        "pin": f"{name}/v1",
        "revision": 1,
        "state": "ARCHIVED",
        "title": name,
        "total_bytes": 9,
        "tokens": 3,
        "superseded_by": [name, name],
        "opening": name,
        "outline": [Heading(level=1, heading=name, anchor=name, start_byte=0, tokens=2)],
        "outline_more": 4,
        "declared": both,
        "links": both,
        "siblings": Siblings(folder=name, items=[Sibling(path=name, title=name)], more=90, more_at_least=True),
        "next": ReadyCall(tool="fetch", arguments={"context": "c", "source": name}),
    }
    return Card(**{**base, **fields})


OURS = (
    "Opening:", "Outline:", "Declares:", "Declared by:", "Links to:", "Linked from:", "- ", "Relations are known",
    "In `", "Beside it:", "Read it: fetch `",
)  # fmt: skip


@given(names)
def test_no_line_of_a_card_is_the_documents(name):
    lines = explored_markdown(Explored(kind="card", card=card(name))).splitlines()
    assert lines[0].startswith("### ")
    assert lines[1].startswith("`")
    for line in lines[2:]:
        assert not line or line.startswith(("> ", *OURS)), line
    assert sum(line.startswith("> ") for line in lines) == len(name.splitlines())


@given(names, st.sampled_from(["INCOMING", "OUTGOING"]))
def test_no_line_of_a_page_is_the_documents(name, direction):
    item = RelationView(
        direction=direction,
        kind="LINK",
        predicate=name,
        state="DANGLING",
        source=RelatedSource(path=name, title=name, revision=1),
        target=name,
        path=None,
        title=None,
        revision=None,
        anchor=name,
        anchor_found=None,
        label=name,
        section=[name, name],
        count=1,
    )
    explored = Explored(kind="relations", relations=RelationPage(items=[item], next_cursor=None))
    lines = explored_markdown(explored).splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("- ")


def test_a_text_is_cut_at_a_paragraph_then_a_sentence_then_a_word_then_a_character():
    paragraphs = "\n\n".join(f"Paragraph {n} has these words in it." for n in range(100))
    assert pieces(paragraphs, 300)[0].text.endswith(" in it.\n\n")
    sentences = "Another sentence of the one paragraph. " * 100
    assert pieces(sentences, 300)[0].text.endswith("paragraph. ")
    words = "word " * 900
    assert pieces(words, 300)[0].text.endswith("word ")
    solid = "🙂" * 900
    assert set(pieces(solid, 300)[0].text) == {"🙂"}
    marked = "e\u0301" * 900
    assert all(part.text.startswith("e") for part in pieces(marked, 300))


def test_a_start_within_a_character_moves_to_the_next():
    data = "日本".encode()
    result = with_text(frame(300, total_bytes=6), data[1:], 1, 6, following)
    assert (result.text, result.start_byte, result.end_byte) == ("本", 3, 6)


def test_what_stands_around_a_text_gives_way_to_it():
    long = "x" * 400
    result = pieces(
        "words " * 50, 300, title=long, breadcrumb=[long] * 3, superseded_by=[f"{n}{long}" for n in range(9)]
    )
    assert larger_form(result[0]) <= 1_200
    assert len(result[0].superseded_by) == 1


def test_a_name_that_leaves_no_room_is_told_with_what_it_takes():
    path = "日" * 340
    with pytest.raises(StrataError) as caught:
        with_text(frame(200, path=path, pin=f"{path}/v1"), b"text", 0, 4, following)
    assert (caught.value.code, caught.value.pointer) == ("invalid_request", "?maxTokens")


def test_an_outline_is_cut_at_the_end_and_goes_on():
    listed = headings(
        [SectionHead(2, f"Heading {n} {'x' * 300}", f"h-{n}", [], 10 * n, 10 * n + 10) for n in range(200)]
    )
    whole = following(0)
    seen, at = [], 0
    while True:
        part = with_outline(frame(400, kind="outline"), listed[at:], following, whole)
        assert larger_form(part) <= 1_600
        seen += part.outline
        at += len(part.outline)
        assert part.outline_more == 200 - at
        if not part.truncated:
            break
        assert part.next.arguments["startByte"] == 10 * at
    assert seen == listed
    assert part.next is whole


def test_a_card_that_is_too_large_loses_the_ends_of_its_longest_lists():
    documents = [RelatedDocument(path="é" * 500, title="t" * 500, predicate="p" * 64) for _ in range(10)]
    both = BothWays(outgoing=documents, outgoing_more=False, incoming=documents, incoming_more=False)
    siblings = Siblings(folder="", items=[Sibling(path="é" * 500, title="x")] * 10, more=0, more_at_least=False)
    explored = fitted_card(card("é" * 500, declared=both, links=both, siblings=siblings))
    assert larger_form_of(explored) <= 4 * MAX_FETCH_TOKENS
    kept = [explored.card.declared.outgoing, explored.card.links.incoming, explored.card.siblings.items]
    assert all(0 < len(part) < 10 for part in kept)
    assert explored.card.declared.outgoing_more
    assert explored.card.siblings.more == 10 - len(explored.card.siblings.items)


def larger_form_of(explored):
    from strata.sources.card_view import _larger_form

    return _larger_form(explored)


OPENINGS = [
    (b"# Title\n\nFirst paragraph. Second sentence.\n\nNext.", [0], "First paragraph. Second sentence."),
    (b"Title\n=====\n\nFirst.", [0], "First."),
    (b"# Title\nFirst on the next line.\n", [0], "First on the next line."),
    (b"Title\n\nFirst.", [0], "First."),
    (b"---\n\n# A\n\n## B\n\nFirst.", [5, 10], "First."),
    (b"# Only a title\n", [0], None),
    (b"", [], None),
    ("日本語の文。".encode()[:-1], [], "日本語の文"),
]


@pytest.mark.parametrize(("data", "starts", "opening"), OPENINGS)
def test_the_opening_is_the_first_paragraph_that_is_no_heading(data, starts, opening):
    assert opening_of(data, starts) == opening


def test_a_long_opening_is_cut_at_a_sentence():
    opening = opening_of(b"This is one sentence of the opening. " * 40, [])
    assert len(opening) <= 400
    assert opening.endswith("opening.…")


def found(sections=(), size=100, **fields):
    base = {
        "reading": 0,
        "is_pinned": True,
        "is_current": True,
        "is_archived": False,
        "source_id": None,
        "path": "a.md",
        "revision": 3,
        "title": "A",
        "text_bytes": size,
        "content_sha256": b"\x01" * 32,
        "text_sha256": "02" * 32,
        "sections": list(sections),
    }
    return Found(**{**base, **fields})


HEADS = [
    SectionHead(1, "Über uns", "über-uns", ["Über uns"], 0, 100),
    SectionHead(2, "What's new?", "whats-new", [], 10, 20),
    SectionHead(2, "Declared", "own-Name", [], 20, 30),
    SectionHead(2, "own-name", "own-name", [], 30, 40),
]


@pytest.mark.parametrize(
    ("anchor", "number"),
    [
        ("whats-new", 1), ("WHATS-NEW", 1), ("What's new?", 1), ("what's NEW?", 1), ("ÜBER-UNS", 0), ("über uns", 0),
        ("Declared", 2), ("own-Name", 2), ("own-name", 3), ("OWN-NAME", 2),
    ],
)  # fmt: skip
def test_a_section_is_found_by_anchor_in_any_case_or_by_heading(anchor, number):
    assert section_of(found(HEADS), anchor) is HEADS[number]


def test_an_unknown_section_names_those_that_there_are():
    heads = [SectionHead(1, f"H{n}", f"h{n}\u2028`x", [], 0, 1) for n in range(33)]
    with pytest.raises(StrataError) as caught:
        section_of(found(heads), "nope")
    error = caught.value
    assert (error.code, error.pointer) == ("section_not_found", "?section")
    assert error.extra["anchors"][0] == "h0 'x"
    assert (len(error.extra["anchors"]), error.extra["anchorsMore"]) == (20, 13)
    assert "+13 more" in error.detail
    assert len(error.detail.splitlines()) == 1


@pytest.mark.parametrize(
    ("wish", "kind"),
    [
        (Wish(), "outline"),
        (Wish(mode="whole"), "text"),
        (Wish(start_byte=5), "text"),
        (Wish(known="3"), "unchanged"),
        (Wish(known="3", mode="whole"), "unchanged"),
        (Wish(known="01" * 32), "unchanged"),
        (Wish(known="02" * 32), "unchanged"),
        (Wish(known="2", mode="whole"), "text"),
        (Wish(known="3", start_byte=0), "text"),
        (Wish(mode="outline"), "outline"),
    ],
)
def test_what_is_answered_follows_from_the_wish(wish, kind):
    assert kind_of(found(HEADS, size=8_192), None, wish) == kind


def test_a_section_is_text_whatever_else_is_asked_but_its_outline():
    large = found(HEADS, size=100_000)
    assert kind_of(large, HEADS[0], Wish(known="3")) == "text"
    assert kind_of(large, HEADS[0], Wish(mode="outline")) == "outline"
    assert kind_of(found(HEADS, size=8_191), None, Wish()) == "text"
    assert kind_of(found((), size=100_000), None, Wish()) == "text"


def test_what_is_known_is_a_revision_or_a_hash():
    assert known_of(None) is None
    assert known_of(7) == known_of(" 7 ") == "7"
    assert known_of("AB" * 32) == "ab" * 32
    for wrong in ("", "v1", "-1", "1.5", "ab" * 31, "zz" * 32, "9" * 40, "٣"):
        with pytest.raises(StrataError):
            known_of(wrong)


def test_a_reference_is_read_as_it_stands_and_then_up_to_each_mark():
    assert readings_of("c#.md/v1#a#b") == [
        ("c#.md/v1#a#b", None),
        ("c#.md/v1#a", "b"),
        ("c#.md/v1", "a#b"),
        ("c", ".md/v1#a#b"),
    ]
    assert readings_of("#a") == [("#a", None)]
    assert readings_of("a.md#") == [("a.md#", None), ("a.md", None)]
    assert len(readings_of("#" * 5_000)) <= 9
    assert readings_of("x" * 1_000_000) == []
    assert readings_of("a\0b") == []
