"""Views of a package: evidence blocks, the texts that agents read, and the omissions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from strata.evidence.model import Candidate, Citation, Limits, Omission, Package
from strata.lookup.candidates import StatedFact
from strata.lookup.schemas import (
    BudgetLimits,
    BudgetUsed,
    CitationView,
    EvidenceBlock,
    FactView,
    LaneRankView,
    Omitted,
    OmittedItem,
)
from strata.text.preview import ELLIPSIS, Span, preview
from strata.text.quoting import code, inline, quoted
from strata.text.spans import find_spans
from strata.text.tokenise import QueryTerm

OMITTED_ITEMS = 20
LEAST_BLOCK_BYTES = 400
"""No block's JSON is shorter: the names of its fields alone take as much."""


class BlockRenderer:
    """Renders candidates of one call as evidence blocks; each preview is made once.

    ``terms`` are those of the question, ``languages`` those of the passages (hits are marked by both).
    ``preview_chars`` bounds the preview (code points), ``content_max_bytes`` the content, primary
    and supplement texts (UTF-8). ``best_score`` scales the scores to 0..1.
    """

    def __init__(
        self,
        terms: Sequence[QueryTerm],
        languages: Sequence[str],
        *,
        preview_chars: int,
        content_max_bytes: int,
        with_content: bool,
    ) -> None:
        self._terms = [term.token for term in terms]
        self._languages = languages
        self._preview_chars = preview_chars
        self._content_max_bytes = content_max_bytes
        self._with_content = with_content
        self._previews: dict[tuple[str, str], tuple[str, bool]] = {}
        self.best_score = 1.0

    def block(self, candidate: Candidate, rank: int) -> EvidenceBlock:
        """Return the block of a candidate whose text is loaded."""
        shown, _ = self._preview(candidate)
        return EvidenceBlock(
            rank=rank,
            source_key=candidate.source_key,
            source_key_basis=candidate.source_key_basis,
            source=candidate.source,
            title=candidate.title,
            breadcrumb=list(candidate.breadcrumb),
            anchor=candidate.anchor,
            category=candidate.category,
            layer=candidate.layer,
            layers=list(candidate.layers),
            score=self.score(candidate),
            lane_ranks=lane_rank_views(candidate),
            hit_reasons=list(candidate.hit_reasons),
            content_preview=shown,
            content=clip(candidate.text or "", self._content_max_bytes) if self._with_content else None,
            citation=citation_view(candidate.citation) if candidate.citation else None,
            merged_count=candidate.merged_count,
            metadata=dict(candidate.metadata),
            fact=fact_view(candidate),
        )

    def score(self, candidate: Candidate) -> float:
        """Return the fused score as a share of the best one."""
        return round(min(1.0, candidate.fused_score / self.best_score), 6)

    def render(self, candidate: Candidate, rank: int) -> str:
        """Return the compact JSON of the block: what it costs."""
        return msgspec.json.encode(self.block(candidate, rank)).decode()

    def is_truncated(self, candidate: Candidate) -> bool:
        """Tell whether the preview shows less than the whole text."""
        return self._preview(candidate)[1]

    def _preview(self, candidate: Candidate) -> tuple[str, bool]:
        known = self._previews.get(candidate.identity)
        if known is None:
            text = candidate.text or ""
            spans: Sequence[Span] = (
                find_spans(text, self._terms, self._languages) if len(text) > self._preview_chars else []
            )
            shown = preview(text, spans, self._preview_chars)
            known = self._previews[candidate.identity] = (shown, len(shown) < len(" ".join(text.split())))
        return known


def fact_view(candidate: Candidate) -> FactView | UnsetType:
    """Return what the graph says of an association, nothing for other candidates."""
    fact, stated = candidate.fact, candidate.payload
    if fact is None or not isinstance(stated, StatedFact):
        return UNSET
    return FactView(
        subject=fact.subject,
        label=fact.label,
        object=fact.object,
        weight=stated.weight,
        count=stated.count,
        sources=sorted({item.source for item in candidate.attributions if item.source}),
        citations=[citation_view(citation) for citation in stated.citations],
        contradicts=[identity.partition(":")[2] for identity in candidate.contradicts],
    )


