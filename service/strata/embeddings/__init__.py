"""Embeddings: the spaces of a context, and the durable work that fills them."""
