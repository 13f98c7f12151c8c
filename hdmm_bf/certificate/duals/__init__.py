"""Bounds of strategies by factors, from the edge weights of their proof: code that no search uses.

For weights mu >= 0 on the edges no strategy of L2 sensitivity 1 has a unit error below f(mu)^2 / sum mu, f(mu) = tr
(V^(1/2) L(mu) V^(1/2))^(1/2). A proof names weights that are sums of products over the attributes (`weights`); f is
evaluated in parts that never meet (`parts`, `sums`), or, on large grids, from determinants of a small side (`grids`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hdmm_bf._types import ROUNDING, Proof
from hdmm_bf.certificate.duals import grids, sums
from hdmm_bf.certificate.duals.pairs import paired_bound
from hdmm_bf.certificate.duals.weights import Moves, Summand, equal_weights, proof_weights
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem

__all__ = ["ProvenBounds", "proven_bounds"]

_LARGEST = 1300
"""Side of the largest matrix in which several attributes are written out together."""
_SMALL = 400
"""Side up to which grids are written out too."""


class ProvenBounds(NamedTuple):
    """What no strategy can beat, for L2 (hence L1) sensitivity 1; None where it cannot be evaluated."""

    svd: float | None
    """The paper's SVD bound: equal weights on all edges."""
    lower: float | None
    """The larger of the SVD bound and the bound of the proof."""
    paired: float | None = None
    """What no strategy of L1 sensitivity 1 can beat, where the proof has pairs of edges."""


def proven_bounds(product: ProductProblem, proof: Proof | None) -> ProvenBounds:
    """Evaluate the SVD bound and the bound of a proof, rounded down.

    Guarantees:
        No strategy of L2 (hence of L1) sensitivity 1 has a smaller unit error than `lower`, whatever the proof says:
        weights that are negative, not finite or of another number than the edges are refused, all others prove what
        they prove. No strategy of L1 sensitivity 1 has a smaller one than `paired`.
    """
    if not _moves_any_query(product):
        return ProvenBounds(0.0, 0.0)
    own = None if proof is None else proof_weights(product, proof)
    svd = _svd(product)
    found = [svd, None if own is None else _bound(product, own)]
    pairs = None if proof is None or "along" not in proof else paired_bound(product, proof)
    return ProvenBounds(svd, max((bound for bound in found if bound is not None), default=None), pairs)


def _moves_any_query(product: ProductProblem) -> bool:
    """Whether some edge changes some query, exactly."""
    for term in product.terms:
        for V, edges in zip(term.grams, product.edges, strict=True):
            u, v = edges.T
            other = np.where(v == BOTTOM, 0.0, V[v, v] - 2 * V[u, v])
            if term.weight != 0 and np.any(V[u, u] + other != 0):
                return True
    return False


def _svd(product: ProductProblem) -> float | None:
    """The SVD bound, where it is a product, where one attribute at most is written out, on grids and in small balls."""
    weights = equal_weights(product)
    if product.threshold is not None:
        return _by_parts(product, weights, largest=_LARGEST)
    if _is_one_product(weights) and len(product.terms) == 1:
        return sums.by_factors(product, weights) / _mass(weights) * (1 - ROUNDING)
    return _by_parts(product, weights, largest=0)


def _bound(product: ProductProblem, weights: Sequence[Summand]) -> float | None:
    if not _is_one_product(weights):
        return _by_parts(product, weights, largest=_LARGEST)
    joint = _by_parts(product, weights, largest=0) if len(product.terms) > 1 else None
    return sums.by_factors(product, weights) / _mass(weights) * (1 - ROUNDING) if joint is None else joint


def _by_parts(product: ProductProblem, weights: Sequence[Summand], largest: int) -> float | None:
    split = sums.attributes(product, weights)
    is_grid = _is_grid(product, weights)
    f = sums.by_parts(product, weights, split, _SMALL if is_grid else largest)
    if f is None and is_grid:
        scales = weights[0].scale, weights[1].scale
        f = grids.on_grid((split[0], split[1]), scales, abs(product.terms[0].weight))
    if f is None and is_grid:
        f = sums.by_parts(product, weights, split, largest)
    return None if f is None else f * f / _mass(weights) * (1 - ROUNDING)


def _mass(weights: Sequence[Summand]) -> float:
    return sum(s.mass for s in weights)


def _is_one_product(weights: Sequence[Summand]) -> bool:
    """Whether only the forms of one attribute differ: those of its moves and of what leads to BOTTOM."""
    first = weights[0]
    if first.pairs:
        return False
    same = [all(s.forms[i] is form and s.scale == first.scale for s in weights) for i, form in enumerate(first.forms)]
    return same.count(False) <= 1


def _is_grid(product: ProductProblem, weights: Sequence[Summand]) -> bool:
    """Whether there are two attributes, one product of queries, and moves along the first, then the second."""
    if len(product.sizes) != 2 or len(product.terms) != 1 or len(weights) != 2:
        return False
    return isinstance(weights[0].forms[0], Moves) and isinstance(weights[1].forms[1], Moves)
