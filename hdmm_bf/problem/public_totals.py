"""What a product policy makes public: totals over products of components, one component an attribute."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from hdmm_bf._types import EdgeArray, RealMatrix, SparseMatrix
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem


def indicators(edges: EdgeArray, n: int) -> RealMatrix:
    """Return the indicator vectors, one a row, of the components that do not hold BOTTOM.

    The public totals of a product are the products of these rows, one an attribute: a record that is in such a
    component for every attribute stays in it, and one that is not can disappear.
    """
    return np.asarray(component_rows(edges, n).toarray(), dtype=np.float64)


def component_rows(edges: EdgeArray, n: int) -> SparseMatrix:
    """Return `indicators`, sparse."""
    u, v = edges[:, 0], np.where(edges[:, 1] == BOTTOM, n, edges[:, 1])
    graph = sp.csr_array((np.ones(len(edges)), (u, v)), shape=(n + 1, n + 1))
    _, labels = csgraph.connected_components(graph, directed=False)
    free = np.flatnonzero(labels[:n] != labels[n])
    components, row = np.unique(labels[free], return_inverse=True)
    return sp.csr_array((np.ones(free.size), (row, free)), shape=(components.size, n))


def kept_totals(
    product: ProductProblem, axes: tuple[int, ...], hides: tuple[int, ...]
) -> tuple[SparseMatrix, tuple[int, ...]]:
    """Return S and what it keeps: the totals that moves along some attributes leave alone.

    S is q x n over the values of `axes` together, one row for every product of components without BOTTOM of those of
    them that are hidden and of values of the others; there is one such total for every value of the attributes outside
    `axes` that are kept: those that are not hidden. Outside, sums are over all values of an attribute, so none is used
    where a record can come or go there.
    """
    kept = tuple(i for i in range(len(product.sizes)) if i not in axes and i not in hides)
    gone = any(np.any(product.edges[i][:, 1] == BOTTOM) for i in hides if i not in axes)
    parts = [
        component_rows(product.edges[i], product.sizes[i])
        if i in hides
        else sp.csr_array(sp.eye_array(product.sizes[i]))
        for i in axes
    ]
    S = sp.csr_array(reduce(lambda left, right: sp.kron(left, right, format="csr"), parts))
    S = sp.csr_array((0, S.shape[1])) if gone else S
    S.sort_indices()
    return S, kept


def has_public_totals(product: ProductProblem) -> bool:
    """Whether some total is public."""
    counts = [int(component_rows(edges, n).shape[0]) for edges, n in zip(product.edges, product.sizes, strict=True)]
    return math.prod(counts) > 0
