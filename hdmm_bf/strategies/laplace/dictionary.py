"""Dictionaries: fixed directions d_j, released as x + sum_j t_j d_j Lap(1); exact sensitivity by linear programmes.

Write each edge as p_e = sum_j y_je d_j. With w_j = 1/t_j the release is private at scale 1 when sum_j |y_je| w_j <= 1
forevery edge, and its error is sum_j ||W d_j||^2 / w_j^2. For fixed w the best y is a linear programme an edge (the
exact sensitivity); for fixed y the error is convex in w. Alternating the two never gets worse.

Directions are the edges of the policy, alone and with shortcuts from every cell to the ground, all with entries 0 and
+-1, so that decompositions are integer and S = diag(w) Y, an edge strategy, ships exactly on a grid.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog, minimize

from hdmm_bf._types import RealMatrix, RealVector
from hdmm_bf.objectives import limits
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.drafts import Draft, draft
from hdmm_bf.strategies.registry import Family, Turns

NAME = "dictionary"
LARGEST_EDGES = 600
_SWEEPS = 6


def applies(problem: Problem) -> bool:
    """Whether there are few enough edges for a linear programme each."""
    return problem.policy.num_edges <= LARGEST_EDGES


def steps(problem: Problem, *, seed: int) -> Iterator[Draft]:
    """Yield the best strategy after every sweep over one dictionary after the other; finite, and without chance."""
    best: Draft | None = None
    for D in _dictionaries(problem):
        cost = np.einsum("ij,ik,kj->j", D, problem.gram, D)
        if not np.all(cost > 0):
            continue  # a direction that no query sees: its noise would be free, and the error not smooth
        w = 1.0 / np.sqrt(cost)
        for _ in range(_SWEEPS):
            Y = decompositions(problem, D, w)
            if Y is None:
                break
            w = best_scales(np.abs(Y), cost)
            found = _as_draft(problem, w[:, None] * Y)
            improved = best is None or found.error < best.error * (1 - 1e-6)
            best = found if best is None or found.error < best.error else best
            yield best
            if not improved:
                break


def _as_draft(problem: Problem, S: RealMatrix) -> Draft:
    """An edge strategy needs full column rank to ship; identity rows of weight zero are left out."""
    used = np.abs(S).max(axis=1) > 0
    return draft(problem, "edge", S[used], norm="L1", origin=NAME)


def decompositions(problem: Problem, D: RealMatrix, w: RealVector) -> RealMatrix | None:
    """Return Y with D Y = P and least sum_j w_j |y_je| forevery edge; None if it is not integer, or time is up.

    Guarantees:
        sum_j w_j |y_je| is the exact L1 sensitivity of the edge for noise with scales 1/w along the columns of D.
    """
    P = problem.P.dense()
    r = D.shape[1]
    doubled = sp.csr_array(np.hstack([D, -D]))
    Y = np.empty((r, P.shape[1]))
    for e in range(P.shape[1]):
        found = linprog(np.concatenate([w, w]), A_eq=doubled, b_eq=P[:, e], method="highs")
        if found.status != 0 or limits.ending():
            return None
        Y[:, e] = found.x[:r] - found.x[r:]
    whole = np.rint(Y)
    return whole if np.array_equal(D @ whole, P) else None


def best_scales(magnitudes: RealMatrix, cost: RealVector) -> RealVector:
    """Minimise sum_j cost_j / w_j^2 subject to magnitudes^T w <= 1, by ascent on the dual.

    With multipliers m >= 0 the inner minimum is at w_j = (2 cost_j / (magnitudes m)_j)^(1/3).
    """
    used = magnitudes.max(axis=1) > 0
    M, c = magnitudes[used], cost[used]

    def scales(logs: RealVector) -> RealVector:
        return np.asarray((2 * c / (M @ np.exp(logs) + 1e-300)) ** (1 / 3))

    def dual(logs: RealVector) -> tuple[float, RealVector]:
        m = np.exp(logs)
        w = scales(logs)
        value = (c / w**2).sum() + m @ (M.T @ w - 1)
        return -float(value), -m * (M.T @ w - 1)

    start = np.full(M.shape[1], np.log(2 * c.sum() / M.shape[1]))
    found = minimize(dual, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    w = scales(found.x)
    scaled = np.zeros(cost.size)
    scaled[used] = w / (M.T @ w).max()
    return scaled


def _dictionaries(problem: Problem) -> Iterator[RealMatrix]:
    """The policy's edges, alone and with a shortcut to the ground from every cell that has no edge to it."""
    P = problem.P
    edges = P.dense()
    yield edges
    far = np.setdiff1d(np.arange(P.num_vertices), P.head[P.tail < 0])
    if far.size:
        yield np.hstack([edges, np.eye(P.num_vertices)[:, far]])


FAMILY = Family(
    name=NAME, noise="laplace", structured=False, search=steps, applies=applies, turns=Turns(look=2, stale=1)
)
