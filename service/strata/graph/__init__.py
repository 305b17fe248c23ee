"""One context's knowledge graph in memory: naming, matching, walking, auditing. Pure computation."""
