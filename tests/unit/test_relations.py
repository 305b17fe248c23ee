"""What a document says of others: targets, links, and the relations made of them."""

import pickle
import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.sources.readers.markdown import read_markdown
from strata.sources.readers.wire import ReadReply
from strata.sources.relations import MAX_DECLARED, MAX_LINKS, MAX_WARNINGS, relations_of
from strata.sources.targets import (
    BadTargetError,
    SelfTargetError,
    Target,
    declared_target,
    paths_for,
    plain_target,
    split_targets,
    wiki_target,
)
from strata.text.document import Document

OWN = "policies/hr/leave.md"


def links(text):
    return [(link.target, link.label, link.is_wiki) for link in read_markdown(text.encode()).links]


def related(metadata, path=OWN, text="x"):
    """The relations of a document with their fields, and the warnings."""
    warnings = []
    document = read_markdown(text.encode())
    return relations_of(path, document, {**document.metadata, **metadata}, warnings), warnings


def declared(value, path=OWN):
    found, warnings = related({"rel-x": value}, path)
    return [(one.form, one.target, one.anchor) for one in found], warnings


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](b.md)", [("b.md", "a", False)]),
        ('[a *c* `d`](<b c.md> "title")', [("b%20c.md", "a c d", False)]),
        ("[a][r] [r] [r][]\n\n[r]: b.md", [("b.md", "a", False), ("b.md", "r", False), ("b.md", "r", False)]),
        ("[[Name]] [[Name#Heading|label]]", [("Name", "", True), ("Name#Heading", "label", True)]),
        ("[[漢字]] [[שלום]] [[🙂 notes]]", [("漢字", "", True), ("שלום", "", True), ("🙂 notes", "", True)]),
        ("| a |\n|---|\n| [[Name\\|shown]] |", [("Name", "shown", True)]),
        ("> - [a](b.md)", [("b.md", "a", False)]),
        ("# A [b](c.md)", [("c.md", "b", False)]),
        ("a\\![[Name]]", [("Name", "", True)]),
    ],
)
def test_links_are_read(text, found):
    assert links(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "![a](b.png) ![[b.png]] ![a [b](c.md)](d.png)",
        "`[a](b.md)` `` [[Name]] ``",
        "```\n[a](b.md) [[Name]]\n```",
        "    [a](b.md)\n    [[Name]]",
        "x\n\n<!-- [a](b.md) [[Name]] -->",
        "text <!-- [a](b.md)\n[[Name]] --> text",
        "\\[a](b.md) \\[[Name]] [a]() [[ ]] [[|label]] [ ][nowhere]",
        "<div>\n[a](b.md)\n</div>",
    ],
)
def test_what_is_no_link_gives_none(text):
    assert links(text) == []


def test_a_link_stands_in_the_section_of_its_paragraph():
    text = "[a](a.md)\n\n# One\n\nwords\nand [b](b.md)\n\n## Two [c](c.md)\n\n"
    text += "| x |\n|---|\n| [d](d.md) |\n\nTitle [e](e.md)\n===\n"
    found, _ = related({}, text=text)
    assert [(one.target, one.section) for one in found] == [
        ("policies/hr/a.md", 0),
        ("policies/hr/b.md", 1),
        ("policies/hr/c.md", 2),
        ("policies/hr/d.md", 2),
        ("policies/hr/e.md", 3),
    ]


