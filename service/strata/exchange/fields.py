"""The fields of one line: each is read with its type, its size and its range, or refused with a reason."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

from strata.exchange.records import MAX_EPOCH, MAX_NAME_BYTES, MAX_PARAGRAPH, MIN_EPOCH

Fields = Mapping[str, Any]
_SHOWN_CHARS = 64
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Refused(Exception):  # noqa: N818  it is what happens to the line
    """A line breaks a rule. ``path`` names the field, empty for the whole line; ``advice`` says what to do.

    ``line`` is the line at fault where it is another than the one being read.
    """

    def __init__(self, path: str, kind: str, expected: str, actual: str, advice: str = "", *, line: int = 0) -> None:
        super().__init__(path)
        self.path = path
        self.kind = kind
        self.expected = expected
        self.actual = actual
        self.advice = advice
        self.line = line

    def within(self, path: str) -> Refused:
        """Return the same refusal with its path under ``path``."""
        self.path = f"{path}.{self.path}" if self.path else path
        return self


def shown(value: str) -> str:
    """Return a quoted text short enough to stand in a message."""
    cut = value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "…"
    return repr(cut)


def type_name(value: object) -> str:
    """Return what JSON calls a value of this type."""
    names = {str: "a string", bool: "a boolean", int: "an integer", float: "a number", dict: "an object"}
    return names.get(type(value), "null" if value is None else "an array")


def only(fields: Fields, allowed: Collection[str]) -> None:
    """Refuse fields that the line's shape does not have."""
    for key in fields:
        if key not in allowed:
            listed = ", ".join(allowed)
            raise Refused(
                key[:_SHOWN_CHARS],
                "domain",
                f"one of the fields {listed}",
                f"the unknown field {shown(key)}",
                "Take the field away, or correct its spelling.",
            )


def required(fields: Fields, key: str) -> Any:
    """Return a field that must be there; null counts as missing."""
    value = fields.get(key)
    if value is None:
        raise Refused(key, "missing", "a value", "null" if key in fields else "no such field", f"Give {key}.")
    return value


def wrong_type(key: str, expected: str, value: object) -> NoReturn:
    """Refuse a value of another type."""
    raise Refused(key, "type", expected, type_name(value))


def text_of(value: object, key: str, max_bytes: int, *, may_be_empty: bool = False) -> str:
    """Return a string of at most ``max_bytes`` of UTF-8 that can be stored."""
    if type(value) is not str:
        wrong_type(key, "a string", value)
    if not value and not may_be_empty:
        raise Refused(key, "empty", "at least one character", "an empty string", f"Give {key} a value.")
    # No character takes more than four bytes: most values are judged by their length alone.
    if len(value) * 4 > max_bytes and (size := len(value.encode())) > max_bytes:
        raise Refused(key, "too_long", f"at most {max_bytes:,} bytes", f"{size:,} bytes", f"Shorten {key}.")
    if "\0" in value:
        raise Refused(key, "domain", "text without NUL (U+0000)", "a NUL character", "Take the NUL away.")
    return value


def name(fields: Fields, key: str, max_bytes: int = MAX_NAME_BYTES) -> str:
    """Return a required string that is not empty."""
    return text_of(required(fields, key), key, max_bytes)


def optional_text(fields: Fields, key: str, max_bytes: int) -> str:
    """Return a string, empty where it is absent or null."""
    value = fields.get(key)
    return "" if value is None else text_of(value, key, max_bytes, may_be_empty=True)


def name_list(value: object, key: str, max_items: int, max_bytes: int) -> tuple[str, ...]:
    """Return a list of strings, each once, in its order; null is the empty list."""
    if value is None:
        return ()
    if type(value) is not list:
        wrong_type(key, "an array of strings", value)
    if len(value) > max_items:
        raise Refused(key, "over_limit", f"at most {max_items:,} items", f"{len(value):,} items", "Give fewer.")
    return tuple(dict.fromkeys(text_of(item, f"{key}[{at}]", max_bytes) for at, item in enumerate(value)))


def one_of(fields: Fields, key: str, values: Collection[str]) -> str:
    """Return a required string that is one of a closed set."""
    value = required(fields, key)
    if type(value) is not str:
        wrong_type(key, "a string", value)
    if value not in values:
        raise Refused(key, "domain", f"one of {', '.join(values)}", shown(value))
    return value


def boolean(value: object, key: str) -> bool:
    """Return a boolean."""
    if type(value) is not bool:
        wrong_type(key, "a boolean", value)
    return value


def integer(value: object, key: str, least: int, most: int) -> int:
    """Return an integer of a range; a float is refused even where it is whole."""
    if type(value) is not int:
        wrong_type(key, "an integer", value)
    if not least <= value <= most:
        raise Refused(key, "range", f"{least} to {most}", _digits(value))
    return value


def paragraph(value: object) -> int:
    """Return the number of a paragraph, counted from 0."""
    return integer(value, "paragraph", 0, MAX_PARAGRAPH)


def epoch(fields: Fields, key: str) -> int | None:
    """Return a time in epoch seconds within the years 1 to 9999; None where it is absent or null."""
    value = fields.get(key)
    if value is None:
        return None
    if type(value) is not int:
        wrong_type(key, "an integer of epoch seconds", value)
    if not MIN_EPOCH <= value <= MAX_EPOCH:
        raise Refused(
            key,
            "range",
            "epoch seconds within the years 1 to 9999",
            _digits(value),
            "Give seconds, not milliseconds; leave the field out where the time is open.",
        )
    return value


def number(value: object, key: str, least: float, most: float) -> float:
    """Return a finite number of a range as a float; negative zero becomes zero."""
    if type(value) is not float and type(value) is not int:
        wrong_type(key, "a number", value)
    if not least <= value <= most:
        actual = "not a number" if isinstance(value, float) and math.isnan(value) else _digits(value)
        raise Refused(key, "range", f"{least:g} to {most:g}", actual)
    return value + 0.0


def uuid_text(value: object, key: str) -> str:
    """Return an id as it must be spelled: lowercase, with hyphens."""
    if type(value) is not str:
        wrong_type(key, "a string", value)
    if not _UUID.fullmatch(value):
        raise Refused(key, "domain", "a UUID in lowercase with hyphens", shown(value))
    return value


def in_object(value: object, key: str, read: Callable[[Fields], Any]) -> Any:
    """Read a nested object; what it refuses is reported under ``key``."""
    if type(value) is not dict:
        wrong_type(key, "an object", value)
    try:
        return read(value)
    except Refused as refused:
        raise refused.within(key) from None


def _digits(value: float) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length():,} bits"
    return repr(value)
