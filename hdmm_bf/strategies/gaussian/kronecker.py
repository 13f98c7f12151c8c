"""One product of queries, edges on one attribute only: the Kronecker product of the attributes' optima is the optimum.

Ordinary differential privacy is this case: presence is hidden whatever the cell. With A_i the best strategy under the
policy of the attribute with edges and A_k the best one under a star (hidden presence) for every other, the error, the
sensitivity and the dual bound of A_1 (x) ... (x) A_d are the products of theirs. Totals of components without BOTTOM
are public, for every cell of the other attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._linalg import NOTHING
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.bounds.dense import is_public
from hdmm_bf.bounds.products import product_svd_bound
from hdmm_bf.bounds.products.kronecker import is_kronecker, kronecker_bound, moved_attributes
from hdmm_bf.domain import Domain
from hdmm_bf.matrix import Matrix
from hdmm_bf.objectives import limits
from hdmm_bf.parallel.devices import Mesh, clock
from hdmm_bf.policy import Policy, unbounded
from hdmm_bf.problem.forms import edge_forms
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.problem.public_totals import indicators
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.gaussian import dense as gaussian
from hdmm_bf.strategies.gaussian.sketch import Found, Sketch, with_totals
from hdmm_bf.strategies.registry import Family
from hdmm_bf.strategies.search import Callback, Outcome, Status, TracePoint, search
from hdmm_bf.workload import Workload

_MAX_STEPS = 2000
WHY = "one product of queries and edges on one attribute only: the product of the attributes' optima is the optimum"


def applies(product: ProductProblem) -> bool:
    """Whether there is one term and one attribute with edges."""
    return is_kronecker(product)


def fit(
    product: ProductProblem,
    *,
    gap: float,
    max_seconds: float,
    callback: Callback | None,
    mesh: Mesh | None = None,
    max_steps: int | None = None,
) -> Found:
    """Fit every attribute by the dense Gaussian search, its matrices spread over the mesh if there is one; multiply.

    The attributes share the time that is left; the limit on steps is that of every attribute.
    """
    started = limits.now()
    (moved,) = moved_attributes(product)
    term, svd = product.terms[0], product_svd_bound(product)
    problems = [attribute_problem(product, i, moved) for i in range(len(product.sizes))]
    aim, until = gap / len(problems), started + max_seconds
    totals = indicators(product.edges[moved], product.sizes[moved])
    if any(map(is_public, problems)):
        rows = [np.eye(n)[: 0 if i == moved else n] for i, n in enumerate(product.sizes)]
        return Found((_sketch(rows, totals, moved),), 0.0, 0.0, svd, FAMILY.name, None, WHY, "exact")
    kernels = [None if mesh is None else gaussian.on_devices(problem, mesh, gap=aim) for problem in problems]
    most, ticks = min(max_steps or _MAX_STEPS, _MAX_STEPS), clock(mesh)
    parts: list[Outcome[SquareMatrix, RealVector]] = []
    for problem, kernel in zip(problems, kernels, strict=True):
        left = min(until - limits.now(), limits.time_left()) if mesh is None else max_seconds
        parts.append(_optimum(problem, kernel, aim, left / (len(problems) - len(parts)), most, ticks))
    factors = [_rows(problem, part.best) for problem, part in zip(problems, parts, strict=True)]
    error = term.weight**2 * math.prod(part.error for part in parts)
    proof = {"kind": "kronecker", "attribute": moved, "weights": [part.proof for part in parts]}
    bound = kronecker_bound(product, moved, [part.proof for part in parts])
    status: Status = "converged" if error <= bound * (1 + gap) else _status(parts)
    if callback is not None:
        callback(TracePoint(limits.now() - started, error, bound))
    sketches = (_sketch(factors, totals, moved),)
    why = "; ".join([WHY, *{kernel.why for kernel in kernels if kernel is not None and kernel.why}])
    return Found(sketches, error, bound, svd, FAMILY.name, proof, why, status)


def attribute_problem(product: ProductProblem, attribute: int, moved: int, factor: Matrix | None = None) -> Problem:
    """Return the problem over one attribute: its own policy if it is `moved`, a star to BOTTOM otherwise."""
    n = product.sizes[attribute]
    queries = product.terms[0].factors[attribute] if factor is None else factor
    workload = Workload(queries, Domain((n,)), "factor", str)
    policy: Policy = unbounded(n)
    if attribute == moved:
        policy = Policy(Domain((n,)), "factor", "", product.edges[attribute])  # keeps the order of the edges
    return Problem(workload, policy)


def _optimum(
    problem: Problem,
    kernel: gaussian.OnDevices | None,
    gap: float,
    max_seconds: float,
    max_steps: int,
    clock: Callable[[], float],
) -> Outcome[SquareMatrix, RealVector]:
    with la.threads_for(problem.policy.num_cells):
        steps = gaussian.steps(problem, gap=gap, kernel=kernel)
        found = search(steps, gap=gap, max_seconds=max_seconds, max_iterations=max_steps, clock=clock, whole_steps=True)
    return found if kernel is None else replace(found, best=kernel.to_host(found.best))


def _status(parts: list[Outcome[SquareMatrix, RealVector]]) -> Status:
    """What stopped the attributes' searches: an interruption, a limit, or nothing."""
    ends = {part.status for part in parts}
    stops: tuple[Status, ...] = ("interrupted", "time limit", "iteration limit")
    return next((status for status in stops if status in ends), "finished")


def _rows(problem: Problem, X: SquareMatrix) -> RealMatrix:
    """Return B with B^T B = X / max d over all cells, orthogonal to the indicators of public components."""
    full = la.symmetric(X)
    values, U = la.eigen(full / edge_forms(problem.P).distances(full).max())
    kept = values > NOTHING * len(values) * values[-1]
    rows = problem.grounding.inject((U[:, kept] * np.sqrt(values[kept])).T)
    C = indicators(problem.policy.edges, problem.policy.num_cells)
    return np.asarray(rows - (rows @ C.T / C.sum(axis=1)) @ C)


def _sketch(factors: list[RealMatrix], totals: RealMatrix, moved: int) -> Sketch:
    """All products of rows; those of the totals of the attribute with edges are public."""
    parts = [with_totals(totals if i == moved else rows[:0], rows) for i, rows in enumerate(factors)]
    precisions = np.ones((1,) * len(parts))
    for axis, part in enumerate(parts):
        precisions = precisions * part.precisions.reshape([-1 if k == axis else 1 for k in range(len(parts))])
    return Sketch(tuple(part.matrix for part in parts), precisions)


FAMILY = Family(name="kronecker", noise="gaussian", structured=True, search=fit, applies=applies, spreads=True)
