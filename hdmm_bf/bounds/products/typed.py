"""Dual bound with one weight a type of edge: marginals under any policy of invariant or other graphs.

Give the edges of attribute i the total weight mu_i, spread evenly, and those to BOTTOM mu_0. Where all Gram matrices
are a I + b J, the weighted Laplacian and V are diagonal in the products of eigenvectors of the attributes'
Laplacians, and

    f(mu) = sum_T sum_j  m_j sqrt( v_T sum_{i in T} mu_i n_i lambda_{i j_i} / e_i  + v_T mu_0 ),

j running over the eigenvalues of the attributes in T (complete graphs have one, n, with multiplicity n - 1). f is
concave in few numbers. Where all graphs are complete or empty, its square is attained: it is the optimum. Weights in
proportion to the numbers of edges give the SVD bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from hdmm_bf import _linalg as la
from hdmm_bf._linalg import ROUNDING
from hdmm_bf._types import RealMatrix, RealVector
from hdmm_bf.bounds.products.invariant import SeenSet, has_star, inner, is_even, is_invariant_policy, seen_sets
from hdmm_bf.matrix import Incidence
from hdmm_bf.problem.product import ProductProblem

_MOST_COLUMNS = 4_000_000
_BARRIERS = tuple(10.0**-k for k in range(1, 13))
_NEWTON_STEPS = 30


class Types(NamedTuple):
    """f(mu) = sum_c sqrt(sizes_c * (mu @ pulls)_c).

    Attributes:
        attributes: those with edges, one type each; -1 stands for BOTTOM and comes last.
        pulls: one row a type, one column an eigenvalue of V and L.
        sizes: squared multiplicity times eigenvalue of V, one a column.
        edges: number of edges of every type over the number of cells.
    """

    attributes: tuple[int, ...]
    pulls: RealMatrix
    sizes: RealVector
    edges: RealVector


def edge_types(product: ProductProblem) -> tuple[int, ...]:
    """Return the attributes with edges between values, and -1 if BOTTOM has edges."""
    d = len(product.sizes)
    moved = tuple(i for i in range(d) if len(inner(product.edges[i])))
    return (*moved, -1) if any(has_star(product, i) for i in range(d)) else moved


def typed(product: ProductProblem) -> Types | None:
    """Prepare f(mu), or return None where the workload is not made of invariant tables or is too large."""
    d = len(product.sizes)
    sets = seen_sets(product, range(d)) if all(is_even(product, i) for i in range(d)) else None
    if sets is None:
        return None
    spectra = {i: _spectrum(product, i) for i in range(d)}
    if sum(math.prod(len(spectra[i][0]) for i in T.attributes) for T in sets) > _MOST_COLUMNS:
        return None
    kinds = edge_types(product)
    parts = [_columns(product, T, kinds, spectra) for T in sets]
    pulls, sizes = np.concatenate([p for p, _ in parts], axis=1), np.concatenate([s for _, s in parts])
    seen = (sizes > 0) & (pulls.sum(axis=0) > 0)  # the others are public
    edges = np.array([1.0 if i < 0 else len(inner(product.edges[i])) / product.sizes[i] for i in kinds])
    return Types(kinds, pulls[:, seen], sizes[seen], edges)


def _spectrum(product: ProductProblem, attribute: int) -> tuple[RealVector, RealVector]:
    """Eigenvalues of the Laplacian off the ones vector, rounded down, and their multiplicities."""
    n, edges = product.sizes[attribute], inner(product.edges[attribute])
    if is_invariant_policy(product, attribute):
        return np.array([float(n) if len(edges) else 0.0]), np.array([n - 1.0])
    P = Incidence(edges[:, 0], edges[:, 1], n).sparse()
    values, _ = la.eigen((P @ P.T).toarray().astype(np.float64))
    return np.maximum(values[1:] - la.EIGENVALUE_ERROR * n * values[-1], 0.0), np.ones(n - 1)


def _columns(
    product: ProductProblem, T: SeenSet, kinds: Sequence[int], spectra: dict[int, tuple[RealVector, RealVector]]
) -> tuple[RealMatrix, RealVector]:
    shape = tuple(len(spectra[i][0]) for i in T.attributes)
    pulls = np.zeros((len(kinds), *shape))
    multiplicity = np.ones(shape)
    for axis, i in enumerate(T.attributes):
        along = tuple(-1 if a == axis else 1 for a in range(len(shape)))
        values, counts = spectra[i]
        multiplicity = multiplicity * counts.reshape(along)
        if i in kinds:
            per_edge = product.sizes[i] / len(inner(product.edges[i]))
            pulls[kinds.index(i)] += (per_edge * values).reshape(along)
    if -1 in kinds:
        pulls[kinds.index(-1)] = 1.0
    return pulls.reshape(len(kinds), multiplicity.size), (multiplicity**2 * T.shares.sum()).ravel()


def typed_bound(types: Types, weights: Float64[np.ndarray, " t"]) -> float:
    """Return f(mu)^2, rounded down, for weights on the types; they are scaled to sum 1."""
    mu = np.maximum(weights, 0.0)
    total = float(mu.sum())
    if types.sizes.size == 0 or not total > 0:
        return 0.0
    f = float(np.sqrt(types.sizes * (mu / total @ types.pulls)).sum())
    return f * f * (1 - ROUNDING)


def best_weights(types: Types) -> RealVector:
    """Maximise f over the simplex: Newton's method with a logarithmic barrier that is let go in steps of ten.

    With barrier tau the point met has max d <= f + 2 t tau f: the gap is known before the first step.
    """
    k = len(types.attributes)
    mu = np.full(k, 1.0 / max(k, 1))
    if k < 2 or types.sizes.size == 0:
        return mu
    scale = float(np.sqrt(types.sizes * (mu @ types.pulls)).sum())
    sizes = types.sizes / scale**2
    for barrier in _BARRIERS:
        for _ in range(_NEWTON_STEPS):
            mu, done = _newton_step(sizes, types.pulls, mu, barrier)
            if done:
                break
    return mu


def _newton_step(sizes: RealVector, pulls: RealMatrix, mu: RealVector, barrier: float) -> tuple[RealVector, bool]:
    """One step in mu_i (1 + s_i), sum mu_i s_i = 0: the matrix stays well scaled where weights vanish."""
    q = mu @ pulls
    root = np.sqrt(sizes * q)
    slope = mu * (pulls @ (root / q)) / 2 + barrier
    scaled = mu[:, None] * pulls
    k = mu.size
    system = np.zeros((k + 1, k + 1))
    system[:k, :k] = (scaled * (root / q**2)) @ scaled.T / 4 + barrier * np.eye(k)
    system[:k, k] = system[k, :k] = mu
    step = np.linalg.solve(system, np.append(slope, 0.0))[:k]
    gain = float(slope @ step)

    def value(s: RealVector) -> float:
        return float(np.sqrt(sizes * ((mu * (1 + s)) @ pulls)).sum() + barrier * np.log1p(s).sum())

    length = min(1.0, 0.9 / max(float(-step.min()), 1e-300))
    start = value(0 * step)
    while length > 1e-9 and value(length * step) < start + 0.1 * length * gain - 1e-15:
        length /= 2
    new = mu * (1 + length * step)
    return new / new.sum(), gain < 1e-3 * barrier
