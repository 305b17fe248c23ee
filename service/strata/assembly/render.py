"""Items and citations of a package as they are sent, and so as they are counted."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from strata.assembly.schemas import (
    CitationEntry,
    CitationOut,
    CitationRef,
    CommunityOut,
    CorroborationOut,
    EvidenceItem,
    ExtractOut,
    LaneRankOut,
    PassageOut,
    SharedCitationOut,
)
from strata.evidence.extracts import excerpt_text
from strata.evidence.model import Candidate, Cost, Locator
from strata.evidence.model import CitationEntry as Cited
from strata.evidence.nominate import ASSOCIATION, COMMUNITY, PASSAGE
from strata.knowledge.graph_schemas import AssociationOut
from strata.text.estimate import utf8_bytes


class Renderer:
    """Renders for one package; ``is_qualified`` names the context of everything, for packages over several."""

    def __init__(self, texts: Mapping[Locator, CitationOut], *, is_qualified: bool) -> None:
        self._texts = texts
        self._is_qualified = is_qualified

    def item_json(self, candidate: Candidate, _rank: int) -> str:
        """Return the JSON of an item that its cost is counted by: without ``bytes`` and ``estimated_tokens``."""
        return msgspec.json.encode(self._item(candidate)).decode()

    def citation_json(self, entry: Cited) -> str:
        """Return the JSON of a citation."""
        return msgspec.json.encode(self.citation(entry)).decode()

    def item(self, candidate: Candidate, cost: Cost) -> EvidenceItem:
        """Return an item with what it costs."""
        return replace(self._item(candidate), bytes=cost.bytes, estimated_tokens=cost.tokens)

    def citation(self, entry: Cited) -> CitationEntry:
        """Return a citation; where a passage of the package holds its text, it refers to that."""
        locator = entry.locator
        text = self._texts[locator]
        shown: CitationOut | SharedCitationOut = text
        if entry.held_by is not None:
            shown = SharedCitationOut(
                text_in=entry.held_by, source=text.source, section=text.section, locator=text.locator
            )
        return CitationEntry(
            source=locator.source,
            paragraph=locator.paragraph,
            citation=shown,
            context=locator.context if self._is_qualified else UNSET,
        )

    def _item(self, candidate: Candidate) -> EvidenceItem:
        payload = candidate.payload
        return EvidenceItem(
            candidate_id=candidate.candidate_id,
            kind=candidate.kind,
            fused_rank=candidate.fused_rank,
            lane_ranks=[LaneRankOut(lane=place.lane, rank=place.rank) for place in candidate.lane_ranks],
            citation_refs=[self._ref(locator) for locator in candidate.citation_refs],
            corroboration=self._corroboration(candidate),
            contradicts=list(candidate.contradicts) or UNSET,
            conflicts_with=list(candidate.conflicts) or UNSET,
            context=candidate.scope if self._is_qualified else UNSET,
            extract=_extract(candidate),
            association=payload if candidate.kind == ASSOCIATION and isinstance(payload, AssociationOut) else UNSET,
            passage=_passage(candidate) if candidate.kind == PASSAGE else UNSET,
            community=payload if candidate.kind == COMMUNITY and isinstance(payload, CommunityOut) else UNSET,
        )

    def _ref(self, locator: Locator) -> CitationRef:
        return CitationRef(
            source=locator.source,
            paragraph=locator.paragraph,
            context=locator.context if self._is_qualified else UNSET,
        )

    def _corroboration(self, candidate: Candidate) -> CorroborationOut | msgspec.UnsetType:
        sources = sorted({item.source for item in candidate.attributions if item.source})
        if not sources:
            return UNSET
        places = sorted(
            {(item.source, item.paragraph) for item in candidate.attributions if item.paragraph is not None}
        )
        return CorroborationOut(
            sources=sources,
            attributions=[self._ref(Locator(source, paragraph, candidate.scope)) for source, paragraph in places],
        )


def _passage(candidate: Candidate) -> PassageOut | msgspec.UnsetType:
    payload = candidate.payload
    if not isinstance(payload, PassageOut):
        return UNSET
    if not candidate.excerpts:
        return payload
    return replace(payload, text=excerpt_text(payload.text, candidate.excerpts))


def _extract(candidate: Candidate) -> ExtractOut | msgspec.UnsetType:
    if not candidate.excerpts:
        return UNSET
    return ExtractOut(
        spans=[(item.start_byte, item.end_byte) for item in candidate.excerpts],
        of_bytes=utf8_bytes(candidate.text or ""),
    )
