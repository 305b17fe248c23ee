"""Candidates for tests of the evidence pipeline."""

from __future__ import annotations

import json

from strata.evidence.fusion import fuse
from strata.evidence.model import Candidate, KeyBasis, LaneRank, Layer, Package
from strata.evidence.selection import Policy, Render, assemble


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
