"""Reflection of an attribute's values: what is even and what is odd never meet."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from hdmm_bf._linalg import NOTHING
from hdmm_bf._types import EdgeArray, RealMatrix
from hdmm_bf.policy import BOTTOM


def folds(n: int, *, symmetric: bool) -> list[RealMatrix]:
    """Return orthonormal bases of the even and the odd vectors, one a column; the identity without symmetry."""
    if not symmetric:
        return [np.eye(n)]
    h = n // 2
    i = np.arange(h)
    even, odd = np.zeros((n, n - h)), np.zeros((n, h))
    even[i, i] = even[n - 1 - i, i] = odd[i, i] = np.sqrt(0.5)
    odd[n - 1 - i, i] = -np.sqrt(0.5)
    if n % 2:
        even[h, h] = 1.0
    return [even, odd]


def is_reflected(V: Float64[np.ndarray, "n n"], edges: EdgeArray) -> bool:
    """Whether a Gram matrix and a policy stay the same when the values are read backwards."""
    n = len(V)
    if n < 2 or np.abs(V - V[::-1, ::-1]).max() > NOTHING * np.abs(V).max():
        return False
    return {tuple(e) for e in ordered(edges).tolist()} == {tuple(e) for e in ordered(mirrored(edges, n)).tolist()}


def mirrored(edges: EdgeArray, n: int) -> EdgeArray:
    """Return the edges read backwards; BOTTOM stays."""
    return np.where(edges == BOTTOM, BOTTOM, n - 1 - edges)


def ordered(edges: EdgeArray) -> EdgeArray:
    """Return every edge with its larger end first, so that BOTTOM is second."""
    return np.stack([edges.max(axis=1), edges.min(axis=1)], axis=1)
