"""What reading a document answers, made to fit, and the Markdown of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from strata.errors import INVALID_REQUEST, StrataError
from strata.sources.document_schemas import Fetched, Heading, ReadyCall, SpentTokens
from strata.sources.repository import SectionHead
from strata.text.estimate import token_quarters, tokens_of_quarters
from strata.text.paragraphs import SENTENCE_END, cluster_start
from strata.text.quoting import code, code_json, inline, quoted

MAX_HEADING_CHARS = 200
SUPERSEDING_SHOWN = 10
_ELLIPSIS = "…"
_BLANK = re.compile(r"\n(?:[^\S\n]*\n)+")
_LINE = re.compile(r"\n")
_SPACE = re.compile(r"\s+")
_SLACK_QUARTERS = 8
_LEAST_HEADING = 32
Next = Callable[[int], ReadyCall]
"""Makes the call that goes on at a byte."""


def clipped(text: str, chars: int = MAX_HEADING_CHARS) -> str:
    """Return the head of a text, with an ellipsis where cut."""
    return text if len(text) <= chars else text[: chars - 1] + _ELLIPSIS


def headings(sections: Sequence[SectionHead]) -> list[Heading]:
    """Return sections as an outline shows them."""
    return [
        Heading(
            level=section.level,
            heading=clipped(section.heading),
            anchor=section.anchor,
            start_byte=section.start_byte,
            tokens=tokens_of_quarters(section.end_byte - section.start_byte),
        )
        for section in sections
    ]


def narrowed(frame: Fetched) -> Fetched:
    """Return a result without text, with less around it where that takes more than half of the room."""
    if larger_form(frame) <= 2 * frame.budget.limit:
        return frame
    return replace(
        frame,
        title=clipped(frame.title, 60),
        breadcrumb=[clipped(name, 60) for name in frame.breadcrumb[-1:]],
        superseded_by=frame.superseded_by[:1],
    )


def with_text(frame: Fetched, data: bytes, start: int, end: int, following: Next) -> Fetched:
    """Return a result with as much of a text as fits, from byte ``start`` of it up to ``end``.

    ``data`` begins at ``start`` and may stop short of ``end``. Cut at the last paragraph that fits where that is past
    the half, else at a sentence, a line, a word or a character. Raises ``invalid_request`` where nothing fits.
    """
    skipped = next((number for number, byte in enumerate(data) if byte & 0xC0 != 0x80), len(data))
    text = data[skipped:].decode("utf-8", "ignore")
    start += skipped

    def made(text: str) -> Fetched:
        shown = text.encode()
        stop = start + len(shown)
        return replace(
            frame,
            text=text,
            start_byte=start,
            end_byte=stop,
            sha256=hashlib.sha256(shown).hexdigest(),
            truncated=stop < end,
            next=following(stop) if stop < end else None,
        )

    limit = 4 * frame.budget.limit
    result = made(text)
    if larger_form(result) > limit:
        around = replace(made(""), end_byte=end, next=following(end))
        room = limit - larger_form(around) - _SLACK_QUARTERS
        most = _most(len(text), lambda count: max(_text_quarters(text[:count])) <= room)
        if most == 0:
            raise _too_small(frame)
        result = made(text[: _cut(text, most)])
    return _counted(result)


def with_outline(frame: Fetched, items: Sequence[Heading], following: Next, whole: ReadyCall) -> Fetched:
    """Return a result with as many headings as fit; raises ``invalid_request`` where none does."""

    def made(count: int) -> Fetched:
        left = len(items) - count
        return replace(
            frame,
            outline=list(items[:count]),
            outline_more=left,
            truncated=left > 0,
            next=following(items[count].start_byte) if left else whole,
        )

    limit = 4 * frame.budget.limit
    most = _most(min(len(items), limit // _LEAST_HEADING), lambda count: larger_form(made(count)) <= limit)
    if (most == 0 and items) or larger_form(made(most)) > limit:
        raise _too_small(frame)
    return _counted(made(most))


def unchanged(frame: Fetched) -> Fetched:
    """Return the notice that a document is as the caller knows it."""
    if larger_form(frame) > 4 * frame.budget.limit:
        raise _too_small(frame)
    return _counted(frame)


def larger_form(result: Fetched) -> int:
    """Return the quarter tokens of the larger of a result's two forms."""
    return max(token_quarters(msgspec.json.encode(result).decode()), token_quarters(fetched_markdown(result)))