def test_links_beyond_a_mebibyte_of_text_with_links_are_left_out_with_a_warning():
    document = read_markdown(b"[a](b.md)\n\n[[x]] " + b"w " * 600_000)
    assert [link.target for link in document.links] == ["b.md"]
    assert "1,048,576 characters" in document.warnings[0]


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ("../x.md", Target("path", "policies/x.md")),
        ("x.md#part", Target("path", "policies/hr/x.md", "part")),
        ("./a/../b.md", Target("path", "policies/hr/b.md")),
        ("/x.md", Target("path", "x.md")),
        ("//x//y.md", Target("path", "x/y.md")),
        ("a%20b.md#c%20d", Target("path", "policies/hr/a b.md", "c d")),
        ("%2e%2e/%2E%2E/x.md", Target("path", "x.md")),
        ("100%.md", Target("path", "policies/hr/100%.md")),
        ("%ff.md", Target("path", "policies/hr/%ff.md")),
        ("../guide/", Target("path", "policies/guide")),
        ("https://a.example/b#c", Target("url", "https://a.example/b", "c")),
        ("doi:10.1000/1", Target("url", "doi:10.1000/1")),
        ("C:file.md", Target("path", "policies/hr/C:file.md")),
        ("[the label](../x.md#part)", Target("path", "policies/x.md", "part")),
        ('[l](<a b.md> "title")', Target("path", "policies/hr/a b.md")),
        ("[l](a(1).md)", Target("path", "policies/hr/a(1).md")),
        ("[[Old Policy]]", Target("name", "Old Policy")),
        ("[[Old Policy.md#A#B|old]]", Target("name", "Old Policy", "B")),
        ("[[Release 1.2]]", Target("name", "Release 1.2")),
        ("[[a/b/Old]]", Target("path", "a/b/Old")),
        ("[[../Old]]", Target("path", "policies/Old")),
        ("漢字/文書.md", Target("path", "policies/hr/漢字/文書.md")),
    ],
)
def test_targets_resolve_against_the_documents_own_path(written, target):
    assert declared_target(OWN, written)[0] == target


def test_targets_of_a_document_named_by_an_id_start_from_the_root():
    assert plain_target("some-id", "x.md") == Target("path", "x.md")


def test_targets_of_a_document_named_by_a_url_are_urls():
    own = "https://a.example/docs/one.md"
    assert plain_target(own, "../two.md#x") == Target("url", "https://a.example/two.md", "x")
    with pytest.raises(SelfTargetError):
        plain_target(own, "one.md")
    with pytest.raises(BadTargetError):
        plain_target(own, "//[::bad/x")


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("../../../x.md", "leads above the root"),
        ("%2e%2e/%2e%2e/%2e%2e/x.md", "leads above the root"),
        ("/", "names no document"),
        ("../..", "names no document"),
        ("[x]()", "is empty"),
        ("[[]]", "is empty"),
        ("[[|x]]", "is empty"),
        ("x" * 1025, "is longer than 1024 bytes"),
        ("[[" + "é" * 513 + "]]", "is longer than 1024 bytes"),
        ("x.md#" + "y" * 1025, "is longer than 1024 bytes"),
        ("a%00b.md", "holds control characters"),
        ("a\x07b.md", "holds control characters"),
        ("a\ud800b.md", "holds control characters"),
        ("https://a\x00b", "holds control characters"),
        ("leave.md", "is the document itself"),
        ("leave.md#part", "is the document itself"),
        ("leave", "is the document itself"),
        ("/policies/hr/leave.md", "is the document itself"),
        ("#part", "names a section of the document itself"),
        ("[[#part]]", "names a section of the document itself"),
        ("[[LEAVE]]", "is the document itself"),
        ("[[leave.md]]", "is the document itself"),
    ],
)
def test_a_target_that_can_name_no_other_document_is_left_out_with_a_warning(written, why):
    found, warnings = declared([written])
    assert found == []
    assert len(warnings) == 1
    assert warnings[0].startswith("rel-x: '")
    assert warnings[0].endswith(f" {why} and was left out.")
    assert all(char.isprintable() for char in warnings[0])


def test_a_file_of_the_same_name_in_another_format_is_another_document():
    assert wiki_target("a/leave.md", "leave.pdf") == Target("name", "leave")


def test_commas_and_lines_part_targets_but_not_inside_a_link():
    text = "a.md, [b, c](d, e.md), [[f, g]] ,\n h(1).md,, i"
    assert list(split_targets(text)) == ["a.md", "[b, c](d, e.md)", "[[f, g]]", "h(1).md", "i"]
    assert list(split_targets("[a, b")) == ["[a", "b"]
    assert list(split_targets("")) == list(split_targets(" ,\n")) == []


