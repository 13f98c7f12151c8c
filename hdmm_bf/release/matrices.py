"""Strategies that are written out: exact measurements, and least squares back to the cells.

Over the kept cells the estimate is A^+ y (cells) or x + P S^+ noise (edges); its covariance, for noise of variance 1 on
every row, is (A^T A)^-1 or P (S^T S)^-1 P^T. One QR factorisation serves everything; the strategies of the Gaussian
search are triangular already and need none.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Int, Int64
from scipy.linalg import lapack, pinv, qr, solve_triangular

from hdmm_bf._checks import fail, fits
from hdmm_bf._linalg import EPS, symmetric, threads_for
from hdmm_bf._types import AnyArray, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate import Certificate
from hdmm_bf.data.checked import checked_counts
from hdmm_bf.problem.transform import Problem
from hdmm_bf.release import intervals
from hdmm_bf.release.exact import ExactSums, exact_product
from hdmm_bf.release.plan import Plan
from hdmm_bf.release.postprocess import check_steps
from hdmm_bf.release.public import public_queries, with_public_answers
from hdmm_bf.release.reconstruction import Progress, Recovery, recovery
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy, MatrixStrategy
from hdmm_bf.workload import Workload

_MOST_COEFFICIENTS = 2**28
"""Queries times strategy rows up to which Laplace intervals are computed and not bounded."""

_ROW_ENTRIES = 2**22
"""Entries of W up to which variances come from its rows; beyond, from the covariance of the cells."""

_BLOCK_ENTRIES = 2**25
_UNSEEN = 1e-18
"""Squared share of a query that may lie outside what a strategy measures: rounding."""

_DOUBTFUL = 1e-9
"""Share of the largest variance below which cancellation may show, and the rows are used after all."""


class Cells(NamedTuple):
    """What is published of a strategy that is written out: an estimate of every cell, and exact public totals."""

    estimate: RealVector
    totals: RealVector


@dataclass(frozen=True, eq=False)
class MatrixRecovery(Recovery):
    """The least-squares inverse of a strategy that is written out, in grounded coordinates."""

    problem: Problem
    strategy: MatrixStrategy

    @cached_property
    def matrix(self) -> RealMatrix:
        """A over the kept cells, or S over the edges."""
        return self._grounded(self.strategy.matrix())

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
        return (Q, R) if pivots.min() > columns * EPS * pivots.max() else None

    @cached_property
    def pseudo_inverse(self) -> RealMatrix:
        """A^+, written out: for strategies without full column rank."""
        A = self.matrix
        return np.asarray(pinv(A)) if A.size else np.zeros(A.shape[::-1])

    def solve(self, y: AnyArray) -> AnyArray:
        """Return A^+ y, of a vector or of every column of a matrix."""
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
        rows = self._query_rows(np.asarray(workload.matrix.rmv(picks).T, dtype=np.float64))
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
        C = self._cell_covariance(self._factor_covariance())
        grounding = self.problem.grounding
        return np.asarray(grounding.expand(np.ascontiguousarray(grounding.expand(C).T)), dtype=np.float64)

    def _factor_covariance(self) -> SquareMatrix:
        if self.factor is None:
            inverse = self.pseudo_inverse
            return np.asarray(inverse @ inverse.T)
        C, info = lapack.dpotri(np.asfortranarray(self.factor[1]), lower=0)
        assert info == 0, "the diagonal of R was checked"
        return symmetric(C.T)

    def unit_variances(self, chosen: Int[np.ndarray, " q"] | None = None) -> RealVector:
        """Return the variance of every answer, or of chosen ones, for noise of variance 1 on every row."""
        m, n = self.problem.workload.matrix.shape
        if chosen is not None or m * n <= _ROW_ENTRIES:
            return self._from_rows(np.arange(m) if chosen is None else chosen)
        every = self.problem.workload.matrix.quadratic(self.covariance)
        doubtful = np.flatnonzero(every < _DOUBTFUL * every.max(initial=0.0))
        if doubtful.size * n <= _ROW_ENTRIES:
            every[doubtful] = self._from_rows(doubtful)
        return np.asarray(np.maximum(every, 0.0))

    def _from_rows(self, chosen: Int[np.ndarray, " q"]) -> RealVector:
        rows = [(self.queries(block) ** 2).sum(axis=1) for block in self.blocks(chosen)]
        return np.concatenate([np.empty(0), *rows])

    def variances(self, workload: Workload, settled: Plan, chosen: Int[np.ndarray, " q"] | None = None) -> RealVector:
        """Return the variance of every answer, or of chosen ones, with the noise of a plan."""
        if workload is self.problem.workload:
            return np.asarray(settled.stddev**2 * self.unit_variances(chosen))
        every = np.maximum(workload.matrix.quadratic(self.covariance), 0.0)
        every[public_queries(workload.matrix, self.problem.grounding)] = 0.0
        return np.asarray(settled.stddev**2 * (every if chosen is None else every[chosen]))

    def total_variance(self, settled: Plan, certificate: Certificate) -> float:
        """Return the sum of the variances of all answers: the certificate's, unless weights steered the search."""
        if self.problem.workload.is_weighted:
            return float(settled.stddev**2 * self.unit_variances().sum())
        return certificate.unit_error * (settled.stddev / certificate.sensitivity) ** 2

    def half_widths(self, settled: Plan, level: float, chosen: Int[np.ndarray, " q"]) -> RealVector:
        """Return half widths: from normal quantiles, or quantiles of the sum of Laplace variables in each answer."""
        if self.interval_method(settled, chosen.size) == "exact Laplace sums":
            scale = settled.stddev / math.sqrt(2)
            parts = [intervals.laplace_quantiles(scale * self.queries(b), level) for b in self.blocks(chosen)]
            return np.concatenate([np.empty(0), *parts])
        every = None if chosen.size == self.problem.workload.num_queries else chosen
        stddev = np.sqrt(self.variances(self.problem.workload, settled, every))
        return np.asarray(intervals.half_width(settled.noise, level) * stddev)

    def interval_method(self, settled: Plan, num_queries: int) -> str:
        """Say how intervals for that many queries are made."""
        if settled.noise == "gaussian":
            return "normal"
        few = num_queries * max(1, self.matrix.shape[0]) <= _MOST_COEFFICIENTS
        return "exact Laplace sums" if few else "tail bound"

    @property
    def noise_size(self) -> int:
        """How many numbers of noise a release draws: one a row."""
        return self.strategy.num_rows

    def error_draws(self, workload: Workload, settled: Plan, count: int) -> RealMatrix:
        """Return errors of all answers in so many fresh draws of the noise, one column a draw."""
        sampler, rows = settled.row_sampler, self.strategy.num_rows
        if sampler is None:
            return np.zeros((workload.num_queries, count))
        noise = sampler.draw(rows * count).reshape(rows, count).astype(np.float64)
        kept = self._carried(self.solve(np.ldexp(noise, -self.strategy.bits)))
        return np.asarray(workload.matrix.mv(self.problem.grounding.expand(kept)), dtype=np.float64)

    def read(self, counts: object) -> Int64[np.ndarray, " n"]:
        """Return the histogram as int64, one entry per cell."""
        return checked_counts(self.problem, counts)

    def _noise(self, settled: Plan, callback: Progress) -> AnyArray:
        sampler = settled.row_sampler
        if sampler is None:  # sensitivity zero: every answer is public
            return np.zeros(self.strategy.num_rows, dtype=np.int64)
        return sampler.draw(self.strategy.num_rows, callback=callback)

    def _measured(self, kept: RealVector, data: Int64[np.ndarray, " n"]) -> Cells:
        totals = self.problem.grounding.totals(data)
        cells = np.asarray(self.problem.grounding.expand(kept, totals), dtype=np.float64)
        return Cells(cells, totals.astype(np.float64))

    def estimate(self, measured: Cells) -> RealVector:
        """Return the estimate of every cell (of least norm, if the strategy cannot tell all cells apart)."""
        return measured.estimate

    def answers(self, workload: Workload, measured: Cells) -> RealVector:
        """Return the answers of a workload; those of public queries come from the totals alone."""
        answers = np.asarray(workload.matrix.mv(measured.estimate), dtype=np.float64)
        return with_public_answers(workload.matrix, self.problem.grounding, answers, measured.totals)

    def reconstruction(self) -> RealMatrix:
        """Return W A^+, m x r."""
        m, r = self.problem.workload.num_queries, self.strategy.num_rows
        fits("fit.reconstruction", f"{m} x {r}", m * r * 8, advice="Reconstruct the chosen queries only.")
        return np.concatenate([np.empty((0, r)), *map(self.queries, self.blocks(np.arange(m)))])

    def check_covers(self, workload: Workload) -> None:
        """Refuse queries on another domain, and queries that the strategy does not measure."""
        if workload.num_cells != self.problem.policy.num_cells or not self.covers(workload):
            problem = "is on another domain, or asks what the strategy does not measure"
            raise fail("release.answer", f"workload {workload.title}", problem, "Fit a strategy for it.")

    def covers(self, workload: Workload) -> bool:
        """Whether every query of a workload on the same cells can be answered from the strategy, without bias."""
        return self.factor is not None or self._covers_without_full_rank(workload)

    def check_steps(self, steps: Sequence[str]) -> None:
        """Refuse steps that do not exist or do not apply to the policy."""
        check_steps(self.problem, steps)

    def check_estimate(self) -> None:
        """Refuse what would not fit in memory."""
        _ = self.covariance  # kept for the release

    @abstractmethod
    def _grounded(self, matrix: RealMatrix) -> RealMatrix:
        """Return the strategy in the coordinates of the release: A over the kept cells, or S over the edges."""

    @abstractmethod
    def _query_rows(self, rows: RealMatrix) -> RealMatrix:
        """Return rows over all cells in the same coordinates."""

    @abstractmethod
    def _cell_covariance(self, C: SquareMatrix) -> SquareMatrix:
        """Return the covariance over the kept cells from that in the coordinates of the strategy."""

    @abstractmethod
    def _carried(self, found: RealMatrix) -> RealMatrix:
        """Return over the kept cells, column by column, what is found in the coordinates of the strategy."""

    @abstractmethod
    def _covers_without_full_rank(self, workload: Workload) -> bool:
        """Whether a strategy without full column rank measures a workload."""


