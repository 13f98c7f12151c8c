"""What a product policy makes public: totals over products of components, one component an attribute."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from hdmm_bf._types import EdgeArray, IndexArray, RealMatrix, SparseMatrix
from hdmm_bf.policy import BOTTOM
from hdmm_bf.problem.product import ProductProblem


def indicators(edges: EdgeArray, n: int) -> RealMatrix:
    """Return the indicator vectors, one a row, of the components that do not hold BOTTOM.

    The public totals of a product are the products of these rows, one an attribute: a record that is in such a
    component for every attribute stays in it, and one that is not can disappear.
    """
    u, v = edges[:, 0], np.where(edges[:, 1] == BOTTOM, n, edges[:, 1])
    graph = sp.csr_array((np.ones(len(edges)), (u, v)), shape=(n + 1, n + 1))
    _, labels = csgraph.connected_components(graph, directed=False)
    components = np.unique(labels[:n][labels[:n] != labels[n]])
    return np.asarray(labels[:n] == components[:, None], dtype=np.float64)


def kept_totals(product: ProductProblem, axes: tuple[int, ...], attribute: int) -> SparseMatrix:
    """Return S, q x n over the values of some attributes together: the totals that moves along one of them leave alone.

    One row for every component of its policy without BOTTOM and every value of the others.
    """
    parts = [
        sp.csr_array(
            indicators(product.edges[i], product.sizes[i]) if i == attribute else sp.eye_array(product.sizes[i])
        )
        for i in axes
    ]
    S = sp.csr_array(reduce(lambda left, right: sp.kron(left, right, format="csr"), parts))
    S.sort_indices()
    return S


def others_of_totals(S: SparseMatrix) -> tuple[IndexArray, SparseMatrix]:
    """Return the first value of every total, and the totals without it."""
    others = S.copy()
    others.data[S.indptr[:-1]] = 0.0
    return np.asarray(S.indices[S.indptr[:-1]]), others


def has_public_totals(product: ProductProblem) -> bool:
    """Whether some total is public."""
    counts = [len(indicators(edges, n)) for edges, n in zip(product.edges, product.sizes, strict=True)]
    return math.prod(counts) > 0