def test_an_item_of_a_list_is_one_target():
    assert declared(["a, b.md", 2024])[0] == [
        ("path", "policies/hr/a, b.md", None),
        ("path", "policies/hr/2024", None),
    ]


def test_wiki_links_that_yaml_takes_for_lists_are_read():
    found, warnings = related({}, text="---\nrel-a: [[Old Policy]]\nrel-b:\n  - [[One, two#H|l]]\n  - c.md\n---\nx\n")
    assert warnings == []
    assert [(one.predicate, one.form, one.target, one.anchor, one.label) for one in found] == [
        ("a", "name", "Old Policy", None, ""),
        ("b", "name", "One, two", "H", "l"),
        ("b", "path", "policies/hr/c.md", None, ""),
    ]


@pytest.mark.parametrize(
    ("metadata", "warning"),
    [
        ({"rel-": "a.md"}, "'rel-' was left out: a predicate has 1 to 64 letters a-z, digits and hyphens."),
        ({"rel-Foo Bar": "a.md"}, "'rel-Foo Bar' was left out"),
        ({"rel-größe": "a.md"}, "'rel-größe' was left out"),
        ({f"rel-{'x' * 65}": "a.md"}, "was left out: a predicate"),
        ({"rel-x": ""}, "rel-x names no document and was left out."),
        ({"rel-x": None}, "rel-x names no document and was left out."),
        ({"rel-x": []}, "rel-x names no document and was left out."),
        ({"rel-x": {"to": "a.md"}}, "rel-x is no text and no list of texts and was left out."),
        ({"rel-x": True}, "rel-x is no text and no list of texts and was left out."),
        ({"rel-x": ["a.md", {"to": "b.md"}]}, "rel-x is no text and no list of texts and was left out."),
    ],
)
def test_a_field_that_cannot_be_read_is_left_out_with_a_warning(metadata, warning):
    found, warnings = related(metadata)
    assert found == ()
    assert len(warnings) == 1
    assert warning in warnings[0]


def test_predicates_are_lower_case_and_other_fields_are_none():
    found, warnings = related({"Rel-Depends-On": "a.md", "related": "b.md", "rel": "c.md", "relx-y": "d.md"})
    assert [one.predicate for one in found] == ["depends-on"]
    assert warnings == []


def test_declared_ones_come_first_in_their_order_and_what_repeats_is_counted():
    text = (
        "---\nrel-z: b.md, a.md\nrel-a: a.md, '[first](a.md)', '[second](a.md)', a.md#x\n---\n"
        "[](c.md) [the c](c.md) [other](c.md) [[C]] [[c|see]] [ext](https://x.example) [m](mailto:a@b.c) [s](#here)\n"
    ).replace("'", "")
    found, warnings = related({}, text=text)
    assert warnings == []
    assert [(one.predicate, one.target, one.anchor, one.label, one.count) for one in found] == [
        ("z", "policies/hr/b.md", None, "", 1),
        ("z", "policies/hr/a.md", None, "", 1),
        ("a", "policies/hr/a.md", None, "first", 3),
        ("a", "policies/hr/a.md", "x", "", 1),
        ("", "policies/hr/c.md", None, "the c", 3),
        ("", "C", None, "see", 2),
    ]
    assert [one.written for one in found][2:] == ["a.md", "a.md#x", "c.md", "[[C]]"]


def test_too_many_are_cut_with_their_count():
    text = "\n\n".join(f"[l{number}](d{number}.md)" for number in range(MAX_LINKS + 7))
    found, warnings = related({"rel-x": [f"t{number}.md" for number in range(MAX_DECLARED + 3)]}, text=text)
    assert len(found) == MAX_DECLARED + MAX_LINKS
    assert warnings == ["3 declared relations beyond 200 were left out.", "7 links beyond 1,000 were left out."]


