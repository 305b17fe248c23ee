"""Judged sets, metrics and the commands that measure retrieval."""
