"""The certificate of strategies that are written out, from their integers, the policy, the workload and edge weights.

Plain NumPy and SciPy; it shares no code with the search (only the problem). The sensitivity is exact; the lower bounds
are rounded down and the support is measured, so what stands here holds for the strategy that runs, not for an idealised
one. Cells and edges differ in what a column of the matrix stands for, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr, solve_triangular

from hdmm_bf._checks import fail
from hdmm_bf._types import AGREEMENT, EPS, SUPPORT_TOLERANCE, Noise, Proof, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate import goals
from hdmm_bf.certificate.certificate import Bounds, Certificate, certify, check_noise, scaled_sensitivity
from hdmm_bf.certificate.edge_bounds import check_weights, dual_bound
from hdmm_bf.certificate.exact import exact_sensitivity, within_limit
from hdmm_bf.certificate.pairs import pairs_bound
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import CellStrategy, EdgeStrategy, MatrixStrategy

_TALL = 8
"""Queries, against cells, up to which the error is computed from the rows; taller workloads go through W^T W."""
_MOST_ROW_ENTRIES = 2**24
"""Entries up to which the workload is written out to measure every query by itself."""


_MOST_BITS = 1000


class Coordinates(NamedTuple):
    """What the columns of a strategy stand for: the kept cells, or the edges."""

    size: int
    columns: Callable[[RealMatrix], RealMatrix]
    """The matrix in these coordinates."""
    queries: Callable[[], RealMatrix]
    """W D or W_G, written out."""
    gram: Callable[[], SquareMatrix]
    """Its Gram matrix."""
    cells: Callable[[], RealMatrix]
    """The kept cells in terms of these coordinates: k rows."""

    def covariance(self, solved: Callable[[RealMatrix], RealMatrix]) -> SquareMatrix:
        """Return the covariance of the kept cells for noise of variance 1 on every row of the strategy."""
        half = solved(self.cells())
        return np.asarray(half.T @ half)


@singledispatch
def coordinates(strategy: object, problem: Problem) -> Coordinates:
    """Return the coordinates of a strategy's columns."""
    raise TypeError(f"no coordinates for {type(strategy).__name__}")


@coordinates.register
def _(_: CellStrategy, problem: Problem) -> Coordinates:
    grounding = problem.grounding
    k = grounding.kept.size
    return Coordinates(k, grounding.columns, problem.W_D, lambda: problem.gram, lambda: np.eye(k))


@coordinates.register
def _(_: EdgeStrategy, problem: Problem) -> Coordinates:
    def gram() -> SquareMatrix:
        P = problem.P.sparse()
        return np.asarray(P.T @ (P.T @ problem.gram).T)

    return Coordinates(problem.policy.num_edges, lambda S: S, problem.W_G, gram, lambda: problem.P.dense())


@certify.register
def _(
    strategy: MatrixStrategy, problem: Problem, *, noise: Noise, proof: Proof, bounds: Bounds | None = None
) -> Certificate:
    """Derive everything from the integers; `bounds` are not needed: the edge weights of the proof are evaluated here.

    Guarantees:
        `sensitivity_exact` is exact. `unit_error` and the bounds are within rounding, the bounds rounded down.
        Raises if the strategy does not support the workload, or if an input is not finite or of the wrong shape.
    """
    check_noise(noise, ("gaussian", "laplace"))
    weights = np.asarray(proof["weights"], dtype=np.float64)
    _check(strategy, problem, weights)
    exact = exact_sensitivity(strategy, problem, noise)
    sensitivity = scaled_sensitivity(exact, strategy.bits, noise)
    own = coordinates(strategy, problem)
    trace, support, solved = _trace_and_support(problem, own, own.columns(strategy.matrix()))
    if not support <= SUPPORT_TOLERANCE:
        advice = "The answers would be biased; fit the strategy again for this workload."
        seen = f"a share {support:.2g} of some query lies outside the strategy's row space"
        raise fail("certificate", f"strategy with {strategy.num_rows} rows", seen, advice)
    unit_error = sensitivity**2 * trace
    svd = dual_bound(problem, problem.gram, np.full(weights.size, 1.0))
    matrix = float(np.maximum(svd, dual_bound(problem, problem.gram, weights)))  # max() drops what is not a number
    paired = _paired(problem, problem.gram, weights, proof, noise)
    lower = matrix if paired is None else float(np.maximum(matrix, paired))
    if not unit_error >= lower * (1 - AGREEMENT):
        advice = "The numbers cannot be trusted: rescale the workload so that its weights are closer."
        raise fail("certificate", f"unit error {unit_error}", f"is below the proven bound {lower}", advice)
    gap = unit_error / lower - 1 if lower > 0 else 0.0
    yardstick = None if paired is None else matrix
    base = Certificate(noise, exact, strategy.bits, sensitivity, support, unit_error, svd, lower, gap, yardstick)
    return _with_goal(base, problem, proof, own.covariance(solved))


