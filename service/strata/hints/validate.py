"""What a curated hint may hold. Every refusal names the field."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NoReturn

import msgspec

from strata.errors import INVALID_REQUEST, StrataError
from strata.hints.names import normalise_name
from strata.hints.schemas import (
    MAX_ALIASES,
    MAX_BREADCRUMB,
    MAX_CATEGORY_CHARS,
    MAX_KEYWORDS,
    MAX_METADATA_BYTES,
    MAX_NAME_CHARS,
    MAX_PRIORITY,
    MAX_SUMMARY_CHARS,
    MAX_TARGET_CHARS,
    MAX_TARGETS,
    MAX_TITLE_CHARS,
    HintInput,
)
from strata.text.normalise import clean_json, normalise_text


def valid_hint(hint: HintInput, pointer: str = "") -> HintInput:
    """Return the hint as it is stored: cleaned, trimmed, repeated names left out, times in UTC.

    Raises ``invalid_request`` for the first field that cannot be stored; ``pointer`` is where the
    hint itself stands (``/hints/3``).
    """
    if not -MAX_PRIORITY <= hint.priority <= MAX_PRIORITY:
        _refuse(f"A priority is a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}.", f"{pointer}/priority")
    since = _utc(hint.valid_from, f"{pointer}/validFrom")
    until = _utc(hint.valid_until, f"{pointer}/validUntil")
    if since and until and since >= until:
        _refuse("A hint must begin to be valid before it ends.", f"{pointer}/validUntil")
    title = _name(hint.title, MAX_TITLE_CHARS, f"{pointer}/title")
    return HintInput(
        id=hint.id,
        title=title,
        aliases=_names(hint.aliases, MAX_ALIASES, f"{pointer}/aliases", taken=title),
        keywords=_names(hint.keywords, MAX_KEYWORDS, f"{pointer}/keywords"),
        category=_text(hint.category, MAX_CATEGORY_CHARS, f"{pointer}/category"),
        breadcrumb=_lines(hint.breadcrumb, MAX_BREADCRUMB, MAX_NAME_CHARS, f"{pointer}/breadcrumb"),
        summary=_text(hint.summary, MAX_SUMMARY_CHARS, f"{pointer}/summary"),
        targets=list(dict.fromkeys(_lines(hint.targets, MAX_TARGETS, MAX_TARGET_CHARS, f"{pointer}/targets"))),
        priority=hint.priority,
        valid_from=since,
        valid_until=until,
        metadata=_metadata(hint.metadata, f"{pointer}/metadata"),
    )


def _refuse(detail: str, pointer: str) -> NoReturn:
    raise StrataError(INVALID_REQUEST, detail, pointer=pointer)


def _utc(moment: datetime | None, pointer: str) -> datetime | None:
    """Return the moment in UTC; one without an offset is taken as UTC."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        _refuse("The time lies outside the years 1 to 9999.", pointer)


def _text(value: str | None, limit: int, pointer: str) -> str | None:
    cleaned = normalise_text(value or "").text.strip()
    if len(cleaned) > limit:
        _refuse(f"At most {limit} characters are allowed; this has {len(cleaned)}.", pointer)
    return cleaned or None


def _name(value: str, limit: int, pointer: str) -> str:
    name = " ".join((_text(value, limit, pointer) or "").split())
    if not normalise_name(name):
        _refuse("A name needs a letter, a digit or a symbol.", pointer)
    return name


def _check_count(values: Sequence[str], limit: int, pointer: str) -> None:
    if len(values) > limit:
        _refuse(f"At most {limit} are allowed; there are {len(values)}.", pointer)


def _names(values: Sequence[str], limit: int, pointer: str, taken: str = "") -> list[str]:
    """Return the names once each, by their normal form."""
    _check_count(values, limit, pointer)
    found = {normalise_name(taken): ""}
    for number, value in enumerate(values):
        name = _name(value, MAX_NAME_CHARS, f"{pointer}/{number}")
        found.setdefault(normalise_name(name), name)
    return [name for name in found.values() if name]


def _lines(values: Sequence[str], limit: int, max_chars: int, pointer: str) -> list[str]:
    """Return the texts, none of them empty."""
    _check_count(values, limit, pointer)
    lines: list[str] = []
    for number, value in enumerate(values):
        text = _text(value, max_chars, f"{pointer}/{number}")
        if text is None:
            _refuse("This must not be empty.", f"{pointer}/{number}")
        lines.append(text)
    return lines


def _metadata(value: dict[str, object], pointer: str) -> dict[str, object]:
    changes: dict[str, int] = {}
    cleaned = clean_json(value, changes)
    if changes.get("metadata_cut"):
        _refuse("The metadata is nested too deeply or holds too many values.", pointer)
    size = len(msgspec.json.encode(cleaned))
    if size > MAX_METADATA_BYTES:
        _refuse(f"Metadata takes at most {MAX_METADATA_BYTES} bytes as JSON; this takes {size}.", pointer)
    return cleaned if isinstance(cleaned, dict) else {}
