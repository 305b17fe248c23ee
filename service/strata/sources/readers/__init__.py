"""Readers: bytes of one file in, one Document out, or a refusal with a stable reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from strata.sources.readers.formats import FORMATS, HEAD_BYTES, charset_of, detect_format
from strata.sources.readers.jsonl import BeirRecord, LineProblem, beir_document, is_beir, iter_beir
from strata.sources.readers.refusal import Reason, refuse
from strata.text.document import Document

__all__ = [
    "FORMATS",
    "HEAD_BYTES",
    "BeirRecord",
    "LineProblem",
    "Reason",
    "beir_document",
    "detect_format",
    "is_beir",
    "iter_beir",
    "read_document",
    "refuse",
]


def read_document(path_name: str, data: bytes, media_type: str | None = None) -> Document:
    """Read one file in this process; ``path_name`` serves only to tell the format.

    Raises StrataError ``source_refused`` with ``extra["reason"]``. PDF, DOCX and HTML can take a
    process down: read what others wrote through ``sandbox.ReaderPool``. A JSON lines file becomes one
    document here; ``iter_beir`` reads a corpus.
    """
    name = detect_format(path_name, data[: max(HEAD_BYTES, 65536)], media_type)
    return _reader(name, charset_of(media_type))(data)


def _reader(name: str, charset: str | None) -> Callable[[bytes], Document]:
    """Return the reader of a format; its library is imported when it is first needed."""
    match name:
        case "markdown":
            from strata.sources.readers.markdown import read_markdown

            read: Callable[[bytes], Document] = partial(read_markdown, charset=charset)
        case "html":
            from strata.sources.readers.html import read_html

            read = partial(read_html, charset=charset)
        case "pdf":
            from strata.sources.readers.pdf import read_pdf

            read = read_pdf
        case "docx":
            from strata.sources.readers.docx import read_docx

            read = read_docx
        case "csv" | "tsv":
            from strata.sources.readers.delimited import read_delimited

            read = partial(read_delimited, charset=charset, delimiter="\t" if name == "tsv" else None)
        case "jsonl":
            from strata.sources.readers.jsonl import read_jsonl

            read = read_jsonl
        case "vtt" | "srt":
            from strata.sources.readers.recordings import read_recording

            read = partial(read_recording, kind="vtt" if name == "vtt" else "srt", charset=charset)
        case _:
            from strata.sources.readers.plain import read_plain

            read = partial(read_plain, charset=charset)
    return read
