"""Text of documents inside text of ours, so that none of it can pass for a heading, a place or a note."""

from __future__ import annotations

_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "`\x7f\x85\u2028\u2029"}


def quoted(text: str) -> str:
    """Return every line of a text behind ``> ``, whatever ends the lines; empty for an empty text."""
    return "\n".join(f"> {line}" for line in text.splitlines())


def inline(text: str) -> str:
    """Return a text as part of a line: white space and line breaks are single spaces, backticks apostrophes."""
    return " ".join(text.split()).replace("`", "'")


def code(text: str) -> str:
    """Return a name as code: one line, and no mark of its own that could end it."""
    return f"`{inline(text)}`"


def code_json(text: str) -> str:
    """Return compact JSON as code, the same value: backticks and the line breaks that JSON leaves are escaped."""
    return f"`{text.translate(_ESCAPED)}`"
