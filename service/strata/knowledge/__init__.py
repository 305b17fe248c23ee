"""Contexts: the knowledge bases that sources belong to."""
