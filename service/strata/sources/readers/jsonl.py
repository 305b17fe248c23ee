"""JSON lines: the BEIR layout as many documents, anything else as one document of records."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from strata.sources.readers.builder import DocumentBuilder, make_document
from strata.sources.readers.refusal import refuse
from strata.text.document import Block, Document
from strata.text.normalise import add_changes, clean_json, decode_bytes
from strata.text.paragraphs import collapse_spaces, paragraph_spans

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_PROBLEMS = 1_000
_OWN_FIELDS = frozenset({"_id", "title", "text", "metadata"})


@dataclass(frozen=True, slots=True)
class BeirRecord:
    """One document of a BEIR corpus, normalised; ``line`` counts from 1.

    ``metadata`` is the record's own, with its unknown fields beside. ``changes`` as in Document.
    """

    id: str
    title: str
    text: str
    metadata: Mapping[str, object]
    line: int
    changes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LineProblem:
    """A line that was left out, counted from 1, and why in one sentence."""

    line: int
    detail: str


def iter_beir(source: Path | bytes | BinaryIO, problems: list[LineProblem]) -> Iterator[BeirRecord]:
    """Yield the records of a corpus in file order, one line in memory at a time.

    A line that is no record (bad JSON, no ``_id``, no text and no title, over 64 MiB) is left out and
    added to ``problems``, the first 1,000 of them. Blank lines are nothing. Ids may repeat: telling
    so is the caller's business.
    """
    with _opened(source) as stream:
        for number, line in _lines(stream):
            try:
                if line is None:
                    raise ValueError(f"the line is longer than {MAX_LINE_BYTES} bytes")  # noqa: TRY301
                value, changes = parse_line(line)
                yield _record(value, changes, number)
            except ValueError as error:
                if len(problems) < MAX_PROBLEMS:
                    problems.append(LineProblem(number, f"Line {number} was left out: {error}."))


def is_beir(head: bytes) -> bool:
    """Tell whether the first whole line of a file is a BEIR record."""
    first = next((line for line in head.lstrip(b"\xef\xbb\xbf").splitlines() if line.strip()), b"")
    try:
        value, _ = parse_line(first)
    except ValueError:
        # A head may end inside its first line; the layout opens with the id.
        return first.lstrip().startswith((b'{"_id"', b'{ "_id"')) and b'"text"' in first
    return isinstance(value, dict) and "_id" in value and ("text" in value or "title" in value)


def beir_document(record: BeirRecord) -> Document:
    """Return a record as a document: its title as a heading, its text as paragraphs below."""
    heading = collapse_spaces(record.title)
    blocks = [Block("heading", 0, len(heading), level=1, heading=heading)] if heading else []
    prefix = f"{heading}\n\n" if heading and record.text else heading
    blocks.extend(
        Block("paragraph", start + len(prefix), end + len(prefix)) for start, end in paragraph_spans(record.text)
    )
    return make_document(
        prefix + record.text,
        blocks,
        title=heading,
        metadata=record.metadata,
        changes=dict(record.changes),
        warnings=(),
        language=None,
    )


def read_jsonl(data: bytes) -> Document:
    """Read JSON lines as one document: each record a line of ``field: value``, in file order.

    Lines that are not JSON are counted in a warning; a file without one that is, is refused.
    """
    builder = DocumentBuilder()
    bad = 0
    for _, line in _lines(io.BytesIO(data)):
        try:
            value, changes = parse_line(line or b"")
        except ValueError:
            bad += 1
            continue
        add_changes(builder.changes, changes)
        builder.add("paragraph", _as_line(value))
    if not len(builder):
        raise refuse("malformed" if bad else "empty", "The file holds no line of JSON with text in it.")
    if bad:
        builder.warnings.append(f"{bad} lines are not JSON and were left out.")
    return builder.build()


def parse_line(line: bytes) -> tuple[object, dict[str, int]]:
    """Decode one line of JSON and clean it; ValueError says what is wrong, without quoting the text."""
    changes: dict[str, int] = {}
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        decoded = decode_bytes(line)
        add_changes(changes, decoded.changes)
        try:
            # Lone surrogates and NaN are not JSON to the strict decoder, but files hold them.
            value = json.loads(decoded.text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"it is not JSON ({error.msg} at column {error.colno})") from None
    return clean_json(value, changes), changes


def _record(value: object, changes: dict[str, int], line: int) -> BeirRecord:
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  the caller collects ValueError
    identifier = value.get("_id")
    if isinstance(identifier, bool) or not isinstance(identifier, (str, int)) or not str(identifier).strip():
        raise ValueError("it has no _id")
    title, text = value.get("title") or "", value.get("text") or ""
    if not isinstance(title, str) or not isinstance(text, str):
        raise ValueError("its title or text is not a string")  # noqa: TRY004
    if not title.strip() and not text.strip():
        raise ValueError("it has neither text nor title")
    own = value.get("metadata")
    metadata = {name: item for name, item in value.items() if name not in _OWN_FIELDS}
    metadata.update(own if isinstance(own, dict) else {"metadata": own} if own else {})
    return BeirRecord(str(identifier).strip(), title, text, metadata, line, changes)


def _as_line(value: object) -> str:
    if not isinstance(value, dict):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    parts = (
        f"{name}: {item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)}"
        for name, item in value.items()
        if item not in (None, "", [], {})
    )
    return " | ".join(parts)


def _opened(source: Path | bytes | BinaryIO) -> BinaryIO | nullcontext[BinaryIO]:
    if isinstance(source, Path):
        return source.open("rb")
    return nullcontext(io.BytesIO(source) if isinstance(source, bytes) else source)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines that hold something, numbered from 1; None for one that is too long."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield number, None
        elif line.strip():
            yield number, line
