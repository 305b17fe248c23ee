"""The arithmetic behind the comparison with other libraries."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def benchmarks_on_the_path():
    """The benchmarks are no part of the package, and are imported from the repository."""
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


@pytest.fixture
def corpora():
    from benchmarks.peers import corpus

    return corpus


@pytest.fixture
def small(corpora, tmp_path):
    """Four passages around a circle, and a question near the second."""
    angles = np.radians([0, 30, 60, 170])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    passages = [corpora.Passage(f"set/{number}", f"Title {number}", f"Text {number}") for number in range(4)]
    questions = [corpora.Question("set", "which one", {"set/1": 1})]
    question = np.array([[np.cos(np.radians(29)), np.sin(np.radians(29))]], np.float32)
    return corpora.Corpus(tmp_path, passages, questions, vectors, question)


def test_recall_counts_the_share_of_the_nearest_that_were_found(corpora, small):
    assert corpora.vector_recall(small, [["set/1", "set/0"]], 2) == 1.0
    assert corpora.vector_recall(small, [["set/1", "set/3"]], 2) == 0.5
    assert corpora.vector_recall(small, [["set/3", "set/3"]], 2) == 0.0
    assert corpora.vector_recall(small, [[]], 2) == 0.0


def test_a_passage_listed_twice_counts_once(corpora, small):
    assert corpora.vector_recall(small, [["set/1", "set/1"]], 2) == 0.5


def test_a_passage_as_near_as_the_last_of_the_nearest_counts(corpora, small):
    twin = msgspec.structs.replace(small.passages[1], id="set/9")
    same = corpora.Corpus(
        small.folder,
        [*small.passages, twin],
        small.questions,
        np.vstack([small.passage_vectors, small.passage_vectors[1]]),
        small.question_vectors,
    )
    assert corpora.vector_recall(same, [["set/9"]], 1) == 1.0
    assert corpora.vector_recall(same, [["set/1"]], 1) == 1.0


def test_the_corpus_reads_back_as_it_was_written(corpora, small):
    corpora.write(small)
    again = corpora.read(small.folder)
    assert (again.passages, again.questions) == (small.passages, small.questions)
    assert np.array_equal(again.passage_vectors, small.passage_vectors)


def test_questions_are_taken_from_the_sets_in_turn(corpora):
    by_set = {name: [corpora.Question(name, f"{name} {number}", {}) for number in range(5)] for name in ("a", "b")}
    chosen = corpora.choose_questions(by_set, 4)
    assert [question.set for question in chosen] == ["a", "b", "a", "b"]
    assert chosen == corpora.choose_questions(dict(reversed(by_set.items())), 4)


def test_judged_documents_are_kept_whole_and_others_fill_up(corpora):
    passages = [corpora.Passage(f"set/{number}~{piece}", "", "x") for number in range(10) for piece in range(2)]
    questions = [corpora.Question("set", "q", {"set/3": 1, "set/4": 0})]
    chosen = corpora.choose_passages(reversed(passages), questions, 5)
    assert len(chosen) == 5
    assert {"set/3~0", "set/3~1"} <= {passage.id for passage in chosen}
    assert chosen == corpora.choose_passages(passages, questions, 5)
    assert [passage.id for passage in corpora.choose_passages(passages, questions, 0)] == ["set/3~0", "set/3~1"]


@pytest.mark.parametrize(
    ("title", "text", "expected"),
    [
        ("A title", "One paragraph.", ["A title\n\nOne paragraph."]),
        ("", "One paragraph.", ["One paragraph."]),
        ("  A   title ", " Space \n around. ", ["A title\n\nSpace \n around."]),
        ("A title", "", ["A title"]),
    ],
)
def test_a_short_document_stays_as_it_is(title, text, expected):
    from benchmarks.peers.pieces import pieces_of

    from strata.sources.readers import BeirRecord

    record = BeirRecord("d", title, text, {}, 1, {})
    found = list(pieces_of(record, "set/000001"))
    assert [piece.content for piece in found] == expected
    assert [piece.id for piece in found] == ["set/000001"]


def test_a_piece_of_a_long_document_is_one_passage_of_strata():
    from benchmarks.peers.corpus import document_of
    from benchmarks.peers.pieces import pieces_of

    from strata.sources.readers import BeirRecord
    from strata.sources.readers.jsonl import beir_document
    from strata.text.passages import build_passages
    from strata.text.sections import build_sections

    text = "\n\n".join(f"Paragraph {number}. " + "It says a little more than that. " * 12 for number in range(20))
    pieces = list(pieces_of(BeirRecord("d", "A long one", text, {}, 1, {}), "set/000001"))
    assert len(pieces) > 1
    assert {document_of(piece.id) for piece in pieces} == {"set/000001"}
    for piece in pieces:
        document = beir_document(BeirRecord(piece.id, piece.title, piece.text, {}, 1, {}))
        (passage,) = build_passages(document, build_sections(document))
        assert passage.text == piece.content
