from hypothesis import given
from hypothesis import strategies as st

from strata.sources.readers import read_document
from strata.text.document import Block, Document
from strata.text.sections import build_sections, slugify


def sections_of(markdown):
    return build_sections(read_document("a.md", markdown.encode()))


def anchors_of(markdown):
    return [section.anchor for section in sections_of(markdown)[1:]]


def test_section_zero_is_the_document():
    sections = sections_of("Just text, ünïcode.")
    assert len(sections) == 1
    assert (sections[0].level, sections[0].anchor, sections[0].breadcrumb) == (0, None, ())
    assert (sections[0].start_byte, sections[0].end_byte) == (0, len("Just text, ünïcode.".encode()))


def test_a_section_spans_its_subtree_in_bytes():
    text = "# Ä\n\nä\n\n## B\n\nb\n\n### C\n\nc\n\n## D\n\nd\n\n# E\n"
    raw = text.encode()
    spans = {section.heading: raw[section.start_byte : section.end_byte].decode() for section in sections_of(text)}
    assert spans["Ä"] == "# Ä\n\nä\n\n## B\n\nb\n\n### C\n\nc\n\n## D\n\nd\n\n"
    assert spans["B"] == "## B\n\nb\n\n### C\n\nc\n\n"
    assert spans["E"] == "# E\n"


def test_breadcrumbs_hold_the_headings_above_and_levels_may_skip():
    sections = sections_of("# A\n\n### C\n\n## B\n\n#### D\n")
    assert [section.breadcrumb for section in sections[1:]] == [("A",), ("A", "C"), ("A", "B"), ("A", "B", "D")]


def test_anchors_are_those_of_github():
    assert slugify("Hello, World! It's v2.0_beta") == "hello-world-its-v20_beta"
    assert slugify("Größe & Maße") == "größe--maße"
    assert slugify("検索 とは？") == "検索-とは"
    assert slugify("हिन्दी में") == "हिन्दी-में"
    assert slugify("???") == "section"


def test_repeated_headings_are_numbered_and_made_up_names_count_as_taken():
    assert anchors_of("# Foo\n\n# Foo\n\n# Foo 1\n\n# Foo\n") == ["foo", "foo-1", "foo-1-1", "foo-2"]


def test_a_declared_anchor_wins_wherever_it_stands():
    assert anchors_of("# Setup\n\n# Other {#setup}\n\n# Third {#setup}\n") == ["setup-1", "setup", "setup-2"]


def test_headings_in_code_and_in_comments_are_none():
    assert anchors_of("# A\n\n```\n# not\n```\n\n    # nor this\n\n<!--\n# hidden\n-->\n\nB\n=\n") == ["a", "b"]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 6),
            st.sampled_from(["a", "a-1", "A", "", "é", "a-1-1"]),
            st.sampled_from([None, "a", "a-1", "x"]),
        ),
        max_size=30,
    )
)
def test_anchors_differ_and_sections_nest(headings):
    text, blocks = "", []
    for level, heading, anchor in headings:
        line = f"{heading or '?'}\n"
        blocks.append(Block("heading", len(text), len(text) + len(line) - 1, level, heading, anchor))
        text += line
    sections = build_sections(Document(text, blocks))
    names = [section.anchor for section in sections[1:]]
    assert len(set(names)) == len(names)
    for upper in sections:
        for lower in sections[upper.ordinal + 1 :]:
            inside = lower.start_byte < upper.end_byte
            assert not inside or lower.end_byte <= upper.end_byte
            assert not inside or lower.level > upper.level
