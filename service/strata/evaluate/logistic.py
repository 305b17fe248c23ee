"""Logistic regression with weights of zero or more, by Newton's method. Pure and deterministic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RIDGE = 1e-3
"""Weight of the squared coefficients of standardised features, against a loss of mean weight 1."""

_STEPS = 100
_CLOSE = 1e-9


def logistic(rows: Floats, truth: Floats, weights: Floats) -> tuple[float, Floats]:
    """Return the intercept and the weights (zero or more) of the features in the columns of ``rows``.

    ``truth`` is 0 or 1 for each row, ``weights`` (zero or more) say how much a row counts. Iteratively
    reweighted least squares (McCullagh and Nelder, Generalized Linear Models, 1989, 2.5) with a ridge;
    the feature with the most negative weight is dropped until none is negative.
    """
    total = weights / weights.sum()
    means = total @ rows
    spreads = np.sqrt(total @ (rows - means) ** 2)
    spreads[spreads == 0] = 1.0
    standard = np.column_stack([np.ones(len(rows)), (rows - means) / spreads])
    used = np.ones(standard.shape[1], np.bool_)
    while True:
        found = np.zeros(standard.shape[1])
        found[used] = _newton(standard[:, used], truth, total)
        lowest = int(np.argmin(found[1:])) + 1 if len(found) > 1 else 0
        if not lowest or found[lowest] >= 0:
            break
        used[lowest] = False
    slopes = found[1:] / spreads
    return float(found[0] - slopes @ means), slopes


def _newton(rows: Floats, truth: Floats, weights: Floats) -> Floats:
    ridge = np.full(rows.shape[1], RIDGE)
    ridge[0] = 0.0
    found = np.zeros(rows.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(rows @ found, -30, 30)))
        slope = rows.T @ (weights * (truth - chance)) - ridge * found
        curve = (rows * (weights * chance * (1 - chance))[:, None]).T @ rows + np.diag(ridge + _CLOSE)
        step = np.linalg.solve(curve, slope)
        found += step
        if np.abs(step).max() < _CLOSE:
            break
    return found
