"""WebVTT and SubRip: recordings as cues with their interval and speaker."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from strata.sources.readers.builder import DocumentBuilder
from strata.sources.readers.plain import decode_normalised
from strata.sources.readers.refusal import refuse
from strata.text.document import Document
from strata.text.paragraphs import join_wrapped

_STAMP = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})(?:[.,](\d{1,3}))?"
_TIMING = re.compile(rf"\s*{_STAMP}\s*-->\s*{_STAMP}(?:\s.*)?")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<[\d:.]+>|</>|\{\\[^{}]*\}")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s+([^<>]+)>")
_ROLLING = re.compile(r"<\d[\d:.]*>")
_PREFIX = re.compile(r"([^\W\d_][\w .'’-]{0,39}):\s+(?=\S)")
_HEADER_FIELD = re.compile(r"(Kind|Language)\s*:\s*(\S.*)", re.IGNORECASE)


@dataclass(slots=True)
class _Cue:
    start_ms: int
    end_ms: int
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Utterance:
    start_ms: int
    end_ms: int
    speaker: str | None
    text: str


def read_recording(data: bytes, kind: Literal["vtt", "srt"], *, charset: str | None = None) -> Document:
    """Read subtitles or a transcript; each cue is a block ``Speaker: text`` with its interval.

    Stamps may lack hours, padding and milliseconds. The speaker comes from ``<v Name>``, or from a
    ``Name: `` that at least two cues and a third of all open with. Cues without text or with a broken
    interval are left out and counted in a warning. Captions that scroll repeat lines: repeats go.
    """
    text, changes = decode_normalised(data, charset)
    builder = DocumentBuilder()
    builder.changes.update(changes)
    metadata, cues, broken = _parse(text, strict_blank=kind == "vtt")
    if kind == "vtt" and not text.startswith("WEBVTT"):
        builder.warnings.append("The file does not start with WEBVTT.")
    if _ROLLING.search(text):
        _drop_repeats(cues)
    utterances = [utterance for cue in cues for utterance in _utterances(cue)]
    if "<v" not in text:
        utterances = _with_prefix_speakers(utterances)
    for said in utterances:
        line = f"{said.speaker}: {said.text}" if said.speaker else said.text
        builder.add("cue", line, interval=(said.start_ms, said.end_ms), speaker=said.speaker, separator="\n")
    if not len(builder):
        raise _no_cues(broken + len(cues))
    if broken:
        builder.warnings.append(f"{broken} cues without text or with a broken interval were left out.")
    return builder.build(metadata=metadata, language=metadata.get("language"))


def _no_cues(broken: int) -> Exception:
    if broken:
        return refuse("malformed", "The recording has no valid cue.")
    return refuse("empty", "The recording has no cues.")


def _parse(text: str, *, strict_blank: bool) -> tuple[dict[str, str], list[_Cue], int]:
    """Return the header fields, the cues that have text, and how many blocks were broken."""
    metadata: dict[str, str] = {}
    cues: list[_Cue] = []
    broken = 0
    for block in _blocks(text, strict_blank=strict_blank):
        first = block[0]
        if first.startswith("WEBVTT"):
            metadata.update((found[1].lower(), found[2]) for found in map(_HEADER_FIELD.match, block) if found)
            continue
        if re.match(r"(?:NOTE|STYLE|REGION)(?:\s|$)", first) and "-->" not in first:
            continue
        found_cues, bad = _cues_of(block)
        cues.extend(found_cues)
        broken += bad
    return metadata, cues, broken


def _blocks(text: str, *, strict_blank: bool) -> Iterator[list[str]]:
    """Yield runs of lines; in WebVTT a line of spaces is a line of its cue, elsewhere it ends one."""
    block: list[str] = []
    for line in (*text.split("\n"), ""):
        if line and (strict_blank or line.strip()):
            block.append(line)
        elif block:
            yield block
            block = []


def _cues_of(block: list[str]) -> tuple[list[_Cue], int]:
    """Return the cues of a block, usually one; a timing line inside it opens another."""
    cues: list[_Cue] = []
    current: _Cue | None = None
    skipped = False
    for line in block:
        timing = _TIMING.fullmatch(line)
        if timing:
            if current and current.lines and current.lines[-1].strip().isdigit():
                current.lines.pop()
            current = _timed(timing)
            skipped = skipped or current is None
            if current:
                cues.append(current)
        elif current:
            current.lines.append(line)
    kept = [cue for cue in cues if any(_TAG.sub("", line).strip() for line in cue.lines)]
    return kept, int(skipped or not kept)


def _timed(timing: re.Match[str]) -> _Cue | None:
    start, end = _milliseconds(timing.groups()[:4]), _milliseconds(timing.groups()[4:])
    return _Cue(start, end) if end >= start else None


def _milliseconds(parts: tuple[str | None, ...]) -> int:
    hours, minutes, seconds, fraction = parts
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return whole * 1000 + int((fraction or "0").ljust(3, "0"))


def _drop_repeats(cues: list[_Cue]) -> None:
    """Take out lines that a scrolling caption shows again; a cue of repeats alone lengthens the one before."""
    kept: list[_Cue] = []
    shown = ""
    for cue in cues:
        lines = [line for line in (_plain(line) for line in cue.lines) if line]
        if lines and lines[0] == shown and kept and cue.start_ms <= kept[-1].end_ms:
            lines = lines[1:]
            if not lines:
                kept[-1].end_ms = max(kept[-1].end_ms, cue.end_ms)
                continue
            cue.lines = [line for line in cue.lines if _plain(line)][1:]
        if lines:
            kept.append(cue)
            shown = lines[-1]
    cues[:] = kept


def _plain(markup: str) -> str:
    return join_wrapped(html.unescape(_TAG.sub("", markup)).replace("\xa0", " ").split("\n"))


def _utterances(cue: _Cue) -> Iterator[_Utterance]:
    """Yield what is said in a cue, one for each voice in it."""
    parts = _VOICE.split("\n".join(cue.lines))
    voices = [None, *(html.unescape(" ".join(name.split())) for name in parts[1::2])]
    for speaker, markup in zip(voices, parts[0::2], strict=True):
        if text := _plain(markup):
            yield _Utterance(cue.start_ms, cue.end_ms, speaker, text)


def _with_prefix_speakers(utterances: list[_Utterance]) -> list[_Utterance]:
    matches = [_PREFIX.match(said.text) for said in utterances]
    count = sum(1 for match in matches if match)
    if count < 2 or count * 3 < len(utterances):
        return utterances
    return [
        _Utterance(said.start_ms, said.end_ms, match[1], said.text[match.end() :]) if match else said
        for said, match in zip(utterances, matches, strict=True)
    ]
