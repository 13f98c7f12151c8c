"""Exact sensitivity of matrices over the cells or the edges."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Int64

from hdmm_bf._types import EPS, IndexArray, Noise, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.exact.digits import carried, digits, largest_number

INTEGER_LIMIT = 2**52
"""Size that the integers of a strategy stay below: differences of two are exact in float64."""

_EXACT_FLOAT = 2**52
_CHUNK_ENTRIES = 2**22


def within_limit(integers: Int64[np.ndarray, ...]) -> bool:
    """Whether all integers are smaller than 2^52 in size; not by their absolute values: -2^63 has none."""
    return bool(np.all((integers < INTEGER_LIMIT) & (integers > -INTEGER_LIMIT)))


def dense_sensitivity(integers: Int64[np.ndarray, "r c"], head: IndexArray, tail: IndexArray, noise: Noise) -> int:
    """Return max over pairs of ||A[:, head] - A[:, tail]||_1 (Laplace) or its squared L2 norm (Gaussian), exactly.

    A tail of -1 is a column of zeros.
    """
    assert within_limit(integers), "differences must be exact in float64"
    assert noise != "norm", "the noise of tree norms is not drawn on rows"
    if head.size == 0 or len(integers) == 0:
        return 0
    A = integers.astype(np.float64)
    candidates = np.arange(head.size)
    if noise == "gaussian":  # from the Gram matrix first: O(n^3 + e) instead of O(r e)
        X = A.T @ A
        candidates = _largest(_gram_distances(X, head, tail), 16 * len(A) * EPS * float(np.diag(X).max()))
    powers = _edge_powers(A, head[candidates], tail[candidates], noise)
    if float(powers.max()) < _EXACT_FLOAT:  # every partial sum is a whole number that float64 holds
        return int(powers.max())
    candidates = candidates[_largest(powers, 8 * EPS * (len(A) + 8) * float(powers.max()))]
    columns = np.concatenate([integers, np.zeros((len(integers), 1), dtype=np.int64)], axis=1)
    step = max(1, _CHUNK_ENTRIES // len(integers))
    parts = [candidates[start : start + step] for start in range(0, candidates.size, step)]
    return max(_exact_power(columns[:, head[part]] - columns[:, tail[part]], noise) for part in parts)


def _exact_power(moves: Int64[np.ndarray, "r q"], noise: Noise) -> int:
    """Largest L1 norm, or squared L2 norm, of the columns, from digits whose sums fit in 64 bits."""
    parts = digits(np.abs(moves)).astype(np.int64)
    if noise == "laplace":
        return largest_number(carried(parts.sum(axis=1)))
    products = np.einsum("irq,jrq->ijq", parts, parts)
    sums = np.zeros((2 * len(parts) - 1, moves.shape[1]), dtype=np.int64)
    for i, j in np.ndindex(len(parts), len(parts)):
        sums[i + j] += products[i, j]
    return largest_number(carried(sums))


def _largest(values: RealVector, slack: float) -> IndexArray:
    """Positions that may hold the largest value, each value being known up to half the slack."""
    assert math.isfinite(slack), "sums of squares of integers below 2^53 are finite"
    assert np.all(np.isfinite(values)), "sums of squares of integers below 2^53 are finite"
    return np.flatnonzero(values >= values.max() - slack)


def _gram_distances(X: SquareMatrix, head: IndexArray, tail: IndexArray) -> RealVector:
    """||A p_e||_2^2 from X = A^T A; the column of BOTTOM is zero."""
    diagonal = np.append(np.diag(X), 0.0)
    cross = np.where(tail < 0, 0.0, X[head, tail])
    return np.asarray(diagonal[head] + diagonal[tail] - 2 * cross)


def _edge_powers(A: RealMatrix, head: IndexArray, tail: IndexArray, noise: Noise) -> RealVector:
    """||A p_e||_1 or ||A p_e||_2^2 in floating point, with a relative error of a few eps a row."""
    columns = np.ascontiguousarray(np.concatenate([A, np.zeros((len(A), 1))], axis=1).T)
    step = max(1, _CHUNK_ENTRIES // len(A))
    found = []
    for start in range(0, head.size, step):
        block = columns[head[start : start + step]] - columns[tail[start : start + step]]
        found.append(np.abs(block).sum(axis=1) if noise == "laplace" else np.einsum("er,er->e", block, block))
    return np.concatenate(found)
