"""Strata: an evidence service for LLM agents."""
