"""The certificate: everything claimed about a strategy, derived again from what is shipped.

Plain NumPy and SciPy, from the integers, the policy, the workload and the edge weights; it shares no code with the
search (only the transformation). The sensitivity is exact; the lower bounds are rounded down and the support is
measured, so what stands here holds for the strategy that runs, not for an idealised one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float64, Int64
from scipy.linalg import lapack, qr, solve_triangular

from hdmm_bf._checks import fail
from hdmm_bf._types import Noise, RealMatrix, RealVector, SquareMatrix
from hdmm_bf.certificate.exact import dense_sensitivity, within_limit
from hdmm_bf.problem.transform import Problem

SUPPORT_TOLERANCE = 1e-8
"""Largest share of any single query (of its norm) that may fall outside the strategy; what rounding leaves is less."""

AGREEMENT = 1e-9
"""Relative difference at which a claimed number and the derived one are no longer the same."""

_EPS = float(np.finfo(np.float64).eps)
_MOST_SENSITIVITY_BITS = 1000
_TALL = 8
"""Queries, against cells, up to which the error is computed from the rows; taller workloads go through W^T W."""
_MOST_ROW_ENTRIES = 2**24
"""Entries up to which the workload is written out to measure every query by itself."""


@final
@dataclass(frozen=True)
class Certificate:
    """What holds for a shipped strategy.

    Attributes:
        noise: "gaussian" (L2) or "laplace" (L1).
        sensitivity_exact: the L1 sensitivity, or the square of the L2 sensitivity, of the integers; a whole number.
        bits: binary places: the strategy is the integers over 2^bits.
        sensitivity: the sensitivity of the strategy.
        support: largest share of a query that the strategy cannot answer; 0 up to rounding.
        unit_error: sensitivity^2 ||W A^+||_F^2.
        svd_bound: the paper's bound.
        lower_bound: the best proven bound; 0 where none is.
        gap: unit_error / lower_bound - 1; infinite where no bound is proven.

    Guarantees:
        Every number is finite and none is negative, but for a gap without a bound, and for a gap below 0 by rounding.
    """

    noise: Noise
    sensitivity_exact: int
    bits: int
    sensitivity: float
    support: float
    unit_error: float
    svd_bound: float
    lower_bound: float
    gap: float

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in asdict(self).items() if name not in ("noise", "gap")}
        if self.lower_bound > 0 or self.gap != math.inf:
            numbers["gap"] = self.gap + AGREEMENT
        for name, value in numbers.items():
            if not 0 <= value < math.inf:
                raise fail("certificate", f"{name}={value}", "must be finite and not negative", "Fit again.")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values; the exact integer as text, which no JSON reader rounds."""
        gap = self.gap if math.isfinite(self.gap) else None  # no bound is proven
        return {**asdict(self), "sensitivity_exact": str(self.sensitivity_exact), "gap": gap}


def certify(
    problem: Problem,
    *,
    noise: Noise,
    kind: str,
    integers: Int64[np.ndarray, "r c"],
    bits: int,
    weights: Float64[np.ndarray, " e"],
) -> Certificate:
    """Derive everything about a shipped strategy from its integers: A over the cells, or S over the edges.

    Guarantees:
        `sensitivity_exact` is exact. `unit_error` and the bounds are within rounding, the bounds rounded down.
        Raises if the strategy does not support the workload, or if an input is not finite or of the wrong shape.
    """
    _check_shapes(problem, kind, integers, bits, weights)
    exact = exact_sensitivity(integers, problem, noise, kind=kind)
    A = np.ldexp(integers.astype(np.float64), -bits)
    sensitivity = scaled_sensitivity(exact, bits, noise)
    grounded = problem.grounding.columns(A) if kind == "vertex" else A
    trace, support = _trace_and_support(problem, kind, grounded)
    if not support <= SUPPORT_TOLERANCE:
        advice = "The answers would be biased; fit the strategy again for this workload."
        problem_text = f"a share {support:.2g} of some query lies outside the strategy's row space"
        raise fail("certificate", f"strategy with {len(A)} rows", problem_text, advice)
    unit_error = sensitivity**2 * trace
    uniform = np.full(weights.size, 1.0)
    svd = _dual_bound(problem, problem.gram, uniform)
    lower = float(np.maximum(svd, _dual_bound(problem, problem.gram, weights)))  # max() drops what is not a number
    if not unit_error >= lower * (1 - AGREEMENT):
        advice = "The numbers cannot be trusted: rescale the workload so that its weights are closer."
        raise fail("certificate", f"unit error {unit_error}", f"is below the proven bound {lower}", advice)
    gap = unit_error / lower - 1 if lower > 0 else 0.0
    return Certificate(noise, exact, bits, sensitivity, support, unit_error, svd, lower, gap)


