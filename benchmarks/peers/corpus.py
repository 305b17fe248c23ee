"""The passages, questions and vectors that every system gets, written once into one folder.

``passages.jsonl`` is a BEIR corpus in which each document is one passage of Strata; ``passages.npy``
and ``questions.npy`` hold the vectors in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Floats = npt.NDArray[np.float32]

PIECE = "~"
"""Stands between the id of a document and the number of its piece; '#' would open an anchor."""


class Passage(msgspec.Struct, frozen=True):
    """One passage, a line of the corpus. ``id`` is ``set/document`` or ``set/document~piece``."""

    id: str = msgspec.field(name="_id")
    title: str
    text: str

    @property
    def content(self) -> str:
        """What is indexed and embedded: the title over the text, as Strata lays such a document out."""
        return f"{self.title}\n\n{self.text}" if self.title and self.text else self.title or self.text


class Question(msgspec.Struct, frozen=True):
    """One question with its judgments (document id to gain)."""

    set: str
    text: str
    judgments: dict[str, int]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything that is the same for all systems; ``folder`` is where it is written."""

    folder: Path
    passages: list[Passage]
    questions: list[Question]
    passage_vectors: Floats
    question_vectors: Floats


def document_of(passage_id: str) -> str:
    """Return the document that a passage belongs to."""
    return passage_id.partition(PIECE)[0]


def choose_questions(by_set: Mapping[str, Sequence[Question]], count: int) -> list[Question]:
    """Return at most ``count`` questions, the sets in turn, each set in the order of a hash."""
    queues = [sorted(questions, key=lambda q: _hash(q.text)) for _, questions in sorted(by_set.items())]
    chosen: list[Question] = []
    for place in range(max(map(len, queues), default=0)):
        chosen.extend(queue[place] for queue in queues if place < len(queue))
    return chosen[:count]


def choose_passages(passages: Iterable[Passage], questions: Sequence[Question], count: int) -> list[Passage]:
    """Return the judged documents whole, and others in the order of a hash up to ``count`` passages."""
    wanted = {document for question in questions for document, gain in question.judgments.items() if gain > 0}
    judged: list[Passage] = []
    others: list[Passage] = []
    for passage in passages:
        (judged if document_of(passage.id) in wanted else others).append(passage)
    others.sort(key=lambda passage: (_hash(document_of(passage.id)), passage.id))
    return sorted(judged + others[: max(0, count - len(judged))], key=lambda passage: passage.id)


def exact_top(corpus: Corpus, k: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return for each question the ``k`` nearest passages by cosine, and the cosine of the last of them."""
    cosines = corpus.question_vectors @ corpus.passage_vectors.T
    nearest = np.argpartition(-cosines, k - 1, axis=1)[:, :k].astype(np.int64)
    return nearest, np.take_along_axis(cosines, nearest, axis=1).min(axis=1)


def vector_recall(corpus: Corpus, answers: Sequence[Sequence[str]], k: int) -> float:
    """Return the share of the ``k`` nearest passages among the answers; one as near as the last counts."""
    places = {passage.id: place for place, passage in enumerate(corpus.passages)}
    _, least = exact_top(corpus, k)
    found = 0
    for number, ids in enumerate(answers):
        rows = [places[identifier] for identifier in dict.fromkeys(ids[:k])]
        cosines = corpus.passage_vectors[rows] @ corpus.question_vectors[number]
        found += int((cosines >= least[number] - 1e-6).sum())
    return found / (k * len(answers)) if answers else 0.0


def write(corpus: Corpus) -> None:
    """Write the corpus for the workers."""
    for name, rows in (("passages", corpus.passages), ("questions", corpus.questions)):
        (corpus.folder / f"{name}.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    np.save(corpus.folder / "passages.npy", corpus.passage_vectors)
    np.save(corpus.folder / "questions.npy", corpus.question_vectors)


def read(folder: Path) -> Corpus:
    """Read what :func:`write` wrote."""
    return Corpus(
        folder,
        list(_lines(folder / "passages.jsonl", Passage)),
        list(_lines(folder / "questions.jsonl", Question)),
        np.load(folder / "passages.npy"),
        np.load(folder / "questions.npy"),
    )


def _lines(path: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as lines:
        for line in lines:
            yield decoder.decode(line)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
