"""What a source says of itself and what the caller says of it, merged into the columns of its row."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import PurePosixPath

import msgspec

from strata.errors import INVALID_REQUEST, StrataError
from strata.sources.model import DocumentInput, Given
from strata.sources.readers import FORMATS
from strata.text.document import Document
from strata.text.languages import detect_language, latin_language, resolve_language
from strata.text.normalise import add_changes, clean_json, normalise_text
from strata.text.paragraphs import collapse_spaces

MAX_TITLE_CHARS = 500
MAX_LABEL_CHARS = 128
MAX_KEY_BYTES = 1024
MAX_TAGS = 100
MAX_METADATA_BYTES = 64 * 1024
MAX_WARNINGS = 50

IDENTITY_FIELDS = ("doi", "isbn", "url", "uri", "canonical", "identifier", "id")
"""Metadata that says which document this is, wherever it is stored."""

_DATE_FIELDS = ("date", "occurred_at", "published", "published_at", "updated", "created")
_EXTENSIONS = frozenset(extension for entry in FORMATS.values() for extension in entry.extensions)
_YEAR_MONTH = re.compile(r"(\d{4})(?:[-/.](\d{1,2}))?")
_SLASHED = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})")
_SEPARATORS = re.compile(r"[,;\n]")


@dataclass(frozen=True, slots=True)
class Described:
    """The describing columns of a source row."""

    title: str
    category: str | None
    tags: tuple[str, ...]
    language: str | None
    occurred_at: dt.datetime | None
    source_key: str | None
    source_key_basis: str | None
    metadata: Mapping[str, object]
    warnings: tuple[str, ...]


_DETECTABLE_CHARS = 300


def clean_given(document: DocumentInput, changes: dict[str, int], pointer: str | None) -> Given:
    """Clean what the caller says; raises ``invalid_request`` for what cannot be meant.

    ``changes`` gets the counts of what was normalised away, keys of the metadata included.
    """
    at = pointer or ""
    metadata = clean_json(dict(document.metadata), changes)
    if not isinstance(metadata, dict) or len(msgspec.json.encode(metadata)) > MAX_METADATA_BYTES:
        raise StrataError(
            INVALID_REQUEST, f"The metadata is larger than {MAX_METADATA_BYTES} bytes.", pointer=f"{at}/metadata"
        )
    given = Given(
        media_type=_word(document.media_type, changes, MAX_LABEL_CHARS, f"{at}/mediaType"),
        title=_word(document.title, changes, MAX_TITLE_CHARS, f"{at}/title"),
        metadata=metadata,
        category=_word(document.category, changes, MAX_LABEL_CHARS, f"{at}/category"),
        tags=_given_tags(document.tags, changes, f"{at}/tags"),
        language=_word(document.language, changes, MAX_LABEL_CHARS, f"{at}/language"),
        occurred_at=_word(document.occurred_at, changes, MAX_LABEL_CHARS, f"{at}/occurredAt"),
        source_key=_word(document.source_key, changes, MAX_KEY_BYTES, f"{at}/sourceKey"),
    )
    if given.language and resolve_language(given.language) is None:
        raise StrataError(INVALID_REQUEST, "The language is no language tag.", pointer=f"{at}/language")
    if given.occurred_at and parse_time(given.occurred_at) is None:
        raise StrataError(INVALID_REQUEST, "The date is no ISO date or time.", pointer=f"{at}/occurredAt")
    return given


def describe(path: str, document: Document, given: Given) -> Described:
    """Merge a document's own metadata under what the caller gave.

    A category, tag list, language or date of the document that cannot be read is left out with a
    warning; the document's own metadata beyond 64 KiB is cut.
    """
    warnings = [normalise_text(warning).text for warning in document.warnings]
    metadata = _merged(document.metadata, given.metadata, warnings)
    key, basis = given.source_key, given.source_key_basis or ("EXPLICIT" if given.source_key else None)
    own_key = _scalar(metadata.get("source_key"))
    if basis != "EXPLICIT" and own_key and len(own_key.encode()) <= MAX_KEY_BYTES:
        key, basis = own_key, "EXPLICIT"
    return Described(
        title=given.title or document.title[:MAX_TITLE_CHARS] or _name_of(path),
        category=given.category or _category(metadata, warnings),
        tags=given.tags or _own_tags(metadata, warnings),
        language=_language(document, given, metadata, warnings),
        occurred_at=_occurred_at(given, metadata, warnings),
        source_key=key,
        source_key_basis=basis,
        metadata=metadata,
        warnings=tuple(warnings[:MAX_WARNINGS]),
    )


def metadata_key(metadata: Mapping[str, object]) -> str | None:
    """Return ``meta:<16 hex>`` over the identity fields that the metadata has, None when it has none."""
    identity = {name: value for name in IDENTITY_FIELDS if (value := _scalar(metadata.get(name)))}
    if not identity:
        return None
    return "meta:" + hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()[:16]


def parse_time(text: str) -> dt.datetime | None:
    """Read an ISO 8601 date or time tolerantly; UTC where no zone is named, None when it is no date.

    Takes also ``2024``, ``2024-05`` (their first day), ``2024/05/01`` and the form of e-mail.
    """
    value = text.strip()
    if match := _YEAR_MONTH.fullmatch(value):
        year, month = int(match[1]), int(match[2] or 1)
        return _time(lambda: dt.datetime(year, month, 1, tzinfo=dt.UTC))
    if match := _SLASHED.match(value):
        value = f"{match[1]}-{int(match[2]):02}-{int(match[3]):02}{value[match.end() :]}"
    return _time(lambda: dt.datetime.fromisoformat(value)) or _time(lambda: parsedate_to_datetime(value))


def _time(read: Callable[[], dt.datetime]) -> dt.datetime | None:
    try:
        value = read()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    try:
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    except OverflowError:
        return None


def _merged(own: Mapping[str, object], given: Mapping[str, object], warnings: list[str]) -> dict[str, object]:
    """Return both, the given ones winning; fields of the document's own that do not fit are left out."""
    merged = {**own, **given}
    if len(msgspec.json.encode(merged)) <= MAX_METADATA_BYTES:
        return merged
    room = MAX_METADATA_BYTES - len(msgspec.json.encode(given))
    kept: dict[str, object] = {}
    for name, value in own.items():
        size = len(msgspec.json.encode({name: value}))
        if name not in given and size <= room:
            kept[name] = value
            room -= size
    left_out = len(own) - len(kept)
    warnings.append(
        f"{left_out} metadata fields were left out: the metadata is larger than {MAX_METADATA_BYTES} bytes."
    )
    return {**kept, **given}


