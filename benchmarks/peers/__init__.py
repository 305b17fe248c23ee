"""Strata beside three retrieval libraries on Postgres, in one run: ``make bench-peers``."""
