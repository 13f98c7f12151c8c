"""Dual bound on a product of any number of attributes, written out in small parts: even and odd vectors never meet.

Weights w_i mu_i[e] prod_{k != i} d_k[c_k] on (edge e of attribute i, cell c of the others) give

    L = sum_i w_i  D_1 (x) ... (x) L_i(mu_i) (x) ... (x) D_d,        f = tr (V^(1/2) L V^(1/2))^(1/2),

and f^2 over the sum of all weights is a bound. Where queries and policy of an attribute stay the same when its values
are read backwards, and so do mu_i and d_i, its even and its odd vectors are a problem each: d such attributes make 2^d
parts of a 2^d-th of the cells, whose eigenvalues are computed. Parts that differ by the order of equal attributes are
computed once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.bounds.products.folding import folds, is_reflected, mirrored, ordered
from hdmm_bf.bounds.products.resizing import resized_product
from hdmm_bf.problem.forms import edge_forms
from hdmm_bf.problem.product import ProductProblem, incidence

LARGEST = 1300
"""Side of the largest part that is written out."""


class Weights(NamedTuple):
    """Weights of the edges: on each attribute's own, on its cells for the edges of others, and on the attributes."""

    edges: tuple[RealVector, ...]
    cells: tuple[RealVector, ...]
    types: RealVector


def parities(product: ProductProblem) -> list[list[RealMatrix]]:
    """Return, for every attribute, bases of its even and its odd vectors, or the identity alone."""
    found = []
    for i, (edges, n) in enumerate(zip(product.edges, product.sizes, strict=True)):
        alike = n > 1 and all(is_reflected(term.grams[i], edges) for term in product.terms)
        found.append(folds(n, symmetric=alike))
    return found


def side(product: ProductProblem) -> int:
    """Return the side of the largest part."""
    return math.prod(max(U.shape[1] for U in bases) for bases in parities(product))


def smaller(product: ProductProblem, most: int, *, smallest: int) -> ProductProblem:
    """Return a problem of the same kind with parts of a side of at most `most`; the same one where it has none.

    No attribute gets fewer values than `smallest`.
    """
    sizes = list(product.sizes)
    while True:
        made = resized_product(product, tuple(sizes))
        largest = max(sizes)
        if made is None:
            return product
        if side(made) <= most or largest <= smallest:
            return made
        sizes = [max(smallest, n * 3 // 4) if n == largest else n for n in sizes]


def symmetric_edges(product: ProductProblem, attribute: int, mu: RealVector) -> RealVector:
    """Return weights on the edges of an attribute, each the mean of an edge and its mirror image."""
    edges, n = product.edges[attribute], product.sizes[attribute]
    place = {tuple(edge): k for k, edge in enumerate(ordered(edges).tolist())}
    other = [place[tuple(edge)] for edge in ordered(mirrored(edges, n)).tolist()]
    return np.asarray((mu + mu[other]) / 2)


def folded_bound(product: ProductProblem, weights: Weights) -> float | None:
    """Return f^2 over the sum of the weights, rounded down; None where parts are too large or weights not symmetric."""
    bases = parities(product)
    if side(product) > LARGEST or not _fit(product, weights, bases):
        return None
    L = [edge_forms(incidence(product, i)).laplacian(mu) for i, mu in enumerate(weights.edges)]
    own, cells = [la.symmetric(own) for own in L], [np.diag(d) for d in weights.cells]
    names, f = _alike(product, weights), 0.0
    known: dict[tuple[tuple[int, int], ...], float] = {}
    for choice in itertools.product(*(range(len(b)) for b in bases)):
        key = tuple(sorted(zip(names, choice, strict=True)))
        if key not in known:
            U = [b[k] for b, k in zip(bases, choice, strict=True)]
            known[key] = _root_sum(product, weights.types, own, cells, U)
        f += known[key]
    masses = [float(d.sum()) for d in weights.cells]
    total = sum(
        w * float(mu.sum()) * math.prod(masses[:i] + masses[i + 1 :])
        for i, (w, mu) in enumerate(zip(weights.types.tolist(), weights.edges, strict=True))
    )
    return f * f / total * (1 - la.ROUNDING) if total > 0 else None


def _fit(product: ProductProblem, weights: Weights, bases: list[list[RealMatrix]]) -> bool:
    """Whether weights are as symmetric as the parts take them to be."""
    for i, (mu, d, own) in enumerate(zip(weights.edges, weights.cells, bases, strict=True)):
        if len(own) > 1 and not np.array_equal(d, d[::-1]):
            return False
        if len(own) > 1 and mu.size and not np.array_equal(mu, symmetric_edges(product, i, mu)):
            return False
    return True


def _alike(product: ProductProblem, weights: Weights) -> list[int]:
    """Name every attribute by the first that is equal to it; with several terms each by itself."""
    sizes = range(len(product.sizes))
    if len(product.terms) > 1:
        return list(sizes)

    def same(i: int, k: int) -> bool:
        pairs = [(product.edges[i], product.edges[k]), (product.terms[0].grams[i], product.terms[0].grams[k])]
        pairs += [(weights.edges[i], weights.edges[k]), (weights.cells[i], weights.cells[k])]
        return bool(weights.types[i] == weights.types[k]) and all(np.array_equal(a, b) for a, b in pairs)

    return [next(i for i in sizes if same(i, k)) for k in sizes]


def _root_sum(
    product: ProductProblem,
    types: RealVector,
    own: list[SquareMatrix],
    cells: list[SquareMatrix],
    U: Sequence[RealMatrix],
) -> float:
    """The trace of one part, rounded down: the attributes seen in the bases U."""
    if len(product.terms) == 1:
        R = [root(u.T @ V @ u) for u, V in zip(U, product.terms[0].grams, strict=True)]
        maps = [r @ u.T for r, u in zip(R, U, strict=True)]
        G = _sum(types, own, cells, maps)
        return abs(product.terms[0].weight) * la.root_sum_lower(np.linalg.eigvalsh(G)) if G.size else 0.0
    L = _sum(types, own, cells, [u.T for u in U])
    V = sum(
        term.weight**2 * reduce(np.kron, [u.T @ g @ u for u, g in zip(U, term.grams, strict=True)])
        for term in product.terms
    )
    F = root(np.asarray(V))
    return la.root_sum_lower(np.linalg.eigvalsh(F @ L @ F.T)) if len(F) else 0.0


def _sum(types: RealVector, own: list[SquareMatrix], cells: list[SquareMatrix], maps: list[RealMatrix]) -> SquareMatrix:
    """sum_i w_i (x)_k M_k (L_i or D_k) M_k^T."""
    seen = [M @ D @ M.T for M, D in zip(maps, cells, strict=True)]
    total = 0.0
    for i, w in enumerate(types.tolist()):
        if w > 0:
            moved = maps[i] @ own[i] @ maps[i].T
            total = total + w * reduce(np.kron, [*seen[:i], moved, *seen[i + 1 :]])
    return np.asarray(total)


def root(V: SquareMatrix) -> RealMatrix:
    """Return R with R^T R not above V: eigenvalues lowered by their error, those that are rounding left out."""
    values, U = la.eigen(V)
    lowered = values - la.EIGENVALUE_ERROR * len(U) * max(float(values[-1]), 0.0)
    kept = lowered > 0
    return np.asarray((U[:, kept] * np.sqrt(lowered[kept])).T)
