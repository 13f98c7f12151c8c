"""Reconstruction: from noisy answers of a strategy back to the cells, and what it does to the noise.

Over the kept cells the estimate is A^+ y (vertex strategies) or x + P S^+ noise (edge strategies); its covariance, for
noise of variance 1 on every row, is (A^T A)^-1 or P (S^T S)^-1 P^T. One QR factorisation serves everything; the
strategies of the Gaussian search are triangular already and need none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np
from jaxtyping import Bool, Int, Shaped
from scipy.linalg import lapack, pinv, qr, solve_triangular

from hdmm_bf._checks import fits
from hdmm_bf._linalg import symmetric, threads_for
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.matrix import Matrix
from hdmm_bf.problem.transform import Grounding, Problem
from hdmm_bf.strategies import Strategy
from hdmm_bf.workload import Workload

if TYPE_CHECKING:
    from hdmm_bf.release.plan import Plan

_EPS = float(np.finfo(np.float64).eps)
_ROW_ENTRIES = 2**22
"""Entries of W up to which variances come from its rows; beyond, from the covariance of the cells."""

_BLOCK_ENTRIES = 2**25
_UNSEEN = 1e-18
"""Squared share of a query that may lie outside what a strategy measures: rounding."""

_DOUBTFUL = 1e-9
"""Share of the largest variance below which cancellation may show, and the rows are used after all."""


PROBE = 2**20
PROBES = 3
"""Whole numbers that a query must not see, in so many draws, to be taken for public: all miss it once in 2^60."""


def public_queries(matrix: Matrix, grounding: Grounding) -> Bool[np.ndarray, " m"]:
    """Say which queries see only public totals: they do not change when records move along the policy's edges.

    Judged in whole numbers: queries with other coefficients may be called not public, never the other way round.
    """
    rng = np.random.default_rng(0)
    public = np.ones(matrix.shape[0], dtype=bool)
    for _ in range(PROBES):
        public &= np.asarray(matrix.mv(grounding.expand(rng.integers(1, PROBE, size=grounding.kept.size)))) == 0
    return public


def with_public_answers(
    matrix: Matrix, grounding: Grounding, answers: RealVector, totals: Shaped[np.ndarray, " c"]
) -> RealVector:
    """Return answers with those of public queries computed from the totals alone, in whole numbers where these are."""
    public = public_queries(matrix, grounding)
    if not public.any():
        return answers
    full = np.zeros(grounding.position.size, dtype=np.int64)
    full[grounding.given_up] = np.rint(totals).astype(np.int64)
    return np.asarray(np.where(public, matrix.mv(full), answers), dtype=np.float64)


@final
@dataclass(frozen=True, eq=False)
class Reconstruction:
    """The least-squares inverse of a strategy, in grounded coordinates."""

    problem: Problem
    strategy: Strategy

    @cached_property
    def matrix(self) -> RealMatrix:
        """A over the kept cells, or S over the edges."""
        A = self.strategy.matrix()
        return self.problem.grounding.columns(A) if self.strategy.kind == "vertex" else A

    @cached_property
    def factor(self) -> tuple[RealMatrix | None, SquareMatrix] | None:
        """Q and R with A = Q R, Q being None when A is triangular; None if A has not full column rank."""
        A = self.matrix
        rows, columns = A.shape
        if rows < columns or columns == 0:
            return None
        with threads_for(columns):
            triangular = rows == columns and not np.any(np.tril(A, -1))
            Q, R = (None, A) if triangular else qr(A, mode="economic", check_finite=False)
        pivots = np.abs(np.diag(R))
        return (Q, R) if pivots.min() > columns * _EPS * pivots.max() else None

    @cached_property
    def pseudo_inverse(self) -> RealMatrix:
        """A^+, written out: for strategies without full column rank."""
        A = self.matrix
        return np.asarray(pinv(A)) if A.size else np.zeros(A.shape[::-1])

    def covers(self, workload: Workload) -> bool:
        """Whether every query of a workload on the same cells can be answered from the strategy, without bias."""
        if self.factor is not None:
            return True
        A = self.matrix if self.strategy.kind == "vertex" else None
        if A is None:  # edge strategies measure every edge that the queries they were made for move along
            return workload is self.problem.workload
        left_out = np.eye(A.shape[1]) - self.pseudo_inverse @ A
        cells = np.asarray(self.problem.grounding.expand(left_out), dtype=np.float64)
        seen = np.asarray(workload.matrix.quadratic(cells @ cells.T))
        whole = np.asarray(workload.matrix.quadratic(np.eye(workload.num_cells)))
        return bool(np.all(seen <= _UNSEEN * np.maximum(whole, 1.0)))

    def solve(self, y: RealVector) -> RealVector:
        """Return A^+ y."""
        if self.factor is None:
            return np.asarray(self.pseudo_inverse @ y)
        Q, R = self.factor
        return np.asarray(solve_triangular(R, y if Q is None else Q.T @ y, check_finite=False))

    def queries(self, chosen: Int[np.ndarray, " q"]) -> RealMatrix:
        """Return the chosen rows of W A^+: how the answers depend on the noise."""
        workload = self.problem.workload
        fits("reconstruction", f"{chosen.size} queries", workload.num_queries * chosen.size * 8, advice="Choose fewer.")
        picks = np.zeros((workload.num_queries, chosen.size))
        picks[chosen, np.arange(chosen.size)] = 1.0
        rows = self.problem.grounding.columns(np.asarray(workload.matrix.rmv(picks).T, dtype=np.float64))
        if self.strategy.kind == "edge":
            rows = np.asarray(self.problem.P.rmv(rows.T).T)
        if self.factor is None:
            return np.asarray(rows @ self.pseudo_inverse)
        Q, R = self.factor
        carried = np.asarray(solve_triangular(R, rows.T, trans="T", check_finite=False)).T
        return carried if Q is None else carried @ Q.T

    def blocks(self, chosen: Int[np.ndarray, " q"]) -> list[Int[np.ndarray, " _"]]:
        """Cut a list of queries so that the rows of a block stay small."""
        widest = max(self.problem.workload.num_queries, self.matrix.shape[0], 1)
        size = max(1, min(1024, _BLOCK_ENTRIES // widest))
        return [chosen[i : i + size] for i in range(0, chosen.size, size)]

    @cached_property
    def covariance(self) -> SquareMatrix:
        """Covariance of the estimates of all cells, for noise of variance 1 on every row."""
        n = self.problem.policy.num_cells
        fits("reconstruction", f"covariance of {n} cells", n * n * 8, advice="Ask for chosen queries only.")
        C = self._factor_covariance()
        if self.strategy.kind == "edge":
            P = self.problem.P
            C = np.asarray(P.mv(np.ascontiguousarray(P.mv(C).T)), dtype=np.float64)
        grounding = self.problem.grounding
        return np.asarray(grounding.expand(np.ascontiguousarray(grounding.expand(C).T)), dtype=np.float64)

    def _factor_covariance(self) -> SquareMatrix:
        if self.factor is None:
            inverse = self.pseudo_inverse
            return np.asarray(inverse @ inverse.T)
        C, info = lapack.dpotri(np.asfortranarray(self.factor[1]), lower=0)
        assert info == 0, "the diagonal of R was checked"
        return symmetric(C.T)

    def variances(self, chosen: Int[np.ndarray, " q"] | None = None) -> RealVector:
        """Return the variance of every answer, or of chosen ones, for noise of variance 1 on every row."""
        m, n = self.problem.workload.matrix.shape
        if chosen is not None or m * n <= _ROW_ENTRIES:
            return self._from_rows(np.arange(m) if chosen is None else chosen)
        found = self.problem.workload.matrix.quadratic(self.covariance)
        doubtful = np.flatnonzero(found < _DOUBTFUL * found.max(initial=0.0))
        if doubtful.size * n <= _ROW_ENTRIES:
            found[doubtful] = self._from_rows(doubtful)
        return np.asarray(np.maximum(found, 0.0))

    def total_variance(self, settled: Plan) -> float:
        """Return the sum of the variances of all answers, with the noise of a plan."""
        return float(settled.stddev**2 * self.variances().sum())

    def _from_rows(self, chosen: Int[np.ndarray, " q"]) -> RealVector:
        rows = [(self.queries(block) ** 2).sum(axis=1) for block in self.blocks(chosen)]
        return np.concatenate([np.empty(0), *rows])
