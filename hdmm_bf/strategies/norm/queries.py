"""The tree of the queries themselves, where they are sets of cells of which any two are nested or disjoint.

Beyond the cells for which covariances are computed it is the only tree whose error can be certified, perhaps with more
sets between: every query is then one of its sets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from hdmm_bf._types import IndexArray
from hdmm_bf.policy import Policy
from hdmm_bf.problem.transform import Problem
from hdmm_bf.strategies.norm.shapes import Trees

_DEEPEST = 64
"""Queries that hold a cell, on average, up to which their tree is searched: paths are as long as that."""


class QueryTree(NamedTuple):
    """A tree that has every query among its sets.

    Attributes:
        parents: for every node its parent, or -1.
        asked: for every node whether it is a query.
    """

    parents: IndexArray
    asked: Bool[np.ndarray, " N"]


def tree_of_queries(problem: Problem) -> QueryTree | None:
    """Return the tree whose sets are the queries, cells and components; None where there is none that is not deep.

    Queries that overlap, or are no sets, have none; prefixes have a deep one.
    From small to large, a query joins the trees of its cells: it must hold all of each.
    """
    policy, matrix = problem.policy, problem.workload.objective
    if matrix.nnz > _DEEPEST * policy.num_cells:
        return None
    S = matrix.sparse().tocsr()
    trees, sizes = Trees(policy.num_cells), np.diff(S.indptr)
    top, held, queried = np.arange(policy.num_cells), [1] * policy.num_cells, []
    for query in np.argsort(sizes, kind="stable").tolist():
        begin, end = S.indptr[query], S.indptr[query + 1]
        if begin == end or np.any(S.data[begin:end] != S.data[begin]):
            return None
        cells = S.indices[begin:end]
        parts = np.unique(top[cells]).tolist()
        if sum(held[part] for part in parts) != cells.size or not _in_one(policy, cells):
            return None
        if len(parts) > 1:
            top[cells] = trees.join(parts)
            held.append(int(cells.size))
        queried.append(int(top[cells[0]]))
    for component in range(policy.components.count):
        trees.join(np.unique(top[policy.components.labels == component]).tolist())
    return QueryTree(trees.parents, np.isin(np.arange(trees.parents.size), queried))


def _in_one(policy: Policy, cells: IndexArray) -> bool:
    labels = policy.components.labels[cells]
    return bool(np.all(labels == labels[0]))
