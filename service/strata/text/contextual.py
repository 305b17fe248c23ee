"""What is embedded for a passage: its text under the title and headings that it does not hold itself."""

from __future__ import annotations

from collections.abc import Sequence

_BETWEEN = " — "


def embedded_text(title: str, breadcrumb: Sequence[str], text: str) -> str:
    """Return the text with the title and headings above it on a line of their own.

    A heading that the text holds already, or that came before, is left out; the text alone remains where
    that leaves none. Changing this rule changes vectors: contexts must be embedded anew.
    """
    headings = [heading for heading in dict.fromkeys((title, *breadcrumb)) if heading and heading not in text]
    return f"{_BETWEEN.join(headings)}\n{text}" if headings else text
