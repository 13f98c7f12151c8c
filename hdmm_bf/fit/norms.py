"""Fits of tree norms: pure epsilon, noise on the cells, a search over trees and their weights, then the certificate."""

from __future__ import annotations

from typing import Any, cast

from hdmm_bf._linalg import threads_for
from hdmm_bf._types import Effort, RealVector
from hdmm_bf.bounds.dense import is_public, uniform
from hdmm_bf.certificate.norms import MOST_CELLS
from hdmm_bf.fit.certified import certified
from hdmm_bf.fit.dense import BOUND_GAP, BOUND_STEPS, default_seconds
from hdmm_bf.fit.fit import Fit
from hdmm_bf.fit.options import FitOptions
from hdmm_bf.fit.reserve import dense_seconds
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies import limits, search
from hdmm_bf.strategies.gaussian import dense as gaussian
from hdmm_bf.strategies.norm import portfolio
from hdmm_bf.strategies.rounding import from_tree

_YARDSTICK_SHARE = 0.25
"""Of the time limit, at most, for the bound on matrix mechanisms that stands beside the error."""


def fit_norm(problem: Problem, options: FitOptions) -> Fit:
    """Search trees and their weights, put the best on a grid, and certify it."""
    cells = problem.policy.num_cells
    with threads_for(min(cells, MOST_CELLS)):
        if is_public(problem):
            proof = {"kind": "edges", "weights": uniform(problem.policy.num_edges)}
            return certified(problem, from_tree(problem, portfolio.star(problem)), proof, options, status="exact")
        limit = float("inf") if options.limited else default_seconds(problem)
        reserve = 0.0 if options.max_seconds is None else dense_seconds(problem, options.noise)
        with limits.limited(min(options.until(reserve), limits.now() + limit)):
            proof_weights = _yardstick(problem) if cells <= MOST_CELLS else None
            reached: dict[str, float] = {}
            steps = portfolio.steps(
                problem,
                seed=options.seed,
                family=options.family,
                effort=cast(Effort, options.effort),
                reached=reached,
            )
            found = search(steps, gap=options.gap, max_iterations=options.max_steps, callback=options.callback)
        proof = None if proof_weights is None else {"kind": "edges", "weights": proof_weights}
        return certified(
            problem, from_tree(problem, found.best), _any(proof), options, status=found.status, reached=reached
        )


def _any(proof: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any] | None", proof)


def _yardstick(problem: Problem) -> RealVector:
    """Return edge weights that prove a bound on matrix mechanisms."""
    left = limits.time_left()
    with limits.limited(limits.now() + _YARDSTICK_SHARE * left):
        steps = gaussian.steps(problem, gap=BOUND_GAP)
        return search(steps, gap=BOUND_GAP, max_iterations=BOUND_STEPS, whole_steps=True).proof
