"""The knowledge graph of contexts: facts, who states them, and what can be asked of them."""

from __future__ import annotations

from strata.knowledge.graph_across import GraphAcross
from strata.knowledge.graph_audits import GraphAudits
from strata.knowledge.graph_changes import GraphChanges
from strata.knowledge.graph_names import GraphNames
from strata.knowledge.graph_schema import GraphSchema


class GraphService(GraphAcross, GraphNames, GraphAudits, GraphChanges, GraphSchema):
    """Every use case of the graph. A reference to a context is an id or a unique name."""
