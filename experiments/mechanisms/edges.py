"""Noise on the edges of any policy: the data-independent releases that scale to every size without a search.

`edge_laplace` moves, along every edge, a Laplace amount from one end to the other: the edge strategy S = I, whose
release is x + P noise. `slabs` does so on a grid with a strategy of your own over every slab of parallel edges, of
which `grids.rows_and_columns` (wavelets) and `edge_laplace` (identity) are two cases. What is published is the estimate
alone, never the noisy edge values, which are private on trees only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.mechanisms.checks import AnyArray, Columns, RealMatrix, RealVector, fail
from experiments.mechanisms.draws import Draw
from experiments.mechanisms.grids import check_grid
from experiments.mechanisms.mechanism import Mechanism, Stage
from hdmm_bf import Problem
from hdmm_bf.matrix import Incidence
from hdmm_bf.policy import Policy

_FULL_RANK = 1e-10
"""Least singular value of a strategy, as a share of the largest, that counts as full column rank."""


def edge_laplace(policy: Policy) -> Mechanism:
    """Add P times Laplace noise of scale 1 / epsilon: one draw for every edge of the policy.

    Guarantees:
        (epsilon, policy)-private for every policy: a move along an edge is a shift of that edge's draw by 1.
        The expected total squared error of a workload is 2 / epsilon^2 times `edge_unit_error`.
    """
    u, v = policy.edges.T
    P = Incidence(u, v, policy.num_cells)

    def estimate(counts: Columns, epsilon: float, draw: Draw) -> RealVector:
        noisy: RealVector = counts + P.mv(draw.laplace(1.0 / epsilon, policy.num_edges))
        return noisy

    return Mechanism("Identity on edges", (Stage("edges", 1.0),), estimate, policy.num_cells)


def edge_unit_error(problem: Problem) -> float:
    """Return ||W_G||_F^2, the unit error of the identity on edges, without writing W_G out.

    Guarantees:
        Equals the sum of squares of `problem.W_G()`.
    """
    u, v = problem.policy.edges.T
    on_edges = problem.workload.matrix.sparse() @ Incidence(u, v, problem.policy.num_cells).sparse()
    return float((on_edges.data.astype(np.float64) ** 2).sum())


def slabs(policy: Policy, strategies: Sequence[RealMatrix]) -> Mechanism:
    """Measure every slab of parallel edges of a grid with one strategy for each of the other attributes.

    Args:
        policy: a grid, policy.threshold(domain, 1).
        strategies: for each attribute of k values a matrix of k columns and full column rank, for example that of
            bf.fit("all-range:k", "unbounded:k", noise="laplace").

    Guarantees:
        (epsilon, policy)-private: an edge is in one slab and moves its measurements by one column of the product
        of the strategies, whose L1 norm is at most the product of their largest column norms.
    """
    check_grid("slabs", policy)
    sizes = policy.domain.sizes
    if len(strategies) != len(sizes):
        seen = f"{len(strategies)} strategies for {len(sizes)} attributes"
        raise fail("slabs", seen, "must be one for each attribute", "Give as many as the domain has attributes.")
    inverses = [_inverse(A, size) for A, size in zip(strategies, sizes, strict=True)]
    norms = [float(np.abs(A).sum(axis=0).max()) for A in strategies]

    def estimate(counts: Columns, epsilon: float, draw: Draw) -> RealVector:
        noisy: RealVector = counts + _slab_noise(sizes, inverses, norms, epsilon, draw).ravel()
        return noisy

    return Mechanism("Slabs of edges", (Stage("slabs of edges", 1.0),), estimate, policy.num_cells)


def _inverse(A: RealMatrix, size: int) -> RealMatrix:
    """A^+ of a strategy that tells all `size` values apart."""
    if A.ndim != 2 or A.shape[1] != size or A.shape[0] < size:
        raise fail("slabs", f"a strategy of shape {A.shape}", f"needs {size} columns and as many rows", "Use identity.")
    singular = np.linalg.svd(A, compute_uv=False)
    if singular[-1] <= _FULL_RANK * singular[0]:
        raise fail("slabs", f"a strategy of shape {A.shape}", "has dependent columns", "Add the identity to its rows.")
    return np.linalg.pinv(A)


def _slab_noise(
    sizes: tuple[int, ...], inverses: list[RealMatrix], norms: list[float], epsilon: float, draw: Draw
) -> AnyArray:
    """P (product of A^+) noise, attribute by attribute; the edges along one attribute are k - 1 slabs."""
    total = np.zeros(sizes)
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        others = [a for a in range(len(sizes)) if a != axis]
        shape = [size - 1 if a == axis else B.shape[1] for a, B in enumerate(inverses)]
        scale = math.prod(norms[a] for a in others) / epsilon
        edges: AnyArray = draw.laplace(scale, math.prod(shape)).reshape(shape)
        for other in others:
            edges = np.moveaxis(np.tensordot(inverses[other], edges, axes=(1, other)), 0, other)
        before, after = np.moveaxis(total, axis, 0)[:-1], np.moveaxis(total, axis, 0)[1:]
        before += np.moveaxis(edges, axis, 0)
        after -= np.moveaxis(edges, axis, 0)
    return total
