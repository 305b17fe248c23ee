"""The evidence pipeline: pure functions from candidates to a selected package."""
