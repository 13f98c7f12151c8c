"""What a strategy reaches of its goal, and the bound that weights on queries and edges prove.

For weights lam on the queries (or groups) and mu on the edges, each with sum 1, every strategy of L2 sensitivity 1 has

    max_g v_g >= sum_g lam_g v_g = tr(V(lam) X^-1) >= || diag(sqrt lam) W_G diag(sqrt mu) ||_*^2

For an objective of the user's own, which is not known here, lam are its derivatives, of any sum, and both sides are of
the weighted sum in the middle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hdmm_bf._checks import fail
from hdmm_bf._types import RealVector, SquareMatrix
from hdmm_bf.problem.query_forms import query_forms
from hdmm_bf.problem.transform import Problem

MOST_QUERIES = 2**26
"""Queries up to which each is looked at."""


class Reached(NamedTuple):
    """A strategy's largest variance, and the value of its goal."""

    worst: float | None
    value: float | None


def reached(problem: Problem, Y: SquareMatrix, queries: RealVector | None) -> Reached:
    """Return the largest variance of a query as written and the value of the goal, for a covariance of kept cells."""
    goal, workload = problem.goal, problem.workload
    if workload.num_queries > MOST_QUERIES:
        return Reached(None, None)
    grounding = problem.grounding
    C = grounding.expand(grounding.expand(Y).T)
    worst = float(np.maximum(workload.matrix.quadratic(C), 0.0).max())
    if goal.kind == "total":
        return Reached(worst, None)
    v = query_forms(problem).variances(Y)
    return Reached(worst, float(v @ queries) if goal.kind == "own" and queries is not None else float(v.max()))


def weighted_gram(problem: Problem, queries: RealVector) -> SquareMatrix:
    """Return V(lam) for weights that are checked and, but for an objective of the user's own, scaled to sum 1."""
    forms = query_forms(problem)
    if queries.shape != (forms.count,):
        seen = f"there are {forms.count} queries or groups"
        raise fail("certificate", f"{queries.size} weights of queries", seen, "Give one for each.")
    if not np.all(np.isfinite(queries)) or np.any(queries < 0) or not queries.sum() > 0:
        raise fail("certificate", "weights of queries", "must be finite, not negative and not all zero", "Fit again.")
    return forms.gram(queries if problem.goal.kind == "own" else queries / queries.sum())
