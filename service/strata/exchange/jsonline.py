"""One line of a stream as a JSON object: strict, in UTF-8, without a key said twice."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from strata.exchange.fields import Refused, shown, type_name
from strata.text.lines import WHITE_SPACE

_decode = msgspec.json.Decoder().decode
_SURROGATE = re.compile("[\ud800-\udfff]")
_BOM = "\ufeff"


def read_object(raw: bytes) -> dict[str, Any] | None:
    """Return the object that a line holds, None for a blank line; raises :class:`Refused`.

    White space around the object is Unicode's White_Space. Refused are other JSON values, bytes that
    are not UTF-8, lone surrogates, numbers that JSON does not have, and an object with a key twice.
    """
    line = raw.strip()
    if not line:
        return None
    try:
        value = _decode(line)
    except (ValueError, RecursionError) as error:
        stripped = _trimmed(line)
        if not stripped:
            return None
        value = _second_look(stripped, error)
    if type(value) is not dict:
        raise Refused("", "type", "a JSON object", type_name(value), "Write one JSON object a line.")
    # A key has one colon outside strings: as many colons as keys, and none is said twice.
    if line.count(b":") != len(value):
        _refuse_repeated_keys(line)
    return value


def _trimmed(line: bytes) -> str:
    try:
        return line.decode().strip(WHITE_SPACE)
    except UnicodeDecodeError as error:
        raise Refused(
            "",
            "type",
            "UTF-8",
            f"the byte 0x{line[error.start]:02x} at byte {error.start} of the line",
            "Save the file as UTF-8.",
        ) from None


def _second_look(text: str, error: Exception) -> object:
    """Read a line that has wide spaces around it, or say what is wrong with it."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):
        pass
    if text.startswith(_BOM):
        raise Refused(
            "", "type", "a JSON object", "a byte order mark", "Keep it at the start of the file only, or take it away."
        ) from None
    if isinstance(error, RecursionError):
        raise _too_deep() from None
    try:
        lenient = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=list)
    except json.JSONDecodeError as wrong:
        raise Refused(
            "",
            "type",
            "a JSON object",
            f"malformed JSON at character {wrong.pos + 1}: {wrong.msg}",
            "Correct the JSON of this line.",
        ) from None
    except ValueError:
        lenient = None
    except RecursionError:
        raise _too_deep() from None
    if _has_surrogate(lenient):
        raise Refused(
            "", "domain", "Unicode text", "an unpaired surrogate escape", "Write the character itself, or both halves."
        ) from None
    raise Refused("", "range", "numbers that a double holds", "a number out of range", "Give a smaller number.")


def _has_surrogate(value: object) -> bool:
    if isinstance(value, str):
        return _SURROGATE.search(value) is not None
    return isinstance(value, (list, tuple)) and any(_has_surrogate(item) for item in value)


def _refuse_constant(constant: str) -> None:
    raise Refused("", "type", "a finite number", constant, "JSON has no such number: give a finite one.")


def _too_deep() -> Refused:
    return Refused("", "type", "an object a few levels deep", "too many levels of nesting", "Flatten the line.")


def _pairs(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise Refused(key[:64], "conflict", "each field once", f"{shown(key)} twice", "Keep one of the two.")
        seen.add(key)


# Values are of no interest here, and a number of a million digits must cost nothing.
_scan = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=len, parse_float=len).decode


def _refuse_repeated_keys(line: bytes) -> None:
    try:
        _scan(line.decode().strip(WHITE_SPACE))
    except RecursionError:
        raise _too_deep() from None
