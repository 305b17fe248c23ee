"""What a caller wishes to read of a document: the readings of a reference, the section, the range, and the form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from strata.errors import INVALID_REQUEST, SECTION_NOT_FOUND, StrataError
from strata.evidence.documents import SMALL_BYTES
from strata.knowledge.service import as_uuid
from strata.sources.document_repository import Found, Reference
from strata.sources.document_schemas import DEFAULT_FETCH_TOKENS, MAX_FETCH_TOKENS, MIN_FETCH_TOKENS, Mode
from strata.sources.document_view import clipped
from strata.sources.paths import MAX_PATH_BYTES, MAX_REVISION_DIGITS, as_pin
from strata.sources.repository import SectionHead
from strata.sources.views import is_storable
from strata.text.quoting import inline
from strata.text.sections import slugify

Shown = Literal["text", "outline", "unchanged"]

_ANCHORS_SHOWN = 20
_ANCHOR_CHARS = 80
_MAX_READINGS = 8
_SHA256_DIGITS = 64
_HEX = frozenset("0123456789abcdef")
_REFERENCE_CHARS = MAX_PATH_BYTES + 32


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for of a document. ``start_byte`` None means from where it, or the section, begins."""

    section: str | None = None
    mode: Mode = "auto"
    known: str | None = None
    max_tokens: int = DEFAULT_FETCH_TOKENS
    start_byte: int | None = None


def readings_of(source: str) -> list[tuple[str, str | None]]:
    """Return what a reference may mean, likeliest first: it as it stands, then what precedes an anchor."""
    readings: list[tuple[str, str | None]] = [(source, None)]
    at = len(source)
    while len(readings) <= _MAX_READINGS and (at := source.rfind("#", 0, at)) > 0:
        readings.append((source[:at], source[at + 1 :] or None))
    return [item for item in readings if len(item[0]) <= _REFERENCE_CHARS and is_storable(item[0])]


def reference_of(ref: str) -> Reference:
    """Return a reading as it is looked for."""
    path, revision = as_pin(ref) or (None, None)
    return Reference(ref, as_uuid(ref.strip()), path, revision)


def checked(wish: Wish) -> Wish:
    """Return a wish that can be met as far as it goes by itself; raises ``invalid_request``."""
    if wish.mode not in get_args(Mode):
        raise StrataError(INVALID_REQUEST, f"A mode is one of {', '.join(get_args(Mode))}.", pointer="?mode")
    if not MIN_FETCH_TOKENS <= wish.max_tokens <= MAX_FETCH_TOKENS:
        detail = f"maxTokens is {MIN_FETCH_TOKENS} to {MAX_FETCH_TOKENS}."
        raise StrataError(INVALID_REQUEST, detail, pointer="?maxTokens")
    return wish


def known_of(known: str | int | None) -> str | None:
    """Return what the caller knows as it is compared.

    Raises ``invalid_request`` for what is neither a revision number nor a hash.
    """
    if known is None:
        return None
    text = str(known).strip().lower()
    if is_digest(text) or (text.isascii() and text.isdigit() and len(text) <= MAX_REVISION_DIGITS):
        return text
    raise StrataError(INVALID_REQUEST, "known is a revision number, or a sha256 in hex.", pointer="?known")


def is_digest(known: str | None) -> bool:
    """Tell whether what the caller knows is a hash."""
    return known is not None and len(known) == _SHA256_DIGITS and _HEX.issuperset(known)


def _is_known(found: Found, known: str | None) -> bool:
    if known is None:
        return False
    if is_digest(known):
        return known in {found.text_sha256, found.content_sha256.hex()}
    return int(known) == found.revision


def one_anchor(anchor: str | None, section: str | None) -> str | None:
    """Return the section that is asked for, in the reference or beside it; raises ``invalid_request`` for two."""
    section = section.strip().removeprefix("#") if section else None
    if anchor and section and anchor != section:
        raise StrataError(
            INVALID_REQUEST,
            "The source has an anchor, and another section is given.",
            pointer="?section",
            remedy="Give the section once.",
        )
    return anchor or section or None


def section_of(found: Found, anchor: str | None) -> SectionHead | None:
    """Return the section of an anchor, in any case, or of a heading as it reads; raises ``section_not_found``."""
    if anchor is None:
        return None
    wanted, slug, heading = anchor.casefold(), slugify(anchor).casefold(), inline(anchor).casefold()
    ways: tuple[Callable[[SectionHead], bool], ...] = (
        lambda head: head.anchor == anchor,
        lambda head: head.anchor is not None and head.anchor.casefold() == wanted,
        lambda head: head.anchor is not None and head.anchor.casefold() == slug,
        lambda head: inline(head.heading).casefold() == heading,
    )
    for is_it in ways:
        for head in found.sections:
            if is_it(head):
                return head
    raise _no_section(found, anchor)


def _no_section(found: Found, anchor: str) -> StrataError:
    anchors = [head.anchor for head in found.sections if head.anchor]
    shown = [inline(clipped(name, _ANCHOR_CHARS)) for name in anchors[:_ANCHORS_SHOWN]]
    more = len(anchors) - len(shown)
    listed = f"it has {', '.join(f'#{name}' for name in shown)}" if shown else "it has none"
    return StrataError(
        SECTION_NOT_FOUND,
        f"{found.pin} has no section {clipped(inline(anchor), _ANCHOR_CHARS)!r}; {listed}"
        f"{f' +{more} more' if more else ''}.",
        pointer="?section",
        extra={"anchors": shown, "anchorsMore": more},
    )


def kind_of(found: Found, part: SectionHead | None, wish: Wish) -> Shown:
    """Return the form of the answer: a part is text, then what is known is not sent again, then by mode and size."""
    is_part = part is not None or wish.start_byte is not None
    if not is_part and _is_known(found, wish.known):
        return "unchanged"
    if wish.mode == "outline":
        return "outline"
    is_large = found.text_bytes >= SMALL_BYTES
    return "outline" if wish.mode == "auto" and is_large and found.sections and not is_part else "text"


def range_of(found: Found, part: SectionHead | None, wish: Wish) -> tuple[int, int]:
    """Return the byte range that is asked for; raises ``invalid_request`` for a start outside of it."""
    first, end = (0, found.text_bytes) if part is None else (part.start_byte, part.end_byte)
    start = first if wish.start_byte is None else wish.start_byte
    if not first <= start <= end:
        raise StrataError(INVALID_REQUEST, f"The text is in bytes {first} to {end}.", pointer="?startByte")
    return start, end