def disagreements(claimed: dict[str, Any], derived: Certificate) -> list[str]:
    """List, in words, every claimed number that differs from the derived one; empty when all agree."""
    found = []
    for name, value in derived.as_dict().items():
        if name not in claimed:
            found.append(f"{name} is missing, derived {value}")
        elif not _agree(name, claimed[name], value):
            found.append(f"{name} is claimed to be {claimed[name]}, derived {value}")
    return found


def _agree(name: str, claimed: Any, derived: Any) -> bool:
    if derived is None or isinstance(derived, str | int):
        return bool(claimed == derived)
    if isinstance(claimed, bool) or not isinstance(claimed, int | float) or not math.isfinite(claimed):
        return False
    room = AGREEMENT if name in ("gap", "support") else 0.0  # differences of nearly equal numbers
    return math.isclose(claimed, derived, rel_tol=AGREEMENT, abs_tol=room)


def exact_sensitivity(
    integers: Int64[np.ndarray, "r c"], problem: Problem, noise: Noise, *, kind: str = "vertex"
) -> int:
    """Return max_e of ||A p_e||_1 (Laplace) or ||A p_e||_2^2 (Gaussian) for an integer matrix, exactly.

    For an edge strategy A p_e is the column of the edge.
    """
    columns = integers.shape[1]
    head, tail = problem.oriented if kind == "vertex" else (np.arange(columns), np.full(columns, -1))
    return dense_sensitivity(integers, head, tail, noise)


def scaled_sensitivity(exact: int, bits: int, noise: Noise) -> float:
    """Return the sensitivity of a strategy from that of its integers over 2^bits."""
    if exact.bit_length() > _MOST_SENSITIVITY_BITS:
        problem = f"is beyond 2^{_MOST_SENSITIVITY_BITS}, which no noise covers"
        raise fail("certificate", f"a sensitivity of {exact.bit_length()} bits", problem, "Fit the strategy again.")
    return math.ldexp(math.sqrt(exact) if noise == "gaussian" else float(exact), -bits)


def _trace_and_support(problem: Problem, kind: str, A: RealMatrix) -> tuple[float, float]:
    """||W A^+||_F^2, and the largest share of a query that lies outside the row space of A.

    From the rows of the workload where there are few enough, so that a light query beside heavy ones keeps its digits;
    else from the Gram matrix. A strategy of full column rank supports everything.
    """
    columns = A.shape[1]
    if columns == 0 or not np.any(problem.gram):
        return 0.0, 0.0
    if len(A) == 0:
        return 0.0, 1.0
    if len(A) >= columns:
        R = qr(A, mode="r", check_finite=False)[0][:columns]
        pivots = np.abs(np.diag(R))
        if pivots.min() > columns * _EPS * pivots.max():
            few = problem.workload.num_queries <= _TALL * columns
            return _trace(R, problem, kind, _query_rows(problem, kind) if few else None), 0.0
    rows = _query_rows(problem, kind)
    if rows is None:
        advice = "Use a strategy of full column rank for workloads with so many queries."
        raise fail("certificate", f"strategy with {len(A)} rows", "its support cannot be checked", advice)
    Q, R, _ = qr(A.T, mode="economic", pivoting=True, check_finite=False)
    pivots = np.abs(np.diag(R))
    Q = Q[:, pivots > columns * _EPS * pivots[0]]
    inside = rows @ Q
    norms = np.linalg.norm(rows, axis=1)
    outside = np.linalg.norm(rows - inside @ Q.T, axis=1)[norms > 0] / norms[norms > 0]
    R = qr(A @ Q, mode="r", check_finite=False)[0][: Q.shape[1]]  # A on its own row space
    return float((solve_triangular(R, inside.T, trans="T", check_finite=False) ** 2).sum()), float(outside.max())


