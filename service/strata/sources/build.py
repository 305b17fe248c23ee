"""From the bytes of one source to the rows that are written: pure work, in whatever process it is run."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import structlog

from strata.errors import INTERNAL, StrataError
from strata.lanes.lexical.segment import SegmentData, build_segments
from strata.platform.ids import SERIAL_BITS
from strata.sources.discover import refusal, unreadable
from strata.sources.metadata import MAX_WARNINGS, describe
from strata.sources.model import Built, Given, Refused, Same, Stage, Task
from strata.sources.readers import FORMATS, beir_document, detect_format, read_document, refuse
from strata.sources.relations import relations_of
from strata.text.document import Document, Passage, Section
from strata.text.languages import DEFAULT_LANGUAGE
from strata.text.normalise import add_changes
from strata.text.passages import build_passages
from strata.text.sections import build_sections
from strata.text.tokenise import ANALYSER_VERSION, Analysis, analyse, with_heading

BUILD_VERSION = 2
"""Part of every fingerprint; moves whenever readers, sections, relations or passages come out differently."""

MAX_PASSAGES = 1 << SERIAL_BITS
_HEAD_BYTES = 64 * 1024

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A task with its bytes at hand; ``document`` is set once a sandboxed reader has read them."""

    task: Task
    format: str
    data: bytes
    content_sha256: bytes
    fingerprint: bytes
    document: Document | None = None

    @property
    def is_isolated(self) -> bool:
        """Whether its reader can take a process down."""
        return self.task.record is None and FORMATS[self.format].isolated


def load(task: Task, max_bytes: int) -> Loaded | Same | Refused:
    """Read the bytes of a task and tell whether they are what the database holds already."""
    try:
        return _load(task, max_bytes)
    except OSError as error:
        return _refused(task, unreadable(error), "read")
    except StrataError as error:
        return _refused(task, error, "read")


def _load(task: Task, max_bytes: int) -> Loaded | Same | Refused:
    if task.record is not None:
        record = task.record
        identity = [record.id, record.title, record.text, record.metadata]
        data, name = b"", "beir"
        digest = hashlib.sha256(msgspec.json.encode(identity, order="sorted")).digest()
    else:
        data = _bytes(task, max_bytes)
        name = ""
        digest = task.content_sha256 or hashlib.sha256(data).digest()
    print_ = fingerprint(task.given)
    known = task.known
    if known is not None and known.content_sha256 == digest and known.fingerprint == print_:
        return Same(task.path, known, task.origin, task.size)
    name = name or detect_format(task.path, data[:_HEAD_BYTES], task.given.media_type)
    return Loaded(replace(task, data=None), name, data, digest, print_)


def _bytes(task: Task, max_bytes: int) -> bytes:
    if task.size > max_bytes:
        raise _too_large(max_bytes)
    if task.data is not None:
        return task.data
    with Path(task.file or "").open("rb") as stream:
        data = stream.read(max_bytes + 1)
    # The file may have grown since it was found.
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return data


def _too_large(max_bytes: int) -> StrataError:
    return refuse("too_large", f"The document is larger than {max_bytes} bytes.")


def fingerprint(given: Given) -> bytes:
    """Return the digest of all but the bytes that decides what a source becomes."""
    basis = [BUILD_VERSION, ANALYSER_VERSION, given]
    return hashlib.sha256(msgspec.json.encode(basis, order="sorted")).digest()


