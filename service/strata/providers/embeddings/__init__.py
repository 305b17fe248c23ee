"""Embedders: texts in, unit vectors of one named space out."""
