"""Readers: bytes of one file in, one Document out, or a refusal with a stable reason."""

from __future__ import annotations

from collections.abc import Callable

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
    if name == "markdown":
        from strata.sources.readers.markdown import read_markdown

        return lambda data: read_markdown(data, charset=charset)
    if name == "html":
        from strata.sources.readers.html import read_html

        return lambda data: read_html(data, charset=charset)
    if name == "pdf":
        from strata.sources.readers.pdf import read_pdf

        return read_pdf
    if name == "docx":
        from strata.sources.readers.docx import read_docx

        return read_docx
    if name in {"csv", "tsv"}:
        from strata.sources.readers.delimited import read_delimited

        return lambda data: read_delimited(data, charset=charset, delimiter="\t" if name == "tsv" else None)
    if name == "jsonl":
        from strata.sources.readers.jsonl import read_jsonl

        return read_jsonl
    if name in {"vtt", "srt"}:
        from strata.sources.readers.recordings import read_recording

        return lambda data: read_recording(data, "vtt" if name == "vtt" else "srt", charset=charset)
    from strata.sources.readers.plain import read_plain

    return lambda data: read_plain(data, charset=charset)
