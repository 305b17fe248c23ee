"""How a lookup's result reads on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from strata.cli import output
from strata.text.spans import find_spans
from strata.text.tokenise import analyse_query

if TYPE_CHECKING:
    from strata.lookup.schemas import CitationView, EvidenceBlock, LookupResult

_LEVEL_STYLE = {"HIGH": "bold green", "MEDIUM": "bold yellow", "LOW": "bold red", "NONE": "bold red"}
_HIT = "bold yellow"
_REASONS = {
    "L0_EXACT": "hint title",
    "L0_ALIAS": "hint alias",
    "L0_PREFIX": "hint prefix",
    "L0_KEYWORD": "hint keyword",
    "L0_FUZZY": "hint, similar name {}",
    "L0_HINT_BOOST": "raised by a hint",
    "L1_RANK": "place {} of the passages",
    "L1_LEXICAL": "place {} by words",
    "L1_VECTOR": "place {} by meaning",
    "L1_HOP": "place {} by a second hop",
    "L1_GRAPH": "place {} in the graph",
    "L1_GRAPH_NAMED": "named by the question",
    "CATEGORY_FILTER": "category {}",
    "CATEGORY_FILTER_RELAXED": "outside the category asked for",
    "RELATION": "related: {}",
    "FALLBACK_L1_ONLY": "passages only",
    "FALLBACK_L0_ONLY": "hints only",
    "FALLBACK_KEYWORD": "keyword fallback",
}
_OMITTED = {
    "DUPLICATE_SOURCE": "the same source",
    "NEAR_DUPLICATE": "near duplicates",
    "BELOW_FLOOR": "not relevant enough",
    "BUDGET_EXCEEDED": "over the budget",
    "BELOW_TOP_K": "below top-k",
    "GONE": "gone meanwhile",
}


def show_result(question: str, result: LookupResult) -> None:
    """Write the blocks in rank order, then what was left out and where the call is recorded."""
    output.render(_summary(result))
    if result.completeness_message:
        output.render(Text(output.printable(result.completeness_message)))
    terms = [term.token for term in analyse_query(question)]
    for block in result.evidence_blocks:
        output.render(Text(), _block(block, terms))
    if result.omitted.total:
        parts = (f"{number:,} {_OMITTED.get(reason, reason)}" for reason, number in _by_reason(result))
        output.render(Text(), Text(f"left out: {', '.join(parts)}", style="dim"))
    output.render(Text(f"record: strata invocations show {result.lookup_id}", style="dim"))


def _summary(result: LookupResult) -> Text:
    level = str(result.relevance_level)
    blocks = output.count(len(result.evidence_blocks), "block")
    state = str(result.completeness_hint) + (f" ({result.empty_reason})" if result.empty_reason else "")
    return Text.assemble(
        (level, _LEVEL_STYLE.get(level, "bold")), f" relevance, {blocks}, {state}, {result.took_ms:.1f} ms"
    )


def _by_reason(result: LookupResult) -> Iterable[tuple[str, int]]:
    return sorted(result.omitted.by_reason.items(), key=lambda item: (-item[1], item[0]))


def _block(block: EvidenceBlock, terms: list[str]) -> Group:
    title = Text.assemble((f"{block.rank:>2}  ", "bold"), (output.printable(block.title or block.source), "bold cyan"))
    title.append(f"  {block.layer} {block.score:.2f}", style="dim")
    lines: list[Text] = []
    if block.breadcrumb:
        lines.append(Text(output.printable(" > ".join(block.breadcrumb)), style="dim"))
    lines.append(Text(_place(block), style="blue"))
    lines.extend(highlighted(text, terms) for text in _paragraphs(block.content or block.content_preview))
    lines.append(Text(f"why: {', '.join(reason(code) for code in block.hit_reasons)}", style="dim"))
    return Group(title, *(Padding(text, (0, 0, 0, 4), expand=False) for text in lines))


def _paragraphs(text: str) -> list[str]:
    return [part for part in output.printable(text).splitlines() if part.strip()]


def _place(block: EvidenceBlock) -> str:
    source = output.printable(block.source)
    if block.citation is None:
        return source
    return f"{source}:{block.citation.start_byte}-{block.citation.end_byte}{_locator(block.citation)}"


def _locator(citation: CitationView) -> str:
    parts = []
    if citation.page is not None:
        parts.append(f"page {citation.page}")
    if citation.start_ms is not None:
        parts.append(f"{_clock(citation.start_ms)}-{_clock(citation.end_ms or citation.start_ms)}")
    if citation.speaker:
        parts.append(output.printable(citation.speaker))
    return f" ({', '.join(parts)})" if parts else ""


def _clock(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def reason(code: str) -> str:
    """Return a hit reason in words; an unknown one as it is."""
    name, _, argument = code.partition(":")
    return output.printable(_REASONS.get(name, code).format(argument))


def highlighted(text: str, terms: Sequence[str]) -> Text:
    """Return the text with every word that stands for a term of the query marked."""
    marked = Text(text)
    for span in find_spans(text, terms):
        marked.stylize(_HIT, span.start, span.end)
    return marked
