"""Lower bounds on the unit error of any strategy: the paper's SVD bound and the dual bound.

For weights mu >= 0 on the edges with sum 1, every strategy of L2 sensitivity at most 1 has::

    unit error >= f(mu)^2,    f(mu) = ||W_G diag(sqrt mu)||_* = tr (R L(mu) R^T)^(1/2),    V = R^T R

because W_G D = (W A^+)(A P D) and ||A P D||_F <= 1. Uniform weights give the appendix's SVD bound; the best
weights give a bound that a Gaussian strategy attains. L1 sensitivity is at least L2 sensitivity, so the same
numbers bound Laplace strategies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Float64
from scipy.linalg import blas, lapack

from hdmm_bf import _linalg as la
from hdmm_bf._checks import fail, finite
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.matrix import Dense, Sparse, Stack, Weighted
from hdmm_bf.problem.forms import edge_forms
from hdmm_bf.problem.transform import Problem

_EXPLICIT_ROWS = 8
"""Up to this many times n rows a workload is factored by QR where its Gram matrix loses small weights."""


@final
@dataclass(frozen=True, eq=False)
class Bounds:
    """What no strategy can beat, for sensitivity 1 and without the privacy parameters.

    Attributes:
        svd: the paper's SVD bound (uniform weights).
        lower: the best proven bound.
        weights: the edge weights mu that prove `lower`, in the order of the policy's edges.
        gap: how far the best Gaussian strategy seen while searching is above `lower`; the bound is tight to this.
        laplace: the best proven bound for strategies with Laplace noise, never below `lower`; None where it was not
            asked for, as of a fit with Gaussian noise.
    """

    svd: float
    lower: float
    weights: RealVector
    gap: float
    laplace: float | None = None


class DualPoint(NamedTuple):
    """The best X for given weights and what it shows."""

    root_sum: float
    """f(mu), rounded down: the bound is its square."""
    trace: float
    """tr(V X^-1), rounded up."""
    X: SquareMatrix
    """R^T (R L R^T)^(-1/2) R, lower triangle."""
    roots: RealVector
    vectors: SquareMatrix


@final
class GramRoot:
    """V = R^T R: R is k x k upper triangular if V is safely definite, else rank x k with orthogonal rows.

    Where V is so badly scaled that light queries drown in it, and the workload is explicit, R comes from the rows
    themselves by QR, which keeps them.
    """

    def __init__(self, problem: Problem, scale: float) -> None:
        self._factor(problem.gram / scale, lambda: _scaled(explicit_rows(problem), scale))

    @classmethod
    def of(cls, V: SquareMatrix) -> GramRoot:
        """Return the root of a Gram matrix whose rows are not known."""
        root = cls.__new__(cls)
        root._factor(V, lambda: None)
        return root

    def _factor(self, V: SquareMatrix, rows: Callable[[], RealMatrix | None]) -> None:
        self.basis: RealMatrix | None = None
        C = la.cholesky(V)
        if C is not None and np.diag(C).min() > la.SAFE_PIVOT * math.sqrt(np.diag(V).max()):
            self.R: RealMatrix = np.asfortranarray(C.T)
            return
        W = rows()
        if W is not None:
            R = np.linalg.qr(W, mode="r")
            if len(R) == len(V) and np.abs(np.diag(R)).min() > 1e-14 * np.abs(R).max():
                self.R = np.asfortranarray(R)
                return
        values, U = la.eigen(V)
        kept = values > la.RANK_TOLERANCE * len(V) * values[-1]
        self.basis = np.asfortranarray(U[:, kept])
        self.sizes = np.sqrt(values[kept])
        self.R = np.asfortranarray((self.basis * self.sizes).T)

    @property
    def rank(self) -> int:
        """Rank of the workload after grounding."""
        return len(self.R)

    def right_inverse(self) -> RealMatrix:
        """Return B with R B = 1 whose columns are in the range of V."""
        if self.basis is None:
            return np.asarray(lapack.dtrtri(self.R, lower=0)[0])
        return np.asarray(self.basis / self.sizes)

    def gram(self, L: SquareMatrix) -> SquareMatrix:
        """Return R L R^T."""
        if self.basis is None:
            half = blas.dtrmm(1.0, self.R, la.symmetric(L), overwrite_b=1)
            return np.asarray(blas.dtrmm(1.0, self.R, half, side=1, trans_a=1, overwrite_b=1))
        half = blas.dsymm(1.0, L, self.R, side=1, lower=1)
        return np.asarray(blas.dgemm(1.0, half, self.R, trans_b=1))

    def dual_point(self, L: SquareMatrix) -> DualPoint:
        """Return f(mu) and the minimiser X(mu) of tr(V X^-1) + tr(L X)."""
        values, Q = la.eigen(self.gram(L))
        noise = la.EIGENVALUE_ERROR * values.size * values[-1]
        roots = np.sqrt(np.maximum(values, noise))
        half = Q / np.sqrt(roots)
        if self.basis is None:
            C = blas.dtrmm(1.0, self.R, half, trans_a=1, overwrite_b=1)
        else:
            C = blas.dgemm(1.0, self.R, half, trans_a=1)
        return DualPoint(la.root_sum_lower(values), float(roots.sum()), blas.dsyrk(1.0, C, lower=1), roots, Q)

    def pseudo_inverse(self, point: DualPoint) -> SquareMatrix | None:
        """Return X^+ of a dual point, lower triangle."""
        if self.basis is None:
            return la.inverse(point.X)
        half = blas.dgemm(1.0, self.basis / self.sizes, point.vectors * np.sqrt(point.roots))
        return np.asarray(blas.dsyrk(1.0, half, lower=1))

    def trace(self, X: SquareMatrix) -> float:
        """Return tr(V X^+) for an X (lower triangle) on the range of V; infinite where X is not positive there."""
        if self.basis is None:
            C = la.cholesky(X)
            return math.inf if C is None else float((blas.dtrsm(1.0, C, self.R.T, lower=1) ** 2).sum())
        Y = la.inverse(self._inside(X))
        return math.inf if Y is None else float(self.sizes**2 @ np.diag(Y))

    def project(self, X: SquareMatrix) -> SquareMatrix:
        """Return X restricted to the range of V, lower triangle."""
        if self.basis is None:
            return X
        return np.asarray(blas.dgemm(1.0, blas.dgemm(1.0, self.basis, self._inside(X)), self.basis, trans_b=1))

    def _inside(self, X: SquareMatrix) -> SquareMatrix:
        return np.asarray(blas.dgemm(1.0, self.basis, blas.dsymm(1.0, X, self.basis, lower=1), trans_a=1))


def _scaled(rows: RealMatrix | None, scale: float) -> RealMatrix | None:
    return None if rows is None else rows / math.sqrt(scale)


def explicit_rows(problem: Problem) -> RealMatrix | None:
    """Return W D if the workload is a custom matrix of moderate height, else None."""
    matrix, k = problem.workload.objective, problem.grounding.kept.size
    inner = matrix.inner if isinstance(matrix, Weighted) else matrix
    custom = isinstance(inner, Dense | Sparse | Stack)
    return problem.W_D() if custom and matrix.shape[0] <= _EXPLICIT_ROWS * k else None


def is_public(problem: Problem) -> bool:
    """Whether every answer is a public constant, so that nothing needs noise."""
    return problem.policy.num_edges == 0 or not np.any(problem.gram)


def uniform(num_edges: int) -> RealVector:
    """Return equal weights with sum 1."""
    return np.full(num_edges, 1.0 / max(num_edges, 1))


def svd_bound(problem: Problem) -> float:
    """Return the paper's bound (lambda_1 + ... + lambda_s)^2 / e from the singular values of W_G.

    Reference: appendix, corollary on the SVD bound; multiply by `paper_factor` for the paper's figures.
    """
    return dual_bound(problem, uniform(problem.policy.num_edges))


def dual_bound(problem: Problem, weights: Float64[np.ndarray, " e"]) -> float:
    """Return the bound ||W_G diag(sqrt mu)||_*^2 for given edge weights; they are scaled to sum 1.

    Guarantees:
        No strategy of L2 (hence of L1) sensitivity 1 has a smaller unit error.
    """
    mu = finite("bounds.dual_bound", "weights", weights)
    if mu.shape != (problem.policy.num_edges,):
        size, edges = mu.size, problem.policy.num_edges
        raise fail("bounds.dual_bound", f"{size} weights", f"the policy has {edges} edges", "Give one for each edge.")
    if np.any(mu < 0) or (mu.size and not mu.sum() > 0):
        worst = float(mu.min())
        raise fail("bounds.dual_bound", f"weight {worst}", "weights must not be negative, nor all zero", "Correct it.")
    if is_public(problem):
        return 0.0
    scale = gram_scale(problem)
    root = GramRoot(problem, scale)
    values, _ = la.eigen(root.gram(edge_forms(problem.P).laplacian(mu / mu.sum())))
    return scale * la.root_sum_lower(values) ** 2


def gram_scale(problem: Problem) -> float:
    """Return the mean diagonal entry of V: dividing by it keeps all numbers near 1."""
    return float(np.trace(problem.gram)) / max(problem.grounding.kept.size, 1)


def paper_factor(epsilon: float, delta: float) -> float:
    """Return the paper's P(epsilon, delta) = 2 log(2/delta) / epsilon^2, for comparison with its figures only."""
    if not epsilon > 0 or not 0 < delta < 1:
        shown = f"epsilon={epsilon}, delta={delta}"
        raise fail("bounds.paper_factor", shown, "needs epsilon > 0 and 0 < delta < 1", "Correct the value.")
    return 2 * math.log(2 / delta) / epsilon**2
