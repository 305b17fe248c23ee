"""Every route of the contexts API."""

from __future__ import annotations

from strata.contexts_api import audits, directory, evidence, graph, passages, probes

CONTEXTS_API = (
    *directory.ROUTES,
    *graph.ROUTES,
    *passages.ROUTES,
    *audits.ROUTES,
    *evidence.ROUTES,
    *probes.ROUTES,
)
