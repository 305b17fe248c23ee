"""Tell at which stage, and for which reason, one source or passage is or is not in a result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from strata.platform.ids import SERIAL_BITS
from strata.text.tokenise import QueryTerm, analyse
from strata.traces.schemas import (
    CandidateFate,
    ExpansionTrace,
    LaneRankTrace,
    LaneTrace,
    RetrievalDetails,
    Stage,
)

STAGE_OF_REASON: Mapping[str, Stage] = {
    "DUPLICATE_SOURCE": Stage.DEDUPLICATION,
    "NEAR_DUPLICATE": Stage.DEDUPLICATION,
    "BELOW_FLOOR": Stage.FLOOR,
    "BUDGET_EXCEEDED": Stage.BUDGET,
    "BELOW_TOP_K": Stage.TOP_K,
    "GONE": Stage.CONFIRM,
}

_SENTENCES = {
    "DUPLICATE_SOURCE": "another passage under the same source key ranks better and stands for it",
    "NEAR_DUPLICATE": "a passage with nearly the same text ranks better and stands for it",
    "BELOW_FLOOR": "its relevance is below the floor",
    "BUDGET_EXCEEDED": "it did not fit into what was left of the budget",
    "BELOW_TOP_K": "the wanted number of blocks was reached before its turn",
    "GONE": "it had been deleted or replaced when the selected rows were read",
}
_PASSAGE = re.compile(r"[0-9]{7,19}")
_PATH_KEY = re.compile(r"path:([^#]+)")
_OFFSET = re.compile(r"@[0-9]+\Z")  # ends a path key that names a passage
_MAX_BIGINT = 2**63


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked about: ``path`` and ``serial`` are what the text can mean besides a source key."""

    text: str
    path: str
    serial: int | None
    passage: int | None

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read a source path (anchor allowed), a source key or a passage key."""
        path = text.removeprefix("path:")
        number = int(text) if _PASSAGE.fullmatch(text) else None
        passage = number if number is not None and number < _MAX_BIGINT else None
        return cls(text, path, passage >> SERIAL_BITS if passage is not None else None, passage)

    def matches(self, source_key: str, source: str | None, passage: str | None) -> bool:
        """Tell whether a recorded candidate is what was asked about."""
        whole_key = _OFFSET.sub("", source_key)
        paths = {source} if source else {known[1] for key in (source_key, whole_key) if (known := _PATH_KEY.match(key))}
        return self.text in (source_key, passage, *paths) or f"path:{self.path}" in (source_key, whole_key)


def fates(details: RetrievalDetails, target: Target) -> list[CandidateFate]:
    """Return every recorded candidate that is the target: the selected first, then in pipeline order."""
    selected = [
        CandidateFate(
            source_key=block.source_key,
            source=block.source,
            passage=block.passage,
            stage=Stage.SELECTED,
            reason=None,
            rank=block.rank,
            duplicate_of=None,
            lane_ranks=block.lane_ranks,
        )
        for block in details.evidence_blocks
        if target.matches(block.source_key, block.source, block.passage)
    ]
    omitted = [
        CandidateFate(
            source_key=omission.source_key,
            source=omission.source,
            passage=omission.passage,
            stage=STAGE_OF_REASON.get(omission.reason, Stage.FUSION),
            reason=omission.reason,
            rank=None,
            duplicate_of=omission.duplicate_of,
            lane_ranks=omission.lane_ranks,
        )
        for omission in details.omitted
        if target.matches(omission.source_key, omission.source, omission.passage)
    ]
    return selected + omitted


def nearest_fates(details: RetrievalDetails, target: Target) -> tuple[list[CandidateFate], list[str]]:
    """Return the fates of the target or, where it names a section that has none, of its source; with a note of that."""
    found = fates(details, target)
    path = target.path.rpartition("#")[0]
    if found or not path:
        return found, []
    found = fates(details, Target.parse(path))
    return found, [f"No candidate is {target.path}; this is about {path} as a whole."] if found else []


def fate_sentence(fate: CandidateFate, details: RetrievalDetails) -> str:
    """Say in one sentence what became of a candidate."""
    ranks = _ranks(fate.lane_ranks)
    if fate.stage is Stage.SELECTED:
        return f"It was selected at rank {fate.rank}{f' ({ranks})' if ranks else ''}."
    nominated = f"It was nominated ({ranks}), but " if ranks else "It was a candidate, but "
    because = _SENTENCES.get(fate.reason or "", f"it was dropped as {fate.reason}")
    stands = ""
    if fate.stage is Stage.DEDUPLICATION:
        key = fate.duplicate_of or fate.source_key
        rank = next((block.rank for block in details.evidence_blocks if block.source_key == key), None)
        where = f"selected at rank {rank}" if rank is not None else "itself not selected"
        stands = f": {key}, {where}"
    return f"{nominated}{because}{stands}."


def _ranks(lane_ranks: Iterable[LaneRankTrace]) -> str:
    return ", ".join(f"{place.lane} rank {place.rank}" for place in lane_ranks)


def unlisted(details: RetrievalDetails) -> int:
    """Return how many omitted candidates the size limit kept out of the list."""
    return max(0, details.omitted_total - len(details.omitted))


def lane_notes(lanes: Mapping[str, LaneTrace]) -> list[str]:
    """Name the lanes that did not run, with their reason."""
    return [
        f"Lane {name} did not run: {lane.reason or 'no reason recorded'}."
        for name, lane in sorted(lanes.items())
        if not lane.ran
    ]


def shown_notes(details: RetrievalDetails, target: Target) -> list[str]:
    """Say what a budget for the whole answer left of a source; nothing where the answer had none."""
    expansion = details.expansion
    if not isinstance(expansion, ExpansionTrace):
        return []
    path = target.path.partition("#")[0]
    shown = [item for item in expansion.shown if item.source in {target.path, path}]
    if not shown:
        return [f"The answer had {expansion.limit:,} tokens and shows nothing of it: other text came first."]
    ranges = ", ".join(f"{item.start_byte}-{item.end_byte}" for item in shown)
    brought = next((item.relation for item in shown if item.relation and not item.rows), None)
    by = f", brought by its relation {brought}" if brought else ""
    return [f"The answer had {expansion.limit:,} tokens and shows bytes {ranges} of it{by}."]


def read_details(value: Mapping[str, Any] | None) -> RetrievalDetails | None:
    """Read a stored ``retrieval_details``; None when there is none, or only its counts were kept."""
    try:
        return None if value is None else msgspec.convert(value, RetrievalDetails)
    except msgspec.ValidationError:
        return None


@dataclass(frozen=True, slots=True)
class TermMatch:
    """The passage that holds most words of a query; ``passage`` is None when none holds any."""

    passage: int | None
    held: list[str]
    missing: list[str]


def match_terms(terms: Sequence[QueryTerm], passages: Sequence[tuple[int, str]], language: str | None) -> TermMatch:
    """Find the passage that holds most words of the query; the first wins a tie."""
    words = list(dict.fromkeys(term.surface for term in terms))
    passage: int | None = None
    held: set[str] = set()
    for candidate, text in passages:
        present = analyse(text, language).frequencies
        found = {term.surface for term in terms if term.token in present}
        if len(found) > len(held):
            passage, held = candidate, found
    return TermMatch(passage, [word for word in words if word in held], [word for word in words if word not in held])


@dataclass(frozen=True, slots=True)
class Absence:
    """Why something is among no recorded candidates."""

    stage: Stage
    reason: str
    sentence: str


def ingest_absence(*, called_at: datetime, ingested_at: datetime, passages: int, context: str) -> Absence | None:
    """Explain an absence by what was stored at the time of the call; None when it was there."""
    if ingested_at > called_at:
        sentence = f"It was ingested into context {context} at {_utc(ingested_at)}, after the call."
        return Absence(Stage.INGEST, "INGESTED_LATER", sentence)
    if passages == 0:
        return Absence(Stage.INGEST, "NO_PASSAGES", "It is stored, but has no text to search.")
    return None


def lane_absence(match: TermMatch | None, ranks: Mapping[str, int], lanes: Mapping[str, LaneTrace]) -> Absence:
    """Explain why no lane nominated a source that was there and passed the filters.

    ``ranks`` are its places today, by lane. ``match`` is None where the words of the query are not known.
    """
    if ranks:
        places = " and ".join(f"{name} rank {ranks[name]}" for name in sorted(ranks))
        sentence = f"No lane nominated it: it would now stand at {places}{_given(ranks, lanes)}."
        return Absence(Stage.LANE, "BEYOND_LANE_LIMIT", sentence)
    if match is not None and match.passage is None:
        return Absence(Stage.LANE, "NO_QUERY_TERMS", "No lane nominated it: it holds none of the query's terms.")
    given = _given(("lexical",), lanes)
    if match is not None:
        words = ", ".join(match.held)
        sentence = f"No lane nominated it: it holds {words}, but others rank before it{given}."
        return Absence(Stage.LANE, "NOT_NOMINATED", sentence)
    return Absence(Stage.LANE, "NOT_NOMINATED", f"No lane nominated it{given}.")


def _given(names: Iterable[str], lanes: Mapping[str, LaneTrace]) -> str:
    """Say how many candidates the lanes gave, of those that ran."""
    ran = [(name, lane) for name in sorted(names) if (lane := lanes.get(name)) is not None and lane.ran]
    if len(ran) == 1:
        return f"; the lane gave {ran[0][1].candidates} candidates"
    return "".join(f"; {name} gave {lane.candidates} candidates" for name, lane in ran)


def _utc(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
