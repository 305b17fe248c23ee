"""How scores are printed."""

from __future__ import annotations

import numpy as np


def single(score: float) -> float:
    """Return the double that prints as the shortest form of ``score`` in 32 bits: 0.28768212."""
    return float(str(np.float32(score)))
