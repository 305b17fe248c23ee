"""Documents that a caller hands over, as tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from strata.errors import StrataError
from strata.sources.discover import Report, corpus_tasks, refusal
from strata.sources.metadata import clean_given, metadata_key
from strata.sources.model import DocumentInput, Given, Task
from strata.sources.paths import clean_id, clean_path
from strata.sources.readers import FORMATS, HEAD_BYTES, is_beir
from strata.text.normalise import add_changes, normalise_text

_LINES = FORMATS["jsonl"]


def input_tasks(documents: Sequence[DocumentInput], origin: str, report: Report) -> Iterator[Task]:
    """Yield a task for each document, for each record of one in BEIR layout; what cannot be one is reported."""
    for number, document in enumerate(documents):
        pointer = f"/documents/{number}"
        try:
            task = _task(document, origin, pointer)
        except StrataError as error:
            name = document.path or document.id or pointer
            report(refusal(name[:200], error, "find", pointer=pointer))
            continue
        if task.data is not None and _is_corpus(task):
            yield from corpus_tasks(task.data, task.path, report, origin=origin, pointer=pointer)
        else:
            yield task


def _task(document: DocumentInput, origin: str, pointer: str) -> Task:
    changes: dict[str, int] = {}
    given = clean_given(document, changes, pointer)
    if isinstance(document.content, str):
        # The bytes that came in: a lone surrogate must still make another document than none.
        raw = document.content.encode("utf-8", "surrogatepass")
        normalised = normalise_text(document.content)
        data = normalised.text.encode()
        add_changes(changes, normalised.changes)
    else:
        raw = data = document.content
    digest = hashlib.sha256(raw).digest()
    path, given = _identity(document, given, digest, changes, pointer)
    return Task(
        path=path,
        size=len(raw),
        data=data,
        origin=origin,
        given=given,
        pointer=pointer,
        changes=changes,
        content_sha256=digest,
    )


def _identity(
    document: DocumentInput, given: Given, digest: bytes, changes: dict[str, int], pointer: str
) -> tuple[str, Given]:
    """Return the path, and with it the source key that a document without path and id gets.

    Identity fields of the metadata make both; a document that has none is named by its bytes, and
    keyed by its title where it has one.
    """
    if document.path is not None:
        return clean_path(document.path, changes, f"{pointer}/path"), given
    if document.id is not None:
        return clean_id(document.id, changes, f"{pointer}/id"), given
    key = metadata_key(given.metadata)
    if key:
        return key, given if given.source_key else replace(given, source_key=key, source_key_basis="METADATA")
    path = f"text:{digest.hex()[:16]}"
    if given.title and not given.source_key:
        return path, replace(given, source_key=f"title:{given.title.casefold()}", source_key_basis="TITLE")
    return path, given


def _is_corpus(task: Task) -> bool:
    kind = (task.given.media_type or "").partition(";")[0].strip().lower()
    is_lines = task.path.lower().endswith(_LINES.extensions) or kind in _LINES.media_types
    return is_lines and task.data is not None and is_beir(task.data[: HEAD_BYTES * 8])
