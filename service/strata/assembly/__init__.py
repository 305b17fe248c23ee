"""Evidence packages: what the graph and the passages know of some cues, within a budget."""
