"""Ranked retrieval methods; each turns a plan into a list of candidates."""
