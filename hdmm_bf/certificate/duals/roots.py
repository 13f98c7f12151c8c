"""tr (V^(1/2) L V^(1/2))^(1/2), rounded down, of matrices that are written out."""

from __future__ import annotations

import numpy as np

from hdmm_bf._types import EPS, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.edge_bounds import semidefinite_factor

_EIGENVALUE_ERROR = 4 * EPS
"""Times side and largest eigenvalue: what a computed eigenvalue may be wrong by."""


def root_sum(V: SquareMatrix, L: SquareMatrix) -> float:
    """Return the sum of the roots of the eigenvalues of F L F^T, V = F^T F, each lowered by its error.

    V and L may be lowered beforehand: the roots of the eigenvalues only fall.
    """
    if not np.any(V) or not np.any(L):
        return 0.0
    F = semidefinite_factor(V)
    values = np.linalg.eigvalsh(F @ L @ F.T)
    return lowered_roots(values)


def lowered_roots(values: RealVector) -> float:
    """Return the sum of the roots of eigenvalues, each lowered by what it may be wrong by."""
    slack = _EIGENVALUE_ERROR * values.size * float(values.max(initial=0.0))
    return float(np.sqrt(np.maximum(values - slack, 0.0)).sum())


def lowered(values: RealVector) -> RealVector:
    """Return eigenvalues lowered by what they may be wrong by, none below zero."""
    slack = _EIGENVALUE_ERROR * values.size * float(values.max(initial=0.0))
    return np.asarray(np.maximum(values - slack, 0.0))


def without(V: SquareMatrix, still: RealMatrix) -> SquareMatrix:
    """Return V between vectors orthogonal to the columns of `still`, where L is zero: f does not change.

    What is left of a matrix of public totals alone is rounding, and is left out.
    """
    if not still.size:
        return V
    half = V - still @ (still.T @ V)
    found = half - (half @ still) @ still.T
    if np.abs(found).max() <= 2 * EPS * len(V) * np.abs(V).max():
        return np.zeros_like(V)
    return np.asarray((found + found.T) / 2)
