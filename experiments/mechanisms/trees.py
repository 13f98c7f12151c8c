"""Any mechanism of ordinary differential privacy, run through a tree policy, exactly or by subgraph approximation.

On a forest P_G is square, and neighbours under the policy are x_G = P_G^-1 x that differ by 1 in one entry. So an
epsilon-private mechanism on x_G is (epsilon, G)-private, data-dependent or not. A tree in which every edge of G is a
path of at most `stretch` edges does for G with epsilon / stretch.

Reference: Sections 4.2, 4.3 and 5.4 of the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.optimize import isotonic_regression

from experiments.mechanisms.checks import Columns, RealVector, fail
from experiments.mechanisms.draws import Draw
from experiments.mechanisms.mechanism import Counts, Estimator, Mechanism, Stage, checked_counts, positive_epsilon
from hdmm_bf import Problem, transform
from hdmm_bf.policy import Policy, stretch
from hdmm_bf.workload import identity

Finish: TypeAlias = Callable[[RealVector, Columns], RealVector]
"""Post-processing of the noisy x_G, given the public totals."""


def run_on_tree(mechanism: Estimator, problem: Problem, counts: Counts, epsilon: float, draw: Draw) -> RealVector:
    """Answer a workload under a tree policy with any mechanism of ordinary differential privacy.

    Args:
        mechanism: takes (counts, epsilon, draw), is epsilon-private between counts that differ by 1 in one entry,
            and returns an estimate of the counts. It is handed x_G, which may have negative entries.
        problem: the workload and the policy, a tree or a forest.
        counts: the histogram.
        epsilon: the privacy loss under the policy.
        draw: the noise.

    Returns:
        W_G times the estimate of x_G, plus the public constants.

    Guarantees:
        (epsilon, policy)-private. With an exact mechanism the answers are W x.
    """
    _forest(problem.policy)
    vector = checked_counts("run_on_tree", counts, problem.policy.num_cells)
    budget = positive_epsilon("run_on_tree", epsilon)
    return np.asarray(problem.workload.matrix.mv(_through(mechanism, problem, vector, budget, draw)))


def _through(
    mechanism: Estimator, problem: Problem, counts: Columns, epsilon: float, draw: Draw, finish: Finish | None = None
) -> RealVector:
    """Estimate the cells: D P_G (estimate of x_G) + the public totals; the latter are not protected by the policy."""
    totals = problem.grounding.totals(counts)
    flow = transform.to_edges(problem, counts)
    noisy = mechanism(flow, epsilon, draw) if flow.size else flow.astype(np.float64)
    if finish is not None:
        noisy = finish(noisy, totals)
    return np.asarray(problem.grounding.expand(problem.P.mv(noisy), totals), dtype=np.float64)


def transformed(mechanism: Mechanism, policy: Policy, *, consistent: bool = False) -> Mechanism:
    """Return the mechanism run through a tree policy: "Transformed + Laplace" and its kin.

    Args:
        mechanism: epsilon-private in the ordinary sense.
        policy: a tree or a forest.
        consistent: on a line, make the noisy prefix sums non-decreasing and between 0 and the public total.

    Guarantees:
        (epsilon, policy)-private between neighbours under the policy.
    """
    _forest(policy)
    problem = Problem(identity(policy.domain), policy)
    if consistent:
        _line(policy)
    finish = non_decreasing if consistent else None

    def estimate(counts: Columns, epsilon: float, draw: Draw) -> RealVector:
        return _through(mechanism, problem, counts, epsilon, draw, finish)

    name = f"Transformed + {mechanism.name}{' + Cons' if consistent else ''}"
    return Mechanism(name, mechanism.stages, estimate, policy.num_cells, mechanism.caveat)


def non_decreasing(noisy: RealVector, totals: Columns) -> RealVector:
    """Return the nearest non-decreasing vector with entries between 0 and the total.

    Guarantees:
        The least-squares projection: clipping the isotonic regression is the projection onto both constraints.
    """
    return np.asarray(np.clip(isotonic_regression(noisy).x, 0.0, float(totals[0])))


def approximated(mechanism: Mechanism, policy: Policy, *, tree: Policy) -> Mechanism:
    """Return the mechanism run through a tree that stands in for the policy, with epsilon / stretch.

    Guarantees:
        (epsilon, policy)-private: the stretch is computed, and the inner mechanism gets epsilon / stretch.
    """
    inner = transformed(mechanism, tree)
    return shrunk(inner, stretch(policy, tree), policy)


def shrunk(mechanism: Mechanism, factor: int, policy: Policy) -> Mechanism:
    """Return a mechanism for a spanner of the policy, of stretch `factor`, as one for the policy itself."""

    def estimate(counts: Columns, epsilon: float, draw: Draw) -> RealVector:
        return mechanism(counts, epsilon / max(factor, 1), draw)

    stages = tuple(Stage(f"{stage.name} (stretch {factor})", stage.share) for stage in mechanism.stages)
    return Mechanism(mechanism.name, stages, estimate, policy.num_cells, mechanism.caveat)


def _forest(policy: Policy) -> None:
    if not policy.is_forest:
        advice = "Use approximated(mechanism, policy, tree=policy.spanning_tree(policy))."
        raise fail("run_on_tree", policy.spec, "has cycles; only trees map neighbours to neighbours", advice)


def _line(policy: Policy) -> None:
    cells = np.arange(policy.num_cells)
    if not np.array_equal(policy.edges, np.stack([cells[:-1], cells[1:]], axis=1)) or policy.num_edges == 0:
        raise fail("transformed", policy.spec, "consistency needs a line", "Use policy.line(n), or consistent=False.")