def _query_rows(problem: Problem, kind: str) -> RealMatrix | None:
    """W D, or W_G for an edge strategy, written out if it is small."""
    m, columns = problem.workload.num_queries, problem.grounding.kept.size
    if kind == "edge":
        columns = problem.policy.num_edges
    if m * columns > _MOST_ROW_ENTRIES:
        return None
    return problem.W_D() if kind == "vertex" else problem.W_G()


def _trace(R: RealMatrix, problem: Problem, kind: str, rows: RealMatrix | None) -> float:
    """||W R^-1||_F^2 for the triangular factor of a strategy of full column rank."""
    if rows is not None:
        return float((solve_triangular(R, rows.T, trans="T", check_finite=False) ** 2).sum())
    V = problem.gram
    if kind == "edge":
        P = problem.P.sparse()
        V = np.asarray(P.T @ (P.T @ V).T)
    half = solve_triangular(R, V, trans="T", check_finite=False)
    return float(np.trace(solve_triangular(R, half.T, trans="T", check_finite=False)))


def semidefinite_factor(V: SquareMatrix) -> RealMatrix:
    """Return F with F^T F = V, by Cholesky with pivoting: as many rows as V has rank."""
    R, order, rank, _ = lapack.dpstrf(np.asfortranarray(V), tol=len(V) * _EPS * float(np.diag(V).max()))
    F = np.zeros((rank, len(V)))
    F[:, order - 1] = np.triu(R)[:rank]
    return F


def _dual_bound(problem: Problem, V: SquareMatrix, weights: RealVector) -> float:
    """(sum of the singular values of W_G diag(sqrt mu))^2 through C^T V C with L(mu) = C C^T, rounded down."""
    if weights.size == 0 or not np.any(V):
        return 0.0
    mu = weights / weights.sum()
    k = len(V)
    head, tail = problem.P.head, problem.P.tail % (k + 1)  # the ground, -1, is vertex k
    L = np.bincount(head * (k + 1) + tail, mu, (k + 1) ** 2).reshape(k + 1, k + 1)
    L = np.diag((L + L.T).sum(axis=0)) - (L + L.T)
    C = semidefinite_factor(L[:k, :k]).T
    values = np.linalg.eigvalsh(C.T @ (V @ C))
    slack = 4 * _EPS * k * float(values.max())
    return float(np.sqrt(np.maximum(values - slack, 0.0)).sum() ** 2)


def _check_shapes(
    problem: Problem, kind: str, integers: Int64[np.ndarray, "r c"], bits: int, weights: RealVector
) -> None:
    cells, edges = problem.policy.num_cells, problem.policy.num_edges
    if kind not in ("vertex", "edge"):
        raise fail("certificate", f"kind={kind!r}", "must be 'vertex' or 'edge'", "Fit again.")
    columns, what = (cells, "cell") if kind == "vertex" else (edges, "edge")
    if integers.ndim != 2 or integers.shape[1] != columns:
        shape = " x ".join(map(str, integers.shape))
        advice = f"Give one column for each {what}."
        raise fail("certificate", f"strategy {shape}", f"the policy has {columns} {what}s", advice)
    if integers.dtype != np.int64 or not within_limit(integers) or not 0 <= bits <= 1000:
        shown = f"{integers.dtype} entries, bits={bits}"
        raise fail("certificate", shown, "the integers or their grid are out of range", "Fit again.")
    if weights.shape != (edges,):
        raise fail("certificate", f"{weights.size} weights", f"the policy has {edges} edges", "Give one for each edge.")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0) or (edges > 0 and not weights.sum() > 0):
        raise fail("certificate", "weights", "must be finite, not negative and not all zero", "Fit again.")