def _word(value: str | None, changes: dict[str, int], limit: int, pointer: str) -> str | None:
    if value is None:
        return None
    normalised = normalise_text(value)
    add_changes(changes, normalised.changes)
    word = collapse_spaces(normalised.text)
    if len(word.encode()) > limit * 4 or len(word) > limit:
        raise StrataError(INVALID_REQUEST, f"The value is longer than {limit} characters.", pointer=pointer)
    return word or None


def _given_tags(tags: Sequence[str], changes: dict[str, int], pointer: str) -> tuple[str, ...]:
    if len(tags) > MAX_TAGS:
        raise StrataError(INVALID_REQUEST, f"A source has at most {MAX_TAGS} tags.", pointer=pointer)
    words = (_word(tag, changes, MAX_LABEL_CHARS, f"{pointer}/{number}") for number, tag in enumerate(tags))
    return tuple(dict.fromkeys(word for word in words if word))


def _scalar(value: object) -> str:
    """Return a scalar as trimmed text, empty for anything else."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    return collapse_spaces(str(value))


def _category(metadata: Mapping[str, object], warnings: list[str]) -> str | None:
    value = metadata.get("category", metadata.get("categories"))
    if isinstance(value, list):
        value = value[0] if value else None
    if value is None:
        return None
    word = _scalar(value)
    if not word or len(word) > MAX_LABEL_CHARS:
        warnings.append("The document's category is not a short text and was left out.")
        return None
    return word


def _own_tags(metadata: Mapping[str, object], warnings: list[str]) -> tuple[str, ...]:
    value = metadata.get("tags")
    if isinstance(value, str):
        value = _SEPARATORS.split(value)
    if value is None:
        return ()
    listed = value if isinstance(value, list) else [value]
    words = [_scalar(item) for item in listed]
    kept = [word for word in words if word and len(word) <= MAX_LABEL_CHARS][:MAX_TAGS]
    if len(kept) < sum(1 for item in listed if item not in ("", None)):
        warnings.append("Some of the document's tags are not short texts and were left out.")
    return tuple(dict.fromkeys(kept))


def _language(document: Document, given: Given, metadata: Mapping[str, object], warnings: list[str]) -> str | None:
    """Return the language that is given, declared or seen; None when nothing tells."""
    declared = _scalar(metadata.get("language", metadata.get("lang")))
    for name in (given.language, document.language, declared):
        if not name:
            continue
        code = resolve_language(name)
        if code:
            return code
        warnings.append("The document's language is no language tag and was left out.")
    return guess_language(document.text)


def guess_language(text: str) -> str | None:
    """Return the language that a text shows, None where it is too short to tell."""
    guessed = detect_language(text)
    # The script speaks for itself; the function words of a short text may be those of several languages.
    is_sure = len(text) >= _DETECTABLE_CHARS or (guessed is not None and latin_language(guessed) != guessed)
    return guessed if is_sure else None


def _occurred_at(given: Given, metadata: Mapping[str, object], warnings: list[str]) -> dt.datetime | None:
    if given.occurred_at:
        return parse_time(given.occurred_at)
    for name in _DATE_FIELDS:
        value = _scalar(metadata.get(name))
        if not value:
            continue
        moment = parse_time(value)
        if moment is not None:
            return moment
        warnings.append(f"The document's {name} is no ISO date and was left out.")
    return None


def _name_of(path: str) -> str:
    """Return the title of a document that names none: its file name, empty where the path is a mere id."""
    name = PurePosixPath(path)
    return name.stem[:MAX_TITLE_CHARS] if name.suffix.lower() in _EXTENSIONS else ""
