"""Judged sets in BEIR layout: corpus.jsonl, queries.jsonl and qrels."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import msgspec

from strata.errors import INVALID_REQUEST, StrataError


class Query(msgspec.Struct, frozen=True):
    """One question of a set; ``lang`` where the set is in several languages."""

    id: str = msgspec.field(name="_id")
    text: str
    lang: str | None = None


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """A folder in BEIR layout. ``queries`` are those with a relevant document, in file order."""

    name: str
    corpus: Path
    queries: list[Query]
    judgments: dict[str, dict[str, int]]


def load_judged_set(directory: Path) -> JudgedSet:
    """Read queries and judgments; the corpus stays on disk.

    Judgments are in ``qrels.tsv`` or ``qrels/test.tsv``: query, document, score, with a header.
    Raises ``invalid_request`` naming the file that is missing, and the line that is malformed.
    """
    corpus, queries = directory / "corpus.jsonl", directory / "queries.jsonl"
    judgment_file = next((p for p in (directory / "qrels.tsv", directory / "qrels" / "test.tsv") if p.is_file()), None)
    for path in (corpus, queries):
        if not path.is_file():
            raise _unfit(f"{path} is missing")
    if judgment_file is None:
        raise _unfit(f"{directory / 'qrels.tsv'} is missing")
    judgments = _read_judgments(judgment_file)
    return JudgedSet(
        name=directory.resolve().name,
        corpus=corpus,
        queries=[query for query in _read_queries(queries) if any(g > 0 for g in judgments.get(query.id, {}).values())],
        judgments=judgments,
    )


def _read_queries(path: Path) -> list[Query]:
    decoder = msgspec.json.Decoder(Query)
    queries = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                queries.append(decoder.decode(line))
            except msgspec.DecodeError as error:
                raise _unfit(f"{path}:{number}: {error}") from error
    return queries


def _read_judgments(path: Path) -> dict[str, dict[str, int]]:
    judgments: dict[str, dict[str, int]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            if number == 1 and row[:1] == ["query-id"]:
                continue
            try:
                query, document, gain = row[0], row[-2], int(row[-1])
            except (IndexError, ValueError) as error:
                raise _unfit(f"{path}:{number}: expected query, document and an integer score") from error
            judgments.setdefault(query, {})[document] = gain
    return judgments


def _unfit(detail: str) -> StrataError:
    return StrataError(
        INVALID_REQUEST,
        f"{detail}.",
        pointer="DIR",
        remedy="Give a folder with corpus.jsonl, queries.jsonl and qrels.tsv (BEIR layout).",
    )
