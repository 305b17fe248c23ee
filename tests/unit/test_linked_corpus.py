"""The linked corpus keeps its shape: documents, relations, questions and quotes fit each other."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml

HOME = Path(__file__).parents[1] / "data" / "linked"
CATEGORIES = (
    "direct",
    "multi-document",
    "supersession",
    "historical",
    "conflicting",
    "body-vocabulary",
    "absent",
    "section-selection",
)
DANGLING = {
    "agreements/mast-lease.md",
    "decisions/0001-charter.md",
    "policies/island-ambulances.md",
    "policies/telemetry-budget.md",
    "reports/diver-survey-2023.md",
    "reports/ferry-survey-2019.md",
    "reports/mast-survey-2015.md",
    "teams/field-crew-west.md",
    "teams/storage.md",
}
COPIED = {"runbooks/late-berthing.md": "notes/copy-late-berthing.md"}
LARGE_BYTES = 9_000
MAX_QUOTE = 240
COMMON_WORDS = {"where", "which", "were", "when", "that", "from", "they", "their", "there", "have", "with"}

QUESTIONS = json.loads((HOME / "questions.json").read_text(encoding="utf-8"))
QUOTES = [(question, quote) for question in QUESTIONS for quote in question["quotes"]]
QUOTE_IDS = [f"{question['id']}-{number}" for question in QUESTIONS for number in range(len(question["quotes"]))]


@cache
def read(folder):
    files = sorted((HOME / folder).rglob("*.md"))
    return {file.relative_to(HOME / folder).as_posix(): file.read_text(encoding="utf-8") for file in files}


def split(text):
    """Return the front matter as a mapping and the body."""
    _, matter, body = text.split("---\n", 2)
    return yaml.safe_load(matter), body


def sections(body):
    """Return the text of each section by anchor, from its heading to the next of the same or a higher level."""
    outside = re.sub(r"^(```|~~~).*?^\1", lambda fence: " " * len(fence[0]), body, flags=re.MULTILINE | re.DOTALL)
    headings = list(re.finditer(r"^(#{1,6}) +(.+?) *$", outside, flags=re.MULTILINE))
    seen = Counter()
    found = {}
    for number, heading in enumerate(headings):
        slug = re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")
        anchor = f"{slug}-{seen[slug]}" if seen[slug] else slug
        seen[slug] += 1
        after = (later.start() for later in headings[number + 1 :] if len(later[1]) <= len(heading[1]))
        found[anchor] = body[heading.start() : next(after, len(body))]
    return found


def targets(path, matter):
    """Return (predicate, path, anchor) for each declared relation."""
    for key, value in matter.items():
        if key.startswith("rel-"):
            for item in value if isinstance(value, list) else value.split(","):
                file, _, anchor = item.strip().partition("#")
                base = "/" if file.startswith("/") else "/" + posixpath.dirname(path)
                yield key[4:], posixpath.normpath(posixpath.join(base, file)).lstrip("/"), anchor


def quoted_text(quote):
    earlier = quote["revision"] == 1 and quote["source"] in read("earlier")
    return split(read("earlier" if earlier else "corpus")[quote["source"]])[1]


def words(text):
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3} - COMMON_WORDS


def test_the_corpus_has_its_size_and_every_document_a_title():
    corpus = read("corpus")
    assert len(corpus) >= 48
    for path, text in {**corpus, **read("earlier")}.items():
        matter, body = split(text)
        assert matter["title"], path
        assert body.strip(), path
    assert len({split(text)[0]["title"] for text in corpus.values()}) == len(corpus)
    assert sum(len(text.encode()) > LARGE_BYTES for text in corpus.values()) >= 8


def test_at_least_four_documents_have_an_earlier_and_different_revision():
    earlier = read("earlier")
    assert len(earlier) >= 4
    assert earlier.keys() <= read("corpus").keys()
    assert all(text != read("corpus")[path] for path, text in earlier.items())


@pytest.mark.parametrize("folder", ["corpus", "earlier"])
def test_each_relation_leads_to_a_document_or_is_known_to_dangle(folder):
    dangling = set()
    for path, text in read(folder).items():
        for predicate, target, anchor in targets(path, split(text)[0]):
            assert re.fullmatch(r"[a-z][a-z-]*", predicate), path
            assert target != path
            if target not in read("corpus"):
                dangling.add(target)
            elif anchor:
                assert anchor in sections(split(read("corpus")[target])[1]), (path, target, anchor)
    assert dangling <= DANGLING
    assert folder == "earlier" or dangling == DANGLING


def test_supersession_is_declared_by_the_newer_alone_by_the_older_alone_and_by_both():
    ways = {}
    for path, text in read("corpus").items():
        for predicate, target, _ in targets(path, split(text)[0]):
            if predicate == "supersedes":
                ways.setdefault((path, target), set()).add("newer")
            if predicate == "superseded-by":
                ways.setdefault((target, path), set()).add("older")
    assert {frozenset(way) for way in ways.values()} == {
        frozenset({"newer"}),
        frozenset({"older"}),
        frozenset({"newer", "older"}),
    }


def test_the_corpus_has_hubs_lists_anchors_and_both_kinds_of_body_links():
    matters = {path: split(text)[0] for path, text in read("corpus").items()}
    assert sum(len(list(targets(path, matter))) >= 6 for path, matter in matters.items()) >= 4
    values = [value for matter in matters.values() for key, value in matter.items() if key.startswith("rel-")]
    assert {type(value) for value in values} == {str, list}
    assert any("#" in str(value) for value in values)
    bodies = "\n".join(split(text)[1] for text in read("corpus").values())
    assert len(re.findall(r"\[\[[^\]]+\]\]", bodies)) >= 4
    assert len(re.findall(r"\]\([^)]+\.md[^)]*\)", bodies)) >= 8


def test_the_questions_are_spread_evenly_and_their_ids_differ():
    assert len({question["id"] for question in QUESTIONS}) == len(QUESTIONS) == 48
    assert len({question["question"] for question in QUESTIONS}) == len(QUESTIONS)
    spread = Counter((question["category"], question["split"]) for question in QUESTIONS)
    assert spread == {(category, part): 3 for category in CATEGORIES for part in ("dev", "test")}


def test_each_question_has_typed_answers_and_quotes_unless_nothing_answers_it():
    types = {"number": (int, float), "string": str, "array": list}
    for question in QUESTIONS:
        absent = question["category"] == "absent"
        assert (not question["expected"], not question["quotes"]) == (absent, absent), question["id"]
        for answer in question["expected"].values():
            assert isinstance(answer["value"], types[answer["type"]]), question["id"]
        sources = {quote["source"] for quote in question["quotes"]}
        if question["category"] in {"multi-document", "conflicting"}:
            assert len(sources) >= 2, question["id"]


@pytest.mark.parametrize(("question", "quote"), QUOTES, ids=QUOTE_IDS)
def test_a_quote_stands_verbatim_in_its_section_of_its_revision(question, quote):
    body = quoted_text(quote)
    assert "\n" not in quote["quote"]
    assert len(quote["quote"]) <= MAX_QUOTE
    within = body if quote["section"] is None else sections(body)[quote["section"]]
    start = within.index(quote["quote"])
    before, after = within[:start], within[start + len(quote["quote"]) :]
    assert re.search(r"(\n|[.!?] )$", before)
    assert re.match(r"[\n ]|$", after)
    assert quote["quote"].endswith(".")
    assert quote["quote"] not in question["question"]


@pytest.mark.parametrize(("question", "quote"), QUOTES, ids=QUOTE_IDS)
def test_a_quote_stands_in_one_current_document_or_in_a_known_copy(question, quote):
    holders = {path for path, text in read("corpus").items() if quote["quote"] in text}
    if quote.get("pinned"):
        assert question["category"] == "historical"
        assert quote["revision"] == 1
        assert holders == set()
        return
    assert quote["revision"] == (2 if quote["source"] in read("earlier") else 1)
    copy = COPIED.get(quote["source"])
    assert holders == ({quote["source"], copy} if copy else {quote["source"]})


def test_two_historical_questions_are_answered_by_an_earlier_revision_only():
    pinned = [question["split"] for question, quote in QUOTES if quote.get("pinned")]
    assert sorted(pinned) == ["dev", "test"]


def test_body_vocabulary_stands_in_no_title_tag_or_heading_of_the_quoted_document():
    for question, quote in QUOTES:
        if question["category"] == "body-vocabulary":
            matter, body = split(read("corpus")[quote["source"]])
            shown = " ".join([matter["title"], str(matter["tags"]), *re.findall(r"^#+ .*$", body, re.MULTILINE)])
            assert not words(question["question"]) & words(shown), question["id"]


def test_section_selection_asks_for_one_section_of_a_large_document():
    for question, quote in QUOTES:
        if question["category"] == "section-selection":
            text = read("corpus")[quote["source"]]
            assert len(text.encode()) > LARGE_BYTES
            assert len(sections(split(text)[1])[quote["section"]].encode()) < LARGE_BYTES / 4
