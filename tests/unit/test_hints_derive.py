"""What a document offers as hints."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.hints.derive import SourceHints, derive_entries
from strata.hints.keys import entry_keys
from strata.hints.schemas import HintOrigin
from strata.hints.targets import split_target

CONTEXT, SOURCE = UUID(int=1), UUID(int=2)


def derive(path="hr/leave.md", title="Leave", **fields):
    return derive_entries(CONTEXT, SOURCE, SourceHints(path, title, **fields))


def test_title_and_headings_become_entries_with_their_places():
    sections = [
        ("Leave", "leave", ["Leave"]),
        ("Annual leave", "annual-leave", ["Leave", "Annual leave"]),
        ("Introduction", "introduction", ["Leave", "Introduction"]),
        ("1. Overview", "1-overview", ["Leave", "1. Overview"]),
        ("3.2 Sick leave", "32-sick-leave", ["Leave", "3.2 Sick leave"]),
        ("第3章 年次休暇", "第3章", ["Leave", "第3章 年次休暇"]),
        ("2024", "2024", ["Leave", "2024"]),
        ("***", "section", []),
        ("Annual Leave", "annual-leave-1", []),
    ]
    entries = derive(category="hr", sections=sections)
    assert [(e.title, e.aliases, e.targets) for e in entries] == [
        ("Leave", [], ["hr/leave.md"]),
        ("Annual leave", [], ["hr/leave.md#annual-leave"]),
        ("3.2 Sick leave", ["Sick leave"], ["hr/leave.md#32-sick-leave"]),
        ("第3章 年次休暇", ["年次休暇"], ["hr/leave.md#第3章"]),
    ]
    assert {e.category for e in entries} == {"hr"}
    assert {e.origin for e in entries} == {HintOrigin.DERIVED}
    assert entries[1].breadcrumb == ["Leave", "Annual leave"]


@pytest.mark.parametrize(
    ("front", "aliases", "keywords", "summary"),
    [
        ({"aliases": ["PTO", "pto", 5, None, {"x": 1}], "keywords": "days off, leave"}, ["PTO", "5"], 2, None),
        ({"alias": "holidays", "summary": " Short. "}, ["holidays"], 0, "Short."),
        ({"keywords": [False, "x" * 301, "..."], "description": 7}, [], 1, "7"),
        ({"category": "hr"}, [], 0, None),
    ],
)
def test_front_matter_makes_the_entry_of_the_document(front, aliases, keywords, summary):
    (entry,) = derive(front_matter=front)
    assert entry.origin is HintOrigin.FRONTMATTER
    assert (entry.aliases, len(entry.keywords), entry.summary) == (aliases, keywords, summary)


def test_a_document_without_a_title_has_no_entry_unless_its_front_matter_names_it():
    assert derive(title=" ") == []
    (entry,) = derive(title="", front_matter={"aliases": ["x"]})
    assert entry.title == "hr/leave.md"


def test_a_long_title_is_kept_whole_as_a_key():
    title = "Effects of " + "very " * 60 + "long titles"
    (entry,) = derive(title=title)
    assert entry.title == title
    assert len(entry_keys(entry)) == 1


def test_the_same_document_gives_the_same_ids():
    sections = [("Annual leave", "a", []), ("Sick leave", "b", [])]
    first, second = derive(sections=sections), derive(sections=sections)
    assert first == second
    assert len({entry.hint_id for entry in first}) == 3


def test_headings_beyond_the_limit_are_left_out():
    assert len(derive(sections=[(f"Heading {n}", f"h{n}", []) for n in range(5000)])) == 2001


ugly = st.text(st.characters(codec=None), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ugly,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ugly, inner, max_size=2),
    max_leaves=6,
)


@given(
    ugly,
    ugly,
    st.lists(st.tuples(ugly, st.none() | ugly, st.lists(ugly, max_size=3)), max_size=4),
    st.dictionaries(st.sampled_from(["aliases", "alias", "keywords", "summary", "category"]), values),
)
def test_no_document_makes_deriving_fail(path, title, sections, front):
    entries = derive(path=path, title=title, sections=sections, front_matter=front)
    for entry in entries:
        assert entry_keys(entry)[0].ordinal == 0
        "".join([entry.title, *entry.aliases, *entry.keywords, *entry.targets, *entry.breadcrumb]).encode()
        assert "\x00" not in entry.title
    assert len({entry.hint_id for entry in entries}) == len(entries)


def test_one_anchor_gives_one_entry_and_a_hash_in_a_path_is_no_anchor():
    entries = derive(path="C#/notes.md", sections=[("Annual leave", "a", []), ("Sick leave", "a", [])])
    assert [split_target(entry.targets[0]) for entry in entries] == [("C#/notes.md", None), ("C#/notes.md", "a")]