def _paired(problem: Problem, V: SquareMatrix, weights: RealVector, proof: Proof, noise: Noise) -> float | None:
    """Return the bound for Laplace strategies of a proof that has pairs of edges; None for others."""
    if "partners" not in proof and "shares" not in proof:
        return None
    if noise != "laplace":
        raise fail(
            "certificate", f"partners for {noise} noise", "prove nothing: they are of Laplace noise", "Fit again."
        )
    return pairs_bound(problem, V, weights, proof)


def _with_goal(base: Certificate, problem: Problem, proof: Proof, Y: SquareMatrix) -> Certificate:
    """Add the largest variance, and what is reached and proven of a goal other than the total."""
    goal, square = problem.goal, base.sensitivity**2
    lam = None if goal.kind == "total" else np.asarray(proof["queries"], dtype=np.float64)
    worst, value = goals.reached(problem, Y, lam)
    base = replace(base, worst_variance=None if worst is None else square * worst)
    if lam is None:
        return base
    if value is None:
        advice = "Use a structured family, or the total."
        raise fail("certificate", f"{problem.workload.num_queries} queries", "are too many to look at each", advice)
    weights, V = np.asarray(proof["weights"], dtype=np.float64), goals.weighted_gram(problem, lam)
    paired = _paired(problem, V, weights, proof, base.noise)
    bound = float(np.maximum(dual_bound(problem, V, weights), 0.0 if paired is None else paired))
    value *= square
    if not value >= bound * (1 - AGREEMENT):
        advice = "The numbers cannot be trusted: rescale the workload so that its weights are closer."
        raise fail("certificate", f"objective {value}", f"is below the proven bound {bound}", advice)
    return replace(base, objective=goal.kind, objective_value=value, objective_bound=bound)


Solved = Callable[[RealMatrix], RealMatrix]
"""From rows over the columns of A to A^+ transposed, applied: variances are squared lengths of its columns."""


def _trace_and_support(problem: Problem, own: Coordinates, A: RealMatrix) -> tuple[float, float, Solved]:
    """||W A^+||_F^2, the largest share of a query that lies outside the row space of A, and how to apply A^+.

    From the rows of the workload where there are few enough, so that a light query beside heavy ones keeps its digits;
    else from the Gram matrix. A strategy of full column rank supports everything.
    """
    columns = A.shape[1]
    if columns == 0 or not np.any(problem.gram):
        return 0.0, 0.0, lambda rows: np.zeros((0, len(rows)))
    if len(A) == 0:
        return 0.0, 1.0, lambda rows: np.zeros((0, len(rows)))
    m = problem.workload.num_queries
    small = m * own.size <= _MOST_ROW_ENTRIES
    if len(A) >= columns:
        R = qr(A, mode="r", check_finite=False)[0][:columns]
        pivots = np.abs(np.diag(R))
        if pivots.min() > columns * EPS * pivots.max():
            trace = _trace(R, own, by_rows=small and m <= _TALL * columns)
            return trace, 0.0, lambda rows: solve_triangular(R, rows.T, trans="T", check_finite=False)
    if not small:
        advice = "Use a strategy of full column rank for workloads with so many queries."
        raise fail("certificate", f"strategy with {len(A)} rows", "its support cannot be checked", advice)
    rows = own.queries()
    Q, R, _ = qr(A.T, mode="economic", pivoting=True, check_finite=False)
    pivots = np.abs(np.diag(R))
    Q = Q[:, pivots > columns * EPS * pivots[0]]
    inside = rows @ Q
    norms = np.linalg.norm(rows, axis=1)
    outside = np.linalg.norm(rows - inside @ Q.T, axis=1)[norms > 0] / norms[norms > 0]
    R = qr(A @ Q, mode="r", check_finite=False)[0][: Q.shape[1]]  # A on its own row space
    trace = float((solve_triangular(R, inside.T, trans="T", check_finite=False) ** 2).sum())
    return trace, float(outside.max()), lambda rows: solve_triangular(R, (rows @ Q).T, trans="T", check_finite=False)


def _trace(R: RealMatrix, own: Coordinates, *, by_rows: bool) -> float:
    """||W R^-1||_F^2 for the triangular factor of a strategy of full column rank."""
    if by_rows:
        return float((solve_triangular(R, own.queries().T, trans="T", check_finite=False) ** 2).sum())
    half = solve_triangular(R, own.gram(), trans="T", check_finite=False)
    return float(np.trace(solve_triangular(R, half.T, trans="T", check_finite=False)))


def _check(strategy: MatrixStrategy, problem: Problem, weights: RealVector) -> None:
    cells, edges = problem.policy.num_cells, problem.policy.num_edges
    columns, what = {"cell": cells, "edge": edges}[strategy.column], strategy.column
    integers, bits = strategy.integers, strategy.bits
    if integers.ndim != 2 or integers.shape[1] != columns:
        shape = " x ".join(map(str, integers.shape))
        advice = f"Give one column for each {what}."
        raise fail("certificate", f"strategy {shape}", f"the policy has {columns} {what}s", advice)
    if integers.dtype != np.int64 or not within_limit(integers) or not 0 <= bits <= _MOST_BITS:
        shown = f"{integers.dtype} entries, bits={bits}"
        raise fail("certificate", shown, "the integers or their grid are out of range", "Fit again.")
    check_weights(weights, edges)
