"""Dual bound with product weights on the edges of one attribute: exact for ordinary differential privacy.

With weights mu_i on the edges of attribute i and mu_k on the cells of every other, f factors for each term,

    f_t = f(V_ti, L_i(mu_i)) prod_{k != i} f(V_tk, diag mu_k),        unit error >= f(mu)^2 >= sum_t (w_t f_t)^2,

because tr (A + B)^(1/2) squared is at least the sum of the squares of the parts. With one term, and edges on one
attribute only, the best weights are of this form and a Kronecker product of Gaussian strategies attains the bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealVector, SquareMatrix
from hdmm_bf.bounds.products.invariant import unique_factors
from hdmm_bf.matrix import Identity, Incidence, Matrix, Ones
from hdmm_bf.problem.forms import edge_forms
from hdmm_bf.problem.product import ProductProblem


def moved_attributes(product: ProductProblem) -> list[int]:
    """Return the attributes with edges."""
    return [i for i in range(len(product.sizes)) if not product.is_public(i)]


def is_kronecker(product: ProductProblem) -> bool:
    """Whether there is one term and one attribute with edges, so that product weights are the best."""
    return len(product.terms) == 1 and len(moved_attributes(product)) == 1


def uniform_weights(product: ProductProblem, attribute: int) -> list[RealVector]:
    """Return equal weights on the edges of an attribute and on the cells of the others."""
    counts = [len(product.edges[i]) if i == attribute else n for i, n in enumerate(product.sizes)]
    return [np.full(c, 1.0 / c) for c in counts]


def kronecker_bound(product: ProductProblem, attribute: int, weights: Sequence[RealVector]) -> float:
    """Return sum_t (w_t f_t)^2, rounded down; the weights of every attribute are scaled to sum 1."""
    squares = np.array([term.weight**2 for term in product.terms])
    for i, mu in enumerate(weights):
        factors, numbers = unique_factors(product, i)
        L = _laplacian(product, i, attribute, np.maximum(mu, 0.0) / np.maximum(mu, 0.0).sum())
        roots = np.array([_root_sum(factor, L) for factor in factors])
        squares = squares * roots[numbers] ** 2
    return float(squares.sum())


def _laplacian(product: ProductProblem, i: int, attribute: int, mu: RealVector) -> SquareMatrix:
    if i != attribute:
        return np.diag(mu)
    edges = product.edges[i]
    return edge_forms(Incidence(edges[:, 0], edges[:, 1], product.sizes[i])).laplacian(mu)


def _root_sum(factor: Matrix, L: SquareMatrix) -> float:
    """Tr (V^(1/2) L V^(1/2))^(1/2), rounded down."""
    if isinstance(factor, Ones):
        values = np.array([float(la.symmetric(L).sum())])
    elif isinstance(factor, Identity):
        values = la.eigen(L)[0]
    else:
        kept, U = la.eigen(factor.gram())
        R = (U * np.sqrt(np.maximum(kept - la.EIGENVALUE_ERROR * len(U) * kept[-1], 0.0))).T
        values = la.eigen(R @ la.symmetric(L) @ R.T)[0]
    return la.root_sum_lower(np.maximum(values, 0.0))
