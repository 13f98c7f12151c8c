"""The certificate of tree norms: the longest policy edge in whole numbers, and the error from the law of the noise.

The bounds of matrix mechanisms do not bind noise that is drawn on the cells; the dual bound stands beside the error as
a yardstick. Nothing here is shared with the search.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from hdmm_bf._checks import fail
from hdmm_bf._types import AGREEMENT, Noise, Proof, RealVector
from hdmm_bf.certificate import goals
from hdmm_bf.certificate.certificate import Bounds, Certificate, certify, check_noise, scaled_sensitivity
from hdmm_bf.certificate.edge_bounds import check_weights, dual_bound
from hdmm_bf.certificate.exact import exact_sensitivity, grid_bits
from hdmm_bf.certificate.ordered_law import Ordered, children_in_order, expected_form, ordered
from hdmm_bf.certificate.set_law import proper_reach, set_variances
from hdmm_bf.certificate.tree_law import TreeLaw, limit
from hdmm_bf.certificate.trees import check_shape, free_nodes, is_public, longest_edge, roots_of
from hdmm_bf.matrix import Matrix
from hdmm_bf.policy import Policy
from hdmm_bf.problem.query_forms import query_forms
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.records import TreeNorm
from hdmm_bf.workload.boxes import Prefix

MOST_CELLS = 4096
"""Cells up to which covariances of all pairs are computed; beyond, queries must be sets of the tree."""

_FEW_CELLS = 64
"""Cells up to which covariances of all pairs are computed for every workload."""

_UNHELD_CELLS = 2048
"""The same where some set has no weight: its messages have no end, which `ordered_law` cannot carry."""

_ROOM = 1.1
"""By which tables are longer than those of the largest step ask for."""

_MOST_BITS = 60


@exact_sensitivity.register
def _(strategy: TreeNorm, problem: Problem, noise: Noise) -> int:
    check_noise(noise, ("norm",))
    check_shape(strategy.parents, strategy.integers, problem.policy)
    free_nodes(strategy.parents, strategy.integers, problem.policy)
    return longest_edge(strategy.parents, strategy.integers, problem.policy.edges)[0]


@grid_bits.register
def _(strategy: TreeNorm) -> int:
    return strategy.bits


@certify.register
def _(
    strategy: TreeNorm, problem: Problem, *, noise: Noise, proof: Proof | None, bounds: Bounds | None = None
) -> Certificate:
    """Derive the longest edge and the error; `bounds` are not needed, the proof's edge weights give the yardstick.

    Guarantees:
        `sensitivity_exact` is exact: no policy edge is longer in the tree. The law is proper. `unit_error` is that of
        the limit of small epsilon, within 1e-6.
    """
    if not 0 <= strategy.bits <= _MOST_BITS:
        raise fail("certificate", f"bits={strategy.bits}", f"must be 0 to {_MOST_BITS}", "Fit again.")
    exact = exact_sensitivity(strategy, problem, noise)
    sensitivity = scaled_sensitivity(exact, strategy.bits, noise)
    svd, yardstick = _yardstick(problem, proof)
    error, worst, value = _errors(strategy, problem, exact)
    base = Certificate(noise, exact, strategy.bits, sensitivity, 0.0, error, svd, 0.0, math.inf, yardstick, worst)
    return base if value is None else replace(base, objective=problem.goal.kind, objective_value=value)


def _yardstick(problem: Problem, proof: Proof | None) -> tuple[float, float]:
    """The SVD bound and the dual bound of matrix mechanisms; zeros where the domain is too large for them."""
    if proof is None:
        return 0.0, 0.0
    weights = np.asarray(proof["weights"], dtype=np.float64)
    check_weights(weights, problem.policy.num_edges)
    svd = dual_bound(problem, problem.gram, np.full(weights.size, 1.0))
    return svd, float(np.maximum(svd, dual_bound(problem, problem.gram, weights)))


def fixed_roots(parents: Int64[np.ndarray, " N"], policy: Policy) -> Bool[np.ndarray, " N"]:
    """For every node, whether it is a root whose sum is zero because the total of its component is public."""
    fixed = np.zeros(parents.size, dtype=bool)
    fixed[roots_of(parents)[: policy.num_cells][is_public(policy)]] = True
    return fixed


def tree_law(strategy: TreeNorm, policy: Policy, rates: RealVector) -> TreeLaw:
    """Return the law of noise on the tree of a strategy, with given rates."""
    return TreeLaw(strategy.parents, rates, fixed_roots(strategy.parents, policy), policy.num_cells)


def variances_of_sets(strategy: TreeNorm, policy: Policy, rates: RealVector) -> RealVector:
    """Return the variance of the sum of every set of a strategy's tree, with given rates.

    A set without a rate has a message without an end, which only the other law knows how to carry.
    """
    fixed = fixed_roots(strategy.parents, policy)
    if np.any(rates[~fixed] == 0):
        return tree_law(strategy, policy, rates).node_variances()
    return set_variances(strategy.parents, rates, fixed)


class Errors(NamedTuple):
    """Limits at longest edge 1: E[z^T V z] / 2, half the largest variance, and the goal other than the total."""

    total: float
    worst: float | None
    value: float | None


def _errors(strategy: TreeNorm, problem: Problem, exact: int) -> Errors:
    policy, goal = problem.policy, problem.goal
    if exact == 0:
        _refuse_noiseless(problem)
        return Errors(0.0, 0.0, None if goal.kind == "total" else 0.0)
    rates = strategy.integers / float(exact)
    sets = set_queries(problem.workload.objective, strategy.parents, policy.num_cells)
    if sets is not None:
        node, scale = sets

        def variances(step: float) -> RealVector:
            return np.asarray(scale**2 * variances_of_sets(strategy, policy, step * rates)[node] / 2)

        return _of_queries(problem, limit(rates, variances))
    form, children = ordered(problem.workload.objective), children_in_order(strategy.parents, policy.num_cells)
    pairs = _FEW_CELLS if np.all(rates[~fixed_roots(strategy.parents, policy)] > 0) else _UNHELD_CELLS
    if goal.kind == "total" and form is not None and children is not None and policy.num_cells > pairs:
        return Errors(_ordered_error(strategy, policy, rates, form, children), None, None)
    if policy.num_cells > MOST_CELLS:
        advice = "Use a tree whose sets are the queries, or a smaller domain."
        raise fail("certificate", f"{policy.num_cells} cells", "are too many for covariances of all pairs", advice)
    kept, V = problem.grounding.kept, problem.gram

    def totals(step: float) -> RealVector:
        Y = tree_law(strategy, policy, step * rates).covariance()[np.ix_(kept, kept)] / 2
        worst, value = goals.reached(problem, Y, None)
        return np.array([float((V * Y).sum()), worst or 0.0, value or 0.0])

    total, worst, value = (float(number) for number in limit(rates, totals))
    return Errors(total, worst, None if goal.kind == "total" else value)


def _of_queries(problem: Problem, objective: RealVector) -> Errors:
    """From the variances of the queries times their weights, each of which is the count of a set."""
    weights, goal = problem.workload.weights(), problem.goal
    written = objective / weights**2
    if goal.kind == "total":
        return Errors(float(objective.sum()), float(written.max()), None)
    forms = query_forms(problem)
    each = forms.scales * written
    value = each.max() if forms.groups is None else np.bincount(forms.groups, each).max()
    return Errors(float(objective.sum()), float(written.max()), float(value))


def _ordered_error(
    strategy: TreeNorm, policy: Policy, rates: RealVector, form: Ordered, children: list[list[int]]
) -> float:
    """Return the same for prefixes and ranges on trees of intervals; tables grow as the step shrinks."""
    fixed, radius = fixed_roots(strategy.parents, policy), 0.0

    def trace(step: float) -> RealVector:
        nonlocal radius
        radius = radius or _ROOM * step * proper_reach(strategy.parents, step * rates, fixed)
        return np.array([expected_form(form, children, step * rates, fixed, math.ceil(radius / step)) / 2])

    return float(limit(rates, trace)[0])


def _refuse_noiseless(problem: Problem) -> None:
    """A tree without length gives no noise, which only queries that are public can have."""
    if problem.policy.num_edges and np.any(np.abs(problem.gram) > AGREEMENT * np.abs(problem.gram).max(initial=0.0)):
        raise fail("certificate", "a tree whose policy edges have length 0", "gives no noise", "Fit again.")


def set_queries(
    matrix: Matrix, parents: Int64[np.ndarray, " N"], cells: int
) -> tuple[Int64[np.ndarray, " m"], RealVector] | None:
    """Return for every query the node whose set it counts, and how many times; None unless all of them are such.

    With the cells in the order of a walk through the trees every set is a run of cells: a query that is no run, or no
    run of a node, is no set.
    """
    if matrix.shape[0] > 4 * max(cells, parents.size):
        return None
    start, count = _runs(parents, cells)
    spans = _prefixes(matrix.n, start) if isinstance(matrix, Prefix) else _spans(matrix, start)
    if spans is None:
        return None
    low, high, sizes, first = spans
    known = {run: node for node, run in enumerate(zip(start.tolist(), count.tolist(), strict=True))}
    runs = zip(low.tolist(), (high - low + 1).tolist(), sizes.tolist(), strict=True)
    found = [known.get((begin, length)) if length == size else None for begin, length, size in runs]
    if any(node is None for node in found):
        return None
    return np.array(found, dtype=np.int64), first


class Spans(NamedTuple):
    """For every query its first and last place in the walk, its number of cells, and how many times it counts them."""

    low: Int64[np.ndarray, " m"]
    high: Int64[np.ndarray, " m"]
    sizes: Int64[np.ndarray, " m"]
    scale: RealVector


def _prefixes(cells: int, start: Int64[np.ndarray, " N"]) -> Spans:
    """Return the spans of all prefixes, which are too many to write out on a large domain."""
    places = start[:cells]
    low, high = np.minimum.accumulate(places), np.maximum.accumulate(places)
    return Spans(low, high, np.arange(1, cells + 1), np.ones(cells))


def _spans(matrix: Matrix, start: Int64[np.ndarray, " N"]) -> Spans | None:
    """Return the spans of queries; None where one counts nothing, or some of its cells more often than others."""
    S = matrix.sparse().tocsr().copy()
    S.sum_duplicates()
    S.eliminate_zeros()
    sizes = np.diff(S.indptr)
    if S.nnz == 0 or sizes.min() == 0:
        return None
    first = S.data[S.indptr[:-1]]
    if not np.array_equal(S.data, np.repeat(first, sizes)):
        return None
    places = start[S.indices]
    low, high = (np.asarray(end.reduceat(places, S.indptr[:-1])) for end in (np.minimum, np.maximum))
    return Spans(low, high, np.asarray(sizes, dtype=np.int64), np.asarray(first, dtype=np.float64))


def _runs(parents: Int64[np.ndarray, " N"], cells: int) -> tuple[Int64[np.ndarray, " N"], Int64[np.ndarray, " N"]]:
    """Return, for every node, where the run of its cells begins in a walk through the trees, and its length."""
    count = np.zeros(parents.size, dtype=np.int64)
    count[:cells] = 1
    for node, parent in enumerate(parents.tolist()):
        if parent >= 0:
            count[parent] += count[node]
    start = np.zeros(parents.size, dtype=np.int64)
    taken = np.zeros(parents.size + 1, dtype=np.int64)  # up to where a node's run is given away; the last: of all
    for node in range(parents.size - 1, -1, -1):
        above = int(parents[node])  # -1 is the last entry
        start[node] = taken[node] = taken[above]
        taken[above] += count[node]
    return start, count