def test_many_bad_targets_are_summed_up():
    _, warnings = related({"rel-x": ["../" * 9] * 50})
    assert len(warnings) == MAX_WARNINGS + 1
    assert warnings[-1] == "40 more declared relations were left out."


def test_what_a_document_may_be_called_is_what_it_is_found_by():
    assert paths_for("a/b.md") == ("a/b.md", "a/b")
    assert paths_for("a/index.md") == ("a/index.md", "a/index", "a")
    assert paths_for("README.md") == ("README.md", "README")
    assert paths_for("a.pdf") == ("a.pdf",)


PARTS = st.text(st.sampled_from("./%2eE#?[]()|,:\\ ab漢\u202e\x00\ud800🙂" + string.ascii_letters), max_size=40)
PATHS = st.lists(st.sampled_from(["a", "b c", "ü", "x.md"]), min_size=1, max_size=5).map("/".join)


@given(PATHS, PARTS)
def test_no_target_leaves_the_root(path, written):
    for resolve in (plain_target, wiki_target, lambda own, text: declared_target(own, text)[0]):
        try:
            target = resolve(path, written)
        except BadTargetError:
            continue
        assert target.name.encode()
        assert not any(ord(char) < 32 for char in target.name)
        assert len(target.name.encode()) <= 1024
        if target.form == "path":
            parts = target.name.split("/")
            assert not {"", ".", ".."} & set(parts)
            assert target.name not in paths_for(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | PARTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PARTS, inner, max_size=3),
    max_leaves=12,
)
KEYS = st.one_of(PARTS, PARTS.map(lambda text: f"rel-{text}"), st.sampled_from(["rel-a", "REL-B", "rel-c-1"]))


@given(PATHS, st.dictionaries(KEYS, JSON, max_size=6), st.text(max_size=60))
def test_every_metadata_gives_relations_or_warnings(path, metadata, text):
    warnings = []
    found = relations_of(path, Document(text, ()), metadata, warnings)
    assert len({(one.predicate, one.form, one.target, one.anchor) for one in found}) == len(found)
    assert all(one.predicate and one.count >= 1 and one.section == 0 for one in found)
    assert len(warnings) <= MAX_WARNINGS + 2


MARKDOWN = st.lists(
    st.sampled_from(
        [
            "[",
            "]",
            "(",
            ")",
            "[[",
            "]]",
            "|",
            "#",
            "!",
            "`",
            "\\",
            "\n",
            "\n\n",
            "<!--",
            "-->",
            "a.md",
            "x",
            "](",
            "]:",
            "漢",
            "\u202e",
            "🙂",
            "```",
            "    ",
            "| ",
            "<a>",
            "&",
            "%00",
            "*",
            " ",
        ]
    ),
    max_size=60,
).map("".join)


@given(MARKDOWN)
def test_every_text_gives_links_in_text_order(text):
    document = read_markdown(f"x\n{text}".encode())
    starts = [link.start for link in document.links]
    assert starts == sorted(starts)
    assert all(0 <= start < len(document.text) for start in starts)
    assert all(link.target.strip() and "\n" not in link.target for link in document.links)
    found = relations_of("a/b.md", document, {}, [])
    assert all(one.predicate == "" for one in found)


def test_brackets_without_end_take_no_time():
    for text in ("[" * 20_000 + "](", "[[" * 10_000, "[a][b " * 5_000, "![" * 10_000 + "]("):
        assert read_markdown(text.encode()).links == ()
    assert len(list(split_targets("[](" * 20_000))) == 1


def test_links_and_relations_cross_processes():
    document = read_markdown("[a](b.md) [[漢|🙂]]".encode())
    reply = msgspec.msgpack.decode(msgspec.msgpack.encode(ReadReply(document)), type=ReadReply)
    assert list(reply.document.links) == list(document.links)
    found = relations_of(OWN, document, {"rel-x": "y.md"}, [])
    assert pickle.loads(pickle.dumps(found)) == found
