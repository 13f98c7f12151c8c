"""Dual bound under a distance threshold above 1, where edges change several attributes at once, in small parts.

Edges are classed by how far they go along every attribute. A class s has weight c_s prod_k b_sk[a_k] on the edges
between a cell a and those s_k further up or down attribute k, for all signs. With B_sk the symmetric matrix of b_sk
between values s_k apart (diagonal where s_k = 0) and D_sk the diagonal of its row sums,

    L = sum_s c_s (D_s1 (x) ... (x) D_sd  -  B_s1 (x) ... (x) B_sd),        f = tr (V^(1/2) L V^(1/2))^(1/2),

and f^2 over the sum of all weights is a bound. Even and odd vectors of an attribute never meet, as in `folded`.
"""

from __future__ import annotations

import itertools
import math
from functools import reduce
from typing import NamedTuple

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import RealMatrix, RealVector, SquareMatrix
from hdmm_bf.bounds.products.folded import LARGEST, parities, root, side
from hdmm_bf.policy.constructors import offsets
from hdmm_bf.problem.product import ProductProblem


class PairWeights(NamedTuple):
    """Weights of the classes of edges: c_s, and b_sk for every class and attribute."""

    scales: RealVector
    pairs: tuple[tuple[RealVector, ...], ...]


def classes(product: ProductProblem) -> list[tuple[int, ...]]:
    """Return how far the edges of every class go along every attribute, in ascending order."""
    assert product.threshold is not None
    return sorted({tuple(map(abs, offset)) for offset in offsets(product.sizes, product.threshold)})


def equal_weights(product: ProductProblem) -> PairWeights:
    """Return weight 1 on every edge."""
    far = classes(product)
    pairs = tuple(tuple(np.ones(n - s) for n, s in zip(product.sizes, own, strict=True)) for own in far)
    return PairWeights(np.ones(len(far)), pairs)


def mass(far: tuple[int, ...], pairs: tuple[RealVector, ...]) -> float:
    """Return the sum of the weights of a class: every cell a has an edge for each choice of signs, but one for both."""
    return 2.0 ** (np.count_nonzero(far) - 1) * math.prod(float(b.sum()) for b in pairs)


def ball_bound(product: ProductProblem, weights: PairWeights) -> float | None:
    """Return f^2 over the sum of the weights, rounded down; None where parts are too large or weights not symmetric."""
    if product.threshold is None or side(product) > LARGEST:
        return None
    bases, far = parities(product), classes(product)
    folded = [len(own) > 1 for own in bases]
    if any(
        fold and not np.array_equal(b, b[::-1]) for own in weights.pairs for fold, b in zip(folded, own, strict=True)
    ):
        return None
    total = sum(c * mass(s, own) for c, s, own in zip(weights.scales.tolist(), far, weights.pairs, strict=True))
    f = 0.0
    for U in itertools.product(*bases):
        R = query_root(product, U)
        if len(R):
            f += la.root_sum_lower(np.linalg.eigvalsh(R @ laplacian(product, weights, U) @ R.T))
    return f * f / total * (1 - la.ROUNDING) if total > 0 else None


def laplacian(product: ProductProblem, weights: PairWeights, U: tuple[RealMatrix, ...]) -> SquareMatrix:
    """Return L as the vectors of the bases U see it."""
    total = np.zeros((math.prod(u.shape[1] for u in U),) * 2)
    for c, far, own in zip(weights.scales.tolist(), classes(product), weights.pairs, strict=True):
        if c > 0:
            B = [_between(b, s) for b, s in zip(own, far, strict=True)]
            ends = reduce(np.kron, [(u.T * M.sum(axis=1)) @ u for u, M in zip(U, B, strict=True)])
            total += c * (ends - reduce(np.kron, [u.T @ M @ u for u, M in zip(U, B, strict=True)]))
    return total


def query_root(product: ProductProblem, U: tuple[RealMatrix, ...]) -> RealMatrix:
    """Return R with R^T R not above V as the vectors of the bases U see it."""
    if len(product.terms) == 1:
        (term,) = product.terms
        R = [root(u.T @ V @ u) for u, V in zip(U, term.grams, strict=True)]
        return np.asarray(abs(term.weight) * reduce(np.kron, R))
    V = sum(
        term.weight**2 * reduce(np.kron, [u.T @ g @ u for u, g in zip(U, term.grams, strict=True)])
        for term in product.terms
    )
    return root(np.asarray(V))


def _between(b: RealVector, far: int) -> SquareMatrix:
    """The symmetric matrix with b between values so far apart."""
    upper = np.diag(b, far)
    return upper if far == 0 else upper + upper.T
