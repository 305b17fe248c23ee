"""A judged set as an import stream with a graph: what each document says of its subject, and which others it names.

The facts are those that a person could note of a document without knowing the questions, each with its paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from strata.graph.mentions import MAX_TEXT_CHARS, mentions
from strata.graph.vocabulary import Vocabulary
from strata.sources.readers import BeirRecord

IS, MENTIONS = "is", "mentions"

_IS_WEIGHT, _MENTIONS_WEIGHT = 3.0, 1.0
"""What a document says of its own subject counts for more than whom else it names."""

_DEFINITION = re.compile(r"\b(?:is|was|are|were) (?:an?|the|one of(?: the)?) ([^.;,(]{3,90})")
_DEFINED_WITHIN_CHARS = 400
_OVERLAP = 256
"""Characters that neighbouring windows of a long text share, so that no name is cut by both."""

Lines = Sequence[dict[str, object]]


class Titles:
    """The titles of a set, ready to be found in texts; those without a letter or digit are none."""

    def __init__(self, documents: Iterable[BeirRecord]) -> None:
        titles = {document.title.strip() for document in documents}
        self._names = Vocabulary(enumerate(sorted(title for title in titles if any(map(str.isalnum, title)))), ())

    def in_question(self, text: str) -> list[str]:
        """Return the titles that a question mentions, in whatever case; longest first."""
        return [self._names.names[found.index] for found in mentions(self._names, text)]

    def in_text(self, text: str) -> list[str]:
        """Return the titles that stand in a text as whole names in their own spelling, in code point order."""
        return sorted({name for window in _windows(text) for name in self._within(window) if name in window})

    def _within(self, window: str) -> Iterator[str]:
        for found in mentions(self._names, window, most=MAX_TEXT_CHARS):
            yield self._names.names[found.index]


def linked(documents: Iterable[BeirRecord], titles: Titles) -> list[tuple[str, Lines]]:
    """Return each document that has text with the lines that fill its source: one paragraph under its title, and facts.

    A fact's subject is the title. ``is`` has what the first sentences define it as, ``mentions`` each other title
    that stands in the text.
    """
    return [(each.id, list(_lines(each, titles))) for each in documents if each.text.strip()]


def import_stream(sources: Iterable[tuple[str, Lines]], context: str) -> bytes:
    """Return the stream that fills a context with what :func:`linked` returned."""
    encoder = msgspec.json.Encoder()
    whole = (
        line
        for source, lines in sources
        for line in ({"taguru_batch": 1, "context": context, "source": source, "create": {}}, *lines)
    )
    return b"".join(encoder.encode(line) + b"\n" for line in whole)


def _lines(document: BeirRecord, titles: Titles) -> Iterator[dict[str, object]]:
    title, text = document.title.strip(), " ".join(document.text.split())
    yield {"passage": text}
    if not title:
        return
    yield {"paragraph": 0, "section": title}
    defined = _DEFINITION.search(text[:_DEFINED_WITHIN_CHARS])
    if defined is not None and defined[1].strip() not in ("", title):
        yield _fact(title, IS, defined[1].strip(), _IS_WEIGHT)
    for mentioned in titles.in_text(text):
        if mentioned != title:
            yield _fact(title, MENTIONS, mentioned, _MENTIONS_WEIGHT)


def _fact(subject: str, label: str, object_: str, weight: float) -> dict[str, object]:
    return {"subject": subject, "label": label, "object": object_, "weight": weight, "paragraph": 0}


def _windows(text: str) -> Iterator[str]:
    for start in range(0, max(1, len(text) - _OVERLAP), MAX_TEXT_CHARS - _OVERLAP):
        yield text[start : start + MAX_TEXT_CHARS]
