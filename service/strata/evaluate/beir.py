"""Judged sets in BEIR layout: corpus.jsonl, queries.jsonl and qrels."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from strata.errors import INVALID_REQUEST, StrataError
from strata.sources.readers import BeirRecord, iter_beir
from strata.text.languages import detect_language

_SEPARATORS = (":", "#", "/")
"""What may follow the common beginning of the ids of one recording, document or chapter."""


class Query(msgspec.Struct, frozen=True):
    """One question of a set; ``lang`` where the set is in several languages, ``fields`` all that is a string."""

    id: str = msgspec.field(name="_id")
    text: str
    lang: str | None = None
    fields: Mapping[str, str] = {}

    @property
    def is_blank(self) -> bool:
        """Tell whether there is nothing to ask."""
        return not self.text.strip()


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """A folder in BEIR layout. ``queries`` are those with a relevant document, in file order."""

    name: str
    corpus: Path
    queries: list[Query]
    judgments: dict[str, dict[str, int]]

    def gold(self, query: Query) -> frozenset[str]:
        """Return the documents that are relevant to a question."""
        return relevant(self.judgments[query.id])

    def sample(self, most: int | None) -> JudgedSet:
        """Return the set with at most so many of its questions, the same ones each time; None leaves it whole."""
        return self if most is None else replace(self, queries=sampled(self.queries, most))

    def documents(self) -> list[BeirRecord]:
        """Read the corpus."""
        return list(iter_beir(self.corpus, []))

    @property
    def is_multilingual(self) -> bool:
        """Tell whether its questions state more than one language."""
        return len({query.lang for query in self.queries}) > 1

    def language(self) -> str | None:
        """Return the language of the questions, read together; None where nothing speaks for one."""
        return detect_language("\n".join(query.text for query in self.queries[:200]))


def relevant(judgments: Mapping[str, int]) -> frozenset[str]:
    """Return the documents that are judged relevant."""
    return frozenset(document for document, gain in judgments.items() if gain > 0)


def sampled(queries: Sequence[Query], most: int) -> list[Query]:
    """Return at most so many questions, in their order: those whose ids hash lowest."""
    if len(queries) <= most:
        return list(queries)
    chosen = sorted(queries, key=lambda query: (hashlib.sha256(query.id.encode()).digest(), query.id))[:most]
    ids = {query.id for query in chosen}
    return [query for query in queries if query.id in ids]


def sources_within(query: Query, field: str) -> list[str]:
    """Return globs for the sources that share a beginning with a field of the question (a meeting, a manual).

    A source belongs when its id is the field's value, or that followed by ``:``, ``#`` or ``/``.
    Raises ``invalid_request`` where the question lacks the field.
    """
    value = query.fields.get(field, "").strip()
    if not value:
        raise _unfit(f"the question {query.id} has no field {field}")
    literal = value.replace("*", "?")
    return [literal, *(f"{literal}{separator}**" for separator in _SEPARATORS)]


def is_within(source: str, value: str) -> bool:
    """Tell what the globs of :func:`sources_within` tell: whether a source belongs to a value."""
    return source == value or source.startswith(tuple(value + separator for separator in _SEPARATORS))


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
    decoder = msgspec.json.Decoder(dict[str, Any])
    queries = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                fields = decoder.decode(line)
                known: dict[str, Any] = {name: fields[name] for name in ("_id", "text", "lang") if name in fields}
                known["fields"] = {name: value for name, value in fields.items() if isinstance(value, str)}
                queries.append(msgspec.convert(known, Query))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
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