def lane_rank_views(candidate: Candidate) -> list[LaneRankView]:
    """Return the lane ranks in lane order."""
    return [LaneRankView(lane=item.lane, rank=item.rank) for item in candidate.lane_ranks]


def citation_view(citation: Citation) -> CitationView:
    """Return the citation as sent."""
    return CitationView(**{name: getattr(citation, name) for name in CitationView.__struct_fields__})


def clip(text: str, max_bytes: int) -> str:
    """Return ``text`` cut to at most ``max_bytes`` of UTF-8 at a character, with an ellipsis where cut."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    return data[: max(0, max_bytes - len(ELLIPSIS.encode()))].decode(errors="ignore") + ELLIPSIS


def titled(candidate: Candidate) -> str:
    """Return the title line of a block: title and headings, or its source where it has none."""
    return headed(candidate) or candidate.source


def headed(candidate: Candidate) -> str:
    """Return the title and headings that a block stands under, each once; empty where it has none."""
    parts = [candidate.title, *candidate.breadcrumb]
    return " › ".join(dict.fromkeys(part for part in parts if part))


def primary_text(package: Package, max_bytes: int) -> str | None:
    """Return the best block's passage, whole where the cap allows."""
    return clip(package.kept[0].text or "", max_bytes) if package.kept else None


def supplement_text(package: Package, max_bytes: int) -> str | None:
    """Return the further blocks, each under its title line, joined by blank lines, within the cap."""
    if len(package.kept) < 2:
        return None
    return clip("\n\n".join(map(_under_title, package.kept[1:])), max_bytes)


def _under_title(candidate: Candidate) -> str:
    """Return the text under its title line; a text that begins with it has it already."""
    title, text = titled(candidate), (candidate.text or "").strip()
    return text if text.partition("\n")[0].strip() == title else f"{title}\n{text}"


def omitted_view(package: Package) -> Omitted:
    """Return the omissions: counts by reason, and the first in rank order."""
    counts: dict[str, int] = {}
    for item in package.omitted:
        counts[item.reason.value] = counts.get(item.reason.value, 0) + 1
    ordered = in_rank_order(package.omitted)
    return Omitted(
        total=len(ordered),
        by_reason=dict(sorted(counts.items())),
        items=[
            OmittedItem(
                source_key=item.candidate.source_key,
                reason=item.reason,
                duplicate_of=item.duplicate_of,
                lane_ranks=lane_rank_views(item.candidate),
            )
            for item in ordered[:OMITTED_ITEMS]
        ],
    )


def in_rank_order(omitted: tuple[Omission, ...]) -> list[Omission]:
    """Return omissions by fused score, then identity."""
    return sorted(omitted, key=lambda item: (-item.candidate.fused_score, *item.candidate.identity))


def budget_view(package: Package, limits: Limits) -> BudgetUsed:
    """Return what the package uses of its ceilings."""
    return BudgetUsed(
        items_used=package.spend.items,
        bytes_used=package.spend.bytes,
        tokens_used=package.spend.tokens,
        limits=BudgetLimits(max_items=limits.max_items, max_bytes=limits.max_bytes, max_tokens=limits.max_tokens),
    )


def markdown_view(package: Package, renderer: BlockRenderer, message: str | None) -> str:
    """Return the rendered text that agents read: one quoted block each, with where it stands.

    Passage text is quoted line by line, so that nothing in it can pass for a heading of ours.
    """
    lines: list[str] = []
    for rank, candidate in enumerate(package.kept, 1):
        block = renderer.block(candidate, rank)
        lines += [f"### {rank}. {inline(titled(candidate))}", ""]
        # A fact that no source states stands nowhere.
        if place := _location(candidate):
            lines += [code(place), ""]
        lines += [*quoted(block.content or block.content_preview).splitlines(), ""]
    if not package.kept:
        lines += ["No evidence found.", ""]
    if message:
        lines += [message, ""]
    return "\n".join(lines).rstrip() + "\n"


def _location(candidate: Candidate) -> str:
    place = candidate.source if candidate.anchor is None else f"{candidate.source}#{candidate.anchor}"
    citation = candidate.citation
    if citation is None:
        return place
    return f"{place} r{citation.source_version} bytes {citation.start_byte}-{citation.end_byte}"
