"""Assemble the text of a document block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strata.sources.readers.refusal import refuse
from strata.text.document import Block, BlockKind, Document
from strata.text.normalise import add_changes, clean_json, normalise_text
from strata.text.paragraphs import collapse_spaces

MAX_TITLE_CHARS = 500
# Headings go into every breadcrumb below them; the block itself keeps the whole text.
MAX_HEADING_CHARS = 500


class DocumentBuilder:
    """Collects blocks in reading order; each is normalised, trimmed and set apart by a blank line."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._blocks: list[Block] = []
        self.changes: dict[str, int] = {}
        self.warnings: list[str] = []

    def __len__(self) -> int:
        """Return how many characters the text has so far."""
        return self._length

    def add(
        self,
        kind: BlockKind,
        text: str,
        *,
        level: int = 0,
        anchor: str | None = None,
        page: int | None = None,
        interval: tuple[int, int] | None = None,
        speaker: str | None = None,
        separator: str = "\n\n",
    ) -> None:
        """Append a block; one without visible text is left out. Code keeps its first line's indent."""
        normalised = normalise_text(text)
        add_changes(self.changes, normalised.changes)
        text = normalised.text.rstrip()
        text = text.lstrip("\n") if kind == "code" else text.lstrip()
        if not text:
            return
        if self._parts:
            self._parts.append(separator)
            self._length += len(separator)
        start = self._length
        self._parts.append(text)
        self._length += len(text)
        self._blocks.append(
            Block(
                kind=kind,
                start=start,
                end=self._length,
                level=min(6, max(1, level)) if kind == "heading" else 0,
                heading=collapse_spaces(text)[:MAX_HEADING_CHARS] if kind == "heading" else "",
                anchor=anchor,
                page=page,
                start_ms=interval[0] if interval else None,
                end_ms=interval[1] if interval else None,
                speaker=speaker,
            )
        )

    def build(
        self, *, title: str = "", metadata: Mapping[str, object] | None = None, language: str | None = None
    ) -> Document:
        """Return the document; without a title its first level-1 heading names it."""
        return make_document(
            "".join(self._parts),
            self._blocks,
            title=title,
            metadata=metadata or {},
            changes=self.changes,
            warnings=self.warnings,
            language=language,
        )


def make_document(
    text: str,
    blocks: Sequence[Block],
    *,
    title: str,
    metadata: Mapping[str, object],
    changes: dict[str, int],
    warnings: Sequence[str],
    language: str | None,
) -> Document:
    """Finish a document: clean its metadata and title, and refuse it when it holds no text."""
    cleaned = clean_json(dict(metadata), changes)
    if not any(block.kind != "heading" or block.heading for block in blocks):
        raise refuse("no_text", "The document holds no text.")
    title_text = normalise_text(title)
    add_changes(changes, title_text.changes)
    name = collapse_spaces(title_text.text) or next((block.heading for block in blocks if block.level == 1), "")
    return Document(
        text=text,
        blocks=tuple(blocks),
        title=name[:MAX_TITLE_CHARS],
        metadata=cleaned if isinstance(cleaned, dict) else {},
        changes={name: changes[name] for name in sorted(changes)},
        warnings=tuple(warnings),
        language=language or None,
    )
