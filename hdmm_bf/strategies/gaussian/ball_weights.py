"""Weights for the bound under a distance threshold above 1: ascent among products of weights, class by class.

log f is convex in log mu, with slopes mu_e d_e / f. So the step from mu to the nearest product c_s prod_k b_sk of the
weights mu_e d_e never lowers f: c_s is their sum over a class, b_sk their sums over what is left of attribute k. Twice
that step, in logarithms, is taken, which halves their number; the best weights are kept. Weights are searched on a
smaller problem of the same kind, where there is one, and stretched.
"""

from __future__ import annotations

import itertools
import math
from functools import reduce

import numpy as np

from hdmm_bf import _linalg as la
from hdmm_bf._types import Proof, RealVector, SquareMatrix
from hdmm_bf.bounds.products import is_public
from hdmm_bf.bounds.products.balls import PairWeights, classes, equal_weights, laplacian, mass, query_root
from hdmm_bf.bounds.products.folded import LARGEST, parities, side, smaller
from hdmm_bf.policy.constructors import offset_windows, offsets
from hdmm_bf.problem.product import ProductProblem

_SEARCH_SIDE, _MOST_SEARCHED = 150, 650
"""Side of the parts on which weights are searched, and beyond which none are."""
_STEPS, _POWER = 30, 2.0
_STALL = 1e-4
"""Share by which five steps must raise the bound."""


def ball_proof(product: ProductProblem) -> Proof | None:
    """Return weights for the bound, or None where parts are too large, all is public, or there is no threshold."""
    if product.threshold is None or side(product) > LARGEST or is_public(product):
        return None
    small = smaller(product, _SEARCH_SIDE, smallest=product.threshold + 2)
    weights = equal_weights(small)
    if side(small) <= _MOST_SEARCHED:
        weights = _best(small, weights)
    weights = _stretched(small, product, weights)
    return {"kind": "balls", "scales": weights.scales, "pairs": [b for own in weights.pairs for b in own]}


def _best(product: ProductProblem, weights: PairWeights) -> PairWeights:
    weights = best = _scaled(product, weights)
    values = [0.0]
    for _ in range(_STEPS):
        f, X = _optimum(product, weights)
        if f > max(values):
            best = weights
        values.append(f)
        if len(values) > 6 and values[-1] < values[-6] * (1 + _STALL / 2):
            break
        weights = _step(product, weights, X, f)
    return best


def _scaled(product: ProductProblem, weights: PairWeights) -> PairWeights:
    """The same weights with sum 1."""
    total = sum(c * mass(s, b) for c, s, b in zip(weights.scales, classes(product), weights.pairs, strict=True))
    return PairWeights(weights.scales / total, weights.pairs)


def _optimum(product: ProductProblem, weights: PairWeights) -> tuple[float, SquareMatrix]:
    """f, and the best X for given weights over the cells."""
    f, X = 0.0, np.zeros((math.prod(product.sizes),) * 2)
    for U in itertools.product(*parities(product)):
        R = query_root(product, U)
        values, Q = la.eigen(R @ laplacian(product, weights, U) @ R.T) if len(R) else (np.zeros(0), R)
        kept = values > la.RANK_TOLERANCE * len(R) * values.max(initial=0.0)
        roots = np.sqrt(values[kept])
        f += float(roots.sum())
        B = reduce(np.kron, U) @ (R.T @ (Q[:, kept] / np.sqrt(roots)))
        X += B @ B.T
    return f, X


def _step(product: ProductProblem, weights: PairWeights, X: SquareMatrix, f: float) -> PairWeights:
    """The product of weights nearest to mu_e d_e, gone to twice as far; the sum of all weights stays 1."""
    moved = _class_sums(product, X)
    folded = [len(own) > 1 for own in parities(product)]
    scales, pairs = [], []
    for c, far, own in zip(weights.scales.tolist(), classes(product), weights.pairs, strict=True):
        grown = reduce(np.multiply.outer, own) * moved[far]
        if c == 0 or not np.any(grown):  # these edges move no query
            scales.append(0.0)
            pairs.append(own)
            continue
        axes = range(grown.ndim)
        sums = [grown.sum(axis=tuple(i for i in axes if i != k)) for k in axes]
        new = tuple(_further(b, s, fold=fold) for b, s, fold in zip(own, sums, folded, strict=True))
        before = c * mass(far, own)
        scales.append(before * (c * float(grown.sum()) / (before * f)) ** _POWER / mass(far, new))
        pairs.append(new)
    return _scaled(product, PairWeights(np.array(scales), tuple(pairs)))


def _class_sums(product: ProductProblem, X: SquareMatrix) -> dict[tuple[int, ...], np.ndarray]:
    """For every class, at the lowest cell of its edges, d_e = p_e^T X p_e summed over their signs."""
    assert product.threshold is not None
    cells, own = np.arange(len(X)).reshape(product.sizes), np.diag(X)
    found: dict[tuple[int, ...], np.ndarray] = {}
    for offset in offsets(product.sizes, product.threshold):
        u, v = (cells[window] for window in offset_windows(product.sizes, offset))
        far = tuple(map(abs, offset))
        found[far] = found.get(far, 0.0) + np.maximum(own[u] + own[v] - 2 * X[u, v], 0.0)
    return found


def _further(b: RealVector, sums: RealVector, *, fold: bool) -> RealVector:
    """Return b (sums / b)^power with sum 1, both normalised; the same from both ends where parts take it to be."""
    old, aim = b / b.sum(), sums / sums.sum()
    new = old * np.divide(aim, old, out=np.zeros_like(old), where=old > 0) ** _POWER
    new = (new + new[::-1]) / 2 if fold else new
    return np.asarray(new / new.sum())


def _stretched(small: ProductProblem, product: ProductProblem, weights: PairWeights) -> PairWeights:
    """The same weights over more values: classes keep their shares, profiles are read between the lines."""
    known = dict(zip(classes(small), zip(weights.scales.tolist(), weights.pairs, strict=True), strict=True))
    scales, pairs = [], []
    for far in classes(product):
        c, own = known[far]
        new = tuple(_longer(b, n - s) for b, n, s in zip(own, product.sizes, far, strict=True))
        scales.append(c * mass(far, own) / mass(far, new))
        pairs.append(new)
    return PairWeights(np.array(scales), tuple(pairs))


def _longer(b: RealVector, size: int) -> RealVector:
    if b.size == size:
        return b
    places = (np.arange(size) + 0.5) / size * b.size - 0.5
    found = np.interp(places, np.arange(b.size), b)
    return np.asarray((found + found[::-1]) / 2 if np.array_equal(b, b[::-1]) else found)
