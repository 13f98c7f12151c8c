"""The same kind of attribute with another number of values: coarse versions of range workloads on lines."""

from __future__ import annotations

import numpy as np

from hdmm_bf._types import EdgeArray
from hdmm_bf.matrix import Identity, Matrix, Ones
from hdmm_bf.policy import BOTTOM, bounded, empty, line, threshold
from hdmm_bf.problem.product import ProductProblem, Term
from hdmm_bf.workload.boxes import AllRange, Prefix


def resized(factor: Matrix, n: int) -> Matrix | None:
    """Return the same queries over n values, or None where that has no meaning."""
    return type(factor)(n) if isinstance(factor, AllRange | Prefix | Identity | Ones) else None


def resized_edges(edges: EdgeArray, old: int, new: int) -> EdgeArray | None:
    """Return a line, complete or empty policy, with or without a star to BOTTOM, over another number of values."""
    is_bottom = edges[:, 1] == BOTTOM
    if np.count_nonzero(is_bottom) not in (0, old):
        return None
    own = edges[~is_bottom]
    for make in (line, bounded, empty):
        if len(own) == len(make(old).edges) and np.array_equal(own, make(old).edges):
            star = np.stack([np.arange(new), np.full(new, BOTTOM)], axis=1)[: new if is_bottom.any() else 0]
            return np.concatenate([make(new).edges, star])
    return None


def resized_product(product: ProductProblem, sizes: tuple[int, ...]) -> ProductProblem | None:
    """Return the same queries and policies on attributes of other sizes, or None where there are none.

    Only sizes, edges and terms of the result have a meaning; its `problem` is the one that was given.
    """
    edges = [
        own if old == new else _resized_edges(product, own, old, new)
        for own, old, new in zip(product.edges, product.sizes, sizes, strict=True)
    ]
    terms = []
    for term in product.terms:
        factors = [f if f.shape[1] == n else resized(f, n) for f, n in zip(term.factors, sizes, strict=True)]
        known = [f for f in factors if f is not None]
        if len(known) < len(factors):
            return None
        terms.append(Term(term.weight, tuple(known)))
    kept = [own for own in edges if own is not None]
    if len(kept) < len(edges):
        return None
    return ProductProblem(product.problem, sizes, tuple(kept), tuple(terms), product.threshold)


def _resized_edges(product: ProductProblem, own: EdgeArray, old: int, new: int) -> EdgeArray | None:
    return resized_edges(own, old, new) if product.threshold is None else threshold(new, product.threshold).edges