def fetched_markdown(result: Fetched) -> str:
    """Return the text that agents read: what it is, then the document's own text, quoted line by line."""
    lines = [f"### {inline(result.title) or code(result.path)}", "; ".join(_notes(result))]
    if result.breadcrumb:
        lines.append(f"Section: {' › '.join(map(inline, result.breadcrumb))}")
    lines.append("")
    if result.kind == "unchanged":
        lines += ["Unchanged: it is as you know it, so no text is sent.", ""]
    if result.kind == "outline":
        lines += [*outline_lines(result.outline), *_more(result.outline_more, "heading"), ""]
    if result.text:
        lines += [quoted(result.text), ""]
    if result.next is not None:
        lines += [f"{_why(result)} {call_line(result.next)}", ""]
    return "\n".join(lines)


def outline_lines(items: Sequence[Heading]) -> Iterator[str]:
    """Yield a line for each heading: where it stands in the tree, its anchor and its size."""
    for item in items:
        anchor = f" {code('#' + item.anchor)}" if item.anchor else ""
        yield f"{'  ' * (item.level - 1)}- {inline(item.heading)}{anchor} ({item.tokens} tokens)"


def call_line(call: ReadyCall) -> str:
    """Return a call as a model can make it."""
    return f"{call.tool} {code_json(msgspec.json.encode(call.arguments).decode())}"


def place_notes(pin: str, state: str, superseded_by: Sequence[str]) -> list[str]:
    """Return what is said first of a document: its pin, and why it is not the one to rely on."""
    notes = [code(pin)]
    if state == "RETIRED":
        notes.append("an earlier revision")
    if state == "ARCHIVED":
        notes.append("archived")
    if superseded_by:
        notes.append(f"superseded by {', '.join(map(code, superseded_by))}")
    return notes


def _notes(result: Fetched) -> list[str]:
    anchor = f"#{result.anchor}" if result.anchor else ""
    notes = place_notes(f"{result.pin}{anchor}", result.state, result.superseded_by)
    if result.text is None:
        return [*notes, f"{result.total_bytes} bytes"]
    return [*notes, f"bytes {result.start_byte}-{result.end_byte} of {result.total_bytes}", f"sha256 {result.sha256}"]


def _why(result: Fetched) -> str:
    if result.kind == "outline":
        if result.truncated:
            return "The outline goes on:"
        return "Fetch a section by its anchor, or the whole text:"
    return f"Cut at byte {result.end_byte}. Go on with"


def _more(count: int, noun: str) -> list[str]:
    return [f"+{count} more {noun}{'' if count == 1 else 's'}"] if count else []


def _text_quarters(text: str) -> tuple[int, int]:
    """Return what a text takes in JSON and in Markdown."""
    return token_quarters(msgspec.json.encode(text).decode()), token_quarters(quoted(text))


def _most(count: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to ``count`` that fits, 0 where none does."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _cut(text: str, most: int) -> int:
    """Return where to cut a text of which ``most`` characters fit; at least one is kept."""
    half = most // 2
    for ends in (_BLANK, SENTENCE_END, _LINE, _SPACE):
        found = [match.end() for match in ends.finditer(text, half, most) if half < match.end()]
        if found:
            return found[-1]
    return max(cluster_start(text, 0, most), 1)


def _counted(result: Fetched) -> Fetched:
    """Return the result with the tokens that its larger form takes, their own digits counted."""
    used = 0
    while True:
        counted = replace(result, budget=SpentTokens(limit=result.budget.limit, used=used))
        needed = tokens_of_quarters(larger_form(counted))
        if needed <= used:
            return counted
        used = needed


def _too_small(frame: Fetched) -> StrataError:
    return StrataError(
        INVALID_REQUEST,
        f"{frame.budget.limit} tokens hold nothing beside the name of the document.",
        pointer="?maxTokens",
        remedy=f"Raise maxTokens above {tokens_of_quarters(larger_form(frame)) + 50}.",
    )
