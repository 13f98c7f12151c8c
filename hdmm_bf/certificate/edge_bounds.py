"""Bounds from edge weights, for problems that are written out: code that no search uses."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from hdmm_bf._checks import fail
from hdmm_bf._types import EPS, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.problem.transform import Problem


def dual_bound(problem: Problem, V: SquareMatrix, weights: RealVector) -> float:
    """(sum of the singular values of W_G diag(sqrt mu))^2 through C^T V C with L(mu) = C C^T, rounded down."""
    if weights.size == 0 or not np.any(V):
        return 0.0
    C = semidefinite_factor(laplacian(problem, weights / weights.sum())).T
    values = np.linalg.eigvalsh(C.T @ (V @ C))
    slack = 4 * EPS * len(V) * float(values.max())
    return float(np.sqrt(np.maximum(values - slack, 0.0)).sum() ** 2)


def laplacian(problem: Problem, mu: RealVector) -> SquareMatrix:
    """Return L = P diag(mu) P^T."""
    k = problem.grounding.kept.size
    head, tail = problem.P.head, problem.P.tail % (k + 1)  # the ground, -1, is vertex k
    L = np.bincount(head * (k + 1) + tail, mu, (k + 1) ** 2).reshape(k + 1, k + 1)
    return np.asarray((np.diag((L + L.T).sum(axis=0)) - (L + L.T))[:k, :k])


def semidefinite_factor(V: SquareMatrix) -> RealMatrix:
    """Return F with F^T F = V, by Cholesky with pivoting: as many rows as V has rank."""
    R, order, rank, _ = lapack.dpstrf(np.asfortranarray(V), tol=len(V) * EPS * float(np.diag(V).max()))
    F = np.zeros((rank, len(V)))
    F[:, order - 1] = np.triu(R)[:rank]
    return F


def check_weights(weights: RealVector, edges: int) -> None:
    """Refuse edge weights that prove nothing."""
    if weights.shape != (edges,):
        raise fail("certificate", f"{weights.size} weights", f"the policy has {edges} edges", "Give one for each edge.")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0) or (edges > 0 and not weights.sum() > 0):
        raise fail("certificate", "weights", "must be finite, not negative and not all zero", "Fit again.")
