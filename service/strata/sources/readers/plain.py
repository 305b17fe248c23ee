"""Plain text: paragraphs between blank lines."""

from __future__ import annotations

from strata.sources.readers.builder import make_document
from strata.sources.readers.refusal import refuse
from strata.text.document import Block, Document
from strata.text.normalise import add_changes, decode_bytes, normalise_text
from strata.text.paragraphs import paragraph_spans


def read_plain(data: bytes, *, charset: str | None = None) -> Document:
    """Read plain text. The stored text is the file's own, normalised."""
    text, changes = decode_normalised(data, charset)
    blocks = [Block("paragraph", start, end) for start, end in paragraph_spans(text)]
    return make_document(text, blocks, title="", metadata={}, changes=changes, warnings=(), language=None)


def decode_normalised(data: bytes, charset: str | None = None) -> tuple[str, dict[str, int]]:
    """Return the normalised text of a file and what changed; refuse one without visible text."""
    decoded = decode_bytes(data, charset)
    normalised = normalise_text(decoded.text)
    changes = dict(decoded.changes)
    add_changes(changes, normalised.changes)
    if not normalised.text or normalised.text.isspace():
        raise refuse("empty", "The file holds no text.")
    return normalised.text, changes
