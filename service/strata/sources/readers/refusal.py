"""Why a file is refused: stable reasons, one sentence each."""

from __future__ import annotations

from typing import Literal

from strata.errors import SOURCE_REFUSED, StrataError

Reason = Literal[
    "unsupported_format",
    "empty",
    "encrypted",
    "malformed",
    "too_large",
    "no_text",
    "binary",
    "timeout",
    "crashed",
    "memory",
]

_REMEDIES: dict[Reason, str] = {
    "unsupported_format": "Convert it to Markdown, text, HTML, PDF, DOCX, CSV, JSONL, WebVTT or SRT.",
    "empty": "Nothing to do, unless the file should hold text.",
    "encrypted": "Save it without a password.",
    "malformed": "Open it in the program that made it, and save it again.",
    "too_large": "Split it, or raise STRATA_MAX_SOURCE_BYTES.",
    "no_text": "Run text recognition (OCR) on it first.",
    "binary": "Convert it to text.",
    "timeout": "Split it, or raise STRATA_READER_TIMEOUT_SECONDS.",
    "crashed": "Open it in the program that made it, and save it again.",
    "memory": "Split it, or raise STRATA_READER_MEMORY_BYTES.",
}


def refuse(reason: Reason, detail: str) -> StrataError:
    """Return the error that refuses a source; ``extra["reason"]`` is the stable reason."""
    return StrataError(SOURCE_REFUSED, detail, remedy=_REMEDIES[reason], extra={"reason": reason})
