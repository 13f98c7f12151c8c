"""Every kind of product that is small enough to be dense: strategies and bounds by factors against dense ones.

A shipped strategy by factors is written out, its sensitivity is taken over all edges, and its error by plain linear
algebra; the optimum and its bound are those of the dense Gaussian search.
"""

from functools import reduce

import numpy as np
import pytest

import hdmm_bf as bf
from hdmm_bf import policy, workload
from hdmm_bf.fit.options import FitOptions
from hdmm_bf.fit.structured import fit_structured
from hdmm_bf.problem.product import as_product
from hdmm_bf.strategies.records import NoiseSum

GAP = 1e-4
RING = policy.from_edges([0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2], 6)  # a ring with a chord, and a cell of its own
UNION = workload.union(workload.all_range("6x5"), workload.weighted(workload.marginals("6x5", 1), 3.0))
AGES = workload.union(
    workload.parse("marginals:8x4x2:2"),
    workload.product(workload.all_range(8), workload.identity(4), workload.from_matrix(np.ones((1, 2)))),
)

KINDS = {
    # name: (queries, policy, the largest share above the dense optimum with Gaussian noise, of the bound below it)
    "ranges, two lines": ("all-range:12x10", "threshold:12x10:1", 0.01, 0.02),
    "ranges, line and complete": ("all-range:8x6", "product:line:8,bounded:6", 0.02, 0.07),
    "ranges, line and public": ("all-range:16x8", "product:line:16,empty:8", 0.002, 0.002),
    "ranges, ordinary privacy": ("all-range:16x16", "unbounded:16x16", 0.002, 0.002),
    "ranges, line and presence": ("all-range:8x6", "product:line:8,unbounded:6", 0.02, 0.03),
    "ranges, thresholds of one attribute": ("all-range:10x6", "product:threshold:10:3,line:6", 0.03, 0.05),
    "ranges, an own graph": ("all-range:6x5", policy.product(RING, policy.line(5)), 0.06, 0.2),
    "prefixes, two lines": ("prefix:10x8", "threshold:10x8:1", 0.05, 0.05),
    "prefixes, complete": ("prefix:6x5", "sensitive:6x5:0,1", 0.03, 0.05),
    "marginals, lines": ("marginals:6x5x4:2", "product:line:6,line:5,bounded:4", 0.01, 0.05),
    "marginals, sensitive": ("marginals:8x6x4:2", "sensitive:8x6x4:0,2", 0.001, 0.001),
    "marginals and ages": (AGES, "product:line:8,bounded:4,empty:2", 0.002, 0.002),
    "a union": (UNION, "threshold:6x5:1", 0.02, 0.05),
    "cells, line and complete": ("identity:8x6", "product:line:8,bounded:6", 0.01, 0.02),
    "ranges, three lines": ("all-range:6x5x4", "threshold:6x5x4:1", 0.03, 0.02),
    "ranges, distance 2": ("all-range:12x10", "threshold:12x10:2", 0.03, 0.002),
    "ranges, distance 2, three attributes": ("all-range:6x5x4", "threshold:6x5x4:2", 0.03, 0.002),
    "prefixes, distance 2": ("prefix:8x8", "threshold:8x8:2", 0.06, 0.01),
    "marginals, distance 2": ("marginals:6x5x4:2", "threshold:6x5x4:2", 0.03, 0.002),
    "cells, distance 3": ("identity:9x8", "threshold:9x8:3", 0.03, 0.002),
    "a union, distance 2": (UNION, "threshold:6x5:2", 0.03, 0.01),
}
SLOW = {
    "ranges, 24 x 24, distance 3": ("all-range:24x24", "threshold:24x24:3", 0.03, 0.002),
    "ranges, 32 x 32": ("all-range:32x32", "threshold:32x32:1", 0.015, 0.02),
    "prefixes, 30 x 30, distance 2": ("prefix:30x30", "threshold:30x30:2", 0.06, 0.02),
    "ranges, 10 x 10 x 10": ("all-range:10x10x10", "product:line:10,line:10,line:10", 0.03, 0.02),
}


def made(queries, graph):
    product = as_product(bf.problem(queries, graph), balls=True)
    assert product is not None
    return product


