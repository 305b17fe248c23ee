"""Candidates for tests of the evidence pipeline."""

from __future__ import annotations

import json

from strata.evidence.extracts import excerpt_text
from strata.evidence.fusion import fuse, with_ranks
from strata.evidence.model import (
    Attribution,
    Candidate,
    CitationEntry,
    Fact,
    KeyBasis,
    LaneRank,
    Layer,
    Locator,
    Package,
)
from strata.evidence.nominate import association
from strata.evidence.selection import Policy, Render, admit, assemble, deduplicate


def candidate(key: str = "1", **values) -> Candidate:
    defaults = {
        "kind": "passage",
        "key": key,
        "layer": Layer.L1,
        "source_key": f"path:doc-{key}",
        "source_key_basis": KeyBasis.PATH,
        "source": f"doc-{key}",
        "title": f"Title {key}",
        "lane_ranks": (LaneRank("lexical", 1),),
        "relevance": 0.5,
        "text": f"text of {key}",
    }
    return Candidate(**{**defaults, **values})


def render(item: Candidate, rank: int) -> str:
    return json.dumps({"rank": rank, "text": item.text, "key": item.source_key}, ensure_ascii=False)


def package_of(pool, policy: Policy, render_: Render) -> Package:
    """The whole pipeline over a pool as lanes give it."""
    return assemble(fuse(pool, policy.weights), policy, render_)


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fact(subject: str, label: str, said: str, *sources: tuple[str, int | None], rank: int = 1, **values) -> Candidate:
    """An association of a context, whose located sources can all be shown."""
    return association(
        Fact(subject, label, said),
        [Attribution(source, paragraph) for source, paragraph in sources],
        LaneRank(values.pop("lane", "graph_activate"), rank),
        citable=[(source, paragraph) for source, paragraph in sources if paragraph is not None],
        **values,
    )


def wire_item(item: Candidate, _rank: int = 0) -> str:
    """The JSON of an item of an evidence package, without its own size."""
    value: dict[str, object] = {
        "candidate_id": item.candidate_id,
        "kind": item.kind,
        "fused_rank": item.fused_rank,
        "lane_ranks": [{"lane": place.lane, "rank": place.rank} for place in item.lane_ranks],
        "citation_refs": [{"source": ref.source, "paragraph": ref.paragraph} for ref in item.citation_refs],
    }
    if item.attributions:
        value["corroboration"] = {
            "sources": sorted({one.source for one in item.attributions}),
            "attributions": [{"source": one.source, "paragraph": one.paragraph} for one in item.attributions],
        }
    for name in ("contradicts", "conflicts", "excerpts"):
        if getattr(item, name):
            value[name] = list(getattr(item, name))
    value[item.kind] = item.payload or {"text": excerpt_text(item.text or "", item.excerpts), "source": item.source}
    return compact(value)


def cite_with(texts: dict[Locator, dict]) -> object:
    """What renders citations out of these."""

    def cite(entry: CitationEntry) -> str:
        value: dict[str, object] = {"source": entry.locator.source, "paragraph": entry.locator.paragraph}
        if entry.held_by is None:
            value["citation"] = texts.get(entry.locator, {"text": cited_text(entry.locator)})
        else:
            value["item"] = entry.held_by
        return compact(value)

    return cite


def cited_text(locator: Locator) -> str:
    return f"Paragraph {locator.paragraph} of {locator.source} 引用。"


def wire_package(raw: list[Candidate], policy: Policy, texts: dict[Locator, dict] | None = None) -> Package:
    """The whole pipeline as an evidence package."""
    fused = with_ranks(fuse(raw))
    return admit(deduplicate(fused, policy, len(raw)), policy, wire_item, cite_with(texts or {}))
