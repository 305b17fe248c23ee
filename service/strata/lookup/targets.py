"""Which passage stands for the target of a hint."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from strata.evidence.model import Candidate
from strata.lookup.candidates import Rows, passage_of
from strata.lookup.repository import PassageRow


class Targets:
    """Which passage stands for a hint's target: the best lexical hit inside it, else the one resolved."""

    def __init__(self, candidates: Sequence[Candidate], rows: Rows) -> None:
        self._rows: dict[tuple[UUID, str, str | None], PassageRow] = {}
        for candidate in candidates:
            row = rows.get(passage_of(candidate))
            if row is None or row.text is None:
                continue
            self._rows.setdefault((row.context_id, row.path, None), row)
            if row.anchor is not None:
                self._rows.setdefault((row.context_id, row.path, row.anchor), row)

    def find(self, context: UUID, path: str, anchor: str | None) -> PassageRow | None:
        """Return the passage of a target, None where none is known."""
        return self._rows.get((context, path, anchor))

    def add(self, target: tuple[UUID, str, str | None], row: PassageRow) -> None:
        """Let a passage stand for a target."""
        self._rows[target] = row
