"""The card of a document, made to fit, and the Markdown of it and of its relations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from strata.sources.document_schemas import MAX_FETCH_TOKENS, BothWays, Card, Explored, RelatedDocument, Siblings
from strata.sources.document_view import call_line, clipped, outline_lines, place_notes
from strata.sources.relation_repository import RelationRow
from strata.sources.relation_schemas import RelationPage, RelationView
from strata.text.estimate import token_quarters
from strata.text.paragraphs import paragraph_spans
from strata.text.preview import preview
from strata.text.quoting import code, inline, quoted

OPENING_CHARS = 400
_RULES = frozenset("=-*_ \n")
_SECTIONS_SHOWN = 8
_WRITTEN_CHARS = 1_024


def opening_of(data: bytes, heading_starts: Sequence[int]) -> str | None:
    """Return the beginning of the first paragraph that is no heading, at most 400 characters; None without one.

    ``data`` is the first part of a text, ``heading_starts`` where its headings stand.
    """
    text = data.decode("utf-8", "ignore")
    starts = frozenset(heading_starts)
    at = at_byte = 0
    for start, end in paragraph_spans(text):
        at_byte += len(text[at:start].encode())
        at = start
        paragraph = text[start:end]
        if at_byte in starts or paragraph.startswith("#"):
            paragraph = paragraph.partition("\n")[2].lstrip("=-\n")
        if paragraph.strip() and not _RULES.issuperset(paragraph):
            return preview(paragraph, (), OPENING_CHARS)
    return None


def related(row: RelationRow) -> RelatedDocument:
    """Return a relation as a card shows it: the document at its other end."""
    if row.is_incoming:
        return RelatedDocument(
            path=row.source_path,
            predicate=row.predicate or None,
            title=row.source_title or None,
            label=row.label or None,
            count=row.count,
        )
    return RelatedDocument(
        path=row.target_path or (clipped(row.written, _WRITTEN_CHARS) if row.form == "name" else row.target),
        predicate=row.predicate or None,
        title=row.target_title or None,
        anchor=row.anchor,
        label=row.label or None,
        state=None if row.state == "RESOLVED" else row.state,
        count=row.count,
    )


def trimmed(page: RelationPage) -> RelationPage:
    """Return a page whose entries are of bounded size."""
    return RelationPage(items=[_trimmed(item) for item in page.items], next_cursor=page.next_cursor)


def is_page_small(explored: Explored) -> bool:
    """Tell whether both forms are within what clients take."""
    return _larger_form(explored) <= 4 * MAX_FETCH_TOKENS


def fitted_card(card: Card) -> Explored:
    """Return a card whose forms are within what clients take: the longest list loses its last entry until they are."""
    while not is_page_small(explored := Explored(kind="card", card=card)):
        smaller = _shortened(card)
        if smaller is None:
            break
        card = smaller
    return explored


def explored_markdown(explored: Explored) -> str:
    """Return the text that agents read; what comes from documents is quoted, or a part of a line of ours."""
    lines: list[str] = []
    if explored.card is not None:
        lines += _card_lines(explored.card)
    if explored.relations is not None:
        items = explored.relations.items
        lines += [f"Relations of the document, {len(items)} on this page:" if items else "No relations match."]
        lines += [_page_line(item) for item in items] + [""]
    if explored.next is not None:
        lines += [f"More: {call_line(explored.next)}", ""]
    return "\n".join(lines)


def _card_lines(card: Card) -> list[str]:
    notes = [*place_notes(card.pin, card.state, card.superseded_by), f"{card.total_bytes} bytes"]
    lines = [f"### {inline(card.title) or code(card.path)}", "; ".join([*notes, f"about {card.tokens} tokens"]), ""]
    if card.opening:
        lines += ["Opening:", quoted(card.opening), ""]
    if card.outline:
        lines += ["Outline:", *outline_lines(card.outline)]
        lines += [f"- +{card.outline_more} more", ""] if card.outline_more else [""]
    ways = (
        ("Declares", card.declared.outgoing, card.declared.outgoing_more),
        ("Declared by", card.declared.incoming, card.declared.incoming_more),
        ("Links to", card.links.outgoing, card.links.outgoing_more),
        ("Linked from", card.links.incoming, card.links.incoming_more),
    )
    for name, items, is_more in ways:
        if items:
            lines += [f"{name}:", *map(_related_line, items)]
            lines += ["- and more: explore with direction and kind", ""] if is_more else [""]
    if card.state != "CURRENT":
        lines += ["Relations are known of the current revision only.", ""]
    if card.siblings.items:
        folder = f"In {code(card.siblings.folder)}" if card.siblings.folder else "Beside it"
        lines += [f"{folder}:", *(f"- {code(item.path)}{_titled(item.title)}" for item in card.siblings.items)]
        least = " or more" if card.siblings.more_at_least else ""
        lines += [f"- +{card.siblings.more}{least} more", ""] if card.siblings.more else [""]
    return [*lines, f"Read it: {call_line(card.next)}", ""]


def _related_line(item: RelatedDocument) -> str:
    anchor = f"#{item.anchor}" if item.anchor else ""
    predicate = f"{inline(item.predicate)} " if item.predicate else ""
    state = f", {item.state.lower()}" if item.state else ""
    times = f", {item.count} times" if item.count > 1 else ""
    return f"- {predicate}{code(item.path + anchor)}{_titled(item.title or item.label)}{state}{times}"


def _page_line(item: RelationView) -> str:
    is_incoming = item.direction == "INCOMING"
    place = item.source.path if is_incoming else item.path or item.target
    anchor = f"#{item.anchor}" if item.anchor and not is_incoming else ""
    title = item.source.title if is_incoming else item.title or item.label
    state = "" if is_incoming or item.state == "RESOLVED" else f", {item.state.lower()}"
    section = f", in section {' › '.join(map(inline, item.section))}" if item.section else ""
    name = inline(item.predicate) if item.predicate else "link"
    way = "from" if is_incoming else "to"
    return f"- {name} {way} {code(place + anchor)}{_titled(title)}{state}{section}"


def _titled(title: str | None) -> str:
    return f" ({inline(title)})" if title else ""


def _trimmed(item: RelationView) -> RelationView:
    return replace(
        item,
        target=clipped(item.target, _WRITTEN_CHARS),
        label=None if item.label is None else clipped(item.label),
        section=[clipped(name) for name in item.section[:_SECTIONS_SHOWN]],
    )


def _larger_form(explored: Explored) -> int:
    return max(token_quarters(msgspec.json.encode(explored).decode()), token_quarters(explored_markdown(explored)))


def _shortened(card: Card) -> Card | None:
    """Return a card with one entry less in its longest list; None where all are empty."""
    lists: dict[str, list[Any]] = {
        "outline": card.outline,
        "declared.outgoing": card.declared.outgoing,
        "declared.incoming": card.declared.incoming,
        "links.outgoing": card.links.outgoing,
        "links.incoming": card.links.incoming,
        "siblings": card.siblings.items,
        "superseded_by": card.superseded_by[1:],
    }
    name = max(lists, key=lambda name: token_quarters(msgspec.json.encode(lists[name]).decode()))
    if not lists[name]:
        return None
    if name == "outline":
        return replace(card, outline=card.outline[:-1], outline_more=card.outline_more + 1)
    if name == "superseded_by":
        return replace(card, superseded_by=card.superseded_by[:-1])
    if name == "siblings":
        beside: Siblings = replace(card.siblings, items=card.siblings.items[:-1], more=card.siblings.more + 1)
        return replace(card, siblings=beside)
    group, _, way = name.partition(".")
    ways: BothWays = getattr(card, group)
    fewer: dict[str, Any] = {way: getattr(ways, way)[:-1], f"{way}_more": True}
    return replace(card, **{group: replace(ways, **fewer)})
