"""Tables over permutation-invariant attributes: the best strategy, with its proof, from one number a set of attributes.

X = sum_T x_T Pi_T (see `product_bounds.invariant`). With x_T = N y_T, N the number of cells, m_T the rank of Pi_T and
v_T N the eigenvalue of V,

    error = sum_T m_T v_T / y_T,       moves along i: d_i = sum_{T contains i} 2 n_i / (n_i - 1) m_T y_T,
    presence: d_0 = sum_T m_T y_T,     best for weights mu on the types: y_T = sqrt(v_T / q_T),  q_T = sum_i mu_i
    pull_iT.

Sets without a sensitive attribute are public totals unless presence is hidden. Nothing here has the size of the domain.
"""

from __future__ import annotations

import math

import numpy as np

from hdmm_bf._types import RealVector
from hdmm_bf.bounds.products import product_svd_bound
from hdmm_bf.bounds.products.invariant import is_invariant, seen_sets
from hdmm_bf.bounds.products.typed import best_weights, edge_types, typed, typed_bound
from hdmm_bf.problem.product import ProductProblem
from hdmm_bf.strategies.gaussian.sketch import Found, invariant_sketch
from hdmm_bf.strategies.registry import Family
from hdmm_bf.strategies.search import Status

WHY = "every attribute is complete or public and every query is a table, so the optimum has a closed form"


def applies(product: ProductProblem) -> bool:
    """Whether all attributes are permutation-invariant and the seen sets can be listed."""
    d = range(len(product.sizes))
    return all(is_invariant(product, i) for i in d) and seen_sets(product, d) is not None


def fit(product: ProductProblem, **_: object) -> Found:
    """Return the best strategy; its proven gap is of the order of rounding, and no option of a search matters."""
    types, sets = typed(product), seen_sets(product, range(len(product.sizes)))
    assert types is not None
    assert sets is not None
    mu = best_weights(types)
    kinds = edge_types(product)
    pulls = np.array([[_pull(product, i, T.attributes) for T in sets] for i in kinds]).reshape(len(kinds), len(sets))
    ranks, v = np.array([T.multiplicity for T in sets]), np.array([T.shares.sum() for T in sets])
    y, error = _precisions(mu, pulls, ranks, v)
    sketches = tuple(
        invariant_sketch(product.sizes, T.attributes, float(scale))
        for T, scale in zip(sets, y, strict=True)
        if scale > 0
    )
    bound = typed_bound(types, mu)
    proof = {"kind": "types", "weights": mu}
    status: Status = "converged" if error > 0 else "exact"
    return Found(sketches, error, bound, product_svd_bound(product), FAMILY.name, proof, WHY, status)


def _pull(product: ProductProblem, kind: int, T: tuple[int, ...]) -> float:
    if kind < 0:
        return 1.0
    n = product.sizes[kind]
    return 2.0 * n / (n - 1) if kind in T else 0.0


def _precisions(mu: RealVector, pulls: np.ndarray, ranks: RealVector, v: RealVector) -> tuple[RealVector, float]:
    """Return y_T at sensitivity 1, infinite where T is public and 0 where no query sees it, and the unit error."""
    public = ~np.any(pulls > 0, axis=0)
    noisy = ~public & (v > 0)
    y = np.where(v > 0, math.inf, 0.0)
    if not np.any(noisy):
        return y, 0.0
    y[noisy] = np.sqrt(v[noisy] / (mu @ pulls[:, noisy]))
    y[noisy] /= (pulls[:, noisy] @ (ranks[noisy] * y[noisy])).max()
    return y, float((ranks[noisy] * v[noisy] / y[noisy]).sum())


FAMILY = Family(name="marginals", noise="gaussian", structured=True, search=fit, applies=applies)
