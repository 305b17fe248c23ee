"""Judged sets as passages: one document each, so that no system cuts text in its own way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers.corpus import PIECE, Passage, Question
from strata.evaluate.beir import load_judged_set
from strata.sources.readers import BeirRecord, iter_beir
from strata.sources.readers.jsonl import beir_document
from strata.text.document import Document
from strata.text.passages import build_passages
from strata.text.sections import build_sections

# A piece gets its document's title on top, and must stay one passage then.
PIECE_WEIGHT = 1_800


def read_set(directory: Path) -> tuple[list[Passage], list[Question]]:
    """Read one judged set. Ids are ``set/number``, the number a document's place in the corpus."""
    judged = load_judged_set(directory)
    numbers: dict[str, str] = {}
    passages: list[Passage] = []
    for place, record in enumerate(iter_beir(judged.corpus, [])):
        numbers[record.id] = f"{judged.name}/{place:06}"
        passages.extend(pieces_of(record, numbers[record.id]))
    questions = [
        Question(
            judged.name,
            query.text,
            {numbers[document]: gain for document, gain in judged.judgments[query.id].items() if document in numbers},
        )
        for query in judged.queries
    ]
    return passages, [question for question in questions if any(gain > 0 for gain in question.judgments.values())]


def pieces_of(record: BeirRecord, identifier: str) -> Iterator[Passage]:
    """Yield a document that is one passage of Strata as it is, a longer one cut where Strata cuts."""
    document = beir_document(record)
    texts = _passage_texts(document)
    if len(texts) == 1:
        yield _passage(identifier, record.title, texts[0])
        return
    for place, text in enumerate(_passage_texts(document, PIECE_WEIGHT)):
        yield _passage(f"{identifier}{PIECE}{place:03}", record.title, text)


def _passage_texts(document: Document, max_weight: int | None = None) -> list[str]:
    sections = build_sections(document)
    passages = (
        build_passages(document, sections)
        if max_weight is None
        else build_passages(document, sections, max_weight=max_weight)
    )
    return [passage.text for passage in passages]


def _passage(identifier: str, title: str, text: str) -> Passage:
    heading = " ".join(title.split())
    return Passage(identifier, heading, text.removeprefix(heading).strip() if heading else text.strip())
