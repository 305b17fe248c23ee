"""Which format a file is: by its name, its media type, and the bytes it starts with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from strata.sources.readers.refusal import refuse

HEAD_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True)
class Format:
    """A format that is read: its name, extensions and media types; ``isolated`` ones may crash a process."""

    name: str
    extensions: tuple[str, ...]
    media_types: tuple[str, ...]
    isolated: bool = False


_DOCX_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format("markdown", (".md", ".markdown", ".mdx", ".mkd"), ("text/markdown", "text/x-markdown")),
        Format("text", (".txt", ".rst", ".log", ".text", ".adoc", ".org"), ("text/plain",)),
        Format("html", (".html", ".htm", ".xhtml"), ("text/html", "application/xhtml+xml"), isolated=True),
        Format("pdf", (".pdf",), ("application/pdf",), isolated=True),
        Format("docx", (".docx", ".docm"), (_DOCX_TYPE,), isolated=True),
        Format("csv", (".csv",), ("text/csv",)),
        Format("tsv", (".tsv", ".tab"), ("text/tab-separated-values",)),
        Format("jsonl", (".jsonl", ".ndjson"), ("application/jsonl", "application/x-ndjson", "application/ndjson")),
        Format("vtt", (".vtt",), ("text/vtt",)),
        Format("srt", (".srt",), ("application/x-subrip", "text/srt")),
    )
}

_BY_EXTENSION = {extension: entry.name for entry in FORMATS.values() for extension in entry.extensions}
_BY_MEDIA_TYPE = {media_type: entry.name for entry in FORMATS.values() for media_type in entry.media_types}
_UNREAD = {
    ".eml": "e-mail", ".msg": "e-mail", ".epub": "EPUB", ".pptx": "PowerPoint", ".ppt": "PowerPoint", ".xlsx": "Excel",
    ".xls": "Excel", ".doc": "the old Word format", ".odt": "OpenDocument", ".rtf": "RTF", ".zip": "archives",
    ".gz": "archives", ".tar": "archives", ".png": "images", ".jpg": "images", ".jpeg": "images", ".gif": "images",
    ".webp": "images", ".svg": "images", ".mp3": "audio", ".wav": "audio", ".mp4": "video", ".mov": "video",
}  # fmt: skip
_MAGIC = ((b"%PDF-", "pdf"), (b"WEBVTT", "vtt"))
_BINARY_MAGIC = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"\x1f\x8b", b"\x7fELF", b"SQLite format 3\x00", b"7z\xbc\xaf")
_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def detect_format(name: str, head: bytes, media_type: str | None = None) -> str:
    """Return the key in ``FORMATS`` by which a file is to be read.

    ``head`` is the file's first bytes, 8 KiB or more where it has them. The extension decides, then
    the media type, then the bytes; but bytes that are plainly a PDF, a Word file or binary win over
    a name that says text. Raises ``source_refused``: ``unsupported_format``, ``encrypted``, ``empty``
    or ``binary``.
    """
    if not head:
        raise refuse("empty", "The file is empty.")
    suffix = PurePosixPath(name.replace("\\", "/")).suffix.lower()
    if suffix in _UNREAD:
        raise refuse("unsupported_format", f"Files in {_UNREAD[suffix]} format ({suffix}) are not read.")
    found = _by_magic(head)
    if found:
        return found
    kind = media_type.partition(";")[0].strip().lower() if media_type else ""
    named = _BY_EXTENSION.get(suffix) or _BY_MEDIA_TYPE.get(kind)
    if named in {"pdf", "docx"}:
        return named
    if _is_binary(head):
        raise refuse("binary", "The file is not text, and its format is not known.")
    return named or _by_text(head)


def charset_of(media_type: str | None) -> str | None:
    """Return the charset parameter of a media type, None when it names none."""
    for part in (media_type or "").split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset" and value.strip():
            return value.strip().strip("\"'")
    return None


def _by_magic(head: bytes) -> str | None:
    body = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n\t ")
    for magic, name in _MAGIC:
        if body.startswith(magic):
            return name
    if head.startswith(_OLE):
        if "EncryptedPackage".encode("utf-16-le") in head:
            raise refuse("encrypted", "The document is protected by a password.")
        raise refuse("unsupported_format", "Files in the old Office format, or encrypted ones, are not read.")
    if head.startswith(_ZIP):
        if b"word/" in head or b"[Content_Types].xml" in head or b"_rels/.rels" in head:
            return "docx"
        raise refuse("unsupported_format", "Archives are not read.")
    if head.startswith(_BINARY_MAGIC):
        raise refuse("binary", "The file is not text.")
    return None


def _is_binary(head: bytes) -> bool:
    """Tell text from other bytes: control bytes, or zeros that UTF-16 does not explain."""
    sample = head[:HEAD_BYTES]
    if sample.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        return False
    zeros = sample.count(0)
    if zeros * 10 > len(sample):
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        return min(even, odd) * 10 > max(even, odd)
    controls = sum(sample.count(byte) for byte in (*range(1, 9), *range(14, 27), *range(28, 32)))
    return controls * 20 > len(sample)


def _by_text(head: bytes) -> str:
    """Guess the format of text whose name and media type tell nothing."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:512].lower()
    if start.startswith((b"<!doctype html", b"<html")) or (start.startswith(b"<?xml") and b"<html" in start):
        return "html"
    return "text"