@final
@dataclass(frozen=True, eq=False)
class CellRecovery(MatrixRecovery):
    """A over the cells: the integers A x plus integer noise are published."""

    strategy: CellStrategy

    def measure(self, data: Int64[np.ndarray, " n"], settled: Plan) -> AnyArray:
        """Return A x over the integers, what public totals add to the answers being taken off."""
        grounding = self.problem.grounding
        grounded = data.copy()
        grounded[grounding.given_up] -= grounding.totals(data)
        sampler = settled.row_sampler
        return exact_product(self.strategy.integers, grounded, room=sampler.reach if sampler else 0)

    def add_noise(self, exact: AnyArray, data: Int64[np.ndarray, " n"], settled: Plan, callback: Progress) -> Cells:
        """Return the estimate from A x + noise."""
        noisy = np.ldexp((exact + self._noise(settled, callback)).astype(np.float64), -self.strategy.bits)
        return self._measured(self.solve(noisy), data)

    def _grounded(self, matrix: RealMatrix) -> RealMatrix:
        return self.problem.grounding.columns(matrix)

    def _query_rows(self, rows: RealMatrix) -> RealMatrix:
        return self.problem.grounding.columns(rows)

    def _cell_covariance(self, C: SquareMatrix) -> SquareMatrix:
        return C

    def _carried(self, found: RealMatrix) -> RealMatrix:
        return found

    def _covers_without_full_rank(self, workload: Workload) -> bool:
        left_out = np.eye(self.matrix.shape[1]) - self.pseudo_inverse @ self.matrix
        cells = np.asarray(self.problem.grounding.expand(left_out), dtype=np.float64)
        step = max(1, _BLOCK_ENTRIES // workload.num_queries)  # squares of W L, not W (L L^T) W^T, which cancels badly
        blocks = (cells[:, start : start + step] for start in range(0, cells.shape[1], step))
        seen = sum(np.square(workload.matrix.mv(block)).sum(axis=1) for block in blocks)
        whole = np.asarray(workload.matrix.quadratic(np.eye(workload.num_cells)))
        return bool(np.all(seen <= _UNSEEN * np.maximum(whole, 1.0)))

    def precision(self) -> SquareMatrix:
        """Return A^T A."""
        return np.asarray(self.matrix.T @ self.matrix)


@final
@dataclass(frozen=True, eq=False)
class EdgeRecovery(MatrixRecovery):
    """S over the edges: x + P S^+ noise is published on a grid, never the raw answers S x_G + noise."""

    strategy: EdgeStrategy

    @cached_property
    def sums(self) -> ExactSums:
        """The strategy made ready for exact sums, or refused."""
        return ExactSums(self.problem, self.strategy, None if self.factor is None else self.factor[1])

    def measure(self, data: Int64[np.ndarray, " n"], settled: Plan) -> AnyArray:
        """Return the kept cells; a strategy that cannot be run exactly is refused here, whatever the data."""
        _ = self.sums
        return np.asarray(data[self.problem.grounding.kept])

    def add_noise(self, exact: AnyArray, data: Int64[np.ndarray, " n"], settled: Plan, callback: Progress) -> Cells:
        """Return x + P S^+ noise, correctly rounded to a shifted grid."""
        return self._measured(self.sums.private_sum(exact, self._noise(settled, callback)), data)

    def _grounded(self, matrix: RealMatrix) -> RealMatrix:
        return matrix

    def _query_rows(self, rows: RealMatrix) -> RealMatrix:
        return np.asarray(self.problem.P.rmv(self.problem.grounding.columns(rows).T).T)

    def _cell_covariance(self, C: SquareMatrix) -> SquareMatrix:
        P = self.problem.P
        return np.asarray(P.mv(np.ascontiguousarray(P.mv(C).T)), dtype=np.float64)

    def _carried(self, found: RealMatrix) -> RealMatrix:
        return np.asarray(self.problem.P.mv(found), dtype=np.float64)

    def _covers_without_full_rank(self, workload: Workload) -> bool:
        return workload is self.problem.workload  # every edge that the queries it was made for move along

    def precision(self) -> SquareMatrix:
        """Return (P (S^T S)^-1 P^T)^-1."""
        return np.asarray(np.linalg.inv(self._cell_covariance(self._factor_covariance())))


@recovery.register
def _(strategy: CellStrategy, problem: Problem) -> CellRecovery:
    return CellRecovery(problem, strategy)


@recovery.register
def _(strategy: EdgeStrategy, problem: Problem) -> EdgeRecovery:
    return EdgeRecovery(problem, strategy)
