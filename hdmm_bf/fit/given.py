"""`certify`: a strategy from anywhere becomes a `Fit`, with the certificate that our own have."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Int64

from hdmm_bf._checks import fail, fits, real_matrix
from hdmm_bf._linalg import EPS, SUPPORT_TOLERANCE, threads_for
from hdmm_bf._types import Noise, Norm, RealMatrix, RealVector
from hdmm_bf.bounds.dense import is_public, uniform
from hdmm_bf.domain import DomainLike
from hdmm_bf.fit.certified import certified
from hdmm_bf.fit.dense import BOUND_GAP, BOUND_STEPS, edge_proof, pairs_proof
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.options import FitOptions
from hdmm_bf.matrix import Matrix
from hdmm_bf.problem import inputs
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import limits, search
from hdmm_bf.strategies.drafts import draft
from hdmm_bf.strategies.gaussian import dense as gaussian
from hdmm_bf.strategies.records import CellStrategy, MatrixStrategy
from hdmm_bf.strategies.rounding import from_draft

FAMILY = "given"
_MOST_BITS, _LARGEST = 40, 2**52
"""Binary places, and size in units of the last of them, of entries that are kept exactly as they are."""


def certify(
    workload: object,
    policy: object,
    strategy: object,
    *,
    domain: DomainLike | None = None,
    noise: Noise = "gaussian",
    max_seconds: float | None = None,
) -> Fit:
    """Put a strategy from anywhere on a grid, certify it, and return it as a `Fit` that can be saved and released.

    Args:
        workload: as for `fit`.
        policy: as for `fit`.
        strategy: the matrix A, r x n, one column per cell: an array, a scipy.sparse matrix, or one of ours. Its scale
            does not matter.
        domain: as for `fit`.
        noise: "gaussian" or "laplace".
        max_seconds: time limit of the search for the lower bound beside it, which is tight to 1e-4 without one.

    A strategy must answer every query: W must lie in the row space of A, up to public totals. If A has full column rank
    it is rounded to a grid so fine that the error changes by less than a millionth; else its entries must be fractions
    with a power of two below, which are kept as they are.

    Guarantees:
        The certificate is derived from the integers that will be released, as for every other fit.

    Example:
        >>> import numpy as np
        >>> import hdmm_bf as bf
        >>> made = bf.certify("identity:4", "unbounded:4", np.eye(4), noise="laplace")
        >>> made.unit_error, made.bounds.lower
        (4.0, 4.0)
    """
    started = limits.now()
    problem = inputs.problem(workload, policy, domain=domain)
    if noise == "norm":
        raise fail("certify", "noise='norm'", "is for trees, not for matrices", "Use laplace or gaussian.")
    options = FitOptions(noise=noise, max_seconds=max_seconds, started=started).checked(problem)
    A = _checked(strategy, problem)
    with limits.noting_interruptions(), threads_for(problem.policy.num_cells):
        on_grid = _on_grid(problem, A, noise)
        proof = edge_proof(_weights(problem, options))
        if noise == "laplace":
            proof |= pairs_proof(problem, proof["weights"])
        return certified(problem, on_grid, proof, options, status="certified")


def _checked(strategy: object, problem: Problem) -> RealMatrix:
    n = problem.policy.num_cells
    advice = f"Give one column for each of the {n} cells."
    if isinstance(strategy, Matrix):
        strategy = strategy.dense()
    A = real_matrix("certify", "strategy", strategy, advice=advice)
    if A.shape[1] != n:
        raise fail("certify", f"a strategy of shape {A.shape}", f"the policy has {n} cells", advice)
    if not isinstance(A, np.ndarray):
        fits("certify", f"{A.shape[0]} x {n}", A.shape[0] * n * 8, advice="Use fewer rows.")
        A = A.toarray()
    empty = np.flatnonzero(~np.any(A, axis=1))
    if not len(A) or empty.size:
        where = "a strategy without rows" if not len(A) else f"row {int(empty[0])} of the strategy"
        raise fail("certify", where, "measures nothing: it is zero", "Leave rows of zeros out.")
    return np.asarray(A, dtype=np.float64)


def _on_grid(problem: Problem, A: RealMatrix, noise: Noise) -> MatrixStrategy:
    """Round a strategy of full column rank; keep the entries of another as they are, if they are such fractions."""
    grounded = problem.grounding.columns(A)
    norm: Norm = "L1" if noise == "laplace" else "L2"
    rounded = draft(problem, "vertex", grounded, norm=norm, origin=FAMILY) if len(A) >= grounded.shape[1] else None
    if rounded is not None and rounded.error < math.inf and not is_public(problem):
        return from_draft(problem, rounded)
    integers, bits = _as_fractions(A)
    _check_support(problem, grounded)
    return CellStrategy(integers, bits, FAMILY)


def _as_fractions(A: RealMatrix) -> tuple[Int64[np.ndarray, "r n"], int]:
    """Return whole numbers and binary places that stand for exactly these entries."""
    for bits in range(_MOST_BITS + 1):
        scaled = np.ldexp(A, bits)
        if float(np.abs(scaled).max()) > _LARGEST:
            break
        if np.array_equal(scaled, np.rint(scaled)):
            return scaled.astype(np.int64), bits
    shown = f"a strategy of {A.shape[0]} x {A.shape[1]}"
    reason = "has not full column rank, and rounding its entries could make it miss a query"
    raise fail("certify", shown, reason, "Scale its rows to whole numbers, or add the identity with a small weight.")


def _check_support(problem: Problem, A: RealMatrix) -> None:
    """Name the first query that a strategy over the kept cells does not answer."""
    matrix = problem.workload.objective
    _, sizes, Vt = np.linalg.svd(A, full_matrices=False)
    rows = Vt[sizes > len(A) * EPS * sizes.max(initial=0.0)]
    if len(rows) == A.shape[1]:
        return
    W = problem.W_D() if matrix.shape[0] * A.shape[1] <= 2**26 else problem.gram
    lengths = np.linalg.norm(W, axis=1)
    outside = np.linalg.norm(W - (W @ rows.T) @ rows, axis=1) > SUPPORT_TOLERANCE * np.maximum(lengths, 1e-300)
    if np.any(outside):
        first = int(np.flatnonzero(outside)[0])
        names = len(W) == problem.workload.num_queries
        named = f"query {first} ({problem.workload.name(first)})" if names else "some query"
        count = f", and {np.count_nonzero(outside) - 1} others" if names and np.count_nonzero(outside) > 1 else ""
        advice = "Add rows to the strategy until every query is a combination of them."
        raise fail("certify", f"{named}{count}", "cannot be answered from this strategy", advice)


def _weights(problem: Problem, options: FitOptions) -> RealVector:
    """Return edge weights that prove a lower bound."""
    if is_public(problem):
        return uniform(problem.policy.num_edges)
    with limits.limited(options.until(0.0)):
        steps = gaussian.steps(problem, gap=BOUND_GAP)
        return search(steps, gap=BOUND_GAP, max_iterations=BOUND_STEPS, whole_steps=True).proof