def build(loaded: Loaded) -> tuple[Built, list[Analysis]] | Refused:
    """Build one source with the terms of its passages. Never raises for a bad document."""
    stage: Stage = "parse"
    try:
        document = loaded.document or _document(loaded)
        stage = "build"
        return _build(loaded, document)
    except StrataError as error:
        return _refused(loaded.task, error, stage)
    except MemoryError:
        return _refused(loaded.task, refuse("memory", "Reading it takes too much memory."), stage)
    except Exception as error:  # noqa: BLE001  whatever one document does to the code, the next one is read
        log_defect("ingest.build_failed", error, format=loaded.format)
        return _refused(loaded.task, failed(error), stage)


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of some tasks: ``built`` are written together.

    ``segments`` hold the terms of all their passages; the id of one is its place in ``built``
    shifted by ``SERIAL_BITS``, plus its ordinal, until the sources have serials.
    """

    built: Sequence[Built] = ()
    refused: Sequence[Refused] = ()
    same: Sequence[Same] = ()
    segments: Sequence[SegmentData] = ()


def build_all(loaded: Iterable[Loaded]) -> Batch:
    """Build a batch in its order, with one posting segment for every 65,536 passages of it."""
    built: list[Built] = []
    refused: list[Refused] = []
    analysed: list[tuple[int, Analysis]] = []
    for item in loaded:
        outcome = build(item)
        if isinstance(outcome, Refused):
            refused.append(outcome)
            continue
        source, analyses = outcome
        serial = len(built) << SERIAL_BITS
        analysed.extend((serial | ordinal, analysis) for ordinal, analysis in enumerate(analyses))
        built.append(source)
    return Batch(built, refused, (), build_segments(analysed))


def log_defect(event: str, error: Exception, **fields: str) -> None:
    """Log where our code failed, without the values around it: they hold the document."""
    places = [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)
    ]
    _log.error(event, error=type(error).__name__, places=places[-8:], **fields)


def failed(error: Exception) -> StrataError:
    """Return what stands for a defect of ours that one document brought out."""
    return StrataError(INTERNAL, f"It failed on this document ({type(error).__name__}).")


def _document(loaded: Loaded) -> Document:
    if loaded.task.record is not None:
        return beir_document(loaded.task.record)
    return read_document(loaded.task.path, loaded.data, loaded.task.given.media_type)


def _build(loaded: Loaded, document: Document) -> tuple[Built, list[Analysis]]:
    task = loaded.task
    sections = build_sections(document)
    passages = build_passages(document, sections)
    if len(passages) >= MAX_PASSAGES:
        raise refuse("too_large", f"The document has more than {MAX_PASSAGES} passages.")
    described = describe(task.path, document, task.given)
    warnings = list(described.warnings)
    relations = relations_of(task.path, document, described.metadata, warnings)
    changes = dict(task.changes)
    add_changes(changes, document.changes)
    content = document.text.encode()
    language = described.language or DEFAULT_LANGUAGE
    analyses = [passage_analysis(described.title, sections, passage, language) for passage in passages]
    source = Built(
        path=task.path,
        origin=task.origin,
        pointer=task.pointer,
        size=task.size,
        title=described.title,
        format=loaded.format,
        media_type=task.given.media_type,
        category=described.category,
        language=described.language,
        analysed_as=language,
        tags=described.tags,
        source_key=described.source_key,
        source_key_basis=described.source_key_basis,
        occurred_at=described.occurred_at,
        metadata=described.metadata,
        normalisation={name: changes[name] for name in sorted(changes)},
        warnings=tuple(warnings[:MAX_WARNINGS]),
        content_sha256=loaded.content_sha256,
        fingerprint=loaded.fingerprint,
        content=content,
        sections=sections,
        passages=passages,
        passage_sha256=[range_sha256(content, passage) for passage in passages],
        relations=relations,
    )
    return source, analyses


def range_sha256(content: bytes, passage: Passage) -> bytes:
    """Return the digest of the bytes that a passage stands for."""
    return hashlib.sha256(memoryview(content)[passage.start_byte : passage.end_byte]).digest()


def passage_analysis(title: str, sections: Sequence[Section], passage: Passage, language: str) -> Analysis:
    """Analyse a passage with what it stands under: the title twice in all, other headings once.

    Measured on twelve judged sets (docs/benchmarks.md): the second title is worth two points where
    titles name things, and further headings nothing more.
    """
    above = dict.fromkeys(sections[passage.section].breadcrumb)
    above.pop(title, None)
    missing = [heading for heading in above if heading and heading not in passage.text]
    body = analyse("\n".join([*missing, passage.text]), language)
    return with_heading(body, analyse(title, language), 1 if title in passage.text else 2) if title else body


def _refused(task: Task, error: StrataError, stage: Stage) -> Refused:
    return refusal(task.path, error, stage, pointer=task.pointer, size=task.size)
