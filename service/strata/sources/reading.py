"""What a reference means: a path, an id, or a pin ``path/vN``; and the text and outline of what it names.

An exact path or id wins over a pin, as a source may be called ``api/v2``; that of an archived source too.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from strata.errors import SOURCE_ARCHIVED, SOURCE_NOT_FOUND, StrataError
from strata.knowledge.service import as_uuid
from strata.platform.database import Connection
from strata.sources import repository, revision_repository
from strata.sources.paths import as_pin
from strata.sources.repository import SectionHead, SourceRow
from strata.sources.revision_repository import RevisionRow
from strata.sources.views import is_storable

Document = SourceRow | RevisionRow
"""A source at its current revision, or an earlier revision of one."""
_SPANS_SHOWN: Final = 10
_SHOWN_CHARS: Final = 200


async def find_document(connection: Connection, tenant: UUID, context: UUID, ref: str) -> Document:
    """Return what a path, an id or a pin names; one statement where it names a source by path or id.

    Raises ``source_archived`` for the bare path or id of an archived source, and ``source_not_found``,
    of a pin with the revisions that there are.
    """
    named = await find_named(connection, tenant, context, ref)
    if isinstance(named, SourceRow):
        return named
    if named is not None:
        raise archived(named)
    pin = as_pin(ref)
    if pin is None or not is_storable(ref):
        raise not_found(ref)
    path, revision = pin
    earlier = await revision_repository.find(connection, tenant, context, path, revision)
    if earlier is not None:
        return earlier
    current = await repository.find(connection, tenant, context, path, None)
    if current is not None and current.revision == revision:
        return current
    spans = await revision_repository.spans(connection, tenant, context, path, limit=_SPANS_SHOWN + 1)
    raise _no_revision(ref, path, spans) if spans else not_found(ref)


async def find_named(connection: Connection, tenant: UUID, context: UUID, ref: str) -> Document | None:
    """Return the source with the id or path, the last revision of an archived one, or None; pins are not read."""
    if not is_storable(ref):
        return None
    identifier = as_uuid(ref.strip())
    current = await repository.find(connection, tenant, context, ref, identifier)
    return current or await revision_repository.find_archived(connection, tenant, context, ref, identifier)


async def outline(connection: Connection, tenant: UUID, context: UUID, document: Document) -> list[SectionHead]:
    """Return the headings of a document in text order."""
    if isinstance(document, SourceRow):
        return await repository.sections(connection, tenant, context, document.source_id)
    return await revision_repository.sections(connection, tenant, context, document.path, document.revision)


async def text_range(
    connection: Connection, tenant: UUID, context: UUID, document: Document, *, start: int, length: int
) -> bytes:
    """Return a byte range of a document's text; shorter where the text ends. Nothing else of it is read."""
    if isinstance(document, SourceRow):
        return await repository.text_range(connection, tenant, context, document.source_id, start=start, length=length)
    return await revision_repository.text_range(
        connection, tenant, context, document.path, document.revision, start=start, length=length
    )


def not_found(ref: str) -> StrataError:
    """Return the error of a reference that names nothing."""
    return StrataError(SOURCE_NOT_FOUND, f"There is no source {_shown(ref)} in this context.")


def archived(row: RevisionRow) -> StrataError:
    """Return the error of the bare path of an archived source; ``pin`` is a further member of it."""
    return StrataError(
        SOURCE_ARCHIVED,
        f"The source {_shown(row.path)} is archived.",
        remedy=f"Read it by its pin {_shown(row.pin)}, or ingest it again to bring it back.",
        extra={"pin": row.pin},
    )


def _no_revision(ref: str, path: str, spans: list[tuple[int, int]]) -> StrataError:
    shown = sorted(spans[:_SPANS_SHOWN])
    ranges = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in shown)
    older = "older ones and " if len(spans) > _SPANS_SHOWN else ""
    detail = f"There is no revision {_shown(ref)}; {_shown(path)} has {older}{ranges}."
    return StrataError(SOURCE_NOT_FOUND, detail, remedy="Pin a revision that there is, or read the source by its path.")


def _shown(ref: str) -> str:
    return repr(ref[:_SHOWN_CHARS].encode("utf-8", "replace").decode())
