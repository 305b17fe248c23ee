"""Make what is recorded fit: size limits, characters that Postgres takes, and the privacy of the query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal

import msgspec

from strata.text.normalise import clean_json, normalise_text
from strata.traces.schemas import BlockTrace, ExpansionTrace, OmissionTrace, RetrievalDetails

MAX_DETAILS_BYTES = 64 * 1024
MAX_ARGUMENTS_BYTES = 16 * 1024
MAX_QUERY_CHARS = 4096
MAX_ERROR_CHARS = 2000
MAX_IDENTIFIER_CHARS = 128
_CLIPPED_CHARS = 80
_SHOWN = 64
_CLEANABLE = 500
_PATH_KEY = re.compile(r"^path:([^#]+)")
_HEX = re.compile(r"[0-9a-f]+")

QueryPrivacy = Literal["text", "hash", "none"]


def jsonb_size(encoded: bytes) -> int:
    """Return an upper bound in bytes of ``jsonb::text``, which puts a space after each separator."""
    return len(encoded) + encoded.count(b",") + encoded.count(b":")


def clean_text(value: str | None, max_chars: int) -> str | None:
    """Return the text without what Postgres refuses, cut to ``max_chars``."""
    return None if value is None else normalise_text(value).text[:max_chars]


def hex_id(value: str | None, length: int) -> str | None:
    """Return a trace or span id as lower-case hex, None when it is not one of ``length`` digits."""
    lowered = (value or "").lower()
    return lowered if len(lowered) == length and _HEX.fullmatch(lowered) else None


def bounded_arguments(arguments: Mapping[str, Any], privacy: QueryPrivacy) -> bytes:
    """Return the arguments as JSON under 16 KiB, the query as ``privacy`` allows.

    ``hash`` replaces it by its SHA-256 and length, so that equal questions can still be counted;
    ``none`` drops it. Long texts and lists are cut; what still does not fit is dropped with the
    mark ``truncated``.
    """
    kept = dict(arguments)
    query = kept.pop("query", None)
    if query is not None and privacy != "none":
        kept = {"query": _private_query(str(query), privacy), **kept}
    for max_chars, max_items in ((MAX_QUERY_CHARS, 200), (256, 20)):
        encoded = msgspec.json.encode(clean_json(_cut(kept, max_chars, max_items)))
        if jsonb_size(encoded) <= MAX_ARGUMENTS_BYTES:
            return encoded
    asked = _cut(kept.get("query"), 1024, 0)
    return msgspec.json.encode(clean_json({"query": asked, "truncated": True}))


def _private_query(query: str, privacy: QueryPrivacy) -> object:
    if privacy == "text":
        return query
    data = normalise_text(query).text.encode()
    return {"sha256": sha256(data).hexdigest(), "chars": len(query)}


def _cut(value: Any, max_chars: int, max_items: int, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value if len(value) <= max_chars else value[: max_chars - 1] + "…"
    if depth > 8:
        return None
    if isinstance(value, Mapping):
        return {
            _cut(key, 128, 0): _cut(item, max_chars, max_items, depth + 1)
            for key, item in list(value.items())[: max_items or None]
        }
    if isinstance(value, (list, tuple)):
        return [_cut(item, max_chars, max_items, depth + 1) for item in value[:max_items]]
    return value


def bounded_details(details: RetrievalDetails, max_bytes: int = MAX_DETAILS_BYTES) -> bytes:
    """Return ``details`` as JSON whose jsonb text is under ``max_bytes``; never fails.

    Long titles and breadcrumbs are clipped first, then the omitted list loses its tail, then the ranges
    shown beyond the first 64, titles and breadcrumbs go, then the tail of the blocks; ``trimmed`` says
    which. The totals stay.
    """
    details = msgspec.structs.replace(
        details,
        omitted=[_without_known_source(omission) for omission in details.omitted],
        omitted_total=max(details.omitted_total, len(details.omitted)),
    )
    encoded = _encode(details)
    if encoded is None:
        try:
            details = _cleaned(details)
        except msgspec.ValidationError:
            return _skeleton(details)
        encoded = msgspec.json.encode(details)
    if jsonb_size(encoded) < max_bytes:
        return encoded
    details = _trim(details, "clipped", evidence_blocks=[_clipped(block) for block in details.evidence_blocks])
    details = _fit(details, "omitted", max_bytes)
    if _fits(details, max_bytes):
        return msgspec.json.encode(details)
    if isinstance(details.expansion, ExpansionTrace):
        shown = details.expansion.shown[:_SHOWN]
        details = _trim(details, "shown", expansion=msgspec.structs.replace(details.expansion, shown=shown))
    bare = [msgspec.structs.replace(block, title="", breadcrumb=[]) for block in details.evidence_blocks]
    details = _fit(_trim(details, "titles", evidence_blocks=bare), "evidence_blocks", max_bytes)
    if _fits(details, max_bytes):
        return msgspec.json.encode(details)
    return _skeleton(details)


def _encode(details: RetrievalDetails) -> bytes | None:
    """Encode, or return None when a string holds what Postgres or UTF-8 refuses."""
    try:
        encoded = msgspec.json.encode(details)
    except UnicodeEncodeError:
        return None
    return None if b"\\u0000" in encoded else encoded


def _cleaned(details: RetrievalDetails) -> RetrievalDetails:
    """Clean every string; the omitted list is cut to what the cleaner walks."""
    if len(details.omitted) > _CLEANABLE:
        details = _trim(details, "omitted", omitted=details.omitted[:_CLEANABLE])
    return msgspec.convert(clean_json(msgspec.to_builtins(details)), RetrievalDetails, strict=False)


def _without_known_source(omission: OmissionTrace) -> OmissionTrace:
    if omission.source is None:
        return omission
    known = _PATH_KEY.match(omission.source_key)
    return msgspec.structs.replace(omission, source=None) if known and known[1] == omission.source else omission


def _clipped(block: BlockTrace) -> BlockTrace:
    crumbs = [crumb[:_CLIPPED_CHARS] for crumb in block.breadcrumb[-4:]]
    return msgspec.structs.replace(block, title=block.title[:_CLIPPED_CHARS], breadcrumb=crumbs)


def _trim(details: RetrievalDetails, name: str, **changes: Any) -> RetrievalDetails:
    return msgspec.structs.replace(details, trimmed=[*details.trimmed, name], **changes)


def _fits(details: RetrievalDetails, max_bytes: int) -> bool:
    return jsonb_size(msgspec.json.encode(details)) < max_bytes


def _fit(details: RetrievalDetails, name: Literal["omitted", "evidence_blocks"], max_bytes: int) -> RetrievalDetails:
    """Keep the longest head of one list that fits."""
    items: list[Any] = getattr(details, name)
    marked = _trim(details, name, **{name: []})
    room = max_bytes - 1 - jsonb_size(msgspec.json.encode(marked))
    kept = 0
    for item in items:
        room -= jsonb_size(msgspec.json.encode(item)) + 2
        if room < 0:
            break
        kept += 1
    return details if kept == len(items) else msgspec.structs.replace(marked, **{name: items[:kept]})


def _skeleton(details: RetrievalDetails) -> bytes:
    """Return what always fits: the counts."""
    counts = details.postprocess
    reasons = {normalise_text(key).text[:64]: value for key, value in list(counts.omitted_by_reason.items())[:64]}
    return msgspec.json.encode(
        {
            "schemaVersion": details.schema_version,
            "postprocess": msgspec.to_builtins(msgspec.structs.replace(counts, omitted_by_reason=reasons)),
            "omittedTotal": details.omitted_total,
            "trimmed": ["all"],
        }
    )