def edge_columns(problem):
    """p_e of every edge, one a column."""
    unit = np.eye(problem.policy.num_cells + 1)[:, :-1]  # BOTTOM is -1
    return (unit[problem.policy.edges[:, 0]] - unit[problem.policy.edges[:, 1]]).T


def known_totals(problem):
    """Indicators of the components whose totals no edge changes, one a row."""
    n, P = problem.policy.num_cells, edge_columns(problem)
    labels = problem.policy.components.labels[:n]
    C = (labels == np.unique(labels)[:, None]).astype(float)
    return C[~np.any(C @ P, axis=1)]


def written_out(fit):
    """Sensitivity over all edges and unit error of rows that are measured, by their definitions.

    Blocks that answer terms of their own are least squares for each by itself.
    """
    problem, P, C = fit.problem, edge_columns(fit.problem), known_totals(fit.problem)
    rows = [reduce(np.kron, [b.factor(i) for i in range(len(b.integers))]) for b in fit.strategy.blocks]
    weights = [np.sqrt(b.full_precisions.ravel()) for b in fit.strategy.blocks]
    moved = [w[np.isfinite(w), None] * (R @ P)[np.isfinite(w)] for R, w in zip(rows, weights, strict=True)]
    losses = np.vstack(moved)
    size = (losses**2).sum(axis=0).max() ** 0.5 if fit.noise == "gaussian" else np.abs(losses).sum(axis=0).max()
    V, error = problem.workload.objective.dense(), 0.0
    if all(block.terms is None for block in fit.strategy.blocks):
        A = np.vstack([w[np.isfinite(w), None] * R[np.isfinite(w)] for R, w in zip(rows, weights, strict=True)])
        return size, size**2 * conditional(V, A, C)
    terms = as_product(problem, balls=True).terms
    for block, R, w in zip(fit.strategy.blocks, rows, weights, strict=True):
        noisy = np.isfinite(w) & (w > 0)
        G = reduce(np.kron, block.inverses)
        for t in range(len(terms)) if block.terms is None else block.terms:
            W = terms[t].weight * reduce(np.kron, [factor.dense() for factor in terms[t].factors])
            error += float((((W @ G)[:, noisy] / w[noisy]) ** 2).sum())
        assert R.shape[0] == w.size
    return size, size**2 * error


def conditional(W, A, C):
    """||W B||_F^2 of the best unbiased estimate from A x + noise, given C x exactly: x moves in the null space of C."""
    Z = np.linalg.svd(C)[2][len(C) :].T if len(C) else np.eye(A.shape[1])
    return float((((W @ Z) @ np.linalg.pinv(A @ Z, rcond=1e-9)) ** 2).sum())


def check(queries, graph, above, below, *, steps=None):
    product = made(queries, graph)
    problem = product.problem
    dense = bf.fit(problem.workload, problem.policy, family="gaussian", gap=GAP)
    tight = dense.bounds.lower
    for noise in ("gaussian", "laplace"):
        fit = fit_structured(product, FitOptions(noise=noise, max_steps=steps if noise == "gaussian" else 3))
        assert fit.matrix_bound <= tight * (1 + dense.gap) * (1 + 1e-9)
        assert fit.matrix_bound <= dense.unit_error * (1 + 1e-9)
        assert fit.bounds.lower >= fit.matrix_bound >= tight * (1 - below)
        assert fit.unit_error >= tight * (1 - 1e-9)
        if not isinstance(fit.strategy, NoiseSum):  # sums of noise: tests/certificate/test_noise_sums.py
            size, error = written_out(fit)
            assert fit.certificate.sensitivity == pytest.approx(size, rel=1e-8)
            assert fit.unit_error == pytest.approx(error * (fit.certificate.sensitivity / size) ** 2, rel=1e-9)
        if noise == "gaussian":
            assert fit.unit_error <= dense.unit_error * (1 + above)


@pytest.mark.parametrize("kind", KINDS)
def test_by_factors_is_what_it_says_and_near_the_dense_optimum(kind):
    check(*KINDS[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", SLOW)
def test_larger_ones_by_factors_are_what_they_say_and_near_the_dense_optimum(kind):
    check(*SLOW[kind])
