"""Rows as they are sent, and the cursors of pages."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from strata.errors import INVALID_REQUEST, StrataError
from strata.sources.paths import MAX_REVISION, pin_of
from strata.sources.repository import SectionHead, SourceRow, State
from strata.sources.revision_repository import HistoryRow, RevisionRow
from strata.sources.schemas import RevisionView, SectionView, SourceDetail, SourceView, TextSlice


def source_view(row: SourceRow | RevisionRow) -> SourceView:
    """Return a source as a list shows it."""
    return SourceView(**_fields(row))


def source_detail(
    row: SourceRow | RevisionRow, heads: Sequence[SectionHead], superseded_by: Sequence[str]
) -> SourceDetail:
    """Return a source, or an earlier revision of one, with its outline and what supersedes it."""
    return SourceDetail(
        **_fields(row),
        pin=row.pin,
        state=row.state,
        superseded_by=list(superseded_by),
        sha256=row.content_sha256.hex(),
        metadata=row.metadata,
        normalisation=row.normalisation if isinstance(row, SourceRow) else {},
        warnings=row.warnings if isinstance(row, SourceRow) else [],
        sections=[
            SectionView(
                level=head.level,
                heading=head.heading,
                anchor=head.anchor,
                breadcrumb=head.breadcrumb,
                start_byte=head.start_byte,
                end_byte=head.end_byte,
            )
            for head in heads
        ],
    )


def revision_view(path: str, row: HistoryRow) -> RevisionView:
    """Return a revision as the history of a source shows it."""
    gone: State = "ARCHIVED" if row.is_archived else "RETIRED"
    return RevisionView(
        revision=row.revision,
        pin=pin_of(path, row.revision),
        state="CURRENT" if row.retired_at is None else gone,
        title=row.title,
        sha256=row.content_sha256.hex(),
        text_bytes=row.text_bytes,
        stored_at=row.stored_at,
        retired_at=row.retired_at,
    )


def text_slice(row: SourceRow | RevisionRow, start: int, data: bytes) -> TextSlice:
    """Return the whole characters in a byte range of a source's text."""
    skipped = next((number for number, byte in enumerate(data) if byte & 0xC0 != 0x80), len(data))
    text = data[skipped:].decode("utf-8", "ignore")
    kept = text.encode()
    return TextSlice(
        path=row.path,
        revision=row.revision,
        start_byte=start + skipped,
        end_byte=start + skipped + len(kept),
        total_bytes=row.text_bytes,
        sha256=hashlib.sha256(kept).hexdigest(),
        text=text,
    )


def is_storable(text: str) -> bool:
    """Tell whether a text can stand in the database at all; what cannot is found nowhere."""
    try:
        return "\x00" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


def encode_cursor(path: str) -> str:
    """Return the cursor of the page after a path."""
    return base64.urlsafe_b64encode(path.encode()).decode()


def decode_cursor(cursor: str | None) -> str:
    """Return the path that a cursor stands for, empty for none; raises ``invalid_request``."""
    if not cursor:
        return ""
    try:
        path = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except ValueError:
        path = "\x00"
    if not is_storable(path):
        raise StrataError(INVALID_REQUEST, "The cursor is not one that a page gave.", pointer="?cursor")
    return path


def decode_revision(cursor: str | None) -> int:
    """Return the revision that a cursor stands for, beyond all for none; raises ``invalid_request``."""
    revision = decode_cursor(cursor)
    if not revision:
        return MAX_REVISION
    if not (revision.isascii() and revision.isdigit() and len(revision) <= len(str(MAX_REVISION))):
        raise StrataError(INVALID_REQUEST, "The cursor is not one that a page gave.", pointer="?cursor")
    return min(int(revision), MAX_REVISION)


def _fields(row: SourceRow | RevisionRow) -> dict[str, Any]:
    return {
        "id": row.source_id,
        "path": row.path,
        "title": row.title,
        "revision": row.revision,
        "format": row.format,
        "media_type": row.media_type,
        "category": row.category,
        "language": row.language,
        "tags": row.tags,
        "source_key": row.source_key,
        "occurred_at": row.occurred_at,
        "origin": row.origin,
        "original_bytes": row.original_bytes,
        "text_bytes": row.text_bytes,
        "passages": row.passage_count,
        "created_at": row.created_at if isinstance(row, SourceRow) else row.stored_at,
        "updated_at": row.updated_at if isinstance(row, SourceRow) else row.stored_at,
    }
