"""Files of a multipart body as documents."""

from __future__ import annotations

from typing import Any

from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from strata.errors import INVALID_REQUEST, MALFORMED_BODY, StrataError
from strata.sources.model import DocumentInput
from strata.sources.schemas import MAX_DOCUMENTS

_FIELDS = frozenset({"category", "language"})
_OTHER_PARTS = 100


def read_uploads(body: bytes, content_type: str) -> list[DocumentInput]:
    """Return each part with a file name as a document whose path is that name.

    ``category``, ``language`` and ``tags`` (which may repeat) are fields for all of them; other
    fields are ignored, and so is the media type of a part: clients guess it from the file's name,
    as we do. Raises ``malformed_body``, and ``invalid_request`` for no file or more than 1,000.
    """
    boundary = parse_options_header(content_type)[1].get("boundary", "")
    common: dict[str, Any] = {}
    files: list[tuple[str, bytes]] = []
    try:
        for part, data in _parts(body, boundary):
            if part.filename is not None:
                files.append((part.filename, data))
            elif part.name == "tags":
                common["tags"] = (*common.get("tags", ()), data.decode())
            elif part.name in _FIELDS:
                common[part.name] = data.decode()
    except (MultipartError, ValueError, LookupError) as error:
        raise StrataError(MALFORMED_BODY, "The body is not well-formed multipart/form-data.") from error
    if not 1 <= len(files) <= MAX_DOCUMENTS:
        detail = f"A multipart body holds 1 to {MAX_DOCUMENTS} parts with a file name; this one has {len(files)}."
        raise StrataError(INVALID_REQUEST, detail, pointer="/documents")
    return [DocumentInput(content=data, path=name, **common) for name, data in files]


def _parts(body: bytes, boundary: str) -> list[tuple[MultipartSegment, bytes]]:
    found: list[tuple[MultipartSegment, bytes]] = []
    chunks: list[bytes] = []
    segment: MultipartSegment | None = None
    # Leaving the parser raises when the last part is not complete.
    with PushMultipartParser(boundary, max_segment_count=MAX_DOCUMENTS + _OTHER_PARTS) as parser:
        for event in parser.parse(body):
            if isinstance(event, MultipartSegment):
                segment, chunks = event, []
            elif event:
                chunks.append(bytes(event))
            elif segment is not None:
                found.append((segment, b"".join(chunks)))
    return found
