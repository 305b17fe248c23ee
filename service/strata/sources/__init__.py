"""Documents: reading, passages, ingest, replacement and deletion."""
