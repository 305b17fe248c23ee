"""The identity of a source within its context, a cleaned path or id; and the pins of its revisions."""

from __future__ import annotations

import re

from strata.errors import INVALID_REQUEST, StrataError
from strata.text.normalise import add_changes, normalise_text

MAX_PATH_BYTES = 1024
MAX_REVISION = 2**63 - 1
MAX_REVISION_DIGITS = 18
"""Any number of so many digits is below the largest there can be."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BREAKS = re.compile(r"\s+")
_DIGITS = frozenset("0123456789")


def clean_id(raw: str, changes: dict[str, int], pointer: str | None = None) -> str:
    """Return an id as it is stored: normalised, trimmed, white space runs made one space.

    What was cleaned is counted into ``changes``. Raises ``invalid_request`` when nothing is left or
    when it is longer than 1,024 bytes.
    """
    normalised = normalise_text(raw)
    add_changes(changes, normalised.changes)
    name = _BREAKS.sub(" ", normalised.text).strip()
    if not name:
        raise StrataError(INVALID_REQUEST, "The path or id is empty.", pointer=pointer)
    if len(name.encode()) > MAX_PATH_BYTES:
        raise StrataError(
            INVALID_REQUEST, f"The path or id is longer than {MAX_PATH_BYTES} bytes in UTF-8.", pointer=pointer
        )
    return name


def clean_path(raw: str, changes: dict[str, int], pointer: str | None = None) -> str:
    """Return a POSIX path relative to its root: ``.`` and ``..`` resolved, no slash doubled or leading.

    A URL stays as it is. Raises ``invalid_request`` also when the path leads above its root or
    names the root itself.
    """
    name = clean_id(raw, changes, pointer)
    if _URL.match(name):
        return name
    parts: list[str] = []
    for part in name.split("/"):
        if part == "..":
            if not parts:
                raise StrataError(INVALID_REQUEST, "The path leads above its root.", pointer=pointer)
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    if not parts:
        raise StrataError(INVALID_REQUEST, "The path names no document.", pointer=pointer)
    return "/".join(parts)


def pin_of(path: str, revision: int) -> str:
    """Return the pin of a revision, such as ``hr/leave.md/v2``."""
    return f"{path}/v{revision}"


def as_pin(ref: str) -> tuple[str, int] | None:
    """Return path and revision of what has the form of a pin; the number is from 1, without leading zeros.

    A number beyond all revisions is the largest there can be.
    """
    path, _, last = ref.rpartition("/")
    digits = last[1:]
    if not path or not last.startswith("v") or not digits or digits[0] == "0" or not _DIGITS.issuperset(digits):
        return None
    return path, int(digits) if len(digits) <= MAX_REVISION_DIGITS else MAX_REVISION
