"""Hint entries and their matching keys."""
