"""Keep a result under what MCP clients take, and say what was left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from strata.text.estimate import token_quarters, tokens_of_quarters

RESULT_TOKENS = 20_000
"""The ceiling of text and of structured content, each, by the declared estimate. Clients warn or cut at 25,000."""

_QUARTERS = 4 * RESULT_TOKENS
HALF_QUARTERS = _QUARTERS // 2
_NOTE_QUARTERS = 4 * 400
CLIPPED_CHARS = 1_000
ELLIPSIS = "…"

Step = Callable[[], None]


def compact(value: Any) -> str:
    """Return compact JSON with characters as they are."""
    return msgspec.json.encode(value).decode()


def tokens(text: str) -> int:
    """Return the estimate of a text."""
    return tokens_of_quarters(token_quarters(text))


def fits(text: str) -> bool:
    """Tell whether a text, and a note on what was left out, is within the ceiling."""
    return token_quarters(text) <= _QUARTERS - _NOTE_QUARTERS


def excess(value: Any) -> int:
    """Return by how many quarter tokens the JSON of a value is too large; at most 0 where it fits."""
    return token_quarters(compact(value)) - (_QUARTERS - _NOTE_QUARTERS)


def longest_head(text: str, is_short: Callable[[str], bool]) -> str:
    """Return the longest head of a text that is short enough, with an ellipsis where cut."""
    if is_short(text):
        return text
    low, high = 0, min(len(text), _QUARTERS)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_short(text[:middle] + ELLIPSIS) else (low, middle - 1)
    return text[:low] + ELLIPSIS


def clip_text(text: str, quarters: int) -> str:
    """Return the longest head of a text within ``quarters``, with an ellipsis where cut."""
    return longest_head(text, lambda head: token_quarters(head) <= quarters)


def clip_texts(value: Any, items: Sequence[dict[str, Any]], key: str = "text") -> int:
    """Clip the long texts of items, last first, until the value fits; return how many were clipped."""
    over, clipped = excess(value), 0
    for item in reversed(items):
        text = item.get(key)
        if over <= 0:
            break
        if isinstance(text, str) and len(text) > CLIPPED_CHARS:
            item[key] = text[:CLIPPED_CHARS] + ELLIPSIS
            over -= token_quarters(compact(text)) - token_quarters(compact(item[key]))
            clipped += 1
    return clipped


def cut_tail(value: Any, items: list[Any], *, room: int = 0) -> int:
    """Drop items from the end, until the value fits and leaves ``room``; return how many were dropped."""
    over, dropped = excess(value) + room, 0
    while over > 0 and items:
        over -= token_quarters(compact(items.pop())) + 1
        dropped += 1
    return dropped
